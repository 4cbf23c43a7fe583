"""The reference's data: image folders, transforms and accuracies in PyTorch, for any input size."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tipchain.errors import DataError

MEAN = (123.675, 116.28, 103.53)
"""ImageNet's channel means (RGB, of values in [0, 255])."""
STD = (58.395, 57.12, 57.375)
"""ImageNet's channel standard deviations."""
SUFFIXES = frozenset((".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
CROP_AREA = (0.6, 1.0)
"""Share of the image that a random crop keeps: no digit loses so much that it looks like another."""
CROP_RATIO = (0.8, 1.25)
"""Width over height of a random crop."""
CROP_ATTEMPTS = 10

Transform = Callable[[Image.Image], Tensor]
Step = tuple[str, Callable[[Any], Any]]
Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels."""
Drawn = dict[str, float | Box]
"""What a random crop drew, by name."""


def build_transform(
    resize: int, crop: int, *, augment: bool = False, seen: Callable[[Box], None] | None = None
) -> Transform:
    """Return what makes an RGB image a model's input, float32 ``[3, crop, crop]``.

    Args:
        resize: length in pixels that the shorter side is scaled to.
        crop: height and width in pixels of the square cut out.
        augment: whether the square is a random part of the image, scaled to ``crop``, instead of its middle.
            There are no flips: a mirrored digit is no digit.
        seen: hears of the box of every random part.
    """
    random_crop = RandomResizedCrop(crop, CROP_AREA, CROP_RATIO, seen)

    def transform(image: Image.Image) -> Tensor:
        scaled = resize_short_side(image, resize)
        return to_normalized_tensor(random_crop(scaled) if augment else crop_centre(scaled, crop))

    return transform


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
    """Return ``(image - MEAN) / STD`` as float32 ``[3, h, w]``.

    In this order both sides round alike. Had the pixels been divided by 255 first, images would differ by one unit in
    the last place, and that alone moves the losses of a training step by more than all other rounding.
    """
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).to(torch.float32)
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))
    return ((pixels - mean) / std).contiguous()


class RandomResizedCrop:
    """Cuts a random part out of an image and scales it bilinearly to a square.

    The part's area is uniform in ``area`` (shares of the image's), the logarithm of its width over its height
    uniform in that of ``ratio``, its place uniform. A part that does not fit is drawn anew, at most
    `CROP_ATTEMPTS` times; then the largest part in the middle whose ratio is allowed stands in. Numbers come from
    torch's global generator. Source: Szegedy et al. 2014, "Going deeper with convolutions", arXiv 1409.4842.
    """

    def __init__(
        self,
        size: int,
        area: tuple[float, float],
        ratio: tuple[float, float],
        seen: Callable[[Box], None] | None = None,
    ) -> None:
        self.size, self.area, self.ratio, self.seen = size, area, ratio, seen

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the square."""
        left, top, width, height = box = self.draw_box(image.width, image.height)
        if self.seen is not None:
            self.seen(box)
        part = image.crop((left, top, left + width, top + height))
        return part.resize((self.size, self.size), Image.Resampling.BILINEAR)

    def draw_box(self, width: int, height: int) -> Box:
        """Return left, top, width and height, in pixels, of a part of an image of ``width`` x ``height``."""
        for _ in range(CROP_ATTEMPTS):
            area = width * height * _uniform(*self.area)
            ratio = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < high <= height:
                return _below(width - wide + 1), _below(height - high + 1), wide, high
        wide = min(width, round(height * self.ratio[1]))
        high = min(height, round(width / self.ratio[0]))
        return (width - wide) // 2, (height - high) // 2, wide, high


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand((), dtype=torch.float64).item()


def _below(stop: int) -> int:
    return int(torch.randint(stop, ()).item())


class ImageFolder(torch.utils.data.Dataset[tuple[Tensor, int, str]]):
    """Images of ``folder/split/<class>/`` as (image, label, file name); labels number the sorted class names.

    Raises:
        DataError: the split, its class folders or their images are missing.
    """

    def __init__(self, folder: Path, split: str, transform: Transform) -> None:
        self.folder, self.transform = folder, transform
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
        return self.transform(self.read(index)), label, path.relative_to(self.folder).as_posix()

    def read(self, index: int) -> Image.Image:
        """Return an image as it is before any transform, in RGB.

        Raises:
            DataError: the file is no image that can be read.
        """
        path = self.samples[index][0]
        try:
            with Image.open(path) as file:
                return file.convert("RGB")
        except (OSError, Image.DecompressionBombError) as error:
            raise DataError("cannot be read as an image", file=path, found=error) from error


def build_loader(
    dataset: torch.utils.data.Dataset[tuple[Tensor, int, str]], batch_size: int, seed: int, epoch: int
) -> torch.utils.data.DataLoader[tuple[Tensor, int, str]]:
    """Return the shuffled batches of one epoch; the order depends on ``seed`` and ``epoch`` alone."""
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
    return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, generator=generator)


def build_augmentation(root: str | Path, resize: int, crop: int) -> Callable[[int], tuple[Tensor, Drawn]]:
    """Return a function that cuts a training image anew, given its number, and tells what was drawn: `Drawn`.

    Args:
        root: folder of the splits.
        resize: length in pixels that the shorter side is scaled to.
        crop: height and width in pixels of the result.
    """
    boxes: list[Box] = []
    dataset = ImageFolder(Path(root), "train", build_transform(resize, crop, augment=True, seen=boxes.append))

    def draw(number: int) -> tuple[Tensor, Drawn]:
        image, box = dataset[number][0], boxes.pop()
        _, _, width, height = box
        return image, {"box": box, "area": width * height, "ratio": width / height}

    return draw


def measure_accuracy(output: Tensor, label: Tensor) -> dict[str, float]:
    """Return accuracies in percent.

    Args:
        output: logits ``[n, c]``.
        label: class numbers ``[n]``, integers.

    Returns:
        ``acc_top1`` and ``acc_top5`` (top-c where c < 5) over all samples, and ``mean_class_accuracy``, the top-1
        accuracy of each class that has samples, averaged over those classes.
    """
    ranked = output.topk(min(5, output.shape[1]), dim=1).indices
    hits = ranked == label.reshape(-1, 1)
    right, samples = count_classes(output, label)
    present = samples > 0
    return {
        "acc_top1": 100.0 * hits[:, :1].sum().item() / len(hits),
        "acc_top5": 100.0 * hits.sum().item() / len(hits),
        "mean_class_accuracy": 100.0 * (right[present].double() / samples[present]).mean().item(),
    }


def count_classes(output: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many samples of each class were classified right, and how many there are, int64 ``[c]`` each."""
    classes = output.shape[1]
    right = label[output.topk(1, dim=1).indices[:, 0] == label]
    return torch.bincount(right, minlength=classes), torch.bincount(label, minlength=classes)
