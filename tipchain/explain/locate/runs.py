"""One traced forward and backward of a whole model; and losses in their inputs' precision."""

from __future__ import annotations

import copy
import inspect
import types
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tipchain.core.progress import Pace
from tipchain.errors import UsageError
from tipchain.explain.locate.differences import projections, projections_of_convolution, projections_of_product
from tipchain.explain.locate.rerun import as_float, buffers_of, changed_buffers, conditions, kept_buffers, run_backward
from tipchain.explain.locate.trace import (
    Store,
    Trace,
    TracedValue,
    Tracer,
    Twins,
    each_call,
    is_array,
    put_back,
    take_out,
)
from tipchain.framework_types import Array, Function, Loss, Model, Nested, Tensor
from tipchain.frameworks.base import like_sequence, map_nested
from tipchain.frameworks.live_models import LiveSide, Steps
from tipchain.frameworks.randomness import Draw, Draws

if TYPE_CHECKING:
    from tipchain.explain.locate.matching import LayerPair

LIBRARIES = ("torch", "paddle", "numpy", "builtins", "functools", "math", "tipchain")
"""Packages whose functions and objects hold no constants of a user's."""
DEPTH = 6
"""Depth to which a loss's objects are looked through."""
FEW = 2
"""Samples on which models are run again that differ: with one, code that mixes up samples would do nothing."""


class Precise:
    """A float64 loss, its own tensors cast; where it fails, outputs become float32.

    What it raises is what the loss raises in float64, if it raises in float32 too.

    Attributes:
        single: it has run in float32.
    """

    def __init__(self, side: LiveSide, loss: Loss) -> None:
        self._side, self._loss, self._wide = side, loss, in_double(side, loss)
        self.single = False

    def __call__(self, output: object, labels: object) -> Tensor:
        """Return the loss."""
        try:
            return self._wide(output, labels)
        except Exception as error:  # noqa: BLE001  (a user's loss may raise anything)
            try:
                found = self._loss(_single(self._side, output), _single(self._side, labels))
            except Exception:  # noqa: BLE001  (the same)
                raise error from None
            self.single = True
            return found


def in_double(side: LiveSide, loss: Loss) -> Loss:
    """Return a loss whose tensors are float64: a layer's, a closure's, those of an object; it is itself not changed."""
    widened: Loss = _Widening(side).of(loss, DEPTH)
    return widened


def _single(side: LiveSide, value: object) -> Nested:
    def single(tensor: Tensor) -> Tensor:
        if "float" not in str(tensor.dtype):
            return tensor
        return tensor.astype("float32") if hasattr(tensor, "astype") else tensor.float()

    structure, tensors, _ = take_out(value, side.is_tensor)
    return put_back(structure, [single(one) for one in tensors])


class _Widening:
    """Copies objects that hold tensors, each once; others stay themselves."""

    def __init__(self, side: LiveSide) -> None:
        self._side = side
        self._known: dict[int, tuple[object, object]] = {}

    def of(self, value: Nested, depth: int) -> Nested:
        """Return a value with its tensors of floats in float64."""
        if depth < 0 or isinstance(value, str | bytes | int | float | bool | None | type | types.ModuleType):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = value, value  # what refers to itself is not followed
            self._known[id(value)] = value, self._made(value, depth - 1)
        return self._known[id(value)][1]

    def _made(self, value: Nested, depth: int) -> Nested:
        if self._side.is_tensor(value):
            if "float" not in str(value.dtype) or "float64" in str(value.dtype):
                return value
            tensor = self._side.framework.widened(value.detach())
            takes = self._side.takes_gradient(value)
            return self._side.tensor(self._side.array(tensor), gradient=True) if takes else tensor
        if hasattr(value, "state_dict") and hasattr(value, "parameters"):
            layer = self._side.copied(value, double=True)
            for holder in (one for _, one in self._side.layers(layer)):  # tensors that it keeps as plain attributes
                for name, held in list(vars(holder).items()):
                    if not name.startswith(("_parameters", "_buffers", "_modules", "_sub_layers")):
                        other = self.of(held, depth) if self._side.is_tensor(held) or callable(held) else held
                        if other is not held:
                            object.__setattr__(holder, name, other)
            return layer
        held, build = _taken_apart(value)
        made = [self.of(one, depth) for one in held]
        return value if all(map(is_, held, made)) else build(made)


Built = tuple[Sequence[Nested], Callable[[Sequence[Nested]], object]]
"""The values that an object holds, and a function that makes one like it of others."""


def _taken_apart(value: Nested) -> Built:
    """Return what an object of a user's holds, and what builds another one."""
    if isinstance(value, types.MethodType):
        return [value.__self__], lambda made: types.MethodType(value.__func__, made[0])
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords], lambda made: partial(made[0], *made[1], **made[2])
    if type(value) in (list, tuple):
        return value, type(value)
    if type(value) is dict:
        return [*value.values()], lambda made: dict(zip(value, made, strict=True))
    if isinstance(value, types.FunctionType) and not of_library(value):
        return _function_apart(value)
    held = {} if of_library(type(value)) else getattr(value, "__dict__", {})

    def like(made: Sequence[Nested]) -> object:
        another = copy.copy(value)
        vars(another).update(zip(held, made, strict=True))
        return another

    return [*held.values()], like


def _function_apart(function: types.FunctionType) -> Built:
    """Return the values of a function's closure, of the global names that it uses, and its defaults; and what builds another one."""
    cells, world = function.__closure__ or (), function.__globals__
    inside = [None if one == types.CellType() else one.cell_contents for one in cells]  # reading an empty one raises
    names = [name for name in dict.fromkeys(names_in(function.__code__)) if name in world]

    def build(made: Sequence[Nested]) -> object:
        both = zip(cells, inside, made[: len(cells)], strict=True)
        closure = tuple(cell if one is other else types.CellType(other) for cell, one, other in both)
        *outside, defaults, named = made[len(cells) :]
        known = {**world, **dict(zip(names, outside, strict=True))}
        another = types.FunctionType(function.__code__, known, function.__name__, defaults, closure or None)
        another.__kwdefaults__ = named
        return another

    return [*inside, *(world[name] for name in names), function.__defaults__, function.__kwdefaults__], build


def of_library(value: object) -> bool:
    """Tell whether a function or a class is of a package of `LIBRARIES`."""
    return str(getattr(value, "__module__", "") or "builtins").partition(".")[0] in LIBRARIES


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that code, and functions made in it, may use."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from names_in(one)


Start = Callable[[Sequence[TracedValue], Sequence[str]], Sequence["Array | None"]]
"""Returns each output's gradient, given outputs and names; None: backward does not start there."""
ARGS, LABELS = "args", "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """Both models' inputs.

    An argument, or the labels, is an array, or arrays in tuples, lists and mappings.

    Attributes:
        args: the positional arguments of forward.
        kwargs: those given by name.
        labels: what the loss is given beside the output, or None.
        outputs: what of the reference's output counts, and of the port's (see `select`).
    """

    args: tuple[Nested, ...]
    kwargs: Mapping[str, Nested]
    labels: Nested = None
    outputs: tuple[object, object] = (None, None)

    def arrays(self) -> list[Array]:
        """Return the arrays of all arguments, in their order."""
        return arrays_of((self.args, self.kwargs))

    def each(self, change: Callable[[Array], Array]) -> ModelInputs:
        """Return the inputs with every array changed, those of the labels too."""
        given = self.args, self.kwargs, self.labels
        args, kwargs, labels = map_nested(lambda one: change(one) if isinstance(one, np.ndarray) else one, given)
        return replace(self, args=args, kwargs=kwargs, labels=labels)


def arrays_of(value: Nested) -> list[Array]:
    """Return the arrays in tuples, lists and mappings, in their order."""
    return take_out(value, is_array)[1]


def with_tensors(side: LiveSide, value: Nested, *, double: bool, gradient: bool = False) -> Nested:
    """Return arguments or labels with tensors in place of arrays, floats in float64 or float32; they may take gradients."""

    def tensor(one: object) -> object:
        if not isinstance(one, np.ndarray):
            return one
        made = side.tensor(as_float(one, double=double), gradient=gradient)
        return made.clone() if side.takes_gradient(made) else made  # a model may write to what it is given

    return map_nested(tensor, value)


def read_inputs(inputs: Mapping[str, object]) -> ModelInputs:
    """Return the inputs of a mapping: by the name of forward's argument, ``"args"`` and ``"labels"``.

    Each may be an array, or a tuple, list or mapping of arrays, which models and losses are given as it is.

    Raises:
        UsageError: nothing to call the models with, or something that is no array.
    """
    given = inputs.get(ARGS, ())
    args = given if isinstance(given, tuple | list) else (given,)
    kwargs = {name: value for name, value in inputs.items() if name not in (ARGS, LABELS)}
    if not args and not kwargs:
        raise UsageError("inputs are empty: nothing to call the models with")
    return ModelInputs(
        args=tuple(_read_nested(one, f"args[{number}]") for number, one in enumerate(args)),
        kwargs={name: _read_nested(one, name) for name, one in kwargs.items()},
        labels=_read_nested(inputs.get(LABELS), LABELS),
    )


def _read_nested(value: object, name: str) -> Nested:
    """Return a value with an array in place of whatever makes one; nested numbers are one array."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: _read_nested(one, f"{name}.{key}") for key, one in value.items()}
    if isinstance(value, tuple | list) and not _is_numbers(value):
        return like_sequence(value, [_read_nested(one, f"{name}.{key}") for key, one in enumerate(value)])
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise UsageError(f"inputs: {name} is a {type(value).__name__}, expected a numpy array of numbers, or several")
    return array


def _is_numbers(value: object) -> bool:
    if isinstance(value, tuple | list):
        sizes = {len(one) if isinstance(one, tuple | list) else -1 for one in value}
        return bool(value) and len(sizes) == 1 and all(map(_is_numbers, value))
    return isinstance(value, int | float | np.generic)


def samples_of(inputs: ModelInputs) -> int | None:
    """Return how many samples a batch has, by the first axis of the first input; None of a scalar."""
    arrays = inputs.arrays()
    return arrays[0].shape[0] if arrays and arrays[0].ndim else None


def few_of(inputs: ModelInputs) -> ModelInputs | None:
    """Return the first `FEW` samples of a batch; None where it has no more, or where something may not belong to samples."""
    count = samples_of(inputs)
    every = [*inputs.arrays(), *arrays_of(inputs.labels)]
    if count is None or count <= FEW or any(one.shape[:1] != (count,) for one in every):
        return None
    return inputs.each(lambda one: one[:FEW])


def bind(model: Model, inputs: ModelInputs) -> ModelInputs:
    """Return the inputs as this model's forward takes them: by name, or by position where it calls them otherwise."""
    parameters = inspect.signature(model.forward).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    if takes_any or all(name in parameters for name in inputs.kwargs):
        return inputs
    return replace(inputs, args=(*inputs.args, *inputs.kwargs.values()), kwargs={})


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeWeight:
    """A weight whose gradient costs more to hold than to project.

    Attributes:
        name: the path of the reference's layer, for the weights of both sides.
        path: the layer's.
        turned: whether the layer keeps the transpose of torch's matrix.
    """

    name: str
    path: str
    turned: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TracedRun:
    """A traced forward, and its backward if there was one.

    Attributes:
        trace: the calls.
        outputs: the arrays of the model's output, of what of it counts.
        values: the same as the trace has them.
        output_names: where they stood in the output.
        structure: the output with `Hole` in place of tensors.
        loss: the loss; None without one.
        draws: the random numbers that it drew.
        changed: the buffers that it changed, but for those of the frameworks' own norms.
        starts: returns what backward starts from at each output, None where it does not. Of an output that other code takes,
            too, that is a part of the gradient.
        projected: what is left of gradients that were freed as soon as they were known; see `LargeWeight`.
    """

    trace: Trace
    outputs: tuple[Array, ...]
    values: tuple[TracedValue, ...]
    output_names: tuple[str, ...]
    structure: Nested
    loss: float | None
    draws: Draws
    changed: tuple[str, ...] = ()
    starts: Callable[[], Sequence[Array | None]] = tuple
    projected: Mapping[str, Array] = field(default_factory=dict)


class TracedRuns(NamedTuple):
    """Both models' runs."""

    reference: TracedRun
    port: TracedRun

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """The calls of both."""
        return self.reference.trace, self.port.trace


def drawn_between(run: TracedRun, layers: Sequence[LayerPair], number: int) -> list[Draw | str]:
    """Return the draws of a run, and between them the paired layers that were called, by the reference's paths."""
    names = {(pair.port if number else pair.reference): pair.reference for pair in layers}
    places: dict[int, list[str]] = defaultdict(list)
    for call in run.trace.calls:
        if call.path in names:
            places[call.drawn.start].append(names[call.path])
    found: list[Draw | str] = []
    for at, draw in enumerate(run.draws.made):
        found += [*places[at], draw]
    return [*found, *places[len(run.draws.made)]]


def run_model(
    side: LiveSide,
    model: object,
    inputs: ModelInputs,
    store: Store,
    *,
    double: bool,
    seed: int,
    draws: Draws,
    loss: Loss | None = None,
    backward: bool = False,
    flows: bool = False,
    known: Twins | None = None,
    start: Start | None = None,
    pace: Pace | None = None,
    large: Sequence[LargeWeight] = (),
) -> TracedRun:
    """Run a model forward and backward, and record every call.

    Args:
        side: the model's framework.
        model: a model that may be changed: its gradients and running statistics are.
        inputs: what it is called with.
        store: where values go.
        double: whether floats are given in float64; the model must be in it too.
        loss: ``(output, labels) -> scalar``.
        seed: of what starts backward, and of numbers that ``draws`` does not reach.
        draws: random numbers.
        backward: whether to run backward.
        flows: whether inputs of floats take gradients, so that tensors tell whether they hand one on; without a backward.
        known: what the other model's run holds, if that was before.
        start: what backward starts from without a loss; random numbers of unit variance for every output if None.
        pace: how long it may take.
        large: weights of which projections of the gradients are held instead.

    Raises:
        OutOfTime: the time was up before the last layer began.
        Exception: whatever the user's model or loss raises.
    """
    bound = bind(model, inputs)
    held = buffers_of(side, model)
    with kept_buffers(side, model), conditions(side, double=double, seed=seed, draws=draws, gradient=backward or flows):
        tracer = Tracer(side, model, store, known, draws, pace)
        with each_call(side, model, tracer.enter, tracer.leave), _projecting(side, model, large) as projected:
            output = call_model(side, model, bound, double=double, gradient=flows)
            structure, tensors, names = take_out(output, side.is_tensor)
            value: Tensor = None
            if loss is not None:
                precise = Precise(side, loss) if double else loss
                value = precise(output, with_tensors(side, bound.labels, double=double))
            values = tuple(tracer.value(one) for one in tensors)

            def starts() -> Sequence[Array | None]:
                if loss is None:
                    return (start or partial(random_start, seed=seed))(values, names)
                # What the loss gives the outputs by itself; the whole gradients where it does not run so.
                with side.recording(gradient=True), suppress(Exception):  # whatever a user's loss raises
                    leaves = [side.tensor(store.get(one.stored), gradient=True) for one in values]
                    precise(put_back(structure, leaves), with_tensors(side, bound.labels, double=double)).backward()
                    return [None if one.grad is None else side.array(one.grad) for one in leaves]
                return [None if one.gradient is None else store.get(one.gradient) for one in values]

            projected.backward = True
            if backward and value is None:
                run_backward(side, tensors, starts(), double=double)
            elif backward and side.takes_gradient(value):
                value.backward()
        return TracedRun(
            trace=Trace(calls=tuple(tracer.calls)),
            outputs=tuple(side.array(one) for one in tensors),
            values=values,
            output_names=tuple(names),
            structure=structure,
            loss=None if value is None else float(side.array(value).reshape(())),
            draws=draws,
            changed=changed_buffers(held, buffers_of(side, model)),
            starts=starts,
            projected=projected.arrays,
        )


@dataclass(slots=True, eq=False)
class _Projected:
    """Projections of gradients by name, those of all uses added up, and whether backward runs from the run's own start."""

    arrays: dict[str, Array] = field(default_factory=dict)
    backward: bool = False


@contextmanager
def _projecting(side: LiveSide, model: Model, large: Sequence[LargeWeight]) -> Iterator[_Projected]:
    """Project large weights' gradients, and free backward's own, until the context ends."""
    found = _Projected()

    def take(one: LargeWeight, gradient: Array) -> None:
        found.arrays[one.name] = found.arrays.get(one.name, 0.0) + projections(gradient.T if one.turned else gradient)

    with ExitStack() as stack:
        layers = dict(side.layers(model)) if large else {}
        for one in large:
            layer = layers[one.path]
            weight = layer._parameters["weight"]  # noqa: SLF001  (both frameworks keep a layer's own ones so)
            stack.callback(side.hand_over(weight, partial(take, one)))
            steps = None if weight.ndim == 2 else side.steps(layer)
            if weight.ndim == 2 or steps is not None:
                stack.callback(_factored(side, layer, one.name, found, steps))
        yield found


def _factored(side: LiveSide, layer: Model, name: str, found: _Projected, steps: Steps | None) -> Callable[[], None]:
    """Have a layer's own calls give its weight no gradient, and find the projections that it would have, until the result is called.

    They are a product of the input and of the projected gradient of the output. The gradient itself costs as much memory
    as the weight, and a third of a run's time. Code that uses the weight elsewhere gives it its gradient as ever.
    """
    weight = layer._parameters["weight"]  # noqa: SLF001  (both frameworks keep a layer's own ones so)
    given: list[Tensor] = []

    def before(_: Model, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        given[:] = [one for one in (*args, *kwargs.values()) if side.is_tensor(one)]
        batched = steps is None or (bool(given) and given[0].ndim == weight.ndim)
        if len(given) == 1 and batched and side.takes_gradient(given[0]):  # else the output would take none
            layer._parameters["weight"] = weight.detach()  # noqa: SLF001

    def after(_: Model, output: Tensor) -> None:
        if layer._parameters["weight"] is not weight:  # noqa: SLF001
            layer._parameters["weight"] = weight  # noqa: SLF001
            side.on_gradient(output, partial(take, given[0], side.version(given[0])))
        given.clear()

    def take(value: Tensor, version: int, gradient: Tensor) -> None:
        both = side.view(gradient), side.view(value)
        kernel = tuple(weight.shape[2:])
        made = projections_of_product(*both) if steps is None else projections_of_convolution(*both, kernel, *steps)
        # A loss that runs backward itself may differentiate the gradients, and no product tells that.
        told = found.backward and side.version(value) == version
        found.arrays[name] = found.arrays.get(name, 0.0) + (made if told else np.full_like(made, np.inf))

    return side.watch(layer, before, after)


def call_model(side: LiveSide, model: Model, inputs: ModelInputs, *, double: bool, gradient: bool = False) -> object:
    """Return a model's result for bound inputs (see `bind`), in float64 or float32."""
    args, kwargs = with_tensors(side, (inputs.args, dict(inputs.kwargs)), double=double, gradient=gradient)
    made = model(*args, **kwargs)
    number = 0 if side.name == "torch" else 1
    return select(made, inputs.outputs[number], side.is_tensor, ("the reference", "the port")[number])


def select(output: Nested, chosen: object, is_tensor: Callable[[object], bool], whose: str) -> Nested:
    """Return the chosen part of a model's output.

    Args:
        output: what the model returned.
        chosen: a name or an index in it, a callable that is given it, a list of such, or None for all of it.
        is_tensor: tells a tensor, which has no names in it.
        whose: whose output it is.

    Raises:
        UsageError: it has nothing of that name.
    """
    if chosen is None:
        return output
    if isinstance(chosen, list):
        return tuple(select(output, one, is_tensor, whose) for one in chosen)
    if callable(chosen):
        return chosen(output)
    if is_tensor(output):
        found, has = _numbered([output]), "is one tensor"
    elif isinstance(output, Mapping):
        found = {**_numbered(list(output.values())), **output}
        has = f"has {', '.join(map(str, output))}"
    elif isinstance(output, tuple | list):
        found = {**_numbered(output), **dict(zip(getattr(output, "_fields", ()), output, strict=False))}
        has = f"has {len(output)} entries"
    else:
        found, has = {**getattr(output, "__dict__", {})}, f"is a {type(output).__name__}"
    if chosen not in found:
        raise UsageError(f"outputs: {whose}'s output has no {chosen!r}\n  found: it {has}")
    return found[chosen]


def _numbered(values: Sequence[object]) -> dict[object, object]:
    return {place: one for n, one in enumerate(values) for place in (n, n - len(values))}


def random_start(
    values: Sequence[TracedValue], names: Sequence[str], *, seed: int, only: Collection[int] | None = None
) -> list[Array | None]:
    """Return float32 random numbers of unit variance for each output of floats; ``only``: for those of these numbers."""
    del names
    normal: Function = partial(np.random.default_rng([seed, 1]).standard_normal, dtype=np.float32)
    drawn = [normal(one.shape) if one.dtype.kind == "f" else None for one in values]
    return [one if only is None or number in only else None for number, one in enumerate(drawn)]
