"""The stages, a module each: ``record(bench)`` runs one on one side, with either framework."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from tipchain.parity.stages.bench import Bench, Recording

__all__ = ["Bench", "Recording", "record"]


class _Stage(Protocol):
    def record(self, bench: Bench) -> Recording:
        """Run the stage on one side."""


def record(name: str, bench: Bench) -> Recording:
    """Run the stage called ``name`` on one side."""
    return cast("_Stage", import_module(f"tipchain.parity.stages.{name}")).record(bench)
