"""What a pair gives in plain numpy, in float64, without tipchain: how far outputs, gradients, updates, samples and metrics are off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch
from paddle.nn import functional as paddle_functional
from torch.nn import functional as torch_functional

from zoo.planting import Pair, load

ITERATIONS = 5
SEEN = 1e-6
"""What a fault must change at least, of the largest number."""
SINGLE = 1e-6
"""What constants amount to that Paddle keeps in float32: a slope, a smoothing, rates."""
FLOAT32 = 1e-5
SHOWN_BY = {"loss": ("loss", "gradient"), "data": "sample", "metric": "metric", "step": ("trained", "kept")}
"""The numbers that a fault of a part must change; of other parts any."""


def fault_gaps(fault: Any) -> dict[str, float]:
    """Return what a fault changes, by name, beyond what its sound pair is off."""
    convert = load(f"{fault.family}_paddle").convert
    allowed = distances(*measure(fault.sound(), convert))
    faulty = distances(*measure(fault.build(double=True), convert))
    shown = {name: gap for name, gap in faulty.items() if name.startswith(SHOWN_BY.get(fault.part, ""))}
    return {name: gap for name, gap in shown.items() if gap > max(SEEN, 2 * allowed.get(name, 0))}


def equal_gaps(equal: Any) -> dict[str, float]:
    """Return what is off in an equal pair beyond rounding.

    Paddle has the ratio of linear interpolation in float32 whatever the dtype, and divides a batch's variance by n.
    """
    convert = load(f"{equal.family}_paddle", equal.port_edits).convert
    off = {}
    for name, gap in distances(*measure(equal.build(double=True), convert)).items():
        single = equal.family == "unet" or name.startswith("sample") or name.endswith("._mean")
        if not name.endswith("._variance") and not gap <= (FLOAT32 if single else SINGLE):
            off[name] = gap
    return off


def measure(pair: Pair, convert: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the reference and the port give, by equal names.

    Args:
        pair: the pair, which holds float64.
        convert: what gives the reference's values the port's names and shapes.
    """
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    with equal_masks():
        given, paddle_given = _fed(torch.from_numpy, pair.inputs), _fed(paddle.to_tensor, pair.inputs)
        output = _pass(pair, given, paddle_given, theirs, ours)
        theirs |= _gradients(pair.reference, convert)
        ours |= {
            f"gradient {name}": np.zeros(parameter.shape) if parameter.grad is None else _array(parameter.grad)
            for name, parameter in pair.port.named_parameters()
        }
        theirs |= _state(pair.reference, convert, "after one pass")
        ours |= _state(pair.port, dict, "after one pass")
        if pair.optimizers is not None:
            pair.reference.zero_grad()
            pair.port.clear_gradients()
            steps = _train(pair, given, paddle_given)
            for side, step, named in zip((theirs, ours), steps, (convert, dict), strict=True):
                for name, kept in vars(step).items() if pair.step is not None else ():
                    if isinstance(kept, Mapping):
                        values = named({key: _array(value) for key, value in kept.items()})
                        side.update({f"kept {name} {key}": value for key, value in values.items()})
            theirs |= _state(pair.reference, convert, "trained")
            ours |= _state(pair.port, dict, "trained")
    for number, sample in enumerate(pair.samples or ()):
        for side, transform in zip((theirs, ours), pair.data, strict=True):
            side |= {f"sample {number} {part}": _array(value) for part, value in enumerate(_tensors(transform(sample)))}
    if pair.metrics is not None:
        arrays = [_array(value) for value in _tensors(output)]
        outputs = arrays if isinstance(output, tuple | list) else arrays[0]
        for side, metric in zip((theirs, ours), pair.metrics, strict=True):
            side["metric"] = np.array(_tensors(metric(outputs, pair.inputs["labels"])))
    return theirs, ours


def distances(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    """Return by name how far two sides are off, relative to the largest number; infinite where shapes differ."""
    off = {}
    steepest = max((np.abs(value).max(initial=0) for name, value in theirs.items() if name.startswith("gradient")))
    for name in theirs.keys() | ours.keys():
        if name not in theirs or name not in ours:
            if name.startswith(("sample", "metric")):
                off[name] = float("inf")
            continue
        expected, actual = np.asarray(theirs[name]), np.asarray(ours[name])
        if expected.shape != actual.shape and not (expected.size == actual.size == 1):
            off[name] = float("inf")
            continue
        expected, actual = expected.astype("float64").ravel(), actual.astype("float64").ravel()
        gap = np.abs(expected - actual)
        scale = max(float(np.abs(expected).max(initial=0)), 1e-3 * steepest if "gradient" in name else 1e-6)
        off[name] = float("inf") if not np.isfinite(gap).all() else float(gap.max(initial=0)) / scale
    return off


@contextlib.contextmanager
def equal_masks() -> Iterator[None]:
    """Let both frameworks drop the same elements."""

    def kept(shape: tuple[int, ...], p: float) -> np.ndarray:
        return np.modf(np.arange(int(np.prod(shape))) * 0.6180339887)[0].reshape(shape) >= p

    def theirs(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return x * torch.from_numpy(kept(tuple(x.shape), p)).to(x.dtype) / (1 - p) if training and p else x

    def ours(
        x: Any, p: float = 0.5, axis: Any = None, training: bool = True, mode: str = "upscale_in_train", **_: Any
    ) -> Any:
        if not training:
            return x * (1 - p) if mode == "downscale_in_infer" else x
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        shape = tuple(size if number in axes else 1 for number, size in enumerate(x.shape))
        dropped = x * paddle.to_tensor(kept(shape, p)).astype(x.dtype)
        return dropped / (1 - p) if mode == "upscale_in_train" else dropped

    def their_maps(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return x * theirs(x.new_ones(*x.shape[:2], 1, 1), p, training)

    def our_maps(x: Any, p: float = 0.5, training: bool = True, **_: Any) -> Any:
        return ours(x, p, [0, 1], training)

    with (
        mock.patch.multiple(torch_functional, dropout=theirs, dropout2d=their_maps),
        mock.patch.multiple(paddle_functional, dropout=ours, dropout2d=our_maps),
    ):
        yield


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [tensor for key in sorted(value) for tensor in _tensors(value[key])]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value]


def _array(value: Any) -> np.ndarray:
    return np.array(value.detach().numpy() if hasattr(value, "detach") else value)


def _fed(make: Any, inputs: Mapping[str, Any]) -> tuple[list[Any], Any]:
    def tensor(array: np.ndarray) -> Any:
        return make(array.astype("float64") if array.dtype == np.float32 else array.copy())

    labels = inputs.get("labels")
    made = tuple(map(tensor, labels)) if isinstance(labels, tuple) else None if labels is None else tensor(labels)
    return [tensor(array) for array in inputs["args"]], made


def _pass(pair: Pair, given: Any, paddle_given: Any, theirs: dict[str, Any], ours: dict[str, Any]) -> Any:
    """Run both models forward and backward, note outputs, loss and gradients of inputs, return torch's output."""
    (xs, labels), (ys, paddle_labels) = given, paddle_given
    for x, y in zip(xs, ys, strict=True):
        x.requires_grad_(x.is_floating_point())
        y.stop_gradient = not x.is_floating_point()
    output, paddle_output = pair.reference(*xs), pair.port(*ys)
    for side, outputs in ((theirs, output), (ours, paddle_output)):
        side |= {f"output {number}": _array(value) for number, value in enumerate(_tensors(outputs))}
    if pair.loss is not None:
        value, paddle_value = pair.loss[0](output, labels), pair.loss[1](paddle_output, paddle_labels)
        theirs["loss"], ours["loss"] = _array(value), _array(paddle_value)
    else:
        weights = [np.sin(np.arange(tensor.numel()) * 0.37 + 1).reshape(tensor.shape) for tensor in _tensors(output)]
        value = sum(
            (tensor * torch.from_numpy(weight)).sum()
            for tensor, weight in zip(_tensors(output), weights, strict=True)
            if tensor.requires_grad
        )
        paddle_value = sum(
            (tensor * paddle.to_tensor(weight)).sum()
            for tensor, weight in zip(_tensors(paddle_output), weights, strict=False)
            if not tensor.stop_gradient
        )
    value.backward()
    paddle_value.backward()
    for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if x.is_floating_point():
            for side, tensor in ((theirs, x), (ours, y)):
                gradient = np.zeros(x.shape) if tensor.grad is None else _array(tensor.grad)
                side[f"gradient of input {number}"] = gradient
    return output


def _gradients(model: Any, convert: Any) -> dict[str, np.ndarray]:
    values = {name: np.zeros(value.shape, str(value.dtype)[6:]) for name, value in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    marked = values | {name: np.full(parameter.shape, np.nan) for name, parameter in parameters.items()}
    values |= {name: _array(one.grad) for name, one in parameters.items() if one.grad is not None}
    learned = {name for name, value in convert(marked).items() if np.isnan(value).any()}
    return {f"gradient {name}": value for name, value in convert(values).items() if name in learned}


def _state(model: Any, convert: Any, when: str) -> dict[str, np.ndarray]:
    values = convert({name: _array(value) for name, value in model.state_dict().items()})
    return {f"{when} {name}": value for name, value in values.items()}


def _train(pair: Pair, given: tuple[Any, Any], paddle_given: tuple[Any, Any]) -> tuple[Any, Any]:
    """Train both models and return what took the steps."""
    optimizer = pair.optimizers[0](list(pair.reference.parameters()))
    schedulers = () if pair.schedulers is None else (pair.schedulers[0](optimizer), pair.schedulers[1]())
    paddle_optimizer = pair.optimizers[1](list(pair.port.parameters()), *schedulers[1:])
    if pair.step is not None:
        steps = pair.step[0](pair.reference, optimizer), pair.step[1](pair.port, paddle_optimizer)
        for step, (args, labels) in zip(steps, (given, paddle_given), strict=True):
            for _ in range(ITERATIONS):
                step({"args": args[0] if len(args) == 1 else args, "labels": labels})
        return steps
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        pair.loss[0](pair.reference(*given[0]), given[1]).backward()
        if pair.clip is not None:
            pair.clip(pair.reference.parameters())
        optimizer.step()
        paddle_optimizer.clear_grad()
        pair.loss[1](pair.port(*paddle_given[0]), paddle_given[1]).backward()
        paddle_optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return optimizer, paddle_optimizer
