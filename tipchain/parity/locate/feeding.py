"""What both layers of a pair are given when they are run again, and what their results are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tipchain.parity.locate.comparing import Link
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.store import Stored
from tipchain.parity.locate.trace import Value

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fed:
    """The reference's tensors around one call, as its float64 run left them.

    Attributes:
        pair: the calls.
        inputs: which input of the reference's is which of the port's.
        outputs: likewise.
        take: returns what is held of a tensor: the whole, or the first sample.
        forward: no backward is run.
    """

    pair: CallPair
    inputs: Sequence[Link]
    outputs: Sequence[Link]
    take: Callable[[Stored], Array]
    forward: bool = False

    @property
    def comparable(self) -> bool:
        """Whether both calls have the same arguments."""
        return bool(self.inputs) or not (self.pair.reference.inputs and self.pair.port.inputs)

    @property
    def backward(self) -> bool:
        """Whether there is anything for backward to start from."""
        return not self.forward and any(
            self.pair.reference.outputs[link.ours].gradient is not None for link in self.outputs
        )

    def given(self) -> tuple[list[Array], list[Array]]:
        """Return what the layers are given, the port's with its order of axes.

        What the reference's call has nothing for, the port's layer is given as it was.
        """
        ours = [self.take(value.stored) for value in self.pair.reference.inputs]
        by_number = {link.theirs: link.layout.apply(ours[link.ours]) for link in self.inputs}
        return ours, [
            by_number[number] if number in by_number else self.take(value.stored)
            for number, value in enumerate(self.pair.port.inputs)
        ]

    def result(self, number: int) -> Array:
        """Return one of the reference's outputs."""
        return self.take(self.pair.reference.outputs[number].stored)

    def gradient(self, number: int) -> Array | None:
        """Return the gradient of one of the reference's inputs, None where it has none."""
        return self._gradient(self.pair.reference.inputs[number])

    def cotangents(self) -> tuple[list[Array | None], list[Array | None]]:
        """Return what backward starts from, for the outputs of each; nothing where none is run."""
        ours: list[Array | None] = [None] * len(self.pair.reference.outputs)
        theirs: list[Array | None] = [None] * len(self.pair.port.outputs)
        for link in () if self.forward else self.outputs:
            gradient = self._gradient(self.pair.reference.outputs[link.ours])
            if gradient is not None:
                ours[link.ours], theirs[link.theirs] = gradient, link.layout.apply_gradient(gradient)
        return ours, theirs

    def _gradient(self, value: Value) -> Array | None:
        return None if value.gradient is None else self.take(value.gradient)
