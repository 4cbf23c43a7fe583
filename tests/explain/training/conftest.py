"""Both frameworks in one process, and small models that hold the same parameters."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest


class Pieces:
    """Both sides, one small pair of models, and the checks."""

    def __init__(self) -> None:
        from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

        self.sides = Sides(TorchSide(), PaddleSide())
        self.torch, self.paddle = self.sides[0].torch, self.sides[1].paddle
        nn, other = self.torch.nn, self.paddle.nn
        self.torch.manual_seed(0)
        self.reference = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 4))
        self.port = other.Sequential(other.Conv2D(3, 8, 3), other.BatchNorm2D(8), other.Flatten(), other.Linear(8, 4))

    def loss(self, reference: Any, port: Any, outputs: Any, labels: Any, **options: Any) -> Any:
        from tipchain.explain.causes.losses import check_loss

        return check_loss(self.sides, (reference, port), outputs, labels, **options)

    def trained(self, builders: Any, **options: Any) -> Any:
        from tipchain.explain.causes.optimizer_builders import TrainingPair

        return TrainingPair(sides=self.sides, optimizers=builders, **{"models": (self.reference, self.port), **options})

    def optimizers(self, reference: Any, port: Any, **options: Any) -> Any:
        from tipchain.explain.causes.optimizers import check_optimizers

        return check_optimizers(self.trained((reference, port), **options))

    def schedulers(self, reference: Any, port: Any, builders: Any = None, **options: Any) -> Any:
        from tipchain.explain.causes.schedules import check_schedulers

        plain = (
            lambda parameters: self.torch.optim.SGD(parameters, lr=0.1),
            lambda parameters, learning_rate: self.paddle.optimizer.SGD(learning_rate, parameters=parameters),
        )
        return check_schedulers(self.trained(builders or plain, schedulers=(reference, port), **options))


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    return Pieces()


@pytest.fixture(scope="session")
def kits(pieces: Pieces) -> SimpleNamespace:
    """Return ``torch.optim``, ``paddle.optimizer``, and their schedules and functions."""
    torch, paddle = pieces.torch, pieces.paddle
    return SimpleNamespace(
        torch=torch,
        paddle=paddle,
        ours=torch.optim,
        theirs=paddle.optimizer,
        our_lr=torch.optim.lr_scheduler,
        their_lr=paddle.optimizer.lr,
        our_loss=torch.nn.functional,
        their_loss=paddle.nn.functional,
    )
