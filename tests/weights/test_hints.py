"""What converts without hints although types and shapes differ, and what hints say where nothing tells."""

import numpy as np
import pytest
import yaml

import tipchain
from tipchain.errors import UsageError, WeightsError
from tipchain.weights.convert import to_torch
from tipchain.weights.given_names import read_names
from tipchain.weights.sides import assemble, torch_view

pytestmark = pytest.mark.frameworks


@pytest.fixture
def copy(both):
    """Copy random weights; return the match. Both ways must give the same, under torch's names and in its layout."""

    def run(torch, paddle, **hints):
        match = tipchain.copy_weights(both.randomize(torch), paddle, **hints)
        state = {name: tensor.numpy() for name, tensor in paddle.state_dict().items()}
        back = to_torch(paddle, state, torch, **hints).state
        seen = {
            slot.name: assemble([part.tensor.numpy() for part in slot.parts], slot)
            for slot in torch_view(paddle, match.names)
        }
        for name, tensor in torch.state_dict().items():
            assert both.torch.equal(back[name], tensor), name
            if name in match.slots:
                np.testing.assert_array_equal(seen.pop(name), tensor.numpy(), err_msg=name)
        assert not seen, "what only the port has does not come"
        return match

    return run


def refused(torch, paddle, **hints):
    with pytest.raises(WeightsError) as caught:
        tipchain.copy_weights(torch, paddle, **hints)
    return caught.value


def own(both, side, **tensors):
    if side == "torch":
        return both.tree(
            side, **{name: both.torch.nn.Parameter(both.torch.ones(shape)) for name, shape in tensors.items()}
        )
    made = both.tree(side)
    for name, shape in tensors.items():
        setattr(made, name, made.create_parameter(list(shape)))
    return made


def multiplying(both, side, size, *, turned):
    """Return a layer of a user's own class that multiplies by a square matrix."""
    base = both.torch.nn.Module if side == "torch" else both.paddle.nn.Layer

    class Own(base):
        def forward(self, x):
            return x @ (self.weight.T if turned else self.weight) + self.bias

    made, shapes = Own(), {"weight": (size, size), "bias": (size,)}
    for name, shape in shapes.items():
        one = both.torch.nn.Parameter(both.torch.ones(shape)) if side == "torch" else made.create_parameter(list(shape))
        setattr(made, name, one)
    return made


def test_constants_that_only_the_port_keeps_stay_as_they_are(both, nn, copy):
    torch = both.tree("torch", embed=nn.t.Embedding(7, 4), head=nn.t.Linear(4, 2))
    paddle = both.tree("paddle", embed=nn.p.Embedding(7, 4), fc=nn.p.Linear(4, 2))
    paddle.embed.register_buffer("position_ids", both.paddle.arange(9).reshape([1, 9]))
    paddle.register_buffer("mask", both.paddle.tril(both.paddle.ones([3, 3])))
    match = copy(torch, paddle)
    assert set(match.kept) == {"embed.position_ids", "mask"}
    np.testing.assert_array_equal(paddle.mask.numpy(), np.tril(np.ones((3, 3))))
    assert "kept: mask: only the port has it" in str(match)
    extra = both.tree("paddle", embed=nn.p.Embedding(7, 4), fc=nn.p.Linear(4, 2), more=nn.p.BatchNorm1D(3))
    assert "only in the port: more.weight" in "\n".join(refused(torch, extra).problems), "statistics are no constants"


@pytest.mark.parametrize("size", [(4, 6), (5, 5)])
def test_linear_layers_and_convolutions_of_one_point_match_both_ways(both, nn, copy, size):
    into, out = size
    for kind in ("Conv1d", "Conv2d"):
        conv = getattr(nn.t, kind)(into, out, 1), getattr(nn.p, kind.replace("d", "D"))(into, out, 1)
        paddle = both.tree("paddle", se=nn.p.Linear(into, out))
        copy(both.tree("torch", se=conv[0]), paddle)
        np.testing.assert_array_equal(paddle.se.weight.numpy().T, conv[0].weight.detach().numpy().reshape(out, into))
        copy(both.tree("torch", se=nn.t.Linear(into, out)), both.tree("paddle", se=conv[1]))


def test_matrices_of_own_classes_are_transposed_by_shape(both, nn, copy):
    torch = both.tree("torch", c=own(both, "torch", weight=(4, 6), bias=(6,)), head=nn.t.Linear(4, 9, bias=False))
    paddle = both.tree("paddle", c=nn.p.Linear(4, 6), head=own(both, "paddle", weight=(4, 9)))
    match = copy(torch, paddle)
    np.testing.assert_array_equal(paddle.c.weight.numpy(), torch.c.weight.detach().numpy())
    assert match.names["c.weight"] == "T(c.weight)"
    assert "matched by structure: head.weight -> T(head.weight)" in str(match)


@pytest.mark.parametrize("turned", [False, True])
def test_square_matrices_are_told_by_what_the_layer_computes(both, nn, copy, turned):
    torch = both.tree("torch", fc=multiplying(both, "torch", 5, turned=turned))
    paddle = both.tree("paddle", fc=nn.p.Linear(5, 5))
    copy(torch, paddle)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    expected = torch.fc(both.torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(paddle.fc(both.paddle.to_tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    copy(
        both.tree("torch", fc=nn.t.Linear(5, 5)), both.tree("paddle", fc=multiplying(both, "paddle", 5, turned=turned))
    )


def test_square_matrices_of_which_nothing_tells_need_a_line(both, nn, copy):
    torch = both.tree("torch", fc=own(both, "torch", weight=(5, 5)))
    port = both.tree("paddle", fc=nn.p.Linear(5, 5, bias_attr=False))
    error = refused(torch, port)
    assert error.skeleton == ("  names:", "    fc.weight: fc.weight  # or T(fc.weight)")
    copy(torch, port, names={"fc.weight": "fc.weight"})
    np.testing.assert_array_equal(port.fc.weight.numpy(), torch.fc.weight.detach().numpy().T)
    copy(torch, port, names={"fc.weight": "T(fc.weight)"})
    np.testing.assert_array_equal(port.fc.weight.numpy(), torch.fc.weight.detach().numpy())
    alike = both.tree("paddle", fc=own(both, "paddle", weight=(5, 5)))
    assert copy(torch, alike).assumed, "both keep it themselves: taken as it is, and said"


@pytest.mark.parametrize(("ours", "theirs", "turned"), [((6, 2, 4), (6, 8), False), ((6, 2, 4), (8, 6), True)])
def test_what_both_keep_themselves_may_have_axes_joined(both, nn, copy, ours, theirs, turned):
    torch = both.tree("torch", a=own(both, "torch", pos=ours), b=own(both, "torch", pos=ours))
    paddle = both.tree("paddle", a=own(both, "paddle", pos=theirs), b=own(both, "paddle", pos=theirs))
    match = copy(torch, paddle)
    values = torch.a.pos.detach().numpy()
    expected = values.reshape(6, -1).T.reshape(theirs) if turned else values.reshape(theirs)
    np.testing.assert_array_equal(paddle.a.pos.numpy(), expected)
    assert len(match.assumed) == 2
    assert "assumed: a.pos" in str(match), "it is said"


def test_axes_of_one_may_differ(both, nn, copy):
    torch = both.tree(
        "torch", scale=nn.t.Parameter(both.torch.tensor(0.5)), gamma=nn.t.Parameter(both.torch.ones(4, 1, 1))
    )
    paddle = own(both, "paddle", scale=(1,), layer_scale=(4,))
    match = copy(torch, paddle)
    assert match.slots["scale"].shape == ()
    assert match.names["scale"] == "scale as []"


@pytest.mark.parametrize("names", [None, {"a": "a", "b": "c"}, {"b.weight": "c.weight"}, {"b.weight": "T(c.weight)"}])
def test_a_kernel_is_never_taken_for_one_that_lies_across(both, nn, names):
    layer, port = nn.t.ConvTranspose2d, nn.p.Conv2DTranspose
    torch = both.tree("torch", a=layer(4, 4, 3), b=layer(4, 4, (3, 5)))
    paddle = both.tree("paddle", a=port(4, 4, 3), c=port(4, 4, (5, 3)))
    assert "b.weight" in "\n".join(refused(torch, paddle, names=names).problems)


def test_a_kernel_lies_across_by_the_users_word(both, nn, copy):
    torch = both.tree("torch", b=nn.t.Conv2d(4, 4, (1, 7)))
    copy(torch, both.tree("paddle", b=nn.p.Conv2D(4, 4, (7, 1))), names={"b.weight": "b.weight as [4, 4, 1, 7]"})
    copy(both.tree("torch", b=nn.t.Conv1d(4, 4, 7)), both.tree("paddle", b=nn.p.Conv2D(4, 4, (1, 7))))


def test_a_kernel_is_not_transposed_in_silence(both, nn):
    pair = both.tree("torch", b=nn.t.Conv2d(4, 4, 3)), both.tree("paddle", b=nn.p.Conv2D(4, 4, 3))
    told = refused(*pair, names={"b.weight": "T(b.weight)"}).problems
    assert told == ("names: b.weight goes to T(b.weight), and b.weight [4, 4, 3, 3] is no matrix",)


def test_order_alone_is_told_and_logged(both, nn, copy, caplog):
    torch = both.tree("torch", a=nn.t.Linear(4, 4), b=nn.t.Linear(4, 4))
    match = copy(torch, both.tree("paddle", x=nn.p.Linear(4, 4), y=nn.p.Linear(4, 4)))
    assert match.by_order == (("a", "x"), ("b", "y"))
    assert "2 layers were matched by the order of their declaration alone" in caplog.text
    assert "matched by order of declaration alone: a -> x" in str(match)


def test_a_container_in_names_is_matched_by_structure_below_it(both, nn, copy):
    def tower(side, *names):
        base = nn.t if side == "torch" else nn.p
        return both.tree(side, **{names[0]: base.Linear(4, 4), names[1]: base.LayerNorm(4)})

    torch = both.tree("torch", left=tower("torch", "fc", "norm"), right=tower("torch", "fc", "norm"))
    paddle = both.tree("paddle", two=tower("paddle", "linear", "ln"), one=tower("paddle", "linear", "ln"))
    match = copy(torch, paddle, names={"left": "one"})
    assert dict(match.by_structure)["left.fc"] == "one.linear"
    np.testing.assert_array_equal(paddle.one.linear.weight.numpy(), torch.left.fc.weight.detach().numpy().T)
    np.testing.assert_array_equal(paddle.two.linear.weight.numpy(), torch.right.fc.weight.detach().numpy().T)


def blocks(both, nn):
    """Return a model that packs query, key and value in matrices of its own, and a port that does not."""
    block = [
        both.tree("torch", qkv=own(both, "torch", weight=(4, 12), bias=(12,)), proj=nn.t.Linear(4, 4)) for _ in range(3)
    ]
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    layers = [both.tree("paddle", **{name: nn.p.Linear(4, 4) for name in names}) for _ in range(3)]
    return both.tree("torch", h=nn.t.ModuleList(block)), both.tree("paddle", layers=nn.p.LayerList(layers))


def test_the_names_of_a_refusal_can_be_pasted(both, nn, copy):
    torch, paddle = blocks(both, nn)
    error = refused(torch, paddle)
    hints = yaml.safe_load("\n".join(error.skeleton))
    assert set(hints["names"]) == {"h.*.qkv.weight", "h.*.qkv.bias"}
    told = str(copy(torch, paddle, **hints))
    assert told == "matched by structure: h.0.proj -> layers.0.out_proj (and 2 more like it)"
    expected = torch.h[2].qkv.weight.detach().numpy()
    np.testing.assert_array_equal(paddle.layers[2].k_proj.weight.numpy(), expected[:, 4:8])
    torch.pooler, paddle.extra = nn.t.Linear(9, 9), nn.p.Linear(3, 9)
    hints = yaml.safe_load("\n".join(refused(torch, paddle).skeleton))
    assert hints["ignore"] == ["pooler", "extra"]
    assert copy(torch, paddle, **hints).kept == ("extra.weight", "extra.bias")


def attention(both, nn, side, **packed):
    """Return blocks of attention whose sizes are multiples of each other, as SegFormer's are."""
    base = nn.t if side == "torch" else nn.p
    made = []
    for size in (4, 8, 16):
        layers = {"norm1": base.LayerNorm(size), "q": base.Linear(size, size)}
        layers |= {name: base.Linear(size, times * size) for name, times in packed.items()}
        made.append(both.tree(side, **layers, norm2=base.LayerNorm(size), fc=base.Linear(size, 2 * size)))
    return both.tree(side, h=(nn.t.ModuleList if side == "torch" else nn.p.LayerList)(made))


def test_what_the_port_holds_in_one_is_told_and_given_no_wrong_names(both, nn):
    torch = attention(both, nn, "torch", k_proj=1, v_proj=1, o_proj=1)
    error = refused(torch, attention(both, nn, "paddle", kv=2, proj=1))
    assert [line.partition(", which")[0] for line in error.problems] == [
        f"packed: h.{block}.kv seems to hold h.{block}.k_proj, h.{block}.v_proj in one" for block in range(3)
    ]
    assert error.skeleton == ()


def test_a_refusal_fits_on_a_screen_and_has_all_problems(both, nn):
    torch = both.tree(
        "torch", **{f"a_very_long_name_of_a_layer_{name}": nn.t.Linear(3 + name, 4) for name in range(40)}
    )
    paddle = both.tree(
        "paddle", **{f"another_very_long_name_{name}": nn.p.Conv2D(3 + name, 4, 3) for name in range(40)}
    )
    error = refused(torch, paddle)
    lines = f"error: {error}".splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert "only in the port: another_very_long_name_0.weight [4, 3, 3, 3]" in str(error)
    assert "… and 39 more that are only in the port" in str(error)
    assert len(error.problems) == 80


def test_what_is_ignored_keeps_its_values_and_is_told(both, nn, copy, tmp_path):
    torch = both.tree("torch", fc=nn.t.Linear(4, 4), pooler=nn.t.Linear(4, 4))
    paddle = both.tree("paddle", fc=nn.p.Linear(4, 4), aux=nn.p.Linear(2, 4))
    before = paddle.aux.weight.numpy().copy()
    (tmp_path / "names.yaml").write_text("names:\n  fc: fc\nignore: [pooler, aux]\n")
    given = read_names(tmp_path / "names.yaml")
    assert given.names == {"fc": "fc"}
    match = copy(torch, paddle, names=given.names, ignore=given.ignore)
    assert match.left == ("pooler.weight", "pooler.bias")
    np.testing.assert_array_equal(paddle.aux.weight.numpy(), before)
    assert "left behind: pooler.weight: the port has none" in str(match)
    with pytest.raises(UsageError, match="neither model has 'poler'"):
        tipchain.copy_weights(torch, paddle, ignore=["poler"])
