"""Edits that no call of the reference's suggests: one thing changed at a time at the port's statements, the nearest first."""

from __future__ import annotations

import operator
import os
import re
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, permutations
from typing import Literal, NamedTuple

import numpy as np

from tipchain.explain.causes.edits import (
    OPERATORS,
    as_code,
    as_ports,
    at_call,
    in_paddle,
    kind_of_setting,
    passed,
    spelled,
)
from tipchain.explain.causes.hypotheses import (
    Hypothesis,
    Lines,
    Trial,
    Trials,
    called,
    class_of,
    has_axis,
    index_text,
    place_of,
    same_setting,
)
from tipchain.explain.causes.lines import Code, Frame, at_line, codes_of, innermost, likeness, opposite, reads_alike
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import (
    LAYER,
    LAYOUT,
    Act,
    Op,
    argument,
    called_as,
    is_plain,
    numpy_of,
    signature_of,
    then,
    with_arguments,
)
from tipchain.explain.causes.walk import CASTING, Walk, exchanged
from tipchain.explain.findings import CodeEdit
from tipchain.framework_types import Array, Function, Nested, Options, Setting, Tensor
from tipchain.numbers.tolerance import SAME_SINGLE

LONGEST = 10.0
"""Seconds of the processor that edits are tried for at most, for all faults of an alignment."""
PATIENCE = 6.0
"""Times as long a copy of the process may take on a busy machine."""
LEAST = 0.25
"""Seconds of the processor that edits are tried for at least, to choose among those that mend."""
MOST_ALTERNATIVES = 16
"""Values of one argument, or tensors in place of one, that are tried."""
MOST_INSIDE = 40
"""Calls inside a function whose arguments are exchanged."""
MOST_ORDERED = 4
"""Axes, or tensors of a list, all of whose orders are tried."""
MOST_TURNS = 8
"""Calls of one function in a statement that are changed one by one, too."""
BINARY = {
    "multiply": "multiplies by",
    "divide": "divides by",
    "add": "adds",
    "subtract": "subtracts",
    "pow": "takes the power",
    "rsub": "subtracts from",
    "rdiv": "divides",
    "maximum": "takes at least",
    "minimum": "takes at most",
}
"""Functions of two tensors, or of a tensor and a number, that stand in each other's place, in words."""
TURNED = frozenset({"subtract", "divide", "matmul", "pow"})
"""Functions of two tensors whose order counts."""
STEPS, MOVED = 6, 1e-4
"""Steps by which a number is solved for, and the share by which it is moved to see what comes of it."""
Mutation = Hypothesis | Callable[[], Hypothesis | None]
"""An edit, or what finds one by runs of its own."""


def search(
    trials: Trials, near: Op, step: Op, told: Frame, *, proved: bool, mends: Callable[[Hypothesis], Trial | None]
) -> Trial | None:
    """Return an edit that mends the port; None where none is found.

    Paddle ends the process for some arguments (3.3.1: a negative number of parts). So edits are tried in a copy of this process, and
    those that mend are run here once more. Several may: what a person would do first is taken.

    Args:
        trials: those of the piece.
        near: the port's call at which the programs part, around which edits are tried first.
        step: the reference's.
        told: the port's statement at which they part.
        proved: whether the error comes from the partings of the walk: then edits are tried there alone.
        mends: tries an edit.
    """
    walk, before = trials.walk, _spent()
    within = {op.number: op for one in walk.partings for op in one.ops} if proved else {}
    left = [*within.values()]
    while left:  # what makes their tensors may pick wrong ones, which are right by themselves
        for maker in filter(None, map(walk.makers_of.get, left.pop().given)):
            left += [maker] if maker.number not in within and walk.ops.selects(maker) else []
            within[maker.number] = maker
    within |= {near.number: near} if within else {}

    def mended(mutation: Mutation) -> Trial | None:
        one = mutation if isinstance(mutation, Hypothesis) else mutation()
        return None if one is None else mends(one)

    every = partial(mutations, trials.piece, walk, near, frozenset(within))

    def tries(start: int) -> Iterator[bool]:
        return (mended(one) is not None for one in islice(every(), start, None))

    found = _mending(tries, LONGEST - trials.pace.searched)
    trials.pace.searched += _spent() - before
    good = [
        (number, one, mended(one))
        for number, one in enumerate(islice(every(), max(found, default=-1) + 1))
        if number in found
    ]
    ranked = sorted((_rank(one, trial, told), number, trial) for number, one, trial in good if trial is not None)
    if not ranked:
        return None
    (rank, elsewhere), number, trial = ranked[0]
    parted = walk.partings[: 1 if proved else 0]
    if rank == WEAKEST and (elsewhere or trials.makes(trial.hypothesis, parted) is None):
        return None
    told_so = replace(completed(trial.hypothesis, walk, step), evidence=f"{number + 1} edits were tried")
    return replace(trial, hypothesis=told_so)


def completed(one: Hypothesis, walk: Walk, step: Op) -> Hypothesis:
    """Return an edit with the reference's statement opposite its own, or else that of a step."""
    codes = codes_of(frame for call in walk.steps for frame in call.frames)
    frame = at_line(one.lines.port.file, one.lines.port.line) if one.lines.port is not None else None
    against = None if frame is None else opposite(frame, codes)
    there = against[0] if against is not None and against[1] else innermost(step.frames)
    fix = f"{one.fix}; the reference has `{there.line}` at {there.place}" if there.place else one.fix
    return replace(one, lines=one.lines._replace(reference=there.source), fix=fix)


WEAKEST = 4
"""The rank of what may only undo an error: another sum or product."""


def _rank(mutation: Mutation, trial: Trial, told: Frame) -> tuple[int, bool]:
    """Return an edit's rank, the likeliest first, and whether it stands elsewhere than the parting."""
    one = trial.hypothesis
    elsewhere = one.lines.port is None or one.lines.port != told.source
    if one.code in ("function", "missing-call", "extra-call"):
        return (WEAKEST if one.name in BINARY else 1), elsewhere
    return (0 if isinstance(mutation, Hypothesis) else 2), elsewhere


def _mending(tries: Callable[[int], Iterable[bool]], within: float) -> list[int]:
    """Return the numbers of those that succeed in a copy of this process: the first, and others in as much time again.

    What ends the copy, or takes it ten times as long as any before, is passed over: another copy goes on behind it.

    Args:
        tries: whether each from a number on succeeds.
        within: seconds of the processor after which no other is begun.
    """
    found, number, before = list[int](), 0, _spent()
    late = time.monotonic() + PATIENCE * within
    while not found and (left := within - _spent() + before) > 0 and time.monotonic() < late:
        told = _told_by_copy(tries(number), left, late)
        for sign in told:
            number += sign == BEGUN
            found += [number - 1] if sign == MENDED else []
        if told.endswith(ENDED):
            break
    return found


def harmless(trials: Trials, hypotheses: Iterable[Hypothesis]) -> Iterator[Hypothesis]:
    """Yield those that do not end the process: in Paddle some gradients of cut calls do (3.3.1: that of `cross`)."""
    every, number, late = list(hypotheses), 0, time.monotonic() + PATIENCE * LONGEST
    if trials.piece.paddle.device.get_device() != "cpu":  # a copy of this process has no other device
        yield from every
        return
    while number < len(every) and time.monotonic() < late:
        told = _told_by_copy((trials.explains(one) for one in every[number:]), LONGEST, late)
        begun = told.count(BEGUN)
        yield from every[number : number + begun - 1]  # the last one that was begun ended the copy, or is none
        number += begun


BEGUN, MENDED, ENDED = ".!$"
"""What a copy of this process writes: that it begins a try, that one mends the port, that there are no more."""
ENDING = (signal.SIGVTALRM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""Signals that end the copy."""
SLOWER = 10.0
"""Times as long as all before that a try may take, and at least a second: some of Paddle's kernels never end for wrong arguments."""


def _spent() -> float:
    return os.times().children_user


def _told_by_copy(tries: Iterable[bool], within: float, late: float) -> str:
    """Return the signs of a copy of this process that tries all in turn, until it ends, or until ``late``."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads, which the copy does not have
        child = os.fork()
    if not child:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(quiet, stream)
            _try_all(tries, within, write)
        finally:
            os._exit(0)
    os.close(write)
    told = b""
    try:
        while (left := late - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
            more = os.read(read, 1 << 16)
            told += more
            if not more:
                break
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return told.decode()


def _try_all(tries: Iterable[bool], within: float, write: int) -> None:
    """Try all in turn; the system ends this process where a try takes too long."""
    for one in ENDING:  # Paddle's own handlers wait for threads that the copy lacks
        signal.signal(one, signal.SIG_DFL)
    until, longest, begun, some = within, 0.0, time.process_time(), iter(tries)
    while begun <= until:
        os.write(write, BEGUN.encode())
        signal.setitimer(signal.ITIMER_VIRTUAL, max(SLOWER * longest, 1.0) if longest else within)
        mended = next(some, None)
        if mended is None:
            break
        longest, begun = max(longest, time.process_time() - begun), time.process_time()
        if mended:
            os.write(write, MENDED.encode())
            until = min(until, max(2 * begun, LEAST))
    os.write(write, ENDED.encode())


class Pool(NamedTuple):
    """What the reference gives its calls beside tensors, by function and argument, and its calls as Paddle makes them."""

    settings: Mapping[str, Sequence[Mapping[str, object]]]
    calls: Sequence[tuple[Op, Callable[..., Tensor], str]]


def mutations(piece: Piece, walk: Walk, near: Op, within: frozenset[int] = frozenset()) -> Iterator[Mutation]:
    """Yield the port with a single change of a statement, first of those whose calls are nearest to ``near``.

    Statements that read as the reference's come last. ``within`` are the numbers of the calls among which the fault is
    known to be; empty where it may be anywhere.
    """
    pool, by_line = _pool(piece, walk), dict[tuple[str, str, str], list[Op]]()
    codes, names = codes_of(frame for step in walk.steps for frame in step.frames), _own_names(piece, walk)
    for op in walk.ops:
        by_line.setdefault((op.name, op.place, names[op.number]), []).append(op)
    lines = [ops for ops in by_line.values() if not within or any(op.number in within for op in ops)]
    lines.sort(key=lambda ops: min(abs(op.number - near.number) for op in ops))
    lines.sort(key=lambda ops: reads_alike(innermost(ops[0].frames), codes))
    sites, variables = _sites(walk), dict[Code | None, _Variables]()
    for several in lines:
        turns, alike = list(_turns(several, walk)), reads_alike(innermost(several[0].frames), codes)
        for calls in turns:
            yield from chain(_less(calls, piece, walk), _settings(calls, pool, piece), _orders(calls, piece))
        for site in dict.fromkeys(site for op in several for site in _sites_of(op)):
            if site in sites and (alike or not reads_alike(sites[site][0], codes)):
                frame, ops = sites.pop(site)
                known = variables.get(frame.code) or variables.setdefault(
                    frame.code, _Variables(walk, frame.code, names)
                )
                yield from _operands(frame, ops, known, piece)
        yield from chain.from_iterable(_functions(calls, pool, piece) for calls in turns)
    yield from _together([op for ops in lines for op in ops], pool, piece)
    held = dict[float, list[tuple[int, int | str]]]()
    for number, (at, _, value) in ((op.number, given) for op in walk.ops for given in _slots(op)):
        if isinstance(value, float):
            held.setdefault(value, []).append((number, at))
    for calls in (calls for several in lines for calls in _turns(several, walk)):
        yield from chain(_solved(calls, held, piece, walk), _more(calls, pool, piece, walk), _later(calls, piece, walk))


def _pool(piece: Piece, walk: Walk) -> Pool:
    settings = dict[str, dict[str, Mapping[str, object]]]()
    calls = dict[str, tuple[Op, Callable[..., Tensor], str]]()
    for step in walk.steps:
        told, number = spelled(step, walk), step.name in BINARY and len(step.given) == 1
        settings.setdefault(step.name, {})[repr(told)] = told
        function = OPERATORS.get(step.name) or in_paddle(step, piece)
        if not step.given or step.name in (LAYER, *CASTING) or function is None:
            continue
        numbers = [one for one in told.values() if number and kind_of_setting(one) == "number"][:1]
        given = {} if step.name in BINARY else passed(step, walk, signature_of(function))
        how = ", ".join((*map(str, numbers), *(f"{key}={one!r}" for key, one in given.items())))
        call = f"{step.name}({how})" if how else step.name
        calls.setdefault(f"{call} {len(step.given)}", (step, partial(_applied, function, numbers, given), call))
    return Pool({name: list(some.values()) for name, some in settings.items()}, list(calls.values()))


def _applied(function: Function, numbers: Sequence[object], given: Mapping[str, object], *tensors: Tensor) -> Tensor:
    return function(*tensors, *numbers, **given)


def _turns(several: Sequence[Op], walk: Walk) -> Iterator[Sequence[Op]]:
    """Yield the calls of a function on a line together, then by their turn in a run of the statement."""
    yield several
    turns, turn, before = dict[int, list[Op]](), 0, several[0].number
    for op in several:
        between = walk.ops[before + 1 : op.number]
        same = all(any(one.place == op.place for one in other.frames) for other in between)
        turn = turn + 1 if same and op is not several[0] else 0
        turns.setdefault(turn, []).append(op)
        before = op.number
    yield from turns.values() if 1 < len(turns) <= MOST_TURNS else ()


def _edit(code: str, ops: Sequence[Op], act: Act, what: str, instead: str, fix: str, **more: Setting) -> Hypothesis:
    acts = dict.fromkeys((one.number for one in ops), act)
    return at_call(code, ops[0], None, acts, _mended(what, instead), fix, confirmed=False, **more)


def _mended(what: str, instead: str) -> str:
    return f"{what}; {instead} it makes what the reference makes"


# Arguments that are no tensors.


Given = tuple[int | str, str, object]
"""A setting of a call: its position or name, its name, its value."""


def _slots(op: Op) -> list[Given]:
    """Return a function's settings in a call, those that are left out, too; none of a layer."""
    if op.name == LAYER:
        return []
    parameters = list(op.parameters.values())
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        parameters = []
    found: list[Given] = []
    for number, one in enumerate(op.args):
        name = parameters[number].name if number < len(parameters) else str(number)
        if op.name in ("getitem", "setitem") and number == 1:
            name = "item"
        elif name.isdigit() and number == 1:
            name = "y"
        elif op.name == "arange" and len(op.args) == 1:
            name = "end"
        if is_plain(one):
            found.append((number, name, one))
    found += [(name, name, one) for name, one in op.kwargs.items() if is_plain(one)]
    left_out = [one for one in parameters[len(op.args) :] if one.name not in (*op.kwargs, "name")]
    found += [
        (one.name, one.name, one.default) for one in left_out if one.default is not one.empty and is_plain(one.default)
    ]
    return found


def _with_settings(calls: Sequence[Op], changes: Sequence[tuple[Given, object]], piece: Piece) -> Hypothesis:
    op, where, (((_, name, present), value), *more) = calls[0], place_of(calls[0], piece), changes
    arguments = as_code((each, new) for (_, each, _), new in changes)
    change: CodeEdit | None = CodeEdit(kind="pass", call=op.name, arguments=arguments)
    what = "; ".join(f"`{each}` of `{op.name}`{where} is {was!r}" for (_, each, was), _ in changes)
    instead = f"with {', '.join(repr(new) for _, new in changes)}"
    fix = f"pass {', '.join(f'`{each}={new!r}`' for (_, each, _), new in changes)} to `{op.name}`{where}"
    if name == "item":
        was, now = map(index_text, (present, value))
        what, instead, fix = f"it takes index [{was}]{where}", f"with [{now}]", f"write [{now}] for [{was}]{where}"
        change = CodeEdit(kind="write", call=f"[{was}]", written=f"[{now}]")
    elif name == "y" and op.name in BINARY and not more:
        what, instead = f"it {BINARY[op.name]} {present:.10g}{where}", f"with {value:.10g}"
        layer = dict(piece.sides.port.layers(piece.port)).get(op.holder)
        names = re.findall(r"\bself\.(\w+)", op.line) if layer is not None else []  # that the number is taken from
        held = ((each, vars(layer).get(each)) for each in names)
        kept = next((each for each, one in held if is_plain(one) and same_setting(one, present)), "")
        fix = f"write {value:.10g} in `{op.name}`{where}"
        fix = f"set `self.{kept}` to {value:.10g}, which `{op.name}`{where} is given" if kept else fix
        change = CodeEdit(kind="set", call=kept, written=f"{value:.10g}") if kept else None
    act = with_arguments({slot: new for (slot, _, _), new in changes})
    numbers = not more and all(isinstance(one, int | float) for one in (value, present))
    told: Options = {"constants": (np.array(value), np.array(present))} if numbers else {}
    return _edit("argument", calls, act, what, instead, fix, name=name, calls=len(calls), code_edit=change, **told)


def _settings(calls: Sequence[Op], pool: Pool, piece: Piece) -> Iterator[Hypothesis]:
    """Yield calls with another value of one argument, or with all that the reference gives a call of the same function."""
    op, slots = calls[0], _slots(calls[0])
    for given in slots:
        others = [one for one in _alternatives(op, given, pool) if not same_setting(one, given[2])]
        for value in list({repr(one): one for one in others}.values())[:MOST_ALTERNATIVES]:
            yield _with_settings(calls, [(given, value)], piece)
    for told in pool.settings.get(op.name, ()):
        wanted = [(given, as_ports(told.get(given[1], _default(op, given[1])), given[2])) for given in slots]
        changes = [(given, one) for given, one in wanted if one is not None and not same_setting(one, given[2])]
        if 1 < len(changes) <= MOST_ORDERED and all(
            kind_of_setting(one) == kind_of_setting(each[2]) for each, one in changes
        ):
            yield _with_settings(calls, changes, piece)


def _together(ops: Sequence[Op], pool: Pool, piece: Piece) -> Iterator[Hypothesis]:
    """Change a whole number in all calls of a function's code that are given it by the same name: it may be kept in a constant."""
    found = dict[tuple[object, ...], list[tuple[Op, Given]]]()
    for op, given in ((one, each) for one in ops for each in _slots(one)):
        if isinstance(given[2], int) and not isinstance(given[2], bool):
            found.setdefault((*given, innermost(op.frames).code), []).append((op, given))
    for (op, given), *more in found.values():
        others = _alternatives(op, given, pool) if any(one.name != op.name for one, _ in more) else ()
        for value in dict.fromkeys(one for one in others if isinstance(one, int) and one != given[2]):
            yield _with_settings([op, *(one for one, _ in more)], [(given, value)], piece)


def _default(op: Op, name: str) -> object:
    default = op.parameters[name].default if name in op.parameters else None
    return default if is_plain(default) else None


def _alternatives(op: Op, given: Given, pool: Pool) -> Iterator[object]:
    """Yield other values for an argument: what the reference gives for it, other axes, orders, places, signs."""
    _, name, present = given
    kind = kind_of_setting(present)
    for function, several in pool.settings.items():
        for told, value in (pair for one in several for pair in one.items()):
            wanted = as_ports(value, present)
            # Where torch tells no names, any of a call's settings may be it.
            named = name in (told, f"{told}s") or (op.name == function and told.isdigit())
            alike = kind_of_setting(wanted) == kind and named
            lengths = {len(one) for one in (wanted, present) if isinstance(one, list | tuple) and kind != "index"}
            if (alike or (name == "y" and kind_of_setting(wanted) == "number")) and len(lengths) < 2:
                yield wanted
    default = _default(op, name)
    yield from [default] if kind_of_setting(default) == kind else ()
    if isinstance(present, bool):
        yield not present
    elif kind == "number" and name == "axis":
        yield from (axis for axis in range(-MOST_ORDERED, MOST_ORDERED) if has_axis(op, axis))
    elif name == "item":
        yield from _moved(present)
    elif kind == "list" and isinstance(present, list | tuple) and 1 < len(present) <= MOST_ORDERED:
        yield from map(type(present), permutations(present))
    elif isinstance(present, float):
        yield -present


def _moved(item: object) -> Iterator[object]:
    """Yield an index with one of its places, or one of its ends, one further up or down."""
    if isinstance(item, tuple):
        for at, one in enumerate(item):
            yield from ((*item[:at], other, *item[at + 1 :]) for other in _moved(one))
    elif isinstance(item, int) and not isinstance(item, bool):
        yield from (item - 1, item + 1)
    elif isinstance(item, slice) and all(isinstance(one, int | None) for one in (item.start, item.stop, item.step)):
        for step in (-1, 1) if item.start else (1,):
            start, stop = (item.start or 0) + step, None if item.stop is None else (item.stop + step or None)
            yield from (slice(*ends, item.step) for ends in ((start, stop), (start, item.stop), (item.start, stop)))


def _solved(
    calls: Sequence[Op], held: Mapping[float, Sequence[tuple[int, int | str]]], piece: Piece, walk: Walk
) -> Iterator[Mutation]:
    """Yield calls with the number with which the piece makes what the reference's makes, as far as there is one.

    Then all calls that are given the same number, of those that hold such: it may be kept in one place.
    """
    for given in _slots(calls[0]):
        slot, name, present = given
        if isinstance(present, bool) or not (isinstance(present, float) or (name == "y" and isinstance(present, int))):
            continue
        for places in ([(one.number, slot) for one in calls], held.get(present, ())):
            yield partial(_with_number, places, given, float(present), calls, piece, walk)


def _with_number(
    places: Sequence[tuple[int, int | str]], given: Given, present: float, calls: Sequence[Op], piece: Piece, walk: Walk
) -> Hypothesis | None:
    """Return calls with the number that makes the reference's tensor where the programs part, or else its outputs."""

    def acts(value: float) -> dict[int, Act]:
        return {number: with_arguments({at: value}) for number, at in places}

    def alone(value: float) -> Array:
        return numpy_of(acts(value)[calls[0].number](calls[0].function, calls[0].args, calls[0].kwargs)).reshape(-1)

    def whole(value: float) -> Array:
        return _flat(piece.run(acts(value)).outputs)

    new = next((numpy_of(one.new).reshape(-1) for one in walk.partings if one.op is calls[0]), None)
    number = None if new is None or not places else _solve(alone, new, present)
    wanted = _flat(piece.truth.outputs)
    # A single value is mended by a number anywhere before it: that tells nothing, unless gradients must agree, too.
    if number is None and places and (piece.backward or np.count_nonzero(~np.isclose(whole(present), wanted)) > 1):
        number = _solve(whole, wanted, present)
    return None if number is None else replace(_with_settings(calls, [(given, number)], piece), acts=acts(number))


def _solve(make: Callable[[float], Array], wanted: Array, number: float) -> float | None:
    """Return the number of which something wanted is made, found by Newton's steps; None where none is found."""

    def made(value: float) -> Array | None:
        try:
            found = make(value)
        except Exception:  # noqa: BLE001  (a number may fit no call)
            return None
        return found if found.shape == wanted.shape and np.isfinite(found).all() else None

    best = made(number)
    for _ in range(STEPS):
        by = MOVED * (abs(number) or 1.0)
        other = None if best is None else made(number + by)
        slope = np.zeros(1) if best is None or other is None else (other - best) / by
        if best is None or not slope.any():
            return None
        before, number = np.linalg.norm(wanted - best), number + float(slope @ (wanted - best) / (slope @ slope))
        best = made(number)
        left = np.inf if best is None else np.linalg.norm(wanted - best)
        if left <= SAME_SINGLE * np.linalg.norm(wanted):
            return float(f"{number:.7g}")
        if not left < before / 2:
            return None
    return None


def _flat(outputs: Sequence[Array]) -> Array:
    return np.concatenate([one.astype(np.float64).reshape(-1) for one in outputs] or [np.zeros(0)])


# Tensors in place of others.


Site = tuple[str, Code | None]
Role = tuple[object, ...]


def _sites_of(op: Op) -> list[Site]:
    return [(frame.place, inner.code) for inner, frame in zip((Frame(), *op.frames), op.frames, strict=False)]


def _sites(walk: Walk) -> dict[Site, tuple[Frame, list[Op]]]:
    """Return the calls that a statement makes itself, and those inside each function that it calls."""
    found: dict[Site, tuple[Frame, list[Op]]] = {}
    for op in walk.ops:
        for site, frame in zip(_sites_of(op), op.frames, strict=True):
            found.setdefault(site, (frame, []))[1].append(op)
    return {site: (frame, ops) for site, (frame, ops) in found.items() if len(ops) <= MOST_INSIDE}


class _Variables:
    """The tensors that a function's code may name, by the statements that make them: one role for each turn of a loop, and each run.

    Attributes:
        keys: the tensors by role, in order.
        roles: the roles by tensor.
    """

    def __init__(self, walk: Walk, code: Code | None, names: Mapping[int, str]) -> None:
        self.walk, self.code, self.names = walk, code, names
        self.keys: dict[Role, list[int]] = {}
        self.roles: dict[int, Role] = {}
        for key in walk.matched:
            role = self._role(key)
            if role is not None:
                self.keys.setdefault(role, []).append(key)
                self.roles[key] = role

    def _role(self, key: int) -> Role | None:
        """Return what a tensor is to the function: what statements of it make, or what it is given, or keeps, and takes first."""
        maker = self.walk.makers_of.get(key)
        takers = [op for op in self.walk.consumers.get(key, ()) if self._site(op) is not None]
        made = None if maker is None else self._site(maker)
        if maker is not None and made is not None and (not takers or any(_in_one_run(maker, op) for op in takers)):
            if made[1] is not None and all(self._site(op) == made for op in takers):
                return None  # nothing outside of the function that makes it takes it
            places = [one.place for one in maker.frames[: 1 + [one.code for one in maker.frames].index(self.code)]]
            return (maker.name, self.names[maker.number], *places, maker.made.index(key))
        for op in takers[:1]:
            return (op.name, self.names[op.number], self._site(op), -1 - op.given.index(key))
        return None

    def _site(self, op: Op) -> Site | None:
        """Return the statement of the function that leads to a call, and the function that it calls for that."""
        sites = zip(_sites_of(op), op.frames, strict=True)
        return next((site for site, frame in sites if frame.code == self.code), None)

    def made_at(self, key: int) -> int:
        """Return the number of the call that makes a tensor, -1 where none does."""
        maker = self.walk.makers_of.get(key)
        return -1 if maker is None else maker.number

    def first_made(self, role: Role) -> int:
        """Return the number of the call that makes the first tensor of a role."""
        return self.made_at(self.keys[role][0])

    def value(self, role: Role) -> Tensor:
        """Return the first tensor of a role."""
        return self.walk.ops.values[self.keys[role][0]]

    def told(self, role: Role) -> str:
        """Return the name of a tensor in messages: what functions that the code calls make is called by its statement."""
        key = self.keys[role][0]
        frames = self.walk.makers_of[key].frames if key in self.walk.makers_of else ()
        made = next((one for one in frames[1:] if one.code == self.code), None)
        return self.walk.told(key) if made is None or frames[0].code == self.code else f"what `{made.line}` makes"


def _in_one_run(op: Op, other: Op) -> bool:
    """Tell whether two calls may stem from one run of a function: not from two layers beside each other."""
    holders = f"{op.holder}.".lstrip("."), f"{other.holder}.".lstrip(".")
    return holders[0].startswith(holders[1]) or holders[1].startswith(holders[0])


def _own_names(piece: Piece, walk: Walk) -> dict[int, str]:
    """Return layers' paths within the layers of the user's whose code calls them, by the numbers of the calls; empty of functions."""
    layers, found = dict(piece.sides.port.layers(piece.port)), dict[int, str]()
    for op in walk.ops:
        holder = op.holder
        while holder and type(layers[holder]).__module__.partition(".")[0] == "paddle":  # a container of theirs
            holder = holder.rpartition(".")[0]
        found[op.number] = op.path.removeprefix(f"{holder}.")
    return found


def _operands(frame: Frame, ops: Sequence[Op], variables: _Variables, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a statement that takes another tensor in place of one, or two in place of each other."""
    inside, walk, place, line = {op.number for op in ops}, variables.walk, frame.place, frame.line
    taken = [(op, key) for op in ops for key in (op.given[1:] if op.written is not None else op.given)]
    entering = dict.fromkeys(
        variables.roles[key]
        for op, key in taken
        if key in variables.roles and not inside.issuperset(range(max(variables.made_at(key), 0), op.number))
    )
    users = {old: [op for op in ops if any(variables.roles.get(key) == old for key in op.given)] for old in entering}
    alone = [(variables.roles[key], [op]) for op, key in taken if key in variables.roles and len(ops) > 1]
    for old, changed in chain(users.items(), (one for one in alone if one not in users.items())):
        others = [
            one
            for one in variables.keys
            if one != old
            and variables.first_made(one) < min(op.number for op in (ops if old in entering else changed))
            and _fits(variables.value(one), variables.value(old))
            and not _is_passed_by(variables.keys[old][0], variables.keys[one][0], changed, walk)
        ]
        others.sort(key=lambda role: (not walk.matched[variables.keys[role][0]], -variables.first_made(role)))
        for new in others[:MOST_ALTERNATIVES]:
            told, wanted = map(variables.told, (old, new))
            twins = variables.first_made(old) == variables.first_made(new) >= 0  # results of one call have own orders
            both = [{old: new, new: old}] if new in entering and old in entering and not twins else []
            for swaps in ({old: new}, *both):
                source, maker = frame.source, walk.makers_of.get(variables.keys[old][0])
                what, instead = f"it takes {told} at {place} (`{line}`)", f"with {wanted} in its place"
                fix = f"take {wanted} for {told} at {place} (`{line}`)"
                if len(swaps) > 1:
                    what = f"it takes {told} and {wanted} at {place} (`{line}`)"
                    instead, fix = (
                        "with each in the other's place",
                        f"exchange {told} and {wanted} at {place} (`{line}`)",
                    )
                elif maker is not None and maker.written is not None and variables.keys[new][0] in maker.given:
                    source = innermost(maker.frames).source
                    what = f"it writes the result of `{maker.name}` to {wanted} at {maker.place}, which {place} (`{line}`) takes"
                    instead, fix = (
                        "without that",
                        f"let `{maker.name}` at {maker.place} return another tensor: `{maker.line}`",
                    )
                yield Hypothesis(
                    code="operand-order" if len(swaps) > 1 else "operand",
                    name=changed[0].name if changed[0].name != LAYER else class_of(changed[0].layer),
                    acts=_exchanging(ops if len(swaps) > 1 else changed, swaps, variables, piece),
                    message=_mended(what, instead),
                    fix=fix,
                    lines=Lines(source),
                )


def _is_passed_by(key: int, other: int, takers: Sequence[Op], walk: Walk) -> bool:
    """Tell whether a tensor is made of another for some calls alone: to take that is to leave out a call."""
    maker = walk.makers_of.get(key)
    return maker is not None and other in maker.given and {*walk.consumers.get(key, ())} <= {*takers}


def _fits(one: Tensor, other: Tensor) -> bool:
    """Tell whether a tensor may stand in place of another: integers where they are places there, too."""
    if list(one.shape) != list(other.shape) or one.dtype != other.dtype:
        return False
    if "float" in str(one.dtype) or not one.size:
        return True
    ours, theirs = numpy_of(one), numpy_of(other)
    return bool(theirs.min() <= ours.min() and ours.max() <= theirs.max())


def _exchanging(ops: Sequence[Op], swaps: Mapping[Role, Role], variables: _Variables, piece: Piece) -> dict[int, Act]:
    """Return the acts that give calls the tensors of other roles, as each turn makes them."""
    walk, acts, live = variables.walk, dict[int, Act](), dict[Role, Tensor]()

    def use(places: Sequence[tuple[int, Role, Tensor]]) -> Act:
        def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
            given = piece.tensors((args, kwargs))
            new = {id(given[at]): live.get(role, value) for at, role, value in places}
            changed, named = exchanged((args, dict(kwargs)), new)
            return original(*changed, **named)

        return act

    def keep(role: Role, at: int) -> Act:
        def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
            result = original(*args, **kwargs)
            live[role] = piece.tensors(result)[at]
            return result

        return act

    for op in ops:
        places = []
        for at, key in enumerate(op.given):
            role = swaps.get(variables.roles.get(key, ()))
            before = [one for one in variables.keys.get(role or (), ()) if variables.made_at(one) < op.number]
            places += [(at, role, walk.ops.values[before[-1]])] if role and before else []
        if places:
            acts[op.number] = use(places)
    for role, key in ((one, key) for one in swaps.values() for key in variables.keys[one]):
        maker = walk.makers_of.get(key)
        if maker is not None and maker.number > min(acts) and maker.number not in acts:
            acts[maker.number] = keep(role, maker.made.index(key))
    return acts


# The order of tensors, and of results; another function; one call less, or more.


def _orders(calls: Sequence[Op], piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call whose tensors, those of a list among its arguments, or results stand in another order."""
    op, which = calls[0], f"of {called(calls[0])}{place_of(calls[0], piece)}"
    found: list[tuple[str, tuple[int, ...], Act, CodeEdit | None]] = []
    for at, given in enumerate(op.args):
        several = isinstance(given, list | tuple) and len(piece.tensors(given)) == len(given)
        found += [
            ("tensors", order, partial(_reordered, at, order), CodeEdit(kind="order", call=op.name, order=order))
            for order in _other_orders(len(given) if several else 0)
        ]
    if op.name in TURNED and len(piece.tensors(op.args)) == len(op.args) == 2:
        found.append(("tensors", (1, 0), _turned, CodeEdit(kind="order", call=op.name, order=(1, 0))))
    made = piece.tensors(op.result) if isinstance(op.result, list | tuple) and op.name != LAYER else []
    for order in _other_orders(len(made)):
        if all(made[at].shape == one.shape for at, one in zip(order, made, strict=True)):
            found.append(("results", order, then(operator.itemgetter(*order)), None))
    for what, order, act, change in found:
        told, fix = (
            f"the order of the {what} {which} is {sorted(order)}",
            f"take the {what} {which} in the order {[*order]}",
        )
        yield _edit("operand-order", calls, act, told, f"with {[*order]}", fix, code_edit=change)


def _turned(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
    return original(args[1], args[0], **kwargs)


def _other_orders(count: int) -> list[tuple[int, ...]]:
    return list(permutations(range(count)))[1:] if 1 < count <= MOST_ORDERED else []


def _reordered(
    at: int, order: tuple[int, ...], original: Function, args: tuple[Nested, ...], kwargs: Options
) -> Nested:
    return original(*args[:at], [args[at][one] for one in order], *args[at + 1 :], **kwargs)


def _functions(calls: Sequence[Op], pool: Pool, piece: Piece) -> Iterator[Hypothesis]:
    """Yield another function of the same tensors, or another layer of the same class."""
    op, where = calls[0], place_of(calls[0], piece)
    others: list[tuple[str, str, Act, str]] = []
    if op.name == LAYER:
        layers = [
            one for one in piece.sides.port.layers(piece.port) if type(one[1]) is type(op.layer) and one[0] != op.path
        ]
        others += [("operand", path, called_as(layer), path) for path, layer in layers[:MOST_ALTERNATIVES]]
    if op.name in BINARY and len(op.args) == 2:
        names = sorted(BINARY.keys() - {op.name})
        functions = [OPERATORS.get(name) or getattr(piece.paddle, name) for name in names]
        others += [("function", name, called_as(one, most=2), name) for name, one in zip(names, functions, strict=True)]
    count = len(piece.tensors((op.args, op.kwargs))) if op.written is None else 0
    for step, function, call in pool.calls:
        if len(step.given) == count and step.name != op.name and not {step.name, op.name} <= BINARY.keys():
            others.append(("function", step.name, partial(_in_place, function, piece), call))
    for code, name, act, call in others:
        change = CodeEdit(kind="write", call=op.name, written=name) if call == name and op.name != LAYER else None
        what, instead = f"it calls {called(op)}{where}", f"with `{call}`"
        fix = f"write `{call}` for {called(op)}{where}"
        place = op.path if op.name == LAYER and code == "function" else None
        yield _edit(code, calls, act, what, instead, fix, name=name, place=place, code_edit=change)


def _in_place(
    change: Callable[..., Tensor], piece: Piece, _: Function, args: tuple[Nested, ...], kwargs: Options
) -> Nested:
    return change(*piece.tensors((args, kwargs)))


def _handed_on(op: Op, piece: Piece, walk: Walk) -> int | None:
    """Return which argument of a call, of its only result's shape, the reference has, or will have; None where there is none."""
    made = piece.tensors(op.result) if op.written is None else []
    shape = list(made[0].shape) if len(made) == 1 else None
    fitting = [at for at, one in enumerate(op.args) if piece.is_tensor(one) and list(one.shape) == shape]
    return next((at for at in fitting if walk.matched_given(op, op.args[at])), next(iter(fitting), None))


def _less(calls: Sequence[Op], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port without a call."""
    op, where, place = calls[0], place_of(calls[0], piece), _handed_on(calls[0], piece, walk)
    if place is not None and (op.name not in CASTING or walk.alters(op)):
        change = CodeEdit(kind="remove", call=op.path if op.name == LAYER else op.name)
        what, fix = f"it calls {called(op)}{where}", f"remove {called(op)}{where}"
        yield _edit("extra-call", calls, argument(place), what, "without that", fix, code_edit=change)


def _more(calls: Sequence[Op], pool: Pool, piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call behind which one more of the reference's calls is made, or before it, of what the code is given."""
    op = calls[0]
    if op.written is None and len(piece.tensors(op.result)) == 1:
        for step, change, call in pool.calls:
            if len(step.given) == 1 and (step.name not in LAYOUT or step.name == "transpose"):
                yield _lacking(calls, step, then(change), "after", call)
                if op.args and piece.is_tensor(op.args[0]) and op.given[0] not in walk.makers_of:
                    yield _lacking(calls, step, partial(_behind, change), "before", call)


def _behind(
    change: Callable[[Tensor], Tensor], original: Function, args: tuple[Nested, ...], kwargs: Options
) -> Nested:
    return original(change(args[0]), *args[1:], **kwargs)


def _lacking(calls: Sequence[Op], step: Op, act: Act, kind: Literal["before", "after"], call: str) -> Hypothesis:
    op, there = calls[0], innermost(step.frames)
    # Of the statements that lead to the call it is told at the one that reads most like the reference's.
    statement = max(op.frames, key=lambda one: likeness(one.reading, there.reading), default=Frame())
    where = f"{'in front of' if kind == 'before' else 'after'} {called(op)} at {statement.place}"
    edit = CodeEdit(kind=kind, call=op.path or op.name, written=step.name) if call == step.name else None
    what, instead, fix = f"it lacks `{step.said}` {where}", f"with `{call}` there", f"apply `{call}` {where}"
    found = _edit("missing-call", calls, act, what, instead, fix, name=step.name, code_edit=edit)
    return replace(found, lines=Lines(statement.source, there.source))


def _later(calls: Sequence[Op], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call that is made behind the one that takes its result."""
    op, where, place = calls[0], place_of(calls[0], piece), _handed_on(calls[0], piece, walk)
    takers = [walk.consumers.get(one.made[0], ()) for one in calls] if place is not None else []
    behind = [some[0] for some in takers if len(some) == 1 and _handed_on(some[0], piece, walk) is not None]
    if place is None or len(behind) < len(calls) or behind[0].name == op.name or {behind[0].name, op.name} <= LAYOUT:
        return
    what, fix = (
        f"it calls {called(op)}{where} before {called(behind[0])}",
        f"call {called(op)} behind {called(behind[0])}{where}",
    )
    found = _edit("call-order", calls, argument(place), what, "the other way round", fix)
    acts = {one.number: _followed(each, place) for each, one in zip(calls, behind, strict=True)}
    yield replace(found, acts={**found.acts, **acts})


def _followed(op: Op, place: int) -> Act:
    """Return a call that is followed by another, which took its argument ``place`` before."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        made = original(*args, **kwargs)
        return op.function(*op.args[:place], made, *op.args[place + 1 :], **op.kwargs)

    return act
