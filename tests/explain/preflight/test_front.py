"""Everything before a run, over whole models: faithful ports that are built otherwise, and faults."""

import importlib

import numpy as np
import pytest
from live_nets import model, random

from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.preflight.construction import check


def grave(found):
    return [(one.name, one.port_path) for one in found if not one.harmless]


@pytest.mark.parametrize("name", [pytest.param("alexnet", marks=pytest.mark.nightly), "mobilenet_v3"])
def test_the_twins_of_the_shipped_cases_differ_in_nothing(live, name):
    ours, theirs = (importlib.import_module(f"alignment.{name}.{side}_side") for side in ("torch", "paddle"))
    models = live.equal(ours.build_model(num_classes=10), theirs.build_model(num_classes=10))
    assert live.check(*models) == []


def test_a_faithful_port_over_its_calls_differs_in_nothing(live):
    ours, theirs = (importlib.import_module(f"alignment.mobilenet_v3.{side}_side") for side in ("torch", "paddle"))
    reference, port = live.equal(ours.build_model(num_classes=10), theirs.build_model(num_classes=10))
    assert live.check(reference, port, random(1, 3, 64, 64)) == []


CLEAN = (
    # one layer on one side is another, or code, on the other
    ("t.Sequential(t.Conv2d(3, 4, 3, padding=1), t.ReLU(), t.AdaptiveAvgPool2d(1), t.Flatten(), t.Linear(4, 5), t.Softmax(1))",
     "p.Sequential(p.Conv2D(3, 4, 3, padding='SAME'), p.ReLU(), p.AvgPool2D(8), p.Flatten(1, 3), p.Linear(4, 5), p.Softmax())",
     (2, 3, 8, 8)),
    ("t.Sequential(t.ReflectionPad2d(1), t.Conv2d(3, 4, 3), t.SiLU(), t.Upsample(scale_factor=2))",
     "p.Sequential(p.Conv2D(3, 4, 3, padding=1, padding_mode='reflect'), p.Swish(), p.Upsample(size=[16, 16]))", (2, 3, 8, 8)),
    ("t.Sequential(t.Conv2d(4, 4, 3), t.GroupNorm(4, 4, affine=False), t.MaxPool2d(2))",
     "p.Sequential(p.Conv2D(4, 4, 3), p.InstanceNorm2D(4, weight_attr=False, bias_attr=False), p.AdaptiveMaxPool2D(3))",
     (2, 4, 8, 8)),
    ("t.Sequential(t.Embedding(9, 8, padding_idx=0), t.TransformerEncoderLayer(8, 2, 16, 0.1, 'gelu', batch_first=True))",
     "p.Sequential(p.Embedding(9, 8, padding_idx=0), p.TransformerEncoderLayer(8, 2, 16, 0.1, 'gelu'))", None),
)  # fmt: skip


@pytest.mark.parametrize(("reference", "port", "shape"), CLEAN)
def test_a_port_that_is_built_otherwise_has_no_grave_finding(live, reference, port, shape):
    models = live.equal(*live.built(reference, port))
    given = np.arange(1, 9).reshape(2, 4) if shape is None else random(*shape)
    assert grave(live.check(*models, given)) == []


def test_functions_in_place_of_layers_and_time_in_place_of_batches_are_no_findings(live):
    functional = live.paddle.nn.functional

    def layers(nn, **more):
        return {"embed": nn.Embedding(9, 4), "lstm": nn.LSTM(4, 6), "head": nn.Linear(6, 2), **more}

    def ours(net, x):
        y = net.lstm(net.drop(net.embed(x).transpose(0, 1)))[0].transpose(0, 1)
        return net.head(net.gate(net.act(y) - 1))

    def theirs(net, x):
        y = functional.dropout(net.embed(x), 0.1, training=net.training)
        return net.head(net.late(functional.leaky_relu(net.lstm(y)[0], 0.2) - 1))

    settings = {"alpha": 0.5, "momentum": 0.1, "dim": 1}
    reference = model(
        live.torch,
        lambda nn: layers(nn, drop=nn.Dropout(0.1), act=nn.LeakyReLU(0.2), gate=nn.LeakyReLU(0.01), **settings),
        ours,
    )
    settings = {"alpha": 2.0, "momentum": 0.9, "dim": -1}
    port = model(live.paddle, lambda nn: layers(nn, late=nn.LeakyReLU(0.01), **settings), theirs)
    assert live.check(*live.equal(reference, port), np.arange(1, 9).reshape(2, 4)) == []


def test_faults_are_told_in_the_references_order(live):
    reference, port = live.equal(
        *live.built(
            "t.Sequential(t.Conv2d(3, 4, 3), t.Dropout(0.2), t.Sequential(t.Conv2d(4, 4, 1), t.BatchNorm2d(4, momentum=0.01)))",
            "p.Sequential(p.Conv2D(3, 4, 3), p.Dropout(0.5), p.Sequential(p.Conv2D(4, 4, 1), p.BatchNorm2D(4, 0.01)))",
        )
    )
    found = live.check(reference, port, random(2, 3, 8, 8))
    assert grave(found) == [(one.name, one.port_path) for one in found] == [("dropout-p", "1"), ("momentum", "2.1")]


@pytest.mark.parametrize(("name", "expected"), [("drop", [("missing-dropout", "drop")]), ("other", [])])
def test_an_identity_convicts_nobody_unless_it_is_called_as_the_dropout(live, name, expected):
    def build(side, layer, name):
        return model(
            side,
            lambda nn: {"fc": nn.Linear(4, 4), "out": nn.Linear(4, 4), name: layer},
            lambda net, x: net.out(getattr(net, name)(net.fc(x))),
        )

    models = live.equal(
        build(live.torch, live.torch.nn.Dropout(0.5), "drop"), build(live.paddle, live.paddle.nn.Identity(), name)
    )
    assert grave(live.check(*models, random(3, 4))) == expected


def test_norms_frozen_by_mode_and_by_argument_are_alike(live):
    ours, theirs = live.equal(
        *live.built(
            "t.Sequential(t.Linear(4, 4), t.BatchNorm1d(4))",
            "p.Sequential(p.Linear(4, 4), p.BatchNorm1D(4, use_global_stats=True))",
        )
    )
    ours.train()
    theirs.train()
    assert grave(live.check(ours, theirs)) == [("statistics", "1")], "and not its mode as well"
    ours[1].eval()
    assert grave(live.check(ours, theirs)) == []


def test_transformer_layers_are_paired_by_the_attention_they_hold(live):
    ours, theirs = live.equal(
        *live.built(
            "t.ModuleDict({'enc': t.TransformerEncoder(t.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)})",
            "p.LayerDict({'enc': p.TransformerEncoder(p.TransformerEncoderLayer(8, 2, 16, dropout=0.2, attn_dropout=0.1, act_dropout=0.1, "
            "normalize_before=True), 2)})",
        )
    )
    assert grave(live.check(ours, theirs)) == [("norm-order", f"enc.layers.{number}") for number in (0, 1)]


def test_an_argument_that_explains_a_missing_parameter_is_told_alone(live):
    ours, theirs = live.built("t.Sequential(t.Conv2d(4, 4, 3))", "p.Sequential(p.Conv2D(4, 4, 5, bias_attr=False))")
    pairs = [LayerPair(reference="0", port="0", evidence="name")]
    assert [one.name for one in check(ours, theirs, pairs)] == ["kernel-size", "bias"]


def test_a_layer_used_twice_is_told_once(live):
    torch, paddle = live.torch, live.paddle
    shared = torch.nn.LeakyReLU(0.1), paddle.nn.LeakyReLU(0.2)
    ours = torch.nn.Sequential(torch.nn.Linear(4, 4), shared[0], torch.nn.Linear(4, 4), shared[0])
    theirs = paddle.nn.Sequential(paddle.nn.Linear(4, 4), shared[1], paddle.nn.Linear(4, 4), shared[1])
    live.equal(ours, theirs)
    found = live.check(ours, theirs, random(3, 4))
    assert [(one.code, one.name) for one in found] == [("argument", "negative-slope")]
