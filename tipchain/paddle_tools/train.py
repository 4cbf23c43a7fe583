"""Train the Paddle port of a case, on one device or, through ``paddle.distributed.launch``, on several."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from tipchain.commands.options import Parser, add_options, whole
from tipchain.core.files import MODE_VARIABLE
from tipchain.core.json_text import taken
from tipchain.core.machine import leave_group
from tipchain.errors import ExitCode, UsageError
from tipchain.framework_types import Dataset, Loss, Model, Optimizer, Schedule, Tensor
from tipchain.frameworks.base import make_optimizer
from tipchain.modes import parse_mode
from tipchain.paddle_tools.checkpoint import (
    Position,
    keep_as_best,
    load_moments,
    load_position,
    member,
    mix_seed,
    reading,
    save_latest,
    train_batches,
)
from tipchain.paddle_tools.evaluate import Evaluation, evaluate
from tipchain.paddle_tools.program import (
    PaddleBench,
    ProgramError,
    add_case_arguments,
    open_bench,
    positive,
    positive_number,
    quiet,
)
from tipchain.parity.case import Case
from tipchain.weights.files import load_paddle_weights

T = TypeVar("T")


class TrainingMeter:
    """Collects losses, samples and times until `take` renders and forgets them."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.start, self.reader_s = time.perf_counter(), 0.0
        self.losses, self.samples = list[float](), 0

    def reading(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield ``batches``, timing how long each takes to come."""
        start = time.perf_counter()
        for batch in batches:
            self.reader_s += time.perf_counter() - start
            yield batch
            start = time.perf_counter()

    def take(self) -> str:
        """Return the averages since the last call, in the words that TIPC's tools look for, and start anew."""
        steps, seconds = len(self.losses), time.perf_counter() - self.start
        text = (
            f"loss: {sum(self.losses) / steps:.5f}, avg_reader_cost: {self.reader_s / steps:.5f} sec, "
            f"avg_batch_cost: {seconds / steps:.5f} sec, avg_samples: {self.samples / steps:g}, "
            f"avg_ips: {self.samples / seconds:.5f} images/sec"
        )
        self._begin()
        return text


# How the training program trains: its flags, and what the checkpoint and the case say where they do not.

AMP_LEVELS = {"O0": "O0", "O1": "O1", "O2": "O2", "null": "O0", "fp32": "O0", "amp": "O1", "fp16": "O2"}
"""Paddle's levels, and the words of a TIPC parameter file's precision list for them."""

POSITIVE = re.compile(r"(?=.*[1-9])\d+(?:\.\d*)?(?:e[-+]?\d{1,2})?")
LR_SCALINGS = ("none", "linear")
"""Rules of the learning rate with several processes. Source: the linear scaling rule of Goyal et al. 2017."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """How to train.

    Attributes:
        epochs: epochs in all, those before a resume included.
        learning_rate: the initial one; ``"linear"`` in ``lr_scaling`` multiplies it by ``processes``.
        max_steps: steps after which training stops, those before a resume included; None for no limit.
        scaling: arguments of ``paddle.amp.GradScaler``.
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

    def load(self, bench: PaddleBench) -> Model:
        """Return the model with the weights to start from: a file's, or a seeded initialization."""
        model = bench.model()
        weights = member(self.resume, "pdparams") if self.resume else self.pretrained
        if weights is not None:
            load_paddle_weights(model, weights)
        return model

    def evaluate(self, bench: PaddleBench, model: Model, dataset: Dataset) -> Evaluation:
        """Return metric and loss of a model over a data set."""
        return evaluate(bench, model, dataset, batch_size=self.batch_size, num_workers=self.num_workers)


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser)
    add_options(parser, "device")
    add = parser.add_argument
    add(
        "--output-dir",
        type=Path,
        default=Path("output"),
        metavar="DIR",
        help="folder of the checkpoints (default %(default)s)",
    )
    add("--epochs", type=positive, metavar="N", help="default: the case's, for the mode the chain runs in")
    add("--batch-size", type=positive, metavar="N", help="samples per step and device (default: the case's)")
    add("--lr", type=positive_number, metavar="RATE", help="initial learning rate (default: the case's)")
    add(
        "--lr-scaling",
        choices=LR_SCALINGS,
        help="linear: multiply --lr by the number of processes, for their batches add up "
        "(default: the checkpoint's, else none)",
    )
    add(
        "--pretrained",
        type=Path,
        metavar="FILE",
        help="weights to start from (.pdparams); default: a seeded initialization",
    )
    add("--resume", type=Path, metavar="PREFIX", help="go on from a checkpoint, such as output/latest")
    add(
        "--amp-level",
        choices=AMP_LEVELS,
        default="O0",
        help="mixed precision, on a GPU only (default O0: off); TIPC's amp is O1, fp16 is O2",
    )
    add("words", nargs="*", metavar="Global.KEY=VALUE", help="TIPC's words on loss scaling, as its drivers pass them")
    add("--seed", type=int, metavar="N", help="default: the checkpoint's, else the case's")
    add("--print-freq", type=positive, default=1, metavar="N", help="steps between log lines (default %(default)s)")
    add("--num-workers", type=whole, default=0, metavar="N", help="loader processes (default 0: none)")
    add("--max-iters", type=positive, metavar="N", help="stop after so many steps in all, also within an epoch")
    add("--test-only", action="store_true", help="evaluate the weights of --pretrained or --resume, and stop")


def parse_scaling(words: Sequence[str]) -> dict[str, float | bool]:
    """Return the arguments of ``paddle.amp.GradScaler`` that TIPC's words ask for.

    Raises:
        UsageError: another word, or a value of the wrong kind.
    """
    scaling: dict[str, float | bool] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key == "Global.scale_loss" and POSITIVE.fullmatch(value):
            scaling["init_loss_scaling"] = float(value)
        elif key == "Global.use_dynamic_loss_scaling" and value in ("True", "False"):
            scaling["use_dynamic_loss_scaling"] = value == "True"
        elif word != "Global.use_amp=True":
            raise UsageError(
                f"unknown word {word!r}\n  expected: Global.use_amp=True, Global.scale_loss=NUMBER > 0 or "
                "Global.use_dynamic_loss_scaling=True|False"
            )
    return scaling


def read_settings(args: argparse.Namespace, case: Case, position: Position | None) -> TrainingSettings:
    """Return how to train: as the flags say, else the checkpoint, else the case."""
    mode = os.environ.get(MODE_VARIABLE)
    before: Any = position or case.train
    seed = args.seed if args.seed is not None else case.seed
    return TrainingSettings(
        epochs=args.epochs or (case.epochs(parse_mode(mode)) if mode else case.train.epochs),
        batch_size=args.batch_size or before.batch_size,
        learning_rate=before.learning_rate if args.lr is None else args.lr,
        lr_scaling=args.lr_scaling or (position.lr_scaling if position else "none"),
        processes=int(os.environ.get("PADDLE_TRAINERS_NUM", "1")),
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


@quiet("training")
def run(args: argparse.Namespace) -> int:
    """Train, evaluating and saving after every epoch."""
    if AMP_LEVELS[args.amp_level] != "O0" and args.device == "cpu":
        raise UsageError(
            f"--amp-level {args.amp_level} needs --device gpu: on a CPU Paddle ignores mixed precision and would "
            "train in float32"
        )
    if args.pretrained and args.resume:
        raise UsageError("--pretrained and --resume cannot stand together: a checkpoint has weights of its own")
    if args.test_only and not (args.pretrained or args.resume):
        raise UsageError("--test-only needs weights: --pretrained FILE or --resume PREFIX")
    position = load_position(args.resume) if args.resume else None
    if position and args.seed is not None and args.seed != position.seed:
        raise UsageError(f"--seed {args.seed} differs from the checkpoint's seed {position.seed}; leave it out")
    selected = os.environ.get("FLAGS_selected_gpus", "").split(",")[0]  # noqa: SIM112  (the launcher's name)
    device = f"gpu:{selected}" if args.device == "gpu" and selected else args.device
    bench = open_bench(args.case, args.data_path, device, position.seed if position else args.seed)
    settings = read_settings(args, bench.case, position)
    if args.test_only:
        if bench.paddle.distributed.get_rank() > 0:
            return ExitCode.PASSED  # one process is enough
        model = settings.load(bench)
        print(f"[Eval] {settings.evaluate(bench, model, bench.dataset('val'))}")
        return ExitCode.PASSED
    # The optimizer's moments are saved under internal names, which count up within a process.
    with bench.paddle.utils.unique_name.guard():
        Session(bench, settings, position).train()
    if settings.processes > 1:
        leave_group(ExitCode.PASSED)
    return ExitCode.PASSED


def _check_resumable(position: Position, fresh: Position) -> None:
    for name in ("case", "batch_size", "learning_rate", "lr_scaling", "amp_level", "devices"):
        saved, now = getattr(position, name), getattr(fresh, name)
        if saved != now:
            raise UsageError(f"--resume: the checkpoint was trained with {name} {saved}, this run has {now}")


class Session:
    """One training run; ``position`` moves on, the rest stays.

    ``model`` is saved, ``network``, it or ``DataParallel`` around it, is trained; only rank 0 evaluates and saves.
    """

    def __init__(self, bench: PaddleBench, settings: TrainingSettings, position: Position | None) -> None:
        """Build everything that training needs, and load its starting point.

        Raises:
            UsageError: the checkpoint was trained otherwise (case, batch size, learning rate, AMP, devices).
            DataError: the data folder lacks a split.
            WeightsError: weights or a checkpoint that cannot be used.
        """
        self.bench, self.settings, distributed = bench, settings, bench.paddle.distributed
        if settings.processes > 1:
            distributed.init_parallel_env()
        self.rank, devices = distributed.get_rank(), distributed.get_world_size()
        start: dict[str, Any] = {"epoch": 0, "iteration": 0, "step": 0, "best": None, "metric": {}}
        fresh = taken(Position, settings, case=bench.case.id, devices=devices, **start)
        if position is not None:
            _check_resumable(position, fresh)
        self.position: Position = position or fresh
        if settings.lr_scaling == "linear" and self.rank == 0:
            many = f"{devices} process{'' if devices == 1 else 'es'}"
            print(f"learning rate {settings.learning_rate:g} x {many} = {settings.rate:g} (linear scaling)")
        self.train_set, self.eval_set = bench.dataset("train"), bench.dataset("val")
        self.model: Model = settings.load(bench)
        rate: Any = settings.rate
        self.schedule: Schedule | None = None
        if bench.case.sides["paddle"].scheduler is not None:
            rate = self.schedule = bench.builder("scheduler")(None, learning_rate=rate, **bench.case.scheduler_args)
        builder, arguments = bench.builder("optimizer"), bench.case.optimizer_args
        self.optimizer: Optimizer = make_optimizer(builder, self.model, rate, arguments)
        self.scaler = None if settings.amp_level == "O0" else bench.paddle.amp.GradScaler(**settings.scaling)
        if settings.amp_level == "O2":
            # After the weights are loaded, for the model's tensors become float16. Saved ones stay float32, so
            # that they load into the plain model.
            decorate = bench.paddle.amp.decorate
            self.model, self.optimizer = decorate(self.model, self.optimizer, level="O2", save_dtype="float32")
        if settings.resume is not None:
            load_moments(settings.resume, self.model, self.optimizer, self.scaler)
        self.network: Model = bench.paddle.DataParallel(self.model) if devices > 1 else self.model

    def train(self) -> None:
        """Train to the last epoch or step.

        Raises:
            ProgramError: a loss is NaN or infinite, an image cannot be read, a checkpoint not be saved.
        """
        if self._done() and self.rank == 0:
            print(f"nothing to do: the checkpoint stands after epoch {self.position.epoch}, step {self.position.step}")
        while not self._done():
            epoch = self.position.epoch + 1
            settings = self.settings
            batches, length = train_batches(
                self.train_set,
                batch_size=settings.batch_size,
                seed=settings.seed,
                epoch=epoch - 1,
                skip=self.position.iteration,
                num_workers=settings.num_workers,
            )
            self.network.train()
            loss_of, meter = self.bench.builder("loss")(), TrainingMeter()
            for image, label, _ in meter.reading(reading(batches, self.train_set)):
                meter.losses.append(self._step(image, label, loss_of, epoch))
                meter.samples += len(label)
                at = self.position
                if self.rank == 0 and (at.iteration % settings.print_freq == 0 or at.iteration == length):
                    print(
                        f"[Train][Epoch {epoch}/{settings.epochs}][Iter {at.iteration}/{length}] {meter.take()}",
                        flush=True,
                    )
                if settings.max_steps is not None and at.step >= settings.max_steps:
                    break
            if self.position.iteration >= length:
                self.position = replace(self.position, epoch=epoch, iteration=0)
                if self.schedule is not None and self.bench.case.train.schedule_per["paddle"] == "epoch":
                    self.schedule.step()
            self._close_epoch(epoch)

    def _done(self) -> bool:
        at, wanted = self.position, self.settings
        return at.epoch >= wanted.epochs or (wanted.max_steps is not None and at.step >= wanted.max_steps)

    def _step(self, image: Tensor, label: Tensor, loss_of: Loss, epoch: int) -> float:
        at = self.position
        # Seeding every step makes dropout depend on the step alone: a resumed run repeats it exactly.
        self.bench.paddle.seed(mix_seed(self.settings.seed, at.step, self.rank))
        with self._precision():
            loss = loss_of(self.network(image), label)
        value = float(loss)
        if not isfinite(value):
            raise ProgramError(
                f"training stopped: the loss is {value} in epoch {epoch}, step {at.iteration + 1}\n"
                "  nothing of this step was saved; a smaller --lr often helps"
            )
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.clear_grad()
        if self.schedule is not None and self.bench.case.train.schedule_per["paddle"] == "iteration":
            self.schedule.step()
        self.position = replace(at, iteration=at.iteration + 1, step=at.step + 1)
        return value

    def _precision(self) -> AbstractContextManager[object]:
        level = self.settings.amp_level
        context: AbstractContextManager[object] = self.bench.paddle.amp.auto_cast(enable=level != "O0", level=level)
        return context

    def _close_epoch(self, epoch: int) -> None:
        if self.rank == 0:
            settings, at = self.settings, self.position
            with self._precision():
                result = settings.evaluate(self.bench, self.model, self.eval_set)
            print(f"[Eval][Epoch {epoch}] {result}", flush=True)
            first = next(iter(result.metric.values()))
            better = at.best is None or first > at.best
            best = first if better else at.best
            self.position = replace(at, best=best, metric=dict(result.metric))
            save_latest(settings.output_dir, self.model, self.optimizer, self.scaler, self.position)
            if better:
                keep_as_best(settings.output_dir)
        if self.position.devices > 1:
            self.bench.paddle.distributed.barrier()
