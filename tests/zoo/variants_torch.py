"""References whose ports, in `variants_paddle`, are equal but built quite differently."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Digits(nn.Module):
    """A small classifier of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 16, 3),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(64, 32),
            nn.LayerNorm(32),
            nn.SiLU(),
            nn.Linear(32, 10),
        )

    def forward(self, x):
        return self.net(x)


class Rows(nn.Module):
    """A digit read row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(8, 24, batch_first=True, bidirectional=True), nn.Linear(48, 10)

    def forward(self, x):
        return self.fc(self.lstm(x)[0].mean(1))


class Wide(nn.Module):
    """Sums of many terms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(20000, 16), nn.LayerNorm(20000), nn.Linear(20000, 4)

    def forward(self, x):
        return self.first(x), self.second(self.norm(x)), x.mean(-1), (x * x).sum(-1)


class VeryDeep(nn.Module):
    """A hundred residual layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(100)])

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.3 * layer(x)
        return x


class Cancelling(nn.Module):
    """Differences of nearly equal numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)

    def forward(self, x):
        x = self.fc(x) + 1000
        return self.out(self.norm(x - x.mean(1, keepdim=True)))


class RootMeanSquare(nn.Module):
    """Zhang and Sennrich 2019, in float32 whatever the input is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return wide.to(x.dtype) * self.weight


class Casting(nn.Module):
    """Norms and softmax in float32, as language models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(16), RootMeanSquare(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16))

    def forward(self, x):
        y = self.norm1(x)
        scores = self.q(y) @ self.k(y).transpose(-1, -2) / 4
        x = x + self.o(F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype) @ self.v(y))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Fused(nn.Module):
    """q, k and v from one layer; the port has three."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        batch, length, _width = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (one.view(batch, length, 4, 4).transpose(1, 2) for one in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Separate(nn.Module):
    """q, k and v from three layers; the port has one."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        batch, length, _width = x.shape
        q, k, v = (layer(x).view(batch, length, 4, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) * 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class OwnAttention(nn.Module):
    """Attention by hand; the port takes Paddle's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        batch, length, _width = x.shape
        y = self.norm(x)
        q, k, v = (
            layer(y).view(batch, length, 2, 8).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        return x + self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class BuiltinAttention(nn.Module):
    """torch's layer; the port does it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attn(y, y, y, need_weights=False)[0]


class Functional(nn.Module):
    """All activations and pooling as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.c2 = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.b1(self.c1(x)), 0.2), 2)
        x = F.gelu(self.c2(x), approximate="tanh")
        x = F.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1), 0.3, self.training)
        return F.log_softmax(self.fc(x), 1)


class Layers(nn.Module):
    """All activations and pooling as layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.ZeroPad2d(1),
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.Hardtanh(-1, 2),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 8, 3),
            nn.Softplus(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(8, 4),
            nn.LogSoftmax(1),
        )

    def forward(self, x):
        return self.net(x)


class Shared(nn.Module):
    """One ReLU, used after each convolution; the port has one for each."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3 if not n else 6, 6, 3, padding=1) for n in range(4)])
        self.relu, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.1)

    def forward(self, x):
        for conv in self.convs:
            x = self.drop(self.relu(conv(x)))
        return x


class Pointwise(nn.Module):
    """Linear layers over channels; the port's are 1x1 convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm, self.up, self.down = nn.LayerNorm(6, eps=1e-6), nn.Linear(6, 24), nn.Linear(24, 6)
        self.gamma = nn.Parameter(torch.full((6,), 0.3))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ChannelsLast(nn.Module):
    """Channels first; the port's convolutions have them last."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.c2 = nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return self.c2(self.pool(F.relu(self.b1(self.c1(x)))))


class Normalized(nn.Module):
    """Weight normalization (Salimans and Kingma 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3, dilation=2))
        self.out = nn.Conv1d(6, 4, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)))


class Cells(nn.Module):
    """A cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 8)
        outputs = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            outputs.append(self.out(h))
        return torch.stack(outputs, 1)


class Gated(nn.Module):
    """A gated linear unit, by the function."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(10, 24), nn.GroupNorm(3, 12), nn.Linear(12, 5)

    def forward(self, x):
        return self.out(self.norm(F.glu(self.fc(x), -1)))


class Tied(nn.Module):
    """The last layer has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(40, 12), nn.Linear(12, 12)
        self.out = nn.Linear(12, 40, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(torch.tanh(self.fc(self.embed(tokens))))


class Unused(nn.Module):
    """Has a head that only training uses."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.aside, self.out = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(F.relu(self.fc(x)))


class Reordered(nn.Module):
    """Independent branches; the port computes and declares them the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(nn.Linear(8, 6), nn.ReLU()),
            nn.Sequential(nn.Linear(8, 6), nn.Sigmoid()),
        )
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        return self.out(torch.cat([self.left(x), self.right(x)], 1))


class InPlace(nn.Module):
    """Writes into what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.relu, self.out = nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.out(self.relu(y).mul(2))


class Frozen(nn.Module):
    """Its first layers take no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = (nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
        for parameter in (*self.stem.parameters(), *self.norm.parameters()):
            parameter.requires_grad_(False)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.stem(x))))


class BiasBeforeNorm(nn.Module):
    """Biases that batch normalization takes away: their gradients are nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)
        self.c2, self.b2, self.fc = nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        return self.fc(F.relu(self.b2(self.c2(x))).mean((2, 3)))


class Audio(nn.Module):
    """Convolutions over one axis, and up again."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(1, 8, 10, 5, bias=False), nn.GroupNorm(8, 8), nn.GELU(), nn.Conv1d(8, 8, 3, 2)
        )
        self.up = nn.ConvTranspose1d(8, 4, 4, 2, 1)
        self.act, self.pool = nn.PReLU(), nn.AvgPool1d(3, 2, 1)

    def forward(self, x):
        return self.pool(self.act(self.up(self.down(x))))


class Result(NamedTuple):
    """What `Many` returns."""

    logits: torch.Tensor
    feature: torch.Tensor
    aside: torch.Tensor | None = None


class Many(nn.Module):
    """A named tuple with a None."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6, 3)

    def forward(self, x):
        feature = F.relu6(self.conv(x))
        return Result(self.fc(feature.amax((2, 3))), feature)


class Dead(nn.Module):
    """A layer whose outputs ReLU makes zero."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.dead, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.fc(x))
        return self.out(x + F.relu(self.dead(x) - 1000))


class Activated(nn.Module):
    """Norms and activations; the port's norms activate by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.b1, self.relu = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        self.c2, self.b2, self.fc = nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.relu(self.b1(self.c1(x)))
        return self.fc(F.relu(self.b2(self.c2(x))).mean((2, 3)))
