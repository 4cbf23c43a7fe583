"""torch's defaults in Paddle, and docs/how-to/initializers.md: every row is drawn on both sides and compared."""

import re
from pathlib import Path
from types import SimpleNamespace

import both_frameworks  # noqa: F401
import numpy as np
import pytest
from stage_records import judge_recordings, load_both, make_bench, outcomes, reasons

from tipchain.errors import UsageError
from tipchain.pairs.paddle_initializers import like_torch
from tipchain.parity.settings import InitSettings
from tipchain.parity.stages.init import record

pytestmark = pytest.mark.frameworks
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "initializers.md"
ROWS = [
    tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| `\w+_\(", line)
]
LAYERS = {
    "Conv2d": "(16, 32, 3, groups=4)",
    "ConvTranspose2d": "(16, 32, 3, groups=2)",
    "Conv1d": "(16, 32, 5)",
    "ConvTranspose3d": "(8, 16, 3)",
    "Linear": "(64, 90)",
    "Bilinear": "(8, 9, 50)",
    "Embedding": "(50, 20)",
    "LSTM": "(8, 16, 2)",
    "GRU": "(8, 16)",
    "LSTMCell": "(8, 16)",
    "BatchNorm2d": "(16)",
    "LayerNorm": "(16)",
    "GroupNorm": "(2, 16)",
    "PReLU": "(16)",
    "MultiheadAttention": "(32, 4)",
    "TransformerEncoderLayer": "(32, 4, 64)",
    "Transformer": "(32, 4, 1, 1, 64)",
}
PADDLES = {
    "Conv2d": "Conv2D",
    "ConvTranspose2d": "Conv2DTranspose",
    "Conv1d": "Conv1D",
    "ConvTranspose3d": "Conv3DTranspose",
    "BatchNorm2d": "BatchNorm2D",
    "MultiheadAttention": "MultiHeadAttention",
}
WEIGHTS = {"Conv2D": (32, 16, 3, 3), "Conv2DTranspose": (32, 16, 3, 3), "Linear": (64, 90), "Embedding": (90, 40)}


@pytest.fixture(scope="module")
def both():
    """Both frameworks, and a function that judges two models' initial values."""
    torch, paddle = load_both()

    def judge(reference, port, seed=0):
        sides = ((torch, reference), (paddle, port))
        recorded = [
            record(make_bench(one, {"model": build}, init=InitSettings(values=5000), seed=seed)) for one, build in sides
        ]
        return judge_recordings("init", *recorded)

    return SimpleNamespace(torch=torch.torch, paddle=paddle.paddle, judge=judge)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_start_as_in_torch(both, kind):
    def reference():
        return eval(f"nn.{kind}{LAYERS[kind]}", {"nn": both.torch.nn})

    def port():
        return like_torch(eval(f"nn.{PADDLES.get(kind, kind)}{LAYERS[kind]}", {"nn": both.paddle.nn}))

    judged = both.judge(reference, port)
    assert set(outcomes(judged).values()) == {"PASS"}, reasons(judged, "FAIL", "ERROR", "SKIP")


def test_other_paddings_widths_and_absent_biases(both):
    torch, paddle = both.torch.nn, both.paddle.nn
    judged = both.judge(
        lambda: torch.Sequential(
            torch.Embedding(30, 20, padding_idx=3),
            torch.MultiheadAttention(32, 4, kdim=16, vdim=24),
            torch.Linear(20, 30, bias=False),
            torch.InstanceNorm2d(8, affine=True),
        ),
        lambda: like_torch(
            paddle.Sequential(
                paddle.Embedding(30, 20, padding_idx=3),
                paddle.MultiHeadAttention(32, 4, kdim=16, vdim=24),
                paddle.Linear(20, 30, bias_attr=False),
                paddle.InstanceNorm2D(8),
            )
        ),
    )
    assert set(outcomes(judged).values()) == {"PASS"}, reasons(judged, "FAIL", "ERROR", "SKIP")


def test_values_follow_paddles_seed_and_differ_from_model_to_model(both):
    def draw(seed):
        both.paddle.seed(seed)
        return like_torch(both.paddle.nn.Linear(4, 4)).weight.numpy()

    np.testing.assert_array_equal(draw(1), draw(1))
    assert not np.array_equal(draw(1), draw(2))


def test_own_parameters_and_buffers_stay(both):
    class Own(both.paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.scale = self.create_parameter([3])
            self.norm = both.paddle.nn.BatchNorm2D(3)

    model = Own()
    model.scale.set_value(both.paddle.full([3], 7.0))
    model.norm._mean.set_value(both.paddle.full([3], 5.0))
    assert like_torch(model) is model
    assert model.scale.numpy().tolist() == [7, 7, 7]
    assert model.norm._mean.numpy().tolist() == [5, 5, 5]
    assert not model.scale.stop_gradient


def test_a_weight_made_of_others_is_refused(both):
    model = both.paddle.nn.Sequential(both.paddle.nn.utils.weight_norm(both.paddle.nn.Linear(3, 4)))
    with pytest.raises(UsageError, match="0: the weight is made of other parameters"):
        like_torch(model)


def draw_row(both, row, shape, kind):
    """Return builders of models whose one parameter a row's two sides draw."""
    torch, paddle = both.torch, both.paddle
    transposed = kind == "Linear"

    def reference():
        model = torch.nn.Module()
        weight = torch.empty(shape[::-1] if transposed else shape)
        eval(f"init.{row[0]}", {"init": torch.nn.init, "w": weight})
        model.weight = torch.nn.Parameter(weight)
        return model

    def port():
        model = paddle.nn.Layer()
        initializer = eval(f"initializers.{row[1]}", {"initializers": paddle.nn.initializer, "np": np, "shape": shape})
        model.weight = model.create_parameter(list(shape), default_initializer=initializer)
        if transposed:
            model.weight = paddle.create_parameter(
                list(shape[::-1]),
                "float32",
                default_initializer=paddle.nn.initializer.Assign(model.weight.numpy().T.copy()),
            )
        return model

    return reference, port


def test_the_page_has_the_guides_rows_and_more():
    assert len(ROWS) >= 17
    names = {row[0].partition("(")[0] for row in ROWS}
    assert {
        "kaiming_normal_",
        "kaiming_uniform_",
        "xavier_normal_",
        "xavier_uniform_",
        "orthogonal_",
        "dirac_",
    } <= names


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_page_is_true(both, row):
    for kind in row[2].split(", "):
        judged = both.judge(*draw_row(both, row, WEIGHTS[kind], kind))
        assert outcomes(judged) == {"weight": "PASS"}, (kind, reasons(judged, "FAIL", "ERROR", "SKIP"))


@pytest.mark.parametrize(
    ("torch", "paddle", "kind", "words"),
    [
        ("kaiming_uniform_(w, a=5**0.5)", "KaimingUniform(negative_slope=5**0.5)", "Conv2D", "ratio 2.4"),
        ("kaiming_normal_(w)", "KaimingNormal()", "Embedding", "ratio 0.66"),
        ("uniform_(w)", "Uniform()", "Linear", "mean 0.49"),
        (
            "trunc_normal_(w, std=0.02)",
            "TruncatedNormal(std=0.02, a=-0.04, b=0.04)",
            "Linear",
            "truncated at 2 std found",
        ),
    ],
)
def test_what_the_page_warns_of_differs(both, torch, paddle, kind, words):
    judged = both.judge(*draw_row(both, (torch, paddle), WEIGHTS[kind], kind))
    assert words in reasons(judged, "FAIL")["weight"]


def test_paddles_own_defaults_are_as_the_page_says(both):
    torch, paddle = both.torch.nn, both.paddle.nn

    def reference():
        model = torch.Sequential(
            torch.Conv2d(16, 32, 3), torch.Linear(64, 90), torch.Embedding(50, 20), torch.LSTM(8, 16)
        )
        init = torch.init
        init.normal_(model[0].weight, 0, (2 / (16 * 9)) ** 0.5)
        init.xavier_uniform_(model[1].weight)
        init.xavier_uniform_(model[2].weight)
        for layer in model[:2]:
            init.zeros_(layer.bias)
        return model

    judged = both.judge(
        reference,
        lambda: paddle.Sequential(
            paddle.Conv2D(16, 32, 3), paddle.Linear(64, 90), paddle.Embedding(50, 20), paddle.LSTM(8, 16)
        ),
    )
    assert set(outcomes(judged).values()) == {"PASS"}, reasons(judged, "FAIL", "ERROR", "SKIP")
