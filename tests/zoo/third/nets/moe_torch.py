"""Experts of which a gate picks two for each token, with a loss that spreads the load."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Expert(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(F.relu(self.up(x)) ** 2)


class Mixture(nn.Module):
    def __init__(self, width, inner, experts, top):
        super().__init__()
        self.top = top
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(experts))
        self.shared = Expert(width, inner)

    def forward(self, x):
        flat = x.flatten(0, -2)
        scores = self.gate(flat)
        share = scores.softmax(dim=-1)
        weight, chosen = share.topk(self.top, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, token, weight[token, place, None] * expert(flat[token]))
        used = F.one_hot(chosen, len(self.experts)).sum(1).to(share.dtype).mean(0) / self.top
        balance = len(self.experts) * (used * share.mean(0)).sum()
        z = scores.logsumexp(-1).pow(2).mean()
        return (out + self.shared(flat)).view_as(x), balance + 0.1 * z


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.mix = nn.Conv1d(width, width, 3, padding=1, groups=2)
        self.norm2 = nn.LayerNorm(width)
        self.moe = Mixture(width, 12, 4, 2)
        self.scale = nn.Parameter(0.5 * torch.ones(width))

    def forward(self, x):
        x = x + self.mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        y, aux = self.moe(self.norm2(x))
        return x + self.scale * y, aux


class MoeNet(nn.Module):
    def __init__(self, features=6, width=8, classes=5, depth=2):
        super().__init__()
        self.inner = nn.Linear(features, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.query = nn.Parameter(torch.randn(width))
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(width, classes))

    def forward(self, x, lengths):
        h = self.inner(x)
        total = 0
        for block in self.blocks:
            h, aux = block(h)
            total = total + aux
        outside = torch.arange(x.shape[1]) >= lengths[:, None]
        look = (h @ self.query).masked_fill(outside, float("-inf")).softmax(dim=1)
        pooled = (look[..., None] * h).sum(1)
        return self.head(pooled), total / len(self.blocks)


def build():
    return MoeNet()


def batch(rng):
    return {
        "args": (rng.normal(size=(3, 7, 6)).astype("float32"), rng.integers(4, 8, size=(3,))),
        "labels": rng.integers(0, 5, size=(3,)),
    }


def loss(output, labels):
    """Focal, plus the load."""
    scores, aux = output
    log_p = F.log_softmax(scores, dim=-1).gather(1, labels[:, None])[:, 0]
    return (-((1 - log_p.exp()) ** 2) * log_p).mean() + 0.02 * aux


def optimizer(parameters):
    return torch.optim.Adagrad(parameters, lr=0.05, eps=1e-10, initial_accumulator_value=0.1)
