"""A watch that outlives this process: what runs when it is killed (``kill -9``, no memory left) is ended too.

Otherwise a training would go on alone, and write into the folder of the run that ``--resume`` continues. One shell
for the whole process reads the marks of the commands that run from a pipe; when the pipe closes, whatever the
reason, it kills every process that bears one of those marks in its environment. That costs a command two writes;
a death signal (``PR_SET_PDEATHSIG``) would need code between fork and exec, unsafe with threads, and spare the
command's own children.
"""

from __future__ import annotations

import atexit
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MARK_VARIABLE = "TIPCHAIN_COMMAND"
_SCRIPT = f"""
trap '' INT TERM HUP
live=' '
while read -r word mark; do
  case $word in
    start) live="$live$mark " ;;
    end) case $live in *" $mark "*) live="${{live%%" $mark "*}} ${{live#*" $mark "}}" ;; esac ;;
  esac
done
for round in 1 2; do  # a process may have forked while the first was going on
  for mark in $live; do
    for file in $(grep -lzs "^{MARK_VARIABLE}=[0-9a-f:]*$mark" /proc/[0-9]*/environ); do
      pid=${{file#/proc/}}
      kill -KILL "${{pid%/environ}}" 2>/dev/null
    done
  done
done
"""


class Warden:
    """The shell that watches, started when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None

    @contextmanager
    def watching(self, mark: str) -> Iterator[None]:
        """Let the processes that bear ``mark`` end with this process while the block runs."""
        self._tell(f"start {mark}\n")
        try:
            yield
        finally:
            self._tell(f"end {mark}\n")

    def _tell(self, text: str) -> None:
        with self._lock, suppress(OSError):  # without a shell, or with one that was killed, nobody watches
            self._shell = self._shell or self._start()
            assert self._shell.stdin is not None
            self._shell.stdin.write(text.encode())

    def _start(self) -> subprocess.Popen[bytes]:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            bufsize=0,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(shell.communicate)  # closes the pipe and waits
        return shell


WARDEN = Warden()
"""This process's."""
