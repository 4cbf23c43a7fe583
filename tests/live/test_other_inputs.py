"""Code that the given inputs do not tell from the reference's: sizes and batches written into it, padding, what is kept between calls."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model
from other_inputs import EDGES, EXCUSED, FAULTS, IDS, IMAGES, NODES, PF, RAISING, SEQUENCES, TF, last

from tipchain.errors import Outcome
from tipchain.explain.locate.other_runs import other_batch, other_sizes, told_shapes
from tipchain.explain.locate.runs import read_inputs

pytestmark = pytest.mark.frameworks


def net(side, act, kind):
    convolution = torch.nn.Conv2d if side is torch else paddle.nn.Conv2D

    def make(nn):
        return {
            "conv": convolution(3, 8, 3, 2, 1) if kind == "images" else nn.Identity(),
            "rows": nn.Embedding(20, 8) if kind == "ids" else nn.Identity(),
            "last": nn.Linear(8, 8),
        }

    return model(side, make, act)


def aligned(act, ported, *inputs, kind="sequences", training=False):
    torch.manual_seed(0)
    reference, port = net(torch, act, kind).train(training), net(paddle, ported, kind)
    port.train() if training else port.eval()
    return copy_and_align(reference, port, inputs, training=training)


def keeping(net, x):
    if not hasattr(net, "kept"):
        net.kept = net.last(x)
    return net.kept


HERE = {
    "align-corners": (
        lambda net, x: net.last(TF.interpolate(net.conv(x), size=(14, 14), mode="bilinear")[..., :4].mean((2, 3))),
        lambda net, x: net.last(
            PF.interpolate(net.conv(x), size=[14, 14], mode="bilinear", align_corners=True)[..., :4].mean([2, 3])
        ),
        (IMAGES,),
    ),
    "decoders-length": (  # the encoder's has but one length
        lambda net, x, ids: net.last(x.view(-1, 6, 8)).mean(1) + ids.double().mean(1, keepdim=True),
        lambda net, x, ids: net.last(x).mean(1) + ids.astype(x.dtype).sum(1, keepdim=True) / 5,
        (SEQUENCES, IDS[:, :5]),
    ),
    "kept": (last, keeping, (SEQUENCES,)),
}


def kind_of(inputs):
    return "images" if inputs[0].ndim == 4 else "ids" if inputs[0].dtype.kind == "i" else "sequences"


@pytest.mark.parametrize("name", [*FAULTS, *HERE])
def test_what_the_inputs_do_not_show_other_inputs_show(name):
    act, ported, inputs = {**FAULTS, **HERE}[name]
    report = aligned(act, ported, *inputs, kind=kind_of(inputs))
    assert report.stages["forward"] is Outcome.FAIL, str(report)
    how = {"kept": "called a second time", "padding": "with the id 0 in the input"}.get(name, "with inputs of shape")
    assert how in report.reasons["forward"]
    assert all(how in one.message for one in report.diagnoses)
    assert report.first_divergence is not None


CLEAN = {
    "pool": (FAULTS["pool"][0], lambda net, x: net.last(net.conv(x).mean([2, 3])), IMAGES, "images"),
    "fixed-in-both": (
        lambda net, x: net.last(x.view(len(x), 6, 8)),
        lambda net, x: net.last(x.reshape([-1, 6, 8])),
        SEQUENCES,
        "sequences",
    ),
    "padding": (
        FAULTS["padding"][0],
        lambda net, x: (net.last(net.rows(x)) * (x != 0).unsqueeze(-1).astype("float32")).sum(1),
        IDS,
        "ids",
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_equal_models_pass_without_a_word(name):
    act, ported, inputs, kind = CLEAN[name]
    report = aligned(act, ported, inputs, kind=kind)
    assert report.passed, str(report)
    assert "shape" not in report.reasons["forward"]


@pytest.mark.parametrize("name", RAISING)
def test_a_port_that_raises_with_inputs_that_the_reference_takes_fails(name):
    act, ported, inputs = RAISING[name]
    report = aligned(act, ported, *inputs, kind=kind_of(inputs))
    assert report.stages["forward"] is Outcome.FAIL, str(report)
    told = report.reasons["forward"]
    assert told.startswith("the model (Net): the port raises with inputs of shape [1, ")
    assert "the reference does not: " in told
    assert "other_inputs.py:" in told
    assert report.first_divergence is not None


@pytest.mark.parametrize("name", EXCUSED)
def test_what_a_port_says_itself_and_what_is_no_fault_of_its_is_told(name):
    act, ported, inputs = EXCUSED[name]
    report = aligned(act, ported, *inputs)
    assert report.passed, str(report)
    assert "the port raises with inputs of shape [" in report.reasons["forward"]


def test_inputs_of_which_no_others_can_be_made_are_said_not_to_be_tried():
    report = aligned(lambda net, x, _: net.last(x), lambda net, x, _: net.last(x), SEQUENCES, np.zeros(3, np.float32))
    assert report.passed, str(report)
    assert report.reasons["forward"].endswith("; other inputs were not compared: the inputs have no common first axis")


def graph(net, x, edges):
    return net.last(x.index_add(0, edges[1], x[edges[0]]))


def ported_graph(net, x, edges):
    return net.last(x.index_add(edges[1], 0, x[edges[0]]))


def test_a_graph_is_given_another_number_of_nodes_and_of_edges():
    report = aligned(graph, ported_graph, NODES, EDGES)
    assert report.passed, str(report)
    assert "were not compared" not in report.reasons["forward"]
    written = aligned(graph, lambda net, x, edges: ported_graph(net, x, edges) + paddle.zeros([5, 8]), NODES, EDGES)
    told = "the model (Net): the port raises with inputs of shape [6, 8], [2, 6], the reference does not: "
    assert written.reasons["forward"].startswith(told)


@pytest.mark.parametrize(("training", "more"), [(False, ()), (True, ()), (False, (np.zeros(3, np.float32),))])
def test_a_port_that_runs_in_float64_alone_fails(training, more):
    def mixed(net, x, *_):
        return PF.linear(net.last(x), paddle.to_tensor(np.eye(8)))

    report = aligned(lambda net, x, *_: net.last(x), mixed, SEQUENCES, *more, training=training)
    assert report.stages["forward"] is Outcome.FAIL, str(report)
    told = "the model (Net): in float32 the port raises, the reference does not: "
    assert report.reasons["forward"].startswith(told)


def test_the_layer_whose_code_raises_is_named():
    class Mean(torch.nn.Module):
        def forward(self, x):
            return x - x.mean(1, keepdim=True)

    class FixedMean(paddle.nn.Layer):
        def forward(self, x):
            return x - x.reshape([-1, 6, 8]).mean(1, keepdim=True)

    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(8, 8), Mean(), torch.nn.Linear(8, 8)).eval()
    port = paddle.nn.Sequential(paddle.nn.Linear(8, 8), FixedMean(), paddle.nn.Linear(8, 8))
    port.eval()
    report = copy_and_align(reference, port, SEQUENCES)
    assert report.reasons["forward"].startswith("1 (FixedMean): the port raises with inputs of shape [1, 7, 8]")
    assert (report.first_divergence.port_path, report.first_divergence.reference_path) == ("1", "1")


def test_inputs_are_cut_and_repeated_along_what_belongs_together():
    given = read_inputs({"args": (IDS,), "mask": np.ones((4, 6), np.int64), "lengths": np.full(4, 6)})
    batch = other_batch(given)
    sizes = list(other_sizes(batch, last=False))
    assert [told_shapes(one) for one in sizes] == [f"[1, {n}], [1, {n}], [1]" for n in (7, 5, 3)]
    assert sizes[0].kwargs["mask"].tolist() == [[1, 1, 1, 1, 1, 1, 0]]
    assert sizes[0].kwargs["lengths"].tolist() == [6]
    images = other_sizes(other_batch(read_inputs({"args": (IMAGES,)})), last=False)
    assert told_shapes(next(images)) == "[1, 3, 21, 33]"
    signals = other_sizes(read_inputs({"args": (np.zeros((1, 3, 40), np.float32),)}), last=True)
    assert told_shapes(next(signals)) == "[1, 3, 51]"
    assert other_batch(read_inputs({"args": (IDS, np.zeros((3, 2)))})) is None
    twice = other_batch(read_inputs({"args": (SEQUENCES[:1],)})).args[0]
    assert twice.shape == (2, 6, 8)
    assert not np.array_equal(twice[0], twice[1])
