"""A recording process as its parent sees it: start, events, deadline, end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tipchain.errors import MissingFrameworkError, UsageError
from tipchain.parity.recorder import Job


class RecordingProcess:
    """A recording process: its events, how each stage ended (None: well; else the message), and what it rests on."""

    def __init__(self, job: Job, stages: Sequence[str], timeout_s: float | None) -> None:
        self.side, self.job = job.side, job
        self.ended: dict[str, str | None] = {stage: None for stage in stages if stage not in job.stages}
        self.marks: dict[str, Mapping[str, str] | None] = {}
        self.current = ""
        self.deadline = time.monotonic() + timeout_s if timeout_s else None
        self.timeout_s = timeout_s
        folder = Path(job.folder)
        spec = folder / f"recorder_{job.side}.json"
        spec.write_text(job.to_json())
        self.log = folder / f"recorder_{job.side}.log"
        reading, writing = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tipchain.parity.recorder", str(spec), str(writing)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=(writing,),
                start_new_session=True, env=_environment(job),
            )  # fmt: skip
        os.close(writing)
        self.events = os.fdopen(reading, "rb")
        self._partial = b""

    def read(self) -> None:
        """Take in the events that have come; at the end of them, account for every stage."""
        chunk = self.events.read1()
        if not chunk:
            self._close()
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "missing":
                raise MissingFrameworkError(event["message"])
            case "refused":
                raise UsageError(event["message"])
            case "begin":
                self.current = event["stage"]
            case "end":
                self.ended[event["stage"]] = None if event["ok"] else event["message"]
                self.marks[event["stage"]] = event.get("marks")
                self.current = ""

    def _close(self) -> None:
        """Give every stage that did not end the reason why."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            what = f"the {self.side} process was killed by {name}"
        else:
            what = f"the {self.side} process ended with exit code {code}"
        for stage in self.job.stages:
            if stage not in self.ended:
                during = "" if stage == self.current or not self.current else f" during {self.current}"
                self.ended[stage] = f"{what}{during}; log: {self.log}"

    def expire(self) -> None:
        """End the process if its time is over."""
        if self.deadline is not None and time.monotonic() > self.deadline and self.process.poll() is None:
            self.stop()
            for stage in self.job.stages:
                self.ended.setdefault(
                    stage, f"the {self.side} process took longer than {self.timeout_s:g} s and was ended"
                )

    def stop(self) -> None:
        """End the process and all it started; one that has done its work may end by itself."""
        if self.finished:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5.0)
        if self.process.poll() is None:
            for sign, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
                try:
                    os.killpg(self.process.pid, sign)
                    self.process.wait(timeout=patience)
                    break
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.events.close()

    @property
    def finished(self) -> bool:
        """Whether every stage is accounted for."""
        return all(stage in self.ended for stage in self.job.stages)


def _environment(job: Job) -> dict[str, str]:
    """Return the recorder's environment: equal threads on both sides, TF32 off, memory kept for reuse.

    glibc by default gives every large array back to the system, which then clears its pages anew for the next one:
    half of all system time with AlexNet.
    """
    threads = str(job.threads)
    return {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONUNBUFFERED": "1",
    }


def listen(recorders: Sequence[RecordingProcess]) -> None:
    """Wait until some recorder tells something or a deadline passes."""
    with selectors.DefaultSelector() as selector:
        for recorder in recorders:
            if not recorder.finished:
                selector.register(recorder.events, selectors.EVENT_READ, recorder)
        for key, _ in selector.select(timeout=0.5):
            key.data.read()
    for recorder in recorders:
        recorder.expire()
