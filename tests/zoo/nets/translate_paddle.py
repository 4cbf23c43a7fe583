import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

VOCAB, WIDTH, HIDDEN = 15, 6, 7


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(WIDTH, HIDDEN, direction="bidirect")
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x):
        outputs, last = self.gru(x)
        return outputs, paddle.tanh(self.bridge(paddle.concat([last[0], last[1]], -1)))


class Cell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(WIDTH + 2 * HIDDEN, 3 * HIDDEN)
        self.hidden = nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, x, h):
        reset, update, new = self.input(x).chunk(3, -1)
        reset_h, update_h, new_h = self.hidden(h).chunk(3, -1)
        r = F.sigmoid(reset + reset_h)
        z = F.sigmoid(update + update_h)
        n = paddle.tanh(new + r * new_h)
        return (1 - z) * n + z * h


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(2 * HIDDEN, HIDDEN, bias_attr=False)

    def forward(self, h, outputs, mask):
        scores = paddle.bmm(self.key(outputs), h.unsqueeze(2)).squeeze(2)
        weights = F.softmax(paddle.where(mask, scores, paddle.full_like(scores, -1e9)), -1)
        return paddle.bmm(weights.unsqueeze(1), outputs).squeeze(1), weights


class Translate(nn.Layer):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(VOCAB, WIDTH)
        self.target = nn.Embedding(VOCAB, WIDTH)
        self.encoder = Encoder()
        self.attention = Attention()
        self.cell = Cell()
        self.switch = nn.Linear(3 * HIDDEN, 1)
        self.out = nn.Linear(3 * HIDDEN, VOCAB)

    def forward(self, source, lengths, target):
        outputs, h = self.encoder(self.source(source))
        mask = paddle.arange(source.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        steps = []
        for number in range(target.shape[1]):
            context, weights = self.attention(h, outputs, mask)
            h = self.cell(paddle.concat([self.target(target[:, number]), context], -1), h)
            both = paddle.concat([h, context], -1)
            own = F.sigmoid(self.switch(both))
            words = own * F.softmax(self.out(both), -1)
            words = paddle.put_along_axis(words, source, (1 - own) * weights, 1, reduce="add")
            steps.append(paddle.log(words.clip(min=1e-9)))
        return paddle.stack(steps, 1)


def build():
    return Translate()


def convert(values):
    return named_for_paddle(values, kept=("source.", "target."))


def loss(outputs, labels):
    kept = (labels != 0).astype(outputs.dtype)
    chosen = paddle.take_along_axis(outputs, labels.unsqueeze(-1), -1).squeeze(-1)
    return -(chosen * kept).sum() / kept.sum()


def optimizer(parameters, rate=0.01):
    return paddle.optimizer.Adam(rate, parameters=parameters, weight_decay=0.02)


def scheduler():
    return paddle.optimizer.lr.ExponentialDecay(0.01, gamma=0.7)


def metric(outputs, labels):
    logs, labels = np.asarray(outputs, "float64"), np.asarray(labels)
    kept = labels > 0
    chosen = np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    return {
        "perplexity": float(np.exp(-chosen[kept].mean())),
        "accuracy": float((logs.argmax(-1) == labels)[kept].mean()),
    }
