"""From a verdict to the piece that is diagnosed: both layers, and what they are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.diagnose.outcomes import Consumer
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.locate.comparing import Comparer
from tipchain.parity.locate.differences import arrange, relative
from tipchain.parity.locate.locate import Located
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.trace import Call, Trace, Value
from tipchain.parity.locate.verdicts import LayerVerdict
from tipchain.parity.rounding import ROUGH, SAME_DOUBLE

Array = npt.NDArray[Any]


def pieces(
    located: Located, verdict: LayerVerdict, sides: tuple[LiveSide, LiveSide], store: Store, models: tuple[Any, Any],
    seed: int,
) -> Iterator[Piece]:  # fmt: skip
    """Yield the piece that a verdict is about, then those around it; none where the calls cannot be told.

    Args:
        located: what the locator returned.
        verdict: one of its verdicts.
        sides: torch's and Paddle's.
        store: the store that the locator was given.
        models: the user's models; their layers are copied.
        seed: of random numbers.
    """
    for pair in _pairs(located, verdict):
        yield _build(pair, located, verdict, sides, store, models, seed)


def _build(
    pair: CallPair, located: Located, verdict: LayerVerdict, sides: tuple[LiveSide, LiveSide], store: Store,
    models: tuple[Any, Any], seed: int,
) -> Piece:  # fmt: skip
    calls = pair.reference, pair.port
    links = tuple(_links(calls[0].inputs, calls[1].inputs, store))
    ours = tuple(store.get(one.stored) for one in calls[0].inputs)
    by_number = {theirs: ours[number].transpose(axes) for number, theirs, axes in links}
    theirs = tuple(by_number.get(number, store.get(one.stored)) for number, one in enumerate(calls[1].inputs))
    double = located.exact or not any(call.children for call in calls)
    layers = [
        side.copied(dict(side.layers(model))[call.path], double=double)
        for side, model, call in zip(sides, models, calls, strict=True)
    ]
    backward = verdict.direction == "backward"
    judged, reference_judged = _judged(located, pair)
    idle = _idle(located, pair)
    return Piece(
        sides=sides, calls=calls, layers=(layers[0], layers[1]), inputs=(ours, theirs), backward=backward,
        consumer=None if backward else _consumer(located, pair, store, verdict), seed=seed,
        atomic=judged | _innermost(layers[1], sides[1]), judged=judged, reference_judged=reference_judged | set(idle.values()),
        cleared=_cleared(located, pair, store), idle=idle, partners=_partners(located, pair), paths=(calls[0].path, calls[1].path),
        ends=tuple((link.ours, link.theirs) for link in Comparer(store).outputs(pair)) or None,
        links=tuple((number, other) for number, other, _ in links), double=double,
        mended=tuple(
            (number, other)
            for number, other, axes in links
            if relative(ours[number].transpose(axes), store.get(calls[1].inputs[other].stored)) > SAME_DOUBLE
        ),
    )  # fmt: skip


def _pairs(located: Located, verdict: LayerVerdict) -> Iterator[CallPair]:
    """Yield the calls that the verdict is about, then the ones around them that belong together.

    The code between layers that made a wrong tensor may be a layer on one side: then the port's container is held
    against what it is paired with, or against the one layer that it is wrapped around.
    """
    known = (*located.matching.pairs, *located.matching.containers)
    trace = located.port.trace
    call = next(
        (one for one in trace.calls if one.path == verdict.port_path and one.turn == verdict.turn), None
    )
    paths = verdict.reference_path, verdict.port_path
    while call is not None:
        same = [pair for pair in known if pair.port is call]
        inside = [
            pair for pair in located.matching.pairs if not pair.whole and _inside(trace, pair.port, call)
        ]
        if same:
            yield min(same, key=lambda pair: (pair.reference.path, pair.port.path) != paths)
        elif len(inside) == 1:
            yield CallPair(reference=inside[0].reference, port=call)
        call = None if call.parent is None else trace.calls[call.parent]


def _links(
    ours: Sequence[Value], theirs: Sequence[Value], store: Store
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield which tensors of two calls belong together, with the order of axes that the port has: the closest of one shape."""
    free = list(range(len(theirs)))
    for number, value in enumerate(ours):
        expected = store.get(value.stored)
        found = []
        for other in free:
            actual = store.get(theirs[other].stored)
            axes = arrange(expected, actual) if expected.dtype.kind == actual.dtype.kind else None
            if axes is not None:
                found.append((relative(expected.transpose(axes), actual) > SAME_DOUBLE, other, axes))
        if found:
            _, other, axes = min(found)
            free.remove(other)
            yield number, other, axes


def _judged(located: Located, around: CallPair) -> tuple[frozenset[str], frozenset[str]]:
    """Return the layers inside a call that were judged by themselves and are not at fault: the port's, the reference's."""
    faults = {one.port_path for one in located.verdicts if one.at_fault and one.direction == "forward"}
    inside = [
        pair
        for pair in located.matching.pairs
        if not pair.whole and _below(pair.port, around.port) and pair.port.path not in faults
    ]
    return (
        frozenset(_within(pair.port, around.port) for pair in inside),
        frozenset(_within(pair.reference, around.reference) for pair in inside if _below(pair.reference, around.reference)),
    )  # fmt: skip


def _cleared(located: Located, around: CallPair, store: Store) -> frozenset[str]:
    """Return the port's containers inside a call whose results are right, or that are given something else already."""
    compare = Comparer(store)

    def right(one: CallPair) -> bool:
        given, made = (
            compare.apart(ours, theirs, links)
            for ours, theirs, links in (
                (one.reference.inputs, one.port.inputs, compare.inputs(one)),
                (one.reference.outputs, one.port.outputs, compare.outputs(one)),
            )
        )
        return made <= SAME_DOUBLE or (isfinite(given) and given > SAME_DOUBLE)

    inside: dict[str, bool] = {}
    for one in located.matching.containers:
        if _below(one.port, around.port):
            path = _within(one.port, around.port)
            inside[path] = inside.get(path, True) and right(one)
    return frozenset(path for path, known in inside.items() if known)


def _partners(located: Located, around: CallPair) -> dict[str, str]:
    """Return the reference's path within a call by the port's, of the calls inside that belong together."""
    pairs = [one for one in located.matching.pairs if not one.whole and _below(one.port, around.port)]
    return {
        _within(one.port, around.port): _within(one.reference, around.reference)
        for one in pairs if _below(one.reference, around.reference)
    }  # fmt: skip


def _idle(located: Located, around: CallPair) -> dict[str, str]:
    """Return the port's layers within a call that are never called, with the reference's that are: the outermost.

    A container of layers none of which is called stands for all of them, where the reference has such a container, too.
    """
    traces = located.reference.trace, located.port.trace
    called = [{call.path for call in trace.calls} for trace in traces]
    found: dict[str, str] = {}
    for pair in located.layers:
        ours, theirs = pair.reference, pair.port
        if theirs in called[1] or ours not in called[0]:
            continue
        while (
            "." in theirs and "." in ours
            and theirs.rpartition(".")[2] == ours.rpartition(".")[2]
            and theirs.rpartition(".")[0] not in called[1]
            and ours.rpartition(".")[0] in called[0]
        ):  # fmt: skip
            ours, theirs = ours.rpartition(".")[0], theirs.rpartition(".")[0]
        inside = [
            path.removeprefix(f"{call.path}.") if call.path else path
            for path, call in ((ours, around.reference), (theirs, around.port))
            if not call.path or path.startswith(f"{call.path}.")
        ]
        if len(inside) == 2:
            found[inside[1]] = inside[0]
    return found


def _below(call: Call, around: Call) -> bool:
    return call.path != around.path and (not around.path or call.path.startswith(f"{around.path}."))


def _innermost(layer: Any, side: LiveSide) -> frozenset[str]:
    """Return Paddle's own layers without layers inside, the piece itself too if it is one."""
    return frozenset(
        path for path, one in side.layers(layer)
        if not any(True for _ in one.children()) and _is_paddles(one)
    )  # fmt: skip


def _is_paddles(layer: Any) -> bool:
    """Tell whether a layer's forward is Paddle's own."""
    bases = [one for one in type(layer).__mro__ if one.__module__.startswith("paddle.nn.")]
    own = type(layer).forward.__module__.partition(".")[0] == "paddle"
    return own and any(one.__name__ != "Layer" for one in bases)


def _consumer(located: Located, pair: CallPair, store: Store, verdict: LayerVerdict) -> Consumer | None:
    """Return the first layer inside the piece that is given something else than the reference's."""
    noise = max(SAME_DOUBLE, ROUGH * min(verdict.own or 0.0, ROUGH))
    ours, theirs = located.reference.trace, located.port.trace
    for inner in located.matching.pairs:
        if inner.whole or not (_inside(ours, inner.reference, pair.reference) and _inside(theirs, inner.port, pair.port)):  # fmt: skip
            continue
        for number, other, axes in _links(inner.reference.inputs, inner.port.inputs, store):
            one, two = (
                store.get(inner.reference.inputs[number].stored),
                store.get(inner.port.inputs[other].stored),
            )
            if relative(one.transpose(axes), two) > noise:
                return Consumer(
                    path=_within(inner.port, pair.port), turn=_turn(theirs, inner.port, pair.port), number=other,
                    reference=_within(inner.reference, pair.reference),
                    reference_turn=_turn(ours, inner.reference, pair.reference), reference_number=number,
                )  # fmt: skip
    return None


def _inside(trace: Trace, call: Call, around: Call) -> bool:
    parent = call.parent
    while parent is not None and parent != around.number:
        parent = trace.calls[parent].parent
    return parent is not None and (call.path.startswith(f"{around.path}.") or not around.path)


def _within(call: Call, around: Call) -> str:
    return call.path.removeprefix(f"{around.path}.") if around.path else call.path


def _turn(trace: Trace, call: Call, around: Call) -> int:
    """Return how many calls of the same layer came before inside ``around``."""
    before: Iterable[Call] = (one for one in trace.calls if around.number < one.number < call.number)
    return sum(one.path == call.path for one in before)


def elements(arrays: Iterable[Array]) -> int:
    """Return how many elements there are in all."""
    return sum(int(np.prod(one.shape)) for one in arrays)
