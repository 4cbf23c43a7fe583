"""What is known of every stage before anything runs: what it needs, what its files are called, where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


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
    """

    builders: tuple[str, ...]
    uses: tuple[str, ...]
    prefix: str
    reference: str = "torch"
    solo: bool = False
    trains: bool = True
    tensors: bool = False


INFO: Mapping[str, StageInfo] = MappingProxyType(
    {
        "forward": StageInfo(builders=("model",), uses=("fake", "weights"), prefix="forward", trains=False),
        "data": StageInfo(builders=("dataset",), uses=("eval_data", "settings"), prefix="data", trains=False),
        "metric": StageInfo(
            builders=("model", "dataset", "metric"),
            uses=("eval_data", "weights", "settings"),
            prefix="metric",
            trains=False,
        ),
        "loss": StageInfo(builders=("model", "loss"), uses=("fake", "weights", "settings"), prefix="loss"),
        "optimizer": StageInfo(builders=("optimizer",), uses=("settings",), prefix="optimizer"),
        "lr": StageInfo(builders=("optimizer", "scheduler"), uses=("settings",), prefix="lr"),
        "regularization": StageInfo(builders=("optimizer",), uses=("settings",), prefix="regularization"),
        "backward": StageInfo(
            builders=("model", "loss", "optimizer"),
            uses=("fake", "weights", "settings"),
            prefix="bp_align",
            tensors=True,
        ),
        "train_data": StageInfo(builders=("dataset",), uses=("train_data", "settings"), prefix="train_data"),
        "init": StageInfo(builders=("model",), uses=("settings",), prefix="init"),
        "train": StageInfo(
            builders=("model", "loss", "optimizer", "dataset", "metric"),
            uses=("train_data", "eval_data", "weights", "settings"),
            prefix="train_align",
            reference="benchmark",
            tensors=True,
        ),
        "inference": StageInfo(
            builders=("model",),
            uses=("fake", "weights"),
            prefix="inference",
            reference="training",
            solo=True,
            trains=False,
        ),
        "distributed": StageInfo(
            builders=("model", "loss", "optimizer"),
            uses=("fake", "weights", "settings"),
            prefix="distributed",
            reference="single",
            solo=True,
            tensors=True,
        ),
    }
)
"""The reproduction guide's eleven steps in its order, then what it asks for besides."""
STAGES = tuple(INFO)
SCRIPTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "01": ("01_test_forward.py", ("forward",)),
        "02": ("02_test_data.py", ("data",)),
        "03": ("03_test_metric.py", ("metric",)),
        "04": ("04_test_loss.py", ("loss",)),
        "05": ("05_test_train.py", ("backward", "train")),
    }
)
"""The numbered scripts in ``test_tipc/``: program and stages by number."""
SOLO = tuple(name for name, info in INFO.items() if info.solo)
