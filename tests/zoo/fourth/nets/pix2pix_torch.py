"""An image translator: a generator of residual blocks and the critic of its result."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pad1 = nn.ReflectionPad2d(1)
        self.conv1 = nn.Conv2d(channels, channels, 3)
        self.norm1 = nn.InstanceNorm2d(channels)
        self.pad2 = nn.ReflectionPad2d(1)
        self.conv2 = nn.Conv2d(channels, channels, 3)
        self.norm2 = nn.InstanceNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(self.pad1(x))))
        return x + self.norm2(self.conv2(self.pad2(y)))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.InstanceNorm2d(12), nn.ReLU())
        self.blocks = nn.Sequential(Residual(12), Residual(12))
        self.up = nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1, output_padding=1)
        self.up_norm = nn.InstanceNorm2d(8)
        self.tail_pad = nn.ReflectionPad2d(2)
        self.tail = nn.Conv2d(8, 3, 5)

    def forward(self, x):
        x = self.blocks(self.down(self.head(x)))
        x = F.relu(self.up_norm(self.up(x)))
        return torch.tanh(self.tail(self.tail_pad(x)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(6, 8, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 4, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(12)
        self.conv3 = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x, y):
        x = F.leaky_relu(self.conv1(torch.cat([x, y], 1)), 0.2)
        x = F.leaky_relu(self.norm(self.conv2(x)), 0.2)
        return self.conv3(x)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.critic = Critic()

    def forward(self, x):
        fake = self.generator(x)
        return fake, self.critic(x, fake)


def build():
    return Translator()


def batch(rng):
    return {
        "args": (rng.uniform(-1, 1, (2, 3, 16, 16)).astype("float32"),),
        "labels": rng.uniform(-1, 1, (2, 3, 16, 16)).astype("float32"),
    }


def loss(outputs, labels):
    fake, verdict = outputs
    return F.mse_loss(verdict, torch.ones_like(verdict)) + 100.0 * F.l1_loss(fake, labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999))


def scheduler(built):
    return torch.optim.lr_scheduler.LambdaLR(built, lambda step: 1.0 - max(0, step + 1 - 2) / 6)


def transform(image):
    image = Image.fromarray(image).resize((20, 20), Image.BICUBIC).crop((2, 2, 18, 18))
    image = np.asarray(image, "float32").transpose(2, 0, 1)
    return image / 127.5 - 1.0


def samples():
    rng = np.random.default_rng(2)
    return [rng.integers(0, 256, (30, 26, 3), dtype="uint8") for _ in range(2)]
