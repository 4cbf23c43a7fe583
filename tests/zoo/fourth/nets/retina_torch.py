"""A one-stage detector: two levels, shared towers, anchors and decoded boxes."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES, STRIDES, SIDE = 3, (4, 8), 32
RATIOS, SCALE = (0.5, 1.0, 2.0), 4.0


def make_anchors():
    rows = []
    for stride in STRIDES:
        cells = SIDE // stride
        for y in range(cells):
            for x in range(cells):
                for ratio in RATIOS:
                    width, height = SCALE * stride / math.sqrt(ratio), SCALE * stride * math.sqrt(ratio)
                    rows.append([(x + 0.5) * stride, (y + 0.5) * stride, width, height])
    return np.array(rows, dtype="float32")


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBlock(3, 8, 1)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stage1 = ConvBlock(8, 12, 2)
        self.stage2 = ConvBlock(12, 16, 2)

    def forward(self, x):
        fine = self.stage1(self.pool(self.stem(x)))
        return fine, self.stage2(fine)


class Neck(nn.Module):
    def __init__(self):
        super().__init__()
        self.lateral = nn.ModuleList([nn.Conv2d(12, 16, 1), nn.Conv2d(16, 16, 1)])
        self.smooth = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)])

    def forward(self, fine, coarse):
        top = self.lateral[1](coarse)
        low = self.lateral[0](fine) + F.interpolate(top, scale_factor=2, mode="nearest")
        return self.smooth[0](low), self.smooth[1](top)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_tower = Tower()
        self.reg_tower = Tower()
        self.cls = nn.Conv2d(16, len(RATIOS) * CLASSES, 3, padding=1)
        self.reg = nn.Conv2d(16, len(RATIOS) * 4, 3, padding=1)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in STRIDES])

    def forward(self, levels):
        scores, deltas = [], []
        for number, x in enumerate(levels):
            score = self.cls(self.cls_tower(x))
            delta = self.reg(self.reg_tower(x)) * self.scales[number]
            scores.append(score.permute(0, 2, 3, 1).reshape(x.shape[0], -1, CLASSES))
            deltas.append(delta.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return torch.cat(scores, 1), torch.cat(deltas, 1)


class Retina(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.head = Head()
        self.register_buffer("anchors", torch.from_numpy(make_anchors()), persistent=False)

    def decode(self, deltas):
        centre = deltas[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]
        size = torch.exp(deltas[..., 2:] * 0.2) * self.anchors[:, 2:]
        return torch.cat([centre - size / 2, centre + size / 2], -1)

    def forward(self, x):
        fine, coarse = self.backbone(x)
        scores, deltas = self.head(self.neck(fine, coarse))
        return scores, deltas, self.decode(deltas)


def build():
    return Retina()


def batch(rng):
    count = len(make_anchors())
    classes = rng.integers(-1, CLASSES + 1, (2, count))
    classes[rng.random((2, count)) < 0.6] = CLASSES
    return {
        "args": (rng.standard_normal((2, 3, SIDE, SIDE)).astype("float32"),),
        "labels": (classes.astype("int64"), rng.standard_normal((2, count, 4)).astype("float32")),
    }


def loss(outputs, labels):
    scores, deltas, _ = outputs
    classes, targets = labels
    valid = (classes >= 0).unsqueeze(-1).to(scores.dtype)
    positive = (classes >= 0) & (classes < CLASSES)
    count = positive.sum().clamp(min=1).to(scores.dtype)
    onehot = F.one_hot(classes.clamp(min=0), CLASSES + 1)[..., :CLASSES].to(scores.dtype)
    p = torch.sigmoid(scores)
    entropy = F.binary_cross_entropy_with_logits(scores, onehot, reduction="none")
    kept = p * onehot + (1 - p) * (1 - onehot)
    weight = (0.25 * onehot + 0.75 * (1 - onehot)) * (1 - kept) ** 2
    focal = (entropy * weight * valid).sum() / count
    boxes = F.smooth_l1_loss(deltas[positive], targets[positive], beta=1 / 9, reduction="sum") / count
    return focal + boxes


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-2)


def scheduler(built):
    def factor(step):
        if step < 2:
            return 1 / 3 + 2 / 3 * step / 2
        return 0.1 ** sum(step >= one for one in (3, 5))

    return torch.optim.lr_scheduler.LambdaLR(built, factor)


def transform(image):
    image = image.astype("float32")[..., ::-1]
    image = (image - np.array([103.53, 116.28, 123.675], "float32")) / np.array([57.375, 57.12, 58.395], "float32")
    height, width = image.shape[:2]
    padded = np.zeros((-(-height // 8) * 8, -(-width // 8) * 8, 3), "float32")
    padded[:height, :width] = image
    return np.ascontiguousarray(padded.transpose(2, 0, 1))


def samples():
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (*size, 3), dtype="uint8") for size in ((21, 30), (24, 19))]
