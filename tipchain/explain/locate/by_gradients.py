"""Which tensor of a port is which of the reference's, as a run of both models tells: by gradients, and by the order of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.locate.differences import rms
from tipchain.explain.locate.rerun import conditions, run_backward
from tipchain.explain.locate.runs import ModelInputs, bind, call_model
from tipchain.explain.locate.trace import take_out
from tipchain.facts.settings import OWN_KIND, Shape
from tipchain.framework_types import Array, Model, Tensor
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import SAME_SINGLE
from tipchain.weights.matching import match_models, matchable_layers, own_name, paddle_leaves, torch_leaves
from tipchain.weights.sides import Target, assemble, divide, is_integer
from tipchain.weights.structure import Leaf, group_by, squeezed

WAYS = ((False, True), (True, True), (False, False))
"""In which mode, train or not, and in which precision, float64 or not, models are run: where one raises, in the next."""
CLEARLY = 2.0
"""Times as far as its partner every other tensor must be, where a port that is wrong has other gradients. A choice."""
LOOKED_AT = 1 << 16
"""Elements of a gradient that are compared, roughly: at even steps along all axes."""


class Roles(NamedTuple):
    """What a run of two models tells of their tensors.

    Attributes:
        names: Paddle's names by torch's, of layers or tensors, that gradients tell.
        calls: the number of each layer's first call, by its path, torch's and Paddle's; empty where a model does not run.
    """

    names: Mapping[str, str]
    calls: tuple[Mapping[str, int], Mapping[str, int]]


def roles(
    sides: Sides, models: tuple[Model, Model], inputs: ModelInputs, names: Mapping[str, str], seed: int = 0
) -> Roles:
    """Run copies of two models, and tell which tensors belong together by their gradients.

    All tensors of one shape are given equal values in the copies, so that both compute the same, whichever is which: tensors
    that belong together get equal gradients. What has the same name on both sides, or is in ``names``, is not questioned.
    Tensors whose gradients leave it open are not told: such as those that nothing uses, and most of a port that is wrong.
    """
    leaves, telling = _leaves(models, names)
    calls: tuple[dict[str, int], dict[str, int]] = {}, {}
    for training, double in WAYS if all(telling) else ():
        with suppress(Exception):  # a model of the user's may refuse a mode, or float64
            copies = [
                side.copied(one, double=double, training=training) for side, one in zip(sides, models, strict=True)
            ]
            copied, _ = _leaves((copies[0], copies[1]), names)
            counts = [Counter(map(_form, each)) for each in copied]
            held = [_tensors(model, some) for model, some in zip(copies, copied, strict=True)]
            for side, some, every in zip(sides, copied, held, strict=True):
                for leaf, tensors in zip(some, every, strict=True):
                    if leaf.slot.kind == "parameter" or counts[0][_form(leaf)] == counts[1][_form(leaf)]:
                        values = _values(leaf.slot.shape, seed)
                        arrays = divide(values, leaf.slot) if leaf.slot.parts else [values]
                        for tensor, array in zip(tensors, arrays, strict=True):
                            side.framework.assign(tensor, array)
            for side, model, called in zip(sides, copies, calls, strict=True):
                _run(side, model, inputs, called, double=double, seed=seed)
            found = [
                [
                    (leaf, _gradient(side, one, tensors))
                    for leaf, one, tensors in zip(*each, strict=True)
                    if leaf in some
                ]
                for side, some, each in zip(sides, telling, zip(leaves, copied, held, strict=True), strict=True)
            ]
            return Roles(_as_names(_paired(found)), calls)
    return Roles({}, calls if all(calls) else ({}, {}))


def settled_names(
    sides: Sides, models: tuple[Model, Model], inputs: ModelInputs, names: Mapping[str, str]
) -> Mapping[str, str]:
    """Return ``names``, with those that gradients tell where names and structure leave it to the order of declaration."""
    with suppress(WeightsError):
        if not match_models(*models, names).by_order:
            return names
    with suppress(WeightsError):
        return {**roles(sides, models, inputs, names).names, **names}
    return names


def _leaves(
    models: tuple[Model, Model], names: Mapping[str, str]
) -> tuple[tuple[list[Leaf], list[Leaf]], tuple[list[Leaf], list[Leaf]]]:
    """Return both models' tensors of floats, each once; and those of them that are not each other's by name."""
    layers = matchable_layers(*models, names)
    first: dict[int, str] = {}
    ties = {name: first.setdefault(id(one), name) for name, one in models[0].state_dict(keep_vars=True).items()}
    both = torch_leaves(layers[0], names, ties), paddle_leaves(layers[1], names)
    ours, theirs = ([leaf for leaf in some if not (leaf.again or is_integer(leaf.slot))] for some in both)
    known = {(leaf.path, leaf.slot.shape) for leaf in ours} & {(leaf.path, leaf.slot.shape) for leaf in theirs}
    mine, its = (
        [leaf for leaf in some if not leaf.scope and (leaf.path, leaf.slot.shape) not in known]
        for some in (ours, theirs)
    )
    return (ours, theirs), (mine, its)


def _form(leaf: Leaf) -> tuple[str, Shape]:
    """Return what tensors have in common that may be each other's: a matrix may be kept the other way round."""
    shape = squeezed(leaf.slot.shape)
    return leaf.slot.kind, tuple(sorted(shape)) if len(shape) == 2 else shape


def _values(shape: Shape, seed: int) -> Array:
    """Return the values of all tensors of a shape: those of a matrix are its transpose's, too; those of a vector are positive."""
    flat = squeezed(shape)
    known = tuple(sorted(flat)) if len(flat) == 2 else flat
    generator = np.random.default_rng([seed, *known])
    if len(flat) < 2:  # such as a variance
        return np.asarray(generator.uniform(0.25, 1.0, shape))
    values = generator.standard_normal(known) / np.sqrt(max(known) if len(flat) == 2 else prod(known[1:]))
    if len(flat) == 2 and known[0] == known[1]:
        values = (values + values.T) / np.sqrt(2)
    return np.reshape(values if flat == known else values.T, shape)


def _tensors(model: Model, leaves: Iterable[Leaf]) -> list[list[Tensor]]:
    state = model.state_dict(keep_vars=True)
    return [[part.tensor for part in leaf.slot.parts] or [state[leaf.slot.name]] for leaf in leaves]


def _run(side: LiveSide, model: Model, inputs: ModelInputs, called: dict[str, int], *, double: bool, seed: int) -> None:
    """Run a model forward, and backward from random numbers that are alike for outputs of one shape, in whatever order."""
    called.clear()
    side.clear_gradients(model)

    def note(path: str, *_: object) -> None:
        called.setdefault(path, len(called))

    with ExitStack() as stack:
        for path, layer in side.layers(model):
            stack.callback(side.watch(layer, partial(note, path), lambda _, output: output))
        stack.enter_context(conditions(side, double=double, seed=seed, draws=Draws(seed), gradient=True))
        try:
            made = call_model(side, model, bind(model, inputs), double=double)
        except Exception:
            called.clear()
            raise
        outputs = take_out(made, side.is_tensor)[1]
        shapes = [tuple(one.shape) for one in outputs]
        drawn = [np.random.default_rng([seed, *shape]).standard_normal(shape) for shape in shapes]
        run_backward(side, outputs, drawn, double=double)


def _gradient(side: LiveSide, leaf: Leaf, tensors: Sequence[Tensor]) -> Array | None:
    """Return the gradient of a parameter in torch's layout; None of a buffer, and where there is none."""
    found = [side.framework.gradient(one) for one in tensors] if leaf.slot.kind == "parameter" else [None]
    if all(one is None for one in found):
        return None
    pairs = zip(found, tensors, strict=True)
    arrays = [np.zeros(tuple(tensor.shape)) if one is None else side.array(one) for one, tensor in pairs]
    whole = assemble(arrays, leaf.slot) if leaf.slot.parts else arrays[0]
    return np.asarray(whole, np.float64).reshape(squeezed(leaf.slot.shape))


def _paired(gradients: Sequence[Sequence[tuple[Leaf, Array | None]]]) -> dict[Leaf, tuple[Leaf, bool]]:
    """Return the port's tensor by the reference's, and whether it is kept the other way round than torch's layers keep it."""
    told: dict[Leaf, tuple[Leaf, bool]] = {}
    forms = [
        group_by([(leaf, one) for leaf, one in each if one is not None], lambda pair: _form(pair[0]))
        for each in gradients
    ]
    for form, ours in forms[0].items():
        theirs = forms[1].get(form, [])
        turns = [[_apart(one, other) for other in theirs] for one in ours]
        apart = np.array([[min(pair) for pair in row] for row in turns]).reshape(len(ours), len(theirs))
        for row, column in _nearest(apart):
            told[ours[row][0]] = theirs[column][0], turns[row][column][1] < turns[row][column][0]
    return told


def _apart(one: tuple[Leaf, Array], other: tuple[Leaf, Array]) -> tuple[float, float]:
    """Return how far two gradients are apart, as they are and with the axes of one exchanged, of the larger's size."""
    (leaf, ours), (port_leaf, theirs) = one, other
    step = ceil((ours.size / LOOKED_AT) ** (1 / max(ours.ndim, 1)))
    thin = (slice(None, None, step),) * ours.ndim
    size = max(rms(ours[thin]), rms(theirs[thin]))
    own = OWN_KIND in (leaf.layer.kind, port_leaf.layer.kind)

    def off(array: Array) -> float:
        return rms(ours[thin] - array[thin]) / size if size and array.shape == ours.shape else np.inf

    return off(theirs), off(theirs.T) if own and theirs.ndim == 2 else np.inf


def _nearest(apart: Array) -> Iterator[tuple[int, int]]:
    """Yield the rows and columns that are each other's: equal, in order where several are, or else clearly nearest."""
    same = apart <= SAME_SINGLE
    for row, columns in enumerate(same):
        twins = np.flatnonzero(same[:, columns].all(axis=1)).tolist() if columns.any() else []
        if len(twins) == columns.sum() > 0:
            yield row, int(np.flatnonzero(columns)[twins.index(row)])
        elif not columns.any() and len(columns):
            column = int(apart[row].argmin())
            others = (*np.delete(apart[row], column), *np.delete(apart[:, column], row))
            if CLEARLY * apart[row, column] <= min(others, default=1.0):
                yield row, column


def _as_names(told: Mapping[Leaf, tuple[Leaf, bool]]) -> dict[str, str]:
    """Return names of pairs, of whole layers where these are of one kind of the frameworks' own."""
    names: dict[str, str] = {}
    for path, some in group_by(told, lambda leaf: leaf.layer.path).items():
        partners = {told[leaf][0].layer for leaf in some}
        layer, port = some[0].layer, next(iter(partners))
        slots = sum(not slot.fixed for slot in port.slots)
        if len(partners) == 1 and layer.kind == port.kind != OWN_KIND and len(layer.slots) == slots:
            names[path] = port.path
            continue
        for leaf in some:
            other, turned = told[leaf]
            names[leaf.slot.name] = str(Target(names=(own_name(other),), turned=turned))
    return names
