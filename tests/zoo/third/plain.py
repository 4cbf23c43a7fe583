"""What a pair gives in plain numpy: outputs, gradients, buffers, updates, samples and metrics, and how far they are off.

Nothing of tipchain takes part, so that the list of faults stands on its own feet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch  # before paddle
from paddle.nn import functional as paddle_functional
from torch.nn import functional as torch_functional

from zoo.third.planting import ThirdPair, load, pair

ITERATIONS = 5
SEEN = 1e-6
"""What a fault must change at least, of the largest number."""
ROUNDING = 1e-8
FLOAT32 = 1e-5


def _kept(shape: tuple[int, ...], p: float) -> np.ndarray:
    return np.modf(np.arange(int(np.prod(shape))) * 0.6180339887)[0].reshape(shape) >= p


@contextlib.contextmanager
def equal_masks() -> Iterator[None]:
    """Let both frameworks drop the same elements."""

    def theirs(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or p == 0:
            return x
        return x * torch.from_numpy(_kept(tuple(x.shape), p)).to(x.dtype) / (1 - p)

    def ours(
        x: Any, p: float = 0.5, axis: Any = None, training: bool = True, mode: str = "upscale_in_train", **_: Any
    ) -> Any:
        if not training:
            return x * (1 - p) if mode == "downscale_in_infer" else x
        shape = tuple(x.shape)
        if axis is not None:
            axes = (axis,) if isinstance(axis, int) else tuple(axis)
            shape = tuple(size if number in axes else 1 for number, size in enumerate(shape))
        dropped = x * paddle.to_tensor(_kept(shape, p)).astype(x.dtype)
        return dropped / (1 - p) if mode == "upscale_in_train" else dropped

    def their_maps(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return x * theirs(x.new_ones(*x.shape[:2], 1, 1), p, training)

    def our_maps(x: Any, p: float = 0.5, training: bool = True, **_: Any) -> Any:
        return ours(x, p, [0, 1], training)

    patches = (
        (torch_functional, {"dropout": theirs, "dropout2d": their_maps}),
        (paddle_functional, {"dropout": ours, "dropout2d": our_maps}),
    )
    with contextlib.ExitStack() as stack:
        for module, functions in patches:
            stack.enter_context(mock.patch.multiple(module, **functions))
        yield


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [one for key in sorted(value) for one in _tensors(value[key])]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part)]
    return [value]


def _array(value: Any) -> np.ndarray:
    return np.array(value.detach().numpy() if hasattr(value, "detach") else value)


def _fed(make: Any, inputs: Mapping[str, Any], double: bool) -> tuple[list[Any], Any]:
    arrays = [one.astype("float64") if double and one.dtype == np.float32 else one for one in inputs["args"]]
    tensors = [make(one.copy()) for one in arrays]
    labels = inputs.get("labels")
    if isinstance(labels, tuple):
        return tensors, tuple(
            make(one.astype("float64") if double and one.dtype == np.float32 else one) for one in labels
        )
    if labels is not None:
        labels = make(labels.astype("float64") if double and labels.dtype == np.float32 else labels)
    return tensors, labels


def measure(pair: ThirdPair, convert: Any, *, double: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the reference and the port give, by equal names.

    Args:
        pair: the pair.
        convert: what gives the reference's values the port's names and shapes.
        double: whether the models hold float64.
    """
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    with equal_masks():
        given = _fed(torch.from_numpy, pair.inputs, double)
        paddle_given = _fed(paddle.to_tensor, pair.inputs, double)
        output = _passed(pair, given, paddle_given, theirs, ours)
        theirs |= _gradients(pair.reference, convert)
        ours |= {
            f"gradient {name}": np.zeros(one.shape) if one.grad is None else one.grad.numpy().copy()
            for name, one in pair.port.named_parameters()
        }
        theirs |= _state(pair.reference, convert, "after one pass")
        ours |= {f"after one pass {name}": one.numpy() for name, one in pair.port.state_dict().items()}
        if pair.optimizers is not None:
            pair.reference.zero_grad()
            pair.port.clear_gradients()
            for side, step, named in zip(
                (theirs, ours), _train(pair, given, paddle_given), (convert, dict), strict=True
            ):
                for name, held in vars(step).items() if pair.step is not None else ():
                    if isinstance(held, Mapping):
                        side |= {
                            f"kept {name} {key}": one
                            for key, one in named({k: _array(v) for k, v in held.items()}).items()
                        }
            theirs |= _state(pair.reference, convert, "trained")
            ours |= {f"trained {name}": one.numpy() for name, one in pair.port.state_dict().items()}
    for number, sample in enumerate(pair.samples or ()):
        for side, transform in ((theirs, pair.data[0]), (ours, pair.data[1])):
            for part, one in enumerate(_tensors(transform(sample))):
                side[f"sample {number} {part}"] = _array(one)
    if pair.metrics is not None:
        arrays = [_array(one) for one in _tensors(output)]
        outputs = arrays if isinstance(output, tuple | list) else arrays[0]
        for side, metric in ((theirs, pair.metrics[0]), (ours, pair.metrics[1])):
            side["metric"] = np.array(_tensors(metric(outputs, pair.inputs["labels"])))
    return theirs, ours


def _passed(pair: ThirdPair, given: Any, paddle_given: Any, theirs: dict[str, Any], ours: dict[str, Any]) -> Any:
    """Run both models forward and backward, note outputs, loss and gradients of inputs, return torch's output."""
    (xs, labels), (ys, paddle_labels) = given, paddle_given
    for one in xs:
        one.requires_grad_(one.is_floating_point())
    for one in ys:
        one.stop_gradient = "float" not in str(one.dtype)
    output, paddle_output = pair.reference(*xs), pair.port(*ys)
    for side, outputs in ((theirs, output), (ours, paddle_output)):
        for number, one in enumerate(_tensors(outputs)):
            side[f"output {number}"] = _array(one)
    if pair.loss is not None:
        value, paddle_value = pair.loss[0](output, labels), pair.loss[1](paddle_output, paddle_labels)
        theirs["loss"], ours["loss"] = _array(value), _array(paddle_value)
    else:
        value = sum(
            (one * (torch.arange(one.numel(), dtype=one.dtype).reshape(one.shape) * 0.37 + 1).sin()).sum()
            for one in _tensors(output)
            if one.requires_grad
        )
        paddle_value = sum(
            (one * (paddle.arange(one.size).astype(one.dtype).reshape(one.shape) * 0.37 + 1).sin()).sum()
            for one in _tensors(paddle_output)
            if not one.stop_gradient
        )
    value.backward()
    paddle_value.backward()
    for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if x.is_floating_point():
            for side, one in ((theirs, x), (ours, y)):
                side[f"input gradient {number}"] = np.zeros(x.shape) if one.grad is None else one.grad.numpy().copy()
    return output


def _gradients(model: Any, convert: Any) -> dict[str, np.ndarray]:
    values = {name: np.zeros(one.shape, str(one.dtype)[6:]) for name, one in model.state_dict().items()}
    held = {name for name, _ in model.named_parameters()}
    for name, one in model.named_parameters():
        if one.grad is not None:
            values[name] = one.grad.numpy().copy()
    named = convert(values)
    unlearned = convert(
        {name: np.full(one.shape, np.nan) for name, one in values.items() if name in held}
        | {name: one for name, one in values.items() if name not in held}
    )
    return {f"gradient {name}": one for name, one in named.items() if np.isnan(unlearned[name]).any()}


def _state(model: Any, convert: Any, when: str) -> dict[str, np.ndarray]:
    values = convert({name: one.detach().numpy().copy() for name, one in model.state_dict().items()})
    return {f"{when} {name}": one for name, one in values.items()}


def _train(pair: ThirdPair, given: tuple[Any, Any], paddle_given: tuple[Any, Any]) -> tuple[Any, Any]:
    """Train both models and return what took the steps."""
    optimizer = pair.optimizers[0](list(pair.reference.parameters()))
    if pair.schedulers is not None:
        scheduler, paddle_scheduler = pair.schedulers[0](optimizer), pair.schedulers[1]()
        paddle_optimizer = pair.optimizers[1](list(pair.port.parameters()), paddle_scheduler)
    else:
        paddle_optimizer = pair.optimizers[1](list(pair.port.parameters()))
    if pair.step is not None:
        steps = pair.step[0](pair.reference, optimizer), pair.step[1](pair.port, paddle_optimizer)
        for one, (args, labels) in zip(steps, (given, paddle_given), strict=True):
            for _ in range(ITERATIONS):
                one({"args": args[0] if len(args) == 1 else args, "labels": labels})
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
        if pair.schedulers is not None:
            scheduler.step()
            paddle_scheduler.step()
    return optimizer, paddle_optimizer


def distances(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    """Return by name how far two sides are off, relative to the largest number; infinite where shapes differ."""
    off = {}
    steepest = max(
        (float(np.abs(one).max(initial=0)) for name, one in theirs.items() if name.startswith("gradient")), default=0
    )
    for name in theirs.keys() | ours.keys():
        if name not in theirs or name not in ours:
            if name.startswith(("sample", "metric")):
                off[name] = float("inf")
            continue
        one, other = np.asarray(theirs[name]), np.asarray(ours[name])
        if one.shape != other.shape and not (one.size == other.size == 1):
            off[name] = float("inf")
            continue
        one, other = one.astype("float64").ravel(), other.astype("float64").ravel()
        gap = np.abs(one - other)
        scale = max(float(np.abs(one).max(initial=0)), 1e-3 * steepest if "gradient" in name else 1e-6)
        off[name] = float("inf") if not np.isfinite(gap).all() else float(gap.max(initial=0)) / scale
    return off


def converter(family: str) -> Any:
    """Return what gives the reference's values the names and shapes of the family's port."""
    return load(f"{family}_paddle").convert


def fault_gaps(fault: Any) -> dict[str, float]:
    """Return what a fault changes in float64, by name, beyond what its family's equal pair is off."""
    from zoo.third.faults import planted

    convert = converter(fault.family)
    sound = distances(*measure(pair(fault.family, double=True, **fault.how), convert, double=True))
    faulty = distances(*measure(planted(fault, double=True), convert, double=True))
    return {name: gap for name, gap in faulty.items() if gap > max(SEEN, 2 * sound.get(name, 0))}


def clean_gaps(clean: Any) -> dict[str, float]:
    """Return what is off in an equal pair beyond rounding.

    Paddle's linear interpolation has its ratio, and its BatchNorm momentum and epsilon, in float32 whatever the dtype,
    and its variance of a batch is divided by n where torch's is by n - 1; samples are float32.
    """
    convert = load(f"{clean.family}_paddle", clean.port_edits).convert
    gaps = distances(*measure(clean.build(double=True), convert, double=True))
    training = clean.how.get("training", False)
    allowed = FLOAT32 if clean.family == "unet" else ROUNDING * (10 if training else 1)
    off = {}
    for name, gap in gaps.items():
        if training and name.endswith("._variance"):
            continue
        single = name.startswith("sample") or name.endswith("._mean") or "smooths" in clean.id
        if not gap <= (FLOAT32 if single else allowed):
            off[name] = gap
    return off


def first_changed(fault: Any) -> str | None:
    """Return the first layer of the faulty port that gives something else than the sound one of the same inputs."""
    from zoo.third.faults import planted

    return first_apart(pair(fault.family, double=True, **fault.how), planted(fault, double=True))


def first_apart(sound: ThirdPair, faulty: ThirdPair) -> str | None:
    """Return the first layer of one pair's port that gives something else than the other's of the same inputs."""
    calls: dict[str, list[Any]] = {}
    for path, given, gave in _calls(sound.port, sound.inputs):
        calls.setdefault(path, []).append((given, gave))
    for path, given, gave in _calls(faulty.port, faulty.inputs):
        if calls.get(path):
            inputs, outputs = calls[path].pop(0)
            if _equal(given, inputs) and not _equal(gave, outputs):
                return path
    return None


def _calls(port: Any, inputs: Mapping[str, Any]) -> list[tuple[str, list[Any], list[Any]]]:
    calls: list[tuple[str, list[Any], list[Any]]] = []
    given: list[list[Any]] = []

    def copies(values: Any) -> list[Any]:
        return [np.array(one.numpy()) for one in _tensors(values) if hasattr(one, "numpy")]

    def before(_: Any, values: Any) -> None:
        given.append(copies(list(values)))

    def after(path: str) -> Any:
        return lambda _, __, outputs: calls.append((path, given.pop(), copies(outputs)))

    for path, one in port.named_sublayers(include_self=True):
        one.register_forward_pre_hook(before)
        one.register_forward_post_hook(after(path))
    with equal_masks():
        port(*_fed(paddle.to_tensor, inputs, double=True)[0])
    return calls


def _equal(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-12)
        for one, other in zip(some, others, strict=True)
    )
