"""A net small enough for tests, in torch: conv, BatchNorm, a square Linear and a head, on 16x16 images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn


class Tiny(nn.Module):
    def __init__(self, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4)
        )
        self.square = nn.Linear(128, 128)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(128, num_classes)

    def forward(self, image):
        hidden = torch.flatten(self.features(image), 1)
        return self.head(self.dropout(torch.relu(self.square(hidden))))


def build_model(num_classes=10, dropout=0.5):
    return Tiny(num_classes, dropout)


def build_loss():
    return nn.CrossEntropyLoss()


def build_optimizer(parameters, learning_rate, momentum=0.9, weight_decay=1e-4):
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)


def build_scheduler(optimizer, step_size, gamma):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=step_size, gamma=gamma)


def resize(image):
    return image.resize((16, 16), Image.Resampling.BILINEAR)


def normalize(image):
    return (torch.from_numpy(np.array(image)).permute(2, 0, 1).to(torch.float32) / 255 - 0.5).contiguous()


class Folder(torch.utils.data.Dataset):
    def __init__(self, root: Path, split: str) -> None:
        self.root = root
        self.classes = sorted(path.name for path in (root / split).iterdir() if path.is_dir())
        self.samples = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((root / split / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        path, label = self.samples[index]
        return normalize(resize(self.read(index))), label, path.relative_to(self.root).as_posix()

    def read(self, index: int):
        with Image.open(self.samples[index][0]) as file:
            return file.convert("RGB")


def build_dataset(root, split):
    return Folder(Path(root), split)


def build_loader(dataset, batch_size, seed, epoch):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, drop_last=True, generator=generator)


def build_augmentation(root, seed):
    folder = Folder(Path(root), "train")

    def draw(number):
        share, flip = float(torch.empty(()).uniform_(0.08, 1)), bool(torch.rand(()) < 0.5)
        size = max(1, round(16 * share**0.5))
        left, top = (int(torch.randint(17 - size, ())) for _ in range(2))
        part = folder[number][0][:, top : top + size, left : left + size]
        return part.flip(-1) if flip else part, {"share": share, "flip": flip, "corner": (left, top)}

    return draw


def build_metric():
    def metric(output, label):
        hits = output.topk(min(5, output.shape[1]), dim=1).indices == label.reshape(-1, 1)
        top1, top5 = hits[:, 0].sum().item(), hits.sum().item()
        by_class = [hits[label == one, 0].double().mean().item() for one in label.unique()]
        return {
            "acc_top1": 100 * top1 / len(hits),
            "acc_top5": 100 * top5 / len(hits),
            "mean_class_accuracy": 100 * sum(by_class) / len(by_class),
        }

    return metric
