"""Processes of the tests that need torch, Paddle or most of tipchain are forked from one that has imported it: a tenth of a second, not two.

Python imports this module as it starts where this folder is on its path (`environment`). A process that is about to run one of
`PROGRAMS` gives all that it is, arguments, folder, variables, limits, open files, to a fork of the process that has imported the
frameworks, hands on what signals it gets, and ends as the fork ends. What overwrites ``PYTHONPATH`` gets a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

VARIABLE = "TIPCHAIN_FORKED"
"""The folder of the sockets, each called as the frameworks that whoever listens there has imported."""
KINDS = ("torch", "paddle", "torch,paddle", "tipchain")
PROGRAMS = {
    "tipchain.parity.weights": KINDS[2],
    "tipchain.parity.stages.distributed": KINDS[1],
    "tipchain.live.worker": KINDS[2],
    "page.py": KINDS[2],
    "loading.py": KINDS[1],
}
"""The frameworks of a module and of tests' own scripts; those of a recorder and of a tool stand in their arguments."""
COMMANDS = {"bundle": KINDS[0], "convert-weights": KINDS[2], "init": KINDS[0], "align": KINDS[3], "judge": KINDS[3]}
"""The frameworks of those commands of tipchain that import one themselves; and those that import most of tipchain."""
OWN = (
    "numpy.random",
    "tipchain.cli",
    "tipchain.commands.align",
    "tipchain.commands.judge",
    "tipchain.parity.align",
    "tipchain.live.worker",
    "tipchain.report.write",
    "tipchain.nightly.origin",
)
"""What the commands of the last kind import."""
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def kind_of(words: list[str]) -> str:
    """Return the frameworks that a command of Python's imports, or nothing for one that is run as it is."""
    if words[:2] == ["-m", "tipchain.parity.recorder"]:
        return words[2].rpartition("recorder_")[2].removesuffix(".json")
    if words[:1] == ["-c"]:
        lines = [line.partition("import ")[2] for line in words[1].splitlines() if line.startswith("import ")]
        return ",".join(name for name in KINDS[:2] if any(name in line.split(", ") for line in lines))
    if words and words[0].startswith("tools/"):
        return KINDS[1]
    name = (words[1:] if words[:1] == ["-m"] else words or [""])[0]
    if name.rpartition("/")[2] == "tipchain":
        return COMMANDS.get(words[words.index(name) + 1], "") if words[-1] != name else ""
    return PROGRAMS.get(name, "")


def become_shadow(words: list[str], kind: str) -> None:
    """Have ``words`` run by a fork, and end as it does."""
    import json
    import resource
    import socket

    limits = [(one, resource.getrlimit(getattr(resource, one))) for one in dir(resource) if one.startswith("RLIMIT_")]
    files = sorted(int(one) for one in os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as other:
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
        text = json.dumps(given).encode()
        socket.send_fds(other, [len(text).to_bytes(8, "big")], files)
        other.sendall(text)
        for one in HANDED_ON:
            signal.signal(one, lambda number, _: other.send(bytes([number])))
        code = int.from_bytes(other.recv(4), "big", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


del __file__  # this is no module of a user's, on which results would rest
if __name__ == "sitecustomize" and VARIABLE in os.environ and kind_of(sys.orig_argv[1:]):
    become_shadow(sys.orig_argv[1:], kind_of(sys.orig_argv[1:]))


# The process that has imported the frameworks, and its forks.


def keep(folder: str) -> None:
    """Listen for each kind; the first that comes has a process import the frameworks. All end with standard input."""
    import select
    import socket

    listening = {}
    for kind in KINDS:
        listening[kind] = socket.socket(socket.AF_UNIX)
        listening[kind].bind(os.path.join(folder, kind))
        listening[kind].listen(64)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, *listening.values()], [], [])
        if 0 in ready:
            os._exit(0)
        for kind in [one for one in listening if listening[one] in ready]:
            if os.fork() == 0:
                serve(listening[kind], kind)
            del listening[kind]


def serve(listener: socket, kind: str) -> None:
    """Import the frameworks and fork for each who comes."""
    import gc
    import select
    import warnings

    gc.disable()
    warnings.simplefilter("ignore")
    for name in OWN if kind == KINDS[3] else kind.split(","):
        __import__(name)
    gc.freeze()
    gc.enable()
    warnings.resetwarnings()
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    while True:
        ready, _, _ = select.select([0, listener], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            watch(connection)
        connection.close()


def _reap() -> None:
    import contextlib

    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def watch(connection: socket) -> None:
    """Fork what does the work, give it the signals that come, kill it if who asked has ended, and tell how it ended."""
    import json
    import select
    import socket

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(connection, 8, 250)
    length, text = int.from_bytes(head, "big"), b""
    while len(text) < length:
        text += connection.recv(length - len(text))
    child = os.fork()
    if child == 0:
        connection.close()
        work(json.loads(text), files)
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, 1024)
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([ended, connection], [], [])
        if ended in ready:
            break
        number = connection.recv(1)
        if not number:
            os.killpg(child, signal.SIGKILL)
            break
        os.kill(child, number[0])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        connection.send(code.to_bytes(4, "big", signed=True))
    finally:
        os._exit(0)


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
