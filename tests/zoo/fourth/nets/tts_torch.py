"""An acoustic model: feed-forward Transformer blocks, durations, a length regulator, a post net."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WIDTH, HEADS, FRAMES, BINS = 16, 2, 16, 6


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        place = np.arange(32)[:, None] * np.exp(np.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
        table = np.zeros((32, WIDTH))
        table[:, 0::2], table[:, 1::2] = np.sin(place), np.cos(place)
        self.alpha = nn.Parameter(torch.ones(1))
        self.register_buffer("table", torch.tensor(table, dtype=torch.float32), persistent=False)

    def forward(self, x):
        return x * math.sqrt(WIDTH) + self.alpha * self.table[: x.shape[1]]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def split(self, x):
        return x.reshape(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(mask[:, None, None, :], -1e9)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.out(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.conv1 = nn.Conv1d(WIDTH, 24, 3, padding=1)
        self.conv2 = nn.Conv1d(24, WIDTH, 1)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        y = self.conv2(F.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        x = self.norm2(x + self.dropout(y))
        return x.masked_fill(mask[..., None], 0.0)


class Duration(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(WIDTH, 1)

    def forward(self, x, mask):
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        x = self.dropout(self.norm(x))
        return self.linear(x).squeeze(-1).masked_fill(mask, 0.0)


class PostNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(BINS, 8, 5, padding=2, bias=False)
        self.bn1 = nn.BatchNorm1d(8)
        self.conv2 = nn.Conv1d(8, BINS, 5, padding=2, bias=False)
        self.bn2 = nn.BatchNorm1d(BINS)

    def forward(self, x):
        x = torch.tanh(self.bn1(self.conv1(x.transpose(1, 2))))
        return self.bn2(self.conv2(x)).transpose(1, 2)


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH, padding_idx=0)
        self.positions = Positions()
        self.encoder = Block()
        self.duration = Duration()
        self.pitch = nn.Conv1d(1, WIDTH, 3, padding=1)
        self.frames = Positions()
        self.decoder = Block()
        self.mel = nn.Linear(WIDTH, BINS)
        self.postnet = PostNet()

    def regulate(self, x, durations):
        ends = durations.cumsum(1)
        place = torch.arange(FRAMES)
        index = (place[None, :, None] >= ends[:, None, :]).sum(-1)
        empty = place[None, :] >= ends[:, -1:]
        index = index.clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2])
        return torch.gather(x, 1, index).masked_fill(empty[..., None], 0.0), empty

    def forward(self, tokens, durations, pitch):
        mask = tokens == 0
        x = self.encoder(self.positions(self.embed(tokens)), mask)
        guess = self.duration(x.detach(), mask)
        x = x + self.pitch(pitch.transpose(1, 2)).transpose(1, 2)
        x, empty = self.regulate(x, durations)
        before = self.mel(self.decoder(self.frames(x), empty))
        return before, before + self.postnet(before), guess


def build():
    return Speaker()


def batch(rng):
    tokens = rng.integers(1, 11, (2, 6))
    durations = rng.integers(1, 4, (2, 6))
    durations[0] = [3, 2, 4, 1, 3, 3]
    tokens[1, 4:] = 0
    durations[1, 4:] = 0
    return {
        "args": (tokens.astype("int64"), durations.astype("int64"), rng.standard_normal((2, 6, 1)).astype("float32")),
        "labels": (rng.standard_normal((2, FRAMES, BINS)).astype("float32"), durations.astype("int64")),
    }


def loss(outputs, labels):
    before, after, guess = outputs
    mel, durations = labels
    kept = (torch.arange(FRAMES)[None] < durations.sum(1, keepdim=True))[..., None]
    spectral = F.l1_loss(before.masked_select(kept), mel.masked_select(kept)) + F.l1_loss(
        after.masked_select(kept), mel.masked_select(kept)
    )
    spoken = durations > 0
    truth = torch.log(durations.to(guess.dtype) + 1.0)
    return spectral + F.mse_loss(guess[spoken], truth[spoken])


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9)


def scheduler(built):
    def factor(step):
        return WIDTH**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4**-1.5) * 0.05

    return torch.optim.lr_scheduler.LambdaLR(built, factor)
