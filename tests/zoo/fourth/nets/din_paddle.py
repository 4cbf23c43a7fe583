import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

ITEMS, CATES, WIDTH, CROSSES = 20, 20, 6, 17


class Dice(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1D(width, epsilon=1e-8, weight_attr=False, bias_attr=False)
        self.alpha = self.create_parameter([width], default_initializer=nn.initializer.Constant(0.0))

    def forward(self, x):
        p = F.sigmoid(self.bn(x))
        return p * x + (1 - p) * self.alpha * x


class Interest(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8 * WIDTH, 10)
        self.fc2 = nn.Linear(10, 1)

    def forward(self, target, history, mask):
        target = target.unsqueeze(1).expand_as(history)
        x = paddle.concat([target, history, target - history, target * history], -1)
        scores = self.fc2(F.sigmoid(self.fc1(x))).squeeze(-1)
        scores = paddle.where(mask > 0, scores, paddle.full_like(scores, -4294967295.0))
        scores = F.softmax(scores / (2 * WIDTH) ** 0.5, -1)
        return (scores.unsqueeze(-1) * history).sum(1)


class Deep(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4 * WIDTH + 3, 16)
        self.dice = Dice(16)
        self.dropout = nn.Dropout(0.3)
        self.fc2 = nn.Linear(16, 8)
        self.prelu = nn.PReLU(8, init=0.1)
        self.fc3 = nn.Linear(8, 1)

    def forward(self, x):
        x = self.dropout(self.dice(self.fc1(x)))
        return self.fc3(self.prelu(self.fc2(x)))


class Wide(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.cross = nn.Embedding(CROSSES, 1)

    def forward(self, dense, item, cate):
        return self.linear(dense) + self.cross((item * 7 + cate) % CROSSES)


class Click(nn.Layer):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS, WIDTH)
        self.cate = nn.Embedding(CATES, WIDTH)
        self.interest = Interest()
        self.dense_bn = nn.BatchNorm1D(3)
        self.deep = Deep()
        self.wide = Wide()

    def forward(self, history_items, history_cates, item, cate, dense, mask):
        history = paddle.concat([self.item(history_items), self.cate(history_cates)], -1)
        target = paddle.concat([self.item(item), self.cate(cate)], -1)
        dense = self.dense_bn(dense)
        seen = self.interest(target, history, mask)
        deep = self.deep(paddle.concat([seen, target, dense], -1))
        return (deep + self.wide(dense, item, cate)).squeeze(-1)


def build():
    return Click()


def convert(values):
    return named_for_paddle(
        values, kept=("item.", "cate.", "cross.", "prelu."), renames={"prelu.weight": "prelu._weight"}
    )


def loss(outputs, labels):
    weight = paddle.to_tensor(3.0, dtype=outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, labels, pos_weight=weight)


def optimizer(parameters, rate=0.05):
    return paddle.optimizer.Adagrad(rate, epsilon=1e-6, parameters=parameters, initial_accumulator_value=0.1)


def scheduler():
    return paddle.optimizer.lr.ExponentialDecay(0.05, gamma=0.8)


def transform(row):
    history = row["history"][-5:]
    items = np.zeros(5, "int64")
    items[: len(history)] = history
    mask = (np.arange(5) < len(history)).astype("float32")
    return items, mask, np.log1p(row["counts"]).astype("float32")


def metric(outputs, labels):
    scores, labels = np.asarray(outputs, "float64"), np.asarray(labels) > 0.5
    above = (scores[labels][:, None] > scores[~labels][None]).mean()
    ties = (scores[labels][:, None] == scores[~labels][None]).mean()
    p = 1 / (1 + np.exp(-scores))
    return {"auc": float(above + ties / 2), "accuracy": float(((p > 0.5) == labels).mean())}
