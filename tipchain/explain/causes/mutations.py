"""Edits that no call of the reference's suggests: one thing changed at a time at the port's statements, the nearest first."""

from __future__ import annotations

import operator
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice, permutations
from typing import NamedTuple

import numpy as np

from tipchain.explain.causes.edits import (
    MENDS,
    OPERATORS,
    at_call,
    in_paddle,
    kept_argument,
    kind_of_setting,
    passed,
    slots_of,
    spelled,
    with_settings,
)
from tipchain.explain.causes.hypotheses import (
    Hypothesis,
    Lines,
    Trial,
    Trials,
    called,
    class_of,
    has_axis,
    place_of,
    same_setting,
)
from tipchain.explain.causes.lines import Code, Frame, at_line, codes_of, innermost, opposite, reads_alike
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import (
    LAYER,
    LAYOUT,
    Act,
    Op,
    argument,
    called_as,
    numpy_of,
    signature_of,
    then,
    with_arguments,
)
from tipchain.explain.causes.tensors import SharedTensor, own_tensors, replaced
from tipchain.explain.causes.walk import CASTING, Walk, exchanged
from tipchain.explain.findings import CodeEdit
from tipchain.framework_types import Array, Function, Nested, Options, Tensor
from tipchain.numbers.tolerance import SAME_SINGLE

LONGEST = 10.0
"""Seconds that edits are tried for at most, for all faults of an alignment."""
MOST_ALTERNATIVES = 12
"""Values of one argument, or tensors in place of one, that are tried."""
MOST_INSIDE = 40
"""Calls inside a function whose arguments are exchanged."""
MOST_ORDERED = 4
"""Axes, or tensors of a list, all of whose orders are tried."""
MOST_TURNS = 8
"""Calls of one function in a statement that are changed one by one, too."""
BINARY = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "pow", "rsub", "rdiv"})
"""Functions of two tensors, or of a tensor and a number, that stand in each other's place."""
TURNED = frozenset({"subtract", "divide", "matmul", "pow"})
"""Functions of two tensors whose order counts."""
STEPS, MOVED = 6, 1e-4
"""Steps by which a number is solved for, and the share by which it is moved to see what comes of it."""


class Pool(NamedTuple):
    """What the reference gives its calls beside tensors, with the function and the argument, and its calls of one tensor."""

    settings: Sequence[tuple[str, str, object]]
    unary: Sequence[tuple[Op, Callable[[Tensor], Tensor], str]]


Mutation = Callable[[], Hypothesis | None]


def search(trials: Trials, near: Op, step: Op) -> None:
    """Find an edit that mends the port, and keep it with the trials; ``near`` and ``step`` are the calls at which the programs part.

    Paddle ends the process for some arguments (3.3.1: a negative number of parts). So edits are tried in a copy of this process, and
    the one that mends is run here once more.
    """

    def mended(mutation: Mutation) -> Trial | None:
        hypothesis = mutation()
        return None if hypothesis is None else trials.mends(hypothesis)

    apart = [op for one in trials.walk.partings for op in one.ops] if trials.reserve else []
    makers = [
        trials.walk.makers_of.get(key) for op in apart for key in op.given
    ]  # what is right by itself may be taken wrongly
    known = frozenset(op.number for op in (*apart, *filter(None, makers)))
    every = partial(mutations, trials.piece, trials.walk, near, known)
    left = LONGEST - trials.pace.searched
    start = time.monotonic()
    found = _first((mended(one) is not None for one in every()), left)
    trials.pace.searched += time.monotonic() - start
    trial = None if found is None else mended(next(islice(every(), found, None)))
    if trial is not None:
        codes = codes_of(frame for one in trials.walk.steps for frame in one.frames)
        port = trial.hypothesis.lines.port
        frame = at_line(port.file, port.line) if port is not None else None
        against = None if frame is None else opposite(frame, codes)
        there = against[0] if against is not None and against[1] else innermost(step.frames)
        said = f"{trial.hypothesis.message}; the reference has `{there.line}` at {there.place}"
        lines = trial.hypothesis.lines._replace(reference=there.source)
        message = said if there.place else trial.hypothesis.message
        tried = f"{(found or 0) + 1} edits were tried"
        hypothesis = replace(trial.hypothesis, lines=lines, message=message, evidence=tried)
        trials.trials.append(replace(trial, hypothesis=hypothesis))


def _first(tries: Iterable[bool], within: float) -> int | None:
    """Return the number of the first that succeeds in a copy of this process, within so many seconds; None where none does."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads, which the copy does not have
        child = os.fork()
    if not child:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(quiet, stream)
            found = next((number for number, mended in enumerate(tries) if mended), None)
            os.write(write, b"" if found is None else str(found).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], max(within, 0.0))
        told = os.read(read, 20) if ready else b""
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return int(told) if told else None


def mutations(piece: Piece, walk: Walk, near: Op, within: frozenset[int] = frozenset()) -> Iterator[Mutation]:
    """Yield the port with one thing changed at one of its statements, those first whose calls are the nearest to one.

    ``within`` are the numbers of the calls among which the fault is known to be; empty where it may be anywhere.
    """
    pool, by_line = _pool(piece, walk), dict[tuple[str, str, str], list[Op]]()
    for op in walk.ops:
        by_line.setdefault((op.name, op.place, _own_name(op)), []).append(op)
    if within:
        by_line = {key: ops for key, ops in by_line.items() if not within.isdisjoint(op.number for op in ops)}
    sites, variables = _sites(walk), dict[Code | None, _Variables]()
    lines = sorted(by_line.values(), key=lambda ops: min(abs(op.number - near.number) for op in ops))
    codes = codes_of(frame for step in walk.steps for frame in step.frames)
    yield from map(_as_it_is, _own(piece, walk))
    for several in lines:
        for site in dict.fromkeys(site for op in several for site in _sites_of(op)):
            if site in sites and not reads_alike(sites[site][0], codes):
                frame, ops = sites.pop(site)
                known = variables.get(frame.code) or variables.setdefault(frame.code, _Variables(walk, frame.code))
                yield from map(_as_it_is, _operands(frame, ops, known, piece))
        for calls in _turns(several, walk) if not reads_alike(innermost(several[0].frames), codes) else ():
            edits = _settings(calls, pool, piece), _orders(calls, piece), _functions(calls, pool, piece)
            yield from map(_as_it_is, chain(*edits, _less(calls, piece, walk)))
    unlike = (several for several in lines if not reads_alike(innermost(several[0].frames), codes))
    for calls in (calls for several in unlike for calls in _turns(several, walk)):
        yield from _solved(calls, piece, walk)
        yield from map(_as_it_is, chain(_more(calls, pool, piece), _later(calls, piece, walk)))


def _as_it_is(one: Hypothesis) -> Mutation:
    return lambda: one


def _pool(piece: Piece, walk: Walk) -> Pool:
    settings = dict[str, tuple[str, str, object]]()
    unary = dict[str, tuple[Op, Callable[[Tensor], Tensor], str]]()
    for step in walk.steps:
        told = spelled(step, walk)
        settings |= {f"{step.name} {name} {value!r}": (step.name, name, value) for name, value in told.items()}
        function = OPERATORS.get(step.name) or in_paddle(step, piece)
        if len(step.given) == 1 and step.name not in (LAYER, *CASTING) and function is not None:
            numbers = [one for one in told.values() if kind_of_setting(one) == "number"]
            if step.name in BINARY:
                change, how = (
                    (lambda tensor, function=function, numbers=numbers: function(tensor, *numbers[:1])),
                    f"{numbers[:1]}",
                )
            else:
                given = passed(step, walk, signature_of(function))
                change, how = partial(function, **given), ", ".join(f"{key}={value!r}" for key, value in given.items())
            unary.setdefault(f"{step.name}({how})", (step, change, how))
    return Pool(list(settings.values()), list(unary.values()))


def _turns(several: Sequence[Op], walk: Walk) -> Iterator[Sequence[Op]]:
    """Yield the calls of a function on one line, all together, then each of those that one run of the statement makes."""
    yield several
    turns, turn, before = dict[int, list[Op]](), 0, several[0].number
    for op in several:
        between = walk.ops[before + 1 : op.number]
        same = all(any(one.place == op.place for one in other.frames) for other in between)
        turn = turn + 1 if same and op is not several[0] else 0
        turns.setdefault(turn, []).append(op)
        before = op.number
    yield from turns.values() if 1 < len(turns) <= MOST_TURNS else ()


def _alike(calls: Sequence[Op], act: Act) -> dict[int, Act]:
    return dict.fromkeys((one.number for one in calls), act)


# What the port's own code holds: two of its tensors exchanged, or one turned.


def _own(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield tensors that the code keeps, those of all layers of a class, with two exchanged, or two axes of one."""
    used, layers = (
        {id(one) for op in walk.ops for one in piece.tensors((op.args, op.kwargs))},
        dict(piece.sides.port.layers(piece.port)),
    )
    kept = dict[type, dict[str, dict[str, Tensor]]]()
    for path, one in own_tensors(piece):
        holder, _, name = path.rpartition(".")
        if id(one) in used and one.ndim:
            kept.setdefault(type(layers.get(holder)), {}).setdefault(holder, {})[name] = one
    for holders in kept.values():
        names = list(next(iter(holders.values())))
        for name, other in combinations(names, 2):
            both = [(one[name], one[other]) for one in holders.values() if {name, other} <= one.keys()]
            if all(_fits(*pair) and _fits(*reversed(pair)) for pair in both):
                new = [(one, numpy_of(another)) for pair in both for one, another in (pair, reversed(pair))]
                yield _kept_otherwise(
                    [name, other], f"`{name}` and `{other}` stand in each other's place", new, holders
                )
        for name in names:
            every = [one[name] for one in holders.values() if name in one]
            for first, second in combinations(range(every[0].ndim), 2):
                if all(1 < one.shape[first] == one.shape[second] for one in every):
                    new = [(one, numpy_of(one).swapaxes(first, second)) for one in every]
                    yield _kept_otherwise(
                        [name], f"the axes {first} and {second} of `{name}` are exchanged", new, holders
                    )


def _kept_otherwise(
    names: Sequence[str], said: str, new: Sequence[tuple[Tensor, Array]], holders: Iterable[str]
) -> Hypothesis:
    held = [SharedTensor(name=names[0], ours=np.array(array), theirs=array, tensor=one) for one, array in new]
    return Hypothesis(
        code="buffer",
        name=names[0],
        message=f"{said}; otherwise it {MENDS}",
        fix=f"fill {' and '.join(f'`{one}`' for one in names)} as the reference does",
        within=partial(replaced, held),
        changes=len(new),
        place=next(iter(holders)),
    )


# Arguments that are no tensors.


def _settings(calls: Sequence[Op], pool: Pool, piece: Piece) -> Iterator[Hypothesis]:
    op = calls[0]
    for slot, name, present in slots_of(op) if op.name != LAYER else ():
        others = [one for one in _alternatives(op, name, present, pool) if not same_setting(one, present)]
        for value in list({repr(one): one for one in others}.values())[:MOST_ALTERNATIVES]:
            yield with_settings(op, None, [(slot, name, present, value)], [one.number for one in calls], piece)


def _alternatives(op: Op, name: str, present: object, pool: Pool) -> Iterator[object]:
    """Yield other values for an argument: other axes, orders, places, signs, and what the reference gives for it."""
    kind = kind_of_setting(present)
    if isinstance(present, bool):
        yield not present
        return
    if kind == "number" and name == "axis":
        yield from (axis for axis in range(-MOST_ORDERED, MOST_ORDERED) if has_axis(op, axis))
        return
    for function, given, value in pool.settings:
        if kind_of_setting(value) != kind or (name not in (given, "y") and op.name != function):
            continue
        if isinstance(value, list | tuple) and isinstance(present, list | tuple):
            if kind == "index" or len(value) == len(present):
                yield type(present)(value)
        elif isinstance(value, type(present)) or (name == "y" and kind == "number") or kind == "index":
            yield value
    if name == "item":
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


def _solved(calls: Sequence[Op], piece: Piece, walk: Walk) -> Iterator[Mutation]:
    """Yield calls with the number with which the piece makes what the reference's makes, as far as there is one.

    Then all calls that are given the same number: it may be kept in one place.
    """
    op, numbers = calls[0], [one.number for one in calls]
    for slot, name, present in slots_of(op) if op.name != LAYER else ():
        if isinstance(present, bool) or not (isinstance(present, float) or (name == "y" and isinstance(present, int))):
            continue
        every = [
            (one.number, at)
            for one in walk.ops
            if one.name != LAYER
            for at, _, held in slots_of(one)
            if isinstance(held, float) and held == present
        ]
        for places in ([(one, slot) for one in numbers], every):
            yield partial(_with_number, places, (slot, name, present), calls, piece)


def _with_number(
    places: Sequence[tuple[int, int | str]], setting: tuple[int | str, str, float], calls: Sequence[Op], piece: Piece
) -> Hypothesis | None:
    def acts(value: float) -> dict[int, Act]:
        return {number: with_arguments({at: value}) for number, at in places}

    number = _solve(acts, float(setting[2]), piece) if places else None
    if number is None:
        return None
    found = with_settings(calls[0], None, [(*setting, number)], [one.number for one in calls], piece)
    return replace(found, acts=acts(number))


def _solve(acts: Callable[[float], Mapping[int, Act]], number: float, piece: Piece) -> float | None:
    """Return the number for which the outputs are the reference's; None where none is found."""
    wanted = _flat(piece.truth.outputs)

    def made(value: float) -> Array | None:
        try:
            found = _flat(piece.run(acts(value)).outputs)
        except Exception:  # noqa: BLE001  (a number may fit no call)
            return None
        return found if found.shape == wanted.shape and np.isfinite(found).all() else None

    size, best = float(np.linalg.norm(wanted)), made(number)
    for _ in range(STEPS):
        by = MOVED * (abs(number) or 1.0)
        other = None if best is None else made(number + by)
        if best is None or other is None:
            return None
        slope = (other - best) / by
        if not np.linalg.norm(slope):
            return None
        before, number = np.linalg.norm(wanted - best), number + float(slope @ (wanted - best) / (slope @ slope))
        best = made(number)
        left = np.inf if best is None else np.linalg.norm(wanted - best)
        if left <= SAME_SINGLE * size:
            return float(f"{number:.10g}")
        if not left < before / 2:
            return None
    return None


def _flat(outputs: Sequence[Array]) -> Array:
    return np.concatenate([one.astype(np.float64).reshape(-1) for one in outputs] or [np.zeros(0)])


# Tensors in place of others.


Role = tuple[object, ...]


Site = tuple[str, Code | None]


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
    """

    def __init__(self, walk: Walk, code: Code | None) -> None:
        self.walk, self.code = walk, code
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
        takers = [op for op in self.walk.consumers.get(key, ()) if any(one.code == self.code for one in op.frames)]
        codes = [one.code for one in maker.frames] if maker is not None else []
        if maker is not None and self.code in codes and (not takers or any(_in_one_run(maker, op) for op in takers)):
            places = [one.place for one in maker.frames[: codes.index(self.code) + 1]]
            return (maker.name, _own_name(maker), *places, maker.made.index(key))
        for op in takers[:1]:
            place = next(one.place for one in op.frames if one.code == self.code)
            return (op.name, _own_name(op), place, -1 - op.given.index(key))
        return None

    def made_at(self, key: int) -> int:
        """Return the number of the call that makes a tensor, -1 where none does."""
        maker = self.walk.makers_of.get(key)
        return -1 if maker is None else maker.number

    def first(self, role: Role) -> int:
        """Return the first tensor of a role."""
        return self.keys[role][0]

    def told(self, role: Role) -> str:
        """Return the name of a tensor in messages: what functions that the code calls make is called by its statement."""
        maker = self.walk.makers_of.get(self.first(role))
        made = next((one for one in (maker.frames if maker is not None else ()) if one.code == self.code), None)
        inside = made is not None and maker is not None and made is not maker.frames[0]
        return f"what `{made.line}` makes" if made is not None and inside else self.walk.told(self.first(role))


def _in_one_run(op: Op, other: Op) -> bool:
    """Tell whether two calls may stem from one run of a function: not from two layers beside each other."""
    holders = f"{op.holder}.".lstrip("."), f"{other.holder}.".lstrip(".")
    return holders[0].startswith(holders[1]) or holders[1].startswith(holders[0])


def _own_name(op: Op) -> str:
    """Return a layer's path within the layer whose code calls it; empty of a function."""
    return op.path.removeprefix(f"{op.holder}.")


def _operands(frame: Frame, ops: Sequence[Op], variables: _Variables, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a statement that takes another tensor in place of one, or two in place of each other."""
    inside, walk, where = {op.number for op in ops}, variables.walk, f"at {frame.place} (`{frame.line}`)"
    taken = (key for op in ops for key in (op.given[1:] if op.written is not None else op.given))
    entering = dict.fromkeys(
        variables.roles[key] for key in taken if key in variables.roles and variables.made_at(key) not in inside
    )
    for old in entering:
        others = [
            one
            for one in variables.keys
            if one != old
            and variables.made_at(variables.first(one)) < min(inside)
            and _fits(*(walk.ops.values[variables.first(each)] for each in (one, old)))
        ]
        others.sort(key=lambda role: -variables.made_at(variables.first(role)))
        for new in others[:MOST_ALTERNATIVES]:
            told, wanted = map(variables.told, (old, new))
            both_made = variables.made_at(variables.first(old)) == variables.made_at(variables.first(new)) >= 0
            for swaps in ({old: new}, {old: new, new: old})[: 1 + (new in entering and not both_made)]:
                both = len(swaps) > 1
                one = f"{told}; with {wanted} in its place"
                one = f"{told} and {wanted}; with each in the other's place" if both else one
                yield Hypothesis(
                    code="operand-order" if both else "operand",
                    name=ops[0].name if ops[0].name != LAYER else class_of(ops[0].layer),
                    acts=_exchanging(ops, swaps, variables, piece),
                    message=f"{where} it takes {one} it {MENDS}",
                    fix=f"exchange {told} and {wanted} {where}" if both else f"take {wanted} for {told} {where}",
                    lines=Lines(frame.source),
                )


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
    for role in swaps.values():
        for key in variables.keys[role]:
            maker = walk.makers_of.get(key)
            if maker is not None and maker.number > min(acts) and maker.number not in acts:
                acts[maker.number] = keep(role, maker.made.index(key))
    return acts


# The order of tensors, and of results; another function; one call less, or more.


def _orders(calls: Sequence[Op], piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call whose tensors, those of a list among its arguments, or results stand in another order."""
    op, where = calls[0], place_of(calls[0], piece)
    for at, given in enumerate(op.args):
        several = isinstance(given, list | tuple) and len(piece.tensors(given)) == len(given)
        for order in _other_orders(len(given) if several else 0):
            act = partial(_reordered, at, order)
            change = CodeEdit(kind="order", call=op.name, order=order)
            fix = f"give {called(op)}{where} its tensors in the order {list(order)}"
            message = f"with the tensors of {called(op)}{where} in the order {list(order)} it {MENDS}"
            yield at_call("operand-order", op, None, _alike(calls, act), message, fix, code_edit=change)
    if op.name in TURNED and len(piece.tensors(op.args)) == len(op.args) == 2:
        message, fix = (
            f"with the tensors of {called(op)}{where} exchanged it {MENDS}",
            f"exchange the tensors of {called(op)}{where}",
        )
        change = CodeEdit(kind="order", call=op.name, order=(1, 0))
        yield at_call("operand-order", op, None, _alike(calls, _exchanged_pair), message, fix, code_edit=change)
    made = piece.tensors(op.result) if isinstance(op.result, list | tuple) and op.name != LAYER else []
    for order in _other_orders(len(made) if len({tuple(one.shape) for one in made}) == 1 else 0):
        taken = then(operator.itemgetter(*order))
        message = f"with the results of {called(op)}{where} taken in the order {list(order)} it {MENDS}"
        fix = f"take the results of {called(op)}{where} in the order {list(order)}"
        yield at_call("operand-order", op, None, _alike(calls, taken), message, fix)


def _exchanged_pair(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
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
    if op.name == LAYER:
        layers = [
            one for one in piece.sides.port.layers(piece.port) if type(one[1]) is type(op.layer) and one[0] != op.path
        ]
        for path, layer in layers[:MOST_ALTERNATIVES]:
            message = f"it calls {called(op)}{where}; with `{path}` it {MENDS}"
            yield at_call(
                "operand", op, None, _alike(calls, called_as(layer)), message, f"call `{path}` for {called(op)}{where}"
            )
        return
    others: list[tuple[str, Act, str]] = []
    if op.name in BINARY and len(op.args) == 2:
        names = sorted(BINARY - {op.name})
        functions = [OPERATORS.get(name) or getattr(piece.paddle, name) for name in names]
        others += [(name, called_as(function, most=2), "") for name, function in zip(names, functions, strict=True)]
    if len(piece.tensors((op.args, op.kwargs))) == 1 and op.written is None:
        unary = [one for one in pool.unary if one[0].name != op.name]
        others += [(step.name, _of_first(change, piece), f"({how})") for step, change, how in unary]
    for name, act, how in others:
        message = f"it calls `{op.name}`{where}; with `{name}{how}` it {MENDS}"
        change = CodeEdit(kind="write", call=op.name, written=name) if not how else None
        fix = f"write `{name}{how}` for `{op.name}`{where}"
        yield at_call("function", op, None, _alike(calls, act), message, fix, name=name, code_edit=change)


def _of_first(change: Callable[[Tensor], Tensor], piece: Piece) -> Act:
    return lambda _original, args, kwargs: change(piece.tensors((args, kwargs))[0])


def _less(calls: Sequence[Op], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port without a call."""
    op, where = calls[0], place_of(calls[0], piece)
    place = _handed_on(op, piece, walk)
    if place is not None and op.name not in CASTING:
        change = CodeEdit(kind="remove", call=op.path if op.name == LAYER else op.name)
        message = f"it calls {called(op)}{where}; without that it {MENDS}"
        yield at_call(
            "extra-call",
            op,
            None,
            _alike(calls, argument(place)),
            message,
            f"remove {called(op)}{where}",
            code_edit=change,
        )


def _handed_on(op: Op, piece: Piece, walk: Walk) -> int | None:
    """Return which argument of a call may stand for its only result; None where none may."""
    return kept_argument(op, piece, walk) if op.written is None and len(piece.tensors(op.result)) == 1 else None


def _more(calls: Sequence[Op], pool: Pool, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call that is followed by one more."""
    op, where = calls[0], place_of(calls[0], piece)
    several = op.written is not None or len(piece.tensors(op.result)) != 1
    for step, change, how in () if several else pool.unary:
        if step.name not in LAYOUT or step.name == "transpose":
            message = f"it lacks `{step.said}` after {called(op)}{where}: with `{step.name}({how})` there it {MENDS}"
            fix = f"apply `{step.name}({how})` after {called(op)}{where}"
            edit = (
                CodeEdit(kind="after", call=op.path if op.name == LAYER else op.name, written=step.name)
                if not how
                else None
            )
            yield at_call(
                "missing-call", op, None, _alike(calls, then(change)), message, fix, name=step.name, code_edit=edit
            )


def _later(calls: Sequence[Op], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call that is made behind the one that takes its result."""
    op, where = calls[0], place_of(calls[0], piece)
    place = _handed_on(op, piece, walk)
    takers = [walk.consumers.get(one.made[0], ()) for one in calls] if place is not None else []
    behind = [some[0] for some in takers if len(some) == 1 and _handed_on(some[0], piece, walk) is not None]
    if place is None or len(behind) < len(calls) or behind[0].name == op.name or {behind[0].name, op.name} <= LAYOUT:
        return
    acts = _alike(calls, argument(place))
    acts |= {one.number: _followed(each, place) for each, one in zip(calls, behind, strict=True)}
    message = f"it calls {called(op)}{where} before {called(behind[0])}; the other way round it {MENDS}"
    yield at_call("call-order", op, None, acts, message, f"call {called(op)} behind {called(behind[0])}{where}")


def _followed(op: Op, place: int) -> Act:
    """Return a call that is followed by another, which took its argument ``place`` before."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        made = original(*args, **kwargs)
        return op.function(*op.args[:place], made, *op.args[place + 1 :], **op.kwargs)

    return act
