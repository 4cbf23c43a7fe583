"""An autoencoder through a codebook that follows what it is used for."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width // 2, 3, padding=1)
        self.conv2 = nn.Conv2d(width // 2, width, 1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class Codebook(nn.Module):
    def __init__(self, size, width, decay=0.9, eps=1e-3):
        super().__init__()
        self.decay, self.eps = decay, eps
        embed = 0.2 * torch.randn(size, width)
        self.register_buffer("embed", embed)
        self.register_buffer("count", torch.ones(size))
        self.register_buffer("total", embed.clone())

    def forward(self, x):
        """``x``: (batch, h, w, width)."""
        flat = x.reshape(-1, x.shape[-1])
        far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed.T + self.embed.pow(2).sum(1)
        index = far.argmin(1)
        hot = F.one_hot(index, self.embed.shape[0]).to(flat.dtype)
        quantized = self.embed[index].view_as(x)
        if self.training:
            with torch.no_grad():
                self.count.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
                self.total.mul_(self.decay).add_(hot.T @ flat, alpha=1 - self.decay)
                n = self.count.sum()
                size = (self.count + self.eps) / (n + self.count.shape[0] * self.eps) * n
                self.embed.copy_(self.total / size[:, None])
        commit = F.mse_loss(x, quantized.detach())
        share = hot.mean(0)
        perplexity = torch.exp(-(share * (share + 1e-10).log()).sum())
        return x + (quantized - x).detach(), commit, perplexity


class Vqvae(nn.Module):
    def __init__(self, width=12, codes=16, depth=6):
        super().__init__()
        self.enc1 = nn.Conv2d(3, width // 2, 4, stride=2, padding=1)
        self.enc2 = nn.Conv2d(width // 2, width, 4, stride=2, padding=1)
        self.enc_res = nn.ModuleList([Residual(width), Residual(width)])
        self.pre = nn.Conv2d(width, depth, 1)
        self.book = Codebook(codes, depth)
        self.post = nn.Conv2d(depth, width, 3, padding=1)
        self.dec_res = nn.ModuleList([Residual(width), Residual(width)])
        self.norm = nn.GroupNorm(3, width, eps=1e-6)
        self.up1 = nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(width // 2, 3, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        h = self.enc2(F.relu(self.enc1(x)))
        for block in self.enc_res:
            h = block(h)
        z = self.pre(F.relu(h)).permute(0, 2, 3, 1)
        z, commit, perplexity = self.book(z)
        h = self.post(z.permute(0, 3, 1, 2))
        for block in self.dec_res:
            h = block(h)
        h = F.relu(self.up1(F.silu(self.norm(h))))
        return torch.tanh(self.up2(h)), commit, perplexity


def build():
    return Vqvae()


def batch(rng):
    x = rng.normal(size=(2, 3, 16, 16)).astype("float32")
    return {"args": (x,), "labels": x}


def loss(output, labels):
    picture, commit, _ = output
    return F.mse_loss(picture, labels) / 0.3 + 0.25 * commit


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)
