"""Settings of optimizers and schedules in one form: Paddle's class, or the row of the table, and Paddle's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine
from tipchain.facts.optimizers import DEFAULTS
from tipchain.facts.settings import same, tidy
from tipchain.framework_types import Setting
from tipchain.numbers.tolerance import EXPLAINED

OPTIMIZER, SCHEDULER = "optimizer", "scheduler"
Path = tuple[str, ...]
"""An argument behind those of warm-ups that lead to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a schedule, or of an optimizer for one parameter.

    Attributes:
        kind: Paddle's class of a schedule, a row of the table of optimizers; empty of a user's own.
        arguments: Paddle's; None where a value could not be read. A warm-up's ``learning_rate`` is what follows it.
        words: a schedule's own class with what it keeps, and where a user's is written.
        source: where a user's own function or class is written; None of another schedule.
    """

    kind: str = ""
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    words: str = "no schedule"
    source: SourceLine | None = None

    def value(self, name: str) -> Setting:
        """Return an argument's value, or what holds without it."""
        return self.arguments.get(name, DEFAULTS.get(name))

    def following(self, reference: Settings, paths: Iterable[Sequence[str]]) -> Settings:
        """Return them with the reference's values of the arguments at some paths; ``kind`` stands for all."""
        made = dict(self.arguments)
        for name, *rest in paths:
            if name == "kind":
                return reference
            made[name] = made[name].following(reference.arguments[name], [rest]) if rest else reference.value(name)
        return replace(self, arguments=made)

    def apart(self, port: Settings, path: Path = ()) -> Iterator[tuple[Path, Setting, Setting]]:
        """Yield the arguments that differ, and both values."""
        for name in dict.fromkeys((*self.arguments, *port.arguments)):
            expected, actual = self.value(name), port.value(name)
            if isinstance(expected, Settings) and isinstance(actual, Settings) and expected.kind == actual.kind:
                yield from expected.apart(actual, (*path, name))
            elif None not in (expected, actual) and not callable(expected) and not same(expected, actual):
                yield (*path, name), expected, actual


def shown(value: Setting) -> str:
    """Return a value as a message has it."""
    return value.words if isinstance(value, Settings) else repr(tidy(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """A setting of two optimizers, or of two schedules, that differs.

    Attributes:
        piece: `OPTIMIZER` or `SCHEDULER`.
        path: ``kind`` for an optimizer's class.
        expected: the reference's value.
        message: one sentence with both values, and the parameters where it does not differ for all.
        fix: what to write in the port.
        edit: what to pass to the optimizer or the schedule; None where that mends nothing.
    """

    piece: str
    path: Path
    expected: Setting
    message: str
    fix: str
    edit: CodeEdit | None = None

    def diagnosed(self, evidence: str, explained: float | None = None) -> Diagnosis:
        """Return it as a cause."""
        return Diagnosis(
            code="setting",
            name=self.path[-1],
            port_path=self.piece,
            message=self.message,
            evidence=evidence,
            explained=explained,
            fix=self.fix,
            edit=self.edit,
        )


def explaining(
    found: Sequence[SettingDifference], explained: Callable[[Sequence[Path]], float]
) -> tuple[list[SettingDifference], int, float]:
    """Return the settings, what explains most first; how many of them explain the difference, the first or all; their share.

    ``explained`` runs the port again with the reference's values of the settings at some paths, and returns the share of
    the difference that is gone.
    """
    shares = {one.path: explained([one.path]) for one in found}
    paths = sorted(shares, key=lambda path: -shares[path])
    ordered = sorted(found, key=lambda one: paths.index(one.path))
    for tried in (paths[:1], paths) if paths else ():
        share = shares[tried[0]] if len(tried) == 1 else explained(tried)
        if share >= EXPLAINED:
            return ordered, sum(one.path in tried for one in ordered), share
    return ordered, 0, 0.0
