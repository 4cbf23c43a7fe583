"""Faults that are planted into a copy of a port, to see whether they would be caught.

Each is a mistake that ports are known for, as small as it usually is: nothing here makes a model fall over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Plant = Callable[[Any], None]
Builder = Callable[..., Any]
LAYER, LOSS, OPTIMIZER, SCHEDULE = "layer", "loss", "optimizer", "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that can be planted.

    Attributes:
        code: its slug, as diagnoses have it.
        piece: what it is planted into: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"schedule"``.
        port_path: the layer; empty for the other pieces.
        what: what is changed, in words.
        plant: changes a copy of the layer, given the model's copy and the path; or returns another builder or loss.
    """

    code: str
    piece: str
    port_path: str
    what: str
    plant: Callable[[Any], Any]


def faults_of(port: Any, *, loss: bool = False, optimizer: Any = None, schedule: bool = False) -> list[Fault]:
    """Return the faults that can be planted into a Paddle layer and what trains it.

    Args:
        port: the ``paddle.nn.Layer``; it is not changed.
        loss: whether there is a loss.
        optimizer: its optimizer, over a copy; None without one.
        schedule: whether there is a schedule.
    """
    found: list[Fault] = []
    for path, layer in port.named_sublayers(include_self=True):
        found += (
            Fault(code=code, piece=LAYER, port_path=path, what=what, plant=plant)
            for code, what, plant in _of_layer(layer, path)
        )
    if loss:
        found += _of_loss()
    if optimizer is not None:
        found += (one for one in _of_optimizer(optimizer) if not (schedule and one.code == "learning-rate"))
    if schedule:
        found += (
            Fault(code=code, piece=SCHEDULE, port_path="", what=what, plant=_rescheduled(change))
            for code, what, change in (
                ("shift", "the schedule is a step ahead", lambda one: one.step()),
                ("learning-rate", "the learning rate is 1 % higher", _faster),
            )
        )
    return found


def choose(faults: Sequence[Fault], most: int) -> list[Fault]:
    """Return at most ``most`` faults: of every code in turn, from layers spread evenly over the model."""
    by_code: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_code[fault.code].append(fault)
    spread = [_spread(one) for one in by_code.values()]
    chosen = [
        one
        for turn in range(max(map(len, spread), default=0))
        for kind in spread
        for one in kind[turn : turn + 1]
    ]
    kept = {id(one) for one in chosen[:most]}
    return [one for one in faults if id(one) in kept]


def _spread(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults in an order whose beginnings are spread over them: the middle, the ends, then between."""
    count = len(faults)
    order = [count // 2, 0, count - 1, count // 4, 3 * count // 4, *range(count)]
    return [faults[number] for number in dict.fromkeys(order) if number < count]


def _of_layer(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    """Yield code, words and planting of what one layer can have wrong."""
    from paddle import nn

    kinds: tuple[tuple[Any, Callable[[Any, str], Iterator[tuple[str, str, Plant]]]], ...] = (
        ((nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D), _of_batch_norm),
        ((nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1D, nn.InstanceNorm2D, nn.InstanceNorm3D), _of_norm),
        ((nn.Linear, nn.Conv1D, nn.Conv2D, nn.Conv3D), _of_weights),
        ((nn.ReLU, nn.GELU, nn.Silu, nn.Hardswish, nn.Tanh, nn.Sigmoid, nn.ReLU6), _of_activation),
        ((nn.MaxPool2D, nn.AvgPool2D), _of_pool),
        (nn.Dropout, _of_dropout),
        (nn.Embedding, _of_embedding),
        ((nn.LSTM, nn.GRU), _of_recurrent),
        (nn.MultiHeadAttention, _of_attention),
    )
    for types, faults in kinds:
        if isinstance(layer, types):
            yield from faults(layer, path)


def _at(path: str, change: Callable[[Any], None]) -> Plant:
    """Return what changes the layer at ``path`` of a model."""

    def plant(model: Any) -> None:
        change(dict(model.named_sublayers(include_self=True))[path])

    return plant


def _set(path: str, name: str, value: Any) -> Plant:
    return _at(path, lambda layer: setattr(layer, name, value))


def _replace(path: str, made: Callable[[], Any]) -> Plant:
    """Return what puts another layer in the place of the one at ``path``."""

    def plant(model: Any) -> None:
        above, _, name = path.rpartition(".")
        holder = dict(model.named_sublayers(include_self=True))[above]
        holder._sub_layers[name] = made()  # noqa: SLF001
        model.train() if model.training else model.eval()

    return plant


def _write(path: str, name: str, change: Callable[[Any], Any]) -> Plant:
    """Return what changes a tensor of the layer at ``path``."""

    def plant(layer: Any) -> None:
        tensor = getattr(layer, name)
        tensor.set_value(np.ascontiguousarray(change(tensor.numpy())))

    return _at(path, plant)


def _of_batch_norm(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    epsilon, momentum = layer._epsilon, layer._momentum  # noqa: SLF001
    yield (
        "epsilon",
        f"epsilon {epsilon * 100:g} instead of {epsilon:g}",
        _set(path, "_epsilon", epsilon * 100),
    )
    yield "momentum", f"momentum {1 - momentum:g}, as torch counts it", _set(path, "_momentum", 1 - momentum)


def _of_norm(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    epsilon = layer._epsilon  # noqa: SLF001
    yield "epsilon", f"epsilon {epsilon * 10:g} instead of {epsilon:g}", _set(path, "_epsilon", epsilon * 10)


def _of_weights(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    shape = tuple(layer.weight.shape)
    if shape[0] == shape[1]:
        yield (
            "transposed-weight",
            "its square weight is transposed",
            _write(path, "weight", lambda array: array.swapaxes(0, 1)),
        )
    yield (
        "scaled-weight",
        "its weight is 0.1 % larger",
        _write(path, "weight", lambda array: array * np.float32(1.001)),
    )
    yield "wrong-elements", "one element of its weight is another", _write(path, "weight", _one_element)
    if layer.bias is not None and float(abs(layer.bias).max()) > 0:
        yield "missing-bias", "its bias is zero", _write(path, "bias", np.zeros_like)
    yield (
        "frozen-parameters",
        "its weight is frozen",
        _at(path, lambda one: setattr(one.weight, "stop_gradient", True)),
    )


def _one_element(array: Any) -> Any:
    changed = np.array(array)
    changed.reshape(-1)[array.size // 2] += np.abs(array).mean()
    return changed


def _of_activation(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    from paddle import nn

    if not path:
        return
    yield "missing-activation", "it is left out", _replace(path, nn.Identity)
    if isinstance(layer, nn.GELU):
        other = not layer._approximate  # noqa: SLF001
        yield "gelu-form", f"approximate={other}", _replace(path, lambda: nn.GELU(approximate=other))
    else:
        made = nn.GELU if isinstance(layer, nn.ReLU) else nn.ReLU
        yield "other-activation", f"{made.__name__} instead of {type(layer).__name__}", _replace(path, made)


def _of_pool(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    from paddle import nn

    if not path:
        return
    kernel, stride, padding = layer.ksize, layer.stride, layer.padding
    largest = isinstance(layer, nn.MaxPool2D)
    made = nn.AvgPool2D if largest else nn.MaxPool2D

    def other() -> Any:
        return made(kernel, stride, padding, ceil_mode=layer.ceil_mode)

    yield "pooling", f"{made.__name__} instead of {type(layer).__name__}", _replace(path, other)


def _of_dropout(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    if isinstance(layer.p, float) and 0 < layer.p < 1:
        yield "dropout-p", f"p={layer.p / 2:g} instead of {layer.p:g}", _set(path, "p", layer.p / 2)
        yield "dropout-mode", "mode downscale_in_infer", _set(path, "mode", "downscale_in_infer")


def _of_embedding(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:  # noqa: ARG001
    yield "row-order", "its rows are one off", _write(path, "weight", lambda array: np.roll(array, 1, 0))


def _of_recurrent(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    gates = 4 if type(layer).__name__ == "LSTM" else 3

    def swap(one: Any) -> None:
        for name, tensor in one.named_parameters():
            if "weight" in name or "bias" in name:
                parts = np.split(tensor.numpy(), gates)
                tensor.set_value(np.concatenate([parts[1], parts[0], *parts[2:]]))

    yield "gate-order", "its first two gates are swapped", _at(path, swap)


def _of_attention(layer: Any, path: str) -> Iterator[tuple[str, str, Plant]]:
    if tuple(layer.q_proj.weight.shape) != tuple(layer.k_proj.weight.shape):
        return

    def swap(one: Any) -> None:
        first, second = one.q_proj.weight.numpy(), one.k_proj.weight.numpy()
        one.q_proj.weight.set_value(second)
        one.k_proj.weight.set_value(first)

    yield "swapped-qkv", "its weights of queries and keys are swapped", _at(path, swap)


def _of_loss() -> Iterator[Fault]:
    def scaled(loss: Builder) -> Builder:
        return lambda output, label: loss(output, label) * 1.01

    yield Fault(code="scale", piece=LOSS, port_path="", what="the loss is 1 % larger", plant=scaled)


def _of_optimizer(built: Any) -> Iterator[Fault]:
    def changed(change: Callable[[Any], None]) -> Callable[[Builder], Builder]:
        def plant(builder: Builder) -> Builder:
            from functools import wraps

            @wraps(builder)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                optimizer = builder(*args, **kwargs)
                change(optimizer)
                return optimizer

            return wrapped

        return plant

    def faster(optimizer: Any) -> None:
        rate = optimizer._learning_rate  # noqa: SLF001
        if isinstance(rate, float):
            optimizer.set_lr(rate * 1.01)
        else:
            _faster(rate)

    def undecayed(optimizer: Any) -> None:
        from paddle.regularizer import L2Decay

        optimizer._coeff = 0.0  # noqa: SLF001  (AdamW's)
        for parameter in optimizer._parameter_list:  # noqa: SLF001
            parameter.regularizer = L2Decay(0.0)

    decays = getattr(built, "_coeff", 0.0) or built.regularization is not None
    faults = [("learning-rate", "the learning rate is 1 % higher", faster)]
    if decays and not isinstance(built._parameter_list[0], dict):  # noqa: SLF001
        faults.append(("weight-decay", "there is no weight decay", undecayed))
    for code, what, change in faults:
        yield Fault(code=code, piece=OPTIMIZER, port_path="", what=what, plant=changed(change))


def _faster(schedule: Any) -> None:
    schedule.base_lr *= 1.01
    schedule.last_lr *= 1.01


def _rescheduled(change: Callable[[Any], Any]) -> Callable[[Builder], Builder]:
    """Return what makes a builder's schedules be changed once they are built."""

    def plant(builder: Builder) -> Builder:
        from functools import wraps

        @wraps(builder)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            schedule = builder(*args, **kwargs)
            change(schedule)
            return schedule

        return wrapped

    return plant
