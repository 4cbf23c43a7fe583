"""Faults of functional code that the reference's own code tells: settings, functions, operands, places."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.explain.causes.tensors import rotary_base


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def pair(live):
    """Return a builder of two models with equal layers ``a`` and ``b`` and code of their own."""
    torch, paddle = live.torch, live.paddle

    def build(ours, theirs, layers, fill=None):
        class Reference(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = (getattr(torch.nn, kind)(*sizes) for kind, *sizes in layers)
                if fill is not None:
                    self.register_buffer("table", torch.tensor(fill[0]), persistent=False)

            def forward(self, *x):
                return ours(self, *x)

        class Port(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.a, self.b = (getattr(paddle.nn, kind.replace("2d", "2D"))(*sizes) for kind, *sizes in layers)
                if fill is not None:
                    self.register_buffer("table", paddle.to_tensor(fill[1]), persistable=False)

            def forward(self, *x):
                return theirs(self, *x)

        return live.equal(Reference(), Port())

    return build


def functional(side):
    import paddle
    import torch

    return (torch.nn.functional, paddle.nn.functional)[side]


LINES = (("Linear", 6, 6), ("Linear", 6, 6))
IMAGES = (("Conv2d", 3, 12, 1), ("Conv2d", 12, 3, 1))
GRID = (np.random.default_rng(3).random((2, 4, 5, 2)) * 2.6 - 1.3).astype(np.float32)


def shuffled(x, *sizes):
    count, channels, *rest = x.shape
    turned = x.reshape([count, *sizes, *rest])
    order = [0, 2, 1, 3, 4]
    turned = (
        turned.permute(*order)
        if hasattr(turned, "permute") and "torch" in type(turned).__module__
        else turned.transpose(order)
    )
    return turned.reshape([count, channels, *rest])


def shifted(x, zeros, later):
    made = zeros(x)
    if later:
        made[:, 1:, :2] = x[:, :-1, :2]
    else:
        made[:, :-1, :2] = x[:, 1:, :2]
    made[:, :, 2:] = x[:, :, 2:]
    return made


def zeros(x):
    import paddle
    import torch

    return torch.zeros_like(x) if isinstance(x, torch.Tensor) else paddle.zeros_like(x)


SETTINGS = {
    "align-corners": (IMAGES, (random(2, 3, 6, 7), GRID), lambda m, x, g: m.b(functional(0).grid_sample(m.a(x), g, align_corners=False)),
                      lambda m, x, g: m.b(functional(1).grid_sample(m.a(x), g)), "pass `align_corners=False`"),
    "padding-mode": (IMAGES, (random(2, 3, 6, 7), GRID), lambda m, x, g: m.b(functional(0).grid_sample(m.a(x), g, padding_mode="border", align_corners=True)),
                     lambda m, x, g: m.b(functional(1).grid_sample(m.a(x), g)), "pass `padding_mode='border'`"),
    "min": (LINES, (random(4, 6),), lambda m, x: m.b(m.a(x).clamp(-0.4, 0.7)), lambda m, x: m.b(m.a(x).clip(-0.5, 0.7)), "min=-0.4"),
    "scale-factor": (LINES, (random(4, 6),), lambda m, x: m.b(m.a(x) / 0.07), lambda m, x: m.b(m.a(x) / 0.7), "0.07"),
    "wrong-index": (LINES, (random(2, 7, 6),), lambda m, x: m.b(m.a(x)[:, 1::3]), lambda m, x: m.b(m.a(x)[:, ::3][:, :2]), "1::3"),
    "head-order": (IMAGES, (random(2, 3, 5, 5),), lambda m, x: m.b(shuffled(m.a(x), 3, 4)), lambda m, x: m.b(shuffled(m.a(x), 4, 3)), "[2, 3, 4, 5, 5]"),
    "repeat-order": (LINES, (random(4, 6),), lambda m, x: m.b(m.a(x).repeat(3, 1)), lambda m, x: m.b(m.a(x).repeat_interleave(3, 0)), "tile"),
}  # fmt: skip


@pytest.mark.parametrize("code", SETTINGS)
def test_the_reference_s_settings_are_tried_on_the_port_s_call(live, causes, pair, code):
    layers, inputs, ours, theirs, fix = SETTINGS[code]
    cause = causes.first(*pair(ours, theirs, layers), {"args": inputs})
    assert cause.code == code
    assert fix in cause.fix
    assert "test_counterparts.py:" in cause.message


def test_what_is_written_into_a_tensor_is_followed(live, causes, pair):
    found = causes.first(
        *pair(
            lambda m, x: m.b(shifted(m.a(x), zeros, later=False)),
            lambda m, x: m.b(shifted(m.a(x), zeros, later=True)),
            LINES,
        ),
        random(2, 5, 6),
    )
    assert found.code == "wrong-index"
    assert "setitem" in found.message


def angles(x, base, *, halves=True):
    import paddle
    import torch

    here = torch if isinstance(x, torch.Tensor) else paddle
    frequencies = 1.0 / base ** (here.arange(0, 6, 2).to(x.dtype) / 6)
    turns = here.outer(here.arange(x.shape[1]).to(x.dtype), frequencies)
    if halves:
        both = here.concat([turns, turns], -1)
        rotated = here.concat([-x[..., 3:], x[..., :3]], -1)
    else:
        both = turns.repeat_interleave(2, -1)
        rotated = here.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * both.cos() + rotated * both.sin()


@pytest.mark.parametrize(
    ("code", "wrong", "told"),
    [("rope-theta", {"base": 1e4}, "10000.0"), ("rotate-half", {"base": 5e5, "halves": False}, "interleaved")],
)
def test_rotary_positions(live, causes, pair, code, wrong, told):
    found = causes.first(
        *pair(lambda m, x: m.b(angles(m.a(x), 5e5)), lambda m, x: m.b(angles(m.a(x), **wrong)), LINES), random(2, 5, 6)
    )
    assert found.code == code
    assert told in found.message


def test_buffers_that_no_checkpoint_holds_are_compared(live, causes, pair):
    frequencies = [(base ** (-np.arange(6) / 6)).astype(np.float32) for base in (1e6, 1e4)]
    models = pair(lambda m, x: m.b(m.a(x) * m.table), lambda m, x: m.b(m.a(x) * m.table), LINES, frequencies)
    found = causes.first(*models, random(2, 6))
    assert found.code == "rope-theta"
    assert "`table`" in found.message
    assert models[1].table.numpy() == pytest.approx(frequencies[1]), "the user's buffer is as it was"


@pytest.mark.parametrize("base", [1e4, 5e5])
@pytest.mark.parametrize("shape", ["frequencies", "cosines", "sines"])
def test_the_base_of_a_table_is_read_off_it(base, shape):
    frequencies = base ** (-np.arange(4) / 4)
    turns = np.concatenate([np.outer(np.arange(6), frequencies)] * 2, -1)
    table = {"frequencies": frequencies, "cosines": np.cos(turns)[None, :, None], "sines": np.sin(turns)}[shape]
    assert rotary_base(table) == pytest.approx(base, rel=1e-3)


def test_other_tables_have_no_base():
    assert rotary_base(random(6)) is None
    assert rotary_base(random(5, 6)) is None
    assert rotary_base(np.ones(5)) is None
    assert rotary_base(np.array(2.0)) is None


def test_outputs_in_another_order(live, causes, pair):
    found = causes.first(
        *pair(lambda m, x: [m.a(x), m.b(x), m.b(x[:, :2])], lambda m, x: [m.a(x), m.b(x), m.b(x[:, :2])][::-1], LINES),
        random(2, 4, 6),
    )
    assert (found.code, "reversed" in found.message) == ("output-order", True)


def test_another_tensor_as_one_of_several_outputs(live, causes, pair):
    def both(m, x, number):
        made = m.a(x)
        after = m.b(made)
        return (made, after)[number], after.tanh()

    found = causes.first(*pair(lambda m, x: both(m, x, 0), lambda m, x: both(m, x, 1), LINES), random(4, 6))
    assert found.code == "wrong-output"
    assert "its output 0 is the result of `b`" in found.message
    assert "the reference's the result of `a`" in found.message


def test_functions_in_another_order_are_told_and_nothing_is_exchanged_with_itself(live, causes, pair):
    def ours(m, x):
        content, style = m.a(x), m.b(x)
        stds = [(one.var(1, keepdim=True) + 0.01).sqrt() for one in (content, style)]
        return (content - content.mean(1, keepdim=True)) / stds[0] * stds[1]

    def spread(x):
        return (x.var(1).sqrt() + 0.01).reshape([x.shape[0], 1])

    def theirs(m, x):
        content, style = m.a(x), m.b(x)
        made = (content - content.mean(1, keepdim=True)) / spread(content)
        return made * spread(style)

    found = causes.first(*pair(ours, theirs, LINES), random(4, 6))
    assert found.code == "order", found
    assert "it applies `sqrt` at test_counterparts.py" in found.message
    assert "the reference after `add`" in found.message
    assert "exchanged" not in found.message


def test_a_sign_in_front_of_a_function_is_told_as_that(live, causes, pair):
    found = causes.first(
        *pair(
            lambda m, x: m.b(functional(0).softmax(-m.a(x).abs(), -1)),
            lambda m, x: m.b(functional(1).softmax(m.a(x).abs(), -1)),
            LINES,
        ),
        random(4, 6),
    )
    assert found.code == "sign"


@pytest.mark.parametrize("ignored", [True, False])
def test_masks_of_fused_attention(live, causes, pair, ignored):
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])

    def ours(m, x, seen):
        made = m.a(x)[:, None]
        return m.b(
            functional(0).scaled_dot_product_attention(made, made, made, attn_mask=seen[:, None, None].bool())[:, 0]
        )

    def theirs(m, x, seen):
        made = m.a(x)[:, :, None]
        hidden = None if ignored else ~seen[:, None, None].astype("bool")
        return m.b(functional(1).scaled_dot_product_attention(made, made, made, attn_mask=hidden)[:, :, 0])

    found = causes.first(*pair(ours, theirs, LINES), {"args": (random(2, 4, 6), mask)})
    assert "mask" in found.code


def test_functions_of_a_table_are_watched(live, causes, pair):
    silu, gelu = functional(0).silu, functional(1).gelu
    table = {"act": gelu}
    models = pair(lambda m, x: m.b(silu(m.a(x))), lambda m, x: m.b(m.table_of["act"](m.a(x))), LINES)
    models[1].table_of = table
    found = causes.first(*models, random(3, 6))
    assert (found.code, "`silu`" in found.message) == ("other-activation", True)
    assert found.fix.startswith("write `silu` for ")
    assert table["act"] is gelu, "the user's table is as it was"


def blocks(live, *, front):
    """Return two-branch blocks of both frameworks: the reference's norms in front of its branches, the port's behind the sums."""

    def before(m, x):
        x = x + m.a(m.n1(x))
        return x + m.b(m.n2(x))

    def behind(m, x):
        x = m.n1(x + m.a(x))
        return m.n2(x + m.b(x))

    def inside(m, x):
        x = x + m.n1(m.a(x))
        return x + m.n2(m.b(x))

    ours, theirs = {"front": (before, behind), "behind": (behind, before), "inside": (before, inside)}[front]

    class Reference(live.torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = live.torch.nn.LayerNorm(6), live.torch.nn.LayerNorm(6)
            self.a, self.b = live.torch.nn.Linear(6, 6), live.torch.nn.Linear(6, 6)

        def forward(self, x):
            return ours(self, x)

    class Port(live.paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = live.paddle.nn.LayerNorm(6), live.paddle.nn.LayerNorm(6)
            self.a, self.b = live.paddle.nn.Linear(6, 6), live.paddle.nn.Linear(6, 6)

        def forward(self, x):
            return theirs(self, x)

    return live.equal(Reference(), Port())


@pytest.mark.parametrize("front", ["front", "behind", "inside"])
def test_the_order_of_norm_and_residual(live, causes, front):
    assert causes.first(*blocks(live, front=front), random(2, 3, 6)).code == "norm-order"


def test_a_tensor_that_a_layer_is_given_in_another_form_is_told(live, causes, pair):
    def ours(m, x, cos):
        return m.b(m.a(x) * cos)

    class Inner:
        bases = tuple(np.cos(np.outer(np.arange(5), base ** (-np.arange(6) / 6))) for base in (1e4, 5e5))

    torch, paddle = live.torch, live.paddle
    found = causes.first(
        *pair(
            lambda m, x: ours(m, x, torch.tensor(Inner.bases[0]).to(x)),
            lambda m, x: ours(m, x, paddle.to_tensor(Inner.bases[1][None]).astype(x.dtype)),
            LINES,
        ),
        random(2, 5, 6),
    )
    assert found.code == "rope-theta"


def test_steps_that_only_the_reference_has_at_the_end_are_told(live, causes, pair):
    found = causes.first(
        *pair(
            lambda m, x: shuffled(m.b(m.a(x)).repeat(1, 2, 1, 1), 2, 3),
            lambda m, x: m.b(m.a(x)).tile([1, 2, 1, 1]),
            IMAGES,
        ),
        random(2, 3, 4, 4),
    )
    assert "reshape(permute(" in found.message
    assert found.explained > 0.99
