"""A translator: a bidirectional GRU, a decoder with a cell of its own, attention, and words copied from the source."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

VOCAB, WIDTH, HIDDEN = 15, 6, 7


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(WIDTH, HIDDEN, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x):
        outputs, last = self.gru(x)
        return outputs, torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(WIDTH + 2 * HIDDEN, 3 * HIDDEN)
        self.hidden = nn.Linear(HIDDEN, 3 * HIDDEN)

    def forward(self, x, h):
        reset, update, new = self.input(x).chunk(3, -1)
        reset_h, update_h, new_h = self.hidden(h).chunk(3, -1)
        r = torch.sigmoid(reset + reset_h)
        z = torch.sigmoid(update + update_h)
        n = torch.tanh(new + r * new_h)
        return (1 - z) * n + z * h


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, h, outputs, mask):
        scores = torch.bmm(self.key(outputs), h.unsqueeze(2)).squeeze(2)
        weights = scores.masked_fill(mask == 0, -1e9).softmax(-1)
        return torch.bmm(weights.unsqueeze(1), outputs).squeeze(1), weights


class Translate(nn.Module):
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
        mask = torch.arange(source.shape[1])[None] < lengths[:, None]
        steps = []
        for number in range(target.shape[1]):
            context, weights = self.attention(h, outputs, mask)
            h = self.cell(torch.cat([self.target(target[:, number]), context], -1), h)
            both = torch.cat([h, context], -1)
            own = torch.sigmoid(self.switch(both))
            words = own * self.out(both).softmax(-1)
            words = words.scatter_add(1, source, (1 - own) * weights)
            steps.append(torch.log(words.clamp(min=1e-9)))
        return torch.stack(steps, 1)


def build():
    return Translate()


def batch(rng):
    lengths = np.array([5, 3, 4, 2, 4])
    source = np.where(np.arange(5)[None] < lengths[:, None], rng.integers(2, 8, (5, 5)), 0)
    target = rng.integers(2, VOCAB, (5, 5))
    labels = np.where(np.arange(4)[None] < np.array([4, 2, 3, 4, 1])[:, None], target[:, 1:], 0)
    return {
        "args": (source.astype("int64"), lengths.astype("int64"), target[:, :-1].astype("int64")),
        "labels": labels.astype("int64"),
    }


def loss(outputs, labels):
    return F.nll_loss(outputs.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=0)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01, weight_decay=0.02)


def scheduler(built):
    return torch.optim.lr_scheduler.ExponentialLR(built, gamma=0.7)


def metric(outputs, labels):
    logs, labels = np.asarray(outputs, "float64"), np.asarray(labels)
    kept = labels > 0
    chosen = np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    return {
        "perplexity": float(np.exp(-chosen[kept].mean())),
        "accuracy": float((logs.argmax(-1) == labels)[kept].mean()),
    }
