"""Ports that call their layers in another way than the reference, right and wrong ones: what is told of them."""

from dataclasses import replace

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain
from tipchain.explain.findings import Diagnosis

pytestmark = pytest.mark.frameworks
F, PF = torch.nn.functional, paddle.nn.functional
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((3, 6, 8)).astype(np.float32)


def linears(**sizes):
    return lambda nn: {name: nn.Linear(*size) for name, size in sizes.items()}


def align(reference, port, *args, **more):
    torch.manual_seed(0)
    tipchain.copy_weights(reference, port)
    return tipchain.align(reference, port, {"args": args}, **more)


def told(reference, port, *args, **more):
    report = align(reference, port, *args, **more)
    assert not report.passed, str(report)
    return report.diagnoses[0]


STENCIL = (-1, 16, -30, 16, -1)
STEP = 0.1


def curvature(detached):
    """The second derivative of a net: of all points at once with a table in float32, or point by point with numbers."""
    table = (np.array(STENCIL) / (12 * STEP**2)).astype(np.float32)

    def ours(net, x):
        values = net.b(net.a((x[:, None] + STEP * torch.arange(-2, 3))[..., None]).tanh())[..., 0]
        bent = (values * torch.from_numpy(table).to(values.dtype)).sum(-1)
        return bent, bent * (-(bent**2)).exp().detach()

    def theirs(net, x):
        bent = 0
        for turn, share in enumerate(STENCIL):
            point = (x + STEP * (turn - 2)).unsqueeze(-1)
            bent = bent + share / (12 * STEP**2) * net.b(net.a(point).tanh())[..., 0]
        weight = (-(bent**2)).exp()
        return bent, bent * (weight.detach() if detached else weight)

    torch.manual_seed(0)
    layers = linears(a=(1, 8), b=(8, 1))
    return model(torch, layers, ours), model(paddle, layers, theirs), np.linspace(-1, 1, 6, dtype=np.float32)


def test_calls_that_are_batched_otherwise_are_judged_by_what_comes_of_them():
    assert align(*curvature(detached=True)).passed


def test_a_missing_detach_is_told_where_calls_are_batched_otherwise():
    cause = told(*curvature(detached=False))
    assert (cause.code, cause.name) == ("cut-gradient", "detach")
    assert cause.place.code == "weight = (-(bent**2)).exp()"


def test_a_missing_detach_is_told_that_all_turns_of_a_loop_lack():
    def turns(detached):
        def forward(net, x):
            kept = total = 0
            for turn in range(6):
                made = net.a(x[:, turn] + kept)
                kept = kept + (made.detach() if detached else made)
                total = total + made
            return net.b(total)

        return forward

    layers = linears(a=(8, 8), b=(8, 2))
    cause = told(model(torch, layers, turns(detached=True)), model(paddle, layers, turns(detached=False)), ROWS)
    assert (cause.code, cause.name) == ("cut-gradient", "detach")
    assert cause.explained > 0.99
    assert cause.place.code.startswith(("made = net.a(", "kept = kept + "))


def test_code_that_runs_in_float32_alone_is_explained_in_float32():
    def ours(net, x):
        chosen = F.one_hot((x @ net.codes.weight.T).argmax(-1), 5).to(x.dtype)
        return x + 2 * (chosen @ net.codes.weight)

    def theirs(net, x):
        chosen = PF.one_hot((x @ net.codes.weight).argmax(-1), 5)  # in float32, whatever is given
        return x + paddle.matmul(chosen, net.codes.weight, transpose_y=True)

    torch.manual_seed(0)
    reference = model(
        torch,
        lambda nn: {"a": nn.Linear(8, 8), "b": model(torch, lambda nn: {"codes": nn.Linear(8, 5, bias=False)}, ours)},
        lambda net, x: net.b(net.a(x)),
    )
    scores = model(paddle, lambda nn: {"codes": nn.Linear(8, 5, bias_attr=False)}, theirs)
    port = model(paddle, lambda nn: {"a": nn.Linear(8, 8), "b": scores}, lambda net, x: net.b(net.a(x)))
    cause = told(reference, port, ROWS)
    assert "2" in cause.message
    assert cause.explained > 0.99
    assert "paddle.matmul(chosen" in cause.place.code


def test_code_is_shown_of_a_cell_that_one_side_calls_step_by_step():
    """Each cell holds a weight of its own; the reference's loops over the rows itself."""

    def ours(net, x):
        state, made = x.new_zeros(len(x), 8), []
        for turn in range(x.shape[1]):
            state = (x[:, turn] + state @ net.kept.weight.T).tanh()
            made.append(state)
        return torch.stack(made, 1)

    def loop(net, x):
        state, made = paddle.zeros([len(x), 8], x.dtype), []
        for turn in range(x.shape[1]):
            state = net.cell(x[:, turn], state)
            made.append(state)
        return net.out(paddle.stack(made, 1))

    def layers(side, forward):
        kept = side.nn.Linear(8, 8)
        return {"cell": model(side, lambda _: {"kept": kept}, forward), "out": side.nn.Linear(8, 3)}

    def port(forward):
        return model(paddle, lambda _: layers(paddle, forward), loop)

    reference = model(torch, lambda _: layers(torch, ours), lambda net, x: net.out(net.cell(x)))
    assert align(reference, port(lambda net, x, h: PF.tanh(x + h @ net.kept.weight)), ROWS).passed
    cause = told(reference, port(lambda net, x, h: PF.tanh(x - h @ net.kept.weight)), ROWS)
    assert "x - h @ net.kept.weight" in cause.place.code


def test_a_wrong_mask_is_told_where_it_is_made():
    def ours(net, x):
        rows = torch.arange(x.shape[1])
        return net.out(net.attention(x, x, x, attn_mask=rows[None] > rows[:, None])[0])

    def theirs(net, x):
        mask = paddle.triu(paddle.full([x.shape[1]] * 2, -1e9, dtype=x.dtype), 2)
        return net.out(net.attention(x, x, x, attn_mask=mask))

    reference = model(
        torch, lambda nn: {"attention": nn.MultiheadAttention(8, 2, batch_first=True), "out": nn.Linear(8, 3)}, ours
    )
    port = model(paddle, lambda nn: {"attention": nn.MultiHeadAttention(8, 2), "out": nn.Linear(8, 3)}, theirs)
    cause = told(reference, port, ROWS)
    assert "-1e9" in cause.place.code  # Paddle's own code is not what is wrong


def test_rows_of_a_table_that_are_not_the_references_are_told_where_they_are_looked_up():
    def ours(net, ids):
        return net.out(net.table(ids + torch.tensor([0, 4, 7])).flatten(1))

    def theirs(net, ids):
        rows = net.table(ids)
        return net.out(rows.flatten(1))

    def layers(nn):
        return {"table": nn.Embedding(10, 8), "out": nn.Linear(24, 3)}

    ids = np.array([[1, 2, 0], [3, 0, 2], [0, 1, 1], [2, 2, 2]])
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ids)
    assert cause.place.code == "rows = net.table(ids)"
    assert "torch.tensor([0, 4, 7])" in cause.reference_place.code


def waves(side, apart):
    """Sines and cosines of positions, side by side or in turn; and of what a layer makes of those."""

    def ours(x):
        angle = x[..., None] / 100 ** (2 * (torch.arange(8, dtype=torch.float32) // 2) / 8)
        return torch.stack((angle[..., 0::2].sin(), angle[..., 1::2].cos()), -1).flatten(-2)

    def theirs(x):
        angle = x.unsqueeze(-1) / 100 ** (paddle.arange(0, 8, 2, dtype="float32") / 8)
        sine, cosine = angle.sin(), angle.cos()
        return paddle.concat([sine, cosine], -1) if apart else paddle.stack([sine, cosine], -1).flatten(-2)

    table = ours if side is torch else theirs
    layers = linears(first=(8, 8), second=(8, 8), out=(8, 3))
    return model(side, layers, lambda net, x: net.out(net.second(table(net.first(table(x)).mean(-1)))))


def test_numbers_that_are_right_in_another_form_are_not_what_parts():
    places = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert align(waves(torch, None), waves(paddle, apart=False), places).passed
    cause = told(waves(torch, None), waves(paddle, apart=True), places)
    assert "paddle.concat([sine, cosine], -1)" in cause.place.code


def enlarged(side, wrong):
    """A resized image, whose places Paddle computes in float32, and a fault behind it."""
    conv = "Conv2d" if side is torch else "Conv2D"
    resize, join = (F.interpolate, torch.cat) if side is torch else (PF.interpolate, paddle.concat)

    def forward(net, x):
        small = net.b(net.a(x)[:, :, ::2, ::2])
        large = resize(small, size=[19, 23], mode="bilinear")
        both = join([net.a(x), large], 1)
        return net.out(net.c(both) if not wrong else PF.sigmoid(net.c(both)))

    sizes = {"a": (3, 4), "b": (4, 4), "c": (8, 4), "out": (4, 2)}
    return model(side, lambda nn: {name: getattr(nn, conv)(*size, 1) for name, size in sizes.items()}, forward)


def test_the_rounding_of_a_kernel_is_not_told_beside_a_fault():
    image = RANDOM.standard_normal((2, 3, 19, 23)).astype(np.float32)
    assert align(enlarged(torch, wrong=False), enlarged(paddle, wrong=False), image).passed
    cause = told(enlarged(torch, wrong=False), enlarged(paddle, wrong=True), image)
    assert (cause.code, cause.name) == ("extra-call", "sigmoid")


def test_what_mends_one_layer_of_a_class_is_told_of_an_earlier_one(monkeypatch):
    """As if the search had shown of the first one where it parts, and had found an edit of the second one alone."""

    def diagnosed(_located, verdict, *_, like, **_more):
        edit = Diagnosis(
            code="argument", name="reduce", port_path=verdict.port_path, message="it adds", evidence="", fix="assign"
        )
        return (
            edit if like or verdict.port_path == "two" else replace(edit, code="parting", name="topk", explained=1.0),
        )

    monkeypatch.setattr("tipchain.live.causes.diagnose", diagnosed)
    layers = linears(one=(8, 8), two=(8, 8))
    reference, port = (model(side, layers, lambda net, x: net.two(net.one(x))) for side in (torch, paddle))
    tipchain.copy_weights(reference, port)
    port.one.bias.set_value(port.one.bias + 1)
    port.two.bias.set_value(port.two.bias + 2)
    report = tipchain.align(reference, port, {"args": (ROWS,)})
    assert [(one.code, set(one.layers)) for one in report.diagnoses if one.name in ("reduce", "topk")] == [
        ("argument", {"one", "two"})
    ], str(report)


def test_a_layer_that_is_called_for_each_part_of_what_the_reference_gives_it_is_no_fault():
    def ours(net, x):
        return x + net.b(net.norm(x))

    def theirs(net, x):
        first, others = x[:, :1], x[:, 1:]
        return paddle.concat([one + net.b(net.norm(one)) for one in (first, others)], axis=1)

    def layers(nn):
        return {"norm": nn.LayerNorm(8), "b": nn.Linear(8, 8)}

    torch.manual_seed(0)
    assert align(model(torch, layers, ours), model(paddle, layers, theirs), ROWS).passed


def test_a_gradient_whose_cut_ends_the_process_is_tried_apart():
    """Paddle's gradient of ``cross`` needs both of its tensors to have one (3.3.1)."""

    def crossing(library, axis, detached):
        def forward(net, x):
            a, b = net.a(x)[..., :3], net.b(x)[..., :3]
            weight = (a * b).sum(axis).exp()
            return library.cross(a, b, axis), weight.detach() * b.sum(axis) if detached else weight * b.sum(axis)

        return forward

    torch.manual_seed(0)
    layers = linears(a=(8, 4), b=(8, 4))
    reference, port = (
        model(torch, layers, crossing(torch, -1, True)),
        model(paddle, layers, crossing(paddle, -1, False)),
    )
    cause = told(reference, port, ROWS)
    assert (cause.code, cause.name) == ("cut-gradient", "detach")
    assert cause.place.code == "weight = (a * b).sum(axis).exp()"


@pytest.mark.parametrize("used", [False, True])
def test_parameters_that_no_gradient_comes_to_may_be_frozen(used):
    def scored(library):
        def forward(net, x):
            with library.no_grad():
                target = net.target(x)
            return net.a(x) - target if not used else net.a(x) - target + net.target(x)

        return forward

    torch.manual_seed(0)
    layers = linears(a=(8, 4), target=(8, 4))
    reference, port = model(torch, layers, scored(torch)), model(paddle, layers, scored(paddle))
    for one in port.target.parameters():
        one.stop_gradient = True
    report = align(reference, port, ROWS)
    assert report.passed is not used
    assert [(one.name, one.harmless) for one in report.findings] == [("trainable", not used)]
