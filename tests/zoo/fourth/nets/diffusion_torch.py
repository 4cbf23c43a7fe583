"""A denoiser: noised images, embedded times, residual blocks, attention, skips."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WIDTH, STEPS = 8, 50


def embed_time(steps, width, dtype):
    half = width // 2
    rate = torch.exp(-math.log(10000) * torch.arange(half, dtype=dtype) / half)
    angle = steps[:, None].to(dtype) * rate[None]
    return torch.cat([angle.cos(), angle.sin()], -1)


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inputs, eps=1e-6)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, outputs)
        self.norm2 = nn.GroupNorm(4, outputs, eps=1e-6)
        self.dropout = nn.Dropout(0.1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(self.dropout(F.silu(self.norm2(y))))
        return self.skip(x) + y


class Attention(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels, eps=1e-6)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        size, channels = x.shape[:2]
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = self.qkv(y).reshape(size, -1, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        weight = (y[0] @ y[1].transpose(-2, -1) * (channels // self.heads) ** -0.5).softmax(-1)
        y = (weight @ y[2]).transpose(1, 2).reshape(size, -1, channels)
        return x + self.out(y).transpose(1, 2).reshape(x.shape)


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, STEPS, dtype=torch.float64) ** 2
        self.register_buffer("kept", torch.cumprod(1 - betas, 0).float(), persistent=False)
        self.time1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.time2 = nn.Linear(4 * WIDTH, 4 * WIDTH)
        self.conv_in = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.block1 = Residual(WIDTH, WIDTH)
        self.down = Down(WIDTH)
        self.middle = Residual(WIDTH, 2 * WIDTH)
        self.attention = Attention(2 * WIDTH, 2)
        self.up = Up(2 * WIDTH)
        self.block2 = Residual(3 * WIDTH, WIDTH)
        self.block3 = Residual(2 * WIDTH, WIDTH)
        self.norm_out = nn.GroupNorm(4, WIDTH, eps=1e-6)
        self.conv_out = nn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, x, noise, steps):
        kept = self.kept[steps].reshape(-1, 1, 1, 1)
        x = kept.sqrt() * x + (1 - kept).sqrt() * noise
        time = embed_time(steps, WIDTH, x.dtype)
        time = self.time2(F.silu(self.time1(time)))
        skips = [self.conv_in(x)]
        skips.append(self.block1(skips[-1], time))
        y = self.attention(self.middle(self.down(skips[-1]), time))
        y = self.block2(torch.cat([self.up(y), skips.pop()], 1), time)
        y = self.block3(torch.cat([y, skips.pop()], 1), time)
        return self.conv_out(F.silu(self.norm_out(y)))


def build():
    return Denoiser()


def batch(rng):
    noise = rng.standard_normal((2, 3, 8, 8)).astype("float32")
    steps = np.array([7, 41], "int64")
    return {
        "args": (rng.standard_normal((2, 3, 8, 8)).astype("float32"), noise, steps),
        "labels": (noise, np.array([6.0, 0.8], "float32")),
    }


def loss(outputs, labels):
    noise, ratio = labels
    weight = ratio.clamp(max=5.0) / ratio
    return (weight * F.mse_loss(outputs, noise, reduction="none").mean((1, 2, 3))).mean()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-8)


def scheduler(built):
    return torch.optim.lr_scheduler.LambdaLR(built, lambda step: min(1.0, step / 3))


def transform(image):
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    image = image[top : top + side, left : left + side].astype("float32")
    image = image[:, ::-1] * (2 / 255) - 1
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def samples():
    rng = np.random.default_rng(9)
    return [rng.integers(0, 256, (*size, 3), dtype="uint8") for size in ((13, 18), (21, 12))]
