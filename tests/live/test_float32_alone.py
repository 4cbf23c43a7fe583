"""References that insist on float32: they are judged in float64 all the same, where sums in another order are no difference."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain

IMAGES = (np.random.default_rng(1).standard_normal((2, 8, 112, 112)) + 2).astype(np.float32)


def insists(module, args):
    """Refuse what is not float32, a parameter too."""
    for one in (*module.parameters(), *args):
        if one.dtype != torch.float32:
            raise TypeError(f"float32 is needed, not {one.dtype}")


def port(epsilon=1e-5):
    def forward(net, x):
        y = net.pool(net.norm(net.conv(x)) + 2)
        return net.fc(paddle.flatten(y, 1))

    def layers(nn):
        conv, norm = nn.Conv2D(8, 16, 3, padding=1), nn.BatchNorm2D(16, epsilon=epsilon)
        return {"conv": conv, "norm": norm, "pool": nn.AdaptiveAvgPool2D(1), "fc": nn.Linear(16, 4)}

    return model(paddle, layers, forward)


@pytest.fixture
def reference():
    """Return a reference that refuses float64, the model as a whole and each layer."""

    def forward(net, x):
        y = net.pool(net.norm(net.conv(x)) + 2)
        made = torch.zeros(y.shape, dtype=y.dtype) + y  # what is made of the dtype that is told is in float64, too
        return net.fc(torch.flatten(made, 1))

    def layers(nn):
        conv, norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        return {"conv": conv, "norm": norm, "pool": nn.AdaptiveAvgPool2d(1), "fc": nn.Linear(16, 4)}

    torch.manual_seed(0)
    made = model(torch, layers, forward)
    for one in made.modules():
        one.register_forward_pre_hook(insists)
    with pytest.raises(TypeError, match="float32 is needed"):
        made.double()(torch.zeros(2, 8, 4, 4, dtype=torch.float64))
    return made.float()


def test_sums_in_another_order_are_no_difference(reference):
    report = copy_and_align(reference, port(), IMAGES)
    assert report.passed, str(report)
    assert {one.method for one in report.layers} == {"float64"}
    assert "judged in float32" not in report.reasons["forward"]


def test_what_float32_cannot_tell_is_a_difference(reference):
    report = copy_and_align(reference, port(epsilon=1.2e-5), IMAGES)
    assert not report.passed
    assert report.first_divergence.port_path == "norm"
    assert report.first_divergence.own < 16 * 2.0**-23, "less than what float32 may be off by"
    assert report.diagnoses[0].name == "epsilon"


def test_the_models_themselves_say_what_they_are(reference):
    copy_and_align(reference, port(), IMAGES)
    assert next(reference.parameters()).dtype == torch.float32
    assert torch.zeros(2, dtype=torch.float64).dtype == torch.float64


class Single(paddle.nn.Layer):
    def forward(self, x):
        if x.dtype != paddle.float32:
            raise TypeError("no kernel for float64")
        return paddle.nn.functional.relu(x)


def with_single(epsilon=1e-5):
    """Return a reference, and a port of which one layer does not run in float64: a mean of many elements is rounded in both."""
    torch.manual_seed(0)
    parts = (
        torch.nn.BatchNorm2d(8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 4),
    )
    reference = torch.nn.Sequential(*parts).eval()
    port = paddle.nn.Sequential(
        paddle.nn.BatchNorm2D(8, epsilon=epsilon),
        paddle.nn.AdaptiveAvgPool2D(1),
        paddle.nn.Flatten(),
        paddle.nn.Linear(8, 8),
        Single(),
        paddle.nn.Linear(8, 4),
    )
    port.eval()
    return copy_and_align(
        reference, port, np.random.default_rng(1).standard_normal((2, 8, 300, 300)).astype(np.float32) + 3
    )


def test_layers_beside_one_without_float64_are_judged_in_it():
    report = with_single()
    assert report.passed, str(report)
    pool = next(one for one in report.layers if one.port_path == "1" and one.direction == "forward")
    assert pool.ratio > 16, "in float32 alone the pool would be accused"
    assert pool.method == "float64"
    assert {one.port_path for one in report.layers if one.method == "float32"} <= {"", "4"}
    assert "judged in float32" in report.reasons["forward"]


def test_what_float32_cannot_tell_shows_beside_one_without_float64():
    report = with_single(epsilon=1.1e-5)
    assert report.first_divergence.port_path == "0"
    assert report.first_divergence.direction == "forward", "seen in numbers"


def test_constants_from_numpy_in_float32_are_in_float64_with_the_model():
    """Many models make tensors of numpy's numbers in forward; Paddle joins and multiplies no two precisions."""
    table = np.float32([[0.1], [0.2], [0.3], [0.4]])

    def ours(net, x):
        y = torch.matmul(net.fc(x), torch.from_numpy(table))
        return torch.cat([y, torch.tensor(np.zeros((x.shape[0], 1)), dtype=torch.float32)], 1)

    def theirs(net, x):
        y = paddle.matmul(net.fc(x), paddle.to_tensor(table))
        return paddle.concat([y, paddle.to_tensor(np.zeros((x.shape[0], 1)), dtype="float32")], 1)

    reference, port = (
        model(side, lambda nn: {"fc": nn.Linear(4, 4)}, forward) for side, forward in ((torch, ours), (paddle, theirs))
    )
    report = copy_and_align(reference, port, IMAGES[:, :4, 0, 0])
    assert report.passed, str(report)
    assert "float64" not in " ".join(report.reasons.values()), str(report)


def test_what_float64_alone_tells_apart_is_the_same_function_in_float32():
    """Attention in which a row may be masked whole: the port's -1e9 swallows its scores in float32 alone."""

    def layers(nn):
        return {"inside": nn.Linear(8, 8), "outside": nn.Linear(8, 8)}

    def masked(net, x, seen):
        y = net.inside(x)
        scores = (y @ y.transpose(1, 2)).masked_fill(seen[:, None] == 0, torch.finfo(x.dtype).min)
        return net.outside(scores.softmax(-1) @ y)

    def ported(net, x, seen):
        y = net.inside(x)
        scores = paddle.matmul(y, y, transpose_y=True) + (seen.unsqueeze(1) == 0).astype(x.dtype) * -1e9
        return net.outside(paddle.matmul(paddle.nn.functional.softmax(scores), y) * net.factor)

    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    x, seen = generator.standard_normal((3, 5, 8)).astype(np.float32), np.ones((3, 5), np.int64)
    seen[1] = 0
    ours, port = model(torch, layers, masked), model(paddle, layers, ported)
    port.factor = 1.0
    report = copy_and_align(ours, port, (x, seen))
    assert report.passed, str(report)
    assert report.reasons["forward"].startswith("the outputs differ in float64 alone")
    assert report.stages["backward"].value == "SKIP"
    port.factor = 1 + 1e-5
    assert not tipchain.align(ours, port, (x, seen)).passed, "what float32 shows as well is no such thing"
