"""A text recognizer: convolutions with squeeze and excitation, a recurrent layer, CTC."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

SYMBOLS = 7  # the blank is 0


class Excite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down = nn.Conv2d(channels, channels // 2, 1)
        self.up = nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x):
        weight = F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))))
        return x * weight


class Unit(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.act = nn.Hardswish()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit1 = Unit(3, 8)
        self.pool1 = nn.MaxPool2d(2)
        self.unit2 = Unit(8, 12)
        self.excite = Excite(12)
        self.pool2 = nn.MaxPool2d((2, 1), (2, 1))

    def forward(self, x):
        x = self.pool1(self.unit1(x))
        return self.pool2(self.excite(self.unit2(x)))


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.squeeze = nn.Linear(24, 16)
        self.rnn = nn.LSTM(16, 8, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(16, SYMBOLS)

    def forward(self, x):
        x = self.encoder(x)
        x = x.permute(0, 3, 1, 2).flatten(2)
        x = self.squeeze(x)
        x, _ = self.rnn(x)
        return self.fc(self.dropout(x))


def build():
    return CRNN()


def batch(rng):
    labels = rng.integers(1, SYMBOLS, (3, 4)).astype("int64")
    return {
        "args": (rng.standard_normal((3, 3, 8, 24)).astype("float32"),),
        "labels": (labels, np.array([4, 2, 3], "int64")),
    }


def loss(outputs, labels):
    targets, lengths = labels
    logs = outputs.transpose(0, 1).log_softmax(2)
    times = torch.full((outputs.shape[0],), outputs.shape[1], dtype=torch.int64)
    return F.ctc_loss(logs, targets, times, lengths, blank=0)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.01, betas=(0.9, 0.99), weight_decay=0.05)


def scheduler(built):
    return torch.optim.lr_scheduler.CosineAnnealingLR(built, T_max=6)
