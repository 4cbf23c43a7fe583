"""Comparison of dicts of arrays, and of live models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from tipchain.core.machine import collector_resting
from tipchain.framework_types import Model
from tipchain.numbers.compare import diff_arrays, diff_tiny
from tipchain.numbers.verdicts import statistics
from tipchain.reprod_log.utils import Difference, check_print_diff, np2paddle, np2torch, paddle2np, torch2np


def check_data(data1: Mapping[object, object], data2: Mapping[object, object]) -> None:
    """Check that two dicts have the same keys, at every depth.

    Raises:
        AssertionError: they do not; the message names every key that is missing, and on which side.
    """
    missing1, missing2 = _missing(data2, data1), _missing(data1, data2)
    lines = [
        f"in {there} but not found in {here}: {', '.join(keys)}"
        for keys, there, here in ((missing2, "data1", "data2"), (missing1, "data2", "data1"))
        if keys
    ]
    if lines:
        raise AssertionError("\n".join(lines))


@collector_resting()
def compute_diff(data1: Mapping[Any, Any], data2: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return mean, max and min of ``|data1 - data2|`` for every tensor, nested as the data.

    Shapes are never broadcast and nothing is transposed: tensors of different shapes, and empty ones,
    have NaN for statistics, which no check accepts.

    Raises:
        AssertionError: a key stands on one side only, or names a dict on one side and an array on the other.
        NotImplementedError: a value is no array, number or dict.
    """
    check_data(data1, data2)
    arrays = ({key: one for key, one in data.items() if type(one) is np.ndarray} for data in (data1, data2))
    tiny = diff_tiny(*arrays)
    result: dict[Any, Any] = {}
    for key, value in data1.items():
        other = data2[key]
        if key in tiny:
            result[key] = Difference(statistics(tiny[key]))
        elif isinstance(value, Mapping) != isinstance(other, Mapping):
            kinds = " and ".join("a dict" if isinstance(item, Mapping) else "an array" for item in (value, other))
            raise AssertionError(f"{key}: {kinds}")
        else:
            result[key] = compute_diff(value, other) if isinstance(value, Mapping) else _difference(key, value, other)
    return result


def compare_forward(
    torch_model: Model,
    paddle_model: Model,
    input_dict: dict[str, object],
    diff_threshold: float = 1e-6,
    diff_method: str = "mean",
) -> bool:
    """Run both models in eval mode on the same inputs, print how the outputs differ, return whether they pass.

    Args:
        torch_model: a ``torch.nn.Module``.
        paddle_model: a ``paddle.nn.Layer``.
        input_dict: keyword arguments of both; arrays become tensors, floats in the default float type and
            integers as they are.
        diff_threshold: largest accepted value.
        diff_method: as in ``check_print_diff``.
    """
    torch_input, paddle_input = np2torch(input_dict), np2paddle(input_dict)
    torch_model.eval()
    paddle_model.eval()
    outputs = torch2np(torch_model(**torch_input)), paddle2np(paddle_model(**paddle_input))
    passed = _check(outputs[0], outputs[1], diff_threshold, diff_method)
    print("diff check passed" if passed else "diff check failed")
    return passed


def compare_loss_and_backward(
    torch_model: Model,
    paddle_model: Model,
    torch_loss: Callable[[Any, Any], Mapping[str, Any]],
    paddle_loss: Callable[[Any, Any], Mapping[str, Any]],
    input_dict: dict[str, object],
    lr: float = 1e-3,
    steps: int = 10,
    diff_threshold: float = 1e-6,
    diff_method: str = "mean",
) -> bool:
    """Train both models in eval mode with SGD on the same inputs; compare loss and gradients at every step.

    The gradients of Linear weights are compared transposed, because of the layer's type and whatever its
    shape.

    Args:
        torch_model: a ``torch.nn.Module``.
        paddle_model: a ``paddle.nn.Layer`` with the same parameter names.
        torch_loss: called with inputs and outputs; returns a dict whose ``loss`` is a scalar tensor.
        paddle_loss: the same for Paddle.
        input_dict: as in ``compare_forward``.
        lr: learning rate.
        steps: number of steps; the first that fails ends the run.
        diff_threshold: largest accepted value.
        diff_method: as in ``check_print_diff``.

    Returns:
        Whether every step passed; False without steps.

    Raises:
        AssertionError: a gradient that one side lacks; the message names it.
    """
    import torch  # first: after paddle it can crash the process

    # isort: split
    import paddle

    torch_input, paddle_input = np2torch(input_dict), np2paddle(input_dict)
    torch_model.eval()
    paddle_model.eval()
    torch_optim = torch.optim.SGD(params=torch_model.parameters(), lr=lr)
    paddle_optim = paddle.optimizer.SGD(parameters=paddle_model.parameters(), learning_rate=lr)
    turned = _linear_weights(torch_model, torch.nn.Linear) & _linear_weights(paddle_model, paddle.nn.Linear)
    for step in range(steps):
        paddle_optim.clear_grad()
        loss = paddle_loss(paddle_input, paddle_model(**paddle_input))["loss"]
        loss.backward()
        actual = {"loss": paddle2np(loss)["output"], **_gradients(paddle_model)}
        paddle_optim.step()

        torch_optim.zero_grad()
        loss = torch_loss(torch_input, torch_model(**torch_input))["loss"]
        loss.backward()
        expected = {"loss": torch2np(loss)["output"], **_gradients(torch_model, turned)}
        torch_optim.step()

        if not _check(expected, actual, diff_threshold, diff_method):
            print(f"diff check failed in iter {step}")
            return False
        print(f"diff check passed in iter {step}")
    print("diff check passed" if steps > 0 else "diff check failed")
    return steps > 0


def _missing(data: Mapping[object, object], other: Mapping[Any, Any], path: str = "") -> list[str]:
    result = []
    for key, value in data.items():
        if key not in other:
            result.append(f"{path}{key}")
        elif type(value) is not np.ndarray and isinstance(value, Mapping) and isinstance(other[key], Mapping):
            result += _missing(value, other[key], f"{path}{key}/")
    return result


def _difference(key: object, value: object, other: object) -> Difference:
    for item in (value, other):
        if not isinstance(item, (np.ndarray, np.generic, bool, int, float, complex)):
            raise NotImplementedError(f"{key}: cannot compare a {type(item).__name__}")
    diff = diff_arrays(str(key), np.asarray(value), np.asarray(other))
    if diff.expected_shape != diff.actual_shape:
        return Difference(problem=f"shapes differ: {diff.expected_shape} and {diff.actual_shape}")
    if not diff.size:
        what = "empty" if 0 in diff.expected_shape else f"{diff.expected_dtype} holds no numbers"
        return Difference(problem=f"nothing was compared: {what}")
    return Difference(statistics(diff))


def _check(expected: Mapping[str, Any], actual: Mapping[str, Any], threshold: float, method: str) -> bool:
    return check_print_diff(
        compute_diff(expected, actual), diff_method=method, diff_threshold=threshold, print_func=print
    )


def _linear_weights(model: Model, kind: type) -> set[str]:
    """Return the parameter names of the weights of all layers of type ``kind``, in torch and Paddle alike."""
    layers = model.named_modules() if hasattr(model, "named_modules") else model.named_sublayers(include_self=True)
    return {f"{name}.weight" if name else "weight" for name, layer in layers if isinstance(layer, kind)}


def _gradients(model: Model, turned: AbstractSet[str] = frozenset()) -> dict[str, object]:
    return {
        name: torch2np(one.grad.t() if name in turned else one.grad)["output"].copy()
        for name, one in model.named_parameters()
        if one.grad is not None and getattr(one, "requires_grad", True) and not getattr(one, "stop_gradient", False)
    }
