"""A learning-rate schedule's settings, in one form, and Paddle's schedule made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Literal

from tipchain.explain.findings import CodeEdit, at_source, source_of
from tipchain.explain.preflight.settings import SCHEDULER, SettingDifference, Settings, shown
from tipchain.facts.schedules import LAST, SCHEDULES, ScheduleKind
from tipchain.facts.settings import plain, tidy
from tipchain.framework_types import Schedule, Setting

STATE = frozenset(("last_epoch", "last_lr", "verbose", "by_epoch", "best", "num_bad_epochs", "cooldown_counter"))
"""Attributes of schedules that are no arguments."""


def has_functions(settings: Settings) -> bool:
    """Tell whether an argument is a function of the user's, which two frameworks may share."""
    values = settings.arguments.values()
    return any(has_functions(one) if isinstance(one, Settings) else callable(one) for one in values)


def as_call(settings: Settings) -> str:
    """Return Paddle's schedule as code."""
    given = (
        f"{name}={as_call(value) if isinstance(value, Settings) else repr(tidy(value))}"
        for name, value in settings.arguments.items()
        if (name, value) != ("last_epoch", -1)
    )
    return f"{settings.kind}({', '.join(given)})"


def build(lr: ModuleType, settings: Settings) -> Schedule:
    """Make Paddle's schedule."""
    given = {
        name: build(lr, value) if isinstance(value, Settings) else value for name, value in settings.arguments.items()
    }
    return getattr(lr, settings.kind)(**given)


def differences(reference: Settings, port: Settings) -> Iterator[SettingDifference]:
    """Yield the arguments of the port's schedule that differ, where both are of one class."""
    for path, expected, actual in reference.apart(port) if reference.kind == port.kind else ():
        name = path[-1]
        message = f"`{name}` of the port's schedule is {shown(actual)}, the reference's {shown(expected)}"
        fix = f"pass `{name}={shown(expected)}` to the scheduler"
        written = CodeEdit(kind="pass", call="", arguments=((name, repr(tidy(expected))),))
        edit = None if isinstance(expected, Settings) else written
        yield SettingDifference(piece=SCHEDULER, path=path, expected=expected, message=message, fix=fix, edit=edit)


PACKAGES = "torch.", "paddle."
OWN = ScheduleKind("", {})
"""A schedule of which nothing is known."""


def read(schedule: Schedule, side: Literal[0, 1]) -> Settings:
    """Read a schedule of torch's (side 0) or of Paddle's that no step was made of."""
    if schedule is None:
        return Settings()
    name = type(schedule).__name__ if type(schedule).__module__.startswith(PACKAGES[side]) else ""
    row = next((row for torch, row in SCHEDULES.items() if (torch, row.paddle)[side] == name), OWN)
    if name == "SequentialLR" and len(getattr(schedule, "_schedulers", ())) != 2:
        row = OWN
    arguments: dict[str, Setting] = {}
    for argument, both in row.arguments.items():
        reader = both if isinstance(both, str) else both[side]
        try:
            value = getattr(schedule, reader) if isinstance(reader, str) else reader(schedule)
        except (AttributeError, KeyError, IndexError, TypeError):  # another version keeps it otherwise
            value = None
        if hasattr(value, "step") and hasattr(value, "last_epoch"):  # a warm-up steps it only later
            value = read(value, side)
            value = replace(value, arguments={key: one for key, one in value.arguments.items() if key not in LAST})
        arguments[argument] = value if callable(value) or isinstance(value, Settings) else plain(value)
    functions = getattr(schedule, "lr_lambdas", [getattr(schedule, "lr_lambda", None)])
    own = [] if type(schedule).__module__.startswith(PACKAGES) else [type(schedule)]
    source = next(filter(None, map(source_of, [*functions, *own])), None)
    return Settings(kind=row.paddle, arguments=arguments, words=_described(schedule), source=source)


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
