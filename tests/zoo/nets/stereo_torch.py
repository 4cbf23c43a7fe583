"""A matcher of two views: a volume of shifted features, convolutions over it, soft disparities."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

SHIFTS = 4


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x):
        return self.conv2(F.relu(self.norm1(self.conv1(x))))


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv3d(12, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm3d(8)
        self.conv2 = nn.Conv3d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm3d(8)
        self.out = nn.Conv3d(8, 1, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(x + self.bn2(self.conv2(x)))
        return self.out(x).squeeze(1)


class Refine(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=2, dilation=2)
        self.conv2 = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, image, disparity):
        y = F.leaky_relu(self.conv1(torch.cat([image, disparity], 1)), 0.2)
        return F.relu(disparity + self.conv2(y))


class Stereo(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.volume = Volume()
        self.refine = Refine()

    def shift(self, left, right):
        rows = []
        for number in range(SHIFTS):
            moved = F.pad(right, (number, 0))[..., : right.shape[-1]]
            both = torch.cat([left, moved], 1)
            both[..., :number] = 0
            rows.append(both)
        return torch.stack(rows, 2)

    def forward(self, left, right):
        cost = self.volume(self.shift(self.features(left), self.features(right)))
        weights = F.softmax(-cost, 1)
        place = torch.arange(SHIFTS, dtype=weights.dtype).view(1, -1, 1, 1)
        coarse = (weights * place).sum(1, keepdim=True)
        coarse = 2.0 * F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
        return coarse, self.refine(left, coarse)


def build():
    return Stereo()


def batch(rng):
    return {
        "args": tuple(rng.standard_normal((2, 3, 8, 12)).astype("float32") for _ in range(2)),
        "labels": rng.uniform(0, 9, (2, 1, 8, 12)).astype("float32"),
    }


def loss(outputs, labels):
    kept = (labels > 0) & (labels < 2 * SHIFTS)
    values = [F.smooth_l1_loss(one[kept], labels[kept]) for one in outputs]
    return 0.7 * values[0] + values[1]


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.999))


def scheduler(built):
    return torch.optim.lr_scheduler.MultiStepLR(built, milestones=[1, 3], gamma=0.5)


def metric(outputs, labels):
    guess, labels = np.asarray(outputs[1], "float64"), np.asarray(labels, "float64")
    kept = (labels > 0) & (labels < 2 * SHIFTS)
    gap = np.abs(guess - labels)[kept]
    wrong = (gap > 1) & (gap > 0.4 * labels[kept])
    return {"epe": float(gap.mean()), "d1": float(wrong.mean())}
