"""Code between the layers that changes a gradient without changing a tensor: detaching, hooks, scaled gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.trace import Call, Trace, Value

Apart = Callable[[Value, Value], float]
"""Returns how far the gradients of two values are apart, relative; inf where one alone has a gradient."""


class Changed(NamedTuple):
    """Where gradients part: the calls whose own code does it, the pair whose output's gradient is off, how far, and the output."""

    calls: tuple[Call, Call]
    pair: CallPair
    apart: float
    value: Value


def first_changed(
    traces: tuple[Trace, Trace],
    outputs: Iterable[tuple[CallPair, Value, Value]],
    ends: Sequence[tuple[Value, Value]],
    apart: Apart,
    tolerance: float,
) -> Changed | None:
    """Return where gradients part first on their way back, though every layer hands them on as the reference's does.

    Nothing is returned where they differ from the start: then the loss is another.

    Args:
        traces: torch's and Paddle's, after backward; forward they agree.
        outputs: tensors of pairs that agree, in the opposite order of the port's calls.
        ends: the models' outputs.
        apart: compares the gradients of two values.
        tolerance: up to which they agree.
    """
    agreed = False
    for pair, ours, theirs in outputs:
        found = apart(ours, theirs)
        if found <= tolerance:
            agreed = True
        elif agreed or _agree_at_end(ends, apart, tolerance):
            calls = _outside(traces[0], pair.reference, ours), _outside(traces[1], pair.port, theirs)
            return Changed(calls, pair, found, theirs)
        else:
            return None
    return None


def _agree_at_end(ends: Sequence[tuple[Value, Value]], apart: Apart, tolerance: float) -> bool:
    """Tell whether the gradients of the models' outputs agree."""
    found = [apart(ours, theirs) for ours, theirs in ends if ours.gradient is not None]
    return bool(found) and max(found) <= tolerance


def _outside(trace: Trace, call: Call, value: Value) -> Call:
    """Return the innermost call around ``call`` that does not itself give the value back."""
    while call.parent is not None:
        call = trace.calls[call.parent]
        if value not in call.outputs:
            break
    return call
