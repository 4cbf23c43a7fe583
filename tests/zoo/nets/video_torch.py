"""The next frame of a film: convolutional memory with peepholes, a flow, and the last frame moved along it."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class ConvLstmCell(nn.Module):
    def __init__(self, inner, width, size):
        super().__init__()
        self.width = width
        self.gates = nn.Conv2d(inner + width, 4 * width, 3, padding=1)
        self.peep = nn.Parameter(0.3 * torch.randn(3, width, size, size))

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        i = torch.sigmoid(i + self.peep[0] * c)
        f = torch.sigmoid(f + self.peep[1] * c + 1.0)
        c = f * c + i * torch.tanh(g)
        o = torch.sigmoid(o + self.peep[2] * c)
        return o * torch.tanh(c), c


class Warp(nn.Module):
    def forward(self, image, flow):
        """``flow``: (batch, 2, h, w) in pixels, x before y."""
        h, w = image.shape[2:]
        ys, xs = torch.meshgrid(torch.arange(h, dtype=image.dtype), torch.arange(w, dtype=image.dtype), indexing="ij")
        x = (xs + flow[:, 0]) * 2 / (w - 1) - 1
        y = (ys + flow[:, 1]) * 2 / (h - 1) - 1
        return F.grid_sample(image, torch.stack([x, y], dim=-1), padding_mode="border", align_corners=True)


class VideoNet(nn.Module):
    def __init__(self, width=6, size=8):
        super().__init__()
        self.size = size
        self.embed = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.cells = nn.ModuleList([ConvLstmCell(width, width, size), ConvLstmCell(width, width, size)])
        self.drop = nn.Dropout2d(0.2)
        self.flow = nn.ConvTranspose2d(width, 2, 2, stride=2)
        self.mask = nn.Conv2d(width, 1, 1)
        self.fill = nn.Conv2d(width, 3, 3, padding=1)
        self.warp = Warp()

    def forward(self, frames):
        """``frames``: (batch, time, 3, h, w)."""
        n, length = frames.shape[:2]
        states = [(frames.new_zeros(n, cell.width, self.size, self.size),) * 2 for cell in self.cells]
        for t in range(length):
            x = F.gelu(self.norm(self.embed(frames[:, t])), approximate="tanh")
            for number, cell in enumerate(self.cells):
                states[number] = cell(x, states[number])
                x = states[number][0]
        x = self.drop(x)
        flow = 2 * torch.tanh(self.flow(x))
        moved = self.warp(frames[:, -1], flow)
        share = torch.sigmoid(self.mask(x))
        up = F.interpolate(
            torch.cat([share, self.fill(x)], dim=1), scale_factor=2, mode="bilinear", align_corners=False
        )
        return up[:, :1] * moved + (1 - up[:, :1]) * up[:, 1:], flow


def build():
    return VideoNet()


def batch(rng):
    return {
        "args": (rng.normal(size=(2, 3, 3, 16, 16)).astype("float32"),),
        "labels": rng.normal(size=(2, 3, 16, 16)).astype("float32"),
    }


def loss(output, labels):
    """Charbonnier's distance, and small steps of the flow."""
    picture, flow = output
    near = ((picture - labels) ** 2 + 1e-6).sqrt().mean()
    return near + 0.05 * flow.diff(dim=-1).abs().sum(dim=1).mean()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.01)


def scheduler(opt):
    return torch.optim.lr_scheduler.LinearLR(opt, start_factor=0.25, total_iters=3)
