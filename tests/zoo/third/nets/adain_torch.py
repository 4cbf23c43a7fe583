"""One picture in another's style, by the statistics of its features."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def statistics(x, eps=1e-5):
    return x.mean(dim=(2, 3), keepdim=True), (x.var(dim=(2, 3), keepdim=True) + eps).sqrt()


class ReflectConv(nn.Module):
    def __init__(self, inner, outer, kernel, stride=1):
        super().__init__()
        self.pad = nn.ReflectionPad2d(kernel // 2)
        self.conv = nn.Conv2d(inner, outer, kernel, stride)

    def forward(self, x):
        return self.conv(self.pad(x))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = ReflectConv(width, width, 3)
        self.in1 = nn.InstanceNorm2d(width, affine=True)
        self.conv2 = ReflectConv(width, width, 3)
        self.in2 = nn.InstanceNorm2d(width, affine=True)

    def forward(self, x):
        y = F.relu(self.in1(self.conv1(x)))
        return x + self.in2(self.conv2(y))


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = ReflectConv(3, width, 5)
        self.conv2 = ReflectConv(width, 2 * width, 3, stride=2)
        self.conv3 = ReflectConv(2 * width, 2 * width, 3)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.conv3(F.max_pool2d(x, 2, ceil_mode=True))


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.res = Residual(2 * width)
        self.conv1 = ReflectConv(2 * width, width, 3)
        self.norm = nn.InstanceNorm2d(width, affine=True)
        self.act = nn.PReLU(width)
        self.conv2 = ReflectConv(width, width // 2 * 4, 3)
        self.out = ReflectConv(width // 2, 3, 5)

    def forward(self, x):
        x = self.res(x)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.act(self.norm(self.conv1(x)))
        x = F.pixel_shuffle(self.conv2(x), 2)
        return 150 * torch.tanh(self.out(x)) + 255 / 2


class StyleNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.encoder = Encoder(width)
        self.decoder = Decoder(width)

    def forward(self, content, style, alpha):
        c, s = self.encoder(content), self.encoder(style)
        mean_c, std_c = statistics(c)
        mean_s, std_s = statistics(s)
        t = (c - mean_c) / std_c * std_s + mean_s
        t = alpha[:, None, None, None] * t + (1 - alpha[:, None, None, None]) * c
        return self.decoder(t), t, s


def build():
    return StyleNet()


def batch(rng):
    return {
        "args": (
            rng.normal(size=(2, 3, 15, 18)).astype("float32"),
            rng.normal(size=(2, 3, 15, 18)).astype("float32"),
            rng.uniform(0.4, 0.9, size=(2,)).astype("float32"),
        ),
        "labels": rng.uniform(0, 255, size=(2, 3, 16, 20)).astype("float32"),
    }


def gram(x):
    n, c, h, w = x.shape
    flat = x.reshape(n, c, h * w)
    return flat @ flat.transpose(1, 2) / (c * h * w)


def loss(output, labels):
    picture, target, style = output
    smooth = (picture[..., 1:] - picture[..., :-1]).abs().mean() + (
        picture[..., 1:, :] - picture[..., :-1, :]
    ).abs().mean()
    content = F.smooth_l1_loss(picture, labels, beta=2.0)
    return content + 10 * F.mse_loss(gram(target), gram(style), reduction="sum") + 0.1 * smooth


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.8)


def scheduler(opt):
    return torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + 0.05 * step))
