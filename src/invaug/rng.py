"""Randomness keyed by numbers: a generator for each batch, and a way to borrow torch's global generators."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch


def mix(*numbers: int) -> int:
    """Return one seed made from several numbers, so that neighbouring numbers give unrelated seeds.

    Example:
        >>> mix(0, 1) == mix(0, 1), mix(0, 1) == mix(1, 0)
        (True, False)
    """
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def own_randomness(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators from ours for the duration of a block, then restore them.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> before = torch.get_rng_state()
        >>> with own_randomness(generator, torch.device("cpu")):
        ...     noise = torch.rand(3)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    devices, kind = ([device], device.type) if _has_generator(device) else ([], "cuda")
    with torch.random.fork_rng(devices, device_type=kind):
        seed_own(seed, device)
        yield


def seed_own(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and of one device.

    torch.manual_seed would seed every other device as well, and it records the caller's stack while CUDA is not
    initialised.

    Example:
        >>> with torch.random.fork_rng():
        ...     seed_own(3, torch.device("cpu"))
        ...     torch.initial_seed()
        3
    """
    torch.default_generator.manual_seed(seed)
    if _has_generator(device):
        library = getattr(torch, device.type)
        with library.device(device) if hasattr(library, "device") else nullcontext():  # mps has only one
            library.manual_seed(seed)


def _has_generator(device: torch.device) -> bool:
    """Return whether the device has a generator of its own: the CPU uses torch's, fake and meta devices have none."""
    library: Any = getattr(torch, device.type, None)
    return device.type != "cpu" and library is not None and bool(library.device_count())
