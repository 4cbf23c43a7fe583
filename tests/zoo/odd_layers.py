"""Layers that stand in a port in the place of the right ones."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


class Cast(nn.Layer):
    """A layer whose input went through fewer bits."""

    def __init__(self, layer: nn.Layer, dtype: str) -> None:
        super().__init__()
        self.layer, self.dtype = layer, dtype

    def forward(self, x):
        return self.layer(x.astype(self.dtype).astype(x.dtype))


class Scaled(nn.Layer):
    """A layer whose result is multiplied by a number."""

    def __init__(self, layer: nn.Layer, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = layer, factor

    def forward(self, x):
        return self.layer(x) * self.factor


class Detached(nn.Layer):
    """A layer that hands back no gradient."""

    def __init__(self, layer: nn.Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.detach())


class Cropped(nn.Conv2D):
    """A convolution with stride 1 whose result is cropped to the size that its stride of 2 would have given."""

    def forward(self, x):
        height, width = ((size + 1) // 2 for size in x.shape[2:])
        full = F.conv2d(x, self.weight, self.bias, stride=1, padding=self._updated_padding)
        return full[:, :, :height, :width]


class OtherAxes(nn.LayerNorm):
    """Normalizes over the tokens as well."""

    def forward(self, x):
        mean = x.mean([-2, -1], keepdim=True)
        variance = ((x - mean) ** 2).mean([-2, -1], keepdim=True)
        return (x - mean) / paddle.sqrt(variance + self._epsilon) * self.weight + self.bias


class Unbiased(nn.LayerNorm):
    """Divides by the root of the unbiased variance."""

    def forward(self, x):
        mean, deviation = x.mean(-1, keepdim=True), x.var(-1, unbiased=True, keepdim=True)
        return (x - mean) / paddle.sqrt(deviation + self._epsilon) * self.weight + self.bias


class EpsilonOutside(nn.LayerNorm):
    """Adds epsilon to the deviation, not to the variance."""

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        deviation = paddle.sqrt(x.var(-1, unbiased=False, keepdim=True))
        return (x - mean) / (deviation + 1e-3) * self.weight + self.bias
