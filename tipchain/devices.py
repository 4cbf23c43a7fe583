"""Device names as users type them: ``cpu``, ``gpu``, ``gpu:N``."""

from __future__ import annotations

from typing import NamedTuple

from tipchain.errors import UsageError


class Device(NamedTuple):
    """A device; ``number`` is the GPU's number, 0 for the CPU."""

    kind: str
    number: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"gpu:{self.number}" if self.is_gpu else "cpu"


def parse_device(text: str) -> Device:
    """Return the device that ``text`` names.

    Raises:
        UsageError: not ``cpu``, ``gpu`` or ``gpu:N``.
    """
    kind, colon, number = text.partition(":")
    if text in ("cpu", "gpu"):
        return Device(kind=text)
    if kind == "gpu" and colon and number.isascii() and number.isdigit():
        return Device(kind="gpu", number=int(number))
    raise UsageError(f"unknown device {text!r}, expected cpu, gpu or gpu:N")
