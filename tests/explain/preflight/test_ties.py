"""Weights that one model shares and the other keeps twice."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.explain.preflight.parameters import check_ties

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")


class Reference(torch.nn.Module):
    """A language model's two ends; ``tied``: one tensor, in a layer or as a function's argument."""

    def __init__(self, tied: str) -> None:
        super().__init__()
        self.wte = torch.nn.Embedding(11, 5)
        self.norm = torch.nn.LayerNorm(5)
        if tied != "function":
            self.head = torch.nn.Linear(5, 11, bias=False)
            self.head.weight = self.wte.weight if tied == "layer" else torch.nn.Parameter(self.wte.weight.clone())


class Port(paddle.nn.Layer):
    """Likewise; Paddle keeps the weight of a Linear transposed, so that only a function can share it."""

    def __init__(self, reference: Reference, tied: str) -> None:
        super().__init__()
        values = reference.wte.weight.detach().numpy()
        self.wte = paddle.nn.Embedding(11, 5)
        self.wte.weight.set_value(values)
        self.norm = paddle.nn.LayerNorm(5)
        if tied != "function":
            self.out = paddle.nn.Linear(5, 11, bias_attr=False)
            self.out.weight.set_value(np.ascontiguousarray(values.T))


@pytest.mark.parametrize("tied", ["function", "layer"])
def test_a_tie_that_the_port_has_not_is_found(tied):
    reference = Reference(tied)
    (found,) = check_ties(reference, Port(reference, "apart"))
    assert found.code == "tied-weights"
    assert found.port_path == ""
    assert not found.harmless
    assert "`wte.weight`, `out.weight` of the port hold the same values but are trained apart" in found.message
    assert (found.reference, found.port) == ("one tensor", "2 tensors")


def test_a_tie_that_the_reference_has_not_is_found():
    reference = Reference("apart")
    (found,) = check_ties(reference, Port(reference, "function"))
    assert "of the reference hold the same values" in found.message
    assert found.fix == "give `wte.weight`, `head.weight` tensors of their own"


@pytest.mark.parametrize(("ours", "theirs"), [("function", "function"), ("layer", "function"), ("apart", "apart")])
def test_what_both_share_or_both_do_not_is_no_finding(ours, theirs):
    reference = Reference(ours)
    assert check_ties(reference, Port(reference, theirs)) == []
