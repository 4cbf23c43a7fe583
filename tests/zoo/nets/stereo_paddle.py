import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

SHIFTS = 4


class Features(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 8, 3, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2D(8)
        self.conv2 = nn.Conv2D(8, 6, 3, padding=1)

    def forward(self, x):
        return self.conv2(F.relu(self.norm1(self.conv1(x))))


class Volume(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv3D(12, 8, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm3D(8)
        self.conv2 = nn.Conv3D(8, 8, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm3D(8)
        self.out = nn.Conv3D(8, 1, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(x + self.bn2(self.conv2(x)))
        return self.out(x).squeeze(1)


class Refine(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(4, 8, 3, padding=2, dilation=2)
        self.conv2 = nn.Conv2D(8, 1, 3, padding=1)

    def forward(self, image, disparity):
        y = F.leaky_relu(self.conv1(paddle.concat([image, disparity], 1)), 0.2)
        return F.relu(disparity + self.conv2(y))


class Stereo(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.volume = Volume()
        self.refine = Refine()

    def shift(self, left, right):
        rows, width = [], right.shape[-1]
        for number in range(SHIFTS):
            moved = F.pad(right, [number, 0, 0, 0])[..., :width]
            both = paddle.concat([left, moved], 1)
            kept = (paddle.arange(width) >= number).astype(both.dtype)
            rows.append(both * kept)
        return paddle.stack(rows, 2)

    def forward(self, left, right):
        cost = self.volume(self.shift(self.features(left), self.features(right)))
        weights = F.softmax(-cost, 1)
        place = paddle.arange(SHIFTS, dtype=weights.dtype).reshape([1, -1, 1, 1])
        coarse = (weights * place).sum(1, keepdim=True)
        coarse = 2.0 * F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)
        return coarse, self.refine(left, coarse)


def build():
    return Stereo()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    kept = paddle.logical_and(labels > 0, labels < 2 * SHIFTS)
    values = [F.smooth_l1_loss(one[kept], labels[kept]) for one in outputs]
    return 0.7 * values[0] + values[1]


def optimizer(parameters, rate=1e-3):
    return paddle.optimizer.Adam(rate, beta1=0.9, beta2=0.999, parameters=parameters)


def scheduler():
    return paddle.optimizer.lr.MultiStepDecay(1e-3, milestones=[1, 3], gamma=0.5)


def metric(outputs, labels):
    guess, labels = np.asarray(outputs[1], "float64"), np.asarray(labels, "float64")
    kept = (labels > 0) & (labels < 2 * SHIFTS)
    gap = np.abs(guess - labels)[kept]
    wrong = (gap > 1) & (gap > 0.4 * labels[kept])
    return {"epe": float(gap.mean()), "d1": float(wrong.mean())}
