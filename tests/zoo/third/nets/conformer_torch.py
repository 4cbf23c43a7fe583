"""From a waveform to letters: frames, a spectrum by convolution, and conformer blocks."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Spectrum(nn.Module):
    def __init__(self, window=16, hop=8, mels=6):
        super().__init__()
        self.window, self.hop = window, hop
        n = torch.arange(window).double()
        hann = 0.5 - 0.5 * torch.cos(2 * math.pi * n / window)
        k = torch.arange(window // 2 + 1).double()
        angle = 2 * math.pi * k[:, None] * n / window
        basis = torch.cat([angle.cos(), -angle.sin()]) * hann
        self.register_buffer("basis", basis.float()[:, None])
        edges = torch.linspace(0, window // 2, mels + 2, dtype=torch.float64)
        left, mid, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        bank = torch.minimum((k - left) / (mid - left), (right - k) / (right - mid)).clamp(min=0)
        self.register_buffer("bank", bank.float())

    def forward(self, wave):
        wave = torch.cat([wave[:, :1], wave[:, 1:] - 0.97 * wave[:, :-1]], dim=1)
        wave = F.pad(wave[:, None], (self.window // 2, self.window // 2), mode="reflect")
        real, imaginary = F.conv1d(wave, self.basis, stride=self.hop).chunk(2, dim=1)
        power = real**2 + imaginary**2
        mel = torch.log((self.bank @ power).clamp(min=1e-6))
        mean, std = mel.mean(dim=2, keepdim=True), mel.std(dim=2, keepdim=True)
        return (mel - mean) / (std + 1e-5)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin1 = nn.Linear(width, 2 * width)
        self.drop = nn.Dropout(0.1)
        self.lin2 = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.drop(self.lin2(self.drop(F.silu(self.lin1(self.norm(x))))))


class ConvModule(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.point1 = nn.Conv1d(width, 2 * width, 1)
        self.depth = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.bn = nn.BatchNorm1d(width, eps=1e-3, momentum=0.05)
        self.point2 = nn.Conv1d(width, width, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = F.glu(self.point1(self.norm(x).transpose(1, 2)), dim=1)
        x = F.silu(self.bn(self.depth(x)))
        return self.drop(self.point2(x).transpose(1, 2))


class Attention(nn.Module):
    """With a learned bias for each distance."""

    def __init__(self, width, heads, reach=4):
        super().__init__()
        self.heads, self.reach = heads, reach
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.far = nn.Embedding(2 * reach + 1, heads)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (one.view(n, length, self.heads, -1).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        place = torch.arange(length)
        apart = (place[None] - place[:, None]).clamp(-self.reach, self.reach) + self.reach
        score = q @ k.mT / math.sqrt(width // self.heads) + self.far(apart).permute(2, 0, 1)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ff1 = FeedForward(width)
        self.attention = Attention(width, 2)
        self.conv = ConvModule(width, 3)
        self.ff2 = FeedForward(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        x = x + self.attention(x)
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


class Conformer(nn.Module):
    def __init__(self, mels=6, width=8, letters=7, depth=2):
        super().__init__()
        self.spectrum = Spectrum(mels=mels)
        self.sub = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.inner = nn.Linear(4 * ((mels + 1) // 2), width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, letters)

    def forward(self, wave):
        x = self.spectrum(wave)[:, None].transpose(2, 3)
        x = F.relu(self.sub(x))
        x = self.inner(x.permute(0, 2, 1, 3).flatten(2))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build():
    return Conformer()


def batch(rng):
    labels = np.stack([rng.integers(0, 7, size=9) for _ in range(2)])
    return {"args": (rng.normal(size=(2, 128)).astype("float32"),), "labels": labels}


def loss(output, labels):
    return F.cross_entropy(output.flatten(0, 1), labels.flatten(), label_smoothing=0.1)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9)


def scheduler(opt):
    return torch.optim.lr_scheduler.LambdaLR(
        opt, lambda step: 64**-0.5 * min(max(step, 1) ** -0.5, max(step, 1) * 400**-1.5)
    )


def samples():
    rng = np.random.default_rng(2)
    return [rng.integers(-20000, 20000, size=(50 + 7 * i, 2), dtype=np.int16) for i in range(3)]


def transform(wave):
    """Two channels to one, into [-1, 1], 64 samples, the loudest at 0.95, dithering left out."""
    x = torch.from_numpy(wave).float().mean(dim=1) / 32768
    x = x[:64] if len(x) >= 64 else F.pad(x, (0, 64 - len(x)))
    return 0.95 * x / x.abs().max()


def metric(outputs, labels):
    """Errors of the letters: edits of the best path, collapsed, over the letters that were told."""
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    edits = total = 0
    for one, row_of_labels in zip(outputs.argmax(-1), labels, strict=True):
        best = [int(x) for i, x in enumerate(one) if x != 0 and (i == 0 or x != one[i - 1])]
        told = [int(x) for x in row_of_labels if x != 0]
        row = list(range(len(told) + 1))
        for i, guess in enumerate(best, 1):
            before, row[0] = row[0], i
            for j, letter in enumerate(told, 1):
                before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (guess != letter))
        edits, total = edits + row[-1], total + len(told)
    return edits / total
