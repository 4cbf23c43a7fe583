"""Which tensor of a torch model is which of its port: by name, by structure, by a given name, or listed."""

import numpy as np
import pytest

from tipchain.errors import WeightsError
from tipchain.weights.convert import to_paddle, to_torch
from tipchain.weights.matching import match_models
from tipchain.weights.sides import torch_view

pytestmark = pytest.mark.frameworks


def match(both, torch, paddle, names=None):
    """Return the match; converting there and back must give the same tensors, under torch's names."""
    converted = to_paddle(both.randomize(torch), torch.state_dict(), paddle, names)
    back = to_torch(paddle, converted.state, torch, names)
    for name, tensor in torch.state_dict().items():
        assert both.torch.equal(back.state[name], tensor), name
    assert {slot.name for slot in torch_view(paddle, converted.match.names)} <= set(torch.state_dict())
    return converted


def moved(both, torch, paddle, names=None):
    return dict(match(both, torch, paddle, names).match.by_structure)


def refusal(torch, paddle, names=None):
    with pytest.raises(WeightsError) as caught:
        match_models(torch, paddle, names)
    return "\n".join(getattr(caught.value, "problems", [str(caught.value)]))


def test_recurrent_layers_and_attention_are_matched_whole(both, nn):
    torch = both.tree("torch", rnn=nn.t.LSTM(6, 3, 2, bidirectional=True), attn=nn.t.MultiheadAttention(6, 2))
    paddle = both.tree("paddle", lstm=nn.p.LSTM(6, 3, 2, direction="bidirect"), self_attn=nn.p.MultiHeadAttention(6, 2))
    assert moved(both, torch, paddle) == {"rnn": "lstm", "attn": "self_attn"}
    assert moved(both, nn.t.GRU(3, 4), both.tree("paddle", rnn=nn.p.GRU(3, 4))) == {"": "rnn"}
    assert moved(both, both.tree("torch", rnn=nn.t.GRU(3, 4)), nn.p.GRU(3, 4)) == {"rnn": ""}


def test_packed_layers_of_the_port_are_opened_where_torch_has_single_ones(both, nn):
    torch = both.tree(
        "torch",
        query=nn.t.Linear(6, 6),
        key=nn.t.Linear(6, 6),
        value=nn.t.Linear(6, 6),
        dense=nn.t.Linear(6, 6),
        cells=nn.t.ModuleList([nn.t.LSTMCell(6, 4), nn.t.LSTMCell(4, 4)]),
    )
    paddle = both.tree("paddle", attn=nn.p.MultiHeadAttention(6, 2), rnn=nn.p.LSTM(6, 4, 2))
    assert moved(both, torch, paddle) == {
        "query": "attn.q_proj",
        "key": "attn.k_proj",
        "value": "attn.v_proj",
        "dense": "attn.out_proj",
        "cells.0": "rnn.0.cell",
        "cells.1": "rnn.1.cell",
    }
    names = {f"{name}_proj": (nn.t.Linear(6, 6), None) for name in ("q", "k", "v", "out")}
    torch = both.tree("torch", attn=both.pair(**names)[0])
    found = match(both, torch, both.tree("paddle", attn=nn.p.MultiHeadAttention(6, 2)))
    assert not found.match.by_structure, "the same names, in a class of torch's own"
    assert found.match.names["attn.q_proj"] == "attn.q_proj", "says that the port's layer is not packed"


def test_leftovers_of_both_sides_are_listed_with_shapes_and_types(both, nn):
    torch = both.tree(
        "torch", body=nn.t.Linear(4, 3), norm=nn.t.InstanceNorm2d(3, affine=True, track_running_stats=True)
    )
    paddle = both.tree("paddle", body=nn.p.Linear(4, 3), norm=nn.p.InstanceNorm2D(3), extra=nn.p.Conv1D(2, 2, 1))
    lines = [line.strip() for line in refusal(torch, paddle).splitlines()]
    assert [line for line in lines if line.startswith("only in")] == [
        "only in the port: extra.weight [2, 2, 1] float32 (Conv)",
        "only in the port: extra.bias [2] float32 (Conv)",
        "only in torch: norm.running_mean [3] float32 (InstanceNorm)",
        "only in torch: norm.running_var [3] float32 (InstanceNorm)",
        "only in torch: norm.num_batches_tracked [] int64 (InstanceNorm)",
    ]
    attention = nn.t.MultiheadAttention(4, 2, add_bias_kv=True)
    text = refusal(attention, nn.p.MultiHeadAttention(4, 2))
    assert "only in torch: bias_k [1, 1, 4] float32 (MultiheadAttention)" in text


def test_given_names_join_what_torch_packs(both, nn):
    torch = both.tree("torch", attn=nn.t.MultiheadAttention(6, 2))
    port = both.pair(**{name: (None, nn.p.Linear(6, 6)) for name in ("q", "k", "v", "proj")})[1]
    names = {
        "attn.in_proj_weight": "attn.q.weight + attn.k.weight + attn.v.weight",
        "attn.in_proj_bias": "attn.q.bias + attn.k.bias + attn.v.bias",
        "attn.out_proj": "attn.proj",
    }
    found = match(both, torch, both.tree("paddle", attn=port), names)
    expected = torch.attn.in_proj_weight.detach().numpy()
    np.testing.assert_array_equal(found.state["attn.k.weight"], expected[6:12].T)
    fused = both.pair(qkv=(None, nn.p.Linear(6, 18)), proj=(None, nn.p.Linear(6, 6)))[1]
    names |= {"attn.in_proj_weight": "attn.qkv.weight", "attn.in_proj_bias": "attn.qkv.bias"}
    found = match(both, torch, both.tree("paddle", attn=fused), names)
    np.testing.assert_array_equal(found.state["attn.qkv.weight"], expected.T)


def test_names_that_lead_nowhere_are_refused(both, nn):
    torch, paddle = both.tree("torch", fc=nn.t.Linear(4, 2)), both.tree("paddle", head=nn.p.Linear(4, 2))
    text = refusal(torch, paddle, {"fc": "heat", "fcc": "head", "fc.weight": "head.weight", "fc.bias": "head.weight"})
    assert "names: fc: the Paddle model has no 'heat', did you mean 'head'?" in text
    assert "names: fcc: the torch model has no 'fcc', did you mean 'fc'?" in text
    assert "names: fc.weight and fc.bias both go to head.weight" in text


def test_tied_tensors(both, nn):
    embed, head = nn.t.Embedding(5, 4), nn.t.Linear(4, 5, bias=False)
    head.weight = embed.weight
    torch = both.tree("torch", embed=embed, head=head)
    found = match(both, torch, both.tree("paddle", words=nn.p.Embedding(5, 4)))
    assert found.match.tied == {"head.weight": "embed.weight"}
    state = {key: tensor.clone() for key, tensor in torch.state_dict().items()}
    state["head.weight"][0, 0] += 1
    with pytest.raises(WeightsError, match=r"tied: head\.weight and embed\.weight"):
        to_paddle(torch, state, both.tree("paddle", words=nn.p.Embedding(5, 4)))
    shared = nn.p.Linear(4, 4)
    port = both.tree("paddle", a=shared, b=shared)
    once = nn.t.Linear(4, 4)
    assert not moved(both, both.tree("torch", a=once, b=once), port)
    torch = both.randomize(both.tree("torch", a=nn.t.Linear(4, 4), b=nn.t.Linear(4, 4)))
    with pytest.raises(WeightsError, match=r"shared: a\.weight is one tensor in the port"):
        to_paddle(torch, torch.state_dict(), port)


def test_paddle_zeros_that_torch_lacks_must_be_zero_on_the_way_back(both, nn):
    torch = both.randomize(nn.t.GRUCell(3, 4, bias=False))
    port = nn.p.GRUCell(3, 4, bias_ih_attr=False, bias_hh_attr=False)
    state = dict(to_paddle(torch, torch.state_dict(), port).state)
    assert not state["bias_ih"].any()
    state["bias_ih"] = np.ones_like(state["bias_ih"])
    with pytest.raises(WeightsError, match="no place: torch has no bias_ih"):
        to_torch(port, state, torch)


def test_what_is_to_be_ignored_is_named_by_its_largest_layers_and_by_nothing_that_is_kept(both, nn):
    def block():
        return {"conv": nn.t.Conv2d(4, 4, 1, bias=False), "norm": nn.t.BatchNorm2d(4)}

    torch = both.tree("torch", body=nn.t.Sequential(*(both.tree("torch", **block()) for _ in range(4))))
    made = [both.tree("paddle", conv=nn.p.Conv2D(4, 4, 1, bias_attr=None), norm=nn.p.BatchNorm2D(4)) for _ in range(3)]
    with pytest.raises(WeightsError) as caught:
        match_models(torch, both.tree("paddle", body=nn.p.Sequential(*made)))
    lines = str(caught.value).splitlines()
    ignored = [line.strip(" -") for line in lines[lines.index("  ignore:") + 1 :]]
    assert ignored == ["body.3", "body.*.conv.bias"]
    assert "    … and 2 more that are only in the port" in lines


def test_a_norms_frozen_one_and_zero_are_torchs_norm_without_them(both, nn):
    """PaddleGAN's instance norms have both for torch's ``affine=False``; trained ones are another model."""

    def norm(value, *, trainable):
        made = nn.p.InstanceNorm2D(4)
        made.scale.set_value(np.full(4, value, "float32"))
        made.scale.stop_gradient = made.bias.stop_gradient = not trainable
        return made

    def pair(port):
        return both.pair(a=(nn.t.Conv2d(3, 4, 3), nn.p.Conv2D(3, 4, 3)), b=(nn.t.InstanceNorm2d(4), port))

    torch, paddle = pair(norm(1.0, trainable=False))
    state = match(both, torch, paddle).state
    assert [state["b.scale"].tolist(), state["b.bias"].tolist()] == [[1.0] * 4, [0.0] * 4]
    for port in (norm(1.0, trainable=True), norm(2.0, trainable=False)):
        assert "only in the port: b.scale" in refusal(*pair(port))
