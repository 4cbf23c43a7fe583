"""Imports of what stays in memory until the process ends, without the garbage collector's part in them."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_import(name: str) -> Iterator[None]:
    """Let a framework be imported within: the collector rests meanwhile, and never looks at what it brought.

    torch and Paddle make some hundred thousand objects that all stay. Looking through them while they are imported,
    and again and again as the interpreter ends, takes a third of the time of a process that does little else (measured:
    3.3 s with both, 2.3 s this way). Nothing happens where the framework is there already: then it is somebody else's
    process.

    Args:
        name: the module that will be imported.

    Source: https://docs.python.org/3/library/gc.html#gc.freeze
    """
    if name in sys.modules:
        yield
        return
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
