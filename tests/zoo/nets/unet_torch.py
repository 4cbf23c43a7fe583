"""A U-Net whose skips are gated by attention, for masks of two classes."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class ConvBlock(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, padding=1),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.conv(x)


class UpConv(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Conv2d(inner, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer, momentum=0.01),
            nn.LeakyReLU(0.2),
        )

    def forward(self, x):
        return self.up(x)


class Gate(nn.Module):
    def __init__(self, gate, skip, inner):
        super().__init__()
        self.w_g = nn.Sequential(nn.Conv2d(gate, inner, 1), nn.BatchNorm2d(inner))
        self.w_x = nn.Sequential(nn.Conv2d(skip, inner, 1), nn.BatchNorm2d(inner))
        self.psi = nn.Conv2d(inner, 1, 1)

    def forward(self, g, x):
        alpha = torch.sigmoid(self.psi(F.relu(self.w_g(g) + self.w_x(x))))
        return x * alpha


class AttentionUNet(nn.Module):
    def __init__(self, width=6, classes=2):
        super().__init__()
        self.pool = nn.MaxPool2d(2, stride=2)
        self.enc1 = ConvBlock(3, width)
        self.enc2 = ConvBlock(width, 2 * width)
        self.enc3 = ConvBlock(2 * width, 4 * width)
        self.up3 = UpConv(4 * width, 2 * width)
        self.att3 = Gate(2 * width, 2 * width, width)
        self.dec3 = ConvBlock(4 * width, 2 * width)
        self.up2 = UpConv(2 * width, width)
        self.att2 = Gate(width, width, width // 2)
        self.dec2 = ConvBlock(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x1 = self.enc1(x)
        x2 = self.enc2(self.pool(x1))
        x3 = self.enc3(self.pool(x2))
        d3 = self.up3(x3)
        d3 = self.dec3(torch.cat([self.att3(d3, x2), d3], dim=1))
        d2 = self.up2(d3)
        d2 = self.dec2(torch.cat([self.att2(d2, x1), d2], dim=1))
        return self.head(d2)


def build():
    return AttentionUNet()


def batch(rng):
    return {
        "args": (rng.normal(size=(2, 3, 16, 16)).astype("float32"),),
        "labels": rng.integers(0, 2, size=(2, 16, 16)),
    }


def loss(output, labels):
    ce = F.cross_entropy(output, labels, weight=torch.tensor([0.4, 1.6], dtype=output.dtype))
    prob = output.softmax(dim=1)[:, 1].flatten(1)
    target = labels.flatten(1).to(prob.dtype)
    dice = (2 * (prob * target).sum(1) + 1) / (prob.sum(1) + target.sum(1) + 1)
    return ce + 1 - dice.mean()


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)


def scheduler(opt):
    return torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[2, 4], gamma=0.5)


def samples():
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, size=(12 + i, 15, 3), dtype=np.uint8) for i in range(3)]


def transform(image):
    """Pad to a multiple of 8 at the right and bottom, scale, normalize, channels first."""
    h, w = image.shape[:2]
    x = torch.from_numpy(image).permute(2, 0, 1).float() / 255
    x = F.pad(x, (0, -w % 8, 0, -h % 8), value=0.5)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return (x - mean) / std


def metric(outputs, labels):
    """Mean over the classes of intersection over union."""
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    guess = outputs.argmax(1)
    ious = []
    for one in range(outputs.shape[1]):
        union = ((guess == one) | (labels == one)).sum()
        ious.append(((guess == one) & (labels == one)).sum() / union)
    return float(np.mean(ious))
