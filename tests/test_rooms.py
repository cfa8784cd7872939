"""The method imports torch and numpy alone, and never the laboratory; the ban list is in `lab/test_security.py`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import invaug

SOURCE = Path(invaug.__file__).parent
METHOD = [path for path in sorted(SOURCE.rglob("*.py")) if SOURCE / "lab" not in path.parents]

ALLOWED = {"torch", "numpy", "invaug", *sys.stdlib_module_names}
DOOR = "cli.py"  # the command, which hands over to the laboratory
ONLY_IN = {
    "by_numba.py": {"numba"},
    "lightning.py": {"lightning", "pytorch_lightning"},
    "huggingface.py": {"transformers", "datasets", "accelerate"},
    "timm.py": {"timm"},
}
ONLY_INSIDE_FUNCTIONS = {"adapters.py": {"torchvision", "kornia", "albumentations", "PIL"}}


def imports_of(node: ast.AST) -> list[str]:
    """Return the full names a statement imports, if it imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "invaug" if node.level else node.module
        return [f"{module}.{alias.name}" for alias in node.names]
    return []


def imported(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in imports_of(node)}


def imported_in_functions(tree: ast.AST) -> set[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return set().union(*map(imported, functions))


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", METHOD, ids=lambda path: path.name)
def test_the_method_needs_torch_and_numpy_alone(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = ONLY_INSIDE_FUNCTIONS.get(path.name, set())
    assert packages(imported(tree)) <= ALLOWED | ONLY_IN.get(path.name, set()) | lazy
    at_import = {
        name
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for name in imported(node)
    }
    assert not packages(at_import) & lazy


@pytest.mark.parametrize("path", [path for path in METHOD if path.name != DOOR], ids=lambda path: path.name)
def test_the_method_never_imports_the_laboratory(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    # by statement, or by name through importlib
    assert not [name for name in imported(tree) | texts if name.startswith("invaug.lab")]


def test_compiled_loops_are_imported_inside_a_function_only():
    """Numba takes half a second to import, so no module may pull it in when it is itself imported."""
    for path in METHOD:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        loops = {name for name in imported(tree) if name.startswith("invaug.kernels.by_numba")}
        assert loops <= imported_in_functions(tree), path.name


def modules_brought_by(statement: str) -> set[str]:
    """Return what a statement imports in a fresh interpreter, beyond what torch and numpy do."""
    listing = f"import sys, torch, numpy; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)  # noqa: S603
    return set(done.stdout.split())


def test_import_brings_no_optional_package_and_no_laboratory():
    added = modules_brought_by("import invaug; [getattr(invaug, name) for name in invaug.__all__]")
    assert "invaug.problem" in added
    unwelcome = {"numba", "PIL", "torchvision", "kornia", "albumentations", "scipy", "matplotlib", "invaug.lab"}
    unwelcome |= {"lightning", "pytorch_lightning", "transformers", "timm", "invaug.integrations"}
    assert not {name for name in added if name in unwelcome or name.split(".")[0] in unwelcome}
    assert "invaug.kernels.by_numba" not in added
