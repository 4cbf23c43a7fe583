import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

CLASSES, WIDTH = 5, 8


class Unit(nn.Layer):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv = nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False)
        self.bn = nn.BatchNorm2D(outputs, epsilon=2e-5)
        self.act = nn.PReLU(outputs)

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Shortcut(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.bn1 = nn.BatchNorm2D(channels, epsilon=2e-5)
        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1, bias_attr=False)
        self.act = nn.PReLU(channels)
        self.conv2 = nn.Conv2D(channels, channels, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(channels, epsilon=2e-5)

    def forward(self, x):
        y = self.act(self.conv1(self.bn1(x)))
        return x + self.bn2(self.conv2(y))


class GeM(nn.Layer):
    def __init__(self):
        super().__init__()
        self.p = self.create_parameter([1], default_initializer=nn.initializer.Constant(3.0))

    def forward(self, x):
        return x.clip(min=1e-6).pow(self.p).mean([2, 3]).pow(1.0 / self.p)


class Margin(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([WIDTH, CLASSES])

    def forward(self, x):
        return F.linear(F.normalize(x, axis=1), F.normalize(self.weight, axis=0))


class Metric(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = Unit(3, 6, 1)
        self.body = Unit(6, 8, 2)
        self.residual = Shortcut(8)
        self.pool = GeM()
        self.dropout = nn.Dropout(0.4)
        self.embed = nn.Linear(8, WIDTH)
        self.neck = nn.BatchNorm1D(WIDTH)
        self.margin = Margin()

    def forward(self, x):
        x = self.pool(self.residual(self.body(self.stem(x))))
        feature = self.embed(self.dropout(x))
        return self.margin(self.neck(feature)), feature


def build():
    return Metric()


def convert(values):
    return named_for_paddle(values, renames={"act.weight": "act._weight"})


def loss(outputs, labels):
    cosine, feature = outputs
    margin, scale = 0.5, 16.0
    sine = (1.0 - cosine.pow(2)).clip(min=1e-9).sqrt()
    phi = cosine * math.cos(margin) - sine * math.sin(margin)
    phi = paddle.where(cosine > math.cos(math.pi - margin), phi, cosine - math.sin(math.pi - margin) * margin)
    onehot = F.one_hot(labels, CLASSES).astype(cosine.dtype)
    arc = F.cross_entropy(scale * (onehot * phi + (1 - onehot) * cosine), labels)
    squares = feature.pow(2).sum(1, keepdim=True)
    distance = (squares + squares.t() - 2 * paddle.matmul(feature, feature.t())).clip(min=1e-12).sqrt()
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    far = paddle.where(same, distance, paddle.full_like(distance, -1e9)).max(1)
    near = paddle.where(same, paddle.full_like(distance, 1e9), distance).min(1)
    return arc + F.relu(far - near + 0.3).mean()


def optimizer(parameters, rate=0.01):
    return paddle.optimizer.Momentum(
        rate,
        momentum=0.9,
        parameters=[{"params": parameters[:-1]}, {"params": parameters[-1:], "learning_rate": 10.0}],
        weight_decay=5e-3,
        use_nesterov=True,
    )


def scheduler():
    return paddle.optimizer.lr.MultiStepDecay(0.01, milestones=[2, 4], gamma=0.1)


def transform(image):
    image = image[2:-2, 3:-3, ::-1].astype("float32")
    return np.ascontiguousarray(((image - 127.5) / 128.0).transpose(2, 0, 1))


def metric(outputs, labels):
    feature, labels = np.asarray(outputs[1], "float64"), np.asarray(labels)
    feature = feature / np.linalg.norm(feature, axis=1, keepdims=True)
    similar = feature @ feature.T
    np.fill_diagonal(similar, -np.inf)
    order = np.argsort(-similar, 1)[:, : len(labels) - 1]
    hits = labels[order] == labels[:, None]
    precision = [(np.cumsum(row) / (np.arange(len(row)) + 1))[row].mean() for row in hits]
    return {"recall1": float(hits[:, 0].mean()), "map": float(np.mean(precision))}
