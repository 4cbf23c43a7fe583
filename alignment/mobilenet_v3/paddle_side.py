"""The port: MobileNetV3-small in PaddlePaddle, with its loss, optimizer, data and metric.

Source: A. Howard et al. 2019, "Searching for MobileNetV3", arXiv 1905.02244.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor, nn

from alignment.digits import paddle_data

RESIZE, CROP = 73, 64
"""Length in pixels that an image's shorter side is scaled to, and of the square that is cut from it."""

# Input channels, depthwise kernel, expanded channels, output channels, squeeze-and-excitation, nonlinearity, stride:
# the rows of the paper's Table 2.
BLOCKS: tuple[tuple[int, int, int, int, bool, type[nn.Layer], int], ...] = (
    (16, 3, 16, 16, True, nn.ReLU, 2),
    (16, 3, 72, 24, False, nn.ReLU, 2),
    (24, 3, 88, 24, False, nn.ReLU, 1),
    (24, 5, 96, 40, True, nn.Hardswish, 2),
    (40, 5, 240, 40, True, nn.Hardswish, 1),
    (40, 5, 240, 40, True, nn.Hardswish, 1),
    (40, 5, 120, 48, True, nn.Hardswish, 1),
    (48, 5, 144, 48, True, nn.Hardswish, 1),
    (48, 5, 288, 96, True, nn.Hardswish, 2),
    (96, 5, 576, 96, True, nn.Hardswish, 1),
    (96, 5, 576, 96, True, nn.Hardswish, 1),
)


def squeeze_channels(channels: int) -> int:
    """Return a quarter of ``channels``, rounded to a multiple of 8 that is at least 90 % of it."""
    wanted = channels // 4
    rounded = max(8, (wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def _kaiming() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.KaimingNormal())


def _small() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.01))


def _zeros() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))


class ConvNorm(nn.Sequential):  # type: ignore[misc]
    """Convolution without bias, BatchNorm and a nonlinearity (None: linear), keeping the size at stride 1."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        activation: type[nn.Layer] | None = None,
    ) -> None:
        super().__init__(
            nn.Conv2D(
                channels, out, kernel, stride, (kernel - 1) // 2, groups=groups, weight_attr=_kaiming(), bias_attr=False
            ),
            # Paddle's momentum is the share that stays, torch's the share that is new: 1 - 0.01.
            nn.BatchNorm2D(out, momentum=0.99, epsilon=0.001),
            *([activation()] if activation else []),
        )


class Hardsigmoid(nn.Layer):  # type: ignore[misc]
    """Hardsigmoid of slope 1/6; Paddle's own layer rounds that to 0.1666667."""

    def forward(self, features: Tensor) -> Tensor:
        """Return ``min(max(features / 6 + 1 / 2, 0), 1)``."""
        return nn.functional.hardsigmoid(features, slope=1 / 6, offset=0.5)


class SqueezeExcitation(nn.Layer):  # type: ignore[misc]
    """Scales each channel by a number in [0, 1] that depends on all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = squeeze_channels(channels)
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.fc1 = nn.Conv2D(channels, hidden, 1, weight_attr=_kaiming(), bias_attr=_zeros())
        self.fc2 = nn.Conv2D(hidden, channels, 1, weight_attr=_kaiming(), bias_attr=_zeros())
        self.activation = nn.ReLU()
        self.scale_activation = Hardsigmoid()

    def forward(self, features: Tensor) -> Tensor:
        """Return ``features``, float ``[n, channels, h, w]``, scaled."""
        hidden = self.activation(self.fc1(self.avgpool(features)))
        return self.scale_activation(self.fc2(hidden)) * features


class InvertedResidual(nn.Layer):  # type: ignore[misc]
    """Expansion, depthwise convolution, squeeze-and-excitation and linear projection, around a shortcut.

    There is no expansion where it would not widen, and a shortcut only where input and output have equal shapes.
    """

    def __init__(
        self,
        channels: int,
        kernel: int,
        expanded: int,
        out: int,
        squeeze: bool,
        activation: type[nn.Layer],
        stride: int,
    ) -> None:
        super().__init__()
        self.use_res_connect = stride == 1 and channels == out
        layers: list[nn.Layer] = []
        if expanded != channels:
            layers.append(ConvNorm(channels, expanded, 1, activation=activation))
        layers.append(ConvNorm(expanded, expanded, kernel, stride, expanded, activation))
        if squeeze:
            layers.append(SqueezeExcitation(expanded))
        layers.append(ConvNorm(expanded, out, 1))
        self.block = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Map float ``[n, channels, h, w]`` to ``[n, out, ceil(h / stride), ceil(w / stride)]``."""
        result = self.block(features)
        return features + result if self.use_res_connect else result


class MobileNetV3Small(nn.Layer):  # type: ignore[misc]
    """Maps images ``[n, 3, h, w]`` to logits ``[n, num_classes]``."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(3, 16, 3, stride=2, activation=nn.Hardswish),
            *(InvertedResidual(*row) for row in BLOCKS),
            ConvNorm(96, 576, 1, activation=nn.Hardswish),
        )
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024, weight_attr=_small(), bias_attr=_zeros()),
            nn.Hardswish(),
            nn.Dropout(dropout),
            nn.Linear(1024, num_classes, weight_attr=_small(), bias_attr=_zeros()),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of ``image``."""
        pooled = self.avgpool(self.features(image))
        return self.classifier(paddle.flatten(pooled, 1))


def build_model(num_classes: int = 1000, dropout: float = 0.2) -> nn.Layer:
    """Return MobileNetV3-small.

    Convolutions start from Kaiming's normal distribution (fan-in), Linear layers from normal(0, 0.01), biases from 0.
    """
    return MobileNetV3Small(num_classes, dropout)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels, a tenth of each label spread over all classes."""
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def build_optimizer(
    parameters: Sequence[Tensor],
    learning_rate: float | paddle.optimizer.lr.LRScheduler,
    momentum: float = 0.9,
    weight_decay: float = 1e-5,
) -> paddle.optimizer.Optimizer:
    """Return SGD with momentum; ``weight_decay`` (L2) is added to the gradients of all but biases and BatchNorm."""
    groups: list[dict[str, Any]] = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": weight_decay},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return paddle.optimizer.Momentum(
        learning_rate, momentum=momentum, parameters=[one for one in groups if one["params"]]
    )


def build_scheduler(
    optimizer: None, learning_rate: float, warmup_steps: int, gamma: float
) -> paddle.optimizer.lr.LRScheduler:
    """Return a schedule that rises linearly over the first steps, then falls exponentially.

    Step i of the first ``warmup_steps`` has the share (i + 1) / (warmup_steps + 1) of the full rate, step
    ``warmup_steps`` all of it, and every later one ``gamma`` times the rate before. Paddle's schedules stand before
    the optimizer, so ``optimizer`` is None.
    """
    assert optimizer is None
    falling = paddle.optimizer.lr.ExponentialDecay(learning_rate, gamma=gamma)
    if warmup_steps == 0:
        return falling
    return paddle.optimizer.lr.LinearWarmup(
        falling, warmup_steps, start_lr=learning_rate / (warmup_steps + 1), end_lr=learning_rate
    )


def build_transform() -> paddle_data.Transform:
    """Return what makes an RGB image the model's input, float32 ``[3, 64, 64]``.

    Evaluation and inference, and training without augmentation, take their images through here.
    """
    return paddle_data.build_transform(RESIZE, CROP)


def build_dataset(root: str | Path, split: str, augment: bool = False) -> paddle_data.ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 64, 64]``, label, file name).

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
