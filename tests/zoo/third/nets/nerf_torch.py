"""A field of colour and density along rays, and what a camera sees of it."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Positional(nn.Module):
    def __init__(self, octaves):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(octaves), persistent=False)

    def forward(self, x):
        angle = x[..., None, :] * self.freq[:, None] * math.pi
        return torch.cat([x, torch.cat([angle.sin(), angle.cos()], dim=-1).flatten(-2)], dim=-1)


class Field(nn.Module):
    def __init__(self, width=16, octaves=4, view_octaves=2):
        super().__init__()
        self.pe = Positional(octaves)
        self.pe_view = Positional(view_octaves)
        inner = 3 + 6 * octaves
        self.lin0 = nn.Linear(inner, width)
        self.lin1 = nn.Linear(width, width)
        self.lin2 = nn.Linear(width + inner, width)
        self.density = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + 3 + 6 * view_octaves, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, points, dirs):
        e = self.pe(points)
        h = F.relu(self.lin0(e))
        h = F.relu(self.lin1(h))
        h = F.relu(self.lin2(torch.cat([e, h], dim=-1)))
        sigma = F.softplus(self.density(h) - 1.0, beta=2.0)
        v = self.pe_view(dirs)
        h = F.relu(self.view(torch.cat([self.feature(h), v], dim=-1)))
        return torch.sigmoid(self.rgb(h)), sigma[..., 0]


class Nerf(nn.Module):
    def __init__(self, near=0.5, far=2.5, steps=8):
        super().__init__()
        self.near, self.far, self.steps = near, far, steps
        self.field = Field()

    def forward(self, origins, directions):
        t = torch.linspace(0, 1, self.steps, dtype=origins.dtype)
        t = self.near * (1 - t) + self.far * t
        points = origins[:, None] + t[:, None] * directions[:, None]
        dirs = F.normalize(directions, dim=-1)[:, None].expand(points.shape)
        rgb, sigma = self.field(points, dirs)
        delta = torch.cat([t[1:] - t[:-1], torch.full((1,), 0.4, dtype=t.dtype)])
        delta = delta * directions.norm(dim=-1, keepdim=True)
        alpha = 1 - torch.exp(-sigma * delta)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=1), dim=1)[:, :-1]
        weights = alpha * passed
        seen = weights.sum(1, keepdim=True)
        colour = (weights[..., None] * rgb).sum(1) + (1 - seen)
        return colour, (weights * t).sum(1), seen


def build():
    return Nerf()


def batch(rng):
    return {
        "args": (
            rng.normal(size=(5, 3)).astype("float32") * np.float32(0.3),
            rng.normal(size=(5, 3)).astype("float32"),
        ),
        "labels": rng.uniform(size=(5, 3)).astype("float32"),
    }


def loss(output, labels):
    colour, _, seen = output
    seen = seen.clamp(1e-5, 1 - 1e-5)
    entropy = -(seen * seen.log() + (1 - seen) * (1 - seen).log())
    return F.mse_loss(colour, labels) + 0.01 * entropy.mean()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=5e-4, eps=1e-7)


def scheduler(opt):
    return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.1 ** (step / 10))


def metric(outputs, labels):
    """Signal to noise, in decibels."""
    first = np.asarray(outputs[0] if isinstance(outputs, tuple | list) else outputs)
    labels = np.asarray(labels)
    return float(-10 * np.log10(np.mean((first - labels) ** 2)))
