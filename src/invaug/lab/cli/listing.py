"""`invaug ls`: what can be asked for by name."""

import tomllib
from pathlib import Path

from invaug.lab.config import build
from invaug.lab.config.methods import METHODS
from invaug.lab.config.resolve import RANGES
from invaug.lab.data.known import SOURCES
from invaug.lab.models.build import MODELS

SUMMARIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def catalogue() -> dict[str, dict[str, str]]:
    """Return everything with a name, by kind: name -> what it is in one line, with the range of continuous sets."""
    sets = SUMMARIES["sets"]
    return {
        "datasets": {name: source.about for name, source in SOURCES.items()},
        "models": dict(MODELS),
        "sets": {**sets, **{name: f"{sets[name]} [{far:.4g}]" for name, far in RANGES.items()}},
        "methods": {name: spec.summary for name, spec in METHODS.items()},
        "presets": {name: SUMMARIES["presets"][name] for name in build.PRESETS},
        "configs": {name: first_comment(name) for name in build.shipped_names()},
    }


def first_comment(name: str) -> str:
    """Return the comment a shipped config starts with."""
    first = (build.SHIPPED / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""
