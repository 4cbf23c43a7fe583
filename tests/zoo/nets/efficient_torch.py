"""A small EfficientNet: squeeze and excitation, pooled shortcuts, a teacher to learn from."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES, HEAT, SIZE = 6, 2.0, 20


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, 4, 1)
        self.fc2 = nn.Conv2d(4, channels, 1)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.fc2(F.silu(self.fc1(y)))
        return x * F.hardsigmoid(y)


class Block(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.stride = stride
        self.expand = nn.Conv2d(channels, 2 * channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(2 * channels, eps=1e-3, momentum=0.01)
        self.depthwise = nn.Conv2d(2 * channels, 2 * channels, 3, stride, groups=2 * channels, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * channels, eps=1e-3, momentum=0.01)
        self.se = Squeeze(2 * channels)
        self.project = nn.Conv2d(2 * channels, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
        self.shortcut = nn.AvgPool2d(3, stride, padding=1) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.silu(self.bn1(self.expand(x)))
        y = F.pad(y, (0, 1, 0, 1) if self.stride > 1 else (1, 1, 1, 1))
        y = F.silu(self.bn2(self.depthwise(y)))
        y = self.bn3(self.project(self.se(y)))
        return y + self.shortcut(x)


class Efficient(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8, eps=1e-3, momentum=0.01)
        self.blocks = nn.ModuleList([Block(8, 1), Block(8, 2)])
        self.last = nn.Conv2d(8, 16, 1)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.average = nn.AdaptiveAvgPool2d(2)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = self.pool(F.silu(self.last(x)))
        x = torch.cat(torch.split(x, 2, dim=1)[::-1], 1)
        x = self.average(x).flatten(1)
        return self.fc(self.dropout(x))


def build():
    return Efficient()


def batch(rng):
    teacher = rng.random((8, CLASSES)) + 0.1
    return {
        "args": (rng.standard_normal((8, 3, SIZE, SIZE)).astype("float32"),),
        "labels": (
            rng.integers(0, CLASSES, 8).astype("int64"),
            (teacher / teacher.sum(1, keepdims=True)).astype("float32"),
        ),
    }


def loss(outputs, labels):
    classes, teacher = labels
    weight = torch.linspace(0.5, 1.5, CLASSES, dtype=outputs.dtype)
    hard = F.cross_entropy(outputs, classes, weight=weight)
    soft = F.kl_div(F.log_softmax(outputs / HEAT, -1), teacher, reduction="batchmean") * HEAT**2
    return 0.7 * hard + 0.3 * soft


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-2)


def scheduler(built):
    return torch.optim.lr_scheduler.CosineAnnealingLR(built, T_max=8, eta_min=1e-4)


def transform(image):
    small = Image.fromarray(image).resize((24, 24), Image.Resampling.BILINEAR)
    pixels = np.asarray(small, dtype="float32")[2:22, 2:22] / 255
    mean = np.array([0.485, 0.456, 0.406], dtype="float32")
    std = np.array([0.229, 0.224, 0.225], dtype="float32")
    return torch.from_numpy(((pixels - mean) / std).transpose(2, 0, 1).copy())


def samples():
    rng = np.random.default_rng(6)
    return [rng.integers(0, 256, (30, 36, 3)).astype("uint8") for _ in range(3)]


def metric(outputs, labels):
    outputs, labels = np.asarray(outputs), np.asarray(labels[0])
    hits = outputs.argmax(1) == labels
    first = np.argsort(-outputs, 1)[:, :3]
    return {
        "top1": float(hits.mean()),
        "top3": float((first == labels[:, None]).any(1).mean()),
        "class_accuracy": float(np.mean([hits[labels == one].mean() for one in np.unique(labels)])),
    }


class Step:
    """Gradients of two batches are an update."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0

    def __call__(self, batch):
        value = loss(self.model(batch["args"]), batch["labels"])
        (value / 2).backward()
        self.count += 1
        if self.count % 2 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return value
