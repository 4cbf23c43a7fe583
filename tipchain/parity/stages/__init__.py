"""The stages, a module each: ``record(bench)`` runs one on one side, ``judge(dumps, rules)`` compares what both sides gave."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules

__all__ = ["Bench", "Recording", "judge_dumps", "record"]


class _Stage(Protocol):
    def record(self, bench: Bench) -> Recording:
        """Run the stage on one side."""

    def judge(self, dumps: Dumps, rules: Rules) -> Judged:
        """Judge the stage from its dumps."""


def _stage(name: str) -> _Stage:
    return cast("_Stage", import_module(f"tipchain.parity.stages.{name}"))


def record(name: str, bench: Bench) -> Recording:
    """Run the stage called ``name`` on one side."""
    return _stage(name).record(bench)


def judge_dumps(dumps: Dumps, rules: Rules) -> Judged:
    """Judge the stage that ``dumps`` are of."""
    return _stage(dumps.stage).judge(dumps, rules)
