"""From torch to Paddle and back, through files, every bit comes back: for whatever pair of models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipchain.errors import WeightsError

pytestmark = pytest.mark.frameworks

SIZES = st.integers(1, 4)
BLOCKS = {
    "Linear": lambda nn, a, b: (nn.t.Linear(a, b), nn.p.Linear(a, b)),
    "Linear without bias": lambda nn, a, b: (nn.t.Linear(a, b, bias=False), nn.p.Linear(a, b, bias_attr=False)),
    "Conv": lambda nn, a, b: (nn.t.Conv2d(a, b, 2), nn.p.Conv2D(a, b, 2)),
    "ConvTranspose": lambda nn, a, b: (nn.t.ConvTranspose1d(a, b, 3), nn.p.Conv1DTranspose(a, b, 3)),
    "BatchNorm": lambda nn, a, b: (nn.t.BatchNorm2d(a), nn.p.BatchNorm2D(a)),
    "LayerNorm": lambda nn, a, b: (nn.t.LayerNorm([a, b]), nn.p.LayerNorm([a, b])),
    "InstanceNorm": lambda nn, a, b: (nn.t.InstanceNorm1d(a, affine=True), nn.p.InstanceNorm1D(a)),
    "Embedding": lambda nn, a, b: (nn.t.Embedding(a, b), nn.p.Embedding(a, b)),
    "PReLU": lambda nn, a, b: (nn.t.PReLU(a), nn.p.PReLU(a)),
    "Bilinear": lambda nn, a, b: (nn.t.Bilinear(a, b, a), nn.p.Bilinear(a, b, a)),
    "LSTM": lambda nn, a, b: (nn.t.LSTM(a, b, 2), nn.p.LSTM(a, b, 2)),
    "GRU": lambda nn, a, b: (nn.t.GRU(a, b, bidirectional=True), nn.p.GRU(a, b, direction="bidirect")),
    "attention": lambda nn, a, b: (
        nn.t.MultiheadAttention(2 * a, 2, kdim=b),
        nn.p.MultiHeadAttention(2 * a, 2, kdim=b),
    ),
    "decoder": lambda nn, a, b: (nn.t.TransformerDecoderLayer(2 * a, 2, b), nn.p.TransformerDecoderLayer(2 * a, 2, b)),
}


@st.composite
def plans(draw):
    """Draw blocks with their sizes and names, in lists or not, and the names that the port has for them."""
    kinds = draw(st.lists(st.tuples(st.sampled_from(sorted(BLOCKS)), SIZES, SIZES), min_size=1, max_size=5))
    return kinds, draw(st.booleans()), draw(st.sampled_from(["same", "renamed", "in a list", "deeper"]))


def build(both, nn, plan):
    """Return a torch model and a port with the same blocks in the same order, whose names differ as the plan says."""
    kinds, nested, names = plan
    pairs = [BLOCKS[kind](nn, first, second) for kind, first, second in kinds]
    torch = {f"block{number}": pair[0] for number, pair in enumerate(pairs)}
    start = {"same": "block", "renamed": "part", "deeper": "block", "in a list": "part"}[names]
    paddle = {f"{start}{number}": pair[1] for number, pair in enumerate(pairs)}
    if names == "in a list":
        paddle = {"blocks": nn.p.LayerList(list(paddle.values()))}
    if names == "deeper":
        paddle = {"net": both.tree("paddle", **paddle)}
    if nested:
        torch, paddle = {"body": both.tree("torch", **torch)}, {"body": both.tree("paddle", **paddle)}
    return both.tree("torch", **torch), both.tree("paddle", **paddle)


@settings(max_examples=60, deadline=None)
@given(plan=plans(), seed=st.integers(0, 2**16))
def test_random_pairs_of_models_come_back_the_same(both, nn, plan, seed):
    from tipchain.weights.convert import to_paddle, to_torch
    from tipchain.weights.sides import assemble, torch_view

    torch, paddle = build(both, nn, plan)
    both.randomize(torch, seed)
    state = {name: tensor.clone() for name, tensor in torch.state_dict().items()}
    there = to_paddle(torch, state, paddle)
    assert set(there.state) == set(paddle.state_dict())
    assert bool(there.match.by_structure) == (plan[2] != "same")
    back = to_torch(paddle, there.state, torch)
    assert list(back.state) == list(state)
    assert all(both.torch.equal(back.state[name], tensor) for name, tensor in state.items())
    both.set_state(paddle, there.state)
    seen = {
        slot.name: assemble([part.tensor.numpy() for part in slot.parts], slot)
        for slot in torch_view(paddle, there.match.names)
    }
    assert set(seen) == {name for name in state if not name.endswith("num_batches_tracked")}
    for name, array in seen.items():
        np.testing.assert_array_equal(array, state[name].numpy())


def models(both, nn, dtype="float32"):
    """Return a torch model and its port with names of its own, in the given dtype."""
    torch = both.tree("torch", attn=nn.t.MultiheadAttention(6, 2), norm=nn.t.BatchNorm1d(4), fc=nn.t.Linear(4, 4))
    paddle = both.tree("paddle", attn=nn.p.MultiHeadAttention(6, 2), norm=nn.p.BatchNorm1D(4), head=nn.p.Linear(4, 4))
    if dtype != "float32":
        paddle.to(dtype=dtype)
    return both.randomize(torch.to(getattr(both.torch, dtype))), paddle


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("suffixes", [("pth", "pdparams"), ("safetensors", "safetensors")])
def test_files_come_back_bit_by_bit(both, nn, tmp_path, dtype, suffixes):
    from tipchain.weights.convert import convert_file
    from tipchain.weights.files import read_torch_state, write_torch_file

    torch, paddle = models(both, nn, dtype)
    with both.torch.no_grad():  # what a comparison of numbers would not see
        torch.fc.bias[:3] = both.torch.tensor([float("nan"), -0.0, float("inf")])
    first, middle, last = (
        tmp_path / f"{name}.{suffix}" for name, suffix in zip("abc", (*suffixes, suffixes[0]), strict=True)
    )
    write_torch_file(torch, torch.state_dict(), first)
    there = convert_file(torch, first, paddle, middle)
    assert there.match.by_structure == (("fc", "head"),)
    fresh, port = models(both, nn, dtype)
    fresh.norm.num_batches_tracked.fill_(3)
    back = convert_file(fresh, last, port, middle, back=True)
    assert back.kept == ("norm.num_batches_tracked",)
    written, wanted = read_torch_state(last), read_torch_state(first)
    assert list(written) == list(wanted)
    for name, tensor in wanted.items():
        if name == "norm.num_batches_tracked":
            assert written[name] == 3, "Paddle has none: the torch model's own value"
            continue
        assert written[name].dtype == tensor.dtype
        bits = [one.contiguous().view(both.torch.uint8) for one in (written[name], tensor)]
        assert both.torch.equal(*bits), name


def test_frameworks_read_what_was_written(both, nn, tmp_path):
    from tipchain.weights.convert import convert_file
    from tipchain.weights.files import load_paddle_weights

    torch, paddle = models(both, nn)
    both.torch.save(torch.state_dict(), tmp_path / "a.pth")
    for name in ("a.pdparams", "a.safetensors"):
        convert_file(torch, tmp_path / "a.pth", paddle, tmp_path / name)
        state = both.paddle.load(str(tmp_path / name), safetensors=name.endswith("safetensors"))
        np.testing.assert_array_equal(state["head.weight"].numpy(), torch.fc.weight.detach().numpy().T)
        fresh = models(both, nn)[1]
        load_paddle_weights(fresh, tmp_path / name)
        np.testing.assert_array_equal(fresh.head.weight.numpy(), torch.fc.weight.detach().numpy().T)
    fresh = models(both, nn)[0]
    convert_file(fresh, tmp_path / "b.pth", paddle, tmp_path / "a.safetensors", back=True)
    fresh.load_state_dict(both.torch.load(tmp_path / "b.pth", weights_only=True))


def test_a_file_of_the_other_layout_is_refused(both, nn, tmp_path):
    from tipchain.weights.convert import convert_file
    from tipchain.weights.files import read_paddle_file, read_torch_state, write_torch_file

    torch, paddle = models(both, nn)
    write_torch_file(torch, torch.state_dict(), tmp_path / "t.safetensors")
    convert_file(torch, tmp_path / "t.safetensors", paddle, tmp_path / "p.safetensors")
    with pytest.raises(WeightsError, match="other framework's weights"):
        read_paddle_file(tmp_path / "t.safetensors")
    with pytest.raises(WeightsError, match="other framework's weights"):
        read_torch_state(tmp_path / "p.safetensors")


def test_damaged_safetensors_are_refused(tmp_path, both):
    from tipchain.weights.files import read_paddle_file

    (tmp_path / "a.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(WeightsError, match="no complete Paddle weight file"):
        read_paddle_file(tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="no such weight file"):
        read_paddle_file(tmp_path / "b.safetensors")


def test_dtypes_that_differ_are_listed(both, nn):
    from tipchain.weights.convert import to_paddle, to_torch

    torch, paddle = models(both, nn, "float16")[0], models(both, nn)[1]
    with pytest.raises(WeightsError, match=r"dtype: attn\.in_proj_weight is float16"):
        to_paddle(torch, torch.state_dict(), paddle)
    arrays = {name: tensor.numpy() for name, tensor in paddle.state_dict().items()}
    with pytest.raises(WeightsError, match=r"dtype: attn\.in_proj_weight is float16"):
        to_torch(paddle, arrays, torch)


def test_names_of_a_shared_tensor_that_differ_in_a_file_are_refused(both, nn):
    """Paddle's file has an LSTM's tensors twice: in the layer and in its cells."""
    from tipchain.weights.convert import to_torch

    torch, paddle = both.tree("torch", rnn=nn.t.LSTM(3, 4)), both.tree("paddle", rnn=nn.p.LSTM(3, 4))
    arrays = {name: np.array(tensor.numpy()) for name, tensor in paddle.state_dict().items()}
    arrays["rnn.0.cell.weight_hh"] += 1
    with pytest.raises(WeightsError, match=r"shared: rnn\.weight_hh_l0 and rnn\.0\.cell\.weight_hh are one tensor"):
        to_torch(paddle, arrays, torch)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_torch_file_is_written_whole_or_not_at_all(both, nn, tmp_path, monkeypatch, suffix):
    import safetensors.torch

    from tipchain.weights.files import write_torch_file

    torch, _ = models(both, nn)
    path = tmp_path / f"a.{suffix}"
    path.write_text("old")

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(both.torch, "save", full)
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(WeightsError, match="No space left on device"):
        write_torch_file(torch, torch.state_dict(), path)
    monkeypatch.undo()
    real = safetensors.torch.save_file, both.torch.save

    def wrong(state, *args, **more):
        (real[0] if more else real[1])({**state, "fc.bias": state["fc.bias"] + 1}, *args, **more)

    monkeypatch.setattr(both.torch, "save", wrong)
    monkeypatch.setattr(safetensors.torch, "save_file", wrong)
    with pytest.raises(WeightsError, match=r"differs from what was written\n  found: fc\.bias"):
        write_torch_file(torch, torch.state_dict(), path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"
