"""Equal models built quite differently: each a reference and a port that a porter might well have written so."""

from __future__ import annotations

import math

import numpy as np
import paddle
import torch
from paddle import nn as pnn
from paddle.nn import functional as pf
from torch import nn
from torch.nn import functional as tf

from zoo.held_out import tokens_torch


class KernelAttention(pnn.Layer):
    """Attention by Paddle's own function, (batch, length, heads, size)."""

    def __init__(self, dim, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.in_proj, self.out_proj = pnn.Linear(dim, 3 * dim), pnn.Linear(dim, dim)

    def take(self, state):
        names = {"qkv": "in_proj", "proj": "out_proj"}
        return {
            f"{names[name.split('.')[0]]}.{name.split('.')[1]}": value.T if value.ndim == 2 else value
            for name, value in state.items()
        }

    def forward(self, x):
        b, n, _c = x.shape
        q, k, v = self.in_proj(x).reshape([b, n, 3, self.heads, -1]).unbind(2)
        return self.out_proj(pf.scaled_dot_product_attention(q, k, v, is_causal=self.causal).flatten(2))


class SeparateAttention(pnn.Layer):
    """Three projections for the reference's one, by einsum."""

    def __init__(self, dim, heads, causal=False):
        super().__init__()
        self.heads = heads
        self.out = pnn.Linear(dim, dim)
        self.v, self.q, self.k = pnn.Linear(dim, dim), pnn.Linear(dim, dim), pnn.Linear(dim, dim)

    def take(self, state):
        found = {"out.weight": state["proj.weight"].T, "out.bias": state["proj.bias"]}
        for i, name in enumerate("qkv"):
            found[f"{name}.weight"] = np.split(state["qkv.weight"], 3)[i].T
            found[f"{name}.bias"] = np.split(state["qkv.bias"], 3)[i]
        return found

    def forward(self, x):
        q, k, v = (one(x).reshape([*x.shape[:2], self.heads, -1]) for one in (self.q, self.k, self.v))
        weights = pf.softmax(paddle.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]))
        return self.out(paddle.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


class InterleavedAttention(pnn.Layer):
    """The fused projection holds heads first, then q, k, v: the weights are put into that order."""

    def __init__(self, dim, heads, causal=False):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = pnn.Linear(dim, 3 * dim), pnn.Linear(dim, dim)

    def take(self, state):
        weight, bias = state["qkv.weight"], state["qkv.bias"]
        dim = weight.shape[1]
        weight = weight.reshape(3, self.heads, -1, dim).swapaxes(0, 1).reshape(-1, dim)
        bias = bias.reshape(3, self.heads, -1).swapaxes(0, 1).reshape(-1)
        return {
            "qkv.weight": weight.T,
            "qkv.bias": bias,
            "proj.weight": state["proj.weight"].T,
            "proj.bias": state["proj.bias"],
        }

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape([b, n, self.heads, 3, -1]).transpose([3, 0, 2, 1, 4]).unbind(0)
        weights = pf.softmax(q @ k.transpose([0, 1, 3, 2]) / math.sqrt(q.shape[-1]))
        return self.proj((weights @ v).transpose([0, 2, 1, 3]).flatten(2))


class StackTorch(nn.Module):
    """Two residual attentions and a norm."""

    def __init__(self, causal=False):
        super().__init__()
        self.first = tokens_torch.SelfAttention(8, 2, causal)
        self.second = tokens_torch.SelfAttention(8, 2, causal)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        x = x + self.first(x)
        return self.norm(x + self.second(x))


class StackPaddle(pnn.Layer):
    def __init__(self, kind, causal=False):
        super().__init__()
        self.norm = pnn.LayerNorm(8)
        self.attentions = pnn.LayerList([kind(8, 2, causal), kind(8, 2, causal)])

    def take(self, state):
        found = {name: value for name, value in state.items() if name.startswith("norm")}
        for i, name in enumerate(("first", "second")):
            own = {key.partition(".")[2]: value for key, value in state.items() if key.startswith(f"{name}.")}
            found |= {f"attentions.{i}.{key}": value for key, value in self.attentions[i].take(own).items()}
        return found

    def forward(self, x):
        for attention in self.attentions:
            x = x + attention(x)
        return self.norm(x)


class BuiltInTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.attn(x, x, x, need_weights=False)[0])


class BuiltInPaddle(pnn.Layer):
    def __init__(self):
        super().__init__()
        self.mha = pnn.MultiHeadAttention(8, 2)
        self.ln = pnn.LayerNorm(8)

    def take(self, state):
        found = {"ln.weight": state["norm.weight"], "ln.bias": state["norm.bias"]}
        found["mha.out_proj.weight"] = state["attn.out_proj.weight"].T
        found["mha.out_proj.bias"] = state["attn.out_proj.bias"]
        for i, name in enumerate("qkv"):
            found[f"mha.{name}_proj.weight"] = np.split(state["attn.in_proj_weight"], 3)[i].T
            found[f"mha.{name}_proj.bias"] = np.split(state["attn.in_proj_bias"], 3)[i]
        return found

    def forward(self, x):
        return self.ln(x + self.mha(x))


class PatchesTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.act = nn.GELU()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.act(self.embed(x).flatten(2).transpose(1, 2)).mean(1))


class PatchesPaddle(pnn.Layer):
    """Patches by unfolding, GELU by its formula."""

    def __init__(self):
        super().__init__()
        self.to_tokens = pnn.Linear(48, 8)
        self.classify = pnn.Linear(8, 4)

    def take(self, state):
        return {
            "to_tokens.weight": state["embed.weight"].reshape(8, 48).T,
            "to_tokens.bias": state["embed.bias"],
            "classify.weight": state["fc.weight"].T,
            "classify.bias": state["fc.bias"],
        }

    def forward(self, x):
        x = self.to_tokens(pf.unfold(x, 4, strides=4).transpose([0, 2, 1]))
        x = 0.5 * x * (1.0 + paddle.erf(x / math.sqrt(2.0)))
        return self.classify(x.mean(1))


class GatedTorch(nn.Module):
    """Squeeze and excitation with hard activations as modules."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.act = nn.Hardswish()
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()
        )
        self.mix = nn.Conv2d(8, 6, 1, bias=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        x = self.act(self.bn(self.conv(x)))
        return self.drop(self.mix(x * self.se(x)).flatten(1))


class GatedPaddle(pnn.Layer):
    """The gate by linear layers, activations by formula, the 1 x 1 convolution as a product."""

    def __init__(self):
        super().__init__()
        self.down, self.up = pnn.Linear(8, 4), pnn.Linear(4, 8)
        self.block = pnn.Sequential(("conv", pnn.Conv2D(3, 8, 3, padding=1)), ("bn", pnn.BatchNorm2D(8)))
        self.mixing = self.create_parameter([6, 8])

    def take(self, state):
        names = {"weight": "weight", "bias": "bias", "running_mean": "_mean", "running_var": "_variance"}
        found = {f"block.conv.{name}": state[f"conv.{name}"] for name in ("weight", "bias")}
        found |= {f"block.bn.{ours}": state[f"bn.{theirs}"] for theirs, ours in names.items()}
        for ours, theirs in (("down", "se.1"), ("up", "se.3")):
            found |= {
                f"{ours}.weight": state[f"{theirs}.weight"][:, :, 0, 0].T,
                f"{ours}.bias": state[f"{theirs}.bias"],
            }
        return {**found, "mixing": state["mix.weight"][:, :, 0, 0]}

    def forward(self, x):
        x = self.block(x)
        x = x * pf.relu6(x + 3) / 6
        gate = self.up(pf.relu(self.down(x.mean([2, 3]))))
        x = x * paddle.clip(gate / 6 + 0.5, 0, 1).unsqueeze([2, 3])
        return paddle.einsum("oc,bchw->bohw", self.mixing, x).flatten(1)


class NormsTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.instance = nn.InstanceNorm2d(8, affine=True)
        self.group = nn.GroupNorm(1, 8)
        self.last = nn.LayerNorm((8, 6, 6))

    def forward(self, x):
        return self.last(torch.tanh(self.group(tf.silu(self.instance(self.conv(x))))))


class NormsPaddle(pnn.Layer):
    """InstanceNorm as a GroupNorm of single channels, GroupNorm of one group by hand."""

    def __init__(self):
        super().__init__()
        self.last = pnn.LayerNorm([8, 6, 6])
        self.instance = pnn.GroupNorm(8, 8)
        self.conv = pnn.Conv2D(3, 8, 3, padding=1)
        self.g = self.create_parameter([8])
        self.b = self.create_parameter([8])

    def take(self, state):
        renamed = {"group.weight": "g", "group.bias": "b"}
        return {renamed.get(name, name): value for name, value in state.items()}

    def forward(self, x):
        x = self.instance(self.conv(x))
        x = x * pf.sigmoid(x)
        flat = x.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) * paddle.rsqrt(flat.var(1, unbiased=False, keepdim=True) + 1e-5)
        x = flat.reshape(x.shape) * self.g.reshape([1, -1, 1, 1]) + self.b.reshape([1, -1, 1, 1])
        return self.last(pf.tanh(x))


class ReaderTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(17, 6)
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.fc = nn.Linear(5, 3)

    def forward(self, tokens):
        _, (last, _) = self.rnn(self.embed(tokens))
        return self.fc(last[-1])


class ReaderPaddle(pnn.Layer):
    """The words as one-hot rows times a table, the LSTM as a loop over a cell."""

    def __init__(self):
        super().__init__()
        self.table = self.create_parameter([17, 6])
        self.cell = pnn.LSTMCell(6, 5)
        self.out = pnn.Linear(5, 3)

    def take(self, state):
        found = {f"cell.{name}": state[f"rnn.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        return {
            **found,
            "table": state["embed.weight"],
            "out.weight": state["fc.weight"].T,
            "out.bias": state["fc.bias"],
        }

    def forward(self, tokens):
        x = pf.one_hot(tokens, 17).astype(self.table.dtype) @ self.table
        hidden = None
        for step in range(x.shape[1]):
            y, hidden = self.cell(x[:, step], hidden)
        return self.out(y)


class TimeMajorPaddle(pnn.Layer):
    """The same LSTM over (time, batch, features)."""

    def __init__(self):
        super().__init__()
        self.words = pnn.Embedding(17, 6)
        self.lstm = pnn.LSTM(6, 5, time_major=True)
        self.head = pnn.Linear(5, 3)

    def take(self, state):
        found = {
            f"lstm.{name}_l0": state[f"rnn.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        return {
            **found,
            "words.weight": state["embed.weight"],
            "head.weight": state["fc.weight"].T,
            "head.bias": state["fc.bias"],
        }

    def forward(self, tokens):
        y, _ = self.lstm(self.words(tokens.t()))
        return self.head(y[-1])


class LastPlacesTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Identity(),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        return self.classifier(tf.adaptive_avg_pool2d(self.features(x), 1).view(len(x), -1))


class ChannelsLastPaddle(pnn.Layer):
    """The same over (batch, height, width, channels)."""

    def __init__(self):
        super().__init__()
        self.fc = pnn.Linear(8, 5)
        self.conv1 = pnn.Conv2D(3, 6, 3, padding=1, data_format="NHWC")
        self.conv2 = pnn.Conv2D(6, 8, 3, padding=1, data_format="NHWC")
        self.bn1, self.bn2 = pnn.BatchNorm2D(6, data_format="NHWC"), pnn.BatchNorm2D(8, data_format="NHWC")

    def take(self, state):
        names = {"weight": "weight", "bias": "bias", "running_mean": "_mean", "running_var": "_variance"}
        places = {
            "features.0": "conv1",
            "features.1": "bn1",
            "features.5": "conv2",
            "features.6": "bn2",
            "classifier": "fc",
        }
        found = {}
        for name, value in state.items():
            place, _, kind = name.rpartition(".")
            if kind in names:
                found[f"{places[place]}.{names[kind]}"] = value.T if name == "classifier.weight" else value
        return found

    def forward(self, x):
        x = pf.relu(self.bn1(self.conv1(x.transpose([0, 2, 3, 1]))))
        x = pf.max_pool2d(x, 2, data_format="NHWC")
        return self.fc(pf.relu(self.bn2(self.conv2(x))).mean([1, 2]))


class EnlargeTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 12, 3, padding=1)
        self.up = nn.PixelShuffle(2)
        self.out = nn.Conv2d(3, 2, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        return self.out(tf.leaky_relu(self.up(self.conv(x)), 0.1)) + tf.interpolate(x, scale_factor=2.0, mode="nearest")


class EnlargePaddle(pnn.Layer):
    """PixelShuffle by reshaping, padding by hand, the nearest by repeating."""

    def __init__(self):
        super().__init__()
        self.out = pnn.Conv2D(3, 2, 3)
        self.conv = pnn.Conv2D(2, 12, 3, padding="SAME")

    def forward(self, x):
        y = self.conv(x)
        b, c, h, w = y.shape
        y = y.reshape([b, c // 4, 2, 2, h, w]).transpose([0, 1, 4, 2, 5, 3]).reshape([b, c // 4, 2 * h, 2 * w])
        y = paddle.maximum(y, 0.1 * y)
        y = self.out(pf.pad(y, [1, 1, 1, 1], mode="replicate"))
        return y + x.repeat_interleave(2, axis=2).repeat_interleave(2, axis=3)


class SeriesTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=2, dilation=2)
        self.bn = nn.BatchNorm1d(6)
        self.pool = nn.MaxPool1d(2)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.pool(torch.sigmoid(self.bn(self.conv(x)))).mean(-1))


class SeriesPaddle(pnn.Layer):
    """One dimension as an image of height 1."""

    def __init__(self):
        super().__init__()
        self.conv = pnn.Conv2D(3, 6, (1, 3), padding=(0, 2), dilation=(1, 2))
        self.bn = pnn.BatchNorm2D(6)
        self.fc = pnn.Linear(6, 2)

    def take(self, state):
        names = {"bn.running_mean": "bn._mean", "bn.running_var": "bn._variance"}
        found = {names.get(name, name): value for name, value in state.items() if "num_batches" not in name}
        return {**found, "conv.weight": state["conv.weight"][:, :, None], "fc.weight": state["fc.weight"].T}

    def forward(self, x):
        x = pf.sigmoid(self.bn(self.conv(x.unsqueeze(2))))
        return self.fc(pf.max_pool2d(x, (1, 2)).squeeze(2).mean(-1))


class BranchesTorch(nn.Module):
    """Layers in a dictionary; one of them twice."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleDict({"wide": nn.Linear(6, 9), "deep": nn.Linear(6, 6)})
        self.join = nn.Bilinear(9, 6, 4)

    def forward(self, x):
        deep = torch.relu(self.branches["deep"](torch.relu(self.branches["deep"](x))))
        return self.join(self.branches["wide"](x), deep)


class BranchesPaddle(pnn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = pnn.Linear(6, 6), pnn.Linear(6, 9)
        self.join = pnn.Bilinear(9, 6, 4)

    def take(self, state):
        return {
            "a.weight": state["branches.deep.weight"].T,
            "a.bias": state["branches.deep.bias"],
            "b.weight": state["branches.wide.weight"].T,
            "b.bias": state["branches.wide.bias"],
            "join.weight": state["join.weight"],
            "join.bias": state["join.bias"][None],
        }

    def forward(self, x):
        y = x
        for _ in range(2):
            y = pf.relu(self.a(y))
        return self.join(self.b(x), y)


class WeightNormTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(torch.logsumexp(tf.softplus(self.conv(x)), -1))


class HooksPaddle(pnn.Layer):
    """The same with the forward of its parts in functions, and the sum of exponentials by hand."""

    def __init__(self):
        super().__init__()
        self.w, self.b = self.create_parameter([6, 3, 3]), self.create_parameter([6])
        self.v, self.c = self.create_parameter([4, 6]), self.create_parameter([4])

    def take(self, state):
        return {"w": state["conv.weight"], "b": state["conv.bias"], "v": state["fc.weight"], "c": state["fc.bias"]}

    def forward(self, x):
        x = pf.softplus(pf.conv1d(x, self.w, self.b, padding=1))
        top = x.max(-1, keepdim=True)
        x = (x - top).exp().sum(-1).log() + top.squeeze(-1)
        return paddle.matmul(x, self.v, transpose_y=True) + self.c


class EncoderTorch(nn.Module):
    def __init__(self, norm_first=False):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


class EncoderPaddle(pnn.Layer):
    """torch's own encoder by hand, its attention with separate projections."""

    def __init__(self, norm_first=False):
        super().__init__()
        self.norm_first = norm_first

        def make():
            parts = {
                "attn": SeparateAttention(8, 2),
                "ln1": pnn.LayerNorm(8),
                "ln2": pnn.LayerNorm(8),
                "ffn": pnn.Sequential(pnn.Linear(8, 16), pnn.GELU(), pnn.Linear(16, 8)),
            }
            return pnn.LayerDict(parts)

        self.layers = pnn.LayerList([make(), make()])

    def take(self, state):
        found = {}
        for i in range(2):
            get = lambda name: state[f"encoder.layers.{i}.{name}"]  # noqa: E731, B023
            own = {
                "qkv.weight": get("self_attn.in_proj_weight"),
                "qkv.bias": get("self_attn.in_proj_bias"),
                "proj.weight": get("self_attn.out_proj.weight"),
                "proj.bias": get("self_attn.out_proj.bias"),
            }
            found |= {f"layers.{i}.attn.{key}": value for key, value in self.layers[i]["attn"].take(own).items()}
            for ours, theirs in (("ffn.0", "linear1"), ("ffn.2", "linear2")):
                found[f"layers.{i}.{ours}.weight"] = get(f"{theirs}.weight").T
                found[f"layers.{i}.{ours}.bias"] = get(f"{theirs}.bias")
            for ours, theirs in (("ln1", "norm1"), ("ln2", "norm2")):
                found |= {f"layers.{i}.{ours}.{kind}": get(f"{theirs}.{kind}") for kind in ("weight", "bias")}
        return found

    def forward(self, x):
        for layer in self.layers:
            if self.norm_first:
                x = x + layer["attn"](layer["ln1"](x))
                x = x + layer["ffn"](layer["ln2"](x))
            else:
                x = layer["ln1"](x + layer["attn"](x))
                x = layer["ln2"](x + layer["ffn"](x))
        return x
