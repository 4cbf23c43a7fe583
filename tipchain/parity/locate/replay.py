"""One layer run again on given tensors, forward and backward, apart from its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import class_and_line
from tipchain.parity.frameworks.randomness import Draws
from tipchain.parity.locate.runs import as_float
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.structures import put_back, take_out
from tipchain.parity.locate.trace import Call

Array = npt.NDArray[Any]


class NotReplayed(Exception):  # noqa: N818  (it is no error: the layer cannot be compared by itself)
    """A layer raised when it was run apart from its model; the message has the error's class and first line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """What a layer gave.

    Attributes:
        outputs: its output tensors' values.
        inputs: the gradient of each input; None where there is none.
        parameters: the gradients of its parameters under torch's names and in torch's layout, as seen from the layer.
    """

    outputs: tuple[Array, ...]
    inputs: tuple[Array | None, ...] = ()
    parameters: Mapping[str, Array] | None = None


def replay(
    side: LiveSide, layer: Any, call: Call, inputs: Sequence[Array], cotangents: Sequence[Array | None] = (), *,
    double: bool, seed: int, then: Sequence[Callable[[Any], Any]] = (),
) -> Replayed:  # fmt: skip
    """Call a layer as ``call`` did, with other tensors.

    Args:
        side: the layer's framework.
        layer: the layer; its gradients and running statistics are changed.
        call: whose arguments other than tensors are used.
        inputs: an array for each of the call's tensors; floats are given in float64 or float32.
        cotangents: for each output, what backward starts from; None or nothing: not from that one.
        double: whether ``layer`` is in float64.
        seed: of random numbers, where the call's own are not known.
        then: what the layer's result is given to, one after the other.

    Raises:
        NotReplayed: the layer does not run apart from its model.
    """
    try:
        return _replayed(side, layer, call, inputs, cotangents, double=double, seed=seed, then=then)
    except Exception as error:  # a user's layer may raise anything
        raise NotReplayed(class_and_line(error)) from error


def _replayed(
    side: LiveSide, layer: Any, call: Call, inputs: Sequence[Array], cotangents: Sequence[Array | None], *,
    double: bool, seed: int, then: Sequence[Callable[[Any], Any]],
) -> Replayed:  # fmt: skip
    backward = any(one is not None for one in cotangents)
    side.seed(seed)
    with (
        side.precision(double=double),
        side.randomness(drawn_again(call, seed)),
        side.recording(gradient=backward),
    ):
        leaves = [side.tensor(as_float(array, double=double), gradient=backward) for array in inputs]
        leaves = [leaves[number] for number in _first_given(call, inputs)]
        # A layer may write to what it is given, which a leaf does not allow.
        given = [one.clone() if side.takes_gradient(one) else one for one in leaves]
        args, kwargs = put_back(call.arguments, given)
        result = layer(*args, **kwargs)
        for one in then:
            result = one(take_out(result, side.is_tensor)[1][0])
        _, outputs, _ = take_out(result, side.is_tensor)
        values = tuple(side.view(one) for one in outputs)
        if not backward:
            return Replayed(outputs=values)
        side.clear_gradients(layer)
        parts = [
            (one, side.tensor(as_float(cotangent, double=double), gradient=False))
            for one, cotangent in zip(outputs, cotangents, strict=False)
            if cotangent is not None and side.takes_gradient(one)
        ]
        if parts:
            side.products(*zip(*parts, strict=True))
        gradients = [one.grad if side.takes_gradient(one) else None for one in leaves]
        return Replayed(
            outputs=values,
            inputs=tuple(None if one is None else side.view(one) for one in gradients),
            parameters=side.parameter_gradients(layer),
        )


def _first_given(call: Call, inputs: Sequence[Array]) -> list[int]:
    """Return for each input the number of the first that is the same tensor: its gradients add up."""
    values, same = call.inputs, len(call.inputs) == len(inputs)
    return [
        next(
            (one for one in range(number) if same and values[one] is values[number] and np.array_equal(inputs[one], array)),
            number,
        )
        for number, array in enumerate(inputs)
    ]  # fmt: skip


def drawn_again(call: Call, seed: int) -> Draws:
    """Return the random numbers that a call drew when it was traced; fresh ones if it drew none."""
    return Draws(seed) if call.draws is None or not call.drawn else call.draws.again(call.drawn.start)
