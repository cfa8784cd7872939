import ast
import subprocess
import sys
from pathlib import Path

import pytest

import invaug

SOURCE = Path(invaug.__file__).parent
EVERYTHING = sorted(SOURCE.rglob("*.py"))
METHOD = [path for path in EVERYTHING if SOURCE / "lab" not in path.parents]

ALLOWED = {"torch", "numpy", "invaug", *sys.stdlib_module_names}
DOOR = "cli.py"  # the command, which hands over to the laboratory
ONLY_IN = {"by_numba.py": {"numba"}}
ONLY_INSIDE_FUNCTIONS = {"adapters.py": {"torchvision", "kornia", "albumentations", "PIL"}}

BANNED_IMPORTS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
BANNED_NAMES = {"eval", "exec", "compile", "__import__"}
BANNED_CALLS = {"torch.load", "yaml.load", "os.system", "os.popen"}
BANNED_METHODS = {"extractall"}
BANNED_KEYWORDS = {"shell": True, "allow_pickle": True}


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


def dangers(source: str) -> list[str]:
    """Return every call or import of the ban list, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [f"{node.lineno}: import {name}" for name in imports_of(node) if name.split(".")[0] in BANNED_IMPORTS]
        found += [f"{node.lineno}: {name}" for name in imports_of(node) if name in BANNED_CALLS]
        if isinstance(node, ast.Call):
            found += [f"{node.lineno}: {name}" for name in dangers_of_call(node)]
    return found


def dangers_of_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    banned = name in BANNED_NAMES | BANNED_CALLS or name.split(".")[-1] in BANNED_METHODS
    keywords = [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords if k.arg in BANNED_KEYWORDS]
    return [name] * banned + [keyword for keyword in keywords if not keyword.endswith("=False")]


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
    assert not {name for name in added if name in unwelcome or name.split(".")[0] in unwelcome}
    assert "invaug.kernels.by_numba" not in added


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_calls_anything_on_the_ban_list(path):
    assert dangers(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.memory",
        "eval('1')",
        "exec(text)",
        "torch.load(path)",
        "from torch import load",
        "yaml.load(text)",
        "os.system(command)",
        "archive.extractall(folder)",
        "tarfile.open(path).extractall()",
        "subprocess.run(command, shell=True)",
        "subprocess.run(command, shell=flag)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_ban_list_catches(line):
    assert len(dangers(line)) == 1


@pytest.mark.parametrize("line", ["model.eval()", "np.load(path, allow_pickle=False)", "re.compile(pattern)"])
def test_the_ban_list_lets_pass(line):
    assert dangers(line) == []
