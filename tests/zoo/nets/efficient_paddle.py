import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from PIL import Image

from zoo.planting import named_for_paddle

CLASSES, HEAT, SIZE = 6, 2.0, 20


class Squeeze(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.fc1 = nn.Conv2D(channels, 4, 1)
        self.fc2 = nn.Conv2D(4, channels, 1)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.fc2(F.silu(self.fc1(y)))
        return x * F.hardsigmoid(y)


class Block(nn.Layer):
    def __init__(self, channels, stride):
        super().__init__()
        self.stride = stride
        self.expand = nn.Conv2D(channels, 2 * channels, 1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(2 * channels, epsilon=1e-3, momentum=0.99)
        self.depthwise = nn.Conv2D(2 * channels, 2 * channels, 3, stride, groups=2 * channels, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(2 * channels, epsilon=1e-3, momentum=0.99)
        self.se = Squeeze(2 * channels)
        self.project = nn.Conv2D(2 * channels, channels, 1, bias_attr=False)
        self.bn3 = nn.BatchNorm2D(channels, epsilon=1e-3, momentum=0.99)
        self.shortcut = nn.AvgPool2D(3, stride, padding=1, exclusive=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.silu(self.bn1(self.expand(x)))
        y = F.pad(y, [0, 1, 0, 1] if self.stride > 1 else [1, 1, 1, 1])
        y = F.silu(self.bn2(self.depthwise(y)))
        y = self.bn3(self.project(self.se(y)))
        return y + self.shortcut(x)


class Efficient(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, bias_attr=False)
        self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.99)
        self.blocks = nn.LayerList([Block(8, 1), Block(8, 2)])
        self.last = nn.Conv2D(8, 16, 1)
        self.pool = nn.MaxPool2D(2, ceil_mode=True)
        self.average = nn.AdaptiveAvgPool2D(2)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = self.pool(F.silu(self.last(x)))
        x = paddle.concat(paddle.split(x, 8, axis=1)[::-1], 1)
        x = self.average(x).flatten(1)
        return self.fc(self.dropout(x))


def build():
    return Efficient()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    classes, teacher = labels
    weight = paddle.linspace(0.5, 1.5, CLASSES, dtype=outputs.dtype)
    hard = F.cross_entropy(outputs, classes, weight=weight)
    soft = F.kl_div(F.log_softmax(outputs / HEAT, -1), teacher, reduction="batchmean") * HEAT**2
    return 0.7 * hard + 0.3 * soft


def optimizer(parameters, rate=0.05):
    return paddle.optimizer.Momentum(rate, momentum=0.9, parameters=parameters, weight_decay=1e-2)


def scheduler():
    return paddle.optimizer.lr.CosineAnnealingDecay(0.05, T_max=8, eta_min=1e-4)


def transform(image):
    small = Image.fromarray(image).resize((24, 24), Image.BILINEAR)
    pixels = np.asarray(small, dtype="float32")[2:22, 2:22] / 255
    mean = np.array([0.485, 0.456, 0.406], dtype="float32")
    std = np.array([0.229, 0.224, 0.225], dtype="float32")
    return paddle.to_tensor(((pixels - mean) / std).transpose([2, 0, 1]).copy())


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
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0

    def __call__(self, batch):
        value = loss(self.model(batch["args"]), batch["labels"])
        (value / 2).backward()
        self.count += 1
        if self.count % 2 == 0:
            self.optimizer.step()
            self.optimizer.clear_grad()
        return value
