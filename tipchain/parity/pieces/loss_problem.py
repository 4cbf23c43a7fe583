"""Two losses that differ, and what hypotheses about them are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.structures import put_back, take_out
from tipchain.parity.rounding import REMAINDER

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A loss: its value, and its gradient with respect to each output."""

    value: float
    gradients: tuple[Array, ...]

    def scaled(self, factor: float) -> Evaluated:
        """Return a multiple of the loss."""
        return Evaluated(value=self.value * factor, gradients=tuple(one * factor for one in self.gradients))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guess:
    """A hypothesis: what one loss would be if it held.

    Attributes:
        code: a slug.
        message: one sentence.
        fix: the line to change.
        evidence: what was tried.
        found: the loss under the hypothesis.
        side: which loss it should be: 1 the port's, made of the reference's; 0 the other way round.
        gradient_only: the value cannot be predicted.
    """

    code: str
    message: str
    fix: str
    evidence: str
    found: Evaluated
    side: int = 1
    gradient_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Two losses of the same outputs.

    Attributes:
        expected: the reference's.
        actual: the port's.
        outputs: what both were given.
        labels: likewise: an array, or arrays in tuples, lists and mappings.
        run: ``(side, outputs, labels)`` returns a loss of others, None where it raises; side 0 is the reference.
    """

    expected: Evaluated
    actual: Evaluated
    outputs: tuple[Array, ...]
    labels: Any
    run: Callable[[int, Sequence[Array], Any], Evaluated | None]

    @property
    def targets(self) -> list[Array]:
        """The arrays of the labels: one, or several."""
        arrays: list[Array] = take_out(self.labels, _is_array)[1]
        return arrays

    def relabelled(self, number: int, array: Array) -> Any:
        """Return the labels with another array in place of one."""
        structure, arrays, _ = take_out(self.labels, _is_array)
        return put_back(structure, [*arrays[:number], array, *arrays[number + 1 :]])

    def explained(self, guess: Guess) -> float:
        """Return the share of the difference that a hypothesis takes away, in value or gradient, where that is less."""
        return max(0.0, self.closeness(guess))

    def closeness(self, guess: Guess) -> float:
        """Return that share, negative where a hypothesis makes the difference larger."""
        target = (self.expected, self.actual)[guess.side]
        shares = [] if guess.gradient_only else [
            _left(guess.found.value - target.value, self.actual.value - self.expected.value, target.value)
        ]  # fmt: skip
        one, other, found, wanted = (
            np.concatenate([gradient.reshape(-1) for gradient in loss.gradients] or [np.zeros(0)])
            for loss in (self.expected, self.actual, guess.found, target)
        )
        shares.append(
            _left(
                float(np.linalg.norm(found - wanted)),
                float(np.linalg.norm(other - one)),
                float(np.linalg.norm(wanted)),
            )
        )
        return 1 - max(shares) if np.isfinite(shares).all() else -1e9


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _left(residual: float, apart: float, size: float) -> float:
    """Return what is left of a difference; one that is none, or NaN, counts as a ten-thousandth of the size."""
    scale = max(abs(apart) if np.isfinite(apart) else 0.0, REMAINDER * abs(size))
    return abs(residual) / scale if scale else (1.0 if residual else 0.0)
