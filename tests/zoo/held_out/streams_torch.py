"""References over sequences and tables: GRU seq2seq with attention, BiLSTM-CRF, TCN, factorization machine, tied autoencoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Attend(nn.Module):
    """Bahdanau's additive attention."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(2 * dim, dim)
        self.energy = nn.Linear(dim, 1, bias=False)

    def forward(self, state, memory, hidden):
        scores = self.energy(torch.tanh(self.query(state).unsqueeze(1) + self.key(memory))).squeeze(-1)
        weights = scores.masked_fill(hidden, -1e9).softmax(1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Captioner(nn.Module):
    """Bidirectional GRU encoder, GRUCell decoder with attention; word 0 is padding."""

    def __init__(self, words: int = 19, dim: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * dim, dim)
        self.attend = Attend(dim)
        self.cell = nn.GRUCell(3 * dim, dim)
        self.out = nn.Linear(dim, words)

    def forward(self, source, target):
        memory, last = self.encoder(self.embed(source))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))
        hidden = source == 0
        outputs = []
        for word in self.embed(target).unbind(1):
            state = self.cell(torch.cat([word, self.attend(state, memory, hidden)], 1), state)
            outputs.append(self.out(state))
        return torch.stack(outputs, 1)


class Crf(nn.Module):
    """The negative log-likelihood of tags under a linear chain."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags))
        self.start = nn.Parameter(torch.randn(tags))

    def forward(self, emissions, tags):
        alpha = self.start + emissions[:, 0]
        score = self.start[tags[:, 0]] + emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emissions.shape[1]):
            steps = alpha.unsqueeze(2) + self.transitions + emissions[:, t].unsqueeze(1)
            alpha = torch.logsumexp(steps, 1)
            score = score + self.transitions[tags[:, t - 1], tags[:, t]]
            score = score + emissions[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
        return torch.logsumexp(alpha, 1) - score


class Tagger(nn.Module):
    def __init__(self, words: int = 25, dim: int = 8, tags: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, 6, num_layers=2, batch_first=True, bidirectional=True, dropout=0.0)
        self.norm = nn.LayerNorm(12)
        self.project = nn.Linear(12, tags)
        self.crf = Crf(tags)

    def forward(self, words, tags):
        x, _ = self.lstm(self.embed(words))
        emissions = self.project(self.norm(x))
        return emissions, self.crf(emissions, tags)


class TemporalBlock(nn.Module):
    def __init__(self, ins: int, outs: int, dilation: int) -> None:
        super().__init__()
        self.reach = 2 * dilation
        self.conv1 = nn.Conv1d(ins, outs, 3, padding=self.reach, dilation=dilation)
        self.conv2 = nn.Conv1d(outs, outs, 3, padding=self.reach, dilation=dilation)
        self.drop = nn.Dropout(0.2)
        self.downsample = nn.Conv1d(ins, outs, 1) if ins != outs else None

    def forward(self, x):
        y = self.drop(F.relu(self.conv1(x)[..., : -self.reach]))
        y = self.drop(F.relu(self.conv2(y)[..., : -self.reach]))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Tcn(nn.Module):
    """A series (batch, length, features); gated output of the last step."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.blocks = nn.Sequential(TemporalBlock(3, 6, 1), TemporalBlock(6, 6, 2), TemporalBlock(6, 8, 4))
        self.gate = nn.Conv1d(8, 12, 1)
        self.fc = nn.Linear(6, classes)

    def forward(self, series):
        x = F.glu(self.gate(self.blocks(series.transpose(1, 2))), 1)
        return self.fc(x[:, :, -1])


class DeepFm(nn.Module):
    """Categories and numbers; one table for all fields, pairwise products, a deep part."""

    def __init__(self, fields=(5, 7, 4), numbers: int = 3, dim: int = 6) -> None:
        super().__init__()
        self.embed = nn.Embedding(sum(fields), dim)
        self.linear = nn.Embedding(sum(fields), 1)
        starts = torch.cumsum(torch.tensor((0, *fields[:-1])), 0)
        self.register_buffer("offsets", starts)
        self.norm = nn.BatchNorm1d(numbers)
        self.deep = nn.Sequential(
            nn.Linear(len(fields) * dim + numbers, 12), nn.SELU(), nn.Linear(12, 8), nn.ELU(0.7), nn.Linear(8, 1)
        )

    def forward(self, categories, numbers):
        index = categories + self.offsets
        e = self.embed(index)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        n = self.norm(torch.log1p(numbers))
        deep = self.deep(torch.cat([e.flatten(1), n], 1))
        return torch.sigmoid(self.linear(index).sum(1) + pairs + deep).squeeze(1)


class TiedAutoencoder(nn.Module):
    """The decoder's weights are the encoder's, transposed."""

    def __init__(self, dim: int = 20, hidden: int = 8) -> None:
        super().__init__()
        self.encode1, self.encode2 = nn.Linear(dim, 12), nn.Linear(12, hidden)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        code = F.softplus(self.encode2(F.silu(self.encode1(F.normalize(x, dim=1)))))
        y = F.silu(F.linear(code, self.encode2.weight.t(), self.bias2))
        return F.linear(y, self.encode1.weight.t(), self.bias1), code
