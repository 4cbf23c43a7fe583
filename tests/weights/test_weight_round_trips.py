"""From torch to Paddle and back, through files, every bit comes back: for whatever pair of models."""

import numpy as np
import pytest
from programs import full_disk

from tipchain.errors import WeightsError
from tipchain.weights.convert import convert_file, to_torch
from tipchain.weights.files import load_paddle_weights, read_paddle_file, read_torch_state, write_weights

pytestmark = pytest.mark.frameworks


def models(both, nn, dtype="float32"):
    torch = both.tree("torch", attn=nn.t.MultiheadAttention(6, 2), norm=nn.t.BatchNorm1d(4), fc=nn.t.Linear(4, 4))
    paddle = both.tree("paddle", attn=nn.p.MultiHeadAttention(6, 2), norm=nn.p.BatchNorm1D(4), head=nn.p.Linear(4, 4))
    if dtype != "float32":
        paddle.to(dtype=dtype)
    return both.randomize(torch.to(getattr(both.torch, dtype))), paddle


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("suffixes", [("pth", "pdparams"), ("safetensors", "safetensors")])
def test_files_come_back_bit_by_bit(both, nn, tmp_path, dtype, suffixes):
    torch, paddle = models(both, nn, dtype)
    with both.torch.no_grad():  # what a comparison of numbers would not see
        torch.fc.bias[:3] = both.torch.tensor([float("nan"), -0.0, float("inf")])
    first, middle, last = (
        tmp_path / f"{name}.{suffix}" for name, suffix in zip("abc", (*suffixes, suffixes[0]), strict=True)
    )
    write_weights("torch", torch, torch.state_dict(), first)
    there = convert_file(torch, first, paddle, middle)
    assert there.match.by_structure == (("fc", "head"),)
    fresh, port = models(both, nn, dtype)
    fresh.norm.num_batches_tracked.fill_(3)
    back = convert_file(fresh, last, port, middle, back=True)
    assert set(back.state) - set(back.match.slots) == {"norm.num_batches_tracked"}
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
    torch, paddle = models(both, nn)
    write_weights("torch", torch, torch.state_dict(), tmp_path / "t.safetensors")
    convert_file(torch, tmp_path / "t.safetensors", paddle, tmp_path / "p.safetensors")
    with pytest.raises(WeightsError, match="other framework's weights"):
        read_paddle_file(tmp_path / "t.safetensors")
    with pytest.raises(WeightsError, match="other framework's weights"):
        read_torch_state(tmp_path / "p.safetensors")


def test_damaged_safetensors_are_refused(tmp_path, both):
    (tmp_path / "a.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(WeightsError, match="no complete Paddle weight file"):
        read_paddle_file(tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="no such weight file"):
        read_paddle_file(tmp_path / "b.safetensors")


def test_names_of_a_shared_tensor_that_differ_in_a_file_are_refused(both, nn):
    """Paddle's file has an LSTM's tensors twice: in the layer and in its cells."""
    torch, paddle = both.tree("torch", rnn=nn.t.LSTM(3, 4)), both.tree("paddle", rnn=nn.p.LSTM(3, 4))
    arrays = {name: np.array(tensor.numpy()) for name, tensor in paddle.state_dict().items()}
    arrays["rnn.0.cell.weight_hh"] += 1
    with pytest.raises(WeightsError, match=r"shared: rnn\.weight_hh_l0 and rnn\.0\.cell\.weight_hh are one tensor"):
        to_torch(paddle, arrays, torch)


def test_a_file_is_written_whole_or_not_at_all(both, nn, tmp_path, monkeypatch):
    torch, _ = models(both, nn)
    path, real = tmp_path / "a.pth", both.torch.save
    path.write_text("old")

    def wrong(state, file):
        real({**state, "fc.bias": state["fc.bias"] + 1}, file)

    for save, words in (
        (full_disk, "No space left on device"),
        (wrong, r"differs from what was written\n  found: fc\.bias"),
    ):
        monkeypatch.setattr(both.torch, "save", save)
        with pytest.raises(WeightsError, match=words):
            write_weights("torch", torch, torch.state_dict(), path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"
