"""A setting of the C library: freed memory stays with the process."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # the names of malloc.h


@cache
def keep_freed() -> None:
    """Keep freed memory instead of returning it to the system, if this C library can.

    Every step frees its activations. glibc gives such large blocks back, and the system hands them out again as
    fresh pages, zeroed one by one: a third of the time of a small network's step on a CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:  # musl has none
        for name, value in ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, (1 << 31) - 1), (M_TOP_PAD, 64 << 20)):
            mallopt(name, value)
