"""Both frameworks in one process, pairs of small models with equal weights, and what is asked about them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


class Live:
    """Both frameworks; torch is imported first."""

    def __init__(self) -> None:
        from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

        self.sides = Sides(TorchSide(), PaddleSide())
        self.torch, self.paddle = self.sides[0].torch, self.sides[1].paddle
        self.stores: list[Any] = []
        self.room = 2**26

    def built(self, reference: str, port: str) -> tuple[Any, Any]:
        """Return what two expressions over ``t`` (torch.nn) and ``p`` (paddle.nn) make."""
        names = {"t": self.torch.nn, "p": self.paddle.nn}
        return eval(reference, names), eval(port, names)

    def equal(self, reference: Any, port: Any) -> tuple[Any, Any]:
        """Give both models the same random weights, BatchNorm's statistics too, and switch them to eval mode."""
        from tipchain.weights.convert import to_paddle

        generator = self.torch.Generator().manual_seed(0)
        with self.torch.no_grad():
            for name, tensor in reference.state_dict().items():
                if tensor.is_floating_point() and tensor.ndim <= 1:
                    tensor.uniform_(0.5 if "var" in name else -0.5, 1.5, generator=generator)
        port.set_state_dict(to_paddle(reference, reference.state_dict(), port).state)
        reference.eval()
        port.eval()
        return reference, port

    def locate(
        self,
        reference: Any,
        port: Any,
        inputs: Any,
        *,
        equal: bool = True,
        backward: bool = True,
        limit: int = 2**29,
        **options: Any,
    ) -> Any:
        """Return what the locator finds; ``inputs`` is an array or a mapping of them."""
        from tipchain.explain.locate.locate import Locator
        from tipchain.explain.locate.runs import read_inputs
        from tipchain.explain.locate.trace import Store

        self.stores.append(Store(limit, self.room))
        if equal:
            self.equal(reference, port)
        given = inputs if isinstance(inputs, dict) else {"args": inputs}
        locator = Locator(self.sides, self.stores[-1], backward=backward)
        return locator.locate(reference, port, read_inputs(given), **options)

    def check(self, reference: Any, port: Any, *arrays: Any) -> list[Any]:
        """Return every finding of construction; with arrays, over the calls that they make."""
        from tipchain.explain.locate.matching import pair_layers
        from tipchain.explain.preflight.construction import check

        given = {"args": arrays}
        calls = self.locate(reference, port, given, equal=False, backward=False).matching.pairs if arrays else ()
        return check(reference, port, pair_layers(reference, port), calls)

    def causes(self, reference: Any, port: Any, inputs: Any) -> list[Any]:
        """Return what is told about the first verdict at fault."""
        from tipchain.explain.causes.search import diagnose
        from tipchain.explain.locate.matching import pair_layers
        from tipchain.explain.preflight.construction import check

        found = self.locate(reference, port, inputs, equal=False)
        assert found.first is not None, "the fault is located"
        findings = check(reference, port, pair_layers(reference, port), found.matching.pairs)
        models = (reference, port)
        return list(diagnose(found, found.first, self.sides, self.stores[-1], findings=findings, models=models))

    def cause(self, reference: Any, port: Any, inputs: Any) -> Any:
        """Return the likeliest cause; it explains the error."""
        cause = self.causes(reference, port, inputs)[0]
        assert cause.explained is None or cause.explained >= 0.99, cause
        return cause


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    for name in ("torch", "paddle"):
        pytest.importorskip(name)
    made = Live()
    yield made
    for store in made.stores:
        store.close()


@pytest.fixture
def pair(live: Live) -> SimpleNamespace:
    """Return two small models with equal weights and the pairs of their layers."""
    from tipchain.explain.locate.matching import pair_layers

    reference, port = live.equal(
        *live.built(
            "t.Sequential(t.Linear(3, 4), t.BatchNorm1d(4), t.Linear(4, 2))",
            "p.Sequential(p.Linear(3, 4), p.BatchNorm1D(4), p.Linear(4, 2))",
        )
    )
    return SimpleNamespace(reference=reference, port=port, layers=pair_layers(reference, port))


class Pieces:
    """Small models that hold the same parameters, and the checks of what they are trained with."""

    def __init__(self, live: Live) -> None:
        self.sides, self.torch, self.paddle = live.sides, live.torch, live.paddle
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
def pieces(live: Live) -> Pieces:
    return Pieces(live)


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


@pytest.fixture(scope="session")
def nets(live) -> SimpleNamespace:
    """Return builders of small nets by framework: ``nets.torch.Block(channels)``."""
    return SimpleNamespace(torch=_torch_nets(live.torch), paddle=_paddle_nets(live.paddle))


def _torch_nets(torch: Any) -> SimpleNamespace:
    nn = torch.nn

    class Block(nn.Module):
        """A residual block whose activations are one module."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.c1, self.b1 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
            self.c2, self.b2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            y = self.relu(self.b1(self.c1(x)))
            return self.relu(self.b2(self.c2(y)) + x)

    def residual(blocks: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3),
            *[Block(8) for _ in range(blocks)],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        )

    return SimpleNamespace(Block=Block, residual=residual)


def _paddle_nets(paddle: Any) -> SimpleNamespace:
    nn = paddle.nn

    class Block(nn.Layer):
        """The same with functional activations; ``mode`` plants a fault into its code."""

        def __init__(self, channels: int, mode: str = "") -> None:
            super().__init__()
            self.mode = mode
            self.c1, self.b1 = (nn.Conv2D(channels, channels, 3, padding=1, bias_attr=False), nn.BatchNorm2D(channels))
            self.c2, self.b2 = (nn.Conv2D(channels, channels, 3, padding=1, bias_attr=False), nn.BatchNorm2D(channels))

        def forward(self, x: Any) -> Any:
            activation = nn.functional.gelu if self.mode == "other activation" else nn.functional.relu
            y = self.b2(self.c2(activation(self.b1(self.c1(x)))))
            y = y if self.mode == "no shortcut" else y + x
            if self.mode == "cut gradient":
                y = y.detach() + (y - y.detach()) * 0.5
            return y if self.mode == "no activation" else nn.functional.relu(y)

    def residual(*modes: str) -> Any:
        return nn.Sequential(
            nn.Conv2D(3, 8, 3),
            *[Block(8, mode) for mode in modes],
            nn.AdaptiveAvgPool2D(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        )

    return SimpleNamespace(Block=Block, residual=residual)
