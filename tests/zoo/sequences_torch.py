"""Small nets over sequences as a reference has them, in torch."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    """Attention of several heads (Vaswani et al. 2017) with a linear layer for each of q, k and v."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj, self.drop = nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, self.size).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        mixed = self.drop(F.softmax(scores, -1)) @ v
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Fused(nn.Module):
    """The same with one linear layer for q, k and v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Encoder(nn.Module):
    """One layer of a Transformer; its norms come before or after."""

    def __init__(self, width: int, heads: int, *, before: bool, fused: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.before = before
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = Fused(width, heads) if fused else Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        if self.before:
            x = x + self.drop(self.attn(self.norm1(x), mask))
            return x + self.drop(self.mlp(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attn(x, mask)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Transformer(nn.Module):
    """A classifier of padded token sequences; token 0 is padding."""

    def __init__(self, *, before: bool = True, fused: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(40, 16, padding_idx=0), nn.Embedding(12, 16)
        self.layers = nn.ModuleList([Encoder(16, 4, before=before, fused=fused, dropout=dropout) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 5)

    def forward(self, tokens):
        kept = tokens != 0
        x = self.tok(tokens) * 4.0 + self.pos(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, kept[:, None, None, :])
        x = self.norm(x)
        weight = kept.to(x.dtype)[..., None]
        return self.head((x * weight).sum(1) / weight.sum(1))


class Language(nn.Module):
    """A decoder that sees only what came before; its output layer shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(40, 16), nn.Embedding(12, 16)
        self.h = nn.ModuleList([Encoder(16, 2, before=True, fused=True) for _ in range(3)])
        self.ln_f = nn.LayerNorm(16)
        self.lm_head = nn.Linear(16, 40, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.wte(tokens) + self.wpe(torch.arange(length))
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        for layer in self.h:
            x = layer(x, mask)
        return self.lm_head(self.ln_f(x))


class Vision(nn.Module):
    """A Transformer over patches (Dosovitskiy et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 16, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 16) * 0.5)
        self.pos_embed = nn.Parameter(torch.randn(1, 17, 16) * 0.5)
        self.blocks = nn.Sequential(*[Encoder(16, 4, before=True, fused=True) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 10)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class Recurrent(nn.Module):
    """An LSTM or GRU over words, batch first."""

    def __init__(self, kind: str = "LSTM", **options) -> None:
        super().__init__()
        self.emb = nn.Embedding(40, 12)
        self.rnn = getattr(nn, kind)(12, 10, 2, batch_first=True, **options)
        wide = 20 if self.rnn.bidirectional else 10
        self.drop, self.fc1, self.fc2 = nn.Dropout(0.2), nn.Linear(wide, wide), nn.Linear(wide, 4)

    def forward(self, tokens):
        x, _ = self.rnn(self.emb(tokens))
        x = torch.tanh(self.fc1(self.drop(x[:, -1])))
        return self.fc2(x)


class Translator(nn.Module):
    """A GRU reads, another writes and looks at what was read (Luong et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(30, 10), nn.Embedding(30, 10)
        self.encoder = nn.GRU(10, 12, batch_first=True)
        self.decoder = nn.GRU(10, 12, batch_first=True)
        self.mix, self.out = nn.Linear(24, 12), nn.Linear(12, 30)

    def forward(self, source, target):
        read, state = self.encoder(self.source(source))
        written, _ = self.decoder(self.target(target), state)
        weights = torch.softmax(written @ read.transpose(1, 2), -1)
        mixed = torch.tanh(self.mix(torch.cat([weights @ read, written], -1)))
        return self.out(mixed)


class Builtin(nn.Module):
    """torch's own Transformer layers."""

    def __init__(self, *, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, activation="gelu", batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x)))
