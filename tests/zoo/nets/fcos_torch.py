"""A detector without anchors: a pyramid of two levels, towers with GroupNorm, distances to the sides, the best boxes."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES, STRIDES, BEST = 3, (2, 5), 6


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.lateral3 = nn.Conv2d(6, 8, 1)
        self.lateral4 = nn.Conv2d(8, 8, 1)
        self.smooth = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, c3, c4):
        p4 = self.lateral4(c4)
        up = F.interpolate(p4, size=c3.shape[-2:], mode="bilinear", align_corners=False)
        return self.smooth(self.lateral3(c3) + up), p4


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = Tower()
        self.boxes = Tower()
        self.score = nn.Conv2d(8, CLASSES, 3, padding=1)
        self.sides = nn.Conv2d(8, 4, 3, padding=1)
        self.centre = nn.Conv2d(8, 1, 3, padding=1)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in STRIDES])

    def forward(self, levels):
        scores, sides, centres, places = [], [], [], []
        for number, x in enumerate(levels):
            stride = STRIDES[number]
            seen, tower = self.classes(x), self.boxes(x)
            scores.append(self.score(seen).permute(0, 2, 3, 1).flatten(1, 2))
            apart = torch.exp(self.sides(tower) * self.scales[number]) * stride
            sides.append(apart.permute(0, 2, 3, 1).flatten(1, 2))
            centres.append(self.centre(tower).flatten(1))
            ys = torch.arange(x.shape[2], dtype=x.dtype) * stride + stride // 2
            xs = torch.arange(x.shape[3], dtype=x.dtype) * stride + stride // 2
            grid_y, grid_x = torch.meshgrid(ys, xs, indexing="ij")
            places.append(torch.stack([grid_x.flatten(), grid_y.flatten()], -1))
        return torch.cat(scores, 1), torch.cat(sides, 1), torch.cat(centres, 1), torch.cat(places, 0)


class Fcos(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.pyramid = Pyramid()
        self.head = Head()

    def forward(self, x):
        c3 = F.leaky_relu(self.conv1(x), 0.1)
        c4 = F.leaky_relu(self.conv2(c3), 0.1)
        scores, sides, centres, places = self.head(self.pyramid(c3, c4))
        boxes = torch.cat([places - sides[..., :2], places + sides[..., 2:]], -1)
        quality = torch.sqrt(scores.sigmoid() * centres.sigmoid().unsqueeze(-1))
        best, index = quality.max(-1)[0].topk(BEST, dim=1)
        kept = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        return scores, boxes, centres, best, kept


def build():
    return Fcos()


def batch(rng):
    count = 6 * 8 + 3 * 4
    corners = rng.random((2, count, 2)) * 8
    boxes = np.concatenate([corners, corners + 1 + 6 * rng.random((2, count, 2))], -1)
    return {
        "args": (rng.standard_normal((2, 3, 12, 16)).astype("float32"),),
        "labels": (
            np.where(rng.random((2, count)) < 0.3, rng.integers(0, CLASSES, (2, count)), -1).astype("int64"),
            boxes.astype("float32"),
            rng.random((2, count)).astype("float32"),
        ),
    }


def loss(outputs, labels):
    scores, boxes, centres = outputs[:3]
    classes, wanted, centre = labels
    positive = classes >= 0
    onehot = F.one_hot(classes.clamp(min=0), CLASSES).to(scores.dtype) * positive.unsqueeze(-1)
    p = scores.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(scores, onehot, reduction="none")
    alpha = 0.25 * onehot + 0.75 * (1 - onehot)
    hidden = 1 - (p * onehot + (1 - p) * (1 - onehot))
    count = positive.sum().clamp(min=1)
    focal = (alpha * hidden**2 * entropy).sum() / count
    box = F.smooth_l1_loss(boxes[positive], wanted[positive], beta=0.5)
    middle = F.binary_cross_entropy_with_logits(centres[positive], centre[positive])
    return focal + box + middle


def optimizer(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [one for one in parameters if one.ndim > 1]},
        {"params": [one for one in parameters if one.ndim <= 1], "lr": 0.02, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-2, nesterov=True)


def scheduler(built):
    return torch.optim.lr_scheduler.MultiStepLR(built, milestones=[2, 4], gamma=0.1)
