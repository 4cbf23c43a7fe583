"""The stages, a module each: ``record(bench)`` runs one on one side, ``judge(dumps, rules)`` compares both sides' results."""

from __future__ import annotations

from importlib import import_module

from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import judge_dumps

__all__ = ["Bench", "Recording", "judge_dumps", "record"]


def record(name: str, bench: Bench) -> Recording:
    """Run the stage called ``name`` on one side."""
    recording: Recording = import_module(f"tipchain.parity.stages.{name}").record(bench)
    return recording
