"""The reference: MVFNet in PyTorch, with its loss, optimizer, data and metric.

Source: W. Wu et al., "MVFNet: Multi-View Fusion Network for Efficient Video Recognition", AAAI 2021, arXiv
2012.06977. Layers of the ResNet have torchvision's names, so that its ImageNet weights fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from tipchain.errors import DataError

MEAN = (0.485, 0.456, 0.406)
"""ImageNet's channel means (RGB, of values in [0, 1])."""
STD = (0.229, 0.224, 0.225)
"""ImageNet's channel standard deviations."""
MODES = ("T", "TH", "THW")
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""Residual blocks in each stage, by depth."""


class MultiView(nn.Module):
    """The MVF module: mixes the first channels of a clip's feature maps along time, height and width.

    The first ``alpha * channels`` channels go through depthwise 3D convolutions of three taps, one for each view of
    ``mode``: along time (3x1x1), height (1x3x1) and width (1x1x3). Their sum goes through BatchNorm3d and hardswish;
    the other channels pass as they are (section 3.1 of the paper).

    Args:
        channels: of the feature maps.
        num_segments: frames of a clip, T.
        alpha: share of the channels that are mixed, in (0, 1].
        share: whether all views use the same three taps per channel, laid along each view's own axis.
        mode: the views: ``"T"``, ``"TH"`` or ``"THW"``.
    """

    def __init__(
        self, channels: int, num_segments: int, *, alpha: float = 0.125, share: bool = False, mode: str = "THW"
    ) -> None:
        super().__init__()
        self.num_segments, self.mixed = num_segments, int(channels * alpha)
        self.share, self.mode = share, mode
        if not 0 < alpha <= 1 or self.mixed == 0:
            raise ValueError(f"alpha is {alpha}, which leaves {self.mixed} of {channels} channels to mix")
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}, expected one of: {', '.join(MODES)}")
        self.conv_t = self._conv((3, 1, 1), (1, 0, 0))
        if not share and "H" in mode:
            self.conv_h = self._conv((1, 3, 1), (0, 1, 0))
        if not share and "W" in mode:
            self.conv_w = self._conv((1, 1, 3), (0, 0, 1))
        self.bn = nn.BatchNorm3d(self.mixed)

    def _conv(self, kernel: tuple[int, int, int], padding: tuple[int, int, int]) -> nn.Conv3d:
        conv = nn.Conv3d(self.mixed, self.mixed, kernel, padding=padding, groups=self.mixed, bias=False)
        nn.init.normal_(conv.weight, std=math.sqrt(2 / 3))
        return conv

    def forward(self, frames: Tensor) -> Tensor:
        """Return feature maps of the shape of ``frames``, ``[n * T, channels, h, w]``."""
        part, rest = frames[:, : self.mixed], frames[:, self.mixed :]
        clips = part.unflatten(0, (-1, self.num_segments)).transpose(1, 2)  # [n, mixed, T, h, w]
        fused = self._fuse(clips)
        fused = functional.hardswish(self.bn(fused)).transpose(1, 2).flatten(0, 1)
        return torch.cat([fused, rest], dim=1)

    def _fuse(self, clips: Tensor) -> Tensor:
        fused: Tensor = self.conv_t(clips)
        if self.share:
            taps = self.conv_t.weight
            for axis in (3, 4)[: len(self.mode) - 1]:
                padding = [int(one == axis) for one in (2, 3, 4)]
                fused = fused + functional.conv3d(clips, taps.transpose(2, axis), padding=padding, groups=self.mixed)
            return fused
        if "H" in self.mode:
            fused = fused + self.conv_h(clips)
        if "W" in self.mode:
            fused = fused + self.conv_w(clips)
        return fused


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a padded convolution without bias, with He's initialization (arXiv 1502.01852, fan out)."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.normal_(conv.weight, std=math.sqrt(2 / (kernel * kernel * outputs)))
    return conv


class Block(nn.Module):
    """A residual block; ``mvf`` stands in front of its first convolution.

    Args:
        inputs: channels that come in.
        width: channels within.
        stride: of the 3x3 convolution, of the first where there are two.
        bottleneck: 1x1, 3x3, 1x1 with four times the width at the end (ResNet-50), else 3x3, 3x3 (ResNet-18).
        mvf: what the block's inputs go through before the first convolution, not before the shortcut; None: nothing.
    """

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, mvf: MultiView | None) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        self.mvf = mvf
        self.conv1 = convolution(inputs, width, 1) if bottleneck else convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1) if bottleneck else None
        self.bn3 = nn.BatchNorm2d(outputs) if bottleneck else None
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, frames: Tensor) -> Tensor:
        """Return the block's feature maps of ``frames``, ``[n * T, inputs, h, w]``."""
        shortcut = frames if self.downsample is None else self.downsample(frames)
        inside = frames if self.mvf is None else self.mvf(frames)
        inside = functional.relu(self.bn1(self.conv1(inside)))
        inside = self.bn2(self.conv2(inside))
        if self.conv3 is not None and self.bn3 is not None:
            inside = self.bn3(self.conv3(functional.relu(inside)))
        return functional.relu(inside + shortcut)


class MVFNet(nn.Module):
    """Maps clips ``[n, T, 3, h, w]`` to logits ``[n, num_classes]``: a 2D ResNet on frames, with MVF modules.

    Args:
        num_classes: classes.
        depth: 18 (basic blocks) or 50 (bottlenecks, the stride in the 3x3 convolution).
        num_segments: frames of a clip, T.
        alpha: as for `MultiView`.
        share: as for `MultiView`.
        mode: as for `MultiView`.
        mvf_freq: for each of the four stages 1 if its blocks have an MVF module, else 0.
        dropout: share of the pooled features that training drops.
    """

    def __init__(
        self,
        num_classes: int = 400,
        depth: int = 50,
        num_segments: int = 16,
        *,
        alpha: float = 0.125,
        share: bool = False,
        mode: str = "THW",
        mvf_freq: Sequence[int] = (0, 0, 1, 1),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"depth is {depth}, expected one of: {', '.join(map(str, BLOCKS))}")
        if len(mvf_freq) != 4 or not set(mvf_freq) <= {0, 1}:
            raise ValueError(f"mvf_freq is {list(mvf_freq)}, expected a 0 or 1 for each of the four stages")
        self.num_segments = num_segments
        self.conv1, self.bn1 = convolution(3, 64, 7, 2), nn.BatchNorm2d(64)
        stages, channels, bottleneck = [], 64, depth == 50
        for stage, (blocks, mixed) in enumerate(zip(BLOCKS[depth], mvf_freq, strict=True)):
            layers = []
            for number in range(blocks):
                mvf = MultiView(channels, num_segments, alpha=alpha, share=share, mode=mode) if mixed else None
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(Block(channels, 64 << stage, stride, bottleneck=bottleneck, mvf=mvf))
                channels = (64 << stage) * (4 if bottleneck else 1)
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, num_classes)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, clip: Tensor) -> Tensor:
        """Return the logits of ``clip``, the mean of its frames'."""
        frames = functional.relu(self.bn1(self.conv1(clip.flatten(0, 1))))
        frames = functional.max_pool2d(frames, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            frames = stage(frames)
        logits: Tensor = self.fc(self.dropout(frames.mean(dim=(2, 3))))
        return logits.unflatten(0, (-1, self.num_segments)).mean(dim=1)


def build_model(**arguments: Any) -> nn.Module:
    """Return `MVFNet` with its initialization."""
    return MVFNet(**arguments)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels."""
    return nn.CrossEntropyLoss()


class ClippedSGD(torch.optim.SGD):
    """SGD with momentum that first scales the gradients down to a global norm of ``max_norm``."""

    def __init__(self, parameters: Iterable[Tensor], *, max_norm: float, **arguments: Any) -> None:
        super().__init__(parameters, **arguments)
        self.max_norm = max_norm

    def step(self, closure: Any = None) -> Any:
        """Clip and update."""
        nn.utils.clip_grad_norm_([one for group in self.param_groups for one in group["params"]], self.max_norm)
        return super().step(closure)


def build_optimizer(
    parameters: Iterable[Tensor],
    learning_rate: float,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    max_norm: float | None = None,
) -> torch.optim.Optimizer:
    """Return SGD with momentum; ``weight_decay`` is added to the gradient (L2), after clipping to ``max_norm``."""
    settings: dict[str, Any] = {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
    if max_norm is None:
        return torch.optim.SGD(parameters, **settings)
    return ClippedSGD(parameters, max_norm=max_norm, **settings)


def build_scheduler(
    optimizer: torch.optim.Optimizer, milestones: Sequence[int], gamma: float
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule that multiplies the rate by ``gamma`` at each of the steps ``milestones``."""
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, list(milestones), gamma)


def segment_frames(frames: int, segments: int, jitter: Sequence[float] | None = None) -> list[int]:
    """Return the numbers (from 1) of the frames that stand for a video of ``frames`` frames.

    The video is cut into ``segments`` pieces of equal length, each of which gives one frame (TSN, arXiv 1608.00859):
    the one in its middle, or that at ``jitter``, a position in [0, 1) within each piece.
    """
    places = jitter if jitter is not None else [0.5] * segments
    return [min(int((number + place) * frames / segments), frames - 1) + 1 for number, place in enumerate(places)]


def transform_frame(image: Image.Image, size: int, short_side: int) -> Tensor:
    """Return an RGB image as float32 ``[3, size, size]``: resized, cropped in the centre and normalized."""
    width, height = image.size
    if min(width, height) != short_side:
        if width < height:
            width, height = short_side, int(short_side * height / width)
        else:
            width, height = int(short_side * width / height), short_side
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    pixels = np.array(image.crop((left, top, left + size, top + size)), dtype=np.uint8)
    mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (MEAN, STD))
    return (torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32) / 255 - mean) / std


class RawFrames(torch.utils.data.Dataset[tuple[Tensor, int, str]]):
    """Videos as folders of frames, in the order of the split file of ``folder``.

    Each line of it is ``<video> <frames> <label>``; the video's frames are ``rawframes/<video>/img_00001.jpg`` and so
    on. For training each epoch takes other frames of every video, the same ones whoever asks: they follow from
    ``seed``, the epoch and the sample's number.

    Raises:
        DataError: the split file or a frame is missing or damaged.
    """

    def __init__(self, folder: Path, split: str, *, num_segments: int, size: int, short_side: int, seed: int) -> None:
        self.folder, self.training, self.epoch, self.seed = folder, split == "train", 0, seed
        self.num_segments, self.size, self.short_side = num_segments, size, short_side
        pattern = f"*{split}_split_1_rawframes.txt"
        lists = [*folder.glob(pattern), *folder.glob(f"annotations/{pattern}")]
        if len(lists) != 1:
            raise DataError(
                "has no split file" if not lists else "has several split files",
                file=folder,
                expected=pattern,
                found=", ".join(map(str, lists)) or None,
                hint="bash prepare.sh PARAMS MODE makes the shipped data",
            )
        self.samples: list[tuple[str, int, int]] = []
        for number, line in enumerate(lists[0].read_text().splitlines(), 1):
            match = re.fullmatch(r"(\S+)\s+([1-9]\d*)\s+(\d+)", line.strip())
            if match is None and not line.strip():
                continue
            if match is None:
                raise DataError("is no video", file=lists[0], line=number, found=line, expected="NAME FRAMES LABEL")
            self.samples.append((match[1], int(match[2]), int(match[3])))

    def __len__(self) -> int:
        return len(self.samples)

    def set_epoch(self, epoch: int) -> None:
        """Choose the frames of epoch ``epoch`` (from 0) from now on; without effect but for training."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        video, frames, label = self.samples[index]
        jitter = None
        if self.training:
            jitter = np.random.default_rng([self.seed, self.epoch, index]).random(self.num_segments).tolist()
        images = [
            self._read(f"rawframes/{video}/img_{number:05d}.jpg")
            for number in segment_frames(frames, self.num_segments, jitter)
        ]
        clip = torch.stack([transform_frame(image, self.size, self.short_side) for image in images])
        return clip, label, f"rawframes/{video}"

    def _read(self, name: str) -> Image.Image:
        try:
            with Image.open(self.folder / name) as file:
                return file.convert("RGB")
        except (OSError, Image.DecompressionBombError) as error:
            raise DataError("cannot be read as an image", file=self.folder / name, found=error) from error


def build_dataset(
    root: str | Path, split: str, num_segments: int = 16, size: int = 224, short_side: int = 256, seed: int = 0
) -> RawFrames:
    """Return the videos of a split as (clip float32 ``[num_segments, 3, size, size]``, label, folder).

    Args:
        root: folder with ``rawframes/`` and the split files.
        split: ``"train"`` or ``"val"``.
        num_segments: frames of a clip, T.
        size: pixels of the square that is cut out.
        short_side: pixels of the shorter side before that.
        seed: of the choice of frames for training.
    """
    return RawFrames(Path(root), split, num_segments=num_segments, size=size, short_side=short_side, seed=seed)


def measure_accuracy(output: Tensor, label: Tensor) -> dict[str, float]:
    """Return accuracy, and the mean of each present class's own accuracy, in percent, of logits ``[n, c]``."""
    hits = (output.argmax(dim=1) == label).to(torch.float64)
    counts = torch.bincount(label, minlength=output.shape[1])
    by_class = torch.bincount(label, weights=hits, minlength=output.shape[1])
    present = counts > 0
    return {
        "top1_acc": 100.0 * hits.mean().item(),
        "mean_class_accuracy": 100.0 * (by_class[present] / counts[present]).mean().item(),
    }


def build_metric() -> Callable[[Any, Any], dict[str, float]]:
    """Return `measure_accuracy`."""
    return measure_accuracy
