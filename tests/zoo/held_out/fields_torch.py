"""References over images, clips and points: ConvNeXt, LinkNet, FPN detector, ShuffleNet with SE, DenseNet, TSM, EDSR, StyleGAN, PointNet."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class ConvNextBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, dim: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dim, 2, 2), LayerNorm2d(dim, eps=1e-6))
        self.stage1 = nn.Sequential(ConvNextBlock(dim), ConvNextBlock(dim))
        self.down = nn.Sequential(LayerNorm2d(dim, eps=1e-6), nn.Conv2d(dim, 2 * dim, 2, 2))
        self.stage2 = nn.Sequential(ConvNextBlock(2 * dim))
        self.norm = nn.LayerNorm(2 * dim, eps=1e-6)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(self.norm(x.mean((-2, -1))))


class Encode(nn.Module):
    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(ins, outs, 3, 2, 1)
        self.norm = nn.InstanceNorm2d(outs, affine=True)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class Decode(nn.Module):
    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.deconv = nn.ConvTranspose2d(ins, outs, 3, 2, 1, output_padding=1)
        self.norm = nn.InstanceNorm2d(outs, affine=True)

    def forward(self, x, skip):
        return F.relu(self.norm(self.deconv(x)) + skip)


class LinkNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")
        self.enc1, self.enc2 = Encode(4, 6), Encode(6, 8)
        self.dec2, self.dec1 = Decode(8, 6), Decode(6, 4)
        self.fuse = nn.Conv2d(10, 6, 1)
        self.mask = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        s = F.relu(self.stem(x))
        a = self.enc1(s)
        b = self.enc2(a)
        d = self.dec2(b, a)
        full = self.dec1(d, s)
        up = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        fused = F.relu(self.fuse(torch.cat([full, up], 1)))
        return torch.sigmoid(self.mask(fused))


class Head(nn.Module):
    """Shared over the levels; the box branch has one scale per level."""

    def __init__(self, dim: int, anchors: int, classes: int, levels: int) -> None:
        super().__init__()
        self.classes = classes
        self.tower = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1), nn.GroupNorm(4, dim), nn.ReLU())
        self.cls = nn.Conv2d(dim, anchors * classes, 3, padding=1)
        self.box = nn.Conv2d(dim, anchors * 4, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(levels))

    def forward(self, levels):
        scores, boxes = [], []
        for i, x in enumerate(levels):
            y = self.tower(x)
            b = x.shape[0]
            scores.append(self.cls(y).permute(0, 2, 3, 1).reshape(b, -1, self.classes))
            boxes.append((self.box(y) * self.scales[i]).exp().permute(0, 2, 3, 1).reshape(b, -1, 4))
        return torch.cat(scores, 1), torch.cat(boxes, 1)


class Detector(nn.Module):
    def __init__(self, dim: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU())
        self.c2 = nn.Sequential(nn.Conv2d(6, 10, 3, 2, 1, bias=False), nn.BatchNorm2d(10), nn.ReLU())
        self.c3 = nn.Sequential(nn.Conv2d(10, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.lateral = nn.ModuleList(nn.Conv2d(n, dim, 1) for n in (6, 10, 12))
        self.smooth = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in range(3))
        self.head = Head(dim, 2, classes, 3)

    def forward(self, x):
        c1 = self.c1(x)
        c2 = self.c2(c1)
        c3 = self.c3(c2)
        p3 = self.lateral[2](c3)
        p2 = self.lateral[1](c2) + F.interpolate(p3, scale_factor=2, mode="nearest")
        p1 = self.lateral[0](c1) + F.interpolate(p2, scale_factor=2, mode="nearest")
        levels = [conv(p) for conv, p in zip(self.smooth, (p1, p2, p3), strict=False)]
        scores, boxes = self.head(levels)
        return {"scores": scores, "boxes": boxes}


class SqueezeExcite(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(dim, dim // 2, 1)
        self.relu = nn.ReLU(inplace=True)
        self.expand = nn.Conv2d(dim // 2, dim, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x):
        return x * self.gate(self.expand(self.relu(self.reduce(self.pool(x)))))


class ShuffleUnit(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        half = dim // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.Hardswish(),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.Hardswish(),
        )
        self.se = SqueezeExcite(half)

    def forward(self, x):
        one, other = x.chunk(2, 1)
        x = torch.cat([one, self.se(self.branch(other))], 1)
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


class ShuffleNet(nn.Module):
    def __init__(self, dim: int = 12, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dim, 3, 2, 1, bias=False), nn.BatchNorm2d(dim), nn.Hardswish())
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.units = nn.Sequential(*(ShuffleUnit(dim) for _ in range(3)))
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        return self.fc(self.units(self.maxpool(self.stem(x))).mean([2, 3]))


class DenseLayer(nn.Module):
    def __init__(self, ins: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(ins), nn.Conv2d(ins, 2 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * growth)
        self.conv2 = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, y], 1)


class DenseNet(nn.Module):
    def __init__(self, growth: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.pool0 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.block1 = nn.Sequential(*(DenseLayer(8 + i * growth, growth) for i in range(3)))
        self.transition = nn.Sequential(
            nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(3, 2, 1)
        )
        self.block2 = nn.Sequential(*(DenseLayer(10 + i * growth, growth) for i in range(2)))
        self.norm5 = nn.BatchNorm2d(18)
        self.drop = nn.Dropout(0.3)
        self.classifier = nn.Linear(18, classes)

    def forward(self, x):
        x = self.block2(self.transition(self.block1(self.pool0(self.conv0(x)))))
        x = F.adaptive_avg_pool2d(F.relu(self.norm5(x)), 1).flatten(1)
        return self.classifier(self.drop(x))


class ShiftBlock(nn.Module):
    """Temporal shift, then a residual 2-D block over each frame."""

    def __init__(self, dim: int, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.conv1, self.bn1 = nn.Conv2d(dim, dim, 3, 1, 1, bias=False), nn.BatchNorm2d(dim)
        self.conv2, self.bn2 = nn.Conv2d(dim, dim, 3, 1, 1, bias=False), nn.BatchNorm2d(dim)

    def shift(self, x):
        bt, c, h, w = x.shape
        x = x.view(bt // self.frames, self.frames, c, h, w)
        out = torch.zeros_like(x)
        fold = c // 4
        out[:, :-1, :fold] = x[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = x[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = x[:, :, 2 * fold :]
        return out.view(bt, c, h, w)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(self.shift(x))))
        return F.relu(x + self.bn2(self.conv2(y)))


class ShiftNet(nn.Module):
    """A clip (batch, channels, frames, height, width): 3-D stem, frames as samples, mean over frames."""

    def __init__(self, dim: int = 8, classes: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, dim, (3, 3, 3), (1, 2, 2), (1, 1, 1))
        self.bn = nn.BatchNorm3d(dim)
        self.pool = nn.AvgPool3d((2, 2, 2), (2, 2, 2))
        self.blocks = nn.Sequential(ShiftBlock(dim, 4), ShiftBlock(dim, 4))
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn(self.stem(x))))
        b, c, t, h, w = x.shape
        x = x.transpose(1, 2).reshape(b * t, c, h, w)
        x = self.blocks(x).amax((2, 3))
        return self.fc(x).view(b, t, -1).mean(1)


class ResBlock(nn.Module):
    def __init__(self, dim: int, scale: float = 0.1) -> None:
        super().__init__()
        self.conv1, self.act, self.conv2 = (nn.Conv2d(dim, dim, 3, 1, 1), nn.PReLU(dim), nn.Conv2d(dim, dim, 3, 1, 1))
        self.scale = scale

    def forward(self, x):
        return x + self.conv2(self.act(self.conv1(x))) * self.scale


class SuperResolution(nn.Module):
    """EDSR on top of a bicubic enlargement."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.head = nn.Conv2d(3, dim, 3, 1, 1)
        self.body = nn.Sequential(ResBlock(dim), ResBlock(dim), nn.Conv2d(dim, dim, 3, 1, 1))
        self.up = nn.Sequential(nn.Conv2d(dim, 4 * dim, 3, 1, 1), nn.PixelShuffle(2))
        self.tail = nn.Conv2d(dim, 3, 3, 1, 1)

    def forward(self, x):
        y = self.head(x - self.mean)
        y = self.tail(self.up(y + self.body(y)))
        base = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return (y + self.mean + base).clamp(0, 4)


class EqualLinear(nn.Module):
    def __init__(self, ins: int, outs: int, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outs, ins))
        self.bias = nn.Parameter(torch.full((outs,), bias))
        self.scale = 1 / math.sqrt(ins)

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)


class ModulatedConv(nn.Module):
    def __init__(self, ins: int, outs: int, styles: int, demodulate: bool = True) -> None:
        super().__init__()
        self.demodulate = demodulate
        self.weight = nn.Parameter(torch.randn(1, outs, ins, 3, 3))
        self.modulation = EqualLinear(styles, ins, 1.0)
        self.scale = 1 / math.sqrt(ins * 9)

    def forward(self, x, style):
        b, c, h, w = x.shape
        weight = self.scale * self.weight * self.modulation(style).view(b, 1, c, 1, 1)
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
        out = F.conv2d(x.reshape(1, b * c, h, w), weight.flatten(0, 1), padding=1, groups=b)
        return out.view(b, -1, h, w)


class StyleLayer(nn.Module):
    def __init__(self, dim: int, styles: int) -> None:
        super().__init__()
        self.conv = ModulatedConv(dim, dim, styles)
        self.noise_strength = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x, style, noise):
        x = self.conv(x, style) + self.noise_strength * noise
        return F.leaky_relu(x + self.bias.view(1, -1, 1, 1), 0.2) * math.sqrt(2)


class Generator(nn.Module):
    def __init__(self, dim: int = 6, styles: int = 8) -> None:
        super().__init__()
        self.mapping = nn.ModuleList(EqualLinear(styles, styles) for _ in range(2))
        self.const = nn.Parameter(torch.randn(1, dim, 4, 4))
        self.layer1, self.layer2 = StyleLayer(dim, styles), StyleLayer(dim, styles)
        self.rgb = ModulatedConv(dim, 3, styles, demodulate=False)

    def forward(self, z, noise1, noise2):
        w = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        for layer in self.mapping:
            w = F.leaky_relu(layer(w), 0.2)
        x = self.layer1(self.const.expand(len(z), -1, -1, -1), w, noise1)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.tanh(self.rgb(self.layer2(x, w, noise2), w))


class PointNet(nn.Module):
    """Points (batch, number, 3); an input transform, shared layers, the maximum over the points."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.tconv = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.tfc = nn.Linear(8, 9)
        self.conv1, self.bn1 = nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8)
        self.conv2, self.bn2 = nn.Conv1d(8, 16, 1), nn.BatchNorm1d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, points):
        x = points.transpose(1, 2)
        t = self.tfc(self.tconv(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype, device=x.device)
        x = torch.bmm(points, t).transpose(1, 2)
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x)).max(2)[0]
        return self.fc(x).log_softmax(1)
