"""The reference: AlexNet in PyTorch, with its loss, optimizer, data and metric.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997;
layers in the order and with the names of torchvision's layout, so that its weight files fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tipchain.errors import DataError

MEAN = (0.485, 0.456, 0.406)
"""ImageNet's channel means (RGB, of values in [0, 1])."""
STD = (0.229, 0.224, 0.225)
"""ImageNet's channel standard deviations."""
SUFFIXES = frozenset((".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))


class AlexNet(nn.Module):
    """Maps images ``[n, 3, h, w]`` (h, w >= 63) to logits ``[n, num_classes]``."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, num_classes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of ``image``."""
        pooled = self.avgpool(self.features(image))
        logits: Tensor = self.classifier(torch.flatten(pooled, 1))
        return logits


def build_model(num_classes: int = 1000, dropout: float = 0.5) -> nn.Module:
    """Return AlexNet with torch's default initialization."""
    return AlexNet(num_classes, dropout)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels."""
    return nn.CrossEntropyLoss()


def build_optimizer(
    parameters: Iterable[Tensor], learning_rate: float, momentum: float = 0.9, weight_decay: float = 1e-4
) -> torch.optim.Optimizer:
    """Return SGD with momentum; ``weight_decay`` is added to the gradient (L2)."""
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)


def build_scheduler(
    optimizer: torch.optim.Optimizer, step_size: int, gamma: float
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule that multiplies the rate by ``gamma`` at every ``step_size``-th step."""
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=step_size, gamma=gamma)


def resize_short_side(image: Image.Image, size: int) -> Image.Image:
    """Scale ``image`` bilinearly so that its shorter side is ``size``."""
    width, height = image.size
    short = min(width, height)
    scaled = (int(size * width / short), int(size * height / short))
    return image.resize(scaled, Image.Resampling.BILINEAR)


def crop_centre(image: Image.Image, size: int) -> Image.Image:
    """Cut the square of ``size`` from the middle of ``image``."""
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def to_normalized_tensor(image: Image.Image) -> Tensor:
    """Return ``(image / 255 - MEAN) / STD`` as float32 ``[3, h, w]``."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).to(torch.float32)
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))
    return ((pixels / 255 - mean) / std).contiguous()


def transform_image(image: Image.Image) -> Tensor:
    """Return an RGB image as the model's input, float32 ``[3, 224, 224]``."""
    return to_normalized_tensor(crop_centre(resize_short_side(image, 256), 224))


class ImageFolder(torch.utils.data.Dataset[tuple[Tensor, int, str]]):
    """Images of ``folder/split/<class>/``; labels number the sorted class names.

    Raises:
        DataError: the split, its class folders or their images are missing.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        base = folder / split
        if not base.is_dir():
            raise DataError(
                "is missing",
                file=base,
                expected="class folders with images",
                hint="bash prepare.sh PARAMS MODE makes it",
            )
        self.classes = tuple(sorted(entry.name for entry in base.iterdir() if entry.is_dir()))
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((base / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        if not self.samples:
            raise DataError("has no images in class folders", file=base)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        path, label = self.samples[index]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except (OSError, Image.DecompressionBombError) as error:
            raise DataError("cannot be read as an image", file=path, found=error) from error
        return transform_image(image), label, path.relative_to(self.folder).as_posix()


def build_dataset(root: str | Path, split: str) -> ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 224, 224]``, label, file name)."""
    return ImageFolder(Path(root), split)


def measure_accuracy(output: Tensor, label: Tensor) -> dict[str, float]:
    """Return top-1 and top-5 accuracy in percent of logits ``[n, c]``; top-c where c < 5."""
    ranked = output.topk(min(5, output.shape[1]), dim=1).indices
    hits = ranked == label.reshape(-1, 1)
    return {
        "acc_top1": 100.0 * hits[:, :1].sum().item() / len(hits),
        "acc_top5": 100.0 * hits.sum().item() / len(hits),
    }


def build_metric() -> Callable[[Any, Any], dict[str, float]]:
    """Return `measure_accuracy`."""
    return measure_accuracy
