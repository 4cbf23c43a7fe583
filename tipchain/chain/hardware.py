"""Which GPUs this machine has, found out without a framework."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.chain.plan import Command

DEVICES = Path("/dev")
HIDDEN = ("", "-1")
"""CUDA_VISIBLE_DEVICES of those who want no GPU to be used."""
EVERY = ("all",)
"""Stands for the GPUs of a machine that does not say which it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of a machine.

    Attributes:
        numbers: their numbers, as text.
        names: other names (UUIDs) by which programs may ask for them, with what each stands for.
        trouble: why none can be used; "" if they can.
    """

    numbers: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""

    def why_not(self, command: Command) -> str:
        """Return why ``command`` cannot have the GPUs that it takes, "" if it can or takes none."""
        if not command.on_gpu:
            return ""
        if self.trouble:
            return self.trouble
        absent = [name for name in command.gpus if not self._has(name)]
        if not absent or not self.numbers:
            return ""
        count = len(self.numbers)
        there = f"{count} GPU{'' if count == 1 else 's'}: {', '.join(self.numbers)}"
        return f"no GPU {', '.join(absent)} on this machine, which has {there}"

    def taken_by(self, command: Command) -> tuple[str, ...]:
        """Return the GPUs that ``command`` takes, each by one name; all for one that names none."""
        if command.gpus:
            return tuple(dict.fromkeys(map(self._number, command.gpus)))
        return (self.numbers or EVERY) if command.on_gpu else ()

    def _has(self, name: str) -> bool:
        return name in self.numbers or self._number(name) != name or name in self.names

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
    program = shutil.which("nvidia-smi")
    gpus = _listed(program) if program else Gpus(numbers=_numbers(files))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not gpus.trouble and visible is not None and visible.strip() in HIDDEN:
        return Gpus(trouble=f"no usable GPU here (CUDA_VISIBLE_DEVICES is {visible.strip() or 'empty'})")
    return gpus


def _numbers(files: Sequence[Path]) -> tuple[str, ...]:
    return tuple(file.name.removeprefix("nvidia") for file in files)


def _listed(program: str) -> Gpus:
    """Return the GPUs that nvidia-smi lists; a container may see few of the machine's device files."""
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Gpus(trouble=f"no usable GPU on this machine (nvidia-smi: {error})")
    if done.returncode != 0 or "GPU" not in done.stdout:
        return Gpus(trouble=f"no usable GPU on this machine (nvidia-smi exits {done.returncode})")
    return parse_listing(done.stdout)


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
