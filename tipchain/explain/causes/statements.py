"""The user's plain code, recorded statement by statement, and where the port's parts from the reference's."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import CO_VARARGS, CO_VARKEYWORDS, ismodule
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tipchain.core.blame import is_users
from tipchain.explain.causes.apart import glimpse
from tipchain.explain.causes.array_index import turned
from tipchain.explain.causes.lines import SPELLINGS, Statement, last_name, likeness, statement_of
from tipchain.explain.findings import Diagnosis, SourceLine
from tipchain.explain.locate.differences import MOST_AXES, distance, relative, relative_arranged, rms
from tipchain.framework_types import Array, Nested
from tipchain.frameworks.live_models import LiveSide
from tipchain.numbers.tolerance import EXPLAINED, SAME_ENLARGED

MOST_STEPS = 5000
"""Statements of one run that are recorded at most."""
MOST_BYTES = 1 << 29
"""Bytes of values that are kept at most."""
MOST_ELEMENTS = 1 << 24
"""Elements of an array beyond which it is not looked at."""
MOST_PARTS = 256
"""Arrays of one value that are looked at: a list of images has many."""
MOST_RUNS = 12
"""Settings that are tried, each in a run of its own."""
LARGEST_SETTING = 64
"""Elements of a setting at most: means and tables, not images."""
TELLING = 4
"""Distinct values by which an array is known in any shape."""
CALLS = ("__call__", "forward")
"""The methods of a transform."""
COMPREHENSIONS = ("comp>", "genexpr>")
"""Ends of the names of code that is part of the statement around it."""


_HERE = f"{Path(__file__).parents[2]}{os.sep}"


class _Nothing(Enum):
    NOTHING = 0


_NOTHING = _Nothing.NOTHING
Key = tuple[Any, ...]
"""An array by its shape, type and contents."""
At = tuple[CodeType, int, int]
"""A step by its code, the line in it, and how often it ran before."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value as it was: the arrays in it, itself where it can stand in another run, and whether no code spells such out."""

    arrays: Sequence[Key]
    setting: object = _NOTHING
    computed: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class CodeStep:
    """A statement that ran, or a library's function that the user's code called.

    Attributes:
        name: of the library's function or transform; empty of a statement.
        at: which step it is.
        statement: the user's, around a library's function.
        file: the user's.
        scope: the number of the frame.
        start: when it began, and ``end`` when it was done.
        given: what it read, by name.
        made: what it set or changed, by name; ``""`` is what it returned.
    """

    name: str
    at: At
    statement: Statement
    file: str
    scope: int
    start: int
    end: int = 0
    given: Mapping[str, Value]
    made: dict[str, Value] = field(default_factory=dict)

    def makes(self, key: Key) -> bool:
        """Tell whether an array is among its results."""
        return any(key in one.arrays for one in self.made.values())

    @property
    def results(self) -> list[Key]:
        """The arrays that it made, and was not given."""
        given = {key for value in self.given.values() for key in value.arrays}
        return [key for value in self.made.values() for key in value.arrays if key not in given]

    @property
    def place(self) -> SourceLine:
        """The user's line."""
        return SourceLine(file=self.file, line=self.statement.line, code=self.statement.text)

    def __str__(self) -> str:
        """Return its name in messages."""
        call = f"`{self.name}` in " if self.name else ""
        return f"{call}`{self.statement.text}` ({Path(self.file).name}:{self.statement.line})"


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """Values that stand in place of others, by name, from when a step begins."""

    at: At
    values: Mapping[str, object]


@dataclass(slots=True, eq=False)
class CodeRun:
    """The steps of the user's code in one run.

    Args:
        tensors: the frameworks whose tensors there may be.
        edit: what stands in place of something; then nothing is recorded.
    """

    tensors: Sequence[LiveSide]
    edit: Edit | None = None
    steps: list[CodeStep] = field(default_factory=list)
    arrays: dict[Key, Array] = field(default_factory=dict)
    _open: dict[FrameType, CodeStep] = field(default_factory=dict)
    _kept: dict[FrameType, dict[str, Sequence[Key]]] = field(default_factory=dict)
    _scopes: dict[FrameType, int] = field(default_factory=dict)
    _turns: dict[tuple[CodeType, int], int] = field(default_factory=dict)
    _undo: list[Callable[[], object]] = field(default_factory=list)
    _closures: dict[FrameType, dict[str, object]] = field(default_factory=dict)
    _made: set[Key] = field(default_factory=set)
    _clock: int = 0
    _room: int = MOST_BYTES
    _base: FrameType | None = None

    def run(self, work: Callable[[], Nested]) -> Nested:
        """Return the result of some work, and record it."""
        before, threads, self._base = sys.gettrace(), threading.gettrace(), sys._getframe()  # noqa: SLF001
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(before)
            threading.settrace(threads)
            self._open.clear()
            self._scopes.clear()
            for undo in reversed(self._undo):
                undo()

    @property
    def full(self) -> bool:
        """Whether the run was too long to be recorded."""
        return self._room <= 0 or len(self.steps) > MOST_STEPS

    def _enter(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        """Follow the user's functions, and note their calls of libraries, and all transforms."""
        code, caller = frame.f_code, frame.f_back
        if event != "call" or self.full or code.co_filename.startswith(_HERE):
            return None
        if is_users(code.co_filename):
            return None if code.co_name.endswith(COMPREHENSIONS) else self._follow
        own = frame.f_locals.get("self")
        transform = code.co_name in CALLS and own is not None and not type(own).__module__.startswith("torch._")
        while caller is not None and caller is not self._base and caller.f_code.co_filename.startswith(_HERE):
            caller = caller.f_back
        called = caller is not None and is_users(caller.f_code.co_filename) and not code.co_name.startswith("_")
        while caller is not None and not is_users(caller.f_code.co_filename):
            caller = caller.f_back if caller is not self._base else None
        statement = None if caller is None else statement_of(caller.f_code, caller.f_lineno)
        if caller is None or statement is None or not (called or transform):
            return None
        frame.f_trace_lines = False
        count = code.co_argcount + code.co_kwonlyargcount
        count += sum(bool(code.co_flags & flag) for flag in (CO_VARARGS, CO_VARKEYWORDS))
        names = list(code.co_varnames[:count])
        if transform:
            names += [f"self.{one}" for one in getattr(own, "__dict__", ()) if one[0] != "_" and one != "training"]
        name = type(own).__name__ if transform else code.co_name
        self._begin(frame, (code, 0), names, name, statement, caller.f_code.co_filename)
        return self._follow

    def _follow(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        code = frame.f_code
        if event == "line" and frame.f_trace_lines:
            statement, running = statement_of(code, frame.f_lineno), self._open.get(frame)
            if running is None or running.statement is not statement:
                self._end(frame)
                if statement is not None:
                    self._begin(frame, (code, statement.line), statement.loads, "", statement, code.co_filename)
        elif event == "return":
            self._end(frame, arg)
            frame.f_locals.update(self._closures.pop(frame, {}))
        return self._follow

    def _begin(
        self,
        frame: FrameType,
        at: tuple[CodeType, int],
        names: Sequence[str],
        name: str,
        statement: Statement,
        file: str,
    ) -> None:
        turn = self._turns[at] = self._turns.get(at, -1) + 1
        if self.edit is not None:
            if self.edit.at == (*at, turn):
                self._change(frame, self.edit.values)
            return
        values = frame.f_locals
        found = {each: self._value(_look_up(each, values, frame.f_globals)) for each in names}
        self._kept[frame] = {
            each: self._value(values[each]).arrays for each in statement.stores if not name and each in values
        }
        self._clock += 1
        self._open[frame] = CodeStep(
            name=name,
            at=(*at, turn),
            statement=statement,
            file=file,
            scope=self._scopes.setdefault(frame, len(self._scopes)),
            start=self._clock,
            given={each: one for each, one in found.items() if one.arrays or one.setting is not _NOTHING},
        )

    def _end(self, frame: FrameType, returned: object = None) -> None:
        step = self._open.pop(frame, None)
        if step is None:
            return
        values = frame.f_locals
        for name in dict.fromkeys((*step.statement.stores, *step.given)) if not step.name else ():
            now = self._value(_look_up(name, values, frame.f_globals)).arrays
            before = step.given[name].arrays if name in step.given else self._kept[frame].get(name)
            if now and now != before:  # the end of a loop changes nothing
                step.made[name] = Value(now)
        if returned is not None:
            step.made[""] = self._value(returned)
        elif step.name:  # what the statement around it computes for it on the spot, it keeps
            around = frame.f_back
            while around is not None and around not in self._open:
                around = around.f_back
            given = {key for value in step.given.values() for key in value.arrays} - self._made
            if around is not None:
                self._open[around].made.setdefault("", Value([key for key in given if self.arrays[key].size > 1]))
        self._clock += 1
        step.end = self._clock
        self._made.update(key for value in step.made.values() for key in value.arrays)
        if not step.name or step.made.get("", Value(())).arrays:
            self.steps.append(step)

    def _change(self, frame: FrameType, values: Mapping[str, object]) -> None:
        """Set variables of a frame, globals and attributes; shared ones are put back."""
        held = frame.f_locals
        for name, value in values.items():
            owner, _, last = name.rpartition(".")
            now = _look_up(name, held, frame.f_globals)
            side = next((one for one in self.tensors if one.is_tensor(now)), None)
            value = value if side is None else side.tensor(np.asarray(value), gradient=False)  # noqa: PLW2901
            if not owner and name in held:
                if name in frame.f_code.co_freevars:
                    self._closures.setdefault(frame, {})[name] = held[name]
                held[name] = value
                continue
            target: Any = _look_up(owner, held, frame.f_globals) if owner else None
            before = vars(target)[last] if owner else frame.f_globals[last]
            put: Callable[[str, object], object] = target.__setattr__ if owner else frame.f_globals.__setitem__
            self._undo.append(lambda put=put, last=last, before=before: put(last, before))  # type: ignore[misc]
            put(last, value)

    def key(self, array: Array) -> Key:
        """Return the key of an array, which is kept."""
        wide = array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array  # which changes no value
        key = (array.shape, wide.dtype.str, hash(wide.tobytes()))
        if key not in self.arrays:
            self._room -= array.nbytes
            self.arrays[key] = np.array(array)
        return key

    def like(self, wanted: Array) -> Array | None:
        """Return the last result of a statement that holds some values, in any layout; None of any, or of a single whole number."""
        values = np.unique(wanted.astype(np.float32))
        if len(values) == 1 and not values[0] % 1:
            return None
        made = [key for step in reversed(self.steps) for key in step.results]
        arrays = [self.arrays[key] for key in dict.fromkeys(made)]
        forms = [wanted.reshape(-1)] if wanted.size == 1 else [wanted, wanted.T]
        for one in arrays:
            held = one.reshape(-1) if wanted.size == 1 else one
            if any(held.shape == form.shape and relative(held, form) <= SAME_ENLARGED for form in forms):
                return one
        alike = (one for one in arrays if np.array_equal(np.unique(one.astype(np.float32)), values))
        return next(alike, None) if len(values) >= TELLING else None

    def computing(self, wanted: Array) -> CodeStep | None:
        """Return the statement that computes some values; None where none does."""
        made, trail = self.like(wanted), _Trail(self)
        return None if made is None else trail.maker(trail.makers[self.key(made)][-1], self.key(made))

    def _value(self, value: object) -> Value:
        arrays = tuple(self.key(one) for one in arrays_of(value, self.tensors))
        spelt = value is _NOTHING or isinstance(value, str | int | float | tuple | dict)
        if len(arrays) == 1 and any(one.is_tensor(value) for one in self.tensors):
            value = self.arrays[arrays[0]]
        return Value(arrays, copy.deepcopy(_setting(value)), computed=not spelt)


def _setting(value: object) -> object:
    """Return a value that can stand in another framework's run: plain, or a small array; else `_NOTHING`."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value if isinstance(value, int) else _NOTHING
    if isinstance(value, np.ndarray):
        return value if value.size <= LARGEST_SETTING else _NOTHING
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    plain = value is None or isinstance(value, str | int | float | list | tuple | dict)
    plain = plain and len(parts) <= LARGEST_SETTING and all(_setting(one) is not _NOTHING for one in parts)
    return value if plain else _NOTHING


def arrays_of(value: object, tensors: Sequence[LiveSide], most: int = MOST_PARTS) -> list[Array]:
    """Return the arrays, numbers and images in a value, as arrays."""
    tensor = next((one for one in tensors if one.is_tensor(value)), None)
    several = isinstance(value, list | tuple) and len(value) > 0
    row = several and all(isinstance(one, int | float | np.generic) for one in value)  # type: ignore[attr-defined]
    found: list[Array] = []
    if tensor is not None:
        found = [np.asarray(tensor.array(value))]
    elif row or isinstance(value, np.ndarray | np.generic | int | float) or hasattr(value, "__array_interface__"):
        found = [np.asarray(value)]
    elif isinstance(value, Mapping | list | tuple):
        for one in list(value.values()) if isinstance(value, Mapping) else value:
            found += arrays_of(one, tensors, most - len(found)) if len(found) < most else []
    return [one for one in found if one.dtype.kind in "biufc" and one.size <= MOST_ELEMENTS]


def _look_up(name: str, values: Mapping[str, Any], names: Mapping[str, Any]) -> object:
    """Return the value of a name with attributes; no property is run."""
    first, *rest = name.split(".")
    found: Any = values.get(first, names.get(first, _NOTHING))
    for part in rest:
        known = ismodule(found) or isinstance(found, type)
        held = getattr(found, "__dict__", {})
        found = getattr(found, part, _NOTHING) if known else {**held.get("_buffers", {}), **held}.get(part, _NOTHING)
    return found


# Where two programs part: from the value that differs back to the first that the other side does not have.


Parting = tuple[CodeStep, Key]


class _Values:
    """The values of a program: arrays, and single numbers by name."""

    def __init__(self, program: CodeRun, *, laid_alike: bool) -> None:
        self.laid_alike = laid_alike
        self.sizes: dict[int, list[Array]] = {}
        self.names: dict[str, set[float]] = {}
        self.tables: dict[int, list[Array]] = {}
        for array in program.arrays.values():
            self.sizes.setdefault(array.size, []).append(array)
            if not laid_alike and (table := _table(array)) is not None:
                self.tables.setdefault(table.size, []).append(table)
        for step in program.steps:
            for name, value in (*step.given.items(), *step.made.items()):
                arrays = [program.arrays[key] for key in value.arrays]
                self.names.setdefault(last_name(name), set()).update(one.item() for one in arrays if one.size == 1)

    def have(self, name: str, array: Array) -> bool:
        """Tell whether an array is among them; a number under its name, where there is such."""
        if array.size == 1:
            known = self.names.get(last_name(name)) or {one.item() for one in self.sizes.get(1, ())}
            return any(abs(one - array.item()) <= SAME_ENLARGED * abs(one) for one in known)
        if not array.size or any(self._same(one, array) for one in self.sizes.get(array.size, ())):
            return True
        table = _table(array) if self.tables else None
        if table is None:
            return False
        return any(relative(one, table) <= SAME_ENLARGED for one in self.tables.get(table.size, ()))

    def _same(self, one: Array, array: Array) -> bool:
        one, array = (each.astype(np.int64) if each.dtype.kind in "bu" else each for each in (one, array))
        if self.laid_alike:
            return one.shape == array.shape and relative(one, array) <= SAME_ENLARGED
        if array.size <= MOST_AXES and one.dtype.kind == array.dtype.kind == "i":  # height and width
            return np.array_equal(np.sort(one, None), np.sort(array, None))
        if relative(one.reshape(-1), array.reshape(-1)) <= SAME_ENLARGED:
            return True
        return relative_arranged(one.squeeze(), array.squeeze()) <= SAME_ENLARGED


def _table(array: Array) -> Array | None:
    """Return the values along the only axis along which an array varies, however often they are repeated; None of another array."""
    varying = [axis for axis in range(array.ndim) if (array != array.take([0], axis)).any()] if array.size else []
    at = tuple(slice(None) if [axis] == varying else 0 for axis in range(array.ndim))
    return array[at] if len(varying) == 1 else None


class _Trail:
    """Leads from a value back to the steps that it comes from."""

    def __init__(self, program: CodeRun) -> None:
        self.program, self.arrays = program, program.arrays
        self.makers: dict[Key, list[CodeStep]] = {}
        for step in program.steps:
            for key in {each for value in step.made.values() for each in value.arrays}:
                self.makers.setdefault(key, []).append(step)

    def first_apart(self, end: Array, others: _Values) -> Parting | None:
        """Return the first step with another result than the other side's, and that result.

        From what differs in the end each step leads to those that made what it was given, as long as the other side has none such.
        """
        key = self.program.key(end)
        if key not in self.makers:  # a row of a batch, or what a call is given that did not return
            batches = [each for each in self.makers if each[0] and each[0][1:] == end.shape]
            key = next((each for each in batches if any(np.array_equal(row, end) for row in self.arrays[each])), key)
        step = next(reversed(self.makers.get(key, self.program.steps)), None)
        while step is not None:
            step = self.maker(step, key)
            strange = self._strange(step, others)
            before = self._before(step, strange)
            around = self.around(step)
            if strange and not before and around:  # what the statement around it hands over
                before = self._before(around[0], self._strange(around[0], others))
            inside = [
                (one, each)
                for one in ([] if strange else self.inside(step))
                for value in one.made.values()
                for each in value.arrays
                if self.arrays[each].size > 1 and not others.have("", self.arrays[each])
            ]
            if not before + inside:
                handed = [(found, each) for name, each in strange if (found := self.giver(step, name, each))]
                return handed[0] if handed else (step, key)
            step, key = min(before or inside, key=lambda one: one[0].end)
        return None

    def _strange(self, step: CodeStep, others: _Values) -> list[tuple[str, Key]]:
        """Return the arrays that a step is given and the other side does not have, by name."""
        given = ((name, each) for name, value in step.given.items() for each in value.arrays)
        return [one for one in given if not others.have(one[0], self.arrays[one[1]])]

    def _before(self, step: CodeStep, strange: Sequence[tuple[str, Key]]) -> list[Parting]:
        return [(found, each) for name, each in strange if (found := self.source(step, name, each))]

    def maker(self, step: CodeStep, key: Key) -> CodeStep:
        """Return the step that computed an array which a step made: inside of it, or before, where it only hands it on."""
        while True:
            inside = [one for one in self.inside(step) if one.makes(key)]
            handed = next((name for name, value in step.given.items() if key in value.arrays), None)
            found = inside[-1] if inside else self.source(step, handed, key) if handed is not None else None
            if found is None:
                return step
            step = found

    def inside(self, step: CodeStep) -> list[CodeStep]:
        """Return the steps that ran inside of one."""
        return [one for one in self.program.steps if step.start < one.start and one.end < step.end]

    def around(self, step: CodeStep) -> list[CodeStep]:
        """Return the steps that one ran inside of, the innermost first."""
        found = [one for one in self.program.steps if one.start < step.start and step.end < one.end]
        return sorted(found, key=lambda one: one.end)

    def source(self, step: CodeStep, name: str, key: Key) -> CodeStep | None:
        """Return the maker of another step's value by name; of a parameter the last one."""
        before = [one for one in self.makers.get(key, ()) if one.end < step.start]
        own = [one for one in before if name in one.made and (one.scope == step.scope or "." in name)]
        return next(reversed(own or (before if self.arrays[key].size > 1 else [])), None)

    def sources(self, parting: Parting) -> list[Parting]:
        """Return the steps that made another's arguments, with their results."""
        given = ((name, key) for name, value in parting[0].given.items() for key in value.arrays if key != parting[1])
        return [(found, key) for name, key in given if (found := self.source(parting[0], name, key))]

    def giver(self, step: CodeStep, name: str, key: Key) -> CodeStep | None:
        """Return the statement that computes a parameter on the spot; None of literals, older values."""
        computed = step.given[name].computed
        for one in self.around(step):
            code = step.at[0]
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if name not in parameters:
                return None
            if one.scope == step.scope:
                continue
            passed = one.statement.calls.get(code.co_name)
            if passed is None and not computed:
                return None
            if passed is not None:
                places, named = passed
                at = parameters.index(name) - (parameters[0] == "self")
                known = named.get(name, places[at] if at < len(places) else None)
                if known is None:
                    return None  # it is left out in the call
                if not known:
                    return one
            step, handed = one, next((other for other, value in one.given.items() if key in value.arrays), None)
            if handed is None:
                return one if computed and passed is None else None
            name = handed
        return None

    def settings(self, step: CodeStep) -> Iterator[tuple[str, object]]:
        """Yield a step's values that no step made: a parameter's value, a global, an attribute."""
        for name, value in step.given.items():
            made = any(self.source(step, name, key) or self.giver(step, name, key) for key in value.arrays)
            if value.setting is not _NOTHING and not made:
                yield name, value.setting


# What is said of it: both statements with what they are given and make, and settings that mend the port's where they are the reference's.


Settings = dict[str, tuple[object, object]]


def explain_parting(
    programs: tuple[CodeRun, CodeRun],
    ends: tuple[Array, Array],
    again: Callable[[Edit], Array] | None,
    path: str,
    where: str,
) -> Diagnosis | None:
    """Show the statements with which two runs part, and the settings that mend the port's, which were tried.

    Args:
        programs: the reference's and the port's run.
        ends: what each gives: values that differ.
        again: runs the port once more with an edit, and returns what it gives; None: it is not run again.
        path: what the diagnosis is about.
        where: what stands before the message: the sample.
    """
    reference, port = programs
    if reference.full or port.full or not (reference.steps or port.steps):
        return None
    trails = [_Trail(one) for one in programs]
    mended = None if again is None else _mend(ends, again, *trails)
    if mended is not None:
        step, other, whole, share = mended
        settings = dict(_parts(whole))
        told = [
            f"`{last_name(name)}` is {_shown(one)}, the reference's {_shown(two)}"
            for name, (one, two) in settings.items()
        ]
        return Diagnosis(
            code="argument",
            port_path=path,
            message=f"{where}: {'; '.join(told)}; the port reads it in {step}; the reference reads it in {other}",
            evidence=f"the port was run with the reference's: {share:.2%} of the difference is gone",
            explained=share,
            fix="; ".join(
                f"leave out `{last_name(name)}`" if one is _NOTHING else f"set `{last_name(name)}` to {_shown(one)}"
                for name, (_, one) in settings.items()
            ),
            place=step.place,
            reference_place=other.place,
        )
    partings: list[Parting] = []
    # An order of axes may be the code's own affair, or what differs.
    exchanged = any(np.array_equal(one, ends[1]) for one in turned(*ends))
    for laid_alike in (True,) if exchanged else (False, True):
        others = [_Values(one, laid_alike=laid_alike) for one in (port, reference)]
        found = [trail.first_apart(end, values) for trail, end, values in zip(trails, ends, others, strict=True)]
        partings = [one for one in found if one is not None]
        if ends[1].size == 1 or not others[1].have("", ends[1]):
            break
    if len(partings) < len(trails):
        return None
    # What one side does in a step more stands in the other's statement before, which makes a variable of the same name.
    around = [[one, *trail.sources(one)] for trail, one in zip(trails, partings, strict=True)]
    pairs = [*([one, partings[1]] for one in around[0]), *([partings[0], one] for one in around[1])]
    both = ((pair, pair[0][0].statement, pair[1][0].statement) for pair in pairs)
    named = [pair for pair, one, other in both if one.stores and one.stores == other.stores and one.text != other.text]
    partings = max(named, key=lambda pair: _likeness(pair[0][0], pair[1][0]), default=partings)
    made = [trail.arrays[key] for trail, (_, key) in zip(trails, partings, strict=True)]
    told = [_told(*each) for each in zip(trails, partings, made, made[::-1], strict=True)]
    (ours, _), (theirs, _) = partings
    return Diagnosis(
        code=kind_of(*ends),
        port_path=path,
        message=f"{where}: the port's {told[1]}; the reference's {told[0]}",
        evidence="both codes were recorded, statement by statement",
        fix="let the port's line do what the reference's does",
        place=theirs.place,
        reference_place=ours.place,
    )


def explain_programs(
    programs: tuple[CodeRun, CodeRun], ends: tuple[Array, Array], path: str, where: str
) -> Diagnosis | None:
    """Show the statements with which two recorded runs part on the way to two arrays; None where both read alike."""
    ours, theirs = (program.like(end) for program, end in zip(programs, ends, strict=True))
    if ours is None or theirs is None:
        return None
    told = explain_parting(programs, (ours, theirs), None, path, where)
    places = (told.place, told.reference_place) if told is not None else (None, None)
    return told if len({SPELLINGS.sub("", one.code) for one in places if one is not None}) > 1 else None


def _told(trail: _Trail, parting: Parting, made: Array, other: Array) -> str:
    step, key = parting
    inside = trail.inside(step) if step.makes(key) else []
    values = inside[-1].made if inside else {name: one for name, one in step.given.items() if key not in one.arrays}
    given = [(name, trail.arrays[each]) for name, one in values.items() for each in one.arrays]
    name, largest = max(given, key=lambda one: one[1].size, default=("", None))
    shown = glimpse(made)
    if other.shape == made.shape and glimpse(other) == shown:
        place = np.unravel_index(int(np.abs(np.subtract(made, other, dtype=np.float64)).argmax()), made.shape)
        shown = f"{made[place]:.6g} at {[int(one) for one in place]}"
    of = "" if largest is None else f" of {name} {glimpse(largest)}".replace("  ", " ")
    return f"{step} makes {shown}{of}"


def kind_of(expected: Nested, actual: Nested) -> str:
    """Return the kind of a difference that nothing explains: ``"nan"`` where one side alone has such."""
    floats = [isinstance(one, np.ndarray) and one.dtype.kind in "fc" for one in (expected, actual)]
    lacking = [here and bool(np.isnan(one).any()) for here, one in zip(floats, (expected, actual), strict=True)]
    return "parting" if lacking[0] == lacking[1] else "nan"


def _parts(settings: Settings) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield settings, of a mapping those that it holds and that differ."""
    for name, (one, other) in settings.items():
        if not (isinstance(one, dict) and isinstance(other, dict)):
            yield name, (one, other)
            continue
        for key in {**other, **one}:
            pair = one.get(key, _NOTHING), other.get(key, _NOTHING)
            if not _equal(*pair):
                yield str(key), pair


def _shown(value: object) -> str:
    if value is _NOTHING:
        return "not given"
    if isinstance(value, Enum):
        return value.name
    return glimpse(value) if isinstance(value, np.ndarray) else f"{value!r:.60}"


def _mend(
    ends: tuple[Array, Array], again: Callable[[Edit], Array], reference: _Trail, port: _Trail
) -> tuple[CodeStep, CodeStep, Settings, float] | None:
    """Return steps and settings that mend the port's result, and the mended fraction."""
    known: dict[str, list[tuple[CodeStep, object]]] = {}
    for step in reference.program.steps:
        for name, setting in reference.settings(step):
            known.setdefault(last_name(name), []).append((step, setting))
    tried: list[tuple[CodeStep, CodeStep, Settings]] = []
    seen: set[str] = set()
    for step in sorted(port.program.steps, key=lambda one: one.start):
        pairs: Settings = {}
        ours = step
        for name, setting in port.settings(step):
            # The step of the same function, or else of the same words.
            others = known.get(last_name(name), ())
            if not others or any(_equal(one, setting) for each, one in others if each.name == step.name):
                continue
            alike, value = max(others, key=lambda one: _likeness(one[0], step))
            if not _equal(value, setting) and (text := f"{step.at[:2]} {name} {setting!r}") not in seen:
                seen.add(text)
                pairs[name], ours = (setting, value), alike
        tried += [(step, ours, {name: pair}) for name, pair in pairs.items()]
        tried += [(step, ours, pairs)] if len(pairs) > 1 else []
    tried.sort(key=lambda one: any(isinstance(value, dict) for value, _ in one[2].values()))  # what it holds goes first
    expected, actual = ends
    whole = distance(expected, actual)
    for step, ours, settings in tried[:MOST_RUNS]:
        try:
            found = again(Edit(step.at, {name: value for name, (_, value) in settings.items()}))
        except Exception:  # noqa: BLE001, S112  (the user's code with a value that it does not take)
            continue
        left = distance(expected, found)
        share = 1 - left / whole if 0 < whole < np.inf else float(left <= SAME_ENLARGED * rms(expected))
        if share >= EXPLAINED:
            return step, ours, settings, share
    return None


def _likeness(one: CodeStep, other: CodeStep) -> float:
    return (one.name == other.name) + likeness(one.statement.text, other.statement.text)


def _equal(one: Nested, other: Nested) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(each, other[name]) for name, each in one.items())
    several = [isinstance(each, list | tuple) or getattr(each, "ndim", 0) > 0 for each in (one, other)]
    if any(several):
        return all(several) and len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, int | float | np.number) and isinstance(other, int | float | np.number):
        return bool(np.isclose(one, other, SAME_ENLARGED, 0.0))
    return type(one) is type(other) and bool(one == other)
