"""JSON documents of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

from invaug.lab.run.documents import json_safe, write_document


def test_numbers_json_cannot_express_become_null() -> None:
    assert json_safe({"a": [math.nan, 1.0], "b": {"c": math.inf}}) == {"a": [None, 1.0], "b": {"c": None}}


def test_a_document_is_plain_json(tmp_path: Path) -> None:
    write_document(tmp_path, "numbers.json", {"a": (1.0, math.inf)})
    assert json.loads((tmp_path / "numbers.json").read_text()) == {"a": [1.0, None]}
