"""Pairs of small models in both frameworks, with equal weights, and one way to locate what differs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest


class Live:
    """Both frameworks in one process."""

    def __init__(self) -> None:
        from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

        self.sides = Sides(TorchSide(), PaddleSide())
        self.torch, self.paddle = self.sides[0].torch, self.sides[1].paddle
        self.stores: list[Any] = []
        self.room = 2**26

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

    def store(self, limit: int = 2**29) -> Any:
        from tipchain.explain.locate.trace import Store

        self.stores.append(Store(limit, self.room))
        return self.stores[-1]

    def locate(self, reference: Any, port: Any, inputs: Any, *, equal: bool = True, **options: Any) -> Any:
        """Return what the locator finds; ``inputs`` is an array or a mapping of them."""
        from tipchain.explain.locate.locate import Locator
        from tipchain.explain.locate.runs import read_inputs

        if equal:
            self.equal(reference, port)
        given = inputs if isinstance(inputs, dict) else {"args": inputs}
        limit = options.pop("limit", 2**29)
        return Locator(self.sides, self.store(limit)).locate(reference, port, read_inputs(given), **options)


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    made = Live()
    yield made
    for store in made.stores:
        store.close()


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
