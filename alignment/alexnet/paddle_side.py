"""The port: AlexNet in PaddlePaddle, with its loss, optimizer, data and metric.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import paddle
from paddle import Tensor, nn

from alignment.digits import paddle_data

RESIZE, CROP = 256, 224
"""Length in pixels that an image's shorter side is scaled to, and of the square that is cut from it."""


class AlexNet(nn.Layer):
    """Maps images ``[n, 3, h, w]`` (h, w >= 63) to logits ``[n, num_classes]``."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        # Each layer carries its number, so that one left out does not rename those after it.
        self.features = nn.Sequential(
            ("0", nn.Conv2D(3, 64, kernel_size=11, stride=4, padding=2, **initial_values())),
            ("1", nn.ReLU()),
            ("2", nn.MaxPool2D(kernel_size=3, stride=2)),
            ("3", nn.Conv2D(64, 192, kernel_size=5, padding=2, **initial_values())),
            ("4", nn.ReLU()),
            ("5", nn.MaxPool2D(kernel_size=3, stride=2)),
            ("6", nn.Conv2D(192, 384, kernel_size=3, padding=1, **initial_values())),
            ("7", nn.ReLU()),
            ("8", nn.Conv2D(384, 256, kernel_size=3, padding=1, **initial_values())),
            ("9", nn.ReLU()),
            ("10", nn.Conv2D(256, 256, kernel_size=3, padding=1, **initial_values())),
            ("11", nn.ReLU()),
            ("12", nn.MaxPool2D(kernel_size=3, stride=2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2D((6, 6))
        self.classifier = nn.Sequential(
            ("0", nn.Dropout(dropout)),
            ("1", nn.Linear(256 * 6 * 6, 4096, **initial_values())),
            ("2", nn.ReLU()),
            ("3", nn.Dropout(dropout)),
            ("4", nn.Linear(4096, 4096, **initial_values())),
            ("5", nn.ReLU()),
            ("6", nn.Linear(4096, num_classes, **initial_values())),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of ``image``."""
        pooled = self.avgpool(self.features(image))
        return self.classifier(paddle.flatten(pooled, 1))


def build_model(num_classes: int = 1000, dropout: float = 0.5) -> nn.Layer:
    """Return AlexNet, weights drawn from Kaiming's uniform distribution (fan-in), biases zero."""
    return AlexNet(num_classes, dropout)


def initial_values() -> dict[str, paddle.ParamAttr]:
    """Return the arguments of a convolution or Linear layer that say where its initial values come from."""
    return {
        "weight_attr": paddle.ParamAttr(initializer=nn.initializer.KaimingUniform()),
        "bias_attr": paddle.ParamAttr(initializer=nn.initializer.Constant(0.0)),
    }


def build_loss(
    label_smoothing: float = 0.0, weight: Sequence[float] | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels; ``weight`` holds a factor for each class."""
    factors = None if weight is None else paddle.to_tensor(weight, dtype="float32")
    return nn.CrossEntropyLoss(factors, label_smoothing=label_smoothing)


def build_optimizer(
    parameters: Sequence[Tensor],
    learning_rate: float | paddle.optimizer.lr.LRScheduler,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
) -> paddle.optimizer.Optimizer:
    """Return SGD with momentum; a float ``weight_decay`` is added to the gradient (L2), as in torch."""
    return paddle.optimizer.Momentum(learning_rate, momentum=momentum, parameters=parameters, weight_decay=weight_decay)


def build_scheduler(
    optimizer: None, learning_rate: float, step_size: int, gamma: float
) -> paddle.optimizer.lr.LRScheduler:
    """Return a schedule that multiplies the rate by ``gamma`` at every ``step_size``-th step.

    Paddle's schedules stand before the optimizer, so ``optimizer`` is None.
    """
    assert optimizer is None
    return paddle.optimizer.lr.StepDecay(learning_rate, step_size=step_size, gamma=gamma)


def build_transform() -> paddle_data.Transform:
    """Return what makes an RGB image the model's input, float32 ``[3, 224, 224]``.

    Evaluation and inference, and training without augmentation, take their images through here.
    """
    return paddle_data.build_transform(RESIZE, CROP)


def build_dataset(root: str | Path, split: str, augment: bool = False) -> paddle_data.ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 224, 224]``, label, file name).

    Args:
        root: folder of the splits.
        split: ``"train"`` or ``"val"``.
        augment: cut training images at random; those of other splits always come whole.
    """
    transform = paddle_data.build_transform(RESIZE, CROP, augment=augment and split == "train")
    return paddle_data.ImageFolder(Path(root), split, transform)


def build_augmentation(root: str | Path, seed: int) -> Callable[[int], tuple[paddle_data.Pixels, paddle_data.Drawn]]:
    """Return a function that augments a training image, given its number, as `build_dataset` does.

    Args:
        root: folder of the splits.
        seed: not used; Paddle's crops draw from global generators, which tipchain seeds.
    """
    del seed
    return paddle_data.build_augmentation(root, RESIZE, CROP)


def build_metric() -> Callable[[Tensor, Tensor], dict[str, float]]:
    """Return the accuracies of logits ``[n, c]`` and labels ``[n]``, in percent."""
    return paddle_data.measure_accuracy
