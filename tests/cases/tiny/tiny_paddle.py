"""A net small enough for tests, in Paddle: conv, BatchNorm, a square Linear and a head, on 16x16 images."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from PIL import Image

from tipchain.errors import DataError
from tipchain.pairs.paddle_initializers import like_torch


class Tiny(nn.Layer):
    def __init__(self, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU(), nn.MaxPool2D(4)
        )
        self.square = nn.Linear(128, 128)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(128, num_classes)

    def forward(self, image):
        hidden = paddle.flatten(self.features(image), 1)
        return self.head(self.dropout(nn.functional.relu(self.square(hidden))))


class NanTiny(Tiny):
    def forward(self, image):
        return super().forward(image) * float("nan")


def build_model(num_classes=10, dropout=0.5):
    return like_torch(Tiny(num_classes, dropout))


def build_nan_model(num_classes=10, dropout=0.5):
    return NanTiny(num_classes, dropout)


def build_loss():
    return nn.CrossEntropyLoss()


def build_optimizer(parameters, learning_rate, momentum=0.9, weight_decay=1e-4):
    return paddle.optimizer.Momentum(learning_rate, momentum=momentum, parameters=parameters, weight_decay=weight_decay)


def build_scheduler(optimizer, learning_rate, step_size, gamma):
    assert optimizer is None
    return paddle.optimizer.lr.StepDecay(learning_rate, step_size=step_size, gamma=gamma)


def resize(image):
    return image.resize((16, 16), Image.Resampling.BILINEAR)


def normalize(image):
    pixels = np.asarray(image, dtype=np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / np.float32(255) - np.float32(0.5)


def build_transform():
    return lambda image: normalize(resize(image))


class Folder(paddle.io.Dataset):
    def __init__(self, root: Path, split: str) -> None:
        super().__init__()
        if not (root / split).is_dir():
            raise DataError("is missing", file=root / split)
        self.root, self.transform = root, build_transform()
        self.classes = sorted(path.name for path in (root / split).iterdir() if path.is_dir())
        self.samples = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((root / split / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        path, label = self.samples[index]
        return self.transform(self.read(index)), label, path.relative_to(self.root).as_posix()

    def read(self, index: int):
        with Image.open(self.samples[index][0]) as file:
            return file.convert("RGB")


def build_dataset(root, split):
    return Folder(Path(root), split)


def build_loader(dataset, batch_size, seed, epoch):
    sampler = paddle.io.DistributedBatchSampler(dataset, batch_size, 1, 0, shuffle=True, drop_last=True)
    sampler.set_epoch(1000 * seed + epoch)
    return paddle.io.DataLoader(dataset, batch_sampler=sampler)


def build_augmentation(root, seed):
    folder = Folder(Path(root), "train")

    def draw(number):
        share, flip = random.uniform(0.08, 1), random.random() < 0.5
        size = max(1, round(16 * share**0.5))
        left, top = (random.randint(0, 16 - size) for _ in range(2))
        part = folder[number][0][:, top : top + size, left : left + size]
        return part[..., ::-1] if flip else part, {"share": share, "flip": flip, "corner": (left, top)}

    return draw


def build_metric():
    def metric(output, label):
        hits = (paddle.topk(output, min(5, output.shape[1]), axis=1)[1] == label.reshape([-1, 1])).numpy()
        top1, top5 = int(hits[:, 0].sum()), int(hits.sum())
        classes = label.numpy()
        by_class = [hits[classes == one, 0].mean() for one in np.unique(classes)]
        return {
            "acc_top1": 100 * top1 / len(hits),
            "acc_top5": 100 * top5 / len(hits),
            "mean_class_accuracy": 100 * sum(by_class) / len(by_class),
        }

    return metric
