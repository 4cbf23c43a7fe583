"""Both frameworks in one process, and models that are each other's."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest


class Live:
    """Both frameworks; torch is imported first."""

    def __init__(self) -> None:
        from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

        self.sides = Sides(TorchSide(), PaddleSide())
        self.torch, self.paddle = self.sides[0].torch, self.sides[1].paddle

    def built(self, reference: str, port: str) -> tuple[Any, Any]:
        """Return what two expressions over ``t`` (torch.nn) and ``p`` (paddle.nn) make."""
        names = {"t": self.torch.nn, "p": self.paddle.nn, "torch": self.torch, "paddle": self.paddle}
        return eval(reference, names), eval(port, names)

    def equal(self, reference: Any, port: Any) -> tuple[Any, Any]:
        """Give both models the same weights."""
        from tipchain.weights.convert import to_paddle

        port.set_state_dict(to_paddle(reference, reference.state_dict(), port).state)
        return reference, port

    def run(self, reference: Any, port: Any, *arrays: Any) -> Any:
        """Return the matching of the calls that both make for arrays, as locating makes it."""
        from tipchain.explain.locate.locate import Locator
        from tipchain.explain.locate.runs import read_inputs
        from tipchain.explain.locate.trace import Store

        given = read_inputs({"args": list(arrays)})
        return Locator(self.sides, Store(), backward=False).locate(reference, port, given).matching

    def check(self, reference: Any, port: Any, *arrays: Any, **options: Any) -> list[Any]:
        """Return every finding; with arrays, over the calls that they make."""
        from tipchain.explain.locate.matching import pair_layers
        from tipchain.explain.preflight.construction import check

        calls = self.run(reference, port, *arrays).pairs if arrays else ()
        return check(reference, port, pair_layers(reference, port), calls, **options)


@pytest.fixture(scope="session")
def live() -> Live:
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    return Live()


@pytest.fixture
def pair(live) -> SimpleNamespace:
    """Return two small models with equal weights and the pairs of their layers."""
    from tipchain.explain.locate.matching import pair_layers

    reference, port = live.equal(
        *live.built(
            "t.Sequential(t.Linear(3, 4), t.BatchNorm1d(4), t.Linear(4, 2))",
            "p.Sequential(p.Linear(3, 4), p.BatchNorm1D(4), p.Linear(4, 2))",
        )
    )
    return SimpleNamespace(reference=reference, port=port, layers=pair_layers(reference, port))
