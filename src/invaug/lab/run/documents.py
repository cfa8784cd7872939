"""JSON documents that a run keeps for its page; written here, read by `report` without torch."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invaug.lab.run import atomic

EVALUATION, CERTIFICATE, INSIGHTS = "evaluation.json", "certificate.json", "insights.json"


def write_document(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a document into the folder of a run."""
    atomic.write_text(folder / name, json.dumps(json_safe(content), allow_nan=False))


def json_safe(value: Any) -> Any:
    """Return the value with null in place of infinities and NaN, which JSON cannot express."""
    if isinstance(value, Mapping):
        return {key: json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
