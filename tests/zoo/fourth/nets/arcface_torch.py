"""A metric learner: generalized mean pooling, a neck, cosines of classes with an angular margin."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES, WIDTH = 5, 8


class Unit(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=2e-5)
        self.act = nn.PReLU(outputs)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Shortcut(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels, eps=2e-5)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.act = nn.PReLU(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=2e-5)

    def forward(self, x):
        y = self.act(self.conv1(self.bn1(x)))
        return x + self.bn2(self.conv2(y))


class GeM(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(3 * torch.ones(1))

    def forward(self, x):
        return x.clamp(min=1e-6).pow(self.p).mean((2, 3)).pow(1.0 / self.p)


class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, WIDTH))

    def forward(self, x):
        return F.linear(F.normalize(x), F.normalize(self.weight))


class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Unit(3, 6, 1)
        self.body = Unit(6, 8, 2)
        self.residual = Shortcut(8)
        self.pool = GeM()
        self.dropout = nn.Dropout(0.4)
        self.embed = nn.Linear(8, WIDTH)
        self.neck = nn.BatchNorm1d(WIDTH)
        self.margin = Margin()

    def forward(self, x):
        x = self.pool(self.residual(self.body(self.stem(x))))
        feature = self.embed(self.dropout(x))
        return self.margin(self.neck(feature)), feature


def build():
    return Metric()


def batch(rng):
    return {
        "args": (rng.standard_normal((6, 3, 8, 8)).astype("float32"),),
        "labels": np.array([2, 2, 4, 4, 1, 1], "int64"),
    }


def loss(outputs, labels):
    cosine, feature = outputs
    margin, scale = 0.5, 16.0
    sine = (1.0 - cosine.pow(2)).clamp(min=1e-9).sqrt()
    phi = cosine * math.cos(margin) - sine * math.sin(margin)
    phi = torch.where(cosine > math.cos(math.pi - margin), phi, cosine - math.sin(math.pi - margin) * margin)
    onehot = F.one_hot(labels, CLASSES).to(cosine.dtype)
    arc = F.cross_entropy(scale * (onehot * phi + (1 - onehot) * cosine), labels)
    squares = feature.pow(2).sum(1, keepdim=True)
    distance = (squares + squares.t() - 2 * feature @ feature.t()).clamp(min=1e-12).sqrt()
    same = labels[:, None] == labels[None]
    far = torch.where(same, distance, -1e9).amax(1)
    near = torch.where(same, 1e9, distance).amin(1)
    return arc + F.relu(far - near + 0.3).mean()


def optimizer(parameters):
    return torch.optim.SGD(
        [{"params": parameters[:-1]}, {"params": parameters[-1:], "lr": 0.1}],
        lr=0.01,
        momentum=0.9,
        weight_decay=5e-3,
        nesterov=True,
    )


def scheduler(built):
    return torch.optim.lr_scheduler.MultiStepLR(built, milestones=[2, 4], gamma=0.1)


def transform(image):
    image = image[2:-2, 3:-3, ::-1].astype("float32")
    return np.ascontiguousarray(((image - 127.5) / 128.0).transpose(2, 0, 1))


def samples():
    rng = np.random.default_rng(15)
    return [rng.integers(0, 256, (14, 18, 3), dtype="uint8") for _ in range(2)]


def metric(outputs, labels):
    feature, labels = np.asarray(outputs[1], "float64"), np.asarray(labels)
    feature = feature / np.linalg.norm(feature, axis=1, keepdims=True)
    similar = feature @ feature.T
    np.fill_diagonal(similar, -np.inf)
    order = np.argsort(-similar, 1)[:, : len(labels) - 1]
    hits = labels[order] == labels[:, None]
    precision = [(np.cumsum(row) / (np.arange(len(row)) + 1))[row].mean() for row in hits]
    return {"recall1": float(hits[:, 0].mean()), "map": float(np.mean(precision))}
