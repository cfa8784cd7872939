"""What torchrun and Fabric tell a process of itself, before anything heavy is imported."""

from __future__ import annotations

import os


def under_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "LOCAL_WORLD_SIZE" in os.environ


def restarts() -> int:
    """Return how often torchrun has started the processes again after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_first() -> bool:
    """Whether this process is the one of several that speaks."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
