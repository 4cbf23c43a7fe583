"""WaveNet with local conditioning, ported."""

import math

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

from zoo.planting import named_for_paddle


class CausalConv1D(nn.Layer):
    def __init__(self, in_channels, out_channels, kernel_size, dilation=1):
        super().__init__()
        self.pad = (kernel_size - 1) * dilation
        self.conv = nn.Conv1D(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(self, x):
        x = F.pad(x, [self.pad, 0], data_format="NCL")
        return self.conv(x)


class ResidualBlock(nn.Layer):
    def __init__(self, residual_channels, skip_channels, cond_channels, dilation):
        super().__init__()
        self.dilated = CausalConv1D(residual_channels, 2 * residual_channels, 2, dilation=dilation)
        self.cond = nn.Conv1D(cond_channels, 2 * residual_channels, 1, bias_attr=False)
        self.conv_res = nn.Conv1D(residual_channels, residual_channels, 1)
        self.conv_skip = nn.Conv1D(residual_channels, skip_channels, 1)

    def forward(self, x, cond):
        h = self.dilated(x) + self.cond(cond)
        filt, gate = paddle.split(h, 2, axis=1)
        z = paddle.tanh(filt) * F.sigmoid(gate)
        skip = self.conv_skip(z)
        out = (x + self.conv_res(z)) * math.sqrt(0.5)
        return out, skip


class WaveNet(nn.Layer):
    def __init__(self, classes=32, channels=8, skip_channels=10, cond_channels=5, hop_length=4):
        super().__init__()
        self.hop_length = hop_length
        self.classes = classes
        self.embedding = nn.Embedding(classes, channels)
        self.first = CausalConv1D(channels, channels, 2)
        self.blocks = nn.LayerList([ResidualBlock(channels, skip_channels, cond_channels, 2**i) for i in range(4)])
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1D(skip_channels, skip_channels, 1), nn.ReLU(), nn.Conv1D(skip_channels, classes, 1)
        )

    def encode(self, audio):
        mu = self.classes - 1
        magnitude = paddle.log1p(mu * paddle.abs(audio)) / math.log1p(mu)
        signal = paddle.sign(audio) * magnitude
        return ((signal + 1) / 2 * mu + 0.5).astype("int64")

    def forward(self, audio, features):
        cond = features.repeat_interleave(self.hop_length, axis=2)
        x = self.embedding(self.encode(audio))
        x = self.first(x.transpose([0, 2, 1]))
        skips = []
        for block in self.blocks:
            x, skip = block(x, cond)
            skips.append(skip)
        out = paddle.add_n(skips) / math.sqrt(len(self.blocks))
        return self.last(out)


def build():
    return WaveNet()


RENAMED = {
    "embed.": "embedding.",
    "causal.": "first.conv.",
    ".conv.weight": ".dilated.conv.weight",
    ".conv.bias": ".dilated.conv.bias",
    "first.dilated": "first",
    "units.": "blocks.",
    ".local.": ".cond.",
    ".res.": ".conv_res.",
    ".skip.": ".conv_skip.",
    "end1.": "last.1.",
    "end2.": "last.3.",
}


def convert(state):
    return named_for_paddle(state, kept=("embed.",), renames=RENAMED)


def loss(output, labels):
    return F.cross_entropy(output[:, :, :-1].transpose([0, 2, 1]), labels[:, 1:])


def scheduler():
    return paddle.optimizer.lr.ExponentialDecay(learning_rate=2e-3, gamma=0.8)


def optimizer(parameters, learning_rate=2e-3):
    return paddle.optimizer.Adam(
        learning_rate=learning_rate, beta1=0.9, beta2=0.98, epsilon=1e-6, parameters=parameters
    )
