import math

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

WIDTH, STEPS = 8, 50


def embed_time(steps, width, dtype):
    half = width // 2
    rate = paddle.exp(-math.log(10000) * paddle.arange(half, dtype=dtype) / half)
    angle = steps.unsqueeze(1).astype(dtype) * rate.unsqueeze(0)
    return paddle.concat([angle.cos(), angle.sin()], -1)


class Residual(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inputs, epsilon=1e-6)
        self.conv1 = nn.Conv2D(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, outputs)
        self.norm2 = nn.GroupNorm(4, outputs, epsilon=1e-6)
        self.dropout = nn.Dropout(0.1)
        self.conv2 = nn.Conv2D(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2D(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time)).unsqueeze([2, 3])
        y = self.conv2(self.dropout(F.silu(self.norm2(y))))
        return self.skip(x) + y


class Attention(nn.Layer):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels, epsilon=1e-6)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        size, channels = x.shape[:2]
        y = self.norm(x).flatten(2).transpose([0, 2, 1])
        y = self.qkv(y).reshape([size, -1, 3, self.heads, channels // self.heads]).transpose([2, 0, 3, 1, 4])
        weight = F.softmax(paddle.matmul(y[0], y[1], transpose_y=True) * (channels // self.heads) ** -0.5, -1)
        y = paddle.matmul(weight, y[2]).transpose([0, 2, 1, 3]).reshape([size, -1, channels])
        return x + self.out(y).transpose([0, 2, 1]).reshape(x.shape)


class Down(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2D(channels, channels, 3, stride=2)

    def forward(self, x):
        return self.conv(F.pad(x, [0, 1, 0, 1]))


class Up(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2D(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Denoiser(nn.Layer):
    def __init__(self):
        super().__init__()
        betas = np.linspace(0.00085**0.5, 0.012**0.5, STEPS) ** 2
        self.register_buffer("kept", paddle.to_tensor(np.cumprod(1 - betas), dtype="float32"), persistable=False)
        self.time1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.time2 = nn.Linear(4 * WIDTH, 4 * WIDTH)
        self.conv_in = nn.Conv2D(3, WIDTH, 3, padding=1)
        self.block1 = Residual(WIDTH, WIDTH)
        self.down = Down(WIDTH)
        self.middle = Residual(WIDTH, 2 * WIDTH)
        self.attention = Attention(2 * WIDTH, 2)
        self.up = Up(2 * WIDTH)
        self.block2 = Residual(3 * WIDTH, WIDTH)
        self.block3 = Residual(2 * WIDTH, WIDTH)
        self.norm_out = nn.GroupNorm(4, WIDTH, epsilon=1e-6)
        self.conv_out = nn.Conv2D(WIDTH, 3, 3, padding=1)

    def forward(self, x, noise, steps):
        kept = self.kept[steps].reshape([-1, 1, 1, 1])
        x = kept.sqrt() * x + (1 - kept).sqrt() * noise
        time = embed_time(steps, WIDTH, x.dtype)
        time = self.time2(F.silu(self.time1(time)))
        skips = [self.conv_in(x)]
        skips.append(self.block1(skips[-1], time))
        y = self.attention(self.middle(self.down(skips[-1]), time))
        y = self.block2(paddle.concat([self.up(y), skips.pop()], 1), time)
        y = self.block3(paddle.concat([y, skips.pop()], 1), time)
        return self.conv_out(F.silu(self.norm_out(y)))


def build():
    return Denoiser()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    noise, ratio = labels
    weight = ratio.clip(max=5.0) / ratio
    return (weight * F.mse_loss(outputs, noise, reduction="none").mean([1, 2, 3])).mean()


def optimizer(parameters, rate=1e-3):
    return paddle.optimizer.AdamW(rate, beta1=0.9, beta2=0.95, parameters=parameters, weight_decay=0.1, epsilon=1e-8)


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(1e-3, lambda step: min(1.0, step / 3))


def transform(image):
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    image = image[top : top + side, left : left + side].astype("float32")
    image = image[:, ::-1] * (2 / 255) - 1
    return np.ascontiguousarray(image.transpose(2, 0, 1))
