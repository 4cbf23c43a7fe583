"""A BERT with RoBERTa's positions: a masked language model whose words are tied, and a classifier of the sentence."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

VOCAB, WIDTH, HEADS, LENGTH, WARM = 24, 12, 3, 9, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask):
        size, count, _ = x.shape
        q, k, v = (one(x).view(size, count, HEADS, -1).transpose(1, 2) for one in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        y = self.dropout(scores.softmax(-1)) @ v
        return self.out(y.transpose(1, 2).reshape(size, count, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        y = self.fc2(F.gelu(self.fc1(x), approximate="tanh"))
        return self.norm2(x + self.dropout(y))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH + 1, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.transform = nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(2 * WIDTH, 3)

    def forward(self, ids, kinds):
        mask = ids != 0
        positions = mask.cumsum(1) * mask
        x = self.words(ids) + self.positions(positions) + self.kinds(kinds)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask)
        words = F.linear(F.gelu(self.transform(x), approximate="tanh"), self.words.weight, self.bias)
        first = torch.tanh(self.pooler(x[:, 0]))
        kept = mask.unsqueeze(-1).to(x.dtype)
        average = (x * kept).sum(1) / kept.sum(1)
        return words, self.classifier(torch.cat([first, average], -1))


def build():
    return Bert()


def batch(rng):
    lengths = rng.integers(4, LENGTH + 1, (5, 1))
    lengths[0] = LENGTH
    ids = np.where(np.arange(LENGTH)[None] < lengths, rng.integers(2, VOCAB, (5, LENGTH)), 0).astype("int64")
    words = np.where((rng.random((5, LENGTH)) < 0.4) & (ids > 0), ids, -100).astype("int64")
    words[:, 1] = ids[:, 1]
    return {
        "args": (ids, (np.arange(LENGTH)[None] >= 3).repeat(5, 0).astype("int64")),
        "labels": (words, rng.integers(0, 3, 5).astype("int64")),
    }


def loss(outputs, labels):
    words, kind = outputs
    masked = F.cross_entropy(words.reshape(-1, VOCAB), labels[0].reshape(-1), ignore_index=-100)
    return masked + F.cross_entropy(kind, labels[1])


def optimizer(parameters):
    parameters = list(parameters)
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.1},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-6)


def scheduler(built):
    return torch.optim.lr_scheduler.LambdaLR(built, lambda step: min(1.0, (step + 1) / WARM))


def clip(parameters):
    return torch.nn.utils.clip_grad_norm_(parameters, 0.5)


def transform(tokens):
    ids = [1, *tokens[: LENGTH - 2], 2]
    mask = [1] * len(ids)
    while len(ids) < LENGTH:
        ids.append(0)
        mask.append(0)
    return np.array(ids, "int64"), np.array(mask, "int64")


def samples():
    rng = np.random.default_rng(6)
    return [rng.integers(3, VOCAB, size).tolist() for size in (4, 12, 9)]
