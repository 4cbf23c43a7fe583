"""A classifier of small photographs in torch, with all that its training is made of."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

HERE = Path(__file__).resolve().parent / "photographs"
MEAN, STD = (torch.tensor(one).reshape(3, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
BILINEAR = Image.Resampling.BILINEAR


class Net(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv = nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=2, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.token = nn.Parameter(torch.zeros(1, 32))
        self.fc = nn.Linear(32, 128)
        self.norm = nn.LayerNorm(128)
        self.head = nn.Linear(128, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        nn.init.trunc_normal_(self.token, std=0.02)
        nn.init.trunc_normal_(self.fc.weight, std=0.02)
        nn.init.zeros_(self.fc.bias)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, image):
        hidden = torch.relu(self.bn1(self.stem(image)))
        hidden = torch.relu(self.bn2(self.conv(hidden))) + hidden.mean((1, 2, 3), keepdim=True)
        hidden = hidden.mean((2, 3)) + self.token
        return self.head(self.norm(nn.functional.gelu(self.fc(hidden))))


def build_model(num_classes=5):
    return Net(num_classes)


def build_loss():
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def build_optimizer(parameters, learning_rate, weight_decay, clip):
    parameters = list(parameters)
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": weight_decay},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return Clipped(groups, lr=learning_rate, betas=(0.9, 0.95), eps=1e-6, limit=clip)


class Clipped(torch.optim.AdamW):
    def __init__(self, groups, *, limit, **arguments) -> None:
        super().__init__(groups, **arguments)
        self.limit = limit

    def step(self, closure=None):
        nn.utils.clip_grad_norm_([one for group in self.param_groups for one in group["params"]], self.limit)
        return super().step(closure)


def build_scheduler(optimizer, total_steps, warmup_steps):
    def factor(step):
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def resize(image):
    wide, high = image.size
    size = (24, int(24 * high / wide)) if wide < high else (int(24 * wide / high), 24)
    return image.resize(size, BILINEAR)


def crop(image):
    wide, high = image.size
    left, top = round((wide - 20) / 2), round((high - 20) / 2)
    return image.crop((left, top, left + 20, top + 20))


def normalize(image):
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32) / 255
    return ((pixels - MEAN) / STD).contiguous()


class Folder(torch.utils.data.Dataset):
    def __init__(self, split: str) -> None:
        self.classes = sorted(path.name for path in (HERE / split).iterdir())
        self.samples = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((HERE / split / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int):
        with Image.open(self.samples[index][0]) as file:
            return file.convert("RGB")

    def __getitem__(self, index: int):
        path, label = self.samples[index]
        return normalize(crop(resize(self.read(index)))), label, path.name


def build_dataset(root, split):
    return Folder(split)


def build_loader(dataset, batch_size, seed, epoch):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, drop_last=True, generator=generator)


def build_augmentation(root, seed):
    folder = Folder("train")

    def draw(number):
        image = folder.read(number)
        wide, high = image.size
        for _ in range(10):
            area = wide * high * float(torch.empty(1).uniform_(0.35, 1.0))
            ratio = math.exp(float(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= wide and 0 < height <= high:
                top = int(torch.randint(0, high - height + 1, (1,)))
                left = int(torch.randint(0, wide - width + 1, (1,)))
                break
        else:
            left, top, width, height = 0, 0, wide, high
        image = image.resize((20, 20), BILINEAR, box=(left, top, left + width, top + height))
        flip = bool(torch.rand(1) < 0.5)
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return normalize(image), {"box": (left, top, width, height), "flip": flip}

    return draw


class Accuracy:
    def __init__(self) -> None:
        self.hits, self.hits3, self.count = 0, 0, 0

    def update(self, output, label):
        found = output.topk(3, dim=1).indices == label.reshape(-1, 1)
        self.hits += int(found[:, 0].sum())
        self.hits3 += int(found.sum())
        self.count += len(label)

    def compute(self):
        return {"acc_top1": 100 * self.hits / self.count, "acc_top3": 100 * self.hits3 / self.count}


def build_metric():
    return Accuracy()
