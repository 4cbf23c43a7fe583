"""A process that ends with the one that started it, however that ends.

``paddle.distributed.launch`` gives each process a session of its own, which no signal to a process group reaches.
Run as ``python -m tipchain.parity.launch ARGUMENT...`` it is ``python -m paddle.distributed.launch
ARGUMENT...`` with a lifeline.

Source: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal

from tipchain.core.machine import kept_import

PR_SET_PDEATHSIG = 1
"""What `prctl` calls it (``linux/prctl.h``)."""


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent: the parent's process id where it is known, for the case that it has already ended.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit("the process that started this one has ended")


if __name__ == "__main__":
    end_with_parent(int(os.environ["TIPCHAIN_PARENT"]))
    with kept_import("paddle"):
        import paddle  # noqa: F401
    runpy.run_module("paddle.distributed.launch", run_name="__main__", alter_sys=True)
