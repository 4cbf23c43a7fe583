"""References over tokens: class-token ViT, shifted windows, causal decoder, encoder-decoder, mixer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int, approximate: str = "none") -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate=approximate)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(dim, 3 * dim)
        self.drop = nn.Dropout(dropout)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        if self.causal:
            ahead = torch.triu(torch.ones(n, n, dtype=torch.bool, device=x.device), 1)
            scores = scores.masked_fill(ahead, float("-inf"))
        weights = self.drop(scores.softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(
        self, dim: int, heads: int, eps: float, approximate: str = "none", causal: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = SelfAttention(dim, heads, causal, dropout)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, 2 * dim, approximate)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Class token, learned positions, pre-norm blocks."""

    def __init__(self, dim: int = 16, heads: int = 4, depth: int = 3, classes: int = 7) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 17, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, 1e-6) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def relative_index(window: int) -> torch.Tensor:
    grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
    apart = grid[:, :, None] - grid[:, None, :] + window - 1
    return apart[0] * (2 * window - 1) + apart[1]


class WindowAttention(nn.Module):
    def __init__(self, dim: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        self.register_buffer("relative_position_index", relative_index(window))
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(n, n, -1)
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(b // windows, windows, self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, n, n)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


def into_windows(x, w: int):
    b, h, width, c = x.shape
    return x.view(b, h // w, w, width // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def out_of_windows(x, w: int, h: int, width: int):
    b = x.shape[0] // (h * width // w // w)
    return x.view(b, h // w, width // w, w, w, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, h, width, -1)


class SwinBlock(nn.Module):
    def __init__(self, dim: int, heads: int, size: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, window)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 2 * dim)
        mask = None
        if shift:
            regions = torch.zeros(1, size, size, 1)
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, rows in enumerate(cuts):
                for j, columns in enumerate(cuts):
                    regions[:, rows, columns] = 3 * i + j
            flat = into_windows(regions, window).squeeze(-1)
            apart = flat.unsqueeze(1) - flat.unsqueeze(2)
            mask = apart.masked_fill(apart != 0, -100.0)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        h, w = x.shape[1:3]
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = out_of_windows(self.attn(into_windows(y, self.window), self.mask), self.window, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, dim: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 2, 2)
        self.stage1 = nn.Sequential(SwinBlock(dim, 2, 8, 4, 0), SwinBlock(dim, 2, 8, 4, 2))
        self.merge = PatchMerging(dim)
        self.stage2 = nn.Sequential(SwinBlock(2 * dim, 4, 4, 4, 0))
        self.norm = nn.LayerNorm(2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        x = self.norm(self.stage2(self.merge(self.stage1(x))))
        return self.head(x.mean((1, 2)))


class Gpt(nn.Module):
    """Causal decoder with its output tied to its embedding."""

    def __init__(self, words: int = 31, dim: int = 16, heads: int = 2, depth: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, dim)
        self.wpe = nn.Embedding(12, dim)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(dim, heads, 1e-5, "tanh", True, dropout) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.drop(x)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class MultiHead(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, query, memory, hidden):
        split = lambda x: x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q_proj(query)), split(self.k_proj(memory)), split(self.v_proj(memory))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.self_attn = MultiHead(dim, heads)
        self.linear1 = nn.Linear(dim, 2 * dim)
        self.linear2 = nn.Linear(2 * dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x, hidden):
        x = self.norm1(x + self.self_attn(x, x, hidden))
        return self.norm2(x + self.linear2(F.relu(self.linear1(x))))


class DecoderLayer(EncoderLayer):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.cross_attn = MultiHead(dim, heads)
        self.norm3 = nn.LayerNorm(dim)

    def forward(self, x, memory, ahead, hidden):
        x = self.norm1(x + self.self_attn(x, x, ahead))
        x = self.norm2(x + self.cross_attn(x, memory, hidden))
        return self.norm3(x + self.linear2(F.relu(self.linear1(x))))


def sinusoids(length: int, dim: int) -> torch.Tensor:
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


class Translator(nn.Module):
    """Post-norm encoder-decoder with padding and causal masks; word 0 is padding."""

    def __init__(self, words: int = 23, dim: int = 16, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.register_buffer("positions", sinusoids(16, dim))
        self.encoder = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(depth))
        self.generator = nn.Linear(dim, words)
        self.scale = math.sqrt(dim)

    def forward(self, source, target):
        padding = (source == 0)[:, None, None, :]
        x = self.embed(source) * self.scale + self.positions[: source.shape[1]]
        for layer in self.encoder:
            x = layer(x, padding)
        y = self.embed(target) * self.scale + self.positions[: target.shape[1]]
        n = target.shape[1]
        ahead = torch.triu(torch.ones(n, n, dtype=torch.bool, device=y.device), 1)
        for layer in self.decoder:
            y = layer(y, x, ahead, padding)
        return self.generator(y).log_softmax(-1)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.tokens = Mlp(tokens, 2 * tokens)
        self.norm2 = nn.LayerNorm(dim)
        self.channels = Mlp(dim, 2 * dim)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dim: int = 16, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.mixers = nn.Sequential(*(MixerBlock(16, dim) for _ in range(2)))
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.fc(self.norm(self.mixers(x)).mean(1))
