"""Ports of `streams_torch`, by hand; `fault` names what is wrong in a layer's own code."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class Attend(nn.Layer):
    fault = ""

    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim, bias_attr=False)
        self.key = nn.Linear(2 * dim, dim)
        self.energy = nn.Linear(dim, 1, bias_attr=False)

    def forward(self, state, memory, hidden):
        total = self.query(state).unsqueeze(1) + self.key(memory)
        scores = self.energy(total if self.fault == "no tanh" else paddle.tanh(total)).squeeze(-1)
        if self.fault != "padding attended":
            scores = paddle.where(hidden, paddle.full_like(scores, -1e9), scores)
        weights = F.softmax(scores, axis=0 if self.fault == "softmax over samples" else 1)
        return paddle.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Captioner(nn.Layer):
    fault = ""

    def __init__(self, words=19, dim=8):
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.encoder = nn.GRU(dim, dim, direction="bidirect")
        self.bridge = nn.Linear(2 * dim, dim)
        self.attend = Attend(dim)
        self.cell = nn.GRUCell(3 * dim, dim)
        self.out = nn.Linear(dim, words)

    def forward(self, source, target):
        memory, last = self.encoder(self.embed(source))
        ends = [last[1], last[0]] if self.fault == "backward first" else [last[0], last[1]]
        if self.fault == "last step of both ways":
            state = paddle.tanh(self.bridge(memory[:, -1]))
        elif self.fault == "state of zeros":
            state = paddle.zeros_like(last[0])
        else:
            state = paddle.tanh(self.bridge(paddle.concat(ends, axis=1)))
        hidden = source == 0
        outputs = []
        words = self.embed(target)
        for step in range(target.shape[1]):
            context = self.attend(state, memory, hidden)
            _, new = self.cell(paddle.concat([words[:, step], context], axis=1), state)
            if self.fault != "state not carried":
                state = new
            outputs.append(self.out(new))
        return paddle.stack(outputs, axis=1)


class Crf(nn.Layer):
    fault = ""

    def __init__(self, tags):
        super().__init__()
        self.transitions = self.create_parameter([tags, tags])
        self.start = self.create_parameter([tags])

    def forward(self, emissions, tags):
        hot = F.one_hot(tags, emissions.shape[-1]).astype(emissions.dtype)
        alpha = emissions[:, 0] if self.fault == "no start" else self.start + emissions[:, 0]
        score = (hot[:, 0] * (self.start + emissions[:, 0])).sum(-1)
        matrix = self.transitions
        if self.fault == "transitions transposed":
            matrix = matrix.t()
        for t in range(1, emissions.shape[1]):
            steps = alpha.unsqueeze(2) + matrix + emissions[:, t].unsqueeze(1)
            alpha = steps.max(1) if self.fault == "maximum for logsumexp" else paddle.logsumexp(steps, 1)
            score = score + ((hot[:, t - 1] @ matrix) * hot[:, t]).sum(-1) + (hot[:, t] * emissions[:, t]).sum(-1)
        total = paddle.logsumexp(alpha, 1)
        return score - total if self.fault == "sign" else total - score


class Tagger(nn.Layer):
    fault = ""

    def __init__(self, words=25, dim=8, tags=4):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, 6, num_layers=2, direction="bidirect")
        self.norm = nn.LayerNorm(12)
        self.project = nn.Linear(12, tags)
        self.crf = Crf(tags)

    def forward(self, words, tags):
        x, _ = self.lstm(self.embed(words))
        if self.fault == "ways swapped":
            x = paddle.concat([x[..., 6:], x[..., :6]], axis=-1)
        emissions = self.project(self.norm(x))
        return emissions, self.crf(emissions, tags)


class TemporalBlock(nn.Layer):
    fault = ""

    def __init__(self, ins, outs, dilation):
        super().__init__()
        self.reach = 2 * dilation
        self.conv1 = nn.Conv1D(ins, outs, 3, padding=0, dilation=dilation)
        self.conv2 = nn.Conv1D(outs, outs, 3, padding=0, dilation=dilation)
        self.drop = nn.Dropout(0.2)
        self.downsample = nn.Conv1D(ins, outs, 1) if ins != outs else None

    def pad(self, x):
        before = {"padded behind": 0, "padded both sides": self.reach // 2}.get(self.fault, self.reach)
        return F.pad(x, [before, self.reach - before], data_format="NCL")

    def forward(self, x):
        y = self.drop(F.relu(self.conv1(self.pad(x))))
        y = self.drop(F.relu(self.conv2(self.pad(y))))
        y = y + (x if self.downsample is None else self.downsample(x))
        return y if self.fault == "no relu behind the sum" else F.relu(y)


class Tcn(nn.Layer):
    fault = ""

    def __init__(self, classes=4):
        super().__init__()
        self.blocks = nn.Sequential(TemporalBlock(3, 6, 1), TemporalBlock(6, 6, 2), TemporalBlock(6, 8, 4))
        self.gate = nn.Conv1D(8, 12, 1)
        self.fc = nn.Linear(6, classes)

    def forward(self, series):
        y = self.gate(self.blocks(series.transpose([0, 2, 1])))
        if self.fault == "other half gates":
            a, b = y.chunk(2, axis=1)
            x = b * F.sigmoid(a)
        elif self.fault == "tanh and sigmoid":
            a, b = y.chunk(2, axis=1)
            x = paddle.tanh(a) * F.sigmoid(b)
        else:
            x = F.glu(y, axis=1)
        if self.fault == "first step":
            return self.fc(x[:, :, 0])
        return self.fc(x.mean(-1) if self.fault == "mean of steps" else x[:, :, -1])


class DeepFm(nn.Layer):
    fault = ""

    def __init__(self, fields=(5, 7, 4), numbers=3, dim=6):
        super().__init__()
        self.embed = nn.Embedding(sum(fields), dim)
        self.linear = nn.Embedding(sum(fields), 1)
        self.register_buffer("offsets", paddle.to_tensor([0, 5, 12]))
        self.norm = nn.BatchNorm1D(numbers)
        self.deep = nn.Sequential(
            nn.Linear(len(fields) * dim + numbers, 12), nn.SELU(), nn.Linear(12, 8), nn.ELU(0.7), nn.Linear(8, 1)
        )

    def forward(self, categories, numbers):
        index = categories if self.fault == "no offsets" else categories + self.offsets
        e = self.embed(index)
        pairs = (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
        pairs = pairs if self.fault == "not halved" else pairs * 0.5
        n = self.norm(numbers if self.fault == "no logarithm" else paddle.log1p(numbers))
        parts = [n, e.flatten(1)] if self.fault == "numbers first" else [e.flatten(1), n]
        deep = self.deep(paddle.concat(parts, axis=1))
        total = pairs + deep if self.fault == "no linear part" else self.linear(index).sum(1) + pairs + deep
        return F.sigmoid(total).squeeze(1)


class TiedAutoencoder(nn.Layer):
    fault = ""

    def __init__(self, dim=20, hidden=8):
        super().__init__()
        self.encode1, self.encode2 = nn.Linear(dim, 12), nn.Linear(12, hidden)
        self.bias1 = self.create_parameter([dim], is_bias=True)
        self.bias2 = self.create_parameter([12], is_bias=True)

    def forward(self, x):
        x = F.normalize(x, p=1 if self.fault == "norm of order 1" else 2, axis=1)
        code = self.encode2(F.silu(self.encode1(x)))
        code = F.relu(code) if self.fault == "relu for softplus" else F.softplus(code)
        one, two = self.encode1.weight, self.encode2.weight
        if self.fault == "weights copied":
            one, two = one.detach(), two.detach()
        y = F.silu(F.linear(code, two.t(), self.bias2))
        return F.linear(y, one.t(), self.bias1), code
