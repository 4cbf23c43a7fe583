"""Ports of `tokens_torch`, by hand; `fault` names what is wrong in a layer's own code."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class Mlp(nn.Layer):
    fault = ""

    def __init__(self, dim, hidden, approximate=False):
        super().__init__()
        self.approximate = approximate
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        x = self.fc1(x)
        if self.fault != "no activation":
            x = F.gelu(x, approximate=self.approximate)
        return self.fc2(x)


class SelfAttention(nn.Layer):
    fault = ""

    def __init__(self, dim, heads, causal=False, dropout=0.0):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(dim, 3 * dim)
        self.drop = nn.Dropout(dropout)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        size = c // self.heads
        if self.fault == "heads before qkv":
            qkv = self.qkv(x).reshape([b, n, self.heads, 3, size]).transpose([3, 0, 2, 1, 4])
        else:
            qkv = self.qkv(x).reshape([b, n, 3, self.heads, size]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv[0], qkv[1], qkv[2]
        if self.fault == "k q v":
            q, k = k, q
        scale = (c if self.fault == "scale of all heads" else size) ** -0.5
        scores = paddle.matmul(q, k, transpose_y=True) * scale
        if self.causal and self.fault != "no mask":
            diagonal = {"sees one ahead": 2, "not itself": 0}.get(self.fault, 1)
            ahead = paddle.triu(paddle.full([n, n], -1e9, dtype=scores.dtype), diagonal)
            scores = scores + ahead
        weights = F.softmax(scores, axis=-2) if self.fault == "softmax over queries" else F.softmax(scores)
        mixed = paddle.matmul(self.drop(weights), v)
        if self.fault == "heads not moved back":
            return self.proj(mixed.reshape([b, n, c]))
        return self.proj(mixed.transpose([0, 2, 1, 3]).reshape([b, n, c]))


class Block(nn.Layer):
    fault = ""

    def __init__(self, dim, heads, eps, approximate=False, causal=False, dropout=0.0):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=eps)
        self.attn = SelfAttention(dim, heads, causal, dropout)
        self.norm2 = nn.LayerNorm(dim, epsilon=eps)
        self.mlp = Mlp(dim, 2 * dim, approximate)

    def forward(self, x):
        if self.fault == "residual after norm":
            x = self.norm1(x)
            x = x + self.attn(x)
        else:
            x = x + self.attn(self.norm1(x))
        if self.fault == "no second residual":
            return self.mlp(self.norm2(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Layer):
    fault = ""

    def __init__(self, dim=16, heads=4, depth=3, classes=7):
        super().__init__()
        normal = nn.initializer.Normal()
        self.patch_embed = nn.Conv2D(3, dim, 4, stride=4)
        self.cls_token = self.create_parameter([1, 1, dim], default_initializer=normal)
        self.pos_embed = self.create_parameter([1, 17, dim], default_initializer=normal)
        self.blocks = nn.LayerList([Block(dim, heads, 1e-6) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, epsilon=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        b = x.shape[0]
        x = self.patch_embed(x).flatten(2)
        x = x.reshape([b, 16, -1]) if self.fault == "patches reshaped" else x.transpose([0, 2, 1])
        token = self.cls_token.expand([b, -1, -1])
        if self.fault == "token behind":
            x = paddle.concat([x, token], axis=1) + self.pos_embed
        elif self.fault == "positions off by one":
            x = paddle.concat([token, x + self.pos_embed[:, :-1]], axis=1)
        elif self.fault == "token has no position":
            x = paddle.concat([token, x + self.pos_embed[:, 1:]], axis=1)
        else:
            x = paddle.concat([token, x], axis=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        if self.fault != "no last norm":
            x = self.norm(x)
        return self.head(x.mean(1) if self.fault == "mean of tokens" else x[:, 0])


def relative_index(window):
    grid = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
    apart = grid[:, :, None] - grid[:, None, :] + window - 1
    return apart[0] * (2 * window - 1) + apart[1]


class WindowAttention(nn.Layer):
    fault = ""

    def __init__(self, dim, heads, window):
        super().__init__()
        self.heads = heads
        self.relative_position_bias_table = self.create_parameter([(2 * window - 1) ** 2, heads])
        self.register_buffer("relative_position_index", paddle.to_tensor(relative_index(window)))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape([b, n, 3, self.heads, c // self.heads]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv.unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose([0, 1, 3, 2])
        index = self.relative_position_index
        if self.fault == "index transposed":
            index = index.t()
        bias = self.relative_position_bias_table[index.flatten()].reshape([n, n, -1])
        scores = scores + bias.transpose([2, 0, 1]).unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.reshape([b // windows, windows, self.heads, n, n]) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.reshape([-1, self.heads, n, n])
        return self.proj((F.softmax(scores, axis=-1) @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


def into_windows(x, w):
    b, h, width, c = x.shape
    return x.reshape([b, h // w, w, width // w, w, c]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, w * w, c])


def out_of_windows(x, w, h, width, wrong=False):
    b = x.shape[0] // (h * width // w // w)
    if wrong:
        return x.reshape([b, h, width, -1])
    x = x.reshape([b, h // w, width // w, w, w, -1])
    return x.transpose([0, 1, 3, 2, 4, 5]).reshape([b, h, width, -1])


class SwinBlock(nn.Layer):
    fault = ""

    def __init__(self, dim, heads, size, window, shift):
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, window)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 2 * dim)
        mask = None
        if shift:
            regions = np.zeros((1, size, size, 1), np.float32)
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, rows in enumerate(cuts):
                for j, columns in enumerate(cuts):
                    regions[:, rows, columns] = 3 * i + j
            flat = into_windows(paddle.to_tensor(regions), window).squeeze(-1).numpy()
            mask = paddle.to_tensor(np.where(flat[:, None] != flat[:, :, None], -100.0, 0.0).astype("float32"))
        self.register_buffer("mask", mask, persistable=False)

    def forward(self, x):
        h, w = x.shape[1:3]
        y = self.norm1(x)
        if self.shift:
            y = paddle.roll(y, [-self.shift, -self.shift], axis=[1, 2])
        mask = None if self.fault == "mask forgotten" else self.mask
        y = self.attn(into_windows(y, self.window), mask)
        y = out_of_windows(y, self.window, h, w, self.fault == "windows not put back")
        if self.shift and self.fault != "not rolled back":
            back = -self.shift if self.fault == "rolled on" else self.shift
            y = paddle.roll(y, [back, back], axis=[1, 2])
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Layer):
    fault = ""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias_attr=False)

    def forward(self, x):
        if self.fault == "rows first":
            parts = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        else:
            parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduction(self.norm(paddle.concat(parts, axis=-1)))


class Swin(nn.Layer):
    fault = ""

    def __init__(self, dim=8, classes=5):
        super().__init__()
        self.embed = nn.Conv2D(3, dim, 2, 2)
        self.stage1 = nn.Sequential(SwinBlock(dim, 2, 8, 4, 0), SwinBlock(dim, 2, 8, 4, 2))
        self.merge = PatchMerging(dim)
        self.stage2 = nn.Sequential(SwinBlock(2 * dim, 4, 4, 4, 0))
        self.norm = nn.LayerNorm(2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.embed(x).transpose([0, 2, 3, 1])
        x = self.norm(self.stage2(self.merge(self.stage1(x))))
        return self.head(x.mean([1, 2]))


class Gpt(nn.Layer):
    fault = ""

    def __init__(self, words=31, dim=16, heads=2, depth=2, dropout=0.0):
        super().__init__()
        self.wte = nn.Embedding(words, dim)
        self.wpe = nn.Embedding(12, dim)
        self.drop = nn.Dropout(dropout)
        self.h = nn.LayerList([Block(dim, heads, 1e-5, True, True, dropout) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(dim)

    def take(self, state):
        return {
            name: value.T if name.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight")) else value
            for name, value in state.items()
            if name != "lm_head.weight"
        }

    def forward(self, tokens):
        positions = paddle.arange(tokens.shape[1])
        if self.fault == "positions begin at one":
            positions = positions + 1
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        table = self.wte.weight
        if self.fault == "tie broken":
            table = table.detach()
        return paddle.matmul(x, table, transpose_y=True)


class MultiHead(nn.Layer):
    fault = ""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def split(self, x):
        return x.reshape([*x.shape[:2], self.heads, -1]).transpose([0, 2, 1, 3])

    def forward(self, query, memory, hidden):
        q, k = self.split(self.q_proj(query)), self.split(self.k_proj(memory))
        v = self.split(self.v_proj(query if self.fault == "values of queries" else memory))
        scores = paddle.matmul(q / math.sqrt(q.shape[-1]), k.transpose([0, 1, 3, 2]))
        if self.fault == "mask inverted":
            hidden = paddle.logical_not(hidden)
        if self.fault == "mask times weights":
            weights = F.softmax(scores) * (1 - hidden.astype(scores.dtype))
        elif self.fault == "mild mask":
            weights = F.softmax(scores + hidden.astype(scores.dtype) * -1.0)
        else:
            weights = F.softmax(paddle.where(hidden, paddle.full([], -1e9, scores.dtype), scores))
        return self.out_proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2))


class EncoderLayer(nn.Layer):
    fault = ""

    def __init__(self, dim, heads):
        super().__init__()
        self.self_attn = MultiHead(dim, heads)
        self.linear1 = nn.Linear(dim, 2 * dim)
        self.linear2 = nn.Linear(2 * dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)

    def feed(self, x):
        act = F.gelu if self.fault == "gelu for relu" else F.relu
        return self.linear2(act(self.linear1(x)))

    def forward(self, x, hidden):
        if self.fault == "norm inside":
            x = x + self.norm1(self.self_attn(x, x, hidden))
        else:
            x = self.norm1(x + self.self_attn(x, x, hidden))
        return self.norm2(x + self.feed(x))


class DecoderLayer(EncoderLayer):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.cross_attn = MultiHead(dim, heads)
        self.norm3 = nn.LayerNorm(dim)

    def forward(self, x, memory, ahead, hidden):
        x = self.norm1(x + self.self_attn(x, x, ahead))
        x = self.norm2(x + self.cross_attn(x, memory, hidden))
        if self.fault == "last norm is the first":
            return self.norm1(x + self.feed(x))
        return self.norm3(x + self.feed(x))


def sinusoids(length, dim, halves=False):
    angles = np.arange(length)[:, None] * np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    if halves:
        return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype("float32")
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, dim).astype("float32")


class Translator(nn.Layer):
    fault = ""

    def __init__(self, words=23, dim=16, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.register_buffer("positions", paddle.to_tensor(sinusoids(16, dim)))
        self.encoder = nn.LayerList([EncoderLayer(dim, heads) for _ in range(depth)])
        self.decoder = nn.LayerList([DecoderLayer(dim, heads) for _ in range(depth)])
        self.generator = nn.Linear(dim, words)
        self.scale = math.sqrt(dim)

    def forward(self, source, target):
        padding = (source == 0).unsqueeze([1, 2])
        scale = 1.0 if self.fault == "embedding not scaled" else self.scale
        x = self.embed(source) * scale + self.positions[: source.shape[1]]
        for layer in self.encoder:
            x = layer(x, padding)
        y = self.embed(target) * scale + self.positions[: target.shape[1]]
        n = target.shape[1]
        ahead = paddle.triu(paddle.ones([n, n]), 1).astype("bool")
        memory_mask = paddle.zeros_like(padding) if self.fault == "memory not masked" else padding
        for layer in self.decoder:
            y = layer(y, x, ahead, memory_mask)
        y = self.generator(y)
        return F.softmax(y, -1) if self.fault == "softmax without log" else F.log_softmax(y, -1)


class MixerBlock(nn.Layer):
    fault = ""

    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.tokens = Mlp(tokens, 2 * tokens)
        self.norm2 = nn.LayerNorm(dim)
        self.channels = Mlp(dim, 2 * dim)

    def forward(self, x):
        y = self.norm1(x)
        if self.fault == "tokens not transposed":
            x = x + self.tokens(y)
        else:
            x = x + self.tokens(y.transpose([0, 2, 1])).transpose([0, 2, 1])
        return x + self.channels(self.norm2(x))


class Mixer(nn.Layer):
    fault = ""

    def __init__(self, dim=16, classes=5):
        super().__init__()
        self.stem = nn.Conv2D(3, dim, 4, 4)
        self.mixers = nn.Sequential(*(MixerBlock(16, dim) for _ in range(2)))
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.norm(self.mixers(self.stem(x).flatten(2).transpose([0, 2, 1])))
        return self.fc(x.mean(-1 if self.fault == "mean of channels" else 1))
