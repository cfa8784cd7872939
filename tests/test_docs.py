"""Every Python block of README and docs runs, in order, page by page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^# needs: (\w+)", re.MULTILINE)


def runnable(block: str) -> bool:
    return all(importlib.util.find_spec(name) for name in NEEDS.findall(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in BLOCK.findall(page.read_text(encoding="utf-8")) if runnable(block)]
    if any("torchvision" in block for block in blocks):
        request.getfixturevalue("torchvision")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)  # noqa: S102 - the pages are ours


def test_readme_starts_with_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    commands = re.findall(r"^make \w+", first_screen, re.MULTILINE)
    assert commands == ["make train", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
