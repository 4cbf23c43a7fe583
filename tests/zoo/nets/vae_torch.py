"""A convolutional variational autoencoder; the noise is an input."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

LATENT = 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 4, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 4, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 2 * 4, 2 * LATENT)

    def forward(self, x):
        x = F.leaky_relu(self.bn1(self.conv1(x)), 0.01)
        x = F.leaky_relu(self.bn2(self.conv2(x)), 0.01)
        mean, logvar = self.fc(x.flatten(1)).chunk(2, -1)
        return mean, logvar.clamp(-6.0, 4.0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(LATENT, LATENT)
        self.fc = nn.Linear(LATENT, 8 * 2 * 4)
        self.up1 = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.up2 = nn.ConvTranspose2d(6, 6, 4, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(6)
        self.out = nn.Conv2d(6, 1, 3, padding=1)

    def forward(self, z):
        x = self.fc(F.elu(self.mix(z))).view(-1, 8, 2, 4)
        x = F.leaky_relu(self.bn1(self.up1(x)), 0.01)
        return self.out(F.leaky_relu(self.bn2(self.up2(x)), 0.01))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, x, noise):
        mean, logvar = self.encoder(x)
        z = mean + noise * torch.exp(0.5 * logvar)
        return self.decoder(z), mean, logvar


def build():
    return VAE()


def batch(rng):
    x = rng.random((3, 1, 8, 16)).astype("float32")
    return {"args": (x, rng.standard_normal((3, LATENT)).astype("float32")), "labels": x.copy()}


def loss(outputs, labels):
    scores, mean, logvar = outputs
    entropy = F.binary_cross_entropy_with_logits(scores, labels, reduction="none").sum((1, 2, 3)).mean()
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1)
    return entropy + 0.25 * divergence.clamp(min=0.5).mean()


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=5e-4, weight_decay=1e-2)


def scheduler(built):
    return torch.optim.lr_scheduler.StepLR(built, step_size=2, gamma=0.5)


def transform(image):
    image = image.astype("float32") / 255
    return (image >= 0.5).astype("float32")[None]


def samples():
    rng = np.random.default_rng(14)
    images = rng.integers(0, 256, (3, 8, 16), dtype="uint8")
    images[:, 0, :8] = 128
    return list(images)
