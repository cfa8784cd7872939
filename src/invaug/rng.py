"""Randomness keyed by numbers: a generator of its own for each batch, and torch's own generators on loan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch


def mix(*numbers: int) -> int:
    """Return one seed from several numbers, far apart for neighbours."""
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def own_randomness(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Let torch's own generators run on a seed from ours, and put them back as they were."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    devices, kind = ([device], device.type) if _has_generator(device) else ([], "cuda")
    with torch.random.fork_rng(devices, device_type=kind):
        seed_own(seed, device)
        yield


def seed_own(seed: int, device: torch.device) -> None:
    """Seed torch's own generators of the CPU and of the device.

    torch.manual_seed would seed every other device too, and where CUDA sleeps it writes down the stack of its caller.
    """
    torch.default_generator.manual_seed(seed)
    if _has_generator(device):
        library = getattr(torch, device.type)
        with library.device(device) if hasattr(library, "device") else nullcontext():  # mps has one and no choice
            library.manual_seed(seed)


def _has_generator(device: torch.device) -> bool:
    """Whether the device draws for itself: the CPU's generator is torch's own, a fake or meta device has none."""
    library: Any = getattr(torch, device.type, None)
    return device.type != "cpu" and library is not None and bool(library.device_count())
