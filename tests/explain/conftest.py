"""Both frameworks in one process, pairs of small models with equal weights, and what is asked about them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tipchain.explain.causes.losses import check_loss
from tipchain.explain.causes.optimizer_builders import TrainingPair
from tipchain.explain.causes.optimizers import check_optimizers
from tipchain.explain.causes.schedules import check_schedulers
from tipchain.explain.causes.search import diagnose
from tipchain.explain.locate.locate import Locator
from tipchain.explain.locate.matching import pair_layers
from tipchain.explain.locate.runs import read_inputs
from tipchain.explain.locate.trace import Store
from tipchain.explain.preflight.construction import check
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from tipchain.weights.convert import to_paddle


class Live:
    """Both frameworks; torch is imported first."""

    def __init__(self) -> None:
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
        self.stores.append(Store(limit, self.room))
        if equal:
            self.equal(reference, port)
        given = inputs if isinstance(inputs, dict) else {"args": inputs}
        locator = Locator(self.sides, self.stores[-1], backward=backward, training=reference.training)
        return locator.locate(reference, port, read_inputs(given), **options)

    def check(self, reference: Any, port: Any, *arrays: Any) -> list[Any]:
        """Return every finding of construction; with arrays, over the calls that they make."""
        given = {"args": arrays}
        calls = self.locate(reference, port, given, equal=False, backward=False).matching.pairs if arrays else ()
        return check(reference, port, pair_layers(reference, port), calls)

    def causes(self, reference: Any, port: Any, inputs: Any) -> list[Any]:
        """Return what is told about the first verdict at fault."""
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
        return check_loss(self.sides, (reference, port), outputs, labels, **options)

    def trained(self, builders: Any, **options: Any) -> Any:
        return TrainingPair(sides=self.sides, optimizers=builders, **{"models": (self.reference, self.port), **options})

    def optimizers(self, reference: Any, port: Any, **options: Any) -> Any:
        return check_optimizers(self.trained((reference, port), **options))

    def schedulers(self, reference: Any, port: Any, builders: Any = None, **options: Any) -> Any:
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
def nets(live: Live) -> SimpleNamespace:
    """Return builders of nets of residual blocks: of so many in torch, with activations that are one module, and of Paddle's modes."""
    from live_nets import model  # it skips what imports it without both frameworks

    functional = live.paddle.nn.functional

    def block(side: Any, forward: Any) -> Any:
        nn = side.nn
        if side is live.torch:
            layers = {"c": lambda: nn.Conv2d(8, 8, 3, padding=1, bias=False), "b": lambda: nn.BatchNorm2d(8)}
        else:
            layers = {"c": lambda: nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), "b": lambda: nn.BatchNorm2D(8)}
        made = {f"{name}{number}": make() for number in (1, 2) for name, make in layers.items()}
        return model(side, lambda nn: made | ({"relu": nn.ReLU(inplace=True)} if side is live.torch else {}), forward)

    def ours(net: Any, x: Any) -> Any:
        return net.relu(net.b2(net.c2(net.relu(net.b1(net.c1(x))))) + x)

    def theirs(mode: str) -> Any:
        def forward(net: Any, x: Any) -> Any:
            activation = functional.gelu if mode == "other activation" else functional.relu
            y = net.b2(net.c2(activation(net.b1(net.c1(x)))))
            y = y if mode == "no shortcut" else y + x
            if mode == "cut gradient":
                y = y.detach() + (y - y.detach()) * 0.5
            return functional.relu(y)

        return forward

    def in_torch(count: int) -> Any:
        nn = live.torch.nn
        blocks = [block(live.torch, ours) for _ in range(count)]
        return nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def in_paddle(*modes: str) -> Any:
        nn = live.paddle.nn
        blocks = [block(live.paddle, theirs(mode)) for mode in modes]
        return nn.Sequential(nn.Conv2D(3, 8, 3), *blocks, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 4))

    return SimpleNamespace(torch=in_torch, paddle=in_paddle)
