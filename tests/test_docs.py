"""Every Python and console block of README and docs runs, in order, page by page, in a folder with some small data.

The site is built by `make docs`, which runs the gallery and checks every link; what needs no Sphinx is checked here.

A block that would take too long is preceded by `<!-- too long: --help -->` or `<!-- too long: --dry-run -->`; each of
its commands is then run with that flag added, which still refuses a flag or a command that does not exist.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.cli.main import main
from tests.support.runs import train, write_digits

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
REFERENCE = sorted((ROOT / "docs" / "api").rglob("*.md"))  # made from docstrings, whose examples test_doctests.py runs
PAGES = [*GUIDES, *REFERENCE]
NOTEBOOK = ROOT / "examples" / "which_symmetries.ipynb"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LISTING = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)  # the text of a script in examples, not run here
NEEDS = re.compile(r"^# needs: (\w+)", re.MULTILINE)
CONSOLE = re.compile(r"^(?:<!-- too long: (--[\w-]+) -->\n)?```(?:console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = {"reproduce.md": "--dry-run", "compare.md": "--dry-run"}  # written by a program, so the marks are here
WITHOUT_BLOCKS = {"default.md", "protocol.md", "reliability.md"}  # results and rules alone
WITHOUT_BLOCKS |= {"glossary.md", "method-card.md"}  # words alone
FENCE = re.compile(r"^ *```(\S*)", re.MULTILINE)
NOT_CODE = {"", "text", "toml", "yaml", "json", "diff", "{toctree}", "{eval-rst}"}  # output, files, what Sphinx reads
TOCTREE = re.compile(r"^```{toctree}\n(.*?)^```", re.MULTILINE | re.DOTALL)

PICTURED = {3: "three", 4: "four", 5: "five", 8: "eight"}
MINE = """
[families.turns]
Rotate = 45
[families.mirror]
FlipX = true
"""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands_of(page: Path) -> list[tuple[list[str], str | None]]:
    """Return the words of each command of a page, and the flag that checks it if it is too long to run."""
    found = []
    for flag, block in CONSOLE.findall(text_of(page)):
        lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith(("$ ", "make ", "pip "))]
        found += [(shlex.split(line, comments=True), flag or GENERATED.get(page.name)) for line in lines]
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages name: images in folders, .npz files, a config, and two runs."""
    folder = tmp_path_factory.mktemp("world")
    data = write_digits(folder, n_train=512)
    with np.load(data) as arrays:
        for i, (image, target) in enumerate(zip(arrays["x_train"], arrays["y_train"], strict=True)):
            if target in PICTURED:
                place = folder / "photos" / PICTURED[target] / f"{i}.png"
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image[..., 0]).save(place)
    for name in ("data.npz", "other.npz", "scans.npz"):
        shutil.copy(data, folder / name)
    (folder / "mine.toml").write_text(MINE, encoding="utf-8")
    train(data, folder / "runs" / "a", epochs=1, set="standard", n_levels=3)
    train(data, folder / "runs" / "b", epochs=1, method="trivial")
    return folder


@pytest.fixture
def world(small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the small world, as the current folder."""
    n_threads = torch.get_num_threads()  # training sets them for the whole process
    shutil.copytree(small_world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    torch.set_num_threads(n_threads)


def run_invaug(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expanded = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    monkeypatch.setattr(sys, "argv", ["invaug", *expanded])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code, f"invaug {shlex.join(words)} ended with {stopped.value.code}"


def check_make(words: list[str]) -> None:
    """Check that the targets exist; what they do is what CI does."""
    subprocess.run(["make", "--dry-run", "-C", str(ROOT), *words], check=True, capture_output=True)  # noqa: S603, S607


def check_extras(words: list[str]) -> None:
    """Check that the extras of a `pip install` exist."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extras = {extra for group in re.findall(r"\[([\w,]+)\]", " ".join(words)) for extra in group.split(",")}
    assert extras <= set(known)


def check_script(script: str, flags: list[str]) -> None:
    """Check that a script exists and that it, or what it shares with its neighbours, defines the flags it is given."""
    texts = [text_of(path) for path in (ROOT / script).parent.glob("*.py")]
    assert (ROOT / script).exists()
    missing = [flag for flag in flags if flag.startswith("--") and not any(f'"{flag}"' in text for text in texts)]
    assert not missing


def run_command(words: list[str], flag: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    while "=" in words[0]:  # INVAUG_DATA=... before a command
        words = words[1:]
    program, *rest = words
    if program == "torchrun":
        program, rest = "invaug", rest[rest.index("-m") + 2 :]
    if program == "make":
        check_make(rest)
    elif program == "pip":
        check_extras(rest)
    elif program.endswith("python"):
        check_script(rest[0], rest[1 : rest.index("train.py")] if "train.py" in rest else rest[1:])  # that is timm's
    else:
        assert program == "invaug", f"nobody knows how to run {program}"
        run_invaug([*rest, flag] if flag else rest, monkeypatch)


def runnable(block: str) -> bool:
    return all(importlib.util.find_spec(name) for name in NEEDS.findall(block))


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")  # two of Lightning's own
@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found")  # transformers
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_of_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in PYTHON.findall(text_of(page)) if runnable(block)]
    through_a_framework = any("invaug.integrations" in block for block in blocks) and runnable("# needs: torchvision")
    if through_a_framework or any("torchvision" in block for block in blocks):
        request.getfixturevalue("torchvision")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)  # noqa: S102 - the pages are ours


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
def test_console_blocks_of_the_page_run(page: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, flag in commands_of(page):
        run_command(words, flag, monkeypatch)


def test_only_the_pages_that_say_so_have_nothing_to_run() -> None:
    empty = {page.name for page in GUIDES if not PYTHON.search(text_of(page)) and not commands_of(page)}
    assert empty == WITHOUT_BLOCKS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_written_in_a_language_that_is_not_run(page: Path) -> None:
    assert set(FENCE.findall(text_of(page))) <= {"python", "py", "console", "sh", *NOT_CODE}
    scripts = [text_of(script) for script in (ROOT / "examples").glob("*.py")]
    assert [block for block in LISTING.findall(text_of(page)) if block not in scripts] == []


@pytest.mark.parametrize("words", [["train", "--eposhs", "2"], ["trian"], ["show", "nothing-like-it"]])
def test_a_command_that_does_not_exist_is_found_out(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flag = "--help" if "--eposhs" in words else None
    with pytest.raises(AssertionError, match="ended with 2"):
        run_command(["invaug", *words], flag, monkeypatch)


def test_readme_starts_with_the_two_commands() -> None:
    first_screen = "\n".join(text_of(ROOT / "README.md").splitlines()[:25])
    assert re.findall(r"^make \w+", first_screen, re.MULTILINE) == ["make train", "make test"]


def links_of(page: Path) -> Iterator[str]:
    yield from re.findall(r"\]\((?!https?:)([^)#]+)", text_of(page))


@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK], ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert [link for link in links_of(page) if not (page.parent / link).exists()] == []


def menu_of(page: Path) -> set[str]:
    """Return the pages that a page lists in its menus, without those that the build writes."""
    lines = [line for menu in TOCTREE.findall(text_of(page)) for line in menu.splitlines()]
    pages = {re.sub(r".*<(.*)>", r"\1", line) for line in lines if line and not line.startswith(":")}
    return {page for page in pages if not page.startswith("generated/")}


@pytest.mark.parametrize("folder", ["docs", "docs/api", "docs/api/integrations"])
def test_every_page_is_in_the_menu_of_the_site(folder: str) -> None:
    menus = {(page.parent / name).resolve() for page in PAGES for name in menu_of(page)}
    pages = {page.with_suffix("").resolve() for page in (ROOT / folder).glob("*.md")}
    assert pages - menus <= {ROOT / "docs" / "index"}


def test_scripts_of_the_gallery_have_names_that_are_executed() -> None:
    scripts = [path.name for path in (ROOT / "examples" / "gallery").glob("*.py")]
    assert len(scripts) >= 3
    assert [name for name in scripts if not name.startswith("plot_")] == []


def test_notebook_is_small_and_contains_what_it_printed() -> None:
    cells = json.loads(text_of(NOTEBOOK))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert NOTEBOOK.stat().st_size < 300_000
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.png")), ids=name_of)
def test_pictures_are_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size < 150_000
    assert any(f"images/{picture.name}" in link for page in PAGES for link in links_of(page))


def test_files_named_by_the_architecture_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", text_of(ROOT / "docs" / "architecture.md")))
    assert len(named) > 15
    assert [name for name in named if not any((root / name).exists() for root in (ROOT / "src" / "invaug", ROOT))] == []
