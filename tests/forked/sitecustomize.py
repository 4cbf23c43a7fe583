"""Processes of the tests that need torch, Paddle or most of tipchain are forked from one that has imported it: a tenth of a second, not two.

Python imports this module as it starts where this folder is on its path (`environment`). A process that is about to run one of
`PROGRAMS` gives all that it is, arguments, folder, variables, limits, open files, to a fork of the process that has imported the
frameworks, hands on what signals it gets, and ends as the fork ends. What overwrites ``PYTHONPATH`` gets a process of its own.
"""

from __future__ import annotations

import _signal as signal  # signal itself imports enum, each time a process starts
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

VARIABLE = "TIPCHAIN_FORKED"
"""The folder of the sockets, each called as the frameworks that whoever listens there has imported."""
BOTH = "TIPCHAIN_FORKED_RECORDERS"
"""The frameworks of recorders, where the sides of a case import both."""
KINDS = ("torch", "paddle", "torch,paddle", "tipchain", "nights")
FROM = {KINDS[0]: KINDS[3], KINDS[1]: KINDS[3], KINDS[2]: KINDS[0], KINDS[4]: KINDS[3]}
"""What a process with more is forked from; tipchain's alone is forked from one that has imported nothing."""
PROGRAMS = {
    "tipchain.parity.weights": KINDS[2],
    "tipchain.parity.stages.distributed": KINDS[1],
    "tipchain.live.worker": KINDS[2],
    "page.py": KINDS[2],
    "loading.py": KINDS[1],
}
"""The frameworks of a module and of tests' own scripts; those of a recorder and of a tool stand in their arguments."""
COMMANDS = {
    "bundle": KINDS[0],
    "convert-weights": KINDS[2],
    **dict.fromkeys(("align", "init", "prepare", "report", "run"), KINDS[3]),
    **dict.fromkeys(("history", "nightly"), KINDS[4]),
}
"""The frameworks of those commands of tipchain that import one themselves; and those that import most of tipchain."""
OWN = (
    "numpy.random",
    "tipchain.cli",
    "tipchain.commands.align",
    "tipchain.commands.report",
    "tipchain.commands.prepare",
    "tipchain.commands.run",
    "tipchain.parity.align",
    "tipchain.parity.weights",
    *(f"tipchain.parity.stages.{name}" for name in ("forward", "data", "metric", "loss", "train")),
    "tipchain.live.worker",
    "tipchain.live.align",
    "tipchain.live.causes",
    "tipchain.live.sources",
    "tipchain.nightly.origin",
    "tipchain.weights.convert",
    "tipchain.report.write",
)
"""What most programs of tipchain import, without a framework; nothing that reads files behind Python's back."""
NIGHTS = (
    "tipchain.commands.nightly",
    "tipchain.nightly.coordinator",
    "tipchain.nightly.expand",
    "tipchain.nightly.night_report",
    "tipchain.nightly.timeline",
    "tipchain.history.ingest",
)
"""What the commands of nights import besides."""
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def kind_of(words: list[str]) -> str:
    """Return the frameworks that a command of Python's imports, or nothing for one that is run as it is."""
    if words[:2] == ["-m", "tipchain.parity.recorder"]:
        return os.environ.get(BOTH) or words[2].rpartition("recorder_")[2].removesuffix(".json")
    if words[:2] == ["-m", "tipchain.commands.init"]:
        return words[2]
    if words[:2] == ["-m", "hostile.attack"]:
        return KINDS[0] if words[2] == "weights" else KINDS[3]
    if words[:1] == ["-c"]:
        lines = [line.partition("import ")[2] for line in words[1].splitlines() if line.startswith("import ")]
        return ",".join(name for name in KINDS[:2] if any(name in line.split(", ") for line in lines))
    if words and words[0].startswith("tools/"):
        return KINDS[1]
    if words and words[0].startswith("test_tipc/0"):
        return KINDS[3]
    name = (words[1:] if words[:1] == ["-m"] else words or [""])[0]
    if name.rpartition("/")[2] == "tipchain":
        return COMMANDS.get(words[words.index(name) + 1], "") if words[-1] != name else ""
    return PROGRAMS.get(name, "")


def become_shadow(words: list[str], kind: str) -> None:
    """Have ``words`` run by a fork, and end as it does."""
    import _socket  # socket takes as long to import as Python takes to start; so does json
    import marshal
    import resource

    limits = [(one, resource.getrlimit(getattr(resource, one))) for one in dir(resource) if one.startswith("RLIMIT_")]
    files = sorted(int(one) for one in os.listdir("/proc/self/fd"))
    other = _socket.socket(_socket.AF_UNIX)
    other.connect(os.path.join(os.environ[VARIABLE], kind))
    files = [one for one in files if one != other.fileno() and os.path.exists(f"/proc/self/fd/{one}")]
    umask = os.umask(0)
    os.umask(umask)
    given = {
        "words": words,
        "executable": sys.executable,
        "path": sys.path,
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "files": files,
        "limits": limits,
        "umask": umask,
    }
    data = marshal.dumps(given)
    numbers = b"".join(one.to_bytes(4, sys.byteorder) for one in files)
    other.sendmsg([len(data).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)] if files else [])
    other.sendall(data)
    for one in HANDED_ON:
        signal.signal(one, lambda number, _: other.send(bytes([number])))
    end = other.recv(4)
    code = int.from_bytes(end, "big", signed=True) if end else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


del __file__  # this is no module of a user's, on which results would rest
if __name__ == "sitecustomize" and VARIABLE in os.environ and kind_of(sys.orig_argv[1:]):
    become_shadow(sys.orig_argv[1:], kind_of(sys.orig_argv[1:]))


# The processes that have imported the frameworks, and their forks.


def keep(folder: str) -> None:
    """Listen for each kind; a process imports what the first that comes needs. All end with standard input."""
    import socket

    listening = {}
    for kind in KINDS:
        listening[kind] = socket.socket(socket.AF_UNIX)
        listening[kind].bind(os.path.join(folder, kind))
        listening[kind].listen(64)
    print("ready", flush=True)
    serve("", listening)


def serve(own: str, listening: dict[str, socket]) -> None:
    """Fork for each who comes for ``own``; the first that comes for more has a fork import that and serve it from then on."""
    import select

    running: dict[int, tuple[socket, int]] = {}
    told: dict[int, int] = {}
    while True:
        heard = {listener.fileno(): kind for kind, listener in listening.items()}
        # Listeners come last: no number of a file is used again before all that is ready under it has been read.
        for one in select.select([0, *running, *told, *heard], [], [])[0]:
            if one == 0:
                os._exit(0)
            elif one in running:
                connection, child = running.pop(one)
                told.pop(connection.fileno(), None)
                tell_end(connection, child)
                os.close(one)
            elif one in told:
                if not hand_on(one, told[one]):
                    del told[one]
            elif one in heard and heard[one] == own:
                connection, _ = listening[own].accept()
                if child := begin(connection):
                    running[os.pidfd_open(child)] = connection, child
                    told[connection.fileno()] = child
            elif one in heard and heard[one] in listening:
                chosen = heard[one]
                while FROM.get(chosen, "") != own:
                    chosen = FROM[chosen]
                given = {kind: listening.pop(kind) for kind in KINDS if kind in listening and is_from(kind, chosen)}
                if os.fork() == 0:
                    for other in (*listening.values(), *(connection for connection, _ in running.values())):
                        other.close()
                    bring(chosen)
                    serve(chosen, given)
                for listener in given.values():
                    listener.close()


def is_from(kind: str, other: str) -> bool:
    """Return whether a process of a kind is one of the other, with more or not."""
    while kind not in ("", other):
        kind = FROM.get(kind, "")
    return kind == other


def bring(kind: str) -> None:
    """Import what a kind has, which stays."""
    import gc
    import warnings

    gc.disable()
    warnings.simplefilter("ignore")
    for name in {KINDS[3]: OWN, KINDS[4]: NIGHTS}.get(kind) or kind.split(","):
        __import__(name)
    gc.freeze()
    gc.enable()
    warnings.resetwarnings()


def begin(connection: socket) -> int:
    """Fork what does the work of who asks; return its number, or 0 if who asked has ended meanwhile."""
    import marshal
    import socket

    head, files, _, _ = socket.recv_fds(connection, 8, 250)
    length, data, child = int.from_bytes(head, "big"), b"", 0
    while len(data) < length and (more := connection.recv(length - len(data))):
        data += more
    if length and len(data) == length:
        child = os.fork()
        if child == 0:
            work(marshal.loads(data), files)
    for one in files:
        os.close(one)
    if not child:
        connection.close()
    return child


def hand_on(connection: int, child: int) -> bool:
    """Give a fork the signal that came for it; kill it, and return False, if who asked has ended."""
    try:
        number = os.read(connection, 1)
    except ConnectionResetError:
        number = b""
    if number:
        os.kill(child, number[0])
        return True
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
        os.kill(child, signal.SIGKILL)
    return False


def tell_end(connection: socket, child: int) -> None:
    """Tell who asked how its fork has ended."""
    import contextlib

    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):  # who asked has ended
        connection.send(code.to_bytes(4, "big", signed=True))
    connection.close()


def forget_another(path: list[str]) -> None:
    """Have tipchain imported anew where it is another one that is found on ``path``."""
    from importlib.machinery import PathFinder

    if "tipchain" in sys.modules:
        found = PathFinder.find_spec("tipchain", path)
        if found is None or found.origin != sys.modules["tipchain"].__file__:
            for name in [one for one in sys.modules if one.partition(".")[0] == "tipchain"]:
                del sys.modules[name]


def work(given: dict, files: list[int]) -> None:
    """Be the process that asked, as far as its program can tell, and run that."""
    import atexit
    import fcntl
    import random
    import resource
    import runpy
    import threading
    import traceback
    import warnings

    import numpy as np

    os.setsid()
    high = [fcntl.fcntl(one, fcntl.F_DUPFD, 500) for one in files]
    os.closerange(3, 500)
    for one, wanted in zip(high, given["files"], strict=True):
        os.dup2(one, wanted)
    os.closerange(500, 1024)
    os.chdir(given["folder"])
    os.umask(given["umask"])
    os.environ.clear()
    os.environ.update(given["variables"])
    for name, limit in given["limits"]:
        resource.setrlimit(getattr(resource, name), limit)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "r" if number == 0 else "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    random.seed()
    np.random.seed()  # noqa: NPY002  (what the frameworks' users draw from)
    words = given["words"]
    forget_another([given["folder"] if words[0] in ("-m", "-c") else os.path.dirname(words[0]), *given["path"]])
    warnings.filterwarnings("ignore", ".* found in sys.modules after import of package", RuntimeWarning)  # runpy's
    sys.executable = given["executable"]
    sys.orig_argv = [sys.executable, *words]
    code: object = 0
    try:
        if words[0] == "-m":
            sys.path[:], sys.argv = [given["folder"], *given["path"]], words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.path[:], sys.argv = [given["folder"], *given["path"]], ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.path[:], sys.argv = [os.path.dirname(os.path.abspath(words[0])), *given["path"]], words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001  (as the interpreter does)
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    keep(sys.argv[1])
