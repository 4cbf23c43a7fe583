"""Two losses as programs: where the code of one parts from the other's, line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.diagnose.diagnose import diagnose_loss
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.findings import Diagnosis
from tipchain.parity.locate.losses import in_double
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.structures import take_out
from tipchain.parity.locate.trace import Call

Array = npt.NDArray[Any]
Loss = Callable[[Any, Any], Any]
LOSS = "loss"


def cause_in_code(
    sides: tuple[LiveSide, LiveSide], losses: tuple[Loss, Loss], outputs: tuple[Any, Any], labels: Any,
    links: Sequence[tuple[int, int]], opened: Callable[[Any], Any], seed: int,
) -> Diagnosis | None:  # fmt: skip
    """Return what the code of the port's loss does otherwise than the reference's; None if that is not found.

    Both are taken as models of two inputs, the output and the labels, and diagnosed as such, in value and gradient.

    Args:
        sides: torch's and Paddle's.
        losses: ``(output, labels) -> scalar`` of each.
        outputs: the reference's output, and the port's with the same values.
        labels: an array or arrays, nested, or None.
        links: numbers of the arrays of both outputs that belong together.
        opened: gives mappings attributes, as losses may use them.
        seed: of random numbers.
    """
    calls, inputs = zip(*(_called(output, labels) for output in outputs), strict=True)

    def build(backward: bool) -> Piece:
        layers = [
            _as_layer(side, in_double(side, loss), opened) for side, loss in zip(sides, losses, strict=True)
        ]
        return Piece(
            sides=sides, calls=(calls[0], calls[1]), layers=(layers[0], layers[1]), inputs=(inputs[0], inputs[1]),
            backward=backward, consumer=None, atomic=frozenset(), seed=seed, paths=(LOSS, LOSS), links=tuple(links), loss=True,
        )  # fmt: skip

    try:
        return diagnose_loss(build)
    except Exception:  # noqa: BLE001  (user code that runs only as it is called)
        return None


def _called(output: Any, labels: Any) -> tuple[Call, tuple[Array, ...]]:
    """Return a call with an output and labels, and the arrays in them."""
    arguments, arrays, names = take_out(((output, labels), {}), lambda one: isinstance(one, np.ndarray))
    call = Call(
        number=0, path=LOSS, type=LOSS, layer=None, turn=0, parent=None, arguments=arguments, inputs=(),
        input_names=tuple(names),
    )  # fmt: skip
    return call, tuple(arrays)


def _as_layer(side: LiveSide, loss: Loss, opened: Callable[[Any], Any]) -> Any:
    """Return a layer of the side's framework that calls a loss; its class is in the loss's module, whose imports count."""

    def forward(_: Any, output: Any, labels: Any) -> Any:
        value = loss(opened(output), opened(labels))
        return value if not tuple(value.shape) else value.sum()

    framework = import_module(side.name)
    base = framework.nn.Module if side.name == "torch" else framework.nn.Layer
    module = getattr(loss, "__module__", None) or type(loss).__module__
    made = type("Loss", (base,), {"forward": forward, "__module__": module})()
    made.eval()
    return made
