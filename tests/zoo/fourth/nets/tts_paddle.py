import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

WIDTH, HEADS, FRAMES, BINS = 16, 2, 16, 6


def masked_fill(x, mask, value):
    return paddle.where(mask.expand_as(x), paddle.full_like(x, value), x)


class Positions(nn.Layer):
    def __init__(self):
        super().__init__()
        place = np.arange(32)[:, None] * np.exp(np.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
        table = np.zeros((32, WIDTH))
        table[:, 0::2], table[:, 1::2] = np.sin(place), np.cos(place)
        self.alpha = self.create_parameter([1])
        self.register_buffer("table", paddle.to_tensor(table, dtype="float32"), persistable=False)

    def forward(self, x):
        return x * math.sqrt(WIDTH) + self.alpha * self.table[: x.shape[1]]


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def split(self, x):
        return x.reshape([x.shape[0], x.shape[1], HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS)
        scores = masked_fill(scores, mask.unsqueeze([1, 2]), -1e9)
        y = paddle.matmul(F.softmax(scores, -1), v).transpose([0, 2, 1, 3]).reshape(x.shape)
        return self.out(y)


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1 = nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.conv1 = nn.Conv1D(WIDTH, 24, 3, padding=1)
        self.conv2 = nn.Conv1D(24, WIDTH, 1)
        self.norm2 = nn.LayerNorm(WIDTH, epsilon=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        y = self.conv2(F.relu(self.conv1(x.transpose([0, 2, 1])))).transpose([0, 2, 1])
        x = self.norm2(x + self.dropout(y))
        return masked_fill(x, mask.unsqueeze(-1), 0.0)


class Duration(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1D(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(WIDTH, 1)

    def forward(self, x, mask):
        x = F.relu(self.conv(x.transpose([0, 2, 1]))).transpose([0, 2, 1])
        x = self.dropout(self.norm(x))
        return masked_fill(self.linear(x).squeeze(-1), mask, 0.0)


class PostNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1D(BINS, 8, 5, padding=2, bias_attr=False)
        self.bn1 = nn.BatchNorm1D(8)
        self.conv2 = nn.Conv1D(8, BINS, 5, padding=2, bias_attr=False)
        self.bn2 = nn.BatchNorm1D(BINS)

    def forward(self, x):
        x = paddle.tanh(self.bn1(self.conv1(x.transpose([0, 2, 1]))))
        return self.bn2(self.conv2(x)).transpose([0, 2, 1])


class Speaker(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH, padding_idx=0)
        self.positions = Positions()
        self.encoder = Block()
        self.duration = Duration()
        self.pitch = nn.Conv1D(1, WIDTH, 3, padding=1)
        self.frames = Positions()
        self.decoder = Block()
        self.mel = nn.Linear(WIDTH, BINS)
        self.postnet = PostNet()

    def regulate(self, x, durations):
        ends = durations.cumsum(1)
        place = paddle.arange(FRAMES)
        index = (place.reshape([1, -1, 1]) >= ends.unsqueeze(1)).astype("int64").sum(-1)
        empty = place.unsqueeze(0) >= ends[:, -1:]
        index = index.clip(max=x.shape[1] - 1).unsqueeze(-1).expand([-1, -1, x.shape[2]])
        return masked_fill(paddle.take_along_axis(x, index, 1), empty.unsqueeze(-1), 0.0), empty

    def forward(self, tokens, durations, pitch):
        mask = tokens == 0
        x = self.encoder(self.positions(self.embed(tokens)), mask)
        guess = self.duration(x.detach(), mask)
        x = x + self.pitch(pitch.transpose([0, 2, 1])).transpose([0, 2, 1])
        x, empty = self.regulate(x, durations)
        before = self.mel(self.decoder(self.frames(x), empty))
        return before, before + self.postnet(before), guess


def build():
    return Speaker()


def convert(values):
    return named_for_paddle(values, kept=("embed.",))


def loss(outputs, labels):
    before, after, guess = outputs
    mel, durations = labels
    kept = (paddle.arange(FRAMES).unsqueeze(0) < durations.sum(1, keepdim=True)).unsqueeze(-1).expand_as(mel)
    spectral = F.l1_loss(before.masked_select(kept), mel.masked_select(kept)) + F.l1_loss(
        after.masked_select(kept), mel.masked_select(kept)
    )
    spoken = durations > 0
    truth = paddle.log(durations.astype(guess.dtype) + 1.0)
    return spectral + F.mse_loss(guess.masked_select(spoken), truth.masked_select(spoken))


def optimizer(parameters, rate=1.0):
    return paddle.optimizer.Adam(rate, beta1=0.9, beta2=0.98, epsilon=1e-9, parameters=parameters)


def scheduler():
    def factor(step):
        return WIDTH**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4**-1.5) * 0.05

    return paddle.optimizer.lr.LambdaDecay(1.0, factor)
