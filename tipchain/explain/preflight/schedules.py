"""A learning-rate schedule's settings, in one form, and Paddle's schedule made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Literal

from tipchain.explain.findings import SourceLine, at_source, source_of
from tipchain.explain.preflight.optimizers import SettingDifference
from tipchain.facts.schedules import LAST, SCHEDULES
from tipchain.facts.settings import plain, same, tidy
from tipchain.framework_types import Schedule, Setting

STATE = frozenset(("last_epoch", "last_lr", "verbose", "by_epoch", "best", "num_bad_epochs", "cooldown_counter"))
"""Attributes of schedules that are no arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The settings of a schedule.

    Attributes:
        kind: Paddle's class; empty where torch has none like it, or the schedule is a user's own.
        arguments: of that class; None where a value could not be read. A warm-up's ``learning_rate`` is what follows it.
        words: the schedule's own class with what it keeps, and where a user's is written.
        source: where a user's own function or class is written; None of another schedule.
    """

    kind: str = ""
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    words: str = "no schedule"
    source: SourceLine | None = None

    @property
    def has_functions(self) -> bool:
        """Whether an argument is a function of the user's, which two frameworks may share."""
        inner = (
            one.has_functions if isinstance(one, ScheduleSettings) else callable(one) for one in self.arguments.values()
        )
        return any(inner)

    @property
    def call(self) -> str:
        """It as code."""
        given = (
            f"{name}={value.call if isinstance(value, ScheduleSettings) else repr(tidy(value))}"
            for name, value in self.arguments.items()
            if (name, value) != ("last_epoch", -1)
        )
        return f"{self.kind}({', '.join(given)})"

    def build(self, lr: ModuleType) -> Schedule:
        """Make Paddle's schedule of it."""
        given = {
            name: value.build(lr) if isinstance(value, ScheduleSettings) else value
            for name, value in self.arguments.items()
        }
        return getattr(lr, self.kind)(**given)

    def differences(self, port: ScheduleSettings, path: tuple[str, ...] = ()) -> Iterator[SettingDifference]:
        """Yield the arguments of the port's that differ, where both are of one class."""
        for name, expected in self.arguments.items() if self.kind == port.kind else ():
            actual = port.arguments[name]
            if (
                isinstance(expected, ScheduleSettings)
                and isinstance(actual, ScheduleSettings)
                and expected.kind == actual.kind
            ):
                yield from expected.differences(actual, (*path, name))
            elif None not in (expected, actual) and not callable(expected) and not same(expected, actual):
                shown = _shown(expected), _shown(actual)
                fix = f"pass `{name}={shown[0]}` to the scheduler"
                yield SettingDifference(path=(*path, name), expected=expected, shown=shown, fix=fix)

    def given(self, path: tuple[str, ...], value: Setting) -> ScheduleSettings:
        """Return it with another value of one argument."""
        name, *rest = path
        inner = self.arguments[name].given(tuple(rest), value) if rest else value
        return replace(self, arguments={**self.arguments, name: inner})


def _shown(value: Setting) -> str:
    return value.words if isinstance(value, ScheduleSettings) else repr(tidy(value))


PACKAGES = "torch.", "paddle."


def read(schedule: Schedule, side: Literal[0, 1]) -> ScheduleSettings:
    """Read a schedule of torch's (side 0) or of Paddle's that no step was made of."""
    if schedule is None:
        return ScheduleSettings()
    name = type(schedule).__name__ if type(schedule).__module__.startswith(PACKAGES[side]) else ""
    rows = ((kind, readers) for ours, (kind, readers) in SCHEDULES.items() if (ours, kind)[side] == name)
    kind, readers = next(rows, ("", {}))
    if name == "SequentialLR" and len(getattr(schedule, "_schedulers", ())) != 2:
        kind, readers = "", {}
    arguments: dict[str, Setting] = {}
    for argument, both in readers.items():
        reader = both if isinstance(both, str) else both[side]
        try:
            value = getattr(schedule, reader) if isinstance(reader, str) else reader(schedule)
        except (AttributeError, KeyError, IndexError, TypeError):  # another version keeps it otherwise
            value = None
        if hasattr(value, "step") and hasattr(value, "last_epoch"):  # a warm-up steps it only later
            value = read(value, side)
            value = replace(value, arguments={key: one for key, one in value.arguments.items() if key not in LAST})
        arguments[argument] = value if callable(value) or isinstance(value, ScheduleSettings) else plain(value)
    return ScheduleSettings(kind=kind, arguments=arguments, words=_described(schedule), source=_source(schedule))


def _source(schedule: Schedule) -> SourceLine | None:
    functions = getattr(schedule, "lr_lambdas", [getattr(schedule, "lr_lambda", None)])
    own = [] if type(schedule).__module__.startswith(PACKAGES) else [type(schedule)]
    return next(filter(None, map(source_of, [*functions, *own])), None)


def _described(schedule: Schedule) -> str:
    """Return a schedule's class with its settings and schedules; a function with its line."""
    parts = {f"part {number}": one for number, one in enumerate(getattr(schedule, "_schedulers", ()))}
    told = []
    for name, kept in {**vars(schedule), **parts}.items():
        value = sorted(kept.elements()) if isinstance(kept, Counter) else kept
        if hasattr(value, "step") and hasattr(value, "last_epoch"):
            told.append(f"{name}={_described(value)}")
        elif name in {"lr_lambdas", "lr_lambda"}:
            told += [f"{name}{at_source(one)}" for one in (value if isinstance(value, list) else [value])]
        elif not name.startswith("_") and name not in STATE and isinstance(value, int | float | str | list | tuple):
            told.append(f"{name}={value}")
    own = "" if type(schedule).__module__.startswith(("torch.", "paddle.")) else at_source(type(schedule))
    return f"{type(schedule).__name__}({', '.join(told)}){own}"
