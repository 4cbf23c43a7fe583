"""Which cores a process may use, processes that it starts, how frameworks are imported, and memory that is kept."""

import gc
import os
import resource
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain_samples import living
from programs import await_, completed

from tipchain.core import machine
from tipchain.core.machine import WORTH, collect, kept_import


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a folder of control groups, on a machine of eight cores of which one may not be used."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {7, 1, 2, 3, 4, 5, 6})
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_the_affinity_counts(groups):
    assert machine.usable_cores() == (1, 2, 3, 4, 5, 6, 7)
    assert machine.core_count() == 7


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 100000\n", "cpu.max": "max 1\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "max 100000\n"}, 3),
        ("0::/not/seen/from/inside\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 7),
        ("0::/a\n", {"a/cpu.max": "nonsense"}, 7),
        ("3:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2),
        ("3:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 7),
        (
            "3:cpu,cpuacct:/a\n2:memory:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("3:cpuset:/a\n", {"cpuset/a/cpu.max": "100000 100000\n"}, 7),
    ],
)
def test_the_least_quota_of_all_groups_above_counts(groups, own, files, count):
    (groups / "own").write_text(own)
    for name, text in files.items():
        write(groups / "cgroup" / name, text)
    assert machine.core_count() == count
    assert machine.usable_cores() == (1, 2, 3, 4, 5, 6, 7)[:count]


APART = """
import os, sys, threading, time
from pathlib import Path
from tipchain.core.machine import start_process
log, threads = Path(sys.argv[1]), sys.argv[2] == "threads"

def tell(word):
    print(word, os.getppid(), "was imported" if "fractions" in sys.modules else "was not", flush=True)
    os.write(2, b"and so are descriptors\\n")
    raise SystemExit(7)

def wait():
    log.with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    import fractions
    ended = threading.Event()
    if threads:
        threading.Thread(target=ended.wait).start()
    process = start_process(tell, "printed by a child of", log=log)
    process.join()
    print(os.getpid(), process.exitcode)
    start_process(wait, log=log)
    while not (log.with_suffix(".pid").exists() and log.with_suffix(".pid").read_text()):
        time.sleep(0.01)
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.parametrize(("threads", "imported"), [("none", "was imported"), ("threads", "was not")])
def test_a_process_is_a_copy_of_one_without_threads_and_ends_with_it(tmp_path, threads, imported):
    script, log = tmp_path / "apart.py", tmp_path / "log.txt"
    script.write_text(APART)
    log.write_text("before\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = completed([sys.executable, script, log, threads], check=True, env=env)
    parent, code = done.stdout.split()
    assert code == "7"
    assert log.read_text() == f"before\nprinted by a child of {parent} {imported}\nand so are descriptors\n"
    await_(lambda: not living(tmp_path / "log.pid"))


@pytest.fixture
def collector() -> Iterator[None]:
    """Leave the collector as it was found."""
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.enable()
    yield
    (gc.freeze if frozen else gc.unfreeze)()
    (gc.enable if enabled else gc.disable)()


def test_the_collector_rests_and_what_came_is_frozen():
    program = """
import gc
from tipchain.core.machine import kept_import
with kept_import("no_such_framework"):
    assert not gc.isenabled()
    kept = [[] for _ in range(1000)]
assert gc.isenabled()
assert gc.get_freeze_count() > 1000
assert not any(one is kept for one in gc.get_objects())
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("error", [None, ImportError])
def test_a_collector_that_was_off_stays_off_and_one_that_was_on_comes_back(error):
    def attempt() -> None:
        with kept_import("no_such_framework"):
            if error:
                raise error

    for switch, expected in ((gc.disable, False), (gc.enable, True)):
        switch()
        if error:
            with pytest.raises(error):
                attempt()
        else:
            attempt()
        assert gc.isenabled() is expected


def test_a_command_is_loaded_without_the_collector_and_runs_with_it():
    program = """
import gc, sys
from types import SimpleNamespace
from tipchain import cli
def load(name):
    loaded.append(gc.isenabled())
    return SimpleNamespace(add_arguments=lambda parser: None, run=lambda args: print(gc.isenabled(), gc.get_freeze_count() > 1000))
loaded, cli.load_command = [], load
sys.argv = ["tipchain", "plan"]
cli.main(["plan"])
cli.main()
print(loaded)
"""
    done = completed([sys.executable, "-c", program], check=True)
    # Within a process of somebody else, the collector is left alone.
    assert done.stdout == "True False\nTrue True\n[True, True, False, False]\n"


LARGE = 2**26
TOOLS = f"""
import ctypes, resource, sys
from contextlib import nullcontext
from tipchain.core.machine import keep_memory, release_memory

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def taken():
    start = library.malloc(ctypes.c_size_t({LARGE}))
    library.memset(ctypes.c_void_p(start), 1, ctypes.c_size_t({LARGE}))
    return start

def free(start):
    library.free(ctypes.c_void_p(start))

def pages():
    return int(open("/proc/self/statm").read().split()[1])
"""
PROGRAM = """# prints how often the system gave it a page, and its pages at the end
def touch():
    free(taken())

with keep_memory() if sys.argv[1] == "kept" else nullcontext():
    touch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        touch()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(pages())
"""


def numbers_of(program: str, *words: str, **variables: str) -> list[int]:
    """Return the numbers that a program prints which takes 64 MiB, with these of the allocator's settings alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    env = {**kept, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **variables}
    command = [sys.executable, "-c", TOOLS + program, *words]
    return [int(one) for one in completed(command, env=env, check=True).stdout.split()]


KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def test_what_is_freed_is_taken_again() -> None:
    pages = LARGE // resource.getpagesize()
    alone, kept = numbers_of(PROGRAM, "alone"), numbers_of(PROGRAM, "kept")
    assert alone[0] > pages / 2
    assert kept[0] < pages / 100
    assert kept[1] < pages, "the process keeps what it no longer needs"


def test_what_the_user_set_stays() -> None:
    pages = LARGE // resource.getpagesize()
    assert numbers_of(PROGRAM, "kept", MALLOC_MMAP_MAX_="65536")[0] > pages / 2


HOLE = """
hole, _ = taken(), taken()
full = pages()
free(hole)
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
