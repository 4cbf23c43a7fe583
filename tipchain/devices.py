"""Device names as users type them: ``cpu``, ``gpu``, ``gpu:N``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device; ``index`` is the GPU's number, 0 for the CPU."""

    kind: str
    index: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"gpu:{self.index}" if self.is_gpu else "cpu"


def parse_device(text: str) -> Device:
    """Return the device that ``text`` names.

    Raises:
        UsageError: not ``cpu``, ``gpu`` or ``gpu:N``.
    """
    kind, colon, index = text.partition(":")
    if text in ("cpu", "gpu"):
        return Device(kind=text)
    if kind == "gpu" and colon and index.isascii() and index.isdigit():
        return Device(kind="gpu", index=int(index))
    raise UsageError(f"unknown device {text!r}, expected cpu, gpu or gpu:N")
