"""The port: AlexNet in PaddlePaddle, with its loss, optimizer, data and metric.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

from tipchain.errors import DataError
from tipchain.images import SUFFIXES, read_image

Pixels = npt.NDArray[np.float32]


class AlexNet(nn.Layer):
    """Maps images ``[n, 3, h, w]`` (h, w >= 63) to logits ``[n, num_classes]``."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        # Each layer carries its number, so that one left out does not rename those after it.
        self.features = nn.Sequential(
            ("0", nn.Conv2D(3, 64, kernel_size=11, stride=4, padding=2)),
            ("1", nn.ReLU()),
            ("2", nn.MaxPool2D(kernel_size=3, stride=2)),
            ("3", nn.Conv2D(64, 192, kernel_size=5, padding=2)),
            ("4", nn.ReLU()),
            ("5", nn.MaxPool2D(kernel_size=3, stride=2)),
            ("6", nn.Conv2D(192, 384, kernel_size=3, padding=1)),
            ("7", nn.ReLU()),
            ("8", nn.Conv2D(384, 256, kernel_size=3, padding=1)),
            ("9", nn.ReLU()),
            ("10", nn.Conv2D(256, 256, kernel_size=3, padding=1)),
            ("11", nn.ReLU()),
            ("12", nn.MaxPool2D(kernel_size=3, stride=2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2D((6, 6))
        self.classifier = nn.Sequential(
            ("0", nn.Dropout(dropout)),
            ("1", nn.Linear(256 * 6 * 6, 4096)),
            ("2", nn.ReLU()),
            ("3", nn.Dropout(dropout)),
            ("4", nn.Linear(4096, 4096)),
            ("5", nn.ReLU()),
            ("6", nn.Linear(4096, num_classes)),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of ``image``."""
        pooled = self.avgpool(self.features(image))
        return self.classifier(paddle.flatten(pooled, 1))


def build_model(num_classes: int = 1000, dropout: float = 0.5) -> nn.Layer:
    """Return AlexNet with Paddle's default initialization."""
    return AlexNet(num_classes, dropout)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels."""
    return nn.CrossEntropyLoss()


def build_optimizer(
    parameters: Sequence[Tensor],
    learning_rate: float | paddle.optimizer.lr.LRScheduler,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
) -> paddle.optimizer.Optimizer:
    """Return SGD with momentum; a float ``weight_decay`` is added to the gradient (L2), as in torch."""
    return paddle.optimizer.Momentum(
        learning_rate, momentum=momentum, parameters=parameters, weight_decay=weight_decay
    )


def build_scheduler(
    optimizer: None, learning_rate: float, step_size: int, gamma: float
) -> paddle.optimizer.lr.LRScheduler:
    """Return a schedule that multiplies the rate by ``gamma`` at every ``step_size``-th step.

    Paddle's schedules stand before the optimizer, so ``optimizer`` is None.
    """
    assert optimizer is None
    return paddle.optimizer.lr.StepDecay(learning_rate, step_size=step_size, gamma=gamma)


def build_transform() -> Callable[[Image.Image], Pixels]:
    """Return what makes an RGB image the model's input, float32 ``[3, 224, 224]``, for all splits.

    Training, evaluation and inference all take their images through here.
    """
    steps = transforms.Compose(
        [
            transforms.Resize(256, interpolation="bilinear"),
            transforms.CenterCrop(224),
            transforms.Transpose(),
            transforms.Normalize(
                # ImageNet's means and standard deviations, for pixels in 0..255
                mean=[123.675, 116.28, 103.53],
                std=[58.395, 57.12, 57.375],
                data_format="CHW",
            ),
        ]
    )

    def transform(image: Image.Image) -> Pixels:
        return np.ascontiguousarray(steps(image), dtype=np.float32)

    return transform


class ImageFolder(Dataset):  # type: ignore[misc]
    """Images of ``folder/split/<class>/``; labels number the sorted class names.

    Raises:
        DataError: the split, its class folders or their images are missing.
    """

    def __init__(self, folder: Path, split: str) -> None:
        super().__init__()
        self.folder = folder
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
        self.transform = build_transform()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Pixels, int, str]:
        path, label = self.samples[index]
        return self.transform(read_image(path)), label, path.relative_to(self.folder).as_posix()


def build_dataset(root: str | Path, split: str) -> ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 224, 224]``, label, file name)."""
    return ImageFolder(Path(root), split)


def measure_accuracy(output: Tensor, label: Tensor) -> dict[str, float]:
    """Return top-1 and top-5 accuracy in percent of logits ``[n, c]``; top-c where c < 5."""
    _, ranked = paddle.topk(output, min(5, output.shape[1]), axis=1)
    hits = (ranked == label.reshape([-1, 1])).numpy()
    return {
        "acc_top1": 100.0 * int(hits[:, 0].sum()) / len(hits),
        "acc_top5": 100.0 * int(hits.sum()) / len(hits),
    }


def build_metric() -> Callable[[Any, Any], dict[str, float]]:
    """Return `measure_accuracy`."""
    return measure_accuracy
