"""Evaluate a weight file of a case's Paddle port on the validation images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tipchain.commands.options import Parser, add_options, whole
from tipchain.core.blame import serving
from tipchain.errors import ExitCode
from tipchain.framework_types import Dataset, Model
from tipchain.frameworks import load_framework
from tipchain.frameworks.paddle_ import load_batches
from tipchain.paddle_tools.checkpoint import reading
from tipchain.paddle_tools.program import PaddleBench, ProgramError, add_case_arguments, open_bench, positive, quiet
from tipchain.parity.stages.bench import measure
from tipchain.weights.files import load_paddle_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The metric's values over the whole set, in percent, and the mean loss of its samples."""

    metric: Mapping[str, float]
    loss: float
    samples: int

    def __str__(self) -> str:
        return ", ".join([*(f"{key}: {value:.3f}" for key, value in self.metric.items()), f"loss: {self.loss:.5f}"])


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, trained="output/best_model.pdparams")
    add_options(parser, "device")
    add = parser.add_argument
    add("--batch-size", type=positive, metavar="N", help="default: the case's")
    add("--num-workers", type=whole, default=0, metavar="N", help="loader processes (default 0: none)")


@quiet("evaluation")
def run(args: argparse.Namespace) -> int:
    """Evaluate, and print one line of results."""
    bench = open_bench(args.case, args.data_path, args.device)
    model = bench.model()
    load_paddle_weights(model, args.pretrained)
    start = time.perf_counter()
    batch_size = args.batch_size or bench.case.data.batch_size
    result = evaluate(bench, model, bench.dataset("val"), batch_size=batch_size, num_workers=args.num_workers)
    seconds = time.perf_counter() - start
    print(f"[Eval] {result}, samples: {result.samples}, seconds: {seconds:.2f}")
    return ExitCode.PASSED


def evaluate(bench: PaddleBench, model: Model, dataset: Dataset, *, batch_size: int, num_workers: int) -> Evaluation:
    """Return metric and loss of ``model`` in eval mode over the whole of ``dataset``.

    The metric sees all outputs at once: that of a set need not be the average of those of its batches.

    Raises:
        ProgramError: the loss is NaN or infinite, or an image cannot be read.
    """
    with serving(side="paddle", stage="evaluation"):
        loss, metric = bench.builder("loss")(), bench.builder("metric")()
        outputs, labels, total_loss, samples = [], [], 0.0, 0
        model.eval()
        sampler = bench.paddle.io.BatchSampler(dataset, batch_size=batch_size)
        batches = reading(load_batches(dataset, sampler, num_workers=num_workers), dataset)
        with bench.paddle.no_grad():
            for number, (image, label, _) in enumerate(batches, start=1):
                output = model(image)
                value = float(loss(output, label))
                if not abs(value) < float("inf"):
                    raise ProgramError(f"evaluation: the loss of batch {number} is {value}")
                outputs.append(output)
                labels.append(label)
                total_loss += value * len(label)
                samples += len(label)
            framework = load_framework("paddle")
            measured = measure(framework, metric, list(zip(outputs, labels, strict=True)))
        return Evaluation(metric=measured, loss=total_loss / samples, samples=samples)
