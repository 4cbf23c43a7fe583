"""The GPUs of this machine: which there are, leases of them, and a plan on those that were leased for it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.chain.emitter import VISIBLE
from tipchain.chain.plan import Command, Plan
from tipchain.core.files import take_lock
from tipchain.core.language import many

DEVICES = Path("/dev")
HIDDEN = ("", "-1")
"""CUDA_VISIBLE_DEVICES of those who want no GPU to be used."""
EVERY = ("all",)
"""Stands for the GPUs of a machine that does not say which it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The numbers of a machine's GPUs, and other names (UUIDs) for them; ``trouble`` says why none can be used."""

    numbers: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""

    def why_not(self, command: Command) -> str:
        """Return why ``command`` cannot have the GPUs that it takes, "" if it can or takes none."""
        if not command.on_gpu:
            return ""
        if self.trouble:
            return self.trouble
        absent = [
            name for name in command.gpus if name not in {*self.numbers, *self.names} and self._number(name) == name
        ]
        if not absent or not self.numbers:
            return ""
        there = f"{many(len(self.numbers), 'GPU')}: {', '.join(self.numbers)}"
        return f"no GPU {', '.join(absent)} on this machine, which has {there}"

    def taken_by(self, command: Command) -> tuple[str, ...]:
        """Return the GPUs that ``command`` takes, each by one name; all for one that names none."""
        if command.gpus:
            return tuple(dict.fromkeys(map(self._number, command.gpus)))
        return (self.numbers or EVERY) if command.on_gpu else ()

    def _number(self, name: str) -> str:
        """Return the GPU that ``name`` stands for; UUIDs may be shortened as long as they stay unambiguous."""
        if name in self.numbers:
            return name
        return next((number for uuid, number in self.names.items() if uuid.startswith(name)), name)


def find_gpus() -> Gpus:
    """Return this machine's GPUs: those that nvidia-smi lists, else those with a device file."""
    files = sorted(DEVICES.glob("nvidia[0-9]*"), key=lambda path: (len(path.name), path.name))
    if not files:
        return Gpus(trouble=f"no usable GPU on this machine (no {DEVICES}/nvidia0)")
    if program := shutil.which("nvidia-smi"):
        try:
            done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Gpus(trouble=f"no usable GPU on this machine (nvidia-smi: {error})")
        if done.returncode != 0 or "GPU" not in done.stdout:
            return Gpus(trouble=f"no usable GPU on this machine (nvidia-smi exits {done.returncode})")
        gpus = parse_listing(done.stdout)
    else:
        gpus = Gpus(numbers=tuple(file.name.removeprefix("nvidia") for file in files))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in HIDDEN:
        return Gpus(trouble=f"no usable GPU here (CUDA_VISIBLE_DEVICES is {visible.strip() or 'empty'})")
    return gpus


def parse_listing(text: str) -> Gpus:
    """Return the GPUs in the output of ``nvidia-smi -L``; parts of a GPU (MIG) stand under it."""
    numbers: list[str] = []
    names: dict[str, str] = {}
    for line in text.splitlines():
        number = re.match(r"GPU (\d+):", line)
        uuid = re.search(r"\(UUID: ([^)\s]+)\)", line)
        if number:
            numbers.append(number[1])
        if uuid:
            names[uuid[1]] = number[1] if number else uuid[1]
    return Gpus(numbers=tuple(numbers), names=names)


# Two running commands never share a GPU, neither of one run nor of one user's runs on a machine.
#
# A lease is a lock on a file in a folder of the user's below the system's temporary folder; the system gives it
# back however its holder ends. Where that folder cannot be had (another user took its name), leases hold within
# the run only.


def lease_folder() -> Path:
    """Return the folder of this user's leases."""
    return Path(tempfile.gettempdir()) / f"tipchain-gpus-{os.getuid()}"


class Leases:
    """The leases of one run; ``trouble`` says why they do not hold between runs, "" if they do."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or lease_folder()
        self.trouble = ""
        self._held: dict[str, tuple[str, int | None]] = {}

    def take(self, gpus: Sequence[str], holder: str) -> str:
        """Take all of ``gpus`` for ``holder``, or none; return "" or the reason to wait."""
        for gpu in gpus:
            if gpu in self._held:
                return f"GPU {gpu}, held by {self.holder(gpu)}"
        taken: list[str] = []
        for gpu in gpus:
            try:
                self._held[gpu] = (holder, self._lock(gpu))
            except BlockingIOError:
                self.give_back(taken)
                return f"GPU {gpu}, held by {self.holder(gpu)}"
            taken.append(gpu)
        return ""

    def take_some(self, names: Sequence[str], count: int, holder: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Take ``count`` of ``names`` for ``holder``, or none; return them, and who has those that could not be had."""
        taken: list[str] = []
        others: dict[str, str] = {}
        for name in names:
            if len(taken) < count and self.take((name,), holder):
                others[name] = self.holder(name)
            elif len(taken) < count:
                taken.append(name)
        if len(taken) < count:
            self.give_back(taken)
            return (), others
        return tuple(taken), {}

    def give_back(self, gpus: Sequence[str]) -> None:
        """Give back leases that were taken."""
        for gpu in gpus:
            _, handle = self._held.pop(gpu)
            if handle is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child that another thread just forked has it open, too
                os.close(handle)

    def _lock(self, gpu: str) -> int | None:
        if self.trouble:
            return None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                return take_lock(self._file(gpu), str(os.getpid()), mode=0o600, flags=os.O_NOFOLLOW)
            self.trouble = f"{self.folder} is not a folder of this user's"
        except BlockingIOError:
            raise
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror}"
        return None

    def _file(self, gpu: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9-]', '-', gpu)}.lock"

    def holder(self, gpu: str) -> str:
        """Return who has a lease: the holder in this run that took it, or ``process 123``."""
        if gpu in self._held:
            return self._held[gpu][0]
        text = ""
        with suppress(OSError):
            text = self._file(gpu).read_text(errors="replace")
        return f"process {text}" if text.isdigit() else "another process"


# Whoever starts ``tipchain run`` on some GPUs of a machine, as a night does, names them in `VARIABLE`. GPU 0 of the
# parameter file is then the first of them, whatever number it has on the machine.


VARIABLE = "TIPCHAIN_GPUS"
_NUMBERS = re.compile(r"\d+(?:,\d+)*")
_WORD = re.compile(r"(?P<option>--(?:gpus|devices|selected_gpus)=)(?P<numbers>\d+(?:,\d+)*)")


def leased_gpus() -> tuple[str, ...]:
    """Return the GPUs that were leased for this process, () where nobody says so."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(",")))


def on_gpus(plan: Plan, gpus: Sequence[str]) -> Plan:
    """Return ``plan`` with the GPUs of its commands counted among ``gpus``; their ids stay.

    A number that is none of those becomes a name that no GPU has, so that the command is said not to run.
    """
    if not gpus:
        return plan
    return plan._replace(commands=tuple(_moved(command, gpus) for command in plan.commands))


def _moved(command: Command, gpus: Sequence[str]) -> Command:
    env = dict(command.env)
    if _NUMBERS.fullmatch(env.get(VISIBLE, "")):
        env[VISIBLE] = _named(env[VISIBLE], gpus)
    # What stands after the program to launch is the program's own.
    end = next((index for index, word in enumerate(command.argv) if word.endswith(".py")), None)
    launcher = [
        match["option"] + _named(match["numbers"], gpus) if (match := _WORD.fullmatch(word)) else word
        for word in (command.argv[:end] if command.launched else ())
    ]
    return command._replace(
        env=env,
        gpus=tuple(_named(number, gpus) for number in command.gpus),
        argv=(*launcher, *command.argv[len(launcher) :]),
    )


def _named(numbers: str, gpus: Sequence[str]) -> str:
    there = dict(zip(map(str, range(len(gpus))), gpus, strict=True))
    return ",".join(there.get(number, f"{number} (of {len(gpus)} leased)") for number in numbers.split(","))
