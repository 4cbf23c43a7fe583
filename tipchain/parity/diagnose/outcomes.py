"""What runs of a piece give, the port's and the reference's, and where inside it they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tipchain.parity.diagnose.program import Op
from tipchain.parity.diagnose.reference import Held, Step
from tipchain.parity.locate.differences import Sketch

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A layer inside the piece that is given something else than the reference's.

    Attributes:
        path: within the port's piece.
        turn: which call of it in the piece.
        number: which of its tensors.
        reference: the reference's path within its piece.
        reference_turn: likewise.
        reference_number: likewise.
    """

    path: str
    turn: int
    number: int
    reference: str
    reference_turn: int
    reference_number: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What a run of the port's piece gave.

    Attributes:
        outputs: its float and integer tensors.
        consumed: what the consumer was given; None without one, or if it was not called.
        gradients: by name, of inputs and parameters; empty without backward.
        ops: what was called, if that was asked for.
    """

    outputs: tuple[Array, ...]
    consumed: Array | None
    gradients: Mapping[str, Array]
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What the reference's piece gave.

    Attributes:
        outputs: its outputs.
        consumed: what the reference's layer at the consumer's place was given.
        gradients: by the port's name.
        sketches: of every tensor that its code made.
        names: the functions that its code called, torch's names.
        constants: numbers among their arguments, by function.
        steps: the calls of its own code, with what they were given and returned.
        values: the tensors of these, by number.
    """

    outputs: tuple[Array, ...]
    consumed: Array | None
    gradients: Mapping[str, Array]
    sketches: tuple[Sketch, ...]
    names: tuple[str, ...]
    constants: Mapping[str, tuple[Any, ...]]
    steps: tuple[Step, ...] = ()
    values: tuple[Held, ...] = ()
