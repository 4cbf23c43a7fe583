"""A port mended by edits of its source: each is applied, the case is aligned again, and what mended nothing is put back."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from importlib.util import cache_from_source
from pathlib import Path
from typing import TypeVar

from tipchain.core.files import atomic_write, git
from tipchain.errors import ExitCode, Outcome, UsageError
from tipchain.explain.source_edits import Rewrite
from tipchain.port.convert import as_paddle
from tipchain.port.rewrites import RAISED, of_cause, of_error
from tipchain.port.sources import INSTALLED, packages_of
from tipchain.report.model import RunReport

MOST = 60
"""Edits that are tried on one port at most."""
T = TypeVar("T")
NUMBER = re.compile(r"-?\d[\d.e+-]*")


@dataclass(eq=False)
class Mending:
    """A port on its way to be equal.

    Attributes:
        root: where the case's paths start.
        align: aligns the case as its files are now.
        ask: tells whether an edit may be tried, from its diff.
        force: change files that git knows and that have changes not yet committed.
        error: builds and runs the port alone, as its files are now; returns what it raises, empty where it runs.
        kept: edits that mended something.
        tried: texts of files that were tried, so that none is tried twice.
        runs: edits that were tried.
    """

    root: Path
    align: Callable[[], RunReport]
    ask: Callable[[str], bool]
    force: bool = False
    error: Callable[[], str] = str
    kept: list[Rewrite] = field(default_factory=list)
    tried: set[tuple[Path, str]] = field(default_factory=set)
    runs: int = 0

    def mend(self, report: RunReport) -> RunReport:
        """Apply edits until the port is equal or none is left that mends something; return the last report.

        Raises:
            UsageError: a file has changes that are not committed.
        """
        if error_of(report):
            self._improved(self.error(), of_error, self.error, _goes_on)
            report = self.align() if self.kept else report
        return self._improved(report, self._edits, self.align, mends)

    def _improved(
        self,
        state: T,
        edits: Callable[[T], Iterator[Rewrite]],
        run: Callable[[], T],
        better: Callable[[T, T, Rewrite], bool],
    ) -> T:
        """Apply edits of a state until none is left that gives a better one; return the last."""
        for edit in edits(state):
            if self._may_try(edit):
                _write(edit.file, edit.after)
                try:
                    after = run()
                except BaseException:
                    _write(edit.file, edit.before)
                    raise
                if better(state, after, edit):
                    self.kept.append(edit)
                    return self._improved(after, edits, run, better)
                _write(edit.file, edit.before)
        return state

    def _may_try(self, edit: Rewrite) -> bool:
        """Tell whether an edit of the port's is new, within the number of runs, and agreed to; keep the file as it was first."""
        key = edit.file, edit.after
        new = self.runs != MOST and key not in self.tried and edit.after != edit.before
        self.tried.add(key)
        is_reference = any("torch" in packages_of(node) for node in ast.walk(ast.parse(edit.before)))
        if not new or INSTALLED & set(edit.file.parts) or is_reference or not self.ask(self.diff(edit)):
            return False
        self.runs += 1
        file, original = edit.file, edit.file.with_name(f"{edit.file.name}.orig")
        kept = original.exists()
        changed = not kept and git(file.parent, "status", "--porcelain", "--untracked-files=no", "--", file.name)
        if changed and not self.force:
            raise UsageError(f"{file} has changes that are not committed\n  expected: commit them first, or --force")
        if not kept:
            atomic_write(original, file.read_bytes())
        return True

    def _edits(self, report: RunReport) -> Iterator[Rewrite]:
        if report.exit_code != ExitCode.FAILED:
            return
        error = error_of(report)
        if error:
            yield from of_error(error)
        for cause in report.diagnoses:
            known = cause.place, cause.reference_place
            places = [None if one is None else replace(one, file=str(self.root / one.file)) for one in known]
            yield from of_cause(replace(cause, place=places[0], reference_place=places[1]), as_paddle)

    def diff(self, edit: Rewrite) -> str:
        """Return an edit as a unified diff."""
        name = str(edit.file.relative_to(self.root) if edit.file.is_relative_to(self.root) else edit.file)
        before, after = edit.before.splitlines(), edit.after.splitlines()
        return "\n".join(unified_diff(before, after, name, name, lineterm="", n=1))


def _write(file: Path, text: str) -> None:
    """Write a file, and drop its bytecode, which Python takes for that of a text of equal length from the same second."""
    atomic_write(file, text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def error_of(report: RunReport) -> str:
    """Return the reason of a port that raised, be it in train mode alone; empty where it ran."""
    reasons = (one.reason for one in report.verdicts if one.outcome in (Outcome.ERROR, Outcome.FAIL))
    return next((one for one in reasons if RAISED.search(one) and "(Paddle)" in one), "")


def mends(before: RunReport, after: RunReport, edit: Rewrite) -> bool:
    """Tell whether an edit mended something: the error, or the first cause, is gone, and nothing new has come."""
    error = error_of(before)
    if error:
        return _goes_on(error, error_of(after), edit)
    if any(one.outcome is Outcome.ERROR for one in after.verdicts):
        return False
    failed, still = (sum(one.outcome is Outcome.FAIL for one in report.verdicts) for report in (before, after))
    first = [_said(one.message) for one in before.diagnoses[:1]]
    others = {_said(one.message) for one in after.diagnoses}
    return still < failed or (still == failed and bool(others) and not set(first) & others)


def _goes_on(error: str, left: str, edit: Rewrite) -> bool:
    """Tell whether something else is raised than before, and not because of what was written."""
    was, now = _event(error), _event(left)
    before, after = (set(re.findall(r"\w+", text)) for text in (edit.before, edit.after))
    of_edit = was[:2] == now[:2] and (after - before) & set(re.findall(r"\w+", " ".join(now[3:])))
    return was != now and not of_edit and "name 'paddle' is not" not in left


def _event(reason: str) -> tuple[str, ...]:
    """Return what raised: its file, line, class and message."""
    found = RAISED.search(reason)
    return found.groups() if found is not None else ()


def _said(message: str) -> str:
    return NUMBER.sub("N", message)
