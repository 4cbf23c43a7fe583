"""What a difference of construction does: these inputs show it, others or a training would, or nothing does."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.locate.trace import LARGE, Store
from tipchain.live import align as live_align

pytestmark = pytest.mark.frameworks
SMALL = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


def align(ours, theirs, given=SMALL):
    reference, port = torch.nn.Sequential(*ours), paddle.nn.Sequential(*theirs)
    tipchain.copy_weights(reference, port)
    reference.eval(), port.eval()
    return tipchain.align(reference, port, {"args": given})


def effects(report):
    return [(one.name, one.effect) for one in report.findings]


LINEARS = torch.nn.Linear(3, 3), paddle.nn.Linear(3, 3)


def own(side, attributes):
    return model(side, lambda _: attributes, lambda net, x: (x * x / (x * x + net.eps)) * x.clip(-net.most, net.most))


@pytest.mark.parametrize(
    ("layers", "given", "expected", "words"),
    [
        ((torch.nn.ReLU6(), paddle.nn.ReLU()), SMALL, [("layer-type", "elsewhere")], "an input of large values"),
        ((torch.nn.LeakyReLU(0.1), paddle.nn.LeakyReLU(0.2)), SMALL, [("negative-slope", "here")], ""),
        ((torch.nn.Dropout(0.1), paddle.nn.Dropout(0.2)), SMALL, [("dropout-p", "elsewhere")], "a run in train mode"),
        ((own(torch, {"eps": 1e-9, "most": 9.0, "note": "a"}), own(paddle, {"eps": 1e-9, "most": 9.0, "note": "b"})), SMALL, [("note", "none")], ""),
    ],
)  # fmt: skip
def test_layers_are_tried_on_inputs_made_to_tell(layers, given, expected, words):
    first = LINEARS if given is SMALL else (torch.nn.Conv2d(3, 3, 1), paddle.nn.Conv2D(3, 3, 1))
    report = align((first[0], layers[0]), (first[1], layers[1]), given)
    assert effects(report) == expected
    assert report.passed is all(effect == "none" for _, effect in expected)
    assert all(words in one.message for one in report.findings if one.name == expected[0][0])
    if words:
        assert report.stages["forward"] is Outcome.PASS, "these inputs do not show it"


def bounded(side, most, beyond=lambda x: x):
    """Return a layer of a user's own that does something else beyond a bound."""
    return model(
        side, lambda _: {"most": most}, lambda net, x: x * 1 if float(x.abs().max()) <= net.most else beyond(x)
    )


@pytest.mark.parametrize(
    ("beyond", "effect"),
    [(lambda x: x.reshape([7, 7]), "elsewhere"), (lambda x: x * float("nan"), "elsewhere"), (lambda x: x, "none")],
)
def test_a_layer_that_does_not_run_on_what_its_reference_takes_is_another(beyond, effect):
    layers = bounded(torch, 9.0), bounded(paddle, 8.0, beyond)
    report = align((LINEARS[0], layers[0]), (LINEARS[1], layers[1]))
    assert effects(report) == [("most", effect)]
    assert report.passed is (effect == "none")


class NormAct(torch.nn.BatchNorm2d):
    """A norm and an activation, as timm has them."""

    def __init__(self, channels, act):
        super().__init__(channels)
        self.drop, self.act = torch.nn.Identity(), act

    def forward(self, x):
        return self.act(self.drop(super().forward(x)))


class PaddleNormAct(paddle.nn.BatchNorm2D):
    def __init__(self, channels, act):
        super().__init__(channels)
        self.act = act

    def forward(self, x):
        return self.act(super().forward(x))


PORTS = {
    "layer": lambda: (paddle.nn.BatchNorm2D(4), paddle.nn.ReLU()),
    "argument": lambda: (paddle.nn.BatchNorm(4, act="relu"),),
    "inside": lambda: (PaddleNormAct(4, paddle.nn.ReLU()),),
}


@pytest.mark.parametrize("act", [torch.nn.ReLU6, torch.nn.ReLU])
@pytest.mark.parametrize(("fused", "port"), [*((True, one) for one in PORTS), (False, "argument"), (False, "inside")])
def test_an_activation_inside_a_norm_is_tried_with_it(act, fused, port):
    norm, theirs = (NormAct(4, act()),) if fused else (torch.nn.BatchNorm2d(4), act()), PORTS[port]()
    report = align((torch.nn.Conv2d(3, 4, 3), *norm), (paddle.nn.Conv2D(3, 4, 3), *theirs), IMAGES)
    grave = [one.name for one in report.findings if not one.harmless]
    assert grave == ["layer-type"] * (act is torch.nn.ReLU6)
    assert report.passed is (act is torch.nn.ReLU)
    assert report.stages["forward"] is Outcome.PASS, "these inputs do not show it"
    assert report.passed or "an input of large values, of both signs, would show it" in report.reasons["preflight"]
    assert port != "layer" or report.passed or report.diagnoses[0].fix == "make `2` a `paddle.nn.ReLU6`"


def wide_norm(act):
    """Return torch's norm with an activation, of which an input shows values far from zero."""
    norm = NormAct(4, act)
    torch.nn.init.constant_(norm.weight, 6.0)
    return norm


def test_layers_that_are_built_otherwise_are_one_cause_where_the_inputs_show_it_of_some_alone():
    torch.manual_seed(0)
    report = align(
        (torch.nn.Conv2d(3, 4, 3), wide_norm(torch.nn.ReLU6()), torch.nn.Conv2d(4, 4, 3), NormAct(4, torch.nn.ReLU6())),
        (paddle.nn.Conv2D(3, 4, 3), *PORTS["layer"](), paddle.nn.Conv2D(4, 4, 3), *PORTS["layer"]()),
        IMAGES,
    )
    assert effects(report) == [("layer-type", "here"), ("layer-type", "elsewhere")]
    (cause,) = report.diagnoses
    assert (cause.name, cause.paths, cause.fix) == ("layer-type", ("2", "5"), "make `2` a `paddle.nn.ReLU6`")
    assert cause.explained > 0.99
    assert (report.first_divergence.port_path, "finding:" in str(report)) == ("2", False)


def test_a_function_that_these_inputs_do_not_tell_from_another_is_not_blamed():
    calls = model(
        paddle, lambda nn: {"norm": nn.BatchNorm2D(4)}, lambda net, x: paddle.nn.functional.relu6(net.norm(x))
    )
    report = align((torch.nn.Conv2d(3, 4, 3), NormAct(4, torch.nn.ReLU6())), (paddle.nn.Conv2D(3, 4, 3), calls), IMAGES)
    assert report.passed, str(report)


def coded(side, function):
    def make(nn):
        return {"first": nn.Linear(3, 8), "second": nn.Linear(8, 8), "last": nn.Linear(8, 3)}

    return model(side, make, lambda net, x: net.last(net.second(function(net.first(x)))))


def hide(library, by):
    """Return attention of rows to each other, which do not see later ones."""

    def attend(x):
        mask = library.triu(x.detach() @ x.detach().T * 0 + by, 1)
        return library.nn.functional.softmax(x @ x.T + mask, -1) @ x

    return attend


def spread(x):
    """Return rows less their mean, by their variance, which float32 hardly tells from nothing."""
    x = x + 2e3
    return (x - x.mean(-1, keepdim=True)) / ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2)


def spread_well(x):
    """Return the same, as float32 can tell it."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x * x).mean(-1, keepdim=True)


def attend_unscaled(clip):
    """Return attention of rows to each other whose exponentials float32 has for small values alone."""

    def attend(x):
        weights = (x @ x.T).exp()
        return clip(weights @ x / weights.sum(-1, keepdim=True))

    return attend


TF, PF = torch.nn.functional, paddle.nn.functional


def relu(x):
    return PF.relu(x)


def relu6(x):
    return PF.relu6(x)


@pytest.mark.parametrize(
    ("ours", "theirs", "cause"),
    [
        (TF.relu6, relu, "function"),
        (attend_unscaled(lambda x: x.clip(max=6)), attend_unscaled(lambda x: x), "missing-call"),
        (TF.relu6, lambda x: PF.relu(x).clip(max=6), None),
        (TF.hardswish, lambda x: x * PF.relu6(x + 3) / 6, None),
        (hide(torch, -1e9), hide(paddle, -1e4), None),
    ],
)  # fmt: skip
def test_code_is_tried_on_large_values_that_the_inputs_do_not_show(ours, theirs, cause):
    torch.manual_seed(0)
    reference, port = coded(torch, ours), coded(paddle, theirs)
    report = copy_and_align(reference, port, {"args": SMALL})
    assert [one.code for one in report.diagnoses] == [cause] * bool(cause), str(report)
    assert report.passed is not bool(cause)
    assert report.stages["forward"] is Outcome.PASS, "these inputs do not show it"
    if cause:
        assert report.stages["preflight"] is Outcome.FAIL
        assert "an input of such would show it" in report.reasons["preflight"]
        assert report.diagnoses[0].stage == "preflight"
        assert report.diagnoses[0].explained > 0.99
        assert report.first_divergence.direction == "construction"


def test_what_differs_with_large_values_in_float32_alone_is_no_fault():
    torch.manual_seed(0)
    reference, port = coded(torch, spread_well), coded(paddle, spread)
    report = copy_and_align(reference, port, {"args": 8 * SMALL})
    assert report.passed, str(report)
    assert not report.diagnoses


def exponential(side, convolution):
    """Return a net whose squares no float can hold where its layers give large values."""

    def make(nn):
        return {"first": convolution(3, 8, 3), "second": convolution(8, 8, 3), "last": nn.Linear(8, 4)}

    def forward(net, x):
        x = net.first(x)
        return net.last(net.second((x * x).exp()).mean((-1, -2)))

    return model(side, make, forward)


def test_values_too_large_to_be_compared_are_no_fault():
    torch.manual_seed(0)
    reference, port = exponential(torch, torch.nn.Conv2d), exponential(paddle, paddle.nn.Conv2D)
    tipchain.copy_weights(reference, port)
    images = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
    report = tipchain.align(reference, port, {"args": images})
    assert report.passed, str(report)


def careful(net, x):
    x = net.first(x)
    if float(x.abs().max()) > 10:
        raise ValueError("too large")
    return net.last(x * x)


def test_a_model_that_refuses_large_values_is_said_not_to_be_tried_with_them():
    torch.manual_seed(0)
    reference, port = (
        model(side, lambda nn: {"first": nn.Linear(3, 8), "last": nn.Linear(8, 3)}, careful) for side in (torch, paddle)
    )
    report = copy_and_align(reference, port, {"args": SMALL})
    assert report.passed, str(report)
    assert "; code between the layers was not tried with large values: " in report.reasons["forward"]
    assert "ValueError: too large" in report.reasons["forward"]


def crossed(side):
    """Return a net with a layer that looks at its input's memory in another order; the input is used again after it."""
    turned = (1, 0) if side is torch else ([1, 0],)
    across = model(side, lambda _: {}, lambda _, x: x.transpose(*turned))

    def forward(net, x):
        x = net.first(x)
        return net.last(net.across(x).sum(1) + x)

    return model(side, lambda nn: {"first": nn.Linear(3, 8), "across": across, "last": nn.Linear(8, 3)}, forward)


def test_what_shares_the_memory_of_its_input_leaves_it_as_it_is():
    reference, port = crossed(torch), crossed(paddle)
    report = copy_and_align(reference, port, {"args": SMALL})
    assert report.passed, str(report)


def twice(side, *, own):
    """Return a net that uses a layer twice, the second time by its weight alone if ``own``."""

    def forward(net, x):
        again = net.layer(x).tanh()
        return again, again @ net.layer.weight + net.layer.bias if own else net.layer(again)

    return model(side, lambda nn: {"layer": nn.Linear(3, 3)}, forward)


def test_code_that_uses_the_weight_of_a_layer_by_itself_has_the_larger_one():
    reference, port = twice(torch, own=False), twice(paddle, own=True)
    report = copy_and_align(reference, port, {"args": SMALL})
    assert report.passed, str(report)


@pytest.mark.parametrize(("rate", "effect"), [(0.5, "elsewhere"), (0.0, "none")])
def test_a_port_left_in_another_mode_fails_if_a_layer_minds(rate, effect):
    ours = torch.nn.Sequential(LINEARS[0], torch.nn.Dropout(rate)).train()
    theirs = paddle.nn.Sequential(LINEARS[1], paddle.nn.Dropout(rate))
    tipchain.copy_weights(ours, theirs)
    theirs.eval()
    report = tipchain.align(ours, theirs, {"args": SMALL})
    assert effects(report) == [("mode", effect)]
    assert report.passed is (effect == "none")


def front(side, cut):
    """Return a net whose first layer has no parameters, and lets no gradient through if ``cut``."""

    def forward(net, x):
        with side.no_grad() if cut else nullcontext():
            return (x * net.scale).exp()

    return model(side, lambda _: {"scale": np.ones(3, np.float32)}, forward)


def single(side):
    """Return a net whose first layer normalizes single numbers: the gradient that flows through is zero, but for rounding."""
    return model(side, lambda nn: {"norm": nn.LayerNorm(1)}, lambda net, x: net.norm(x.unsqueeze(-1)).squeeze(-1) + x)


def test_a_gradient_that_is_only_rounding_is_none():
    layers = single(torch), single(paddle)
    torch.nn.init.constant_(layers[0].norm.weight, 0.3)
    layers[0].requires_grad_(False)
    for one in layers[1].parameters():
        one.stop_gradient = True
    many = np.random.default_rng(0).standard_normal((4, 1000, 3)).astype(np.float32)
    assert align((layers[0], LINEARS[0]), (layers[1], LINEARS[1]), many).passed


@pytest.mark.parametrize(("ours", "theirs"), [(False, True), (True, True)])
def test_a_layer_that_stops_a_gradient_that_the_inputs_do_not_take_is_told(ours, theirs, monkeypatch):
    layers = front(torch, ours), front(paddle, theirs)
    report = align((layers[0], LINEARS[0]), (layers[1], LINEARS[1]))
    cut = theirs and not ours
    assert effects(report) == [("stop-gradient", "elsewhere")] * cut
    monkeypatch.setattr(live_align, "Store", partial(Store, room=0))
    large = np.random.default_rng(0).standard_normal((4, LARGE // 4, 3)).astype(np.float32)
    report = align((layers[0], LINEARS[0]), (layers[1], LINEARS[1]), large)
    assert effects(report) == [("stop-gradient", "elsewhere")] * cut
    assert report.passed is not cut
    assert not cut or report.first_divergence.port_path == "0"


def prepared(side, cut):
    """Return a net that prepares its input before any layer: inside a block it is detached, around it no gradient is recorded."""

    def inside(net, x):
        x = x * 2
        return net.layer(x.detach() if cut == "block" else x)

    def around(net, x):
        with side.no_grad() if cut == "net" else nullcontext():
            x = (x - x.mean()) / 2
        return net.last(net.block(x))

    block = model(side, lambda nn: {"layer": nn.Linear(3, 3)}, inside)
    return model(side, lambda nn: {"block": block, "last": nn.Linear(3, 3)}, around)


@pytest.mark.parametrize(
    ("ours", "theirs", "fix"),
    [
        ("", "block", "`return net.layer(x.detach() if cut"),
        ("", "net", "in the forward of the model itself"),
        ("net", "net", None),
    ],
)
def test_code_before_all_layers_that_cuts_off_the_gradient_of_the_inputs_is_told(ours, theirs, fix):
    report = copy_and_align(prepared(torch, ours), prepared(paddle, theirs), {"args": SMALL})
    assert report.passed is (fix is None)
    if fix is None:
        return
    assert report.stages["backward"] is Outcome.FAIL
    assert report.first_divergence.port_path == ("block" if theirs == "block" else "")
    assert "hands the model's inputs no gradient from block.layer, the reference one" in report.reasons["backward"]
    assert [one.code for one in report.diagnoses] == ["cut-gradient"]
    assert fix in report.diagnoses[0].fix


TOKENS = np.array([[1, 2, 3], [4, 2, 1]])


def padded(row, indices, tokens):
    """Align embeddings with these indices of padding, whose first row is as given."""

    def build(side, linear, index):
        layers = {"embed": side.nn.Embedding(6, 3, padding_idx=index), "head": linear}
        return model(side, lambda _: layers, lambda net, x: net.head(net.embed(x)))

    ours, theirs = build(torch, LINEARS[0], indices[0]), build(paddle, LINEARS[1], indices[1])
    with torch.no_grad():
        ours.embed.weight[0] = row
    report = copy_and_align(ours, theirs, {"args": tokens})
    found = [one for one in report.findings if one.name in ("padding-idx", "padding-row")]
    return report, found[0].effect if found else None, found[0].fix if found else ""


ZERO = TOKENS * (TOKENS > 1)


@pytest.mark.parametrize(
    ("row", "indices", "tokens", "effect"),
    [
        (0.0, (0, 0), ZERO, None),
        (0.0, (0, None), TOKENS, "elsewhere"),  # a training on token 0
        (0.0, (0, None), ZERO, "here"),  # its gradient differs
        (1.0, (0, None), TOKENS, "none"),  # the exact port
        (1.0, (0, 0), TOKENS, "elsewhere"),  # Paddle's gives zeros for token 0
    ],
)
def test_an_index_of_padding_is_judged_by_its_row_and_its_gradient(row, indices, tokens, effect):
    report, found, fix = padded(row, indices, tokens)
    assert found == effect
    assert report.passed is (effect in (None, "none")), str(report)
    if row and indices[0] == 0 and effect:
        assert "padding_idx=None" in fix, "with an index the port's output would be zero"


def halves(side, one, other):
    def half(embed):
        return model(side, lambda nn: {"embed": embed, "fc": nn.Linear(3, 3)}, lambda net, x: net.fc(net.embed(x)))

    return model(side, lambda _: {"a": half(one), "b": half(other)}, lambda net, x: net.a(x) + net.b(x))


@pytest.mark.parametrize(("tokens", "passed"), [(TOKENS, True), (ZERO, False)])
def test_a_layer_that_several_parts_share_is_weighed_under_all_its_names(tokens, passed):
    one, other = (torch.nn.Embedding(6, 3, padding_idx=0) for _ in range(2))
    other.weight = one.weight
    shared = paddle.nn.Embedding(6, 3)
    ours, theirs = halves(torch, one, other), halves(paddle, shared, shared)
    with torch.no_grad():
        ours.a.embed.weight[0] = 1.0
    report = copy_and_align(ours, theirs, {"args": tokens}, causes=False)
    assert {one.port_path for one in report.findings if one.name == "padding-idx"} >= {"b.embed"}
    assert report.passed is passed, str(report)


def tied(side, **more):
    return model(
        side,
        lambda nn: {"words": nn.Embedding(11, 5), "norm": nn.LayerNorm(5), **more},
        lambda net, tokens: net.norm(net.words(tokens)) @ (net.out if more else net.words.weight).T,
    )


def test_a_weight_that_the_port_trains_twice_is_shown_by_its_gradient():
    reference, port = tied(torch), tied(paddle, out=paddle.create_parameter([11, 5], "float32"))
    for one in (port.words.weight, port.out):
        one.set_value(reference.words.weight.detach().numpy())
    report = tipchain.align(reference, port, {"args": np.arange(6).reshape(2, 3)})
    assert report.stages["forward"] is Outcome.PASS
    assert report.stages["backward"] is Outcome.FAIL
    assert report.first_divergence.port_path == ""
    assert "gives words.weight another gradient" in report.reasons["backward"]
    (cause,) = report.diagnoses
    assert cause.code == "parting"
    assert "net.norm(net.words(tokens)) @ " in cause.place.code
