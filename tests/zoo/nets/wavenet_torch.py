"""A stack of dilated causal convolutions with gated units, conditioned on slower features."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class CausalConv(nn.Conv1d):
    def forward(self, x):
        left = (self.kernel_size[0] - 1) * self.dilation[0]
        return F.conv1d(F.pad(x, (left, 0)), self.weight, self.bias, dilation=self.dilation)


class GatedUnit(nn.Module):
    def __init__(self, width, skip, condition, dilation):
        super().__init__()
        self.conv = CausalConv(width, 2 * width, 2, dilation=dilation)
        self.local = nn.Conv1d(condition, 2 * width, 1, bias=False)
        self.res = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, skip, 1)

    def forward(self, x, c):
        a, b = (self.conv(x) + self.local(c)).chunk(2, dim=1)
        z = torch.tanh(a) * torch.sigmoid(b)
        return (x + self.res(z)) * 0.5**0.5, self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, levels=32, width=8, skip=10, condition=5, hop=4):
        super().__init__()
        self.hop = hop
        self.levels = levels
        self.embed = nn.Embedding(levels, width)
        self.causal = CausalConv(width, width, 2)
        self.units = nn.ModuleList(GatedUnit(width, skip, condition, 2**i) for i in range(4))
        self.end1 = nn.Conv1d(skip, skip, 1)
        self.end2 = nn.Conv1d(skip, levels, 1)

    def companded(self, wave):
        """Mu-law: numbers in [-1, 1] to whole numbers below ``levels``."""
        mu = self.levels - 1
        y = torch.sign(wave) * torch.log1p(mu * wave.abs()) / torch.log1p(torch.tensor(float(mu), dtype=wave.dtype))
        return ((y + 1) / 2 * mu + 0.5).long()

    def forward(self, wave, features):
        c = features.repeat_interleave(self.hop, dim=2)
        x = self.causal(self.embed(self.companded(wave)).transpose(1, 2))
        total = 0
        for unit in self.units:
            x, skip = unit(x, c)
            total = total + skip
        total = total * (1.0 / len(self.units)) ** 0.5
        return self.end2(F.relu(self.end1(F.relu(total))))


def build():
    return WaveNet()


def batch(rng):
    return {
        "args": (rng.uniform(-1, 1, size=(2, 24)).astype("float32"), rng.normal(size=(2, 5, 6)).astype("float32")),
        "labels": rng.integers(0, 32, size=(2, 24)),
    }


def loss(output, labels):
    """Each step foretells the next."""
    return F.cross_entropy(output[:, :, :-1], labels[:, 1:])


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)


def scheduler(opt):
    return torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.8)
