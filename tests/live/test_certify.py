"""Planted faults: which are caught is told truthfully, and nothing of the user's is changed."""

from __future__ import annotations

import numpy as np
from both_frameworks import paddle, torch

import tipchain
from tipchain.live.certify import certify, choose, faults_of


def pair(*, pooled: bool = False):
    """Return a small net and its port; ``pooled``: an activation stands where only positive numbers come."""
    reference, port = [torch.nn.Linear(6, 6), torch.nn.Tanh()], [paddle.nn.Linear(6, 6), paddle.nn.Tanh()]
    if pooled:
        reference, port = (
            [torch.nn.Softplus(), torch.nn.ReLU(), *reference],
            [paddle.nn.Softplus(), paddle.nn.ReLU(), *port],
        )
    models = torch.nn.Sequential(*reference), paddle.nn.Sequential(*port)
    tipchain.copy_weights(*models)
    return models


def inputs():
    return {"args": np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32), "labels": np.zeros((5, 6))}


def square(output, label):
    return ((output - label) ** 2).mean()


TRAINING = {
    "loss": (square, square),
    "optimizers": (
        lambda parameters: torch.optim.SGD(parameters, 0.1, weight_decay=1e-3),
        lambda parameters: paddle.optimizer.SGD(0.1, parameters, weight_decay=1e-3),
    ),
}


def test_every_fault_of_a_small_net_is_caught_in_the_layer_it_was_planted_into():
    reference, port = pair()
    before = [tensor.numpy() for tensor in port.state_dict().values()]
    found = certify(reference, port, inputs(), most=30, **TRAINING)
    assert found.exit_code == 0
    codes = {one.code for one in found.planted}
    assert {"transposed-weight", "wrong-elements", "missing-bias", "missing-activation"} <= codes
    assert [one for one in found.planted if not one.caught] == []
    assert [one for one in found.planted if one.located is False] == []
    assert f"{len(found.planted)} of {len(found.planted)} planted faults would be caught" in str(found)
    for old, new in zip(before, port.state_dict().values(), strict=True):
        assert np.array_equal(old, new.numpy())
    assert not any(one.stop_gradient for one in port.parameters())


def test_what_would_not_be_caught_is_said():
    found = certify(*pair(pooled=True), inputs(), most=30)
    missed = [(one.port_path, one.code) for one in found.planted if not one.caught]
    assert missed == [("1", "missing-activation")], "numbers that are positive already pass a ReLU as they are"
    assert "not caught: 1: it is left out (missing-activation)" in str(found)


def test_a_port_that_does_not_pass_is_given_no_certificate():
    reference, port = pair()
    port[0].bias.set_value(port[0].bias.numpy() + 1)
    found = certify(reference, port, inputs())
    assert found.planted == ()
    assert found.exit_code == 1
    assert "nothing was planted" in str(found)


def test_a_few_faults_are_of_every_kind_and_from_all_over():
    port = paddle.nn.Sequential(*[paddle.nn.Linear(4, 4) for _ in range(9)])
    faults = faults_of(port)
    chosen = choose(faults, 10)
    assert len(chosen) == 10
    assert {one.code for one in chosen} == {one.code for one in faults}
    assert {one.port_path for one in chosen} == {"0", "4", "8"}
    assert choose(faults, 10_000) == faults
