"""A pair of a list as a case of `tipchain align`: its file, and the builders that its sides name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tipchain.errors import TipchainError
from tipchain.parity.case import InputSpec
from tipchain.parity.inputs import make_input
from tipchain.weights.convert import to_paddle

SIDES = ("torch", "paddle")


class Left(Exception):  # noqa: N818
    """A case cannot express the entry."""


def write_case(key: str, folder: Path) -> dict[str, str]:
    """Write the pair as a case whose sides are the builders below; return why it cannot be one, or nothing."""
    try:
        text = _case_of(key, folder)
    except Left as reason:
        return {"left_out": str(reason)}
    (folder / "pyproject.toml").touch()
    (folder / "case.yaml").write_text(yaml.safe_dump(text, sort_keys=False, default_flow_style=None), encoding="utf-8")
    return {}


def _case_of(key: str, folder: Path) -> dict[str, Any]:
    import torch

    given: dict[str, Any] = {"entry": key, "folder": str(folder)}
    pair = pair_of(**given)
    for name in ("metrics", "clip", "step"):
        if getattr(pair, name) is not None:
            raise Left(f"{name}: a case has no such pair of callables")
    inputs, sides = dict(pair.inputs), dict[str, str]()
    labels = inputs.pop("labels", None)
    case: dict[str, Any] = {"id": "entry", "sides": {}, "model_args": given, "weights": {"torch": "reference.pth"}}
    torch.save(pair.reference.state_dict(), folder / "reference.pth")
    if names := _weight_names(pair):
        case["weights"]["names"] = names
    case["inputs"] = {name: _input(name, value) for name, value in _arguments(pair, inputs).items()}
    output = _tried(pair, case["inputs"])
    if output is None:
        raise Left("inputs: the reference cannot run on random ones")
    items = [one for one in output if one is not None] if isinstance(output, tuple | list) else [output]
    if len(items) > 1:
        case["outputs"] = [f"output_{number}" for number in range(len(items))]
    builders, case["stages"] = ["model"], ["forward"]
    case["backward"] = {"dtype": "float64", "mode": "train" if pair.training else "eval"}
    if pair.loss is not None:
        random = isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and labels.min() >= 0
        random = random and _tried(pair, case["inputs"], _input("labels", labels)) is not None
        samples = next(iter(case["inputs"].values()))["shape"][0]
        case["inputs"]["label"] = _input("labels", labels if random else np.zeros(samples, np.int64))
        case["loss"] = {"args": {**given, "own_labels": not random}}
        builders.append("loss")
        case["stages"].append("loss")
    if pair.optimizers is not None:
        parameters = list(pair.reference.parameters())
        rate = pair.optimizers[0](parameters).param_groups[0]["lr"]
        case["backward"]["learning_rate"] = rate
        case["updates"] = {"parameters": "model"}
        sides["optimizer"] = f"build_optimizer({{}}, {key!r}, {str(folder)!r}, {rate})"
        builders.append("optimizer")
        case["stages"] += ["optimizer", "regularization", "backward"]
    if pair.schedulers is not None:
        if None in pair.schedulers:
            raise Left("schedulers: one side has none")
        case["lr"] = {"learning_rate": rate}
        sides["scheduler"] = f"build_scheduler({{}}, {key!r}, {str(folder)!r})"
        builders.append("scheduler")
        case["stages"].append("lr")
    if pair.data is not None:
        case["data"] = {"set": "none", "batch_size": 1}  # sizes differ
        sides["dataset"] = f"build_dataset({{}}, {key!r}, {str(folder)!r})"
        _ = _samples(pair, 0), _samples(pair, 1)
        builders.append("dataset")
        case["stages"].append("data")
    lines = [
        f"{side}_{name} = {call.format(number)}" for number, side in enumerate(SIDES) for name, call in sides.items()
    ]
    text = "\n".join(["from zoo.as_case import *", "", *lines, ""])
    (folder / "own_sides.py").write_text(text, encoding="utf-8")
    where = {name: "own_sides" if name in sides else "zoo.as_case" for name in builders}
    case["sides"] = {side: {name: f"{where[name]}:{side}_{name}" for name in builders} for side in SIDES}
    return case


def _arguments(pair: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of forward by name, in the order of both sides."""
    ours, theirs = ([*inspect.signature(one.forward).parameters] for one in (pair.reference, pair.port))
    given = dict(inputs)
    args = given.pop("args", ())
    found = dict(zip(ours, args if isinstance(args, tuple) else (args,), strict=False)) | given
    order = ours[: len(found)]
    if set(order) != set(found) or (set(found) <= set(theirs) and theirs[: len(found)] != order):
        raise Left("inputs: a case gives the arguments of forward by position, from the first on")
    return {name: found[name] for name in order}


def _input(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        raise Left(f"inputs: {name} is a {type(value).__name__}, a case has arrays of random numbers")
    found: dict[str, Any] = {"shape": list(value.shape), "dtype": str(value.dtype)}
    if value.dtype.kind == "i" and value.min() < 0:
        raise Left(f"inputs: {name} has numbers below 0, a case none")
    if value.dtype.kind in "iub":
        found |= {"low": int(value.min()), "high": int(value.max()) + 1}
    elif value.min() >= 0 and value.max() <= 1:
        found["values"] = "probabilities"
    return found


def _weight_names(pair: Any) -> dict[str, str]:
    """Return the names that a case needs to convert the reference's weights into the port's; it can give no others."""
    state = {name: value for name, value in pair.port.state_dict().items() if value.size}
    for given in ({}, _by_values(pair.reference.state_dict(), state)):
        try:
            converted = to_paddle(pair.reference, pair.reference.state_dict(), pair.port, given).state
        except TipchainError as error:
            reason = str(error).splitlines()[0]
            continue
        other = [name for name, value in state.items() if not np.array_equal(converted.get(name), value.numpy())]
        if not other:
            return given
        reason = f"{other[0]} of the port is another"
    raise Left(f"weights: a case converts the reference's: {reason}")


def _by_values(reference: Mapping[str, Any], port: Mapping[str, Any]) -> dict[str, str]:
    """Return the port's tensor by the reference's, of those that hold the same numbers and have other names."""
    sorted_values = {name: np.sort(value.numpy(), axis=None) for name, value in port.items()}
    names = {}
    for name, value in reference.items():
        held = [one for one, found in sorted_values.items() if np.array_equal(np.sort(value.numpy(), axis=None), found)]
        if len(held) == 1 and held[0] != name:
            names[name] = held[0]
    return names


def _tried(pair: Any, specs: Mapping[str, Any], label: Mapping[str, Any] | None = None) -> Any:
    """Return what the reference, or its loss, gives for a case's random inputs; None where that, or the port, raises or is NaN."""
    import paddle
    import torch

    named = {**specs, "label": label} if label else specs
    arrays = [make_input(InputSpec(name=name, seed=at, **one)) for at, (name, one) in enumerate(named.items())]
    *args, last = map(torch.from_numpy, arrays)
    try:
        found = pair.loss[0](pair.reference(*args), last) if label else pair.reference(*args, last)
        if not label:
            pair.port(*map(paddle.to_tensor, arrays))
    except (ValueError, IndexError, RuntimeError):
        return None
    tensors = [one for one in _flat(found) if torch.is_tensor(one) and one.is_floating_point()]
    return found if all(bool(one.isfinite().all()) for one in tensors) else None


# The sides of such a case.


def pair_of(entry: str, folder: str) -> Any:
    """Return the pair of an entry; files of its nets lie in the folder."""
    import torch  # noqa: F401  (before paddle)

    from zoo import planting
    from zoo.entries import entries

    planting.folder = lambda: Path(folder)
    warnings.simplefilter("ignore")
    return entries()[entry].build()


_around = cache(pair_of)
"""The pair whose loss, optimizer, schedule and data are taken; models are made anew."""


class DataSet(list[Any]):
    """Samples, as an object that a case can give a transform."""


def _samples(pair: Any, side: int) -> list[Any]:
    source = pair.data[side]
    items = [source(raw) for raw in pair.samples] if pair.samples is not None else source
    found = [one if isinstance(one, tuple) else (one, 0) for one in items] if isinstance(items, list) else []
    if not found or any(len(one) != 2 or not hasattr(one[0], "shape") or np.ndim(one[1]) for one in found):
        raise Left("data: a case has data sets of an image and a number")
    return DataSet((image, label, str(number)) for number, (image, label) in enumerate(found))


def torch_model(entry: str, folder: str) -> Any:
    """Return the reference."""
    return pair_of(entry, folder).reference


def paddle_model(entry: str, folder: str) -> Any:
    """Return the port."""
    return pair_of(entry, folder).port


def torch_loss(entry: str, folder: str, *, own_labels: bool) -> Any:
    """Return the reference's loss."""
    import torch

    pair = _around(entry, folder)
    return _with_labels(pair.loss[0], pair.inputs["labels"], torch.as_tensor) if own_labels else pair.loss[0]


def paddle_loss(entry: str, folder: str, *, own_labels: bool) -> Any:
    """Return the port's loss."""
    import paddle

    pair = _around(entry, folder)
    return _with_labels(pair.loss[1], pair.inputs["labels"], paddle.to_tensor) if own_labels else pair.loss[1]


def _with_labels(loss: Any, labels: Any, convert: Any) -> Any:
    """Return a loss of the entry's labels, which a case's random ones cannot be."""

    def computed(output: Any, label: Any) -> Any:
        first = next(one for one in _flat(output) if "float" in str(one.dtype))
        return loss(
            output, _mapped(labels, lambda one: convert(one, dtype=first.dtype if one.dtype.kind == "f" else None))
        )

    return computed


def _flat(nested: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(nested, found.append)
    return found


def _mapped(nested: Any, change: Any) -> Any:
    if isinstance(nested, Mapping):
        return {name: _mapped(one, change) for name, one in nested.items()}
    return type(nested)(_mapped(one, change) for one in nested) if isinstance(nested, tuple | list) else change(nested)


def build_optimizer(side: int, entry: str, folder: str, rate: float) -> Any:
    """Return a case's builder of the entry's optimizer, whose own rate is ``rate``."""
    own = _around(entry, folder).optimizers[side]

    @wraps(own)
    def build(parameters: Any, learning_rate: Any) -> Any:
        if not isinstance(learning_rate, int | float):
            return own(list(parameters), learning_rate)
        optimizer = own(list(parameters))
        if side:
            optimizer.set_lr(optimizer.get_lr() * learning_rate / rate)
        else:
            for group in optimizer.param_groups:
                group["lr"] *= learning_rate / rate
        return optimizer

    return build


def build_scheduler(side: int, entry: str, folder: str) -> Any:
    """Return a case's builder of the entry's schedule."""
    own = _around(entry, folder).schedulers[side]

    @wraps(own)
    def build(optimizer: Any, learning_rate: float = 0.0) -> Any:
        return own() if side else own(optimizer)

    return build


def build_dataset(side: int, entry: str, folder: str) -> Any:
    """Return a case's builder of the entry's samples."""
    pair = _around(entry, folder)

    def build(root: Path, split: str) -> Any:
        return _samples(pair, side)

    return wraps(pair.data[side])(build) if callable(pair.data[side]) else build
