"""A decoder with rotary positions, fewer keys than queries, RMS norms and gated feed-forward layers."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, base=10000.0):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.q = nn.Linear(width, heads * self.dim, bias=False)
        self.k = nn.Linear(width, kv_heads * self.dim, bias=False)
        self.v = nn.Linear(width, kv_heads * self.dim, bias=False)
        self.o = nn.Linear(heads * self.dim, width, bias=False)
        speed = 1.0 / base ** (torch.arange(0, self.dim, 2).double() / self.dim)
        self.register_buffer("speed", speed, persistent=False)

    def forward(self, x, seen):
        n, length, _ = x.shape
        q = self.q(x).view(n, length, self.heads, self.dim).transpose(1, 2)
        k = self.k(x).view(n, length, self.kv_heads, self.dim).transpose(1, 2)
        v = self.v(x).view(n, length, self.kv_heads, self.dim).transpose(1, 2)
        angle = torch.outer(torch.arange(length).double(), self.speed.double()).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        allowed = torch.ones(length, length, dtype=torch.bool).tril() & seen[:, None, None, :].bool()
        score = q @ k.transpose(-1, -2) / self.dim**0.5
        score = score.masked_fill(~allowed, torch.finfo(x.dtype).min)
        out = F.softmax(score, dim=-1) @ v
        return self.o(out.transpose(1, 2).reshape(n, length, -1))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.attention_norm = RmsNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.ffn_norm = RmsNorm(width)
        self.feed_forward = FeedForward(width, 20)

    def forward(self, x, seen):
        x = x + self.attention(self.attention_norm(x), seen)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, words=40, width=16, heads=4, kv_heads=2, depth=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width, heads, kv_heads) for _ in range(depth))
        self.norm = RmsNorm(width)
        self.output = nn.Linear(width, words, bias=False)

    def forward(self, tokens, seen):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, seen)
        return self.output(self.norm(x))


def build():
    return Llama()


def batch(rng):
    tokens = rng.integers(3, 40, size=(2, 8))
    seen = np.ones((2, 8), dtype="int64")
    seen[1, 6:] = 0
    labels = tokens.copy()
    labels[1, 6:] = -100
    return {"args": (tokens, seen), "labels": labels}


def loss(output, labels):
    flat = output[:, :-1].reshape(-1, output.shape[-1])
    ce = F.cross_entropy(flat, labels[:, 1:].reshape(-1), ignore_index=-100)
    return ce + 1e-3 * torch.logsumexp(output, dim=-1).pow(2).mean()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-5)


def scheduler(opt):
    return torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=8, eta_min=3e-4)


def metric(outputs, labels):
    """Perplexity of the words that are told."""
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    x = torch.from_numpy(outputs[:, :-1]).flatten(0, 1)
    return float(F.cross_entropy(x, torch.from_numpy(labels[:, 1:]).flatten(), ignore_index=-100).exp())
