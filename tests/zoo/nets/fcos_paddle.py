import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

CLASSES, STRIDES, BEST = 3, (2, 5), 6


class Pyramid(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lateral3 = nn.Conv2D(6, 8, 1)
        self.lateral4 = nn.Conv2D(8, 8, 1)
        self.smooth = nn.Conv2D(8, 8, 3, padding=1)

    def forward(self, c3, c4):
        p4 = self.lateral4(c4)
        up = F.interpolate(p4, size=c3.shape[-2:], mode="bilinear", align_corners=False)
        return self.smooth(self.lateral3(c3) + up), p4


class Tower(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(8, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Head(nn.Layer):
    def __init__(self):
        super().__init__()
        self.classes = Tower()
        self.boxes = Tower()
        self.score = nn.Conv2D(8, CLASSES, 3, padding=1)
        self.sides = nn.Conv2D(8, 4, 3, padding=1)
        self.centre = nn.Conv2D(8, 1, 3, padding=1)
        one = nn.initializer.Constant(1.0)
        self.scales = nn.ParameterList([self.create_parameter([1], default_initializer=one) for _ in STRIDES])

    def forward(self, levels):
        scores, sides, centres, places = [], [], [], []
        for number, x in enumerate(levels):
            stride = STRIDES[number]
            seen, tower = self.classes(x), self.boxes(x)
            scores.append(self.score(seen).transpose([0, 2, 3, 1]).flatten(1, 2))
            apart = paddle.exp(self.sides(tower) * self.scales[number]) * stride
            sides.append(apart.transpose([0, 2, 3, 1]).flatten(1, 2))
            centres.append(self.centre(tower).flatten(1))
            ys = paddle.arange(x.shape[2], dtype=x.dtype) * stride + stride // 2
            xs = paddle.arange(x.shape[3], dtype=x.dtype) * stride + stride // 2
            grid_y, grid_x = paddle.meshgrid(ys, xs)
            places.append(paddle.stack([grid_x.flatten(), grid_y.flatten()], -1))
        return paddle.concat(scores, 1), paddle.concat(sides, 1), paddle.concat(centres, 1), paddle.concat(places, 0)


class Fcos(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 6, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2D(6, 8, 3, stride=2, padding=1)
        self.pyramid = Pyramid()
        self.head = Head()

    def forward(self, x):
        c3 = F.leaky_relu(self.conv1(x), 0.1)
        c4 = F.leaky_relu(self.conv2(c3), 0.1)
        scores, sides, centres, places = self.head(self.pyramid(c3, c4))
        boxes = paddle.concat([places - sides[..., :2], places + sides[..., 2:]], -1)
        quality = paddle.sqrt(F.sigmoid(scores) * F.sigmoid(centres).unsqueeze(-1))
        best, index = quality.max(-1).topk(BEST, axis=1)
        kept = paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)
        return scores, boxes, centres, best, kept


def build():
    return Fcos()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    scores, boxes, centres = outputs[:3]
    classes, wanted, centre = labels
    positive = classes >= 0
    onehot = F.one_hot(classes.clip(min=0), CLASSES).astype(scores.dtype) * positive.unsqueeze(-1).astype(scores.dtype)
    p = F.sigmoid(scores)
    entropy = F.binary_cross_entropy_with_logits(scores, onehot, reduction="none")
    alpha = 0.25 * onehot + 0.75 * (1 - onehot)
    hidden = 1 - (p * onehot + (1 - p) * (1 - onehot))
    count = positive.astype(scores.dtype).sum().clip(min=1)
    focal = (alpha * hidden**2 * entropy).sum() / count
    box = F.smooth_l1_loss(boxes[positive], wanted[positive], delta=0.5) / 0.5
    middle = F.binary_cross_entropy_with_logits(centres[positive], centre[positive])
    return focal + box + middle


def optimizer(parameters, rate=0.01):
    parameters = list(parameters)
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 1e-2},
        {"params": [one for one in parameters if one.ndim <= 1], "learning_rate": 2.0, "weight_decay": 0.0},
    ]
    return paddle.optimizer.Momentum(rate, momentum=0.9, parameters=groups, use_nesterov=True)


def scheduler():
    return paddle.optimizer.lr.MultiStepDecay(0.01, milestones=[2, 4], gamma=0.1)
