"""The reference: AlexNet in PyTorch, with its loss, optimizer, data and metric.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997;
layers in the order and with the names of torchvision's layout, so that its weight files fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from alignment.digits import torch_data

RESIZE, CROP = 256, 224
"""Length in pixels that an image's shorter side is scaled to, and of the square that is cut from it."""


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
    """Return AlexNet with the initial values of `initialize`."""
    return AlexNet(num_classes, dropout).apply(initialize)


def initialize(module: nn.Module) -> None:
    """Draw a layer's initial values: weights from Kaiming's uniform distribution (fan-in), biases zero.

    From torch's default, whose variance is a sixth of that, three epochs of digits do not get AlexNet going.
    Source: He et al. 2015, arXiv 1502.01852.
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        nn.init.zeros_(module.bias)


def build_loss(
    label_smoothing: float = 0.0, weight: Sequence[float] | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels; ``weight`` holds a factor for each class."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        factors = None if weight is None else output.new_tensor(weight)
        return nn.functional.cross_entropy(output, label, factors, label_smoothing=label_smoothing)

    return loss


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


def build_transform() -> torch_data.Transform:
    """Return what makes an RGB image the model's input, float32 ``[3, 224, 224]``."""
    return torch_data.build_transform(RESIZE, CROP)


def build_dataset(root: str | Path, split: str, augment: bool = False) -> torch_data.ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 224, 224]``, label, file name).

    Args:
        root: folder of the splits.
        split: ``"train"`` or ``"val"``.
        augment: cut training images at random; those of other splits always come whole.
    """
    transform = torch_data.build_transform(RESIZE, CROP, augment=augment and split == "train")
    return torch_data.ImageFolder(Path(root), split, transform)


def build_augmentation(root: str | Path, seed: int) -> Callable[[int], tuple[Tensor, torch_data.Drawn]]:
    """Return a function that augments a training image, given its number, as `build_dataset` does.

    Args:
        root: folder of the splits.
        seed: not used; torch's crops draw from global generators, which tipchain seeds.
    """
    del seed
    return torch_data.build_augmentation(root, RESIZE, CROP)


def build_metric() -> Callable[[Tensor, Tensor], dict[str, float]]:
    """Return the accuracies of logits ``[n, c]`` and labels ``[n]``, in percent."""
    return torch_data.measure_accuracy
