"""A converted layer computes what torch's computes, and its gradients come under torch's names."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.frameworks import load_framework
from tipchain.weights.convert import to_paddle, to_torch
from tipchain.weights.sides import torch_view

pytestmark = pytest.mark.frameworks

SEQUENCE, IMAGE = (2, 5, 6), (2, 4, 5, 3)


def recurrent(kind, sizes, *, layers=1, projected=0):
    """Return torch's and Paddle's builders of a recurrent layer that runs both ways."""
    more = {"proj_size": projected} if projected else {}
    name = {"RNN": "SimpleRNN"}.get(kind, kind)
    return (
        lambda nn: getattr(nn, kind)(*sizes, layers, batch_first=True, bidirectional=True, **more),
        lambda nn: getattr(nn, name)(*sizes, layers, direction="bidirect", **more),
    )


def plain(kind, *args, paddle="", changed=None, **more):
    """Return the builders of a layer that both frameworks build alike, but for ``changed`` in Paddle."""
    return (
        lambda nn: getattr(nn, kind)(*args, **more),
        lambda nn: getattr(nn, paddle or kind)(*args, **(more if changed is None else changed)),
    )


CASES = {
    **{kind: (*recurrent(kind, (6, 6), layers=2), [SEQUENCE]) for kind in ("LSTM", "GRU", "RNN")},
    "LSTM projected": (*recurrent("LSTM", (6, 5), layers=2, projected=3), [SEQUENCE]),
    "RNN of a cell without biases": (
        lambda nn: nn.LSTM(6, 4, bias=False, batch_first=True),
        lambda nn: nn.RNN(nn.LSTMCell(6, 4, bias_ih_attr=False, bias_hh_attr=False)), [SEQUENCE],
    ),
    "BiRNN": (
        recurrent("LSTM", (6, 4))[0],
        lambda nn: nn.BiRNN(nn.LSTMCell(6, 4), nn.LSTMCell(6, 4)), [SEQUENCE],
    ),
    "GRUCell": (*plain("GRUCell", 6, 4, bias=False, changed={"bias_ih_attr": False, "bias_hh_attr": False}), [(3, 6)]),
    "attention": (*plain("MultiheadAttention", 6, 2, paddle="MultiHeadAttention", batch_first=True, changed={}),
                  [SEQUENCE] * 3),
    "attention without biases": (
        *plain("MultiheadAttention", 6, 2, paddle="MultiHeadAttention", batch_first=True, bias=False,
               changed={"bias_attr": False}), [SEQUENCE] * 3,
    ),
    "attention of other keys": (
        *plain("MultiheadAttention", 6, 2, paddle="MultiHeadAttention", batch_first=True, kdim=3, vdim=6,
               changed={"kdim": 3, "vdim": 6}), [SEQUENCE, (2, 4, 3), (2, 4, 6)],
    ),
    "transformer": (
        *plain("Transformer", 6, 2, 1, 1, 9, 0.0, batch_first=True, changed={}), [SEQUENCE, (2, 4, 6)],
    ),
    "square Linear": (*plain("Linear", 6, 6), [SEQUENCE]),
    "square Bilinear": (*plain("Bilinear", 4, 4, 4), [(5, 4), (5, 4)]),
    "PReLU": (*plain("PReLU", 4), [IMAGE]),
    "square Embedding": (*plain("Embedding", 5, 5), [np.arange(6).reshape(2, 3) % 5]),
    "LayerNorm of two axes": (*plain("LayerNorm", [5, 3]), [IMAGE]),
    "LayerNorm without bias": (*plain("LayerNorm", 6, bias=False, changed={"bias_attr": False}), [SEQUENCE]),
    "GroupNorm": (*plain("GroupNorm", 2, 4), [IMAGE]),
    "BatchNorm of Paddle 1": (*plain("BatchNorm2d", 4, paddle="BatchNorm"), [IMAGE]),
    **{
        f"{kind}{axes}d {channels}": (
            *plain(f"{kind}{axes}d", *channels, 3, stride=2, padding=1, groups=2,
                   paddle=f"Conv{axes}D{kind.removeprefix('Conv')}"), [(2, 4, *[5] * axes)],
        )
        for kind in ("Conv", "ConvTranspose") for axes in (1, 2) for channels in ((4, 4),)
    },
    **{
        f"{kind}{axes}d": (
            *plain(f"{kind}{axes}d", 4, affine=True, paddle=f"{kind}{axes}D", changed={}), [(3, 4, *[5] * axes)],
        )
        for kind in ("BatchNorm", "InstanceNorm") for axes in (1, 3)
    },
}  # fmt: skip


def tensors(output):
    """Return the tensors in a layer's output; the layers compared here return the same ones in the same order."""
    if isinstance(output, tuple | list):
        return [one for part in output for one in tensors(part)]
    return [] if output is None else [output]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_torchs(both, nn, rng, name):
    build_torch, build_paddle, inputs = CASES[name]
    reference, port = both.randomize(build_torch(nn.t)), build_paddle(nn.p)
    before = {key: tensor.clone() for key, tensor in reference.state_dict().items()}
    converted = to_paddle(reference, before, port)
    both.set_state(port, converted.state)

    arrays = [rng.normal(size=one).astype(np.float32) if isinstance(one, tuple) else one for one in inputs]
    if "BatchNorm" in name:
        reference.eval(), port.eval()
    expected = tensors(reference(*map(both.torch.from_numpy, arrays)))
    actual = tensors(port(*(both.paddle.to_tensor(one, stop_gradient=one.dtype.kind == "i") for one in arrays)))
    if "attention" in name or "RNN" in name or "Cell" in name:  # they differ in what else they return
        expected, actual = expected[:1], actual[:1]
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(other.numpy(), one.detach().numpy(), rtol=1e-5, atol=1e-5)

    sum((one**3).sum() for one in expected).backward()
    sum((one**3).sum() for one in actual).backward()
    paddle = load_framework("paddle")
    gradients = dict(paddle.gradients(port, converted.match.names))
    wanted = {key: one.grad.numpy() for key, one in reference.named_parameters() if one.grad is not None}
    assert gradients.keys() == wanted.keys()
    for key, gradient in gradients.items():
        scale = float(np.abs(wanted[key]).max())
        np.testing.assert_allclose(gradient, wanted[key], rtol=1e-4, atol=1e-5 * max(scale, 1), err_msg=key)

    parameters = dict(paddle.parameters(port, converted.match.names))
    assert parameters.keys() == dict(reference.named_parameters()).keys()
    for key, array in {**parameters, **dict(paddle.buffers(port, converted.match.names))}.items():
        np.testing.assert_array_equal(array, before[key].numpy(), err_msg=key)
    back = to_torch(port, {key: one.numpy() for key, one in port.state_dict().items()}, build_torch(nn.t))
    converted_back = {**back.match.slots, **back.match.tied}
    for key, tensor in back.state.items():
        assert key not in converted_back or both.torch.equal(tensor, before[key]), key


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("old_names", [False, True])
@pytest.mark.parametrize(("kind", "dims"), [("Linear", (0, 1)), ("Conv2d", (0, 0))])
def test_weight_normalized_layers(both, nn, rng, old_names, kind, dims):
    """torch's ``dim`` of a Linear is the other one of Paddle's, which keeps the weight transposed."""
    norm = nn.t.utils.weight_norm if old_names else nn.t.utils.parametrizations.weight_norm
    args = (4, 4) if kind == "Linear" else (4, 4, 1)
    reference = norm(getattr(nn.t, kind)(*args), dim=dims[0])
    port = nn.p.utils.weight_norm(getattr(nn.p, kind.replace("2d", "2D"))(*args), dim=dims[1])
    both.randomize(reference)
    converted = to_paddle(reference, reference.state_dict(), port)
    both.set_state(port, converted.state)
    shape = (3, 4) if kind == "Linear" else IMAGE
    image = rng.normal(size=shape).astype(np.float32)
    expected = reference(both.torch.from_numpy(image)).detach().numpy()
    np.testing.assert_allclose(port(both.paddle.to_tensor(image)).numpy(), expected, rtol=1e-4, atol=1e-5)
    named = {slot.name: slot.shape for slot in torch_view(port, converted.match.names)}
    assert named == {key: tuple(tensor.shape) for key, tensor in reference.state_dict().items()}


def test_spectrally_normalized_linear(both, nn, rng):
    reference = both.randomize(nn.t.utils.parametrizations.spectral_norm(nn.t.Linear(4, 4))).eval()
    port = nn.p.utils.spectral_norm(nn.p.Linear(4, 4)).eval()
    both.set_state(port, to_paddle(reference, reference.state_dict(), port).state)
    image = rng.normal(size=(3, 4)).astype(np.float32)
    expected = reference(both.torch.from_numpy(image)).detach().numpy()
    np.testing.assert_allclose(port(both.paddle.to_tensor(image)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_users_subclasses_keep_what_they_add(both, nn):
    """A subclass of LSTM packs as LSTM does, and has its own parameter besides."""

    class Mine(nn.t.LSTM):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.scale = nn.t.Parameter(both.torch.ones(3))

    class Ours(nn.p.LSTM):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.scale = self.create_parameter([3])

    reference = both.randomize(Mine())
    state = to_paddle(reference, reference.state_dict(), Ours()).state
    np.testing.assert_array_equal(state["scale"], reference.scale.detach().numpy())
    np.testing.assert_array_equal(state["0.cell.weight_hh"], reference.weight_hh_l0.detach().numpy())
