"""A language model of selective state spaces, scanned step by step in plain operations."""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Mixer(nn.Module):
    def __init__(self, width, state=4, kernel=3, rank=2):
        super().__init__()
        inner = 2 * width
        self.inner, self.state, self.rank = inner, state, rank
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.d = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, u):
        length = u.shape[1]
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2)
        x = F.silu(x)
        dt, b, c = self.x_proj(x).split([self.rank, self.state, self.state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        a = -torch.exp(self.a_log)
        decay = torch.exp(dt[..., None] * a)
        drive = dt[..., None] * b[:, :, None, :] * x[..., None]
        h = torch.zeros_like(drive[:, 0])
        ys = []
        for t in range(length):
            h = decay[:, t] * h + drive[:, t]
            ys.append((h * c[:, t, None, :]).sum(-1))
        y = torch.stack(ys, dim=1) + x * self.d
        return self.out_proj(y * F.silu(z))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RmsNorm(width)
        self.mixer = Mixer(width)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Mamba(nn.Module):
    def __init__(self, words=30, width=8, depth=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = RmsNorm(width)

    def forward(self, tokens):
        x = self.embed(tokens) * math.sqrt(self.embed.embedding_dim)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed.weight.T


def build():
    return Mamba()


def batch(rng):
    tokens = rng.integers(1, 30, size=(2, 9))
    tokens[1, 6:] = 0
    return {"args": (tokens,), "labels": tokens}


def loss(output, labels):
    return F.cross_entropy(output[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)


def optimizer(parameters):
    parameters = list(parameters)
    return torch.optim.AdamW(
        [
            {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.1},
            {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.95),
    )


def scheduler(opt):
    """Warm for two steps, then fall by a cosine until the tenth."""

    def share(step):
        if step < 2:
            return (step + 1) / 3
        return 0.5 * (1 + math.cos(math.pi * (step - 2) / 8))

    return torch.optim.lr_scheduler.LambdaLR(opt, share)
