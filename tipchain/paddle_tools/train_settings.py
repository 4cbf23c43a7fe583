"""How the training program trains: its flags, and what the checkpoint and the case say where they do not."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.errors import UsageError
from tipchain.modes import parse_mode
from tipchain.paddle_tools.checkpoint import Position, member
from tipchain.paddle_tools.program import (
    add_case_arguments,
    add_device_argument,
    not_negative,
    positive,
    positive_number,
)
from tipchain.parity.case import Case
from tipchain.runs import MODE_VARIABLE

if TYPE_CHECKING:
    from tipchain.commands.options import Parser

AMP_LEVELS = {"O0": "O0", "O1": "O1", "O2": "O2", "null": "O0", "fp32": "O0", "amp": "O1", "fp16": "O2"}
"""Paddle's levels, and the words of a TIPC parameter file's precision list for them."""

LR_SCALINGS = ("none", "linear")
"""What several processes make of the learning rate. Source: the linear scaling rule of Goyal et al. 2017."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train.

    Attributes:
        epochs: epochs in all, those before a resume included.
        batch_size: samples per step and device.
        learning_rate: initial learning rate, before it is scaled.
        lr_scaling: ``"linear"`` multiplies it by ``processes``, ``"none"`` does not.
        processes: how many train together.
        seed: of initialization, order and dropout.
        max_steps: steps after which training stops, those before a resume included; None for no limit.
        print_freq: steps between log lines.
        num_workers: loader processes.
        amp_level: O0 (float32), O1 or O2.
        scaling: arguments of ``paddle.amp.GradScaler``.
        output_dir: where checkpoints go.
        pretrained: weights to start from, or None.
        resume: prefix of the checkpoint to go on from, or None.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    lr_scaling: str
    processes: int
    seed: int
    max_steps: int | None
    print_freq: int
    num_workers: int
    amp_level: str
    scaling: Mapping[str, float | bool]
    output_dir: Path
    pretrained: Path | None
    resume: Path | None

    @property
    def rate(self) -> float:
        """The initial learning rate that training begins with."""
        return self.learning_rate * (self.processes if self.lr_scaling == "linear" else 1)

    def weights(self) -> Path | None:
        """Return the file of the weights to start from, or None for a seeded initialization."""
        return member(self.resume, "pdparams") if self.resume else self.pretrained


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser)
    add_device_argument(parser)
    add = parser.add_argument
    add(
        "--output-dir",
        type=Path,
        default=Path("output"),
        help="folder of the checkpoints (default %(default)s)",
    )
    add("--epochs", type=positive, help="default: the case's, for the mode the chain runs in")
    add("--batch-size", type=positive, help="samples per step and device (default: the case's)")
    add("--lr", type=positive_number, help="initial learning rate (default: the case's)")
    add(
        "--lr-scaling",
        choices=LR_SCALINGS,
        help="linear: multiply --lr by the number of processes, for their batches add up "
        "(default: the checkpoint's, else none)",
    )
    add("--pretrained", type=Path, help="weights to start from (.pdparams); default: a seeded initialization")
    add("--resume", type=Path, metavar="PREFIX", help="go on from a checkpoint, such as output/latest")
    add(
        "--amp-level",
        choices=AMP_LEVELS,
        default="O0",
        help="mixed precision, on a GPU only (default O0: off); TIPC's amp is O1, fp16 is O2",
    )
    add(
        "words",
        nargs="*",
        metavar="Global.KEY=VALUE",
        help="TIPC's words on loss scaling, as its drivers pass them",
    )
    add("--seed", type=int, metavar="N", help="default: the checkpoint's, else the case's")
    add("--print-freq", type=positive, default=1, help="steps between log lines (default %(default)s)")
    add("--num-workers", type=not_negative, default=0, help="loader processes (default 0: none)")
    add("--max-iters", type=positive, help="stop after so many steps in all, also within an epoch")
    add("--test-only", action="store_true", help="evaluate the weights of --pretrained or --resume, and stop")


def parse_scaling(words: Sequence[str]) -> dict[str, float | bool]:
    """Return the arguments of ``paddle.amp.GradScaler`` that TIPC's words ask for.

    Raises:
        UsageError: another word, or a value of the wrong kind.
    """
    scaling: dict[str, float | bool] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key == "Global.scale_loss" and _is_positive(value):
            scaling["init_loss_scaling"] = float(value)
        elif key == "Global.use_dynamic_loss_scaling" and value in ("True", "False"):
            scaling["use_dynamic_loss_scaling"] = value == "True"
        elif word != "Global.use_amp=True":
            raise UsageError(
                f"unknown word {word!r}\n  expected: Global.use_amp=True, Global.scale_loss=NUMBER > 0 or "
                "Global.use_dynamic_loss_scaling=True|False"
            )
    return scaling


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def read_settings(args: argparse.Namespace, case: Case, position: Position | None) -> Settings:
    """Return how to train: what the flags say, else the checkpoint, else the case."""
    mode = os.environ.get(MODE_VARIABLE)
    before: Any = position or case.train
    seed = args.seed if args.seed is not None else case.seed
    return Settings(
        epochs=args.epochs or (case.epochs(parse_mode(mode)) if mode else case.train.epochs),
        batch_size=args.batch_size or before.batch_size,
        learning_rate=before.learning_rate if args.lr is None else args.lr,
        lr_scaling=args.lr_scaling or (position.lr_scaling if position else "none"),
        processes=_processes(),
        seed=position.seed if position else seed,
        max_steps=args.max_iters,
        print_freq=args.print_freq,
        num_workers=args.num_workers,
        amp_level=AMP_LEVELS[args.amp_level],
        scaling=parse_scaling(args.words),
        output_dir=args.output_dir,
        pretrained=args.pretrained,
        resume=args.resume,
    )


def _processes() -> int:
    """Return how many processes the launcher started."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
