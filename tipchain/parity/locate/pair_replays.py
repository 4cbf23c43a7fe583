"""A pair of layers run again on the reference's input, each precision at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.feeding import Fed
from tipchain.parity.locate.matching import Step
from tipchain.parity.locate.replay import NotReplayed, Replayed, drawn_again, replay
from tipchain.parity.locate.runs import as_float
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.structures import put_back, take_out
from tipchain.parity.locate.trace import Call

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Models:
    """Copies of one model's layers, by path.

    Attributes:
        side: its framework.
        single: in float32, a fresh copy whenever one is asked for.
        double: in float64; None where it does not run so.
    """

    side: LiveSide
    single: Copies
    double: Doubles | None


class PairReplays:
    """What both layers of a pair give when they are given what the reference was given.

    Args:
        models: torch's and Paddle's.
        fed: what the layers are given, in float64.
        seed: of random numbers.
    """

    def __init__(self, models: tuple[Models, Models], fed: Fed, seed: int) -> None:
        self.fed, self._models, self._seed = fed, models, seed

    @cached_property
    def _given(self) -> tuple[list[Array], list[Array]]:
        return self.fed.given()

    @cached_property
    def _cotangents(self) -> tuple[list[Array | None], list[Array | None]]:
        return self.fed.cotangents()

    @cached_property
    def moved(self) -> Replayed | None:
        """The reference's layer, its inputs and cotangents a unit in float32's last place up or down by a coin.

        In float64, if it runs so.
        """
        generator = np.random.default_rng(self._seed)

        def moved(one: Array) -> Array:
            if one.dtype.kind != "f":
                return one
            coins = generator.choice((-1.0, 1.0), one.shape)
            return np.asarray(one + np.spacing(np.abs(one).astype(np.float32)) * coins)

        given = [moved(one) for one in self._given[0]]
        cotangents = [None if one is None else moved(one) for one in self._cotangents[0]]
        return self._run(0, given, double=self._models[0].double is not None, cotangents=cotangents)

    def terms(self, parameter: Array) -> int:
        """Return how many terms a kernel adds up for an element of a parameter's gradient."""
        size = max((one.size for one in self._cotangents[0] if one is not None), default=1)
        return max(1, size // max(parameter.shape[0] if parameter.ndim else 1, 1))

    @cached_property
    def reference32(self) -> Replayed | None:
        """The reference's layer in float32; None of a container."""
        return None if self.fed.pair.whole else self._run(0, self._given[0], double=False)

    @cached_property
    def port32(self) -> Replayed | None:
        """The port's layer in float32; None of a container that runs in float64."""
        exact = self._models[1].double is not None
        return None if self.fed.pair.whole and exact else self._run(1, self._given[1], double=False)

    @cached_property
    def reference64(self) -> Replayed | None:
        """The reference's layer in float64, for gradients that its run does not tell."""
        return self._run(0, self._given[0], double=True)

    @cached_property
    def port64(self) -> Replayed | None:
        """The port's layer in float64, if it runs so: alone, where the reference's model does and the port's does not."""
        if self._models[1].double is not None or self._models[0].double is None:
            return self._run(1, self._given[1], double=True)
        with suppress(NotReplayed):
            return self._run(1, self._given[1], double=True, alone=True)
        return None

    def _run(
        self,
        number: int,
        given: Sequence[Array],
        *,
        double: bool,
        alone: bool = False,
        cotangents: Sequence[Array | None] | None = None,
    ) -> Replayed | None:
        models, call = self._models[number], (self.fed.pair.reference, self.fed.pair.port)[number]
        layers = models.single.widened() if alone else models.double if double else models.single
        if layers is None:
            return None
        reads = self.fed.forward and not double
        return replay(
            models.side,
            models.single.reading(call.path) if reads else layers[call.path],
            call,
            given,
            self._cotangents[number] if cotangents is None else cotangents,
            double=double,
            seed=self._seed,
            then=pair_steps(models, layers, self.fed.pair.then[number]),
        )


def pair_steps(
    models: Models, layers: Mapping[str, Any], steps: Sequence[Step]
) -> list[Callable[[Any], Any]]:
    """Return what is called after a layer, of the copies that the layer is one of."""
    return [models.side.function(step.name) if step.function else layers[step.name] for step in steps]


def run_again(
    models: Models, root: Call, store: Store, seed: int, after: Callable[[Any, str, int, Any], Any],
    starts: Callable[[Sequence[Any]], Sequence[tuple[Any, Any]]],
) -> None:  # fmt: skip
    """Run a whole model again on what it was given, forward and backward, with its layers' results replaced.

    Args:
        models: its copies.
        root: its call of the whole model.
        store: where tensors are.
        seed: of random numbers.
        after: given a layer, its path, which call of it this was, and its result, returns what stands in place of that; None: it stays.
        starts: given the model's output tensors, returns those that backward starts from, each with its gradient.

    Raises:
        Exception: what the model raises.
    """
    side, double = models.side, models.double is not None
    model = (models.double or models.single)[""]
    paths, turns = {id(layer): path for path, layer in side.layers(model)}, Counter[str]()

    def replaced(layer: Any, result: Any) -> Any:
        path = paths[id(layer)]
        turns[path] += 1
        return after(layer, path, turns[path] - 1, result)

    with ExitStack() as stack:
        stack.enter_context(side.precision(double=double))
        stack.enter_context(side.randomness(drawn_again(root, seed)))
        stack.enter_context(side.recording(gradient=True))
        for _, layer in side.layers(model):
            stack.callback(side.watch(layer, lambda *_: None, replaced))
        side.seed(seed)
        side.clear_gradients(model)
        given = [
            side.tensor(as_float(store.get(one.stored), double=double), gradient=False) for one in root.inputs
        ]
        args, kwargs = put_back(root.arguments, given)
        parts = starts(take_out(model(*args, **kwargs), side.is_tensor)[1])
        if parts:
            side.products(*zip(*parts, strict=True))


class Copies(Mapping[str, Any]):
    """Copies of a model's layers by path, each made when it is asked for.

    Args:
        side: the model's framework.
        model: the model.
        training: the mode of the copies; None: each layer's own.
        double: whether they are in float64, else in float32.
    """

    def __init__(self, side: LiveSide, model: Any, training: bool | None, *, double: bool = False) -> None:
        self._side, self._layers, self._training = side, dict(side.layers(model)), training
        self._switch, self._double = training is not None and model.training != training, double
        self._model = model

    def widened(self) -> Copies:
        """Return copies of the same layers in float64."""
        return Copies(self._side, self._model, self._training, double=True)

    def __getitem__(self, path: str) -> Any:
        return self._copied(path)

    def reading(self, path: str) -> Any:
        """Return a copy of which only forward may be run: its weights may be the model's own."""
        return self._copied(path, forward=True)

    def _copied(self, path: str, *, forward: bool = False) -> Any:
        training = self._training if self._switch else None
        return self._side.copied(self._layers[path], double=self._double, training=training, forward=forward)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


class Doubles(Mapping[str, Any]):
    """The layers of a model's float64 copy by path; asked for one, it has its values.

    Args:
        side: the model's framework.
        made: the copy.
        model: the model.
    """

    def __init__(self, side: LiveSide, made: Any, model: Any) -> None:
        self._side, self._made, self._model = side, made, model
        self._layers = dict(side.layers(made))
        self._versions = self._written()
        self._take_up: Callable[[Any], None] | None = None

    def lay_aside(self) -> None:
        """Free each layer's values until it is asked for; `whole` has gradients and shapes all the same.

        Where forward wrote to a parameter, the copy alone has its values: then nothing is freed.
        """
        if self._take_up is None and self._written() == self._versions:
            self._take_up = self._side.lay_aside(self._made, self._model)

    def _written(self) -> list[int]:
        return [self._side.version(one) for one in self._made.parameters()]

    @property
    def whole(self) -> Any:
        """The model's copy, for its gradients and shapes."""
        return self._made

    def __getitem__(self, path: str) -> Any:
        if self._take_up is not None:
            self._take_up(self._layers[path])
        return self._layers[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)
