"""A vision Transformer with biases of relative positions, layer scale and mean pooling."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F  # noqa: N812

WIDTH, HEADS, ROWS, COLUMNS, CLASSES = 16, 2, 3, 4, 7


def relative_index():
    rows, columns = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    places = np.stack([rows.ravel(), columns.ravel()])
    apart = (places[:, :, None] - places[:, None, :]).transpose(1, 2, 0) + np.array([ROWS - 1, COLUMNS - 1])
    count = (2 * ROWS - 1) * (2 * COLUMNS - 1)
    index = np.zeros((ROWS * COLUMNS + 1, ROWS * COLUMNS + 1), "int64")
    index[1:, 1:] = apart[..., 0] * (2 * COLUMNS - 1) + apart[..., 1]
    index[0, :], index[:, 0], index[0, 0] = count, count + 1, count + 2
    return index, count + 3


class Attention(nn.Module):
    def __init__(self, attention_dropout=0.0):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(WIDTH))
        self.v_bias = nn.Parameter(torch.zeros(WIDTH))
        index, count = relative_index()
        self.table = nn.Parameter(torch.randn(count, HEADS))
        self.register_buffer("index", torch.from_numpy(index), persistent=False)
        self.drop = nn.Dropout(attention_dropout)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        size, count, _ = x.shape
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias), self.v_bias])
        qkv = F.linear(x, self.qkv.weight, bias).reshape(size, count, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * (WIDTH // HEADS) ** -0.5, qkv[1], qkv[2]
        scores = q @ k.transpose(-2, -1)
        near = self.table[self.index.reshape(-1)].reshape(count, count, HEADS).permute(2, 0, 1)
        weights = self.drop((scores + near[None]).softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(size, count, WIDTH))


class Block(nn.Module):
    def __init__(self, attention_dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = Attention(attention_dropout)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.gamma_1 = nn.Parameter(0.3 * torch.ones(WIDTH))
        self.gamma_2 = nn.Parameter(0.3 * torch.ones(WIDTH))

    def forward(self, x):
        x = x + self.gamma_1 * self.attention(self.norm1(x))
        return x + self.gamma_2 * self.fc2(self.act(self.fc1(self.norm2(x))))


class Beit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.blocks = nn.ModuleList([Block(0.2) for _ in range(2)])
        self.fc_norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x[:, 1:].mean(1)))


def build():
    return Beit()


def batch(rng):
    return {
        "args": (rng.standard_normal((4, 3, 4 * ROWS, 4 * COLUMNS)).astype("float32"),),
        "labels": rng.integers(0, CLASSES, 4).astype("int64"),
    }


def loss(outputs, labels):
    return F.cross_entropy(outputs, labels, label_smoothing=0.1)


def optimizer(parameters):
    decayed = [one for one in parameters if one.ndim > 1]
    kept = [one for one in parameters if one.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.5}, {"params": kept, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.999)
    )


def scheduler(built):
    warm = torch.optim.lr_scheduler.LinearLR(built, start_factor=0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(built, T_max=6, eta_min=1e-5)
    return torch.optim.lr_scheduler.SequentialLR(built, [warm, cosine], milestones=[2])


MEAN, STD = np.array([0.485, 0.456, 0.406], "float32"), np.array([0.229, 0.224, 0.225], "float32")


def transform(image):
    image = Image.fromarray(image)
    width, height = image.size
    scale = 16 / min(width, height)
    image = image.resize((round(width * scale), round(height * scale)), Image.BICUBIC)
    left, top = (image.size[0] - 14) // 2, (image.size[1] - 14) // 2
    image = np.asarray(image.crop((left, top, left + 14, top + 14)), "float32") / 255
    return ((image - MEAN) / STD).transpose(2, 0, 1)


def samples():
    rng = np.random.default_rng(12)
    images = []
    for size in ((24, 30), (40, 28)):
        waves = np.sin(np.linspace(0, 6, size[0]))[:, None, None] * np.cos(np.linspace(0, 9, size[1]))[None, :, None]
        images.append((127 + 90 * waves + 20 * rng.random((*size, 3))).astype("uint8"))
    return images


def metric(outputs, labels):
    order, labels = np.argsort(-np.asarray(outputs), -1), np.asarray(labels)[:, None]
    return {
        "acc1": float((order[:, :1] == labels).any(1).mean()),
        "acc5": float((order[:, :5] == labels).any(1).mean()),
    }
