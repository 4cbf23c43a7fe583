"""The U-Net with gates, ported."""

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

from zoo.planting import named_for_paddle


class DoubleConv(nn.Layer):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.conv1 = nn.Conv2D(in_ch, out_ch, 3, padding=1)
        self.bn1 = nn.BatchNorm2D(out_ch)
        self.conv2 = nn.Conv2D(out_ch, out_ch, 3, padding=1)
        self.bn2 = nn.BatchNorm2D(out_ch)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)))


class Up(nn.Layer):
    def __init__(self, in_ch, out_ch):
        super().__init__()
        self.conv = nn.Conv2D(in_ch, out_ch, 3, padding=1, bias_attr=False)
        self.bn = nn.BatchNorm2D(out_ch, momentum=0.99)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return self.act(self.bn(self.conv(x)))


class AttentionGate(nn.Layer):
    def __init__(self, gate_ch, skip_ch, mid_ch):
        super().__init__()
        self.w_g = nn.Sequential(nn.Conv2D(gate_ch, mid_ch, 1), nn.BatchNorm2D(mid_ch))
        self.w_x = nn.Sequential(nn.Conv2D(skip_ch, mid_ch, 1), nn.BatchNorm2D(mid_ch))
        self.psi = nn.Conv2D(mid_ch, 1, 1)

    def forward(self, gate, skip):
        mixed = F.relu(self.w_g(gate) + self.w_x(skip))
        coefficient = F.sigmoid(self.psi(mixed))
        return skip * coefficient


class AttentionUNet(nn.Layer):
    def __init__(self, base=6, num_classes=2):
        super().__init__()
        self.pool = nn.MaxPool2D(2, 2)
        self.down1 = DoubleConv(3, base)
        self.down2 = DoubleConv(base, 2 * base)
        self.bottom = DoubleConv(2 * base, 4 * base)
        self.up3 = Up(4 * base, 2 * base)
        self.gate3 = AttentionGate(2 * base, 2 * base, base)
        self.dec3 = DoubleConv(4 * base, 2 * base)
        self.up2 = Up(2 * base, base)
        self.gate2 = AttentionGate(base, base, base // 2)
        self.dec2 = DoubleConv(2 * base, base)
        self.out = nn.Conv2D(base, num_classes, 1)

    def forward(self, x):
        s1 = self.down1(x)
        s2 = self.down2(self.pool(s1))
        x = self.up3(self.bottom(self.pool(s2)))
        x = self.dec3(paddle.concat([self.gate3(x, s2), x], axis=1))
        x = self.up2(x)
        x = self.dec2(paddle.concat([self.gate2(x, s1), x], axis=1))
        return self.out(x)


def build():
    return AttentionUNet()


RENAMED = {
    "enc1.": "down1.",
    "enc2.": "down2.",
    "enc3.": "bottom.",
    "att": "gate",
    "head.": "out.",
    ".up.1.": ".conv.",
    ".up.2.": ".bn.",
    ".conv.0.": ".conv1.",
    ".conv.1.": ".bn1.",
    ".conv.3.": ".conv2.",
    ".conv.4.": ".bn2.",
}


def convert(state):
    return named_for_paddle(state, renames=RENAMED)


def loss(output, labels):
    ce = F.cross_entropy(output, labels, weight=paddle.to_tensor([0.4, 1.6], dtype=output.dtype), axis=1)
    prob = F.softmax(output, axis=1)[:, 1].flatten(1)
    target = labels.flatten(1).astype(prob.dtype)
    dice = (2 * (prob * target).sum(1) + 1) / (prob.sum(1) + target.sum(1) + 1)
    return ce + 1 - dice.mean()


def scheduler():
    return paddle.optimizer.lr.MultiStepDecay(learning_rate=0.05, milestones=[2, 4], gamma=0.5)


def optimizer(parameters, learning_rate=0.05):
    return paddle.optimizer.Momentum(
        learning_rate=learning_rate, momentum=0.9, parameters=parameters, weight_decay=1e-3, use_nesterov=True
    )


def transform(image):
    height, width = image.shape[:2]
    x = image.astype("float32") / 255.0
    x = np.pad(x, ((0, -height % 8), (0, -width % 8), (0, 0)), constant_values=0.5)
    mean = np.array([0.485, 0.456, 0.406], dtype="float32")
    std = np.array([0.229, 0.224, 0.225], dtype="float32")
    return ((x - mean) / std).transpose(2, 0, 1)


def metric(outputs, labels):
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    pred = np.argmax(outputs, axis=1)
    scores = []
    for c in range(outputs.shape[1]):
        inter = np.logical_and(pred == c, labels == c).sum()
        union = np.logical_or(pred == c, labels == c).sum()
        scores.append(inter / union)
    return float(np.mean(scores))
