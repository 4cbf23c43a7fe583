"""Settings of optimizers and schedules in one form, a schedule's as they are read, and Paddle's schedule made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Literal

from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine, at_source, of_piece, source_of
from tipchain.facts.optimizers import DEFAULTS
from tipchain.facts.schedules import LAST, SCHEDULES, ScheduleKind
from tipchain.facts.settings import plain, same, tidy
from tipchain.framework_types import Schedule, Setting
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
        cause = of_piece(self.piece, "setting", self.message, evidence, self.fix)
        return replace(cause, name=self.path[-1], explained=explained, edit=self.edit)


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


STATE = frozenset(("last_epoch", "last_lr", "verbose", "by_epoch", "best", "num_bad_epochs", "cooldown_counter"))
"""Attributes of schedules that are no arguments."""


def has_functions(settings: Settings) -> bool:
    """Tell whether an argument is a function of the user's, which two frameworks may share."""
    values = settings.arguments.values()
    return any(has_functions(one) if isinstance(one, Settings) else callable(one) for one in values)


def as_call(settings: Settings) -> str:
    """Return Paddle's schedule as code."""
    kept = ((name, one) for name, one in settings.arguments.items() if (name, one) != ("last_epoch", -1))
    given = (f"{name}={as_call(one) if isinstance(one, Settings) else repr(tidy(one))}" for name, one in kept)
    return f"{settings.kind}({', '.join(given)})"


def build(lr: ModuleType, settings: Settings) -> Schedule:
    """Make Paddle's schedule."""
    given = {name: build(lr, one) if isinstance(one, Settings) else one for name, one in settings.arguments.items()}
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
