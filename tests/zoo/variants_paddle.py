"""Ports that are equal to the references in `variants_torch`."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


class Digits(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(32, 10)
        self.conv1, self.bn1 = nn.Conv2D(1, 12, 3, padding=1), nn.BatchNorm2D(12)
        self.conv2, self.bn2 = nn.Conv2D(12, 16, 3), nn.BatchNorm2D(16)
        self.fc, self.ln = nn.Linear(64, 32), nn.LayerNorm(32)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.gelu(self.bn2(self.conv2(x))).flatten(1)
        return self.out(F.silu(self.ln(self.fc(x))))


class Rows(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 24, direction="bidirect", time_major=True), nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.rnn(x.transpose([1, 0, 2]))[0].mean(0))


class Wide(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(20000, 16), nn.LayerNorm(20000), nn.Linear(20000, 4)

    def forward(self, x):
        return self.first(x), self.second(self.norm(x)), x.mean(-1), paddle.square(x).sum(-1)


class VeryDeep(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(12, 12) for _ in range(100)])

    def forward(self, x):
        for layer in self.layers:
            x = x + F.tanh(layer(x)) * 0.3
        return x


class Cancelling(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(32, 32), nn.BatchNorm1D(32), nn.Linear(32, 4)

    def forward(self, x):
        x = self.fc(x) + 1000
        return self.out(self.norm(x - x.mean(1, keepdim=True)))


class RootMeanSquare(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        wide = x.astype("float32")
        wide = wide * paddle.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return wide.astype(x.dtype) * self.weight


class Casting(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(16), RootMeanSquare(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias_attr=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        y = self.norm1(x)
        scores = paddle.matmul(self.q(y), self.k(y), transpose_y=True) / 4
        x = x + self.o(F.softmax(scores.astype("float32"), -1).astype(x.dtype).matmul(self.v(y)))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Fused(nn.Layer):
    @staticmethod
    def take(state):
        """Split torch's fused layer."""
        made = {f"proj.{kind}": state[f"proj.{kind}"].T for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            for name, part in zip("qkv", np.split(state[f"qkv.{kind}"], 3), strict=True):
                made[f"{name}.{kind}"] = part.T
        return made

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        batch, length, _width = x.shape
        q, k, v = (
            layer(x).reshape([batch, length, 4, 4]).transpose([0, 2, 1, 3]) for layer in (self.q, self.k, self.v)
        )
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5)
        return self.proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2))


class Separate(nn.Layer):
    @staticmethod
    def take(state):
        """Join torch's three layers."""
        made = {f"proj.{kind}": state[f"proj.{kind}"].T for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            made[f"qkv.{kind}"] = np.concatenate([state[f"{name}.{kind}"].T for name in "qkv"], -1)
        return made

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        batch, length, _width = x.shape
        q, k, v = self.qkv(x).reshape([batch, length, 3, 4, 4]).transpose([2, 0, 3, 1, 4])
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) * 0.5)
        return self.proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2))


class OwnAttention(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(16), nn.MultiHeadAttention(16, 2)

    def forward(self, x):
        return x + self.attn(self.norm(x))


class BuiltinAttention(nn.Layer):
    @staticmethod
    def take(state):
        """Split what torch's layer has in one tensor."""
        made = {f"norm.{kind}": state[f"norm.{kind}"] for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            made[f"out_proj.{kind}"] = state[f"attn.out_proj.{kind}"].T
            for name, part in zip("qkv", np.split(state[f"attn.in_proj_{kind}"], 3), strict=True):
                made[f"{name}_proj.{kind}"] = part.T
        return made

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        batch, length, _width = x.shape
        y = self.norm(x)
        q, k, v = (
            layer(y).reshape([batch, length, 2, 8]).transpose([0, 2, 1, 3])
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) / 8**0.5)
        return x + self.out_proj(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).flatten(2))


class Functional(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.act1 = nn.Conv2D(3, 6, 3), nn.BatchNorm2D(6), nn.LeakyReLU(0.2)
        self.pool1, self.c2, self.act2 = nn.MaxPool2D(2), nn.Conv2D(6, 8, 3), nn.GELU(approximate=True)
        self.pool2, self.drop, self.fc = nn.AdaptiveAvgPool2D(1), nn.Dropout(0.3), nn.Linear(8, 4)
        self.flatten, self.end = nn.Flatten(), nn.LogSoftmax(1)

    def forward(self, x):
        x = self.pool1(self.act1(self.b1(self.c1(x))))
        x = self.drop(self.flatten(self.pool2(self.act2(self.c2(x)))))
        return self.end(self.fc(x))


class Layers(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(3, 6, 3, padding=1), nn.BatchNorm2D(6)
        self.c2, self.fc = nn.Conv2D(6, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        x = F.avg_pool2d(F.hardtanh(self.b1(self.c1(x)), -1, 2), 2)
        x = F.softplus(self.c2(x)).max([2, 3])
        return F.log_softmax(self.fc(F.dropout(x, 0.3, training=self.training)), 1)


class Shared(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2D(3 if not n else 6, 6, 3, padding=1), nn.ReLU(), nn.Dropout(0.1))
                for n in range(4)
            ]
        )

    def forward(self, x):
        return self.blocks(x)


class Pointwise(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = self.create_parameter([6])
        self.depthwise = nn.Conv2D(6, 6, 3, padding=1, groups=6)
        self.norm, self.act = nn.LayerNorm(6, epsilon=1e-6), nn.GELU()
        self.up, self.down = nn.Linear(6, 24), nn.Linear(24, 6)

    def forward(self, x):
        y = self.depthwise(x).transpose([0, 2, 3, 1]).flatten(1, 2)
        y = self.down(self.act(self.up(self.norm(y)))) * self.gamma
        return x + y.transpose([0, 2, 1]).reshape(x.shape)


class ChannelsLast(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(8, 6, 3, data_format="NHWC"), nn.BatchNorm2D(6, data_format="NHWC")
        self.c2, self.pool = nn.Conv2D(6, 4, 1, data_format="NHWC"), nn.MaxPool2D(2, data_format="NHWC")

    def forward(self, x):
        x = self.c2(self.pool(F.relu(self.b1(self.c1(x.transpose([0, 2, 3, 1]))))))
        return x.transpose([0, 3, 1, 2])


class Normalized(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.weight_norm(nn.Conv1D(4, 6, 3, dilation=2), dim=0)
        self.out = nn.Conv1D(6, 4, 1)

    def forward(self, x):
        return self.out(F.tanh(self.conv(x)))


class Cells(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = paddle.zeros([x.shape[0], 8], x.dtype)
        outputs = []
        for step in range(x.shape[1]):
            h, (_, c) = self.cell(x[:, step], (h, c))
            outputs.append(h)
        return self.out(paddle.stack(outputs, 1))


class Gated(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(10, 24), nn.GroupNorm(3, 12), nn.Linear(12, 5)

    def forward(self, x):
        x = self.fc(x)
        return self.out(self.norm(x[:, :12] * F.sigmoid(x[:, 12:])))


class Tied(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(40, 12), nn.Linear(12, 12)

    def forward(self, tokens):
        return F.linear(F.tanh(self.fc(self.embed(tokens))), self.embed.weight.T)


class Unused(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out, self.aside = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(F.relu(self.fc(x)))


class Reordered(nn.Layer):
    names = {"left.0": "left", "right.0": "right"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(12, 3)
        self.right, self.left = nn.Linear(8, 6), nn.Linear(8, 6)

    def forward(self, x):
        right = F.sigmoid(self.right(x))
        left = F.relu(self.left(x))
        return self.out(paddle.concat([left, right], 1))


class InPlace(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2D(4, 4, 3, padding=1), nn.BatchNorm2D(4)
        self.out = nn.Conv2D(4, 2, 1)

    def forward(self, x):
        y = self.norm(self.conv(x))
        return self.out(F.relu_(y.add_(x)) * 2.0)


class Frozen(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2D(4, 4, 3), nn.BatchNorm2D(4), nn.Conv2D(4, 2, 3)
        for parameter in (*self.stem.parameters(), *self.norm.parameters()):
            parameter.stop_gradient = True

    def forward(self, x):
        return self.head(F.relu(self.norm(self.stem(x))))


class BiasBeforeNorm(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(4, 6, 3), nn.BatchNorm2D(6)
        self.c2, self.b2, self.fc = nn.Conv2D(6, 6, 3), nn.BatchNorm2D(6), nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        return self.fc(F.relu(self.b2(self.c2(x))).mean([2, 3]))


class Audio(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv1D(1, 8, 10, 5, bias_attr=False), nn.GroupNorm(8, 8)
        self.conv2, self.up = nn.Conv1D(8, 8, 3, 2), nn.Conv1DTranspose(8, 4, 4, 2, 1)
        self.act, self.pool = nn.PReLU(), nn.AvgPool1D(3, 2, 1, exclusive=False)

    def forward(self, x):
        return self.pool(self.act(self.up(self.conv2(F.gelu(self.norm(self.conv1(x)))))))


class Many(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2D(3, 6, 3), nn.Linear(6, 3)

    def forward(self, x):
        feature = F.relu6(self.conv(x))
        return self.fc(feature.max([2, 3])), feature


class Dead(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.dead, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.fc(x))
        return self.out(x + F.relu(self.dead(x) - 1000))


class Activated(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2D(3, 6, 3), nn.BatchNorm(6, act="relu")
        self.c2, self.b2, self.fc = nn.Conv2D(6, 6, 3), nn.BatchNorm(6, act="relu"), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.b2(self.c2(self.b1(self.c1(x)))).mean([2, 3]))
