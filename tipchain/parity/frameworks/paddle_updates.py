"""Paddle's parameters under an optimizer, with gradients from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paddle import nn

from tipchain.conversion.layouts import assemble, divide
from tipchain.conversion.paddle_side import torch_view
from tipchain.parity.frameworks.base import Array, Builder
from tipchain.parity.optimizers import make_optimizer, rate_factor


class Layers(nn.Layer):  # type: ignore[misc]
    """One layer of every kind that optimizers' rules tell apart; it is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)
        self.bn = nn.BatchNorm2D(4)
        self.embedding = nn.Embedding(7, 5)
        self.norm = nn.LayerNorm(5)
        self.linear = nn.Linear(5, 6)
        self.head = nn.Linear(6, 3)


def build_layers() -> nn.Layer:
    """Return the small model."""
    return Layers()


class PaddleUpdates:
    """The parameters of a Paddle layer."""

    def __init__(self, framework: Any, model: nn.Layer, optimizer: Any, names: Mapping[str, str]) -> None:
        self.framework, self.optimizer = framework, optimizer
        self.slots = [slot for slot in torch_view(model, names) if slot.kind == "parameter"]
        self.rate = float(optimizer.get_lr())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, as torch has it."""
        return {slot.name: tuple(slot.shape) for slot in self.slots}

    def assign(self, values: Mapping[str, Array]) -> None:
        """Give every parameter its value."""
        for slot in self.slots:
            for part, array in zip(slot.parts, divide(values[slot.name], slot), strict=True):
                part.tensor.set_value(self.framework.tensor(array).astype(part.tensor.dtype))

    def values(self) -> Iterator[tuple[str, Array]]:
        """Yield a copy of every parameter, in torch's layout."""
        for slot in self.slots:
            yield slot.name, assemble([self.framework.array(part.tensor) for part in slot.parts], slot)

    def set_rate(self, factor: float) -> None:
        """Set the rate to ``factor`` times the first one; the parameters' multipliers stay."""
        self.optimizer.set_lr(self.rate * factor)

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Update the parameters once; frozen ones get no gradient."""
        for slot in self.slots:
            for part, array in zip(slot.parts, divide(gradients[slot.name], slot), strict=True):
                if not part.tensor.stop_gradient:
                    part.tensor.grad = self.framework.tensor(array).astype(part.tensor.dtype)
        self.optimizer.step()
        self.optimizer.clear_grad()


def open_updates(
    framework: Any, model: nn.Layer, optimizer: Builder, rate: float, args: Mapping[str, Any],
    names: Mapping[str, str],
) -> PaddleUpdates:  # fmt: skip
    """Build the optimizer over ``model``."""
    return PaddleUpdates(framework, model, make_optimizer(optimizer, model, rate, args), names)


def parameter_rates(trainer: Any, model: nn.Layer, names: Mapping[str, str]) -> dict[str, float]:
    """Return the rate of every parameter: the optimizer's times the parameter's factor."""
    rate = float(trainer.optimizer.get_lr())
    return {
        slot.name: rate * rate_factor(trainer.optimizer, slot.parts[0].tensor)
        for slot in torch_view(model, names)
        if slot.kind == "parameter"
    }


def momentum(trainer: Any) -> float:  # noqa: ARG001  (the signature of both frameworks)
    """Return 0: no schedule of Paddle's moves the momentum."""
    return 0.0
