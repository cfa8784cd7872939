"""Build the package and use it in an empty environment: `python .ci/package.py constraints.txt`.

Builds the source archive and the wheel, checks their metadata and that no file of the package is missing, installs the
wheel without extras and then with the lab, and runs both. Everything happens in a temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HINT = 'pip install "invaug[lab]"'
METHOD = """
import sys, torch, invaug
from importlib.metadata import version
assert version("invaug") == invaug.__version__, (version("invaug"), invaug.__version__)
images, targets = torch.zeros(8, 1, 28, 28, dtype=torch.uint8), torch.arange(8)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
problem = invaug.InvarianceConstrained(invaug.Constraint(invaug.sets.wide()), finish=lambda batch: batch / 255)
step = problem(model, images, targets)
step.lagrangian.backward()
problem.dual_step(step.slack)
print("invaug", invaug.__version__, "on torch", torch.__version__)
"""
LAB = (["--help"], ["ls"], ["show", "digits"], ["train", "--help"])


def main() -> None:
    """Run every check; the first that fails ends the program."""
    constraints = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="invaug-package-") as name:
        folder = Path(name)
        wheel = build(folder)
        check_files(wheel)
        python = make_environment(folder / "empty", "-c", str(constraints), str(wheel))
        run(python, "-c", METHOD, cwd=folder)
        check_hint(python.with_name("invaug"))
        install(python, "-c", str(constraints), f"{wheel}[lab]")
        for words in LAB:
            run(python.with_name("invaug"), *words, cwd=folder, quiet=True)
    print("the package builds, installs and runs")


def build(folder: Path) -> Path:
    """Build the archive and from it the wheel, check their metadata, and return the wheel."""
    python = make_environment(folder / "tools", "build", "twine")
    run(python, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT), cwd=folder, quiet=True)
    run(python, "-m", "twine", "check", "--strict", *map(str, (folder / "dist").iterdir()), cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def check_files(wheel: Path) -> None:
    """Raise unless the wheel contains every file of the package, also those that are not Python."""
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    missing = {name for name in files if "__pycache__" not in name} - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        raise SystemExit(f"not in {wheel.name}: {', '.join(sorted(missing))}")


def check_hint(command: Path) -> None:
    """Raise unless the command says in one line what to install where the lab is missing."""
    done = subprocess.run([command, "train"], capture_output=True, text=True, check=False)
    if done.returncode != 2 or HINT not in done.stderr or done.stderr.count("\n") != 1:
        raise SystemExit(f"invaug without the lab: exit code {done.returncode}, {done.stderr}")


def make_environment(folder: Path, *packages: str) -> Path:
    """Return the interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install(python, *packages)
    return python


def install(python: Path, *packages: str) -> None:
    """Install packages into the environment of an interpreter."""
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *packages, cwd=python.parent)


def run(program: Path, *words: str, cwd: Path, quiet: bool = False) -> None:
    """Run a program outside the repository, so that only what is installed can be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = subprocess.DEVNULL if quiet else None
    subprocess.run([program, *words], cwd=cwd, env=environment, stdout=output, check=True)


if __name__ == "__main__":
    main()
