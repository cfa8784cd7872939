"""A setting of the C library: freed memory stays with the process."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # the names of malloc.h


@cache
def keep_freed() -> bool:
    """Keep freed memory instead of returning it to the system; return whether this C library can.

    Every step frees its activations. glibc gives such large blocks back, and the system hands them out again as
    fresh pages, zeroed one by one: a third of the time of a small network's step on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, (1 << 31) - 1), (M_TOP_PAD, 64 << 20))
    return bool(min(mallopt(name, value) for name, value in settings) == 1)  # all of them, also after one that fails
