"""What torchrun and Fabric say about this process, in environment variables; needs no heavy import."""

import os


def under_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "LOCAL_WORLD_SIZE" in os.environ


def restarts() -> int:
    """Return how often torchrun has restarted the processes after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_first() -> bool:
    """Whether this process is the first rank, the one that prints."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
