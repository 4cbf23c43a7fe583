"""Ray's driver as the coordinator has it: a child process, what is said to it, and what it says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from tipchain.chain.process import last_lines
from tipchain.nightly.cluster.messages import ClusterSettings, FromDriver, ToDriver

PROGRAM = (sys.executable, "-m", "tipchain.nightly.cluster.driver")
LOG_BYTES = 8192
LAST_WORDS_S = 5.0


class DriverLink:
    """The driver's process, and a socket to it.

    What is sent goes through a thread: whoever sends is never kept waiting by a driver that is busy sending itself, or
    that has been stopped. So neither end waits for ever for the other.

    Args:
        program: the driver's call, without the socket's number.
    """

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._log = tempfile.TemporaryFile(prefix="tipchain-ray-")  # noqa: SIM115 - closed by close()
        self._socket, childs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with childs:
            self._driver = subprocess.Popen(
                [*program, str(childs.fileno())],
                pass_fds=(childs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is the coordinator's
            )
        self._outbox: SimpleQueue[ToDriver | ClusterSettings | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="to Ray's driver", daemon=True)
        self._sender.start()

    def send(self, message: ToDriver | ClusterSettings) -> None:
        """Say something; that the driver is gone is found out by `receive`."""
        self._outbox.put(message)

    def _send_all(self) -> None:
        with suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)

    def receive(self, timeout_s: float) -> FromDriver | None:
        """Return the next that the driver says; None if it says nothing in time.

        Raises:
            EOFError: it is gone; in the middle of a word, too.
        """
        try:
            if not self._connection.poll(timeout_s):
                return None
            message: FromDriver = self._connection.recv()
        except OSError as error:
            raise EOFError from error
        return message

    def kill(self) -> None:
        """End the driver at once. Ray then ends what it had started, on all nodes."""
        self._driver.kill()

    def killed_by(self) -> str:
        """Return the name of the signal by which somebody ended the driver; "" if it ended otherwise."""
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(LAST_WORDS_S)
        code = self._driver.returncode
        return signal.Signals(-code).name if code in (-signal.SIGKILL, -signal.SIGTERM) else ""

    def last_words(self) -> str:
        """Return the last line that the driver wrote."""
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(LAST_WORDS_S)
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - LOG_BYTES, 0))
        lines = [line for line in last_lines(self._log.read()) if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self._driver.returncode}"

    def close(self, timeout_s: float) -> None:
        """Let the driver end in a time, or end it."""
        if self._connection.closed:
            return
        self._outbox.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the sender waits no more, and the driver hears of it
        self._sender.join()
        self._connection.close()
        self._socket.close()
        try:
            self._driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._log.close()
