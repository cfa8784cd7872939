"""`invaug ls`: what can be asked for by name."""

from invaug.lab.config import build
from invaug.lab.config.methods import DEFAULT, METHODS
from invaug.lab.config.resolve import RANGES
from invaug.lab.data.known import SOURCES
from invaug.lab.models.build import MODELS

SETS = {
    "auto": f"{METHODS[DEFAULT].default_set}; wide for --method trivial",
    "mild": "TrivialAugment's 14 operations, up to 18 degrees and 6 pixels, two applied in sequence",
    "wide": "TrivialAugment's wide set: 14 operations, up to 135 degrees and 32 pixels",
    "standard": "TrivialAugment's standard set: 14 operations, up to 30 degrees and 10 pixels",
    "rotations": "rotations by any angle up to --range radians",
    "translations": "shifts along both axes up to --range pixels",
    "scalings": "enlargements by exp(s), s up to --range",
}
PRESETS = {
    "default": "our own settings: chains, one view per image, epsilon set by the resilient rule",
    "paper": "as the paper's text has it",
    "authors-code": "as the authors' code runs it",
}


def catalogue() -> dict[str, dict[str, str]]:
    """Return everything with a name, by kind: name -> what it is in one line."""
    return {
        "datasets": {name: source.about for name, source in SOURCES.items()},
        "models": dict(MODELS),
        "sets": {name: _with_default(name, summary) for name, summary in SETS.items()},
        "methods": {name: spec.summary for name, spec in METHODS.items()},
        "presets": {name: PRESETS.get(name, "") for name in build.PRESETS},
        "configs": {name: first_comment(name) for name in build.shipped_names()},
    }


def first_comment(name: str) -> str:
    """Return the comment a shipped config starts with."""
    first = (build.SHIPPED / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _with_default(name: str, summary: str) -> str:
    return f"{summary} [{RANGES[name]:.4g}]" if name in RANGES else summary
