"""Memory that is freed is taken again without asking the system, and given back at the end."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tipchain.core.machine import WORTH, collect

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
LARGE = 2**26
PROGRAM = """
import ctypes, resource, sys
from contextlib import nullcontext
from tipchain.core.machine import keep_memory

def touch():
    ctypes.CDLL(None).free(ctypes.c_void_p(taken()))

def taken():
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    start = library.malloc(ctypes.c_size_t({size}))
    library.memset(ctypes.c_void_p(start), 1, ctypes.c_size_t({size}))
    return start

with keep_memory() if sys.argv[1] == "kept" else nullcontext():
    touch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        touch()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(open("/proc/self/statm").read().split()[1])
"""


def faults_and_pages(way: str, **variables: str) -> list[int]:
    """Return how often the system gave a page to a program that takes and frees 64 MiB, and its pages at the end."""
    return numbers_of(PROGRAM, way, **variables)


def numbers_of(program: str, *words: str, **variables: str) -> list[int]:
    """Return the numbers that a program prints which takes 64 MiB, with these of the allocator's settings alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    env = {**kept, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **variables}
    command = [sys.executable, "-c", program.format(size=LARGE), *words]
    return [
        int(one) for one in subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    ]


KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def test_what_is_freed_is_taken_again() -> None:
    pages = LARGE // resource.getpagesize()
    alone, kept = faults_and_pages("alone"), faults_and_pages("kept")
    assert alone[0] > pages / 2
    assert kept[0] < pages / 100
    assert kept[1] < pages, "the process keeps what it no longer needs"


def test_what_the_user_set_stays() -> None:
    pages = LARGE // resource.getpagesize()
    assert faults_and_pages("kept", MALLOC_MMAP_MAX_="65536")[0] > pages / 2


HOLE = """
import ctypes, sys
from tipchain.core.machine import release_memory

def pages():
    return int(open("/proc/self/statm").read().split()[1])

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
taken = [library.malloc(ctypes.c_size_t({size})) for _ in range(2)]
for one in taken:
    library.memset(ctypes.c_void_p(one), 1, ctypes.c_size_t({size}))
full = pages()
library.free(ctypes.c_void_p(taken[0]))
kept = pages()
release_memory(int(sys.argv[1]))
print(full - kept, full - pages())
"""


@pytest.mark.parametrize(("size", "given"), [(WORTH, True), (WORTH - 1, False)])
def test_what_is_free_between_others_goes_back_where_that_is_worth_it(size: int, *, given: bool) -> None:
    by_itself, asked = numbers_of(HOLE, str(size), **KEPT)
    pages = LARGE // resource.getpagesize()
    assert by_itself < pages / 10
    assert (asked > pages * 0.9) is given


LASTING = """
import ctypes
from tipchain.core.machine import lasting_memory

def pages():
    return int(open("/proc/self/statm").read().split()[1])

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def given_back():
    one = library.malloc(ctypes.c_size_t({size}))
    library.memset(ctypes.c_void_p(one), 1, ctypes.c_size_t({size}))
    return one, pages()

with lasting_memory():
    lasts, inside = given_back()
other, full = given_back()
library.free(ctypes.c_void_p(lasts))
without = pages()
library.free(ctypes.c_void_p(other))
print(full - without, without - pages())
"""


@pytest.mark.parametrize(("maps", "keeps"), [("0", True), ("65536", False)])
def test_what_lasts_is_mapped_by_itself_where_freed_memory_is_kept(maps: str, *, keeps: bool) -> None:
    lasting, other = numbers_of(LASTING, **{**KEPT, "MALLOC_MMAP_MAX_": maps})
    pages = LARGE // resource.getpagesize()
    assert lasting > pages * 0.9
    assert (other < pages / 10) is keeps, "afterwards all is as it was"


def test_what_refers_to_itself_is_freed_where_it_is_worth_it() -> None:
    class Node:
        def __init__(self) -> None:
            self.own = self

    def is_freed(size: int) -> bool:
        node = Node()
        told = weakref.ref(node)
        del node
        collect(size)
        return told() is None

    gc.disable()
    try:
        assert is_freed(WORTH)
        assert not is_freed(WORTH - 1)
    finally:
        gc.enable()
