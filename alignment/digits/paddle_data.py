"""The port's data: image folders, transforms and accuracies in PaddlePaddle, for any input size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddle import Tensor, nn
from paddle.io import Dataset
from paddle.vision import transforms
from paddle.vision.datasets import DatasetFolder
from PIL import Image

from tipchain.core.images import SUFFIXES, read_image
from tipchain.errors import DataError
from tipchain.paddle_tools.checkpoint import train_batches

Pixels = npt.NDArray[np.float32]
Transform = Callable[[Image.Image], Pixels]
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
            There are no flips: a mirrored digit is no digit. Paddle draws from the generators of NumPy and of
            Python's ``random``.
        seen: hears of the box of every random part.
    """
    cut = (
        transforms.RandomResizedCrop(crop, scale=(0.6, 1.0), ratio=(0.8, 1.25), interpolation="bilinear")
        if augment
        else transforms.CenterCrop(crop)
    )
    if augment and seen is not None:
        _watch_boxes(cut, seen)
    steps = _steps(resize, cut)

    def transform(image: Image.Image) -> Pixels:
        value: Any = image
        for _, step in steps:
            value = step(value)
        pixels: Pixels = value
        return pixels

    return transform


def _steps(resize: int, cut: Callable[[Image.Image], Image.Image]) -> list[Step]:
    """Return the steps by which an image becomes a model's input, with their names."""
    normalize = transforms.Compose(
        [
            transforms.Transpose(),
            transforms.Normalize(
                # ImageNet's means and standard deviations, for pixels in 0..255
                mean=[123.675, 116.28, 103.53],
                std=[58.395, 57.12, 57.375],
                data_format="CHW",
            ),
        ]
    )
    return [
        ("resize", transforms.Resize(resize, interpolation="bilinear")),
        ("crop", cut),
        ("normalize", lambda image: np.ascontiguousarray(normalize(image), dtype=np.float32)),
    ]


def _watch_boxes(cut: Any, seen: Callable[[Box], None]) -> None:
    """Tell ``seen`` of every box that a RandomResizedCrop draws; Paddle has no public way to learn of it."""
    # Paddle 3.3's name for it, and 3.0's.
    name = "_dynamic_get_param" if hasattr(cut, "_dynamic_get_param") else "_get_param"
    draw_box = getattr(cut, name)

    def watched(*arguments: Any) -> tuple[int, int, int, int]:
        top, left, height, width = drawn = draw_box(*arguments)
        seen((left, top, width, height))
        return drawn

    setattr(cut, name, watched)


class ImageFolder(Dataset):  # type: ignore[misc]
    """Images of ``folder/split/<class>/`` as (image, label, file name); labels number the sorted class names.

    Raises:
        DataError: the split, its class folders or their images are missing.
    """

    def __init__(self, folder: Path, split: str, transform: Transform) -> None:
        super().__init__()
        self.folder, self.transform = folder, transform
        base = folder / split
        if not base.is_dir():
            raise DataError(
                "is missing",
                file=base,
                expected="class folders with images",
                hint="bash prepare.sh PARAMS MODE makes it",
            )
        try:
            found = DatasetFolder(str(base), loader=read_image, extensions=SUFFIXES)
        except RuntimeError as error:
            raise DataError("has no images in class folders", file=base) from error
        self.classes = tuple(found.classes)
        self.samples = [(Path(path), int(label)) for path, label in found.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Pixels, int, str]:
        path, label = self.samples[index]
        return self.transform(self.read(index)), label, path.relative_to(self.folder).as_posix()

    def read(self, index: int) -> Image.Image:
        """Return an image as it is before any transform, in RGB."""
        return read_image(self.samples[index][0])


def build_loader(dataset: Dataset, batch_size: int, seed: int, epoch: int) -> Any:
    """Return the shuffled batches of one epoch as ``tools/train.py`` trains on them."""
    return train_batches(dataset, batch_size=batch_size, seed=seed, epoch=epoch, skip=0, num_workers=0)[0]


def build_augmentation(root: str | Path, resize: int, crop: int) -> Callable[[int], tuple[Pixels, Drawn]]:
    """Return a function that cuts a training image anew, given its number, and tells what was drawn: `Drawn`.

    Args:
        root: folder of the splits.
        resize: length in pixels that the shorter side is scaled to.
        crop: height and width in pixels of the result.
    """
    boxes: list[Box] = []
    dataset = ImageFolder(Path(root), "train", build_transform(resize, crop, augment=True, seen=boxes.append))

    def draw(number: int) -> tuple[Pixels, Drawn]:
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
    _, ranked = paddle.topk(output, min(5, output.shape[1]), axis=1)
    hits = (ranked == label.reshape([-1, 1])).numpy()
    right, samples = count_classes(output, label)
    present = samples > 0
    return {
        "acc_top1": 100.0 * int(hits[:, 0].sum()) / len(hits),
        "acc_top5": 100.0 * int(hits.sum()) / len(hits),
        "mean_class_accuracy": 100.0 * float((right[present] / samples[present]).mean()),
    }


def count_classes(output: Tensor, label: Tensor) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many samples of each class were classified right, and how many there are, int64 ``[c]`` each."""
    _, ranked = paddle.topk(output, 1, axis=1)
    members = nn.functional.one_hot(label, output.shape[1])
    hits = (ranked == label.reshape([-1, 1])).astype(members.dtype)
    # Sums of ones in float32 are exact up to 2^24.
    right, samples = (members * hits).sum(axis=0), members.sum(axis=0)
    return right.numpy().astype(np.int64), samples.numpy().astype(np.int64)
