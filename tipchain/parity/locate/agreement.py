"""Where two models are built otherwise, but do the same: what that says about single layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

from tipchain.parity.locate.matching import CallPair, Matching
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.trace import Call, Value
from tipchain.parity.locate.verdicts import Closeness, LayerVerdict

Apart = Callable[[Sequence[Value], Sequence[Value]], float]
"""Tells how far the tensors of two calls are apart."""


def joined(matching: Matching, pair: CallPair, apart: Apart, limit: float) -> Call | None:
    """Return the call in no pair that, after one side's layer, does what the other side's layer does by itself.

    Paddle's ``BatchNorm(act="relu")`` is a norm and an activation of torch's.

    Args:
        matching: which call is which.
        pair: two calls whose outputs differ.
        apart: tells how far the tensors of two calls are apart, the reference's first.
        limit: up to which they are the same.
    """
    for call in matching.reference_only:
        if _takes(call, pair.reference) and apart(call.outputs, pair.port.outputs) <= limit:
            return call
    for call in matching.port_only:
        if _takes(call, pair.port) and apart(pair.reference.outputs, call.outputs) <= limit:
            return call
    return None


def _takes(call: Call, other: Call) -> bool:
    return any(value in call.inputs for value in other.outputs)


def of_one_size(sides: tuple[LiveSide, LiveSide], pair: CallPair) -> bool:
    """Tell whether the layers of a pair have equally many parameters; a fused layer has more than one of its parts."""
    sizes = [
        sum(int(prod(one.shape)) for _, one in side.parameters(call.layer))
        for side, call in zip(sides, (pair.reference, pair.port), strict=True)
    ]
    return bool(sizes[0] == sizes[1])


def settled(
    verdicts: Iterable[LayerVerdict], loose: Iterable[LayerVerdict], *, gradients: bool
) -> tuple[LayerVerdict, ...]:
    """Return the verdicts on models whose outputs agree, less what that refutes.

    Args:
        verdicts: of layers.
        loose: those that rest on which call is taken for which: if they were right, the models would differ.
        gradients: the gradients of all parameters agree too.
    """
    rest = {id(one) for one in loose}
    return tuple(
        _refuted(one)
        if id(one) in rest
        and one.closeness is Closeness.DIFFERS
        and (gradients or one.direction == "forward")
        else one
        for one in verdicts
    )


def _refuted(verdict: LayerVerdict) -> LayerVerdict:
    reason = f"built otherwise, but the models do the same: {verdict.reason}"
    return replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason, refuted=True)
