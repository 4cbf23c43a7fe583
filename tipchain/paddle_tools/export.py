"""Export a case's Paddle port for Paddle Inference, and check that the exported model computes the same."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml

from tipchain.commands.options import Parser, add_options
from tipchain.core.files import writing
from tipchain.core.language import say
from tipchain.errors import DataError, ExitCode, InputError, UsageError
from tipchain.framework_types import Array, Model
from tipchain.frameworks.paddle_export import PROGRAMS, STEM, Predictor, output_tensors, save_program
from tipchain.paddle_tools.infer import ModelCard, sample_spec
from tipchain.paddle_tools.program import PaddleBench, ProgramError, add_case_arguments, open_bench, quiet
from tipchain.weights.files import load_paddle_weights

BATCHES = (1, 3)
"""Batch sizes of the check; two, so that a batch size frozen into the program is seen."""
TOLERANCE = 1e-5
"""Largest accepted difference, relative to the largest output (1 if that is smaller)."""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    add_case_arguments(parser, trained="output/best_model.pdparams")
    add_options(parser, "device")
    parser.add_argument(
        "--save-inference-dir",
        "--output-dir",
        dest="output_dir",
        type=Path,
        default=Path("output/inference"),
        metavar="DIR",
        help="folder of the exported model (default %(default)s)",
    )


@quiet("export")
def run(args: argparse.Namespace) -> int:
    """Export, check, and put the files in place only if the check passed."""
    bench = open_bench(args.case, args.data_path, args.device)
    model = bench.model()
    load_paddle_weights(model, args.pretrained)
    model.eval()
    target: Path = args.output_dir
    with writing(target, ProgramError):
        target.mkdir(parents=True, exist_ok=True)
        beside = TemporaryDirectory(prefix=".export.", dir=target, ignore_cleanup_errors=True)
    with writing(target, ProgramError), beside as aside:
        folder = Path(aside)
        inputs = [spec for spec in bench.case.inputs.values() if spec.name != "label"]
        if not inputs:
            raise InputError("has no model input", file=bench.case.path, key="inputs")
        save_program(model, {one.name: (one.shape, one.dtype) for one in inputs}, folder)
        worst, classes = check_export(bench, model, folder)
        card_file = f"{STEM}.yml"
        card = ModelCard(
            case=bench.case.id,
            inputs=[{"name": spec.name, "shape": [None, *spec.shape[1:]], "dtype": spec.dtype} for spec in inputs],
            class_names=_class_names(bench, classes),
            transform=sample_spec(bench.case) or "",
            paddle=str(bench.paddle.__version__),
        )
        (folder / card_file).write_text(yaml.safe_dump(asdict(card), sort_keys=False, allow_unicode=True))
        (args.output_dir / card_file).unlink(missing_ok=True)
        names = sorted(path.name for path in folder.iterdir())
        if not set(names) & set(PROGRAMS):
            raise UsageError(f"paddle.jit.save wrote no {PROGRAMS[0]}, only {', '.join(names)}")
        for name in sorted(names, key=lambda one: one == card_file):
            os.replace(folder / name, args.output_dir / name)  # noqa: PTH105
    sizes = " and ".join(map(str, BATCHES))
    print(say(f"exported {args.output_dir}/{STEM}: equals the training engine at batch {sizes}, max|Δ| {worst:.3g}"))
    return ExitCode.PASSED


def check_export(bench: PaddleBench, model: Model, folder: Path) -> tuple[float, int]:
    """Hold Paddle Inference's outputs against the training engine's.

    Returns:
        The largest absolute difference, and the length of the first output's last axis.

    Raises:
        ProgramError: they differ; names output, index and both values.
    """
    predictor = Predictor(folder, device=bench.device)
    worst, classes = 0.0, 0
    for batch in BATCHES:
        random = np.random.default_rng(bench.case.seed)
        inputs = [
            random.standard_normal((batch, *spec.shape[1:])).astype(spec.dtype)
            if spec.dtype.startswith("float")
            else random.integers(spec.low, spec.high, (batch, *spec.shape[1:])).astype(spec.dtype)
            for spec in bench.case.inputs.values()
            if spec.name != "label"
        ]
        with bench.paddle.no_grad():
            outputs = model(*(bench.paddle.to_tensor(array) for array in inputs))
            expected: list[Array] = [one.numpy() for one in output_tensors(outputs)]
        actual = predictor(*inputs)
        if len(expected) != len(actual):
            raise ProgramError(f"the exported model has {len(actual)} outputs, the model has {len(expected)}")
        for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
            # Max|expected - actual|, or refuse the export.
            what = f"output {number} at batch {batch}"
            if one.shape != other.shape:
                raise ProgramError(f"export: {what} has shape {other.shape}, the training engine's {one.shape}")
            gap = np.abs(one.astype(np.float64) - other.astype(np.float64))
            allowed = TOLERANCE * max(1.0, float(np.abs(one).max(initial=0.0)))
            if not (gap <= allowed).all():
                index = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap))), gap.shape)
                place = tuple(int(i) for i in index)
                raise ProgramError(
                    f"export: {what} differs from the training engine's: worst at {place}: "
                    f"expected {one[index]!s}, actual {other[index]!s}\n"
                    f"  max|Δ| {float(gap[index]):.3g}, allowed {allowed:.3g}; nothing was exported"
                )
            worst = max(worst, float(gap.max(initial=0.0)))
        classes = expected[0].shape[-1]
    return worst, classes


def _class_names(bench: PaddleBench, classes: int) -> Sequence[str]:
    found: Sequence[str] = ()
    if bench.case.sides["paddle"].dataset is not None:
        try:
            found = [str(name) for name in getattr(bench.dataset("val"), "classes", ())]
        except DataError:
            if bench.data_given:
                raise
        if len(found) != classes:
            print(say(f"note: {len(found)} class names for {classes} outputs; classes are numbered instead"))
    return found if len(found) == classes else [str(number) for number in range(classes)]
