"""A click model: attention over what a user saw, a deep and a wide part."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

ITEMS, CATES, WIDTH, CROSSES = 20, 20, 6, 17


class Dice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width, eps=1e-8, affine=False)
        self.alpha = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        p = torch.sigmoid(self.bn(x))
        return p * x + (1 - p) * self.alpha * x


class Interest(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8 * WIDTH, 10)
        self.fc2 = nn.Linear(10, 1)

    def forward(self, target, history, mask):
        target = target.unsqueeze(1).expand_as(history)
        x = torch.cat([target, history, target - history, target * history], -1)
        scores = self.fc2(torch.sigmoid(self.fc1(x))).squeeze(-1)
        scores = torch.where(mask > 0, scores, torch.full_like(scores, -4294967295.0))
        scores = F.softmax(scores / (2 * WIDTH) ** 0.5, -1)
        return (scores.unsqueeze(-1) * history).sum(1)


class Deep(nn.Module):
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


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.cross = nn.Embedding(CROSSES, 1)

    def forward(self, dense, item, cate):
        return self.linear(dense) + self.cross((item * 7 + cate) % CROSSES)


class Click(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS, WIDTH)
        self.cate = nn.Embedding(CATES, WIDTH)
        self.interest = Interest()
        self.dense_bn = nn.BatchNorm1d(3)
        self.deep = Deep()
        self.wide = Wide()

    def forward(self, history_items, history_cates, item, cate, dense, mask):
        history = torch.cat([self.item(history_items), self.cate(history_cates)], -1)
        target = torch.cat([self.item(item), self.cate(cate)], -1)
        dense = self.dense_bn(dense)
        seen = self.interest(target, history, mask)
        deep = self.deep(torch.cat([seen, target, dense], -1))
        return (deep + self.wide(dense, item, cate)).squeeze(-1)


def build():
    return Click()


def batch(rng):
    mask = (np.arange(5)[None] < rng.integers(2, 6, (12, 1))).astype("float32")
    labels = (rng.random(12) < 0.4).astype("float32")
    labels[:2] = 0, 1
    return {
        "args": (
            rng.integers(0, ITEMS, (12, 5)).astype("int64"),
            rng.integers(0, CATES, (12, 5)).astype("int64"),
            rng.integers(0, ITEMS, 12).astype("int64"),
            rng.integers(0, CATES, 12).astype("int64"),
            rng.standard_normal((12, 3)).astype("float32"),
            mask,
        ),
        "labels": labels,
    }


def loss(outputs, labels):
    weight = torch.tensor(3.0, dtype=outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, labels, pos_weight=weight)


def optimizer(parameters):
    return torch.optim.Adagrad(parameters, lr=0.05, initial_accumulator_value=0.1, eps=1e-6)


def scheduler(built):
    return torch.optim.lr_scheduler.ExponentialLR(built, gamma=0.8)


def transform(row):
    history = row["history"][-5:]
    items = np.zeros(5, "int64")
    items[: len(history)] = history
    mask = (np.arange(5) < len(history)).astype("float32")
    return items, mask, np.log1p(row["counts"]).astype("float32")


def samples():
    rng = np.random.default_rng(6)
    return [
        {"history": rng.integers(1, ITEMS, size), "counts": rng.integers(0, 90, 3).astype("float32")}
        for size in (3, 8, 7)
    ]


def metric(outputs, labels):
    scores, labels = np.asarray(outputs, "float64"), np.asarray(labels) > 0.5
    above = (scores[labels][:, None] > scores[~labels][None]).mean()
    ties = (scores[labels][:, None] == scores[~labels][None]).mean()
    p = 1 / (1 + np.exp(-scores))
    return {"auc": float(above + ties / 2), "accuracy": float(((p > 0.5) == labels).mean())}
