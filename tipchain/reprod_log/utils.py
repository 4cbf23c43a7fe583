"""Conversions between NumPy and the frameworks, the logger and the printed check."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.framework_types import Tensor
from tipchain.numbers.tolerance import METHODS
from tipchain.numbers.verdicts import method_lines

_UNKNOWN: Mapping[str, float] = {"mean": nan, "max": nan, "min": nan}


class Difference(dict[str, float]):
    """``mean``, ``max`` and ``min`` of one tensor's difference.

    Attributes:
        problem: why there is no difference to speak of (shapes differ, nothing compared); "" if there is one.
    """

    def __init__(self, values: Mapping[str, float] = _UNKNOWN, *, problem: str = "") -> None:
        super().__init__(values)
        self.problem = problem


def init_logger(log_file: str | None = None, name: str = "root", log_level: int = logging.DEBUG) -> logging.Logger:
    """Return a logger that writes reprod_log's lines to stdout and, if named, to a file that it empties first.

    The default name gives a logger of its own that only prints as ``root``: Python's root logger is left
    alone. Another call with the same name does not double the lines.
    """
    # getLogger("root") is Python's root logger.
    logger = logging.Logger(name) if name == "root" else logging.getLogger(name)  # noqa: LOG001
    logger.propagate = False
    for old in [handler for handler in logger.handlers if getattr(handler, "of_tipchain", False)]:
        logger.removeHandler(old)
        old.close()
    handlers: list[logging.Handler] = [logging.StreamHandler(stream=sys.stdout)]
    if log_file is not None:
        Path(log_file).parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(log_file, mode="w", encoding="utf-8"))
    form = logging.Formatter("[%(asctime)s] %(name)s %(levelname)s: %(message)s", datefmt="%Y/%m/%d %H:%M:%S")
    for handler in handlers:
        handler.of_tipchain = True  # type: ignore[attr-defined]
        handler.setFormatter(form)
        logger.addHandler(handler)
    logger.setLevel(log_level)
    return logger


def np2torch(data: dict[str, object]) -> dict[str, object]:
    """Return ``data`` with arrays as torch tensors: floats in the default float type, the rest as it is."""
    import torch

    return _converted(data, torch.from_numpy, str(torch.get_default_dtype())[6:])


def np2paddle(data: dict[str, object]) -> dict[str, object]:
    """Return ``data`` with arrays as Paddle tensors: floats in the default float type, the rest as it is."""
    import paddle

    return _converted(data, paddle.to_tensor, paddle.get_default_dtype())


def torch2np(data: object) -> dict[str, Any]:
    """Return a model's output as a dict of arrays.

    A tensor becomes ``output``, the items of a tuple or list ``output_0``, ``output_1`` and so on; dicts
    keep their keys, nested outputs become nested dicts, and None is left out.
    """
    if isinstance(data, Mapping):
        named = dict(data)
    elif isinstance(data, (tuple, list)):
        named = {f"output_{n}": item for n, item in enumerate(data)}
    else:
        return {"output": _array(data)}
    return {
        key: torch2np(item) if isinstance(item, (Mapping, tuple, list)) else _array(item)
        for key, item in named.items()
        if item is not None
    }


def paddle2np(data: object = None) -> dict[str, Any]:
    """Return a model's output as a dict of arrays, named as in :func:`torch2np`."""
    return torch2np(data)


def check_print_diff(
    diff_dict: Mapping[Any, Any],
    diff_method: str | Sequence[str] = "mean",
    diff_threshold: float = 1e-6,
    print_func: Callable[[str], object] = print,
    indent: str = "\t",
    level: int = 0,
) -> bool:
    """Print the statistics of every tensor and return whether each is ``<= diff_threshold``.

    Args:
        diff_dict: what ``compute_diff`` returns.
        diff_method: ``min``, ``max``, ``mean``, ``all``, or several of them.
        diff_threshold: largest accepted value; NaN is never accepted.
        print_func: called with every line.
        indent: one step of indentation.
        level: depth of ``diff_dict``; callers leave it 0.

    Raises:
        AssertionError: an unknown method.
    """
    methods: list[str] = []
    for name in [diff_method] if isinstance(diff_method, str) else diff_method:
        if name not in METHODS:
            raise AssertionError(f"unknown diff_method {name!r}, expected one of: {', '.join(METHODS)}")
        methods += ["min", "max", "mean"] if name == "all" else [name]
    if not methods:
        raise AssertionError(f"no diff_method given, expected one of: {', '.join(METHODS)}")
    passed = True
    at = indent * level
    for key, value in diff_dict.items():
        if type(value) is not Difference and not (
            value.keys() == _UNKNOWN.keys() and not any(isinstance(item, Mapping) for item in value.values())
        ):
            print_func(f"{at}{key}")
            inner = check_print_diff(value, methods, diff_threshold, print_func, indent, level + 1)
            passed = inner and passed
            continue
        print_func(f"{at}{key}: ")
        lines, good = method_lines(value, methods, diff_threshold, at + indent)
        for line in lines:
            print_func(line)
        problem = getattr(value, "problem", "")
        if problem:
            print_func(f"{at}{indent}{problem}")
        passed = passed and good and not problem
    if not diff_dict:
        print_func(f"{at}nothing was compared")
    return passed and bool(diff_dict)


def _converted(data: dict[str, object], convert: Callable[[object], object], float_type: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise AssertionError(f"inputs must be a dict, found {type(data).__name__}")  # noqa: TRY004  (as reprod_log)
    result = {}
    for key, value in data.items():
        if isinstance(value, np.ndarray):
            # A copy: what a model does to its input must not reach the other side.
            result[key] = convert(np.array(value, dtype=float_type if value.dtype.kind == "f" else None, order="C"))
        else:
            result[key] = value
    return result


def _array(value: Tensor) -> object:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    if "bfloat16" in str(value.dtype):  # which numpy lacks; Paddle hands it out as uint16
        value = value.astype("float32") if hasattr(value, "astype") else value.float()
    return value.numpy()
