"""From a stage's two dumps to verdicts: `plain` for most stages, a module for each of the others."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from tipchain.parity.judging.base import Dumps, Judged, Rules
from tipchain.stage_table import INFO


class _Judge(Protocol):
    def judge(self, dumps: Dumps, rules: Rules) -> Judged:
        """Judge a stage from its dumps."""


def judge_dumps(dumps: Dumps, rules: Rules) -> Judged:
    """Judge the stage that ``dumps`` are of."""
    module = import_module(f"tipchain.parity.judging.{INFO[dumps.stage].judge}")
    return cast("_Judge", module).judge(dumps, rules)
