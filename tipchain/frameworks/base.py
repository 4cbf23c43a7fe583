"""What a side can do, whatever its framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tipchain.errors import UsageError
from tipchain.framework_types import Array, Dataset, Model, Tensor
from tipchain.frameworks.randomness import Draws
from tipchain.modes import Device

# What a side can do, whatever its framework.
#
# Arrays cross this border as numpy arrays, in torch's layout and under torch's names.


Builder = Callable[..., Any]
Batch = tuple[Any, Any, list[str]]
"""Image tensor, label tensor, file names."""


class Trainer(Protocol):
    """An optimizer with its schedule."""

    def learning_rate(self) -> float:
        """Return the rate that the next step uses."""

    def step(self) -> None:
        """Update the parameters and clear their gradients."""

    def step_schedule(self) -> None:
        """Advance the learning rate schedule, if there is one."""


class Framework(Protocol):
    """One framework, loaded by its constructor."""

    name: str

    def versions(self) -> dict[str, str]:
        """Return the framework's version and build."""

    def configure(self, device: Device, seed: int, threads: int) -> str:
        """Choose device, seed and threads, switch TF32 off, and describe the device.

        Raises:
            MissingFrameworkError: no such device.
        """

    def seed(self, seed: int) -> None:
        """Seed every generator that user code may draw from: the framework's, numpy's and Python's."""

    def build(self, builder: Builder, args: Mapping[str, object]) -> Any:
        """Return the model on the chosen device."""

    def load_weights(self, model: object, path: Path) -> None:
        """Load a weight file; every key must fit.

        Raises:
            WeightsError: unreadable, or keys or shapes that do not fit.
        """

    def set_training(self, model: object, training: bool) -> None:
        """Switch train mode, keeping random layers (dropout) off, or eval mode."""

    def wake_dropout(self, model: object) -> None:
        """Switch the framework's own dropout layers to train mode."""

    def randomness(self, draws: Draws | None) -> AbstractContextManager[None]:
        """Return a context in which random numbers are ``draws``; None switches dropout off."""

    def double_precision(self) -> AbstractContextManager[None]:
        """Return a context in which new floating-point tensors are float64 where nothing else is said."""

    def widened(self, value: object) -> Any:
        """Return a model (changed in place) or a tensor of floats in float64; anything else as it is."""

    def watch_variances(self, model: object) -> None:
        """From now on follow BatchNorm's running variances as Paddle defines them (biased)."""

    def shared_statistics(self, model: object) -> AbstractContextManager[object]:
        """Return a context in which a watched model itself has the running variances of that definition."""

    def inference(self) -> AbstractContextManager[Any]:
        """Return a context without gradients."""

    def tensor(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device."""

    def leaf(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device whose ``grad`` is filled when something of it runs backward."""

    def array(self, tensor: Tensor) -> Array:
        """Return a tensor's values as an array of its own."""

    def is_tensor(self, value: Any) -> bool:
        """Tell whether ``value`` is a tensor."""

    def concat(self, tensors: Sequence[object]) -> Any:
        """Join tensors along axis 0."""

    def trainer(
        self,
        model: object,
        optimizer: Builder,
        learning_rate: float,
        args: Mapping[str, object],
        scheduler: Builder | None,
        scheduler_args: Mapping[str, object],
    ) -> Trainer:
        """Build the optimizer and its schedule."""

    def parameters(
        self, model: Model, names: Mapping[str, str], *, shared: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Yield trainable and frozen parameters under torch's names and in torch's layout.

        ``shared``: they may be the framework's own memory, not to be written to.
        """

    def gradients(self, model: Model, names: Mapping[str, str], *, shared: bool = False) -> Iterator[tuple[str, Array]]:
        """Yield the gradients that exist, named as the parameters are; ``shared``: as with `parameters`."""

    def gradient(self, parameter: object) -> Any:
        """Return a parameter's gradient as a dense tensor; None where there is none."""

    def buffers(self, model: object, names: Mapping[str, str]) -> Iterator[tuple[str, Array]]:
        """Yield buffers under torch's names; variances as Paddle's BatchNorm defines them (biased)."""

    def batches(self, dataset: Dataset, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples through the framework's own data loader."""


def flatten_outputs(framework: Framework, output: object, names: Sequence[str]) -> dict[str, Any]:
    """Return a model's output tensors by name, whatever their structure.

    A dict's tensors are called after its keys. Those of a tuple, a list or a single tensor take ``names`` in order:
    one for each tensor, however deep, or one for each item; then the tensors of an item that holds several are
    called ``name/key`` or ``name/index``. An item that is None is no output.

    Raises:
        UsageError: the number of outputs is not that of ``names``, one is no tensor, or two have one name.
    """
    leaves = list(_leaves(framework, output, ""))
    if isinstance(output, Mapping):
        pairs = leaves
    elif len(leaves) == len(names):
        pairs = [(name, value) for name, (_, value) in zip(names, leaves, strict=True)]
    else:
        values = list(output) if isinstance(output, tuple | list) else [output]
        items = [value for value in values if value is not None]
        if len(items) != len(names):
            raise UsageError(
                f"the {framework.name} model returned {len(items)} outputs, the case names {len(names)}: "
                f"{', '.join(names)}\n  expected: `outputs:` in the case lists one name for each"
            )
        pairs = [leaf for name, item in zip(names, items, strict=True) for leaf in _leaves(framework, item, name)]
    if not pairs:
        raise UsageError(f"the {framework.name} model returned no tensor")
    named = dict(pairs)
    if len(named) < len(pairs):
        raise UsageError(f"two outputs of the {framework.name} model have one name: {', '.join(n for n, _ in pairs)}")
    return named


def _leaves(framework: Framework, output: object, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a nested output with their paths."""
    if isinstance(output, Mapping | tuple | list):
        fields = getattr(output, "_fields", range(len(output)))  # a namedtuple's have names
        items = output.items() if isinstance(output, Mapping) else zip(fields, output, strict=True)
        for key, value in items:
            yield from _leaves(framework, value, f"{path}/{key}" if path else str(key))
    elif framework.is_tensor(output):
        yield path, output
    elif output is not None:
        what = f"output {path!r}" if path else "the output"
        raise UsageError(f"{what} of the {framework.name} model is a {type(output).__name__}, not a tensor")


def map_outputs(change: Callable[[object], object], output: object) -> Any:
    """Return an output of the same structure, with ``change`` applied to everything that is no dict, tuple or list."""
    if isinstance(output, Mapping):
        return {key: map_outputs(change, value) for key, value in output.items()}
    if isinstance(output, tuple | list):
        return _like(output, [map_outputs(change, value) for value in output])
    return change(output)


def concat_outputs(framework: Framework, outputs: Sequence[Any]) -> Any:
    """Join the outputs of several batches, whatever their structure."""
    first = outputs[0]
    if isinstance(first, Mapping):
        return {key: concat_outputs(framework, [one[key] for one in outputs]) for key in first}
    if isinstance(first, tuple | list):
        return _like(first, [concat_outputs(framework, list(ones)) for ones in zip(*outputs, strict=True)])
    return framework.concat(outputs) if framework.is_tensor(first) else first


def _like(sequence: object, values: list[object]) -> object:
    """Return ``values`` as a sequence of the kind of ``sequence``; a namedtuple takes them one by one."""
    kind: Any = type(sequence)
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def scalar(array: Array) -> Array:
    """Return a one-element array of shape (1,); a loss that has more elements is refused."""
    if array.size != 1:
        raise UsageError(f"the loss has shape {array.shape}, expected one number")
    return np.asarray(array).reshape(1)


# A model's parameters under an optimizer, with gradients from outside: no forward pass, no backward pass.


class Updates(Protocol):
    """The parameters of one model, under torch's names and in torch's layout, and the optimizer that updates them."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter."""

    def assign(self, values: Mapping[str, Array]) -> None:
        """Give every parameter its value."""

    def values(self) -> Iterator[tuple[str, Array]]:
        """Yield a copy of every parameter."""

    def set_rate(self, factor: float) -> None:
        """Set the learning rate to ``factor`` times the one that the optimizer was built with."""

    def step(self, gradients: Mapping[str, Array]) -> None:
        """Update the parameters once with these gradients; frozen ones get none."""


class UpdatesModule(Protocol):
    """What ``torch_updates`` and ``paddle_updates`` offer."""

    def build_layers(self) -> object:
        """Return a small model of layers of every usual kind, equal in both frameworks."""

    def open_updates(
        self,
        framework: Framework,
        model: object,
        optimizer: Builder,
        rate: float,
        args: Mapping[str, object],
        names: Mapping[str, str],
    ) -> Updates:
        """Build the optimizer over ``model``; ``names`` are Paddle's names by torch's where they differ."""

    def parameter_rates(self, trainer: object, model: object, names: Mapping[str, str]) -> dict[str, float]:
        """Return the present learning rate of every parameter by name."""

    def momentum(self, trainer: object) -> float:
        """Return the present momentum (beta1), 0 where there is none."""


def updates_module(framework: Framework) -> UpdatesModule:
    """Return the framework's module."""
    module: Any = import_module(f"tipchain.frameworks.{framework.name}_")
    return module  # type: ignore[no-any-return]
