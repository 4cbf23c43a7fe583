"""The TIPC modes, the data that each part of a chain uses in them, and device names as users type them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from tipchain.errors import UsageError, did_you_mean

# Device names as users type them: ``cpu``, ``gpu``, ``gpu:N``.


class Device(NamedTuple):
    """A device; ``number`` is the GPU's number, 0 for the CPU."""

    kind: str
    number: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"gpu:{self.number}" if self.is_gpu else "cpu"


def parse_device(text: str) -> Device:
    """Return the device that ``text`` names.

    Raises:
        UsageError: not ``cpu``, ``gpu`` or ``gpu:N``.
    """
    kind, colon, number = text.partition(":")
    if text in ("cpu", "gpu"):
        return Device(kind=text)
    if kind == "gpu" and colon and number.isascii() and number.isdigit():
        return Device(kind="gpu", number=int(number))
    raise UsageError(f"unknown device {text!r}, expected cpu, gpu or gpu:N")


# The TIPC modes and the data that each part of a chain uses in them.


DATA_FOLDER = PurePosixPath("test_tipc/data")
DIGITS, MINI_UCF, OWN, NONE = "digits", "mini_ucf", "own", "none"
DATA_SETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        DIGITS: {"lite": "lite_data", "whole": "whole_data"},
        MINI_UCF: {"lite": "mini_ucf", "whole": "whole_ucf"},
        OWN: {"lite": "own_data", "whole": "own_data"},
        NONE: {"lite": "", "whole": ""},
    }
)
"""Folders of the lite and the whole data below `DATA_FOLDER`, by data set: images of digits in class folders, videos in
UCF-101's raw-frames layout, data of the user's own in any layout, for which nothing is made, and data sets that find or
make their samples themselves, in no folder at all."""


class Mode(Enum):
    """A TIPC mode: one of `CHAIN_MODES`, or that of another kind of chain (`tipchain.chain.kinds`)."""

    LITE_TRAIN_LITE_INFER = "lite_train_lite_infer"
    LITE_TRAIN_WHOLE_INFER = "lite_train_whole_infer"
    WHOLE_TRAIN_WHOLE_INFER = "whole_train_whole_infer"
    WHOLE_INFER = "whole_infer"
    KLQUANT_WHOLE_INFER = "klquant_whole_infer"
    BENCHMARK_TRAIN = "benchmark_train"
    PADDLE2ONNX_INFER = "paddle2onnx_infer"
    SERVING_INFER = "serving_infer"
    CPP_INFER = "cpp_infer"
    LITE_INFER = "lite_infer"

    @property
    def trains(self) -> bool:
        """Whether the mode has training steps."""
        return self in TRAINING_MODES

    @property
    def train_data(self) -> str:
        """``"lite"`` or ``"whole"``: the data that training reads."""
        return "lite" if self.value.startswith("lite_train") else "whole"

    @property
    def eval_data(self) -> str:
        """``"lite"`` or ``"whole"``: the data that evaluation and inference read."""
        return "lite" if self.value.endswith("lite_infer") else "whole"


CHAIN_MODES = (
    Mode.LITE_TRAIN_LITE_INFER,
    Mode.LITE_TRAIN_WHOLE_INFER,
    Mode.WHOLE_TRAIN_WHOLE_INFER,
    Mode.WHOLE_INFER,
    Mode.KLQUANT_WHOLE_INFER,
)
"""The modes of chains of train, eval, export and infer, and of alignments. Source: TIPC ``train_infer_python`` documents."""
TRAINING_MODES = (*CHAIN_MODES[:3], Mode.BENCHMARK_TRAIN)


def parse_mode(text: str, among: Sequence[Mode] = CHAIN_MODES) -> Mode:
    """Return the mode called ``text``.

    Args:
        text: its name.
        among: the modes that it may be.

    Raises:
        UsageError: no such mode; the message lists the modes and the closest one.
    """
    names = [mode.value for mode in among]
    if text in names:
        return Mode(text)
    hint = did_you_mean(text, names)
    raise UsageError(
        f"unknown mode {text!r}" + (f", {hint}" if hint else "") + f"\n  expected one of: {', '.join(names)}"
    )


def data_folder(kind: str, data_set: str = DIGITS) -> PurePosixPath:
    """Return the folder of the ``"lite"`` or ``"whole"`` data of a data set, relative to the project's root."""
    return DATA_FOLDER / DATA_SETS[data_set][kind]


class DataFolders(NamedTuple):
    """The data folders of a chain, relative to the project's root: of training, and of all other commands."""

    train: str
    other: str

    def of(self, step: str) -> str:
        """Return the folder of a command's step."""
        return self.train if step == "train" else self.other


def data_folders(mode: Mode, data_set: str = DIGITS, kind: str | None = None) -> DataFolders:
    """Return the folders of a data set in ``mode``; ``kind`` is ``"lite"`` or ``"whole"`` for both of them."""
    kinds = (kind, kind) if kind else (mode.train_data, mode.eval_data)
    train, other = (str(data_folder(one, data_set)) for one in kinds)
    return DataFolders(train=train, other=other)
