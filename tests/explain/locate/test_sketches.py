"""Large tensors of which a sketch is held: what is found out from that, and when the whole ones are needed after all."""

from __future__ import annotations

import numpy as np
import pytest
from live_nets import model

from tipchain.explain.locate.trace import LARGE, NotHeld, Projected, Store
from tipchain.explain.locate.verdicts import Closeness

LARGE_BATCH = (4, 3, 50, 50)
"""The convolutions' outputs of this have 73,728 elements."""


@pytest.fixture(autouse=True)
def _no_room(live, monkeypatch):
    """Hold outlines of all large tensors, as of a large model's."""
    monkeypatch.setattr(live, "room", 0)


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("size", [100, 10**6])
@pytest.mark.parametrize("where", ["everywhere", "one channel shifted", "one element"])
def test_a_projection_tells_how_far_two_arrays_are_apart(size, where):
    expected = random(size, dtype=np.float64)
    actual = expected.copy()
    if where == "everywhere":
        actual += 1e-9 * random(size, seed=1)
    elif where == "one channel shifted":
        actual[size // 4 : size // 2] += 1e-9
    else:
        actual[size // 3] += 1e-6
    apart = np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))
    assert Projected(expected).relative(Projected(actual)) == pytest.approx(apart, rel=2)
    assert Projected(expected).relative(Projected(actual)) > apart / 30
    assert Projected(expected).relative(Projected(expected.copy())) == 0
    assert Projected(expected).rms == pytest.approx(1, rel=0.4 if size > 1e5 else 2)


def test_floats_of_32_bits_are_projected_as_their_double():
    array = random(10**5)
    array[::7] *= np.float32(5e37)  # in float32 sums of these overflow
    expected = Projected(array.astype(np.float64)).values
    np.testing.assert_allclose(Projected(array).values, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_is_not_finite_is_infinitely_far_away(odd):
    expected = random(5000, dtype=np.float64)
    actual = expected.copy()
    actual[7] = odd
    assert Projected(expected).relative(Projected(actual)) == np.inf
    assert Projected(actual).relative(Projected(actual)) == np.inf


@pytest.mark.parametrize(
    ("shape", "samples"),
    [((4, LARGE), 4), ((LARGE, 2), 1), ((12, LARGE), 4)],
    ids=["samples first", "one sample without an axis", "heads folded into the axis"],
)
def test_of_large_arrays_projections_are_held(shape, samples):
    store, array = Store(room=0), random(*shape)
    store.samples = samples
    stored = store.put(array)
    assert store.cut
    assert store.held == 0
    assert np.array_equal(store.projected(stored).values, Projected(array).values)
    with pytest.raises(NotHeld):
        store.get(stored)


@pytest.mark.parametrize(("shape", "samples"), [((4, 100), 4), ((5, LARGE + 1), 4), ((4, LARGE), None)])
def test_other_arrays_are_held_whole(shape, samples):
    store, array = Store(room=0), random(*shape, dtype=np.float64)
    store.samples = samples
    stored, before = store.put(array), array.copy()
    array[0, 0] += 1
    assert not store.cut
    assert np.array_equal(store.get(stored), before), "the values at that time"


def test_a_faithful_port_is_judged_from_sketches(live, nets):
    found = live.locate(nets.torch(3), nets.paddle("", "", ""), random(*LARGE_BATCH))
    store = live.stores[-1]
    assert store.cut
    assert store.samples == 4, "nothing was run a second time"
    assert found.first is None
    assert {one.closeness for one in found.verdicts} <= {Closeness.BITWISE, Closeness.ROUNDING}
    forward = {one.port_path: one for one in found.verdicts if one.direction == "forward"}
    assert 0 <= forward["0"].own < 1e-12
    assert len([one for one in found.verdicts if one.direction == "backward"]) > 15


@pytest.mark.parametrize("mode", ["no shortcut", "cut gradient"])
def test_a_fault_is_found_from_whole_tensors(live, nets, mode):
    found = live.locate(nets.torch(3), nets.paddle("", mode, ""), random(*LARGE_BATCH))
    assert live.stores[-1].samples is None, "they were run again"
    assert found.first.port_path == "2"
    assert found.first.closeness is Closeness.DIFFERS


def test_a_layer_whose_samples_depend_on_each_other_is_judged_in_float64(live):
    torch, nn = live.torch, live.paddle.nn
    reference = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    port = nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.ReLU())
    live.equal(reference, port)
    reference.train()
    port.train()
    found = live.locate(reference, port, random(*LARGE_BATCH), equal=False)
    assert live.stores[-1].samples == 4
    norm = next(one for one in found.verdicts if one.port_path == "1" and one.direction == "forward")
    assert norm.closeness is Closeness.ROUNDING
    assert norm.own < 1e-10


def of_channels_last(live):
    """Return a port of two convolutions, ``first`` and ``second``, whose axes are in another order than torch's."""

    def layers(nn):
        first, second = (nn.Conv2D(channels, 8, 3, data_format="NHWC") for channels in (3, 8))
        return {"first": first, "second": second}

    def forward(net, x):
        return net.second(net.first(x.transpose([0, 2, 3, 1]))).transpose([0, 3, 1, 2])

    return model(live.paddle, layers, forward)


def test_a_port_with_another_order_of_axes_is_judged_from_whole_tensors(live):
    torch = live.torch
    reference = torch.nn.Sequential()
    reference.add_module("first", torch.nn.Conv2d(3, 8, 3))
    reference.add_module("second", torch.nn.Conv2d(8, 8, 3))
    found = live.locate(reference, of_channels_last(live), random(*LARGE_BATCH))
    assert live.stores[-1].samples is None
    assert found.first is None
    assert {one.port_path for one in found.verdicts if one.own is not None} >= {"first", "second"}


def test_a_fault_is_looked_for_on_two_samples(live, nets):
    found = live.locate(nets.torch(3), nets.paddle("", "no shortcut", ""), random(8, 3, 50, 50))
    assert found.first.port_path == "2"
    assert found.port.trace.calls[0].inputs[0].shape[0] == 2, "of what is judged"
    assert found.port.outputs[0].shape[0] == 8, "of what the models gave"


def test_a_fault_of_a_later_sample_is_looked_for_on_all(live):
    torch, paddle = live.torch, live.paddle

    def last(_, x):
        factors = paddle.to_tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.01, 1.0, 1.0], x.dtype)
        return x * factors[: x.shape[0]].reshape([-1, 1])

    same = model(torch, lambda _: {}, lambda _, x: x * torch.ones(x.shape[0], 1, dtype=x.dtype))
    reference = torch.nn.Sequential(torch.nn.Linear(6, LARGE // 4), same, torch.nn.ReLU())
    port = paddle.nn.Sequential(paddle.nn.Linear(6, LARGE // 4), model(paddle, lambda _: {}, last), paddle.nn.ReLU())
    found = live.locate(reference, port, random(8, 6))
    assert found.first is not None
    assert found.first.port_path == "1"
    assert found.port.trace.calls[0].inputs[0].shape[0] == 8


def test_tensors_that_are_small_beside_the_parameters_are_held_whole(live):
    reference, port = live.torch.nn.Linear(16, LARGE), live.paddle.nn.Linear(16, LARGE)
    live.locate(reference, port, random(2, 16))
    assert live.stores[-1].room == 4 * 17 * LARGE, "half of what the parameters of both take"
    assert not live.stores[-1].cut


@pytest.mark.parametrize("mode", ["", "no shortcut"])
def test_where_the_room_ends_whole_tensors_are_compared_with_outlines(live, nets, monkeypatch, mode):
    monkeypatch.setattr(live, "room", 4 * 73728 * 8)
    found = live.locate(nets.torch(3), nets.paddle("", mode, ""), random(*LARGE_BATCH))
    assert (found.first and found.first.port_path) == ("2" if mode else None)
    assert mode or live.stores[-1].cut


def test_a_model_in_train_mode_is_run_again_on_the_whole_batch(live, nets):
    reference, port = nets.torch(3), nets.paddle("", "no shortcut", "")
    live.equal(reference, port)
    reference.train()
    port.train()
    found = live.locate(reference, port, random(8, 3, 50, 50), equal=False)
    assert found.port.trace.calls[0].inputs[0].shape[0] == 8
