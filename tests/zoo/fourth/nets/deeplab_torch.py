"""A segmentation net with atrous pooling and a decoder that takes low features."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES, IGNORED = 4, 255
WEIGHTS = (0.5, 1.0, 2.0, 1.5)


class ConvBN(nn.Module):
    def __init__(self, inputs, outputs, kernel=3, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=dilation * (kernel // 2), dilation=dilation, bias=False
        )
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Separable(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.depth = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
        self.depth_bn = nn.BatchNorm2d(inputs)
        self.point = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.point_bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = self.depth_bn(self.depth(x))
        return F.relu(self.point_bn(self.point(x)))


class Pooling(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.project = ConvBN(inputs, outputs, 1)

    def forward(self, x):
        y = self.project(x.mean((2, 3), keepdim=True))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.one = ConvBN(inputs, outputs, 1)
        self.near = ConvBN(inputs, outputs, 3, dilation=2)
        self.far = ConvBN(inputs, outputs, 3, dilation=3)
        self.image = Pooling(inputs, outputs)
        self.project = ConvBN(4 * outputs, outputs, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        y = torch.cat([self.one(x), self.near(x), self.far(x), self.image(x)], 1)
        return self.dropout(self.project(y))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce = ConvBN(8, 12, 1)
        self.fuse = Separable(24, 12)
        self.classify = nn.Conv2d(12, CLASSES, 1)

    def forward(self, low, x):
        x = F.interpolate(x, size=low.shape[2:], mode="bilinear", align_corners=False)
        return self.classify(self.fuse(torch.cat([x, self.reduce(low)], 1)))


class DeepLab(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBN(3, 8, stride=2)
        self.body = nn.Sequential(ConvBN(8, 12, stride=2), ConvBN(12, 16, dilation=2))
        self.aspp = ASPP(16, 12)
        self.decoder = Decoder()

    def forward(self, x):
        low = self.stem(x)
        y = self.decoder(low, self.aspp(self.body(low)))
        return F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


def build():
    return DeepLab()


def batch(rng):
    labels = rng.integers(0, CLASSES, (2, 16, 16))
    labels[rng.random(labels.shape) < 0.2] = IGNORED
    return {"args": (rng.standard_normal((2, 3, 16, 16)).astype("float32"),), "labels": labels.astype("int64")}


def loss(outputs, labels):
    weight = torch.tensor(WEIGHTS, dtype=outputs.dtype)
    entropy = F.cross_entropy(outputs, labels, weight=weight, ignore_index=IGNORED)
    valid = (labels != IGNORED).unsqueeze(1).to(outputs.dtype)
    onehot = F.one_hot(torch.where(labels == IGNORED, 0, labels), CLASSES).permute(0, 3, 1, 2).to(outputs.dtype)
    p = outputs.softmax(1) * valid
    shared = (p * onehot).sum((2, 3))
    total = p.sum((2, 3)) + (onehot * valid).sum((2, 3))
    dice = 1 - (2 * shared + 1) / (total + 1)
    return entropy + 0.4 * dice.mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)


def scheduler(built):
    return torch.optim.lr_scheduler.PolynomialLR(built, total_iters=8, power=0.9)


def transform(sample):
    image, label = sample
    image = (image.astype("float32") / 255 - 0.5) / 0.5
    height, width = label.shape
    image = np.pad(image, ((0, 24 - height), (0, 24 - width), (0, 0)), constant_values=0.0)
    label = np.pad(label.astype("int64"), ((0, 24 - height), (0, 24 - width)), constant_values=IGNORED)
    return image.transpose(2, 0, 1).astype("float32"), label


def samples():
    rng = np.random.default_rng(4)
    return [
        (rng.integers(0, 256, (*size, 3), dtype="uint8"), rng.integers(0, CLASSES, size).astype("uint8"))
        for size in ((20, 24), (24, 17))
    ]


def metric(outputs, labels):
    guess, labels = np.asarray(outputs).argmax(1), np.asarray(labels)
    kept = labels != IGNORED
    guess, labels = guess[kept], labels[kept]
    scores = []
    for one in range(CLASSES):
        either = ((guess == one) | (labels == one)).sum()
        scores.append(((guess == one) & (labels == one)).sum() / max(either, 1))
    return {"mean_iou": float(np.mean(scores)), "accuracy": float((guess == labels).mean())}
