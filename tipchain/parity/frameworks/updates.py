"""A model's parameters under an optimizer, with gradients from outside: no forward pass, no backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from tipchain.parity.frameworks.base import Array, Builder, Framework


class Updates(Protocol):
    """The parameters of one model, under torch's names and in torch's layout, and the optimizer that updates them."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter."""

    def assign(self, values: Mapping[str, Array]) -> None:
        """Give every parameter its value."""

    def values(self) -> Iterator[tuple[str, Array]]:
        """Yield a copy of every parameter."""

    def set_rate(self, factor: float) -> None:
        """Set the learning rate to ``factor`` times the one that the optimizer was built with."""

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Update the parameters once with these gradients; frozen ones get none."""


class UpdatesModule(Protocol):
    """What ``torch_updates`` and ``paddle_updates`` offer."""

    def build_layers(self) -> Any:
        """Return a small model of layers of every usual kind, equal in both frameworks."""

    def open_updates(
        self, framework: Framework, model: Any, optimizer: Builder, rate: float, args: Mapping[str, Any],
        names: Mapping[str, str],
    ) -> Updates:  # fmt: skip
        """Build the optimizer over ``model``; ``names`` are Paddle's names by torch's where they differ."""

    def parameter_rates(self, trainer: Any, model: Any, names: Mapping[str, str]) -> dict[str, float]:
        """Return the present learning rate of every parameter by name."""

    def momentum(self, trainer: Any) -> float:
        """Return the present momentum (beta1), 0 where there is none."""


def updates_module(framework: Framework) -> UpdatesModule:
    """Return the framework's module."""
    module: Any = import_module(f"tipchain.parity.frameworks.{framework.name}_updates")
    return module  # type: ignore[no-any-return]
