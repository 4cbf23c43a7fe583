"""Some families of `paddle.vision.models`, written in torch as their papers and torchvision have them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def unit(inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1, act=nn.ReLU, eps: float = 1e-5):
    """Return convolution, norm and activation."""
    layers = [
        nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside, eps=eps, momentum=0.01 if eps > 1e-4 else 0.1),
    ]
    return nn.Sequential(*layers, *([act()] if act is not None else []))


class Bottleneck(nn.Module):
    """A residual block of three convolutions."""

    expansion = 4

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        wide = planes * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inside, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = unit(inside, wide, 1, stride, act=None) if stride != 1 or inside != wide else None

    def forward(self, x):
        kept = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += kept
        return self.relu(x)


class Basic(nn.Module):
    """A residual block of two."""

    expansion = 1

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.downsample = unit(inside, planes, 1, stride, act=None) if stride != 1 or inside != planes else None

    def forward(self, x):
        kept = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + kept)


class ResNet(nn.Module):
    """He et al. 2015."""

    def __init__(self, block, depths: Sequence[int]) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        stages, inside = [], 64
        for number, depth in enumerate(depths):
            for place in range(depth):
                stages.append(block(inside, 64 * 2**number, 2 if number and not place else 1))
                inside = 64 * 2**number * block.expansion
        self.blocks, self.fc = nn.Sequential(*stages), nn.Linear(inside, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class MobileNetV1(nn.Module):
    """Howard et al. 2017."""

    def __init__(self, scale: float = 0.25) -> None:
        super().__init__()
        wide = [int(size * scale) for size in (32, 64, 128, 128, 256, 256, *([512] * 6), 1024, 1024)]
        strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
        layers = [unit(3, wide[0], 3, 2)]
        for number, stride in enumerate(strides):
            layers += [unit(wide[number], wide[number], 3, stride, wide[number]), unit(wide[number], wide[number + 1])]
        self.features, self.fc = nn.Sequential(*layers), nn.Linear(wide[-1], 10)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class InvertedV2(nn.Module):
    """An inverted residual block."""

    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        layers = [unit(inside, wide, act=nn.ReLU6)] if expansion != 1 else []
        self.conv = nn.Sequential(*layers, unit(wide, wide, 3, stride, wide, nn.ReLU6), *unit(wide, outside, act=None))
        self.shortcut = stride == 1 and inside == outside

    def forward(self, x):
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """Sandler et al. 2018, half as wide."""

    def __init__(self) -> None:
        super().__init__()
        layers, inside = [unit(3, 16, 3, 2, act=nn.ReLU6)], 16
        for expansion, outside, depth, stride in (
            (1, 8, 1, 1),
            (6, 16, 2, 2),
            (6, 16, 3, 2),
            (6, 32, 4, 2),
            (6, 48, 3, 1),
            (6, 80, 3, 2),
            (6, 160, 1, 1),
        ):
            for place in range(depth):
                layers.append(InvertedV2(inside, outside, 1 if place else stride, expansion))
                inside = outside
        self.features = nn.Sequential(*layers, unit(inside, 1280, act=nn.ReLU6))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Excitation(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(wide, narrow, 1), nn.Conv2d(narrow, wide, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


def _divisible(size: float) -> int:
    found = max(8, int(size + 4) // 8 * 8)
    return found + 8 if found < 0.9 * size else found


class InvertedV3(nn.Module):
    """An inverted residual block with excitation."""

    def __init__(self, inside: int, wide: int, outside: int, kernel: int, stride: int, squeeze: bool, act) -> None:
        super().__init__()
        layers = [unit(inside, wide, act=act, eps=1e-3)] if inside != wide else []
        layers.append(unit(wide, wide, kernel, stride, wide, act, 1e-3))
        if squeeze:
            layers.append(Excitation(wide, _divisible(wide // 4)))
        self.block = nn.Sequential(*layers, unit(wide, outside, act=None, eps=1e-3))
        self.shortcut = stride == 1 and inside == outside

    def forward(self, x):
        return x + self.block(x) if self.shortcut else self.block(x)


class MobileNetV3(nn.Module):
    """Howard et al. 2019, the small one."""

    def __init__(self) -> None:
        super().__init__()
        hard, layers = nn.Hardswish, [unit(3, 16, 3, 2, act=nn.Hardswish, eps=1e-3)]
        for inside, kernel, wide, outside, squeeze, act, stride in (
            (16, 3, 16, 16, True, nn.ReLU, 2),
            (16, 3, 72, 24, False, nn.ReLU, 2),
            (24, 3, 88, 24, False, nn.ReLU, 1),
            (24, 5, 96, 40, True, hard, 2),
            (40, 5, 240, 40, True, hard, 1),
            (40, 5, 240, 40, True, hard, 1),
            (40, 5, 120, 48, True, hard, 1),
            (48, 5, 144, 48, True, hard, 1),
            (48, 5, 288, 96, True, hard, 2),
            (96, 5, 576, 96, True, hard, 1),
            (96, 5, 576, 96, True, hard, 1),
        ):
            layers.append(InvertedV3(inside, wide, outside, kernel, stride, squeeze, act))
        self.features = nn.Sequential(*layers, unit(96, 576, act=hard, eps=1e-3))
        self.classifier = nn.Sequential(nn.Linear(576, 1024), hard(), nn.Dropout(0.2), nn.Linear(1024, 10))

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Fire(nn.Module):
    """Iandola et al. 2016."""

    def __init__(self, inside: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze, self.relu = nn.Conv2d(inside, narrow, 1), nn.ReLU(inplace=True)
        self.expand1x1, self.expand3x3 = nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x):
        x = self.relu(self.squeeze(x))
        return torch.cat([self.relu(self.expand1x1(x)), self.relu(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (
            (64, 16, 64),
            (128, 16, 64),
            (128, 32, 128),
            (256, 32, 128),
            (256, 48, 192),
            (384, 48, 192),
            (384, 64, 256),
            (512, 64, 256),
        )
        fires = [Fire(*size) for size in sizes]
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2, 1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            *fires[:2],
            nn.MaxPool2d(3, 2),
            *fires[2:4],
            nn.MaxPool2d(3, 2),
            *fires[4:],
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(512, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class Shuffle(nn.Module):
    """Ma et al. 2018."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        half = outside // 2
        self.branch1 = None
        if stride > 1:
            self.branch1 = nn.Sequential(unit(inside, inside, 3, stride, inside, None), unit(inside, half))
        self.branch2 = nn.Sequential(
            unit(inside if stride > 1 else half, half), unit(half, half, 3, stride, half, None), unit(half, half)
        )

    def forward(self, x):
        if self.branch1 is None:
            one, other = x.chunk(2, dim=1)
            x = torch.cat([one, self.branch2(other)], 1)
        else:
            x = torch.cat([self.branch1(x), self.branch2(x)], 1)
        return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleNet(nn.Module):
    """ShuffleNetV2, half as wide."""

    def __init__(self) -> None:
        super().__init__()
        layers, inside = [unit(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)], 24
        for outside, depth in ((48, 4), (96, 8), (192, 4)):
            for place in range(depth):
                layers.append(Shuffle(inside, outside, 1 if place else 2))
                inside = outside
        self.features, self.fc = nn.Sequential(*layers, unit(192, 1024)), nn.Linear(1024, 10)

    def forward(self, x):
        return self.fc(self.features(x).mean([2, 3]))


class DenseLayer(nn.Module):
    """Huang et al. 2016."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inside), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inside, 128, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(128), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))], 1)


class DenseNet(nn.Module):
    """DenseNet-121."""

    def __init__(self) -> None:
        super().__init__()
        layers, wide = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for number, depth in enumerate((6, 12, 24, 16)):
            layers += [DenseLayer(wide + 32 * place) for place in range(depth)]
            wide += 32 * depth
            if number < 3:
                layers += [nn.BatchNorm2d(wide), nn.ReLU(), nn.Conv2d(wide, wide // 2, 1, bias=False), nn.AvgPool2d(2)]
                wide //= 2
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(wide))
        self.classifier = nn.Linear(wide, 10)

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(F.relu(self.features(x)), 1).flatten(1))


class VGG(nn.Module):
    """VGG-11 without its classifier (Simonyan and Zisserman 2014)."""

    def __init__(self) -> None:
        super().__init__()
        layers, inside = [], 3
        for size in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512):
            if not size:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(inside, size, 3, padding=1), nn.ReLU(inplace=True)]
            inside = size
        self.features = nn.Sequential(*layers, nn.MaxPool2d(2))

    def forward(self, x):
        return self.features(x)
