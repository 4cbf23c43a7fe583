"""Two tasks of a shop: hashed fields, tags in a bag, products of pairs, a cross layer, experts behind gates."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

SIZES, WIDTH, TAGS, EXPERTS = (7, 5, 9), 6, 12, 3
EDGES = (18.0, 30.0, 45.0, 60.0)


class Cross(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, first, x):
        return first * self.fc(x) + x


class Experts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(width, 8) for _ in range(EXPERTS)])
        self.gates = nn.ModuleList([nn.Linear(width, EXPERTS) for _ in range(2)])

    def forward(self, x):
        seen = torch.stack([F.relu(expert(x)) for expert in self.experts], 1)
        return [torch.einsum("be,bed->bd", gate(x).softmax(-1), seen) for gate in self.gates]


class Shop(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sizes", torch.tensor(SIZES))
        self.register_buffer("offsets", torch.tensor((0, *SIZES[:-1])).cumsum(0))
        self.register_buffer("edges", torch.tensor(EDGES))
        self.fields = nn.Embedding(sum(SIZES), WIDTH)
        self.tags = nn.Embedding(TAGS, WIDTH)
        self.ages = nn.Embedding(len(EDGES) + 1, WIDTH)
        self.norm = nn.BatchNorm1d(4)
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, WIDTH)
        width = WIDTH + 15
        self.cross = Cross(width)
        self.experts = Experts(width)
        self.click = nn.Linear(8, 1)
        self.buy = nn.Linear(8, 1)

    def forward(self, dense, fields, bag, age):
        x = self.norm(torch.log1p(dense.clamp(min=0)))
        bottom = F.relu(self.fc2(F.relu(self.fc1(x))))
        known = self.fields(fields % self.sizes + self.offsets)
        kept = (bag > 0).to(x.dtype).unsqueeze(-1)
        tags = (self.tags(bag) * kept).sum(1) / kept.sum(1).clamp(min=1)
        ages = self.ages(torch.bucketize(age, self.edges))
        features = torch.cat([bottom.unsqueeze(1), known, tags.unsqueeze(1), ages.unsqueeze(1)], 1)
        products = features @ features.transpose(1, 2)
        rows, columns = torch.tril_indices(6, 6, offset=-1)
        first = torch.cat([bottom, products[:, rows, columns]], 1)
        click, buy = self.experts(self.cross(first, first))
        clicked = torch.sigmoid(self.click(click)).squeeze(-1)
        return clicked, clicked * torch.sigmoid(self.buy(buy)).squeeze(-1)


def build():
    return Shop()


def batch(rng):
    bag = rng.integers(1, TAGS, (10, 5)) * (np.arange(5)[None] < rng.integers(0, 6, (10, 1)))
    labels = (rng.random((2, 10)) < 0.5).astype("float32")
    labels[:, :2] = [[0, 1], [0, 1]]
    return {
        "args": (
            (rng.standard_normal((10, 4)) * 4).astype("float32"),
            rng.integers(-50, 50, (10, 3)).astype("int64"),
            bag.astype("int64"),
            rng.choice([12.0, 18.0, 25.0, 30.0, 51.0, 60.0, 70.0], 10).astype("float32"),
        ),
        "labels": (labels[0], labels[0] * labels[1]),
    }


def loss(outputs, labels):
    click = F.binary_cross_entropy(outputs[0], labels[0])
    buy = F.binary_cross_entropy(outputs[1], labels[1])
    return click + 0.5 * buy


def optimizer(parameters):
    return torch.optim.Adagrad(parameters, lr=0.05, eps=1e-10)


def transform(row):
    numbers = np.array([np.nan if one is None else one for one in row["numbers"]], "float32")
    numbers = np.where(np.isnan(numbers), 0, numbers)
    ids = np.array([hash_of(one) for one in row["words"]], "int64")
    return (np.log1p(numbers)).astype("float32"), ids


def hash_of(word, buckets=97):
    value = 5381
    for letter in word:
        value = (value * 33 + ord(letter)) % 2**32
    return value % buckets


def samples():
    return [
        {"numbers": [3, None, 8], "words": ["shoe", "red"]},
        {"numbers": [None, 14, 0], "words": ["coat", "blue"]},
        {"numbers": [7, 2, 90], "words": ["hat", "green"]},
    ]
