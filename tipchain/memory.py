"""Memory that a process frees and takes again stays its own meanwhile."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""What glibc's ``mallopt`` calls its settings."""
LARGEST_MMAP = 2**25
"""The largest threshold for blocks of their own that glibc knows; it sets its own to this once such a block was freed."""
USUAL_MAPS = 2**16
"""Blocks of their own that glibc allows by default."""
WORTH = 2**26
"""Bytes that are worth looking for: that takes some tenths of a second with two frameworks imported."""
OWN_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""Variables by which users set this themselves."""


@contextmanager
def keep_memory() -> Iterator[None]:
    """Keep what is freed for what is taken next, and give it back to the system at the end.

    glibc maps each large block anew and unmaps it when it is freed, and the system then zeroes every page of the next
    one: running a model forward and backward in float64 spends a sixth to a third of its time on that. Afterwards glibc is in the
    state that it comes to by itself once large blocks have been freed. Where there is another C library, or the user set this,
    nothing is changed.
    """
    if not _is_glibc() or any(name in os.environ for name in OWN_SETTINGS):
        yield
        return
    import ctypes

    library = ctypes.CDLL(None)
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        library.mallopt(MMAP_THRESHOLD, LARGEST_MMAP)
        library.mallopt(MMAP_MAX, USUAL_MAPS)
        library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_MMAP)
        library.malloc_trim(0)


def collect(size: int) -> None:
    """Free what refers to itself, as models and optimizers do, if ``size`` bytes may hang on it."""
    if size >= WORTH:
        gc.collect()


def _is_glibc() -> bool:
    with suppress(ValueError, AttributeError, OSError):  # another system does not know the name
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    return False
