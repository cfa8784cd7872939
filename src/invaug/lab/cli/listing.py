"""`invaug ls`: what can be asked for by name."""

from __future__ import annotations

from invaug.lab.config import schema as configs
from invaug.lab.data import datasets
from invaug.lab.data.known import SOURCES
from invaug.lab.models import build
from invaug.lab.train.problem import CONTINUOUS, METHODS

MODELS = {
    "cnn": "the tanh CNN of the synthetic experiments",
    "cnn-small": "two strided convolutions, for CPUs",
    "conv-24": "three strided convolutions and a mean, for CPUs; any width",
    "mlp": "the tanh MLP of the synthetic experiments",
    "resnet-8": "CIFAR ResNet, and any depth 6n + 2",
    "resnet-18": "ImageNet's, with a small stem for images up to 64 px",
    "resnet-20": "CIFAR ResNet, and any depth 6n + 2",
    "resnet-50": "ImageNet's, with a small stem for images up to 64 px",
    "wrn-10-1": "Wide ResNet, for CPUs",
    "wrn-16-1": "Wide ResNet, for CPUs",
    "wrn-16-2": "Wide ResNet, for CPUs",
    "wrn-28-10": "Wide ResNet of the paper, and any wrn-DEPTH-WIDTH",
    "wrn-40-2": "Wide ResNet of the paper, and any wrn-DEPTH-WIDTH",
}
SETS = {
    "auto": f"{configs.DEFAULT_SET}; wide for --method trivial",
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
        "datasets": {name: SOURCES[name].about for name in datasets.NAMES},
        "models": {name: MODELS.get(name, "") for name in build.NAMES},
        "sets": {name: _with_default(name, summary) for name, summary in SETS.items()},
        "methods": {name: spec.summary for name, spec in METHODS.items()},
        "presets": {name: PRESETS.get(name, "") for name in configs.PRESETS},
        "configs": {name: first_comment(name) for name in configs.shipped_names()},
    }


def first_comment(name: str) -> str:
    """Return the comment a shipped config starts with."""
    first = (configs.CONFIGS / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _with_default(name: str, summary: str) -> str:
    return f"{summary} [{CONTINUOUS[name][1]:.4g}]" if name in CONTINUOUS else summary
