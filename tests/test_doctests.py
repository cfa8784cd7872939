"""Every example in the docstrings of the method runs, and every public function has one."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import invaug

SOURCE = Path(invaug.__file__).parent
COMPILED = SOURCE / "kernels" / "by_numba.py"  # compared with the torch kernels, operation by operation
COMMAND = [SOURCE / "cli.py", SOURCE / "__main__.py"]  # hands over to the laboratory
FRAMEWORKS = {"lightning.py": "lightning", "huggingface.py": "transformers", "timm.py": "timm"}
FILES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if SOURCE / "lab" not in path.parents and path not in (COMPILED, *COMMAND)
]


def module_of(path: Path) -> str:
    return ".".join(["invaug", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")


def without_example(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the public functions and classes without an example; that of a class serves its methods."""
    for node in body:
        public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if public and ">>>" not in (ast.get_docstring(node) or ""):
            yield node.name


def without_docstring(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the public functions, classes and methods without a docstring."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from without_docstring(node.body, f"{node.name}.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_of_the_module_run(path: Path, request: pytest.FixtureRequest) -> None:
    framework = FRAMEWORKS.get(path.name, "torch")
    if find_spec(framework) is None:
        pytest.skip(f"EXAMPLES NOT RUN: {framework} is not installed; `make integrations` installs it")
    if path.name in FRAMEWORKS and find_spec("torchvision"):  # which frameworks import where it is installed
        request.getfixturevalue("torchvision")
    assert doctest.testmod(import_module(module_of(path))).failed == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_public_function_and_class_has_an_example(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assert list(without_example(body)) == []
    assert list(without_docstring(body)) == []


def test_the_two_checks_see_what_is_missing() -> None:
    body = ast.parse('class A:\n    """A."""\n    def b(self): ...\n').body
    assert (list(without_example(body)), list(without_docstring(body))) == (["A"], ["A.b"])
