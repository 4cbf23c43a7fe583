"""torch's parameters under an optimizer, with gradients from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tipchain.conversion.layouts import only_in_torch
from tipchain.parity.frameworks.base import Array, Builder
from tipchain.parity.optimizers import make_optimizer


class Layers(nn.Module):  # type: ignore[misc]
    """One layer of every kind that optimizers' rules tell apart; it is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.embedding = nn.Embedding(7, 5)
        self.norm = nn.LayerNorm(5)
        self.linear = nn.Linear(5, 6)
        self.head = nn.Linear(6, 3)


def build_layers() -> nn.Module:
    """Return the small model."""
    return Layers()


class TorchUpdates:
    """The parameters of a torch module."""

    def __init__(self, framework: Any, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.framework, self.optimizer = framework, optimizer
        self.parameters = dict(model.named_parameters())
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter."""
        return {name: tuple(one.shape) for name, one in self.parameters.items()}

    def assign(self, values: Mapping[str, Array]) -> None:
        """Give every parameter its value."""
        with torch.no_grad():
            for name, one in self.parameters.items():
                one.copy_(self.framework.tensor(values[name]))

    def values(self) -> Iterator[tuple[str, Array]]:
        """Yield a copy of every parameter."""
        for name, one in self.parameters.items():
            yield name, self.framework.array(one)

    def set_rate(self, factor: float) -> None:
        """Set every group's rate to ``factor`` times its own first one."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Update the parameters once; frozen ones get no gradient."""
        for name, one in self.parameters.items():
            if one.requires_grad:
                one.grad = self.framework.tensor(gradients[name]).to(one.dtype)
        self.optimizer.step()
        self.optimizer.zero_grad()


def open_updates(
    framework: Any, model: nn.Module, optimizer: Builder, rate: float, args: Mapping[str, Any],
    names: Mapping[str, str],
) -> TorchUpdates:  # fmt: skip
    """Build the optimizer over ``model``; what the port does not have gets no gradients."""
    made = TorchUpdates(framework, model, make_optimizer(optimizer, model, rate, args))
    made.parameters = {name: one for name, one in made.parameters.items() if not only_in_torch(name, names)}
    return made


def parameter_rates(trainer: Any, model: nn.Module, names: Mapping[str, str]) -> dict[str, float]:  # noqa: ARG001
    """Return the rate of every parameter: its group's."""
    groups = trainer.optimizer.param_groups
    rates = {id(one): float(group["lr"]) for group in groups for one in group["params"]}
    return {name: rates[id(one)] for name, one in model.named_parameters() if id(one) in rates}


def momentum(trainer: Any) -> float:
    """Return the first group's momentum or beta1; OneCycleLR moves it unless told otherwise."""
    group = trainer.optimizer.param_groups[0]
    return float(group.get("momentum", group.get("betas", (0.0,))[0]))
