import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

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


class ConvBlock(nn.Layer):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False)
        self.bn = nn.BatchNorm2D(outputs, epsilon=1e-3, momentum=0.97)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Backbone(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = ConvBlock(3, 8, 1)
        self.pool = nn.MaxPool2D(3, stride=2, padding=1)
        self.stage1 = ConvBlock(8, 12, 2)
        self.stage2 = ConvBlock(12, 16, 2)

    def forward(self, x):
        fine = self.stage1(self.pool(self.stem(x)))
        return fine, self.stage2(fine)


class Neck(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lateral = nn.LayerList([nn.Conv2D(12, 16, 1), nn.Conv2D(16, 16, 1)])
        self.smooth = nn.LayerList([nn.Conv2D(16, 16, 3, padding=1), nn.Conv2D(16, 16, 3, padding=1)])

    def forward(self, fine, coarse):
        top = self.lateral[1](coarse)
        low = self.lateral[0](fine) + F.interpolate(top, scale_factor=2, mode="nearest")
        return self.smooth[0](low), self.smooth[1](top)


class Tower(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(16, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cls_tower = Tower()
        self.reg_tower = Tower()
        self.cls = nn.Conv2D(16, len(RATIOS) * CLASSES, 3, padding=1)
        self.reg = nn.Conv2D(16, len(RATIOS) * 4, 3, padding=1)
        self.scales = nn.ParameterList([self.create_parameter([1]) for _ in STRIDES])

    def forward(self, levels):
        scores, deltas = [], []
        for number, x in enumerate(levels):
            score = self.cls(self.cls_tower(x))
            delta = self.reg(self.reg_tower(x)) * self.scales[number]
            scores.append(score.transpose([0, 2, 3, 1]).reshape([x.shape[0], -1, CLASSES]))
            deltas.append(delta.transpose([0, 2, 3, 1]).reshape([x.shape[0], -1, 4]))
        return paddle.concat(scores, 1), paddle.concat(deltas, 1)


class Retina(nn.Layer):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.head = Head()
        self.register_buffer("anchors", paddle.to_tensor(make_anchors()), persistable=False)

    def decode(self, deltas):
        centre = deltas[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]
        size = paddle.exp(deltas[..., 2:] * 0.2) * self.anchors[:, 2:]
        return paddle.concat([centre - size / 2, centre + size / 2], -1)

    def forward(self, x):
        fine, coarse = self.backbone(x)
        scores, deltas = self.head(self.neck(fine, coarse))
        return scores, deltas, self.decode(deltas)


def build():
    return Retina()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    scores, deltas, _ = outputs
    classes, targets = labels
    valid = (classes >= 0).unsqueeze(-1).astype(scores.dtype)
    positive = paddle.logical_and(classes >= 0, classes < CLASSES)
    count = positive.astype(scores.dtype).sum().clip(min=1)
    onehot = F.one_hot(classes.clip(min=0), CLASSES + 1)[..., :CLASSES].astype(scores.dtype)
    p = F.sigmoid(scores)
    entropy = F.binary_cross_entropy_with_logits(scores, onehot, reduction="none")
    kept = p * onehot + (1 - p) * (1 - onehot)
    weight = (0.25 * onehot + 0.75 * (1 - onehot)) * (1 - kept) ** 2
    focal = (entropy * weight * valid).sum() / count
    gap = (deltas[positive] - targets[positive]).abs()
    boxes = paddle.where(gap < 1 / 9, 4.5 * gap * gap, gap - 1 / 18).sum() / count
    return focal + boxes


def optimizer(parameters, rate=0.02):
    return paddle.optimizer.Momentum(learning_rate=rate, momentum=0.9, parameters=parameters, weight_decay=1e-2)


def scheduler():
    decay = paddle.optimizer.lr.MultiStepDecay(0.02, milestones=[1, 3], gamma=0.1)
    return paddle.optimizer.lr.LinearWarmup(decay, warmup_steps=2, start_lr=0.02 / 3, end_lr=0.02)


def transform(image):
    image = image.astype("float32")[..., ::-1]
    image = (image - np.array([103.53, 116.28, 123.675], "float32")) / np.array([57.375, 57.12, 58.395], "float32")
    height, width = image.shape[:2]
    padded = np.zeros((-(-height // 8) * 8, -(-width // 8) * 8, 3), "float32")
    padded[:height, :width] = image
    return np.ascontiguousarray(padded.transpose(2, 0, 1))
