"""Parameters of live models under their optimizers, with gradients from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy.typing as npt

from tipchain.conversion.layouts import Slot, assemble, divide
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.optimizers import rate_factor

Array = npt.NDArray[Any]


class Trained(Protocol):
    """One side's parameters, by torch's names and in torch's layout, and what updates them."""

    optimizer: Any

    def values(self, name: str) -> Array:
        """Return a copy of a parameter."""

    def assign(self, name: str, value: Array) -> None:
        """Set a parameter."""

    def add_gradient(self, name: str, gradient: Array) -> None:
        """Add to a parameter's gradient, as backward does; a frozen parameter gets none."""

    def step(self) -> None:
        """Update, then clear the gradients, as a training loop does."""

    def rates(self) -> dict[str, float]:
        """Return the present learning rate of each parameter that the optimizer holds."""

    def multiply_rate(self, factor: float) -> None:
        """Set the learning rates to ``factor`` times those of the start."""

    def tensor(self, name: str) -> Any:
        """Return the first tensor of a parameter."""


class TorchTrained:
    """A torch optimizer over a copy of a module; ``clip`` is called before each update, as a training loop does."""

    def __init__(
        self, side: LiveSide, model: Any, optimizer: Any, clip: Callable[[], Any] | None = None
    ) -> None:
        self.side, self.optimizer, self.clip = side, optimizer, clip
        self.parameters = dict(model.named_parameters())
        self.first = [group["lr"] for group in optimizer.param_groups]

    def values(self, name: str) -> Array:
        """Return a copy of a parameter."""
        return self.side.array(self.parameters[name])

    def assign(self, name: str, value: Array) -> None:
        """Set a parameter."""
        self.parameters[name].data.copy_(self.side.tensor(value, gradient=False))

    def add_gradient(self, name: str, gradient: Array) -> None:
        """Add to a parameter's gradient."""
        one = self.parameters[name]
        if one.requires_grad:
            given = self.side.tensor(gradient, gradient=False).to(one.dtype)
            one.grad = given if one.grad is None else one.grad + given

    def step(self) -> None:
        """Update, then clear the gradients."""
        if self.clip is not None:
            self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rates(self) -> dict[str, float]:
        """Return the rate of each parameter: its group's."""
        known = {
            id(one): float(group["lr"]) for group in self.optimizer.param_groups for one in group["params"]
        }
        return {name: known[id(one)] for name, one in self.parameters.items() if id(one) in known}

    def multiply_rate(self, factor: float) -> None:
        """Set each group's rate to ``factor`` times its first."""
        for group, rate in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = rate * factor

    def tensor(self, name: str) -> Any:
        """Return a parameter."""
        return self.parameters[name]


class PaddleTrained:
    """A Paddle optimizer over a copy of a layer; ``clip`` is called before each update, as a training loop does."""

    def __init__(
        self, side: LiveSide, optimizer: Any, slots: Mapping[str, Slot], clip: Callable[[], Any] | None = None
    ) -> None:
        self.side, self.optimizer, self.slots, self.clip = side, optimizer, slots, clip
        self.first = float(optimizer.get_lr())
        self._share = 1.0
        self._schedule: Any = None

    def values(self, name: str) -> Array:
        """Return a copy of a parameter, in torch's layout."""
        slot = self.slots[name]
        return assemble([self.side.array(part.tensor) for part in slot.parts], slot)

    def assign(self, name: str, value: Array) -> None:
        """Set a parameter."""
        slot = self.slots[name]
        for part, array in zip(slot.parts, divide(value, slot), strict=True):
            part.tensor.set_value(array.astype(str(part.tensor.dtype).rpartition(".")[2]))

    def add_gradient(self, name: str, gradient: Array) -> None:
        """Add to a parameter's gradient."""
        slot = self.slots[name]
        for part, array in zip(slot.parts, divide(gradient, slot), strict=True):
            one = part.tensor
            if not one.stop_gradient:
                given = self.side.tensor(array, gradient=False).astype(one.dtype)
                one.grad = given if one.grad is None else one.grad + given

    def step(self) -> None:
        """Update, then clear the gradients."""
        if self.clip is not None:
            self.clip()
        with any_precision(self.side.framework.paddle):  # type: ignore[attr-defined]
            self.optimizer.step()
        self.optimizer.clear_grad()

    def rates(self) -> dict[str, float]:
        """Return the rate of each parameter: the optimizer's times its own factor."""
        rate = float(self.optimizer.get_lr())
        held = {id(one) for one in held_parameters(self.optimizer)}
        return {
            name: rate * self.factor(name)
            for name, slot in self.slots.items()
            if id(slot.parts[0].tensor) in held
        }

    def factor(self, name: str) -> float:
        """Return the factor of the learning rate that a parameter has."""
        return rate_factor(self.optimizer, self.tensor(name))

    def hold_rate(self, rate: float) -> None:
        """Replace the schedule by one that stays at a rate."""
        lr: Any = self.side.framework.paddle.optimizer.lr  # type: ignore[attr-defined]
        self._schedule = lr.LambdaDecay(rate, lambda _: self._share)
        self.optimizer.set_lr_scheduler(self._schedule)

    def multiply_rate(self, factor: float) -> None:
        """Set the rate to ``factor`` times the first."""
        if self._schedule is None:
            self.optimizer.set_lr(self.first * factor)
        else:
            self._share = factor
            self._schedule.step()

    def tensor(self, name: str) -> Any:
        """Return the first part of a parameter."""
        return self.slots[name].parts[0].tensor


@contextmanager
def any_precision(paddle: Any) -> Iterator[None]:
    """Let Paddle's clipping by norm take float64, which its kernel on a CPU does not."""
    clip = paddle.nn.clip
    usual = clip.clip_by_norm

    def clip_by_norm(x: Any, max_norm: float, name: str | None = None) -> Any:
        if x.dtype == paddle.float32:
            return usual(x, max_norm, name)
        norm = paddle.linalg.norm(x)
        return x * (max_norm / paddle.maximum(norm, paddle.full_like(norm, max_norm)))

    clip.clip_by_norm = clip_by_norm
    try:
        yield
    finally:
        clip.clip_by_norm = usual


def held_parameters(optimizer: Any) -> list[Any]:
    """Return the tensors that a Paddle optimizer updates."""
    found: list[Any] = []
    groups = getattr(optimizer, "_param_groups", None) or getattr(optimizer, "_parameter_list", None)
    for one in groups or ():
        found += one["params"] if isinstance(one, dict) else [one]
    return found
