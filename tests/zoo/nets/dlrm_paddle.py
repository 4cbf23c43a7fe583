import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

SIZES, WIDTH, TAGS, EXPERTS = (7, 5, 9), 6, 12, 3
EDGES = (18.0, 30.0, 45.0, 60.0)


class Cross(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, first, x):
        return first * self.fc(x) + x


class Experts(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.experts = nn.LayerList([nn.Linear(width, 8) for _ in range(EXPERTS)])
        self.gates = nn.LayerList([nn.Linear(width, EXPERTS) for _ in range(2)])

    def forward(self, x):
        seen = paddle.stack([F.relu(expert(x)) for expert in self.experts], 1)
        return [paddle.einsum("be,bed->bd", F.softmax(gate(x), -1), seen) for gate in self.gates]


class Shop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("sizes", paddle.to_tensor(SIZES, dtype="int64"))
        self.register_buffer("offsets", paddle.to_tensor((0, *SIZES[:-1]), dtype="int64").cumsum(0))
        self.register_buffer("edges", paddle.to_tensor(EDGES))
        self.fields = nn.Embedding(sum(SIZES), WIDTH)
        self.tags = nn.Embedding(TAGS, WIDTH)
        self.ages = nn.Embedding(len(EDGES) + 1, WIDTH)
        self.norm = nn.BatchNorm1D(4)
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, WIDTH)
        width = WIDTH + 15
        self.cross = Cross(width)
        self.experts = Experts(width)
        self.click = nn.Linear(8, 1)
        self.buy = nn.Linear(8, 1)

    def forward(self, dense, fields, bag, age):
        x = self.norm(paddle.log1p(dense.clip(min=0)))
        bottom = F.relu(self.fc2(F.relu(self.fc1(x))))
        known = self.fields(fields % self.sizes + self.offsets)
        kept = (bag > 0).astype(x.dtype).unsqueeze(-1)
        tags = (self.tags(bag) * kept).sum(1) / kept.sum(1).clip(min=1)
        ages = self.ages(paddle.bucketize(age, self.edges))
        features = paddle.concat([bottom.unsqueeze(1), known, tags.unsqueeze(1), ages.unsqueeze(1)], 1)
        products = paddle.matmul(features, features, transpose_y=True)
        rows, columns = paddle.tril_indices(6, 6, offset=-1)
        first = paddle.concat([bottom, products[:, rows, columns]], 1)
        click, buy = self.experts(self.cross(first, first))
        clicked = F.sigmoid(self.click(click)).squeeze(-1)
        return clicked, clicked * F.sigmoid(self.buy(buy)).squeeze(-1)


def build():
    return Shop()


def convert(values):
    return named_for_paddle(values, kept=("fields.", "tags.", "ages."))


def loss(outputs, labels):
    click = F.binary_cross_entropy(outputs[0], labels[0])
    buy = F.binary_cross_entropy(outputs[1], labels[1])
    return click + 0.5 * buy


def optimizer(parameters, rate=0.05):
    return paddle.optimizer.Adagrad(rate, epsilon=1e-10, parameters=parameters)


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
