import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

CLASSES, IGNORED = 4, 255
WEIGHTS = (0.5, 1.0, 2.0, 1.5)


class ConvBN(nn.Layer):
    def __init__(self, inputs, outputs, kernel=3, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv2D(
            inputs, outputs, kernel, stride, padding=dilation * (kernel // 2), dilation=dilation, bias_attr=False
        )
        self.bn = nn.BatchNorm2D(outputs)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Separable(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.depth = nn.Conv2D(inputs, inputs, 3, padding=1, groups=inputs, bias_attr=False)
        self.depth_bn = nn.BatchNorm2D(inputs)
        self.point = nn.Conv2D(inputs, outputs, 1, bias_attr=False)
        self.point_bn = nn.BatchNorm2D(outputs)

    def forward(self, x):
        x = self.depth_bn(self.depth(x))
        return F.relu(self.point_bn(self.point(x)))


class Pooling(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.project = ConvBN(inputs, outputs, 1)

    def forward(self, x):
        y = self.project(x.mean([2, 3], keepdim=True))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


class ASPP(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.one = ConvBN(inputs, outputs, 1)
        self.near = ConvBN(inputs, outputs, 3, dilation=2)
        self.far = ConvBN(inputs, outputs, 3, dilation=3)
        self.image = Pooling(inputs, outputs)
        self.project = ConvBN(4 * outputs, outputs, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        y = paddle.concat([self.one(x), self.near(x), self.far(x), self.image(x)], 1)
        return self.dropout(self.project(y))


class Decoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.reduce = ConvBN(8, 12, 1)
        self.fuse = Separable(24, 12)
        self.classify = nn.Conv2D(12, CLASSES, 1)

    def forward(self, low, x):
        x = F.interpolate(x, size=low.shape[2:], mode="bilinear", align_corners=False)
        return self.classify(self.fuse(paddle.concat([x, self.reduce(low)], 1)))


class DeepLab(nn.Layer):
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


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    weight = paddle.to_tensor(WEIGHTS, dtype=outputs.dtype)
    entropy = F.cross_entropy(outputs, labels.unsqueeze(1), weight=weight, ignore_index=IGNORED, axis=1)
    valid = (labels != IGNORED).unsqueeze(1).astype(outputs.dtype)
    filled = paddle.where(labels == IGNORED, paddle.zeros_like(labels), labels)
    onehot = F.one_hot(filled, CLASSES).transpose([0, 3, 1, 2]).astype(outputs.dtype)
    p = F.softmax(outputs, axis=1) * valid
    shared = (p * onehot).sum([2, 3])
    total = p.sum([2, 3]) + (onehot * valid).sum([2, 3])
    dice = 1 - (2 * shared + 1) / (total + 1)
    return entropy + 0.4 * dice.mean()


def optimizer(parameters, rate=0.1):
    return paddle.optimizer.Momentum(rate, momentum=0.9, parameters=parameters, weight_decay=5e-4)


def scheduler():
    return paddle.optimizer.lr.PolynomialDecay(0.1, decay_steps=8, end_lr=0.0, power=0.9)


def transform(sample):
    image, label = sample
    image = (image.astype("float32") / 255 - 0.5) / 0.5
    height, width = label.shape
    image = np.pad(image, ((0, 24 - height), (0, 24 - width), (0, 0)), constant_values=0.0)
    label = np.pad(label.astype("int64"), ((0, 24 - height), (0, 24 - width)), constant_values=IGNORED)
    return image.transpose(2, 0, 1).astype("float32"), label


def metric(outputs, labels):
    guess, labels = np.asarray(outputs).argmax(1), np.asarray(labels)
    kept = labels != IGNORED
    guess, labels = guess[kept], labels[kept]
    scores = []
    for one in range(CLASSES):
        either = ((guess == one) | (labels == one)).sum()
        scores.append(((guess == one) & (labels == one)).sum() / max(either, 1))
    return {"mean_iou": float(np.mean(scores)), "accuracy": float((guess == labels).mean())}
