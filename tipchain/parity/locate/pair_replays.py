"""A pair of layers run again on the reference's input, each precision at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.replay import Replayed, replay
from tipchain.parity.locate.sides import LiveSide

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Models:
    """Copies of one model's layers in both precisions, by path; ``double`` is None where it does not run in float64."""

    side: LiveSide
    single: Mapping[str, Any]
    double: Mapping[str, Any] | None


class PairReplays:
    """What both layers of a pair give when they are given the same.

    Args:
        models: torch's and Paddle's.
        pair: the pair.
        given: the reference's tensors, in its order of axes.
        theirs: the same for the port.
        cotangents: what backward starts from, for the outputs of each.
        seed: of random numbers.
    """

    def __init__(
        self, models: tuple[Models, Models], pair: CallPair, given: Sequence[Array], theirs: Sequence[Array],
        cotangents: tuple[Sequence[Array | None], Sequence[Array | None]], seed: int,
    ) -> None:  # fmt: skip
        self._models, self._pair, self._seed = models, pair, seed
        self._given, self._cotangents = (given, theirs), cotangents

    @property
    def backward(self) -> bool:
        """Whether there is anything for backward to start from."""
        return any(one is not None for one in self._cotangents[0])

    @cached_property
    def truth(self) -> Replayed:
        """The reference's layer in float64."""
        found = self._run(0, double=True)
        if found is None:
            raise ValueError("the reference has no copy in float64")
        return found

    @cached_property
    def moved(self) -> Replayed:
        """The reference's layer in float64, its inputs a unit in float32's last place up or down by a coin."""
        models, call = self._models[0], self._pair.reference
        generator = np.random.default_rng(self._seed)
        given = [
            one + np.spacing(np.abs(one)) * generator.choice((-1, 1), one.shape).astype(one.dtype)
            if one.dtype.kind == "f"
            else one
            for one in self._given[0]
        ]
        layers = models.double or models.single
        return replay(
            models.side, layers[call.path], call, given, self._cotangents[0], double=True, seed=self._seed
        )

    @cached_property
    def reference32(self) -> Replayed | None:
        """The reference's layer in float32; None of a container."""
        return None if self._pair.whole else self._run(0, double=False)

    @cached_property
    def port32(self) -> Replayed | None:
        """The port's layer in float32; None of a container that runs in float64."""
        exact = self._models[1].double is not None
        return None if self._pair.whole and exact else self._run(1, double=False)

    @cached_property
    def port64(self) -> Replayed | None:
        """The port's layer in float64, if it runs so."""
        return self._run(1, double=True)

    def _run(self, number: int, *, double: bool) -> Replayed | None:
        models, call = self._models[number], (self._pair.reference, self._pair.port)[number]
        layers = models.double if double else models.single
        if layers is None:
            return None
        return replay(
            models.side, layers[call.path], call, self._given[number], self._cotangents[number], double=double,
            seed=self._seed,
        )  # fmt: skip
