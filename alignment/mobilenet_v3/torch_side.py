"""The reference: MobileNetV3-small in PyTorch, with its loss, optimizer, data and metric.

Source: A. Howard et al. 2019, "Searching for MobileNetV3", arXiv 1905.02244, Table 2. Names and shapes of parameters
are those of torchvision's ``mobilenet_v3_small``, so that its weight files fit. As there, the last convolution has
no squeeze-and-excitation, though the paper's table ticks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from alignment.digits import torch_data

RESIZE, CROP = 73, 64
"""Length in pixels that an image's shorter side is scaled to, and of the square that is cut from it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One row of the paper's Table 2.

    Attributes:
        channels: input channels.
        kernel: height and width of the depthwise kernel.
        expanded: channels of the depthwise convolution.
        out: output channels.
        squeeze: whether squeeze-and-excitation follows the depthwise convolution.
        activation: its nonlinearity, ReLU or hardswish.
        stride: of the depthwise convolution.
    """

    channels: int
    kernel: int
    expanded: int
    out: int
    squeeze: bool
    activation: type[nn.Module]
    stride: int


BLOCKS = (
    Block(16, 3, 16, 16, True, nn.ReLU, 2),
    Block(16, 3, 72, 24, False, nn.ReLU, 2),
    Block(24, 3, 88, 24, False, nn.ReLU, 1),
    Block(24, 5, 96, 40, True, nn.Hardswish, 2),
    Block(40, 5, 240, 40, True, nn.Hardswish, 1),
    Block(40, 5, 240, 40, True, nn.Hardswish, 1),
    Block(40, 5, 120, 48, True, nn.Hardswish, 1),
    Block(48, 5, 144, 48, True, nn.Hardswish, 1),
    Block(48, 5, 288, 96, True, nn.Hardswish, 2),
    Block(96, 5, 576, 96, True, nn.Hardswish, 1),
    Block(96, 5, 576, 96, True, nn.Hardswish, 1),
)


def squeeze_channels(channels: int) -> int:
    """Return a quarter of ``channels``, rounded to a multiple of 8 that is at least 90 % of it.

    Source: Howard et al. 2019, section 5.3, and the rounding of the authors' MobileNet code (``make_divisible``).
    """
    wanted = channels // 4
    rounded = max(8, (wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


class ConvNorm(nn.Sequential):
    """Convolution without bias, BatchNorm and a nonlinearity (None: linear), keeping the size at stride 1."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        activation: type[nn.Module] | None = None,
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(channels, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out, eps=0.001, momentum=0.01),
        ]
        super().__init__(*layers, *([activation()] if activation else []))


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number in [0, 1] that depends on all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = squeeze_channels(channels)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.fc2 = nn.Conv2d(hidden, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, features: Tensor) -> Tensor:
        """Return ``features``, float ``[n, channels, h, w]``, scaled."""
        hidden = self.activation(self.fc1(self.avgpool(features)))
        scale: Tensor = self.scale_activation(self.fc2(hidden))
        return scale * features


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze-and-excitation and linear projection, around a shortcut.

    There is no expansion where it would not widen, and a shortcut only where input and output have equal shapes.
    """

    def __init__(self, row: Block) -> None:
        super().__init__()
        self.use_res_connect = row.stride == 1 and row.channels == row.out
        layers: list[nn.Module] = []
        if row.expanded != row.channels:
            layers.append(ConvNorm(row.channels, row.expanded, 1, activation=row.activation))
        layers.append(ConvNorm(row.expanded, row.expanded, row.kernel, row.stride, row.expanded, row.activation))
        if row.squeeze:
            layers.append(SqueezeExcitation(row.expanded))
        layers.append(ConvNorm(row.expanded, row.out, 1))
        self.block = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Map float ``[n, channels, h, w]`` to ``[n, out, ceil(h / stride), ceil(w / stride)]``."""
        result: Tensor = self.block(features)
        return features + result if self.use_res_connect else result


class MobileNetV3Small(nn.Module):
    """Maps images ``[n, 3, h, w]`` to logits ``[n, num_classes]``."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(3, 16, 3, stride=2, activation=nn.Hardswish),
            *(InvertedResidual(row) for row in BLOCKS),
            ConvNorm(96, 576, 1, activation=nn.Hardswish),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(dropout), nn.Linear(1024, num_classes)
        )
        self.apply(initialize)

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits of ``image``."""
        pooled = self.avgpool(self.features(image))
        logits: Tensor = self.classifier(torch.flatten(pooled, 1))
        return logits


def initialize(module: nn.Module) -> None:
    """Draw a layer's initial values: Kaiming (fan-in) for convolutions, normal(0, 0.01) for Linear, zero biases.

    BatchNorm keeps its ones and zeros. torchvision draws convolutions by their fan-out, which for depthwise ones
    counts all channels: their outputs are then so small that running statistics of momentum 0.01 need hundreds of
    steps to get there, and a model trained for 270 steps to a loss of 0.64 still classified at chance in eval mode.
    Source: He et al. 2015, arXiv 1502.01852.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0.0, 0.01)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build_model(num_classes: int = 1000, dropout: float = 0.2) -> nn.Module:
    """Return MobileNetV3-small with the initial values of `initialize`."""
    return MobileNetV3Small(num_classes, dropout)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels, a tenth of each label spread over all classes."""
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def build_optimizer(
    parameters: Iterable[Tensor], learning_rate: float, momentum: float = 0.9, weight_decay: float = 1e-5
) -> torch.optim.Optimizer:
    """Return SGD with momentum; ``weight_decay`` (L2) is added to the gradients of all but biases and BatchNorm.

    The paper's RMSProp is not used: its epsilon stands outside of the square root in torch and inside of it in
    Paddle, so that the two are different rules.
    """
    decayed, plain = [], []
    for parameter in parameters:
        (plain if parameter.ndim <= 1 else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD([one for one in groups if one["params"]], lr=learning_rate, momentum=momentum)


def build_scheduler(
    optimizer: torch.optim.Optimizer, warmup_steps: int, gamma: float
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule that rises linearly over the first steps, then falls exponentially.

    Step i of the first ``warmup_steps`` has the share (i + 1) / (warmup_steps + 1) of the full rate, step
    ``warmup_steps`` all of it, and every later one ``gamma`` times the rate before.
    """

    def share(step: int) -> float:
        if step < warmup_steps:
            return float((step + 1) / (warmup_steps + 1))
        return float(gamma ** (step - warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def build_transform() -> torch_data.Transform:
    """Return what makes an RGB image the model's input, float32 ``[3, 64, 64]``."""
    return torch_data.build_transform(RESIZE, CROP)


def build_dataset(root: str | Path, split: str, augment: bool = False) -> torch_data.ImageFolder:
    """Return the images below ``root/split`` as (image float32 ``[3, 64, 64]``, label, file name).

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
