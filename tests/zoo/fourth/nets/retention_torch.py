"""A language model of retention: a decaying linear attention with rotated keys."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WORDS, WIDTH, HEADS, PADDED = 23, 16, 2, 0


def rotate_every_two(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6, affine=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if affine else None

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x if self.weight is None else x * self.weight


class Retention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v_proj = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.g_proj = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.out_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.group_norm = RMSNorm(2 * WIDTH // HEADS, affine=False)

    def forward(self, x, sin, cos, decay):
        size, count, _ = x.shape
        q = self.q_proj(x).reshape(size, count, HEADS, -1).transpose(1, 2)
        k = self.k_proj(x).reshape(size, count, HEADS, -1).transpose(1, 2) * (WIDTH // HEADS) ** -0.5
        v = self.v_proj(x).reshape(size, count, HEADS, -1).transpose(1, 2)
        q, k = q * cos + rotate_every_two(q) * sin, k * cos + rotate_every_two(k) * sin
        scores = q @ k.transpose(-1, -2) * decay
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1)
        y = self.group_norm((scores @ v).transpose(1, 2)).reshape(size, count, -1)
        return self.out_proj(F.silu(self.g_proj(x)) * y)


class GLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 24, bias=False)
        self.fc1 = nn.Linear(WIDTH, 24, bias=False)
        self.fc2 = nn.Linear(24, WIDTH, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.fc2(F.gelu(self.gate(x)) * self.fc1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = RMSNorm(WIDTH)
        self.retention = Retention()
        self.norm2 = RMSNorm(WIDTH)
        self.mlp = GLU()

    def forward(self, x, *positions):
        x = x + self.retention(self.norm1(x), *positions)
        return x + self.mlp(self.norm2(x))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        angle = 1.0 / (10000 ** torch.linspace(0, 1, WIDTH // HEADS // 2))
        self.register_buffer("angle", angle.repeat_interleave(2), persistent=False)
        self.register_buffer(
            "decay", torch.log(1 - 2 ** (-2 - torch.arange(HEADS, dtype=torch.float32))), persistent=False
        )

    def forward(self, count):
        place = torch.arange(count).to(self.angle.dtype)
        apart = place[:, None] - place[None, :]
        mask = torch.exp(apart * self.decay[:, None, None]).masked_fill(apart < 0, 0.0)
        mask = mask / mask.sum(-1, keepdim=True).sqrt()
        return torch.sin(place[:, None] * self.angle), torch.cos(place[:, None] * self.angle), mask


class Retentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.positions = Positions()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = RMSNorm(WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens) * WIDTH**0.5
        positions = self.positions(tokens.shape[1])
        for block in self.blocks:
            x = block(x, *positions)
        return F.linear(self.norm(x), self.embed.weight)


def build():
    return Retentive()


def batch(rng):
    tokens = rng.integers(1, WORDS, (2, 9)).astype("int64")
    tokens[1, 7:] = PADDED
    return {"args": (tokens,), "labels": tokens.copy()}


def loss(outputs, labels):
    logits, targets = outputs[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1)
    entropy = F.cross_entropy(logits, targets, ignore_index=PADDED)
    kept = (targets != PADDED).to(logits.dtype)
    z = (torch.logsumexp(logits, -1) ** 2 * kept).sum() / kept.sum()
    return entropy + 1e-2 * z


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.05)


def scheduler(built):
    return torch.optim.lr_scheduler.LambdaLR(built, lambda step: min((step + 1) / 3, (3 / (step + 1)) ** 0.5))


def transform(words):
    kept = list(words)[-8:]
    tokens = [1, *kept]
    return np.array(tokens + [PADDED] * (9 - len(tokens)), "int64")


def samples():
    rng = np.random.default_rng(13)
    return [rng.integers(2, WORDS, size).astype("int64") for size in (5, 12, 8)]


def metric(outputs, labels):
    logits, labels = np.asarray(outputs, "float64")[:, :-1], np.asarray(labels)[:, 1:]
    logs = logits - logits.max(-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    gained = -np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    kept = labels != PADDED
    return {"perplexity": float(np.exp(gained[kept].mean()))}
