"""What this process runs on and under: torchrun's environment variables, the processor, the commit; no heavy import."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path


def under_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "LOCAL_WORLD_SIZE" in os.environ


def restarts() -> int:
    """Return how often torchrun has restarted the processes after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_first() -> bool:
    """Whether this process is the first rank, the one that prints."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


@cache
def cpu_facts() -> dict[str, str]:
    """Return what Linux says about the processor; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def cpu_model() -> str:
    """Return the name of the processor, as far as the system tells it."""
    found, numbers = cpu_facts(), ("cpu family", "model")
    name = found.get("model name") or platform.processor() or platform.machine()
    return ", ".join([name, *(f"{key} {found[key]}" for key in numbers if key in found)])


def lacks_bf16() -> bool:
    """Whether the processor is known to have no instructions for bfloat16, which it then computes several times slower.

    Example:
        >>> lacks_bf16() in (True, False)
        True
    """
    flags = (cpu_facts().get("flags") or cpu_facts().get("Features") or "").split()
    return bool(flags) and not BF16_FLAGS & {*flags}


@cache
def commit() -> str | None:
    """Return the commit that this code was loaded from, with a mark if it was changed since; None outside a checkout.

    It is looked up once, when the process first asks, so that commits made while it runs do not count.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = _output([*git, "rev-parse", "HEAD"])
        return f"{head}, changed" if _output([*git, "status", "--porcelain", "."]) else head
    except (OSError, subprocess.CalledProcessError):
        return None


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    return done.stdout.strip()
