"""Classify images, or a case's other samples, with an exported model, through Paddle Inference."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tipchain.commands.options import Parser
from tipchain.core.blame import serving
from tipchain.core.images import find_images, read_image
from tipchain.core.json_text import JsonObject
from tipchain.core.yaml_reader import load_yaml
from tipchain.errors import DataError, ExitCode, InputError, UsageError
from tipchain.framework_types import Array, Dataset, Function, Nested
from tipchain.frameworks.base import resolve
from tipchain.frameworks.paddle_export import STEM, Predictor
from tipchain.modes import parse_device
from tipchain.paddle_tools.program import (
    ProgramError,
    add_case,
    find_data,
    import_paddle,
    open_case,
    positive,
    quiet,
    true_or_false,
)
from tipchain.parity.case import LABEL, Case, open_builder
from tipchain.parity.inputs import make_inputs, softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The contents of ``inference.yml`` beside an exported model.

    Attributes:
        case: id of the case it was exported from.
        inputs: name, shape (None: any) and dtype of each input, in order.
        class_names: by label.
        transform: builder of what makes the model's inputs of samples; empty where there is none.
        paddle: version that exported it.
    """

    case: str
    inputs: Sequence[JsonObject]
    class_names: Sequence[str]
    transform: str
    paddle: str


def read_card(folder: Path) -> ModelCard:
    """Return the exported model's own description in ``folder``.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / f"{STEM}.yml"
    if not path.is_file():
        raise InputError("no exported model here", file=path, expected="a folder that the export wrote")
    try:
        return ModelCard(**load_yaml(path, "the card of an exported model").data)
    except TypeError as error:
        raise InputError("is damaged", file=path, found=error) from error


OWN = "build_inference_set"
"""Name of the optional builder beside a case's Paddle data set: ``(path, **data.args)`` -> `Dataset`."""
TRANSFORM = "build_transform"
"""Name of the other: ``(**data.args)`` -> a callable that makes the model's input of an RGB image."""


class Images:
    """Image files, each through the case's transform; their names are their paths."""

    def __init__(self, paths: Sequence[Path], transform: Function) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Array, int, str]:
        path = self.paths[index]
        return self.transform(read_image(path)), -1, str(path)


class FakeSamples:
    """The case's fake inputs, sample by sample, where there is no data set."""

    def __init__(self, case: Case) -> None:
        self.arrays = [array for name, array in make_inputs(case).items() if name != LABEL]
        if not self.arrays:
            raise InputError("has no model input", file=case.path, key="inputs")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Nested, int, str]:
        parts = tuple(array[index] for array in self.arrays)
        return parts if len(parts) > 1 else parts[0], -1, f"fake input {index}"


def open_samples(case: Case, given: Path | None, data: Path) -> Dataset:
    """Return the samples of ``given``; without it, of the validation split of the data folder ``data``.

    Beside the case's Paddle data set there may stand ``build_inference_set``, which gets ``given`` or ``data``, for
    samples that are no image files, such as videos; or ``build_transform``, for image files. Without either it is the data
    set's own validation split that is inferred, and without a data set the case's fake inputs.

    Raises:
        UsageError: ``given`` cannot be read without one of the two.
        DataError: there is nothing to infer.
    """
    dataset, own = case.sides["paddle"].dataset, sample_spec(case)
    if own is not None:
        builder = resolve(own, case.root, compat=case.sides["paddle"].compat)
        with serving(stage="opening the samples"):
            built = builder(*((given or data,) if own.endswith(f":{OWN}") else ()), **case.data.args)
        samples: Dataset = built if own.endswith(f":{OWN}") else Images(find_images(given or data / "val"), built)
        return samples
    if given is not None and not (given / "val").is_dir():
        raise UsageError(
            f"{given}: who reads it?\n"
            f"  expected: a {OWN} or {TRANSFORM} beside the Paddle data set of the case, or a folder with val/"
        )
    if dataset is None:
        return FakeSamples(case)
    split: Dataset = open_builder(case, "paddle", "dataset")(given or data, "val", **case.data.args)
    return split


def sample_spec(case: Case) -> str | None:
    """Return ``module:callable`` of the maker of the model's inputs for inference; None where the case has none of its own.

    Raises:
        InputError: the module of the case's data set cannot be imported.
    """
    dataset = case.sides["paddle"].dataset
    if dataset is None:
        return None
    resolve(dataset, case.root, compat=case.sides["paddle"].compat)
    module = dataset.partition(":")[0]
    found = next((name for name in (OWN, TRANSFORM) if hasattr(sys.modules[module], name)), None)
    return None if found is None else f"{module}:{found}"


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add_case(parser)
    add("--model-dir", type=Path, default=Path("output/inference"), metavar="DIR", help="default %(default)s")
    add(
        "--image-dir",
        type=Path,
        metavar="PATH",
        help="an image, or a folder with images; for a case of videos a folder of frames, or of such folders "
        "(default: the validation split of the mode's data)",
    )
    add("--batch-size", type=positive, default=1, metavar="N", help="default %(default)s")
    add("--use-gpu", type=true_or_false, default=False, metavar="True|False", help="default False")
    add("--enable-mkldnn", type=true_or_false, default=False, metavar="True|False", help="oneDNN (default False)")
    add("--cpu-threads", type=positive, default=1, metavar="N", help="default %(default)s")
    add("--precision", choices=("fp32", "fp16"), default="fp32", help="fp16 on a GPU only (default fp32)")
    add("--top-k", type=positive, default=5, metavar="N", help="classes to print (default %(default)s)")
    add("--benchmark", type=true_or_false, default=False, metavar="True|False", help="print times and memory")


@dataclass(slots=True, kw_only=True)
class Times:
    """Seconds of each part, summed over batches."""

    preprocess_s: float = 0.0
    inference_s: float = 0.0
    postprocess_s: float = 0.0
    batches: int = 0
    samples: int = 0
    start: float = field(default_factory=time.perf_counter)


@quiet("inference")
def run(args: argparse.Namespace) -> int:
    """Print the likeliest classes of every sample."""
    if args.precision == "fp16" and not args.use_gpu:
        raise UsageError("--precision fp16 needs --use-gpu True: on a CPU this model runs in fp32 only")
    if args.use_gpu and args.enable_mkldnn:
        raise UsageError("--enable-mkldnn True needs --use-gpu False: oneDNN computes on the CPU")
    case = open_case(args.case)
    card = read_card(args.model_dir)
    if card.case != case.id:
        raise UsageError(f"{args.model_dir} was exported from case {card.case}, but --case is {case.id}")
    framework = import_paddle()
    samples = open_samples(case, args.image_dir, find_data(case, None, os.environ)[0])
    device = parse_device("gpu" if args.use_gpu else "cpu")
    described = framework.configure(device, case.seed, threads=args.cpu_threads)
    predictor = Predictor(
        args.model_dir,
        device=device,
        mkldnn=args.enable_mkldnn,
        threads=args.cpu_threads,
        half=args.precision == "fp16",
    )
    times = classify(predictor, samples, card, args)
    if args.benchmark:
        print("\n".join(report(times, args, described, framework.versions())))
    return ExitCode.PASSED


def classify(predictor: Predictor, samples: Dataset, card: ModelCard, args: argparse.Namespace) -> Times:
    """Print one line for each sample; return how long the parts took.

    The first batch runs once more beforehand when times are wanted: a first run also allocates memory.
    """
    if args.benchmark:
        predictor(*_load(samples, range(min(args.batch_size, len(samples))))[0])
    times = Times()
    for first in range(0, len(samples), args.batch_size):
        numbers = range(first, min(first + args.batch_size, len(samples)))
        start = time.perf_counter()
        batch, names = _load(samples, numbers)
        loaded = time.perf_counter()
        logits = predictor(*batch)[0]
        computed = time.perf_counter()
        axis = next((at for at, length in enumerate(logits.shape) if length == len(names)), None)
        if axis is None:
            raise ProgramError(
                f"the model's output is {list(logits.shape)}: none of its axes has the batch's {len(names)} samples"
            )
        rows = np.moveaxis(logits, axis, 0)
        lines = [_line(name, row, card.class_names, args.top_k) for name, row in zip(names, rows, strict=True)]
        times.postprocess_s += time.perf_counter() - computed
        times.preprocess_s += loaded - start
        times.inference_s += computed - loaded
        times.batches += 1
        times.samples += len(names)
        print("\n".join(lines), flush=True)
    return times


def _load(samples: Dataset, numbers: range) -> tuple[list[Array], list[str]]:
    try:
        loaded = [samples[number] for number in numbers]
    except DataError as error:
        raise ProgramError(str(error)) from error
    parts = [one[0] if isinstance(one[0], tuple) else (one[0],) for one in loaded]
    return [np.stack(arrays) for arrays in zip(*parts, strict=True)], [str(one[2]) for one in loaded]


def _line(path: str, output: Array, names: Sequence[str], top_k: int) -> str:
    if not np.isfinite(output).all():
        raise ProgramError(f"{path}: the model's output is not finite: {output.reshape(-1)[:10].tolist()}")
    if output.ndim != 1:
        numbers = f"mean {output.mean():.6g}, from {output.min():.6g} to {output.max():.6g}"
        return f"file: {path}, output: {list(output.shape)}, {numbers}"
    scores = softmax(output.astype(np.float64))
    order = np.argsort(-scores, kind="stable")[:top_k]
    ranked = ", ".join(f"({names[label]}, {scores[label]:.5f})" for label in order)
    return f"file: {path}, top-{len(order)}: [{ranked}]"


def report(times: Times, args: argparse.Namespace, device: str, versions: dict[str, str]) -> list[str]:
    """Return environment, settings, milliseconds per batch and memory, as TIPC's benchmark logs have them."""
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    milliseconds = {
        f"{part}_time(ms)": 1000 * getattr(times, f"{part}_s") / times.batches
        for part in ("preprocess", "inference", "postprocess")
    }
    software = ", ".join(f"{name}: {version}" for name, version in versions.items())
    return [
        "---------------------- Env info ----------------------",
        f"OS_version: {platform.platform()}, python: {platform.python_version()}, {software}",
        f"device: {device}, cpu_count: {os.cpu_count()}",
        "---------------------- Conf info ----------------------",
        f"model_dir: {args.model_dir}",
        f"batch_size: {args.batch_size}, precision: {args.precision}, use_gpu: {args.use_gpu}",
        f"enable_mkldnn: {args.enable_mkldnn}, cpu_threads: {args.cpu_threads}",
        "---------------------- Perf info ----------------------",
        f"total number of samples: {times.samples}, total time(s): {time.perf_counter() - times.start:.3f}",
        ", ".join(f"{name}: {value:.3f}" for name, value in milliseconds.items()),
        f"cpu_rss(MB): {memory_mb:.1f}",
    ]
