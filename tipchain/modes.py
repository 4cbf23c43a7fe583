"""Requests of a run, and their facts before anything runs: modes and their data, devices, stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

from tipchain.errors import UsageError, suggestion

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
DATA_SETS: Mapping[str, Mapping[str, str]] = {
    DIGITS: {"lite": "lite_data", "whole": "whole_data"},
    MINI_UCF: {"lite": "mini_ucf", "whole": "whole_ucf"},
    OWN: {"lite": "own_data", "whole": "own_data"},
    NONE: {"lite": "", "whole": ""},
}
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
        return "_train" in self.value

    @property
    def train_data(self) -> str:
        """``"lite"`` or ``"whole"``: the data that training reads."""
        return "lite" if self.value.startswith("lite_train") else "whole"

    @property
    def eval_data(self) -> str:
        """``"lite"`` or ``"whole"``: the data that evaluation and inference read."""
        return "lite" if self.value.endswith("lite_infer") else "whole"


CHAIN_MODES = tuple(Mode)[:5]
"""The first five: those of chains of train, eval, export and infer, and of alignments. Source: TIPC ``train_infer_python`` documents."""


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
    raise UsageError(f"unknown mode {text!r}{suggestion(text, names)}\n  expected one of: {', '.join(names)}")


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


# What is known of every stage before anything runs: what it needs, what its files are called, where it runs.


class StageInfo(NamedTuple):
    """One stage.

    Attributes:
        builders: what each side's builders must hold.
        uses: what the result depends on, by name: ``fake`` (the fake inputs), ``train_data``, ``eval_data``,
            ``weights``, ``settings``. Two dumps are comparable only if these are equal.
        prefix: what the names of its files begin with.
        reference: what the reference's dump is called after.
        solo: whether the port is held against itself (another engine, more processes): Paddle's process records
            both dumps, and torch is not run.
        trains: whether it makes sense only in modes that train.
        tensors: whether large captures stand in safetensors files beside the dumps.
        live: the stages of two live models that judge it, or tell why it fails.
        judged_live: whether they judge it; the dumps then show what the guide's logs show.
    """

    builders: tuple[str, ...]
    uses: tuple[str, ...]
    prefix: str
    reference: str = "torch"
    solo: bool = False
    trains: bool = True
    tensors: bool = False
    live: tuple[str, ...] = ()
    judged_live: bool = False


INFO: Mapping[str, StageInfo] = {
    "forward": StageInfo(("model",), ("fake", "weights"), "forward", trains=False, live=("forward",), judged_live=True),
    "data": StageInfo(("dataset",), ("eval_data", "settings"), "data", trains=False, live=("data",)),
    "metric": StageInfo(
        ("model", "dataset", "metric"),
        ("eval_data", "weights", "settings"),
        "metric",
        trains=False,
        live=("metric", "forward"),
    ),
    "loss": StageInfo(("model", "loss"), ("fake", "weights", "settings"), "loss", live=("loss",), judged_live=True),
    "optimizer": StageInfo(("optimizer",), ("settings",), "optimizer", live=("optimizer",)),
    "lr": StageInfo(("optimizer", "scheduler"), ("settings",), "lr", live=("schedule",)),
    "regularization": StageInfo(("optimizer",), ("settings",), "regularization", live=("optimizer",)),
    "backward": StageInfo(
        ("model", "loss", "optimizer"),
        ("fake", "weights", "settings"),
        "bp_align",
        tensors=True,
        live=("backward", "train"),
        judged_live=True,
    ),
    "train_data": StageInfo(("dataset",), ("train_data", "settings"), "train_data", live=("train_data",)),
    "init": StageInfo(("model",), ("settings",), "init"),
    "train": StageInfo(
        ("model", "loss", "optimizer", "dataset", "metric"),
        ("train_data", "eval_data", "weights", "settings"),
        "train_align",
        reference="benchmark",
        tensors=True,
        live=("backward", "train", "optimizer", "schedule"),
    ),
    "inference": StageInfo(("model",), ("fake", "weights"), "inference", reference="training", solo=True, trains=False),
    "distributed": StageInfo(
        ("model", "loss", "optimizer"),
        ("fake", "weights", "settings"),
        "distributed",
        reference="single",
        solo=True,
        tensors=True,
    ),
}
"""The reproduction guide's eleven steps in its order, then its further stages."""
STAGES = tuple(INFO)
LOCATABLE = frozenset(name for name, info in INFO.items() if info.live)
"""Stages whose failure may lie in a layer, the loss, the optimizer, the schedule, the data or the metric."""
PREFLIGHT = "preflight"
"""The name of checks that compare how both sides are built; every run of a case has them."""
SCRIPTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "01": ("01_test_forward.py", ("forward",)),
    "02": ("02_test_data.py", ("data",)),
    "03": ("03_test_metric.py", ("metric",)),
    "04": ("04_test_loss.py", ("loss",)),
    "05": ("05_test_train.py", ("backward", "train")),
}
"""The numbered scripts in ``test_tipc/``: program and stages by number."""
SOLO = tuple(name for name, info in INFO.items() if info.solo)
LATEST = "log_reprod"
"""The folder of a mode's output where users look for the latest files of all stages."""


# File names of a stage: the user documents' section 2.2.3.


def dump_name(stage: str, side: str) -> str:
    """Return the dump's file name; ``"torch"`` stands for the reference, ``benchmark`` in the training stage."""
    role = INFO[stage].reference if side == "torch" else side
    return f"{INFO[stage].prefix}_{role}.npy"


def tensors_name(stage: str, side: str) -> str:
    """Return the name of the safetensors file beside the dump; ``"torch"`` stands for the reference."""
    role = INFO[stage].reference if side == "torch" and INFO[stage].solo else side
    return f"{INFO[stage].prefix}_{role}.safetensors"


def log_name(stage: str) -> str:
    """Return the diff log's file name."""
    return f"{INFO[stage].prefix}_diff.log"


def parse_stages(text: str) -> tuple[str, ...]:
    """Return the stages that ``text`` names: stage names or script numbers, split on ``,`` or ``|``.

    Raises:
        UsageError: an unknown name or number, or none at all.
    """
    chosen: set[str] = set()
    for word in text.replace("|", ",").split(","):
        name = word.strip()
        if name.isdigit() and f"{int(name):02d}" in SCRIPTS:
            chosen.update(SCRIPTS[f"{int(name):02d}"][1])
        elif name in STAGES:
            chosen.add(name)
        else:
            raise UsageError(
                f"unknown stage {name!r}{suggestion(name, (*STAGES, *SCRIPTS))}\n"
                f"  expected: {', '.join(STAGES)} or a script number 01 to 05"
            )
    return tuple(stage for stage in STAGES if stage in chosen)


CHECKS: Mapping[str, str] = {
    PREFLIGHT: "construction",
    "forward": "layers",
    "loss": "function",
    "backward": "gradients",
    "train": "updates",
}
"""The names of live models' checks in a run's verdicts, by their stage."""
