"""Run an exported model with Paddle Inference and its ONNX form with onnxruntime on equal inputs, and compare the outputs.

``python compare_onnx.py --model M.pdmodel --params M.pdiparams --onnx M.onnx``. Needs numpy, paddle
and onnxruntime, and nothing of tipchain: it runs with the interpreter of a suite's chain. Exit code 1 if an output differs by
more than rounding explains, or nothing could be compared.

How far rounding reaches is measured on the Paddle model itself: it runs again on inputs that are a few units in the last
place apart. An output may differ by `FACTOR` times the largest change that this makes in it, and is never asked for less
than `FLOOR_ULPS` units in the last place of its largest value; whole numbers are counted where they differ. A detector's rows
(class, score, box) are found again in whatever order they come, and each of their columns has its own limit.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FACTOR, ULPS, FLOOR_ULPS, RUNS = 10.0, 16, 8, 4
"""As for curves of losses: `tipchain.parity.envelope`."""
BATCHES = (1, 2)
"""Sizes that a batch of any size is tried with."""
SIDE = 224
"""Stands for a dimension of any size behind the batch."""
COLUMNS = 6
"""Of a detector's rows: class, score and the corners of a box, as Paddle's multiclass_nms3 gives them."""
NOTHING = "nothing can be said"
TYPES = {
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(bool)": "bool",
}
"""The names of types in onnxruntime; float32 is all else."""
Array = Any
Run = Any
"""Takes inputs by name, and returns a list of outputs. No alias of a type: suites run Python 3.8, too."""


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", required=True, help="Paddle's program")
    parser.add_argument("--params", required=True, help="its weights")
    parser.add_argument("--onnx", required=True, help="the converted model")
    args = parser.parse_args()
    for path in (args.model, args.params, args.onnx):
        if not os.path.isfile(path):  # noqa: PTH113
            print(f"error: {path} is not there")
            return 1
    names, paddle_run = open_paddle(args.model, args.params)
    specs, onnx_run = open_onnx(args.onnx)
    if sorted(names) != sorted(specs):
        print(f"error: the inputs differ: Paddle's {sorted(names)}, ONNX's {sorted(specs)}")
        return 1
    random = np.random.default_rng(0)
    any_batch = all(shape and shape[0] < 0 for shape, _ in specs.values())
    worst, count, wrong, silent, changed = 0.0, 0, 0, 0, False
    for batch in BATCHES if any_batch else BATCHES[:1]:
        inputs = {name: make(shape, kind, batch, name, random) for name, (shape, kind) in specs.items()}
        for name, array in inputs.items():
            print(f"input {name}: {array.dtype} {list(array.shape)}")
        expected, actual = paddle_run(inputs), onnx_run(inputs)
        other = paddle_run({name: redrawn(array, random) for name, array in inputs.items()})
        nearby = [paddle_run(nudge(inputs, random)) for _ in range(RUNS)]
        print(f"paddle: {len(expected)} outputs, onnxruntime: {len(actual)}")
        if len(expected) != len(actual):
            print("error: the numbers of outputs differ")
            return 1
        for number, (left, right) in enumerate(zip(expected, actual)):  # noqa: B905 - Python 3.8; counted above
            text, good, ratio = compare(left, right, [run[number] for run in nearby], other[number])
            print(f"output {number} at batch {batch}: {text}")
            count, worst = count + 1, max(worst, ratio)
            silent, wrong = silent + (NOTHING in text), wrong + (not good and NOTHING not in text)
            changed = changed or not np.array_equal(left, other[number])
    if count and not changed:
        print(f"error: other inputs change no output, so {NOTHING}")
        return 1
    print(f"difference_ratio: {worst:.6g}")
    ended = [f"{wrong} differ by more than rounding"] if wrong else []
    ended += [f"of {silent} {NOTHING}"] if silent else []
    print(f"compared {count} outputs: " + (", ".join(ended) or "they agree"))
    return 1 if ended or not count else 0


def open_paddle(program: str, weights: str) -> tuple[list[str], Run]:
    """Return the names of a Paddle program's inputs, and a function that runs it on the CPU."""
    from paddle import inference

    config = inference.Config(program, weights)
    config.disable_gpu()
    if hasattr(config, "disable_mkldnn"):
        config.disable_mkldnn()  # Paddle 3 takes oneDNN unasked, whose kernels refuse models that its own can run
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    predictor = inference.create_predictor(config)

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        for name, array in inputs.items():
            handle = predictor.get_input_handle(name)
            handle.reshape(array.shape)
            handle.copy_from_cpu(array)
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu().copy() for name in predictor.get_output_names()]

    return list(predictor.get_input_names()), run


def open_onnx(path: str) -> tuple[dict[str, tuple[list[int], str]], Run]:
    """Return an ONNX model's inputs, each with its shape (-1: any size) and its type, and a function that runs it on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    specs = {
        one.name: ([size if isinstance(size, int) else -1 for size in one.shape], str(one.type))
        for one in session.get_inputs()
    }
    return specs, lambda inputs: session.run(None, dict(inputs))


def make(shape: Sequence[int], kind: str, batch: int, name: str, random: Array) -> Array:
    """Return an input: standard normal numbers, ones where it is a scale, sizes where it is an image's shape."""
    sizes = [size if size > 0 else batch if index == 0 else SIDE for index, size in enumerate(shape)]
    dtype = np.dtype(TYPES.get(kind, "float32"))
    if name == "scale_factor":
        return np.ones(sizes, dtype)
    if name == "im_shape":
        return np.full(sizes, SIDE, dtype)
    if dtype.kind == "f":
        return random.standard_normal(sizes).astype(dtype)
    return random.integers(0, 2, sizes).astype(dtype)


def redrawn(array: Array, random: Array) -> Array:
    """Return another input of the same shape and type; arrays that are no random numbers stay."""
    if array.dtype.kind != "f":
        return random.permutation(array.ravel()).reshape(array.shape)
    return random.standard_normal(array.shape).astype(array.dtype) if array.std() else array


def nudge(inputs: Mapping[str, Array], random: Array) -> dict[str, Array]:
    """Return inputs whose numbers are `ULPS` units in the last place apart, up or down by the toss of a coin."""
    return {
        name: array + (np.spacing(np.abs(array)) * random.choice((-ULPS, ULPS), array.shape)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }


def compare(expected: Array, actual: Array, nearby: Sequence[Array], other: Array) -> tuple[str, bool, float]:
    """Return the text about one output, whether it agrees, and its difference as a part of the allowed one.

    ``nearby`` are Paddle's outputs on inputs that are hardly different. An output that another input does not change by
    more than may be, as ``other`` shows, proves nothing.
    """
    why, finite = "", expected.dtype.kind != "f" or (np.isfinite(expected).all() and np.isfinite(actual).all())
    if expected.shape != actual.shape and any(run.shape != expected.shape for run in nearby):
        why = f"its shape depends on rounding, so {NOTHING}"
    elif expected.shape != actual.shape:
        why = f"shapes differ: {list(expected.shape)} and {list(actual.shape)}"
    elif not expected.size:
        why = f"is empty, {list(expected.shape)}, so {NOTHING}"
    elif not finite:
        why = "has values that are not finite"
    if why:
        return why, False, float("inf")
    # By columns where these are rows of a detector, else all together.
    axis = 0 if expected.ndim == 2 and expected.shape[1] == COLUMNS and expected.dtype.kind == "f" else None
    if axis == 0:
        actual, nearby = in_order(expected, actual), [in_order(expected, run) for run in nearby]
    same = [run for run in nearby if run.shape == expected.shape]
    if expected.dtype.kind != "f":
        differing = int(np.count_nonzero(expected != actual))
        limit = FACTOR * max((int(np.count_nonzero(expected != run)) for run in same), default=0)
        return (
            f"{differing} of {expected.size} whole numbers differ, allowed {limit:g}",
            differing <= limit,
            differing / limit if limit else float(differing > 0),
        )
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    scale = np.abs(left).max(axis)
    reach = np.max([np.abs(run.astype(np.float64) - left).max(axis) for run in same] or [np.zeros_like(scale)], axis=0)
    limit = FACTOR * np.maximum(reach, FLOOR_ULPS * float(np.finfo(np.float32).eps) * scale)
    apart = np.abs(right - left).max(axis)
    ratios = np.where(apart > limit, np.inf, 0.0)
    np.divide(apart, limit, out=ratios, where=limit > 0)
    worst = np.unravel_index(np.argmax(ratios), ratios.shape)
    place = f"column {worst[0]}: " if worst else ""
    text = f"{place}max difference {apart[worst]:.6g} of values up to {scale[worst]:.6g}, allowed {limit[worst]:.6g}"
    if other.shape == left.shape and (np.abs(other.astype(np.float64) - left).max(axis) <= limit).all():
        return f"{text}; another input changes it by no more, so {NOTHING}", False, float("inf")
    return text, bool((apart <= limit).all()), float(ratios[worst])


def in_order(expected: Array, rows: Array) -> Array:
    """Return a detector's rows in the order of those expected: each is the nearest of the remaining ones."""
    if rows.shape != expected.shape:
        return rows
    scale = np.abs(expected).max(0)
    left = list(range(len(rows)))
    order = []
    for row in expected:
        far = (np.abs(rows[left] - row) / np.where(scale > 0, scale, 1)).max(1)
        order.append(left.pop(int(np.argmin(far))))
    return rows[order]


if __name__ == "__main__":
    sys.exit(main())
