"""Both frameworks, and what these tests ask of a pair of models."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stage_records import load_both


@dataclass
class Frameworks:
    """torch and paddle, and models whose tensors are random, so that no two are equal by chance."""

    torch: Any
    paddle: Any

    def randomize(self, model: Any, seed: int = 0) -> Any:
        """Fill a torch model: floats with numbers of both signs, variances with positive ones, counters with 7."""
        generator = self.torch.Generator().manual_seed(seed)
        with self.torch.no_grad():
            for name, tensor in model.state_dict().items():
                if not tensor.is_floating_point():
                    tensor.fill_(7)
                    continue
                wide = self.torch.empty(tensor.shape, dtype=self.torch.float64)
                wide.uniform_(0.2 if "var" in name else -1.0, 1.0, generator=generator)
                tensor.copy_(wide)
        return model

    def tree(self, side: str, **layers: Any) -> Any:
        """Return a model of one side that holds the given layers, parameters or further trees."""
        base = self.torch.nn.Module if side == "torch" else self.paddle.nn.Layer
        model = type("Tree", (base,), {})()
        for name, layer in layers.items():
            setattr(model, name, layer)
        return model

    def pair(self, **layers: tuple[Any, Any]) -> tuple[Any, Any]:
        torch = self.tree("torch", **{name: pair[0] for name, pair in layers.items()})
        return torch, self.tree("paddle", **{name: pair[1] for name, pair in layers.items()})

    def set_state(self, port: Any, state: Any) -> None:
        for name, tensor in port.state_dict().items():
            tensor.set_value(state[name])


@pytest.fixture(scope="session")
def both() -> Frameworks:
    torch, paddle = load_both()
    return Frameworks(torch=torch.torch, paddle=paddle.paddle)


@pytest.fixture(scope="session")
def nn(both) -> SimpleNamespace:
    return SimpleNamespace(t=both.torch.nn, p=both.paddle.nn)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
