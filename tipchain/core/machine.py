"""The machine: the resources that it offers and gives to a process."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from ctypes import CDLL
    from multiprocessing.process import BaseProcess

_T = TypeVar("_T")

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use, ascending; at least one.

    A quota of control groups (``cpu.max``, ``cpu.cfs_quota_us``) of 2.5 cores leaves two of them.
    """
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed[: max(int(min([*_quotas(), float(len(allowed))])), 1)])


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(usable_cores())


def on_cores(work: Sequence[Callable[[], _T]]) -> list[_T]:
    """Return the results of functions called at once, the first one in this process.

    Results are pickled. What was ended, by the system for want of memory or by an error, is done again here, where the
    error is raised; so is everything where this process has threads, for such a one cannot be doubled.
    """
    if has_threads():
        return [one() for one in work]
    others = []
    for one in work[1:]:
        source, target = os.pipe()
        process = os.fork()
        if not process:
            code = 1
            try:
                with os.fdopen(target, "wb") as file:
                    pickle.dump(one(), file)
                code = 0
            finally:
                os._exit(code)
        os.close(target)
        others.append((process, source))
    results = [one() for one in work[:1]]
    for one, (process, source) in zip(work[1:], others, strict=True):
        with os.fdopen(source, "rb") as file:
            content = file.read()
        _, status = os.waitpid(process, 0)
        results.append(pickle.loads(content) if status == 0 else one())  # noqa: S301  (written by this program)
    return results


def has_threads() -> bool:
    """Tell whether this process has threads, which a fork would lack."""
    return len(list(Path("/proc/self/task").iterdir())) > 1


def start_process(work: Callable[..., object], *args: object, log: Path) -> BaseProcess:
    """Start ``work(*args)`` in a process that writes ``log`` and ends with this one.

    It is a copy of this process, so that nothing is imported again, unless this one has threads and cannot be doubled.
    """
    import multiprocessing

    release_memory(WORTH)  # what is free here would be copied, page by page, once it is written to
    context = multiprocessing.get_context("spawn") if has_threads() else multiprocessing.get_context("fork")
    process: BaseProcess = context.Process(target=_work_apart, args=(log, work, args))
    process.start()
    return process


def _work_apart(log: Path, work: Callable[..., object], args: Sequence[object]) -> None:
    end_with_parent()
    with log.open("a", buffering=1) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        sys.stdout = sys.stderr = file
        work(*args)


def _quotas() -> Iterator[float]:
    lines: list[str] = []
    with suppress(OSError):
        lines = OWN_GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = CGROUP / controllers if (CGROUP / controllers).is_dir() else CGROUP / "cpu"
        # A container sees its own group as the mount's root, whatever the path says.
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            folder = mount / group.relative_to("/")
            with suppress(OSError, ValueError):  # "max": no limit
                quota, period = (folder / "cpu.max").read_text().split()
                yield int(quota) / int(period)
            with suppress(OSError, ValueError):
                microseconds = int((folder / "cpu.cfs_quota_us").read_text())
                if microseconds > 0:
                    yield microseconds / int((folder / "cpu.cfs_period_us").read_text())


TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""The numbers of settings of glibc's ``mallopt``."""
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
    """Keep freed memory for the next allocations, and give it back at the end.

    glibc maps each large block anew and unmaps it when it is freed, and the system then zeroes every page of the next
    one: running a model forward and backward in float64 spends a sixth to a third of its time on that. Afterwards glibc is in the
    state that it comes to by itself once large blocks have been freed. Where there is another C library, or the user set this,
    nothing is changed.
    """
    library = None if any(name in os.environ for name in OWN_SETTINGS) else _glibc()
    if library is None:
        yield
        return
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        library.mallopt(MMAP_THRESHOLD, LARGEST_MMAP)
        library.mallopt(MMAP_MAX, USUAL_MAPS)
        library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_MMAP)
        library.malloc_trim(0)


def paddle_kernels() -> dict[str, str]:
    """Return the variables under which Paddle's matrix products take the kernels that this processor has.

    The MKL that comes with Paddle is of 2019 and takes its oldest kernels (SSE2) on every processor but Intel's, unless it is told the
    kind; 5 are those of AVX2. On an AMD EPYC that halves AlexNet's time. Empty where it knows by itself.

    Source: https://documentation.sigma2.no/jobs/mkl.html
    """
    with suppress(OSError):
        words = CPUINFO.read_text().partition("\n\n")[0].split()
        if "AuthenticAMD" in words and {"avx2", "fma"} <= set(words):
            return {"MKL_DEBUG_CPU_TYPE": "5"}
    return {}


def collect(size: int) -> None:
    """Free reference cycles, as of models and optimizers, that hold ``size`` bytes."""
    if size >= WORTH:
        gc.collect()


def release_memory(size: int) -> None:
    """Give free memory back to the system, if it may be ``size`` bytes.

    Files written next then lie in pages that were in use.

    A page that nobody has touched for a while costs a virtual machine ten times as much, where idle memory goes back to the host.
    """
    collect(size)
    if size >= WORTH and (library := _glibc()):
        library.malloc_trim(0)


def _glibc() -> CDLL | None:
    import ctypes

    with suppress(ValueError, AttributeError, OSError):  # another system does not know the name
        return ctypes.CDLL(None) if os.confstr("CS_GNU_LIBC_VERSION") else None
    return None


@contextmanager
def collector_resting() -> Iterator[None]:
    """Rest the collector while thousands of objects without cycles, or that stay, are made."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def kept_import(name: str) -> Iterator[None]:
    """Rest the collector while a framework is imported, and exempt its objects.

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
    with collector_resting():
        try:
            yield
        finally:
            gc.freeze()
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


# What results depend on besides the code, and how processes ended.


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
THREAD_VARIABLES = (*THREADS, "CUDA_VISIBLE_DEVICES")


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Source: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def leave_group(code: int) -> NoReturn:
    """End a process that worked with others through Paddle, whose work is done.

    A gloo thread that still runs while the libraries are unloaded can crash it.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def how_ended(code: int) -> str:
    """Return in words how a process ended, by `subprocess`'s return code."""
    return f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


DISTRIBUTIONS = {"torch": ("torch",), "paddle": ("paddlepaddle", "paddlepaddle-gpu"), "numpy": ("numpy",)}
"""The names of the frameworks and numpy for pip."""


def installed_versions(path: list[str] | None = None) -> dict[str, str]:
    """Return the installed versions of the frameworks and numpy, without importing them.

    Args:
        path: of another interpreter, else this one's: the folders that it imports from.
    """
    from importlib import metadata

    versions: dict[str, str] = {}
    for name, distributions in DISTRIBUTIONS.items():
        for one in distributions:
            for found in metadata.distributions(name=one, path=sys.path if path is None else path):
                versions.setdefault(name, found.version)
    return versions


def needed_packages() -> dict[str, str]:
    """Return the packages that tipchain needs besides the frameworks, each with its source: ``tipchain``, or with an extra."""
    from importlib import metadata

    frameworks, needed = {name for names in DISTRIBUTIONS.values() for name in names} - {"numpy"}, {}
    with suppress(metadata.PackageNotFoundError):  # a source tree that nobody installed
        for line in metadata.requires("tipchain") or ():
            name, extra = re.split(r"[^\w.-]", line, maxsplit=1)[0], re.search(r"extra == .(\w+)", line)
            if name not in frameworks:
                needed[name] = f"tipchain[{extra[1]}]" if extra else "tipchain"
    return needed


def versions_of(python: str) -> dict[str, str]:
    """Return the versions of another interpreter, its frameworks and numpy; {} if unknown."""
    import json
    import subprocess

    argv = [python, "-c", "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path]))"]
    try:  # it takes a tenth of a second
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=30, check=True)
        version, path = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return {}
    return {"python": str(version), **installed_versions([str(folder) for folder in path])}
