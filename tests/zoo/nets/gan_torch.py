"""A small StyleGAN2: weights that a style modulates, blurred upsampling, a critic that sees the spread of its batch."""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WIDTH, LATENT = 8, 6


class Equal(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.weight / math.sqrt(self.weight.shape[1]), self.bias)


def activate(x):
    return F.leaky_relu(x, 0.2) * math.sqrt(2)


class Mapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = Equal(LATENT, WIDTH)
        self.fc2 = Equal(WIDTH, WIDTH)
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        w = activate(self.fc2(activate(self.fc1(z))))
        if self.training:
            with torch.no_grad():
                self.average.copy_(w.mean(0).lerp(self.average, 0.9))
        return w


class Modulated(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.style = Equal(WIDTH, inputs)
        self.weight = nn.Parameter(torch.randn(1, outputs, inputs, 3, 3))

    def forward(self, x, w):
        size, channels, height, width = x.shape
        outputs = self.weight.shape[1]
        style = self.style(w).view(size, 1, channels, 1, 1) + 1
        weight = self.weight * style / math.sqrt(9 * channels)
        weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        weight = weight.view(size * outputs, channels, 3, 3)
        y = F.conv2d(x.reshape(1, size * channels, height, width), weight, padding=1, groups=size)
        return y.view(size, outputs, height, width)


class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        kernel = torch.tensor([1.0, 3.0, 2.0])
        kernel = kernel[:, None] * kernel[None]
        self.register_buffer("kernel", kernel / kernel.sum())

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        kernel = self.kernel.expand(self.channels, 1, 3, 3)
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), kernel, groups=self.channels)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.constant = nn.Parameter(torch.randn(1, 6, 2, 2))
        self.first = Modulated(6, 8)
        self.up = Upsample(8)
        self.second = Modulated(8, 8)
        self.register_buffer("noise", torch.randn(1, 1, 4, 4))
        self.strength = nn.Parameter(torch.zeros(1))
        self.paint = nn.Conv2d(8, 12, 1)

    def forward(self, w):
        x = activate(self.first(self.constant.repeat(w.shape[0], 1, 1, 1), w))
        x = self.second(self.up(x), w) + self.noise * self.strength
        return torch.tanh(F.pixel_shuffle(self.paint(activate(x)), 2))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(9, 8, 3, padding=1)
        self.fc = Equal(8 * 16, 1)

    def forward(self, x):
        x = activate(self.conv2(activate(self.conv1(x))))
        size, channels, height, width = x.shape
        groups = x.view(2, size // 2, channels, height, width)
        spread = torch.sqrt(groups.var(0, unbiased=False) + 1e-8).mean([1, 2, 3], keepdim=True)
        spread = spread.repeat(2, 1, height, width)
        x = activate(self.conv3(torch.cat([x, spread], 1)))
        return self.fc(x.flatten(1)).squeeze(1)


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.mapping = Mapping()
        self.generator = Generator()
        self.critic = Critic()

    def forward(self, z, real):
        fake = self.generator(self.mapping(z))
        return fake, self.critic(fake), self.critic(real), self.critic(fake.detach())


def build():
    return Gan()


def batch(rng):
    return {
        "args": (
            rng.standard_normal((4, LATENT)).astype("float32"),
            rng.uniform(-1, 1, (4, 3, 8, 8)).astype("float32"),
        ),
        "labels": rng.uniform(-1, 1, (4, 3, 8, 8)).astype("float32"),
    }


def loss(outputs, labels):
    fake, judged, real, cut = outputs
    critic = F.relu(1 - real).mean() + F.relu(1 + cut).mean()
    return critic - judged.mean() + 10 * F.l1_loss(fake, labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.002, betas=(0.0, 0.99), eps=1e-8)


class Step:
    """The generator is followed by an average of itself."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0
        self.slow = {name: one.detach().clone() for name, one in model.generator.named_parameters()}

    def __call__(self, batch):
        value = loss(self.model(*batch["args"]), batch["labels"])
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()
        self.count += 1
        decay = min(0.9, (1 + self.count) / (10 + self.count))
        with torch.no_grad():
            for name, one in self.model.generator.named_parameters():
                self.slow[name].mul_(decay).add_(one, alpha=1 - decay)
        return value
