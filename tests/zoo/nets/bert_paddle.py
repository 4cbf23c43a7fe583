import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

VOCAB, WIDTH, HEADS, LENGTH, WARM = 24, 12, 3, 9, 4


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def split_heads(self, y):
        return y.reshape([y.shape[0], y.shape[1], HEADS, -1]).transpose([0, 2, 1, 3])

    def forward(self, x, mask):
        q, k, v = (self.split_heads(one(x)) for one in (self.query, self.key, self.value))
        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS)
        scores = paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))
        y = paddle.matmul(self.dropout(F.softmax(scores, -1)), v)
        return self.out(y.transpose([0, 2, 1, 3]).reshape(x.shape))


class Layer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1 = nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        y = self.fc2(F.gelu(self.fc1(x), approximate=True))
        return self.norm2(x + self.dropout(y))


class Bert(nn.Layer):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH + 1, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.layers = nn.LayerList([Layer(), Layer()])
        self.transform = nn.Linear(WIDTH, WIDTH)
        self.bias = self.create_parameter([VOCAB], is_bias=True)
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(2 * WIDTH, 3)

    def forward(self, ids, kinds):
        mask = ids != 0
        positions = paddle.cumsum(mask.astype("int64"), 1) * mask.astype("int64")
        x = self.words(ids) + self.positions(positions) + self.kinds(kinds)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask)
        words = paddle.matmul(F.gelu(self.transform(x), True), self.words.weight, transpose_y=True) + self.bias
        first = paddle.tanh(self.pooler(x[:, 0]))
        kept = mask.unsqueeze(-1).astype(x.dtype)
        average = (x * kept).sum(1) / kept.sum(1)
        return words, self.classifier(paddle.concat([first, average], -1))


def build():
    return Bert()


def convert(values):
    return named_for_paddle(values, kept=("words.", "positions.", "kinds."))


def loss(outputs, labels):
    words, kind = outputs
    wanted = labels[0].reshape([-1])
    masked = F.cross_entropy(words.reshape([-1, VOCAB]), wanted, ignore_index=-100, reduction="sum")
    masked = masked / (wanted != -100).astype(masked.dtype).sum()
    return masked + F.cross_entropy(kind, labels[1])


def optimizer(parameters, rate=0.01):
    parameters = list(parameters)
    decayed = {one.name for one in parameters if one.ndim > 1}
    return paddle.optimizer.AdamW(
        rate,
        parameters=parameters,
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-6,
        weight_decay=0.1,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5),
    )


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(0.01, lambda step: min(1.0, (step + 1) / WARM))


def transform(tokens):
    ids = [1, *tokens[: LENGTH - 2], 2]
    mask = [1] * len(ids)
    while len(ids) < LENGTH:
        ids.append(0)
        mask.append(0)
    return np.array(ids, "int64"), np.array(mask, "int64")
