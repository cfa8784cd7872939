"""docs/reproduce.md is what the results make, without torch."""

from __future__ import annotations

import subprocess
import sys

from invaug.lab.report.tables import to_html
from invaug.lab.reproduce import page, rows
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.rows import FAILED
from tests.support.experiments import NAMES, ROOT, row


def test_hostile_text_in_results_is_escaped(tmp_path):
    hostile = "<script>alert(1)</script>|x\n# y\x1b[31m"
    path = rows.path_of(tmp_path, "table-1", "small")
    rows.write(path, [row(hostile, test_accuracy=0.5), row("cifar10-none", status=FAILED)])
    found = Outcome(find("table-1"), "small", rows.read(path))
    assert "<script>" not in to_html(found.table())
    text = page.write_page(tmp_path)
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\n# y" not in text
    assert "\x1b" not in text
    assert r"\<b\>\|reason" in text


def test_the_page_says_what_is_still_to_be_run(tmp_path):
    text = page.write_page(tmp_path)
    assert all(f"\n## {name}: " in text for name in NAMES)
    assert "Small scale: not run yet: `invaug reproduce figure-dual --scale small`." in text
    assert "Full scale: none: at full scale the levels are the published ones" in text


def test_the_page_in_docs_is_the_one_the_results_make():
    root = ROOT
    text = (root / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert text == page.write_page(root / "results"), "python -m invaug.lab.reproduce -o docs/reproduce.md"


def test_tables_and_the_page_are_made_without_torch(tmp_path):
    write = "page.write_page(__import__('pathlib').Path('.'))"
    code = f"import sys; from invaug.lab.reproduce import page, outcome; {write}"
    words = [sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"]
    subprocess.run(words, cwd=tmp_path, check=True)  # noqa: S603
