"""The port: MVFNet in PaddlePaddle, with its loss, optimizer, data and metric.

Source: W. Wu et al., "MVFNet: Multi-View Fusion Network for Efficient Video Recognition", AAAI 2021, arXiv
2012.06977.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddle import ParamAttr, Tensor, nn
from paddle.io import Dataset
from paddle.nn import functional
from paddle.nn.initializer import Normal
from paddle.vision import transforms
from PIL import Image

from tipchain.core.images import FRAMES, LAYOUT, Video, class_names, read_image, read_split
from tipchain.errors import DataError

Pixels = npt.NDArray[np.float32]
VIEWS = {"T": (0,), "TH": (0, 1), "THW": (0, 1, 2)}
"""Axes that each mode convolves along: 0 time, 1 height, 2 width."""
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""Residual blocks in each stage, by depth."""


def along(axis: int, inside: int, outside: int) -> list[int]:
    """Return a size for each of time, height and width: ``inside`` for ``axis``, else ``outside``."""
    return [inside if one == axis else outside for one in range(3)]


class MultiView(nn.Layer):
    """The MVF module: mixes the first channels of a clip's feature maps along time, height and width.

    The arguments are those of `alignment.mvf.torch_side.MultiView`.
    """

    def __init__(
        self, channels: int, num_segments: int, *, alpha: float = 0.125, share: bool = False, mode: str = "THW"
    ) -> None:
        super().__init__()
        self.num_segments, self.mixed, self.share = num_segments, int(channels * alpha), share
        if not 0 < alpha <= 1 or self.mixed == 0:
            raise ValueError(f"alpha is {alpha}, which leaves {self.mixed} of {channels} channels to mix")
        if mode not in VIEWS:
            raise ValueError(f"mode is {mode!r}, expected one of: {', '.join(VIEWS)}")
        self.views = VIEWS[mode]
        for axis in self.views[:1] if share else self.views:
            conv = nn.Conv3D(
                self.mixed,
                self.mixed,
                along(axis, 3, 1),
                padding=along(axis, 1, 0),
                groups=self.mixed,
                weight_attr=ParamAttr(initializer=Normal(0.0, (2 / 3) ** 0.5)),
                bias_attr=False,
            )
            self.add_sublayer(f"conv_{'thw'[axis]}", conv)
        self.bn = nn.BatchNorm3D(self.mixed)

    def forward(self, frames: Tensor) -> Tensor:
        """Return feature maps of the shape of ``frames``, ``[n * T, channels, h, w]``."""
        height, width = frames.shape[2:]
        clips = frames[:, : self.mixed].reshape([-1, self.num_segments, self.mixed, height, width])
        fused = functional.hardswish(self.bn(self.fuse(clips.transpose([0, 2, 1, 3, 4]))))
        # No reshape here: Paddle Inference with oneDNN would merge it with the transpose, and refuse the program.
        fused = paddle.flatten(fused.transpose([0, 2, 1, 3, 4]), 0, 1)
        return paddle.concat([fused, frames[:, self.mixed :]], axis=1)

    def fuse(self, clips: Tensor) -> Tensor:
        """Return the sum over the views of ``clips``, ``[n, mixed, T, h, w]``."""
        views = []
        for axis in self.views:
            conv = getattr(self, f"conv_{'t' if self.share else 'thw'[axis]}")
            taps = conv.weight.reshape([self.mixed, 1, *along(axis, 3, 1)])
            views.append(functional.conv3d(clips, taps, padding=along(axis, 1, 0), groups=self.mixed))
        return paddle.add_n(views)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2D:
    """Return a padded convolution without bias, with He's initialization (arXiv 1502.01852, fan out)."""
    he = Normal(0.0, (2 / (kernel * kernel * outputs)) ** 0.5)
    return nn.Conv2D(
        inputs,
        outputs,
        kernel,
        stride=stride,
        padding=kernel // 2,
        weight_attr=ParamAttr(initializer=he),
        bias_attr=False,
    )


class Block(nn.Layer):
    """A residual block: basic, or a bottleneck that ends in four times the width; ``mvf`` comes first in it."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, mvf: MultiView | None) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        widths = [inputs, *[width] * (len(kernels) - 1), outputs]
        self.mvf = mvf
        self.count = len(kernels)
        for number, (kernel, step) in enumerate(zip(kernels, strides, strict=True)):
            conv = convolution(widths[number], widths[number + 1], kernel, step)
            self.add_sublayer(f"conv{number + 1}", conv)
            self.add_sublayer(f"bn{number + 1}", nn.BatchNorm2D(widths[number + 1]))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2D(outputs))

    def forward(self, frames: Tensor) -> Tensor:
        """Return the block's feature maps of ``frames``, ``[n * T, inputs, h, w]``."""
        inside = frames if self.mvf is None else self.mvf(frames)
        for number in range(1, self.count + 1):
            inside = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(inside))
            if number < self.count:
                inside = functional.relu(inside)
        shortcut = frames if self.downsample is None else self.downsample(frames)
        return functional.relu(inside + shortcut)


class MVFNet(nn.Layer):
    """Maps clips ``[n, T, 3, h, w]`` to logits ``[n, num_classes]``: a 2D ResNet on frames, with MVF modules.

    The arguments are those of `alignment.mvf.torch_side.MVFNet`.
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
        self.conv1, self.bn1 = convolution(3, 64, 7, 2), nn.BatchNorm2D(64)
        self.maxpool = nn.MaxPool2D(3, stride=2, padding=1)
        channels, growth = 64, 4 if depth == 50 else 1
        for stage in range(4):
            width = 64 * 2**stage
            blocks = []
            for number in range(BLOCKS[depth][stage]):
                mvf = None
                if mvf_freq[stage]:
                    mvf = MultiView(channels, num_segments, alpha=alpha, share=share, mode=mode)
                stride = 2 if stage and not number else 1
                blocks.append(Block(channels, width, stride, bottleneck=depth == 50, mvf=mvf))
                channels = growth * width
            self.add_sublayer(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, num_classes, weight_attr=ParamAttr(initializer=Normal(0.0, 0.01)))

    def forward(self, clip: Tensor) -> Tensor:
        """Return the logits of ``clip``, the mean of its frames'."""
        frames = clip.reshape([-1, *clip.shape[2:]])
        frames = self.maxpool(functional.relu(self.bn1(self.conv1(frames))))
        frames = self.layer4(self.layer3(self.layer2(self.layer1(frames))))
        logits = self.fc(self.dropout(paddle.flatten(self.avgpool(frames), 1)))
        return logits.reshape([-1, self.num_segments, logits.shape[1]]).mean(axis=1)


def build_model(**arguments: Any) -> nn.Layer:
    """Return `MVFNet` with its initialization."""
    return MVFNet(**arguments)


def build_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross entropy of logits and class labels."""
    return nn.CrossEntropyLoss()


def build_optimizer(
    parameters: Sequence[Tensor],
    learning_rate: float | paddle.optimizer.lr.LRScheduler,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    max_norm: float | None = None,
) -> paddle.optimizer.Optimizer:
    """Return SGD with momentum; ``weight_decay`` is added to the gradient (L2), after clipping to ``max_norm``."""
    clip = None if max_norm is None else nn.ClipGradByGlobalNorm(max_norm)
    return paddle.optimizer.Momentum(
        learning_rate, momentum=momentum, parameters=parameters, weight_decay=weight_decay, grad_clip=clip
    )


def build_scheduler(
    optimizer: None, learning_rate: float, milestones: Sequence[int], gamma: float
) -> paddle.optimizer.lr.LRScheduler:
    """Return a schedule that multiplies the rate by ``gamma`` at each of the steps ``milestones``.

    Paddle's schedules stand before the optimizer, so ``optimizer`` is None.
    """
    assert optimizer is None
    return paddle.optimizer.lr.MultiStepDecay(learning_rate, milestones=list(milestones), gamma=gamma)


def sample_segments(frames: int, places: Pixels) -> list[int]:
    """Return the numbers (from 1) of the frames at ``places``, one in each of as many equal pieces of the video.

    Args:
        frames: number of frames of the video.
        places: position within each piece, in [0, 1): 0.5 is its middle (TSN, arXiv 1608.00859).
    """
    found = ((np.arange(len(places)) + places) * frames / len(places)).astype(np.int64)
    return [int(number) + 1 for number in np.minimum(found, frames - 1)]


def build_transform(size: int = 224, short_side: int = 256) -> Callable[[Image.Image], Pixels]:
    """Return what makes an RGB image a frame of the model's input, float32 ``[3, size, size]``, for all splits."""
    steps = transforms.Compose(
        [
            transforms.Resize(short_side, interpolation="bilinear"),
            transforms.CenterCrop(size),
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


class Clips(Dataset):  # type: ignore[misc]
    """Videos as (clip float32 ``[num_segments, 3, size, size]``, label, folder).

    Args:
        root: folder that names are given relative to.
        videos: the videos.
        classes: names of the classes, by label.
        num_segments: frames of a clip, T.
        transform: of one frame.
        seed: of the frames of each epoch; None for those in the middle of each piece of a video.
    """

    def __init__(
        self,
        root: Path,
        videos: Sequence[Video],
        classes: Sequence[str],
        *,
        num_segments: int,
        transform: Callable[[Image.Image], Pixels],
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.root, self.videos, self.classes = root, videos, tuple(classes)
        self.num_segments, self.transform, self.seed, self.epoch = num_segments, transform, seed, 0

    def __len__(self) -> int:
        return len(self.videos)

    def set_epoch(self, epoch: int) -> None:
        """Choose the frames of epoch ``epoch`` (from 0) from now on; without effect but for training."""
        self.epoch = epoch

    def __getitem__(self, index: int) -> tuple[Pixels, int, str]:
        video, places = self.videos[index], np.full(self.num_segments, 0.5)
        if self.seed is not None:
            places = np.random.default_rng([self.seed, self.epoch, index]).random(self.num_segments)
        numbers = sample_segments(video.frames, places)
        clip = np.stack([self.transform(read_image(video.frame(number))) for number in numbers])
        return clip, video.label, video.folder.relative_to(self.root).as_posix()


def build_dataset(
    root: str | Path, split: str, num_segments: int = 16, size: int = 224, short_side: int = 256, seed: int = 0
) -> Clips:
    """Return the videos of a split; for the arguments see `alignment.mvf.torch_side.build_dataset`."""
    folder = Path(root)
    return Clips(
        folder,
        read_split(folder, split),
        class_names(folder),
        num_segments=num_segments,
        transform=build_transform(size, short_side),
        seed=seed if split == "train" else None,
    )


def find_videos(path: Path) -> tuple[Video, ...]:
    """Return the videos to infer: the split ``"val"``, else every folder of frames.

    Args:
        path: a data folder, or one video's folder of frames, or a folder above such ones. Of the latter two
            labels are -1.

    Raises:
        DataError: there is no such folder, or no frame in it.
    """
    if (path / FRAMES).is_dir():
        return read_split(path, "val")
    if not path.is_dir():
        raise DataError("no such folder", file=path, expected=LAYOUT)
    folders = sorted(first.parent for first in path.rglob("img_00001.jpg"))
    if not folders:
        raise DataError("has no video", file=path, expected="folders with img_00001.jpg, img_00002.jpg, ...")
    return tuple(Video(folder=folder, frames=len(list(folder.glob("img_*.jpg"))), label=-1) for folder in folders)


def build_inference_set(
    path: str | Path, num_segments: int = 16, size: int = 224, short_side: int = 256, seed: int = 0
) -> Clips:
    """Return the videos that ``path`` stands for: a data folder (its validation split), a video, or a folder of them."""
    del seed
    folder = Path(path)
    return Clips(
        folder, find_videos(folder), (), num_segments=num_segments, transform=build_transform(size, short_side)
    )


def measure_accuracy(output: Tensor, label: Tensor) -> dict[str, float]:
    """Return accuracy, and the mean of each present class's own accuracy, in percent, of logits ``[n, c]``."""
    labels = label.numpy()
    hits = paddle.argmax(output, axis=1).numpy() == labels
    recalls = [hits[labels == one].mean() for one in np.unique(labels)]
    return {"top1_acc": 100.0 * float(hits.mean()), "mean_class_accuracy": 100.0 * float(np.mean(recalls))}


def build_metric() -> Callable[[Any, Any], dict[str, float]]:
    """Return `measure_accuracy`."""
    return measure_accuracy
