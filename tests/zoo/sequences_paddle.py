"""The ports of `sequences_torch`; an attribute `fault` of a layer plants a fault into the code of its forward."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


class Attention(nn.Layer):
    """A linear layer for each of q, k and v."""

    fault = ""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.out_proj, self.drop = nn.Linear(width, width), nn.Dropout(dropout)

    def split(self, x):
        batch, length, _width = x.shape
        if self.fault == "heads inside":
            x = x.reshape([batch, length, self.size, self.heads]).transpose([0, 1, 3, 2])
        return x.reshape([batch, length, self.heads, self.size]).transpose([0, 2, 1, 3])

    def forward(self, x, mask=None):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if self.fault == "q and k swapped":
            q, k = k, q
        scale = (self.heads * self.size) ** -0.5 if self.fault == "scale of all heads" else self.size**-0.5
        scale = 1.0 if self.fault == "no scale" else scale
        scores = paddle.matmul(q * scale, k, transpose_y=True)
        if mask is not None and self.fault != "no mask":
            scores = paddle.where(mask, scores, paddle.full_like(scores, -1e9))
        mixed = paddle.matmul(self.drop(F.softmax(scores, axis=-2 if self.fault == "softmax axis" else -1)), v)
        return self.out_proj(mixed.transpose([0, 2, 1, 3]).flatten(2))


class Fused(nn.Layer):
    """One linear layer for q, k and v, and the formula written out."""

    fault = ""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, _width = x.shape
        x = self.qkv(x)
        if self.fault == "heads outermost":
            x = x.reshape([batch, length, self.heads, 3, self.size]).transpose([3, 0, 2, 1, 4])
        else:
            x = x.reshape([batch, length, 3, self.heads, self.size]).transpose([2, 0, 3, 1, 4])
        q, k, v = (x[1], x[0], x[2]) if self.fault == "q and k swapped" else (x[0], x[1], x[2])
        scores = q.matmul(k, transpose_y=True) * self.size**-0.5
        if mask is not None and self.fault != "no mask":
            scores = scores + (1 - mask.astype(scores.dtype)) * -1e9
        return self.proj(F.softmax(scores).matmul(v).transpose([0, 2, 1, 3]).flatten(2))


class Encoder(nn.Layer):
    """One layer of a Transformer; its norms come before or after."""

    fault = ""

    def __init__(self, width: int, heads: int, *, before: bool, fused: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.before = before
        self.norm1, self.norm2 = nn.LayerNorm(width, epsilon=1e-6), nn.LayerNorm(width, epsilon=1e-6)
        self.attn = Fused(width, heads) if fused else Attention(width, heads, dropout)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.act, self.drop = nn.GELU(), nn.Dropout(dropout)

    def mlp(self, x):
        return self.fc2(self.act(self.fc1(x)))

    def forward(self, x, mask=None):
        if self.before != (self.fault == "other norm order"):
            x = x + self.drop(self.attn(self.norm1(x), mask))
            kept = self.norm2(x) if self.fault == "shortcut from norm" else x
            return kept + self.drop(self.mlp(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attn(x, mask)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Transformer(nn.Layer):
    fault = ""

    def __init__(self, *, before: bool = True, fused: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(40, 16, padding_idx=0), nn.Embedding(12, 16)
        self.layers = nn.LayerList([Encoder(16, 4, before=before, fused=fused, dropout=dropout) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(16, epsilon=1e-6), nn.Linear(16, 5)

    def forward(self, tokens):
        kept = tokens != 0
        places = paddle.arange(tokens.shape[1]) + (1 if self.fault == "positions from 1" else 0)
        x = self.tok(tokens) * (1.0 if self.fault == "embedding not scaled" else 4.0) + self.pos(places)
        for layer in self.layers:
            x = layer(x, kept.unsqueeze([1, 2]))
        x = self.norm(x)
        if self.fault == "padding pooled":
            return self.head(x.mean(1))
        weight = kept.astype(x.dtype).unsqueeze(-1)
        return self.head((x * weight).sum(1) / weight.sum(1))


class Language(nn.Layer):
    """The output is a product with the embedding's weight, no layer of its own."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(40, 16), nn.Embedding(12, 16)
        self.h = nn.LayerList([Encoder(16, 2, before=True, fused=True) for _ in range(3)])
        self.ln_f = nn.LayerNorm(16)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(paddle.arange(length))
        mask = paddle.tril(paddle.ones([length, length]), diagonal=1 if self.fault == "sees the next" else 0).astype(
            "bool"
        )
        for layer in self.h:
            x = layer(x, mask)
        return paddle.matmul(self.ln_f(x), self.wte.weight, transpose_y=True)


class Vision(nn.Layer):
    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2D(3, 16, 4, 4)
        self.cls_token, self.pos_embed = (self.create_parameter([1, 1, 16]), self.create_parameter([1, 17, 16]))
        self.blocks = nn.LayerList([Encoder(16, 4, before=True, fused=True) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(16, epsilon=1e-6), nn.Linear(16, 10)

    def forward(self, x):
        x = self.patch_embed(x)
        x = x.transpose([0, 1, 3, 2]) if self.fault == "columns first" else x
        x = x.flatten(2).transpose([0, 2, 1])
        first = self.cls_token.expand([x.shape[0], -1, -1])
        if self.fault == "token last":
            x = paddle.concat([x, first], 1) + self.pos_embed
        elif self.fault == "token without position":
            x = paddle.concat([first, x + self.pos_embed[:, 1:]], 1)
        else:
            x = paddle.concat([first, x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.fault == "mean of tokens" else x[:, 0])


class Recurrent(nn.Layer):
    fault = ""

    def __init__(self, kind: str = "LSTM", **options) -> None:
        super().__init__()
        self.words, self.net = nn.Embedding(40, 12), getattr(nn, kind)(12, 10, 2, **options)
        wide = 20 if options else 10
        self.drop, self.hidden, self.head = nn.Dropout(0.2), nn.Linear(wide, wide), nn.Linear(wide, 4)

    def forward(self, tokens):
        x, _ = self.net(self.words(tokens))
        x = x[:, 0] if self.fault == "first word" else x[:, -1]
        x = self.hidden(self.drop(x))
        return self.head(F.relu(x) if self.fault == "other activation" else F.tanh(x))


class Translator(nn.Layer):
    """The decoder's cells, run by paddle's `nn.GRU` too."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.GRU(10, 12), nn.GRU(10, 12)
        self.words_in, self.words_out = nn.Embedding(30, 10), nn.Embedding(30, 10)
        self.mix, self.out = nn.Linear(24, 12), nn.Linear(12, 30)

    def forward(self, source, target):
        read, state = self.read(self.words_in(source))
        written = self.write(self.words_out(target), paddle.zeros_like(state) if self.fault == "no state" else state)[0]
        weights = F.softmax(
            paddle.matmul(written, read, transpose_y=True), axis=1 if self.fault == "softmax axis" else -1
        )
        mixed = paddle.matmul(weights, read)
        parts = [written, mixed] if self.fault == "order" else [mixed, written]
        return self.out(F.tanh(self.mix(paddle.concat(parts, -1))))


class Builtin(nn.Layer):
    """Paddle's own Transformer layers."""

    fault = ""

    def __init__(self, *, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, activation="gelu", normalize_before=norm_first)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x)))
