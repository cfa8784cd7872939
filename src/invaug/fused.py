"""All byte operations in one pass over each image: the fast path on CPUs, when numba is installed.

Plain torch reads a batch once per kernel and pays for every call; here one compiled loop does whatever each image asks
for, on as many threads as torch uses. The torch kernels remain for GPUs, and as the reference this is tested against.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

(
    IDENTITY, AUTO_CONTRAST, EQUALIZE, ROTATE, SOLARIZE, COLOR, POSTERIZE, CONTRAST, BRIGHTNESS, SHARPNESS,
    SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, INVERT, FLIP_X, FLIP_Y, CROP, CUTOUT,
) = range(19)  # fmt: skip

BYTES_PER_THREAD = 64 * 1024  # below this a second thread costs more than it brings

_process = os.getpid()
_lock = threading.Lock()


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def usable(images: Tensor) -> bool:
    """Whether these images can go this way: on the CPU, with numba there."""
    return images.device.type == "cpu" and available()


def apply(images: Tensor, codes: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
    """Return a new uint8 CPU batch, each image under the operation its code names."""
    from invaug import _loops  # here, because numba takes half a second to import

    target = torch.empty_like(images, memory_format=torch.contiguous_format)
    arrays = [t.contiguous().numpy() for t in (images, target, codes, magnitudes, places)]
    n_threads = min(torch.get_num_threads(), len(images), images.numel() // BYTES_PER_THREAD)
    if n_threads > 1 and _may_share_threads() and _lock.acquire(blocking=False):
        try:
            _loops.some_threads(n_threads, *arrays)
        finally:
            _lock.release()
    else:
        _loops.one_thread(*arrays)
    return target


def _may_share_threads() -> bool:
    """Whether numba's threads are safe here: they do not survive a fork, and data loaders fork."""
    return os.getpid() == _process
