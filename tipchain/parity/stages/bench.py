"""What a stage has at hand on one side, and what it gives back. The same code serves both frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tipchain.errors import DataError
from tipchain.parity.builders import open_builder
from tipchain.parity.case_types import Case
from tipchain.parity.frameworks.base import Array, Framework, Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a stage recorded.

    Attributes:
        arrays: the dump.
        tensors: large captures, for the safetensors file beside it.
        details: facts for the JSON beside it.
        reference: the reference's dump, of a stage that holds the port against itself.
        reference_tensors: its large captures.
    """

    arrays: Mapping[str, Array]
    tensors: Mapping[str, Array] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Array] | None = None
    reference_tensors: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All that one stage needs on one side.

    Attributes:
        case: the case as this stage sees it, overrides applied.
        folder: where the stage may put files of its own.
        inputs: fake inputs by name, in the case's order.
        other_inputs: those of other shapes, as ``@SHAPE/name``; the forward stage tries them too.
        train_data: folder of the training data.
        eval_data: folder of the evaluation data.
        epochs: epochs of the training stage.
        truth: whether this is the reference in float64, of which only what depends on rounding is wanted.
    """

    framework: Framework
    case: Case
    weights: Path | None
    inputs: Mapping[str, Array]
    train_data: Path
    eval_data: Path
    epochs: int
    folder: Path
    other_inputs: Mapping[str, Array] = field(default_factory=dict)
    truth: bool = False
    _built: list[Any] = field(default_factory=list)

    def builder(self, name: str) -> Callable[..., Any]:
        """Return this side's builder called ``name``; the loss's comes with the case's arguments."""
        return open_builder(self.case, self.framework.name, name)

    def optional_builder(self, name: str) -> Callable[..., Any] | None:
        """Return this side's builder called ``name``, or None where the case names none."""
        return self.builder(name) if getattr(self.case.sides[self.framework.name], name) else None

    def model(self, *, training: bool = False) -> Any:
        """Return a new model with the case's weights."""
        self._built.clear()
        model = self.framework.build(self.builder("model"), self.case.model_args)
        assert self.weights is not None
        self.framework.load_weights(model, self.weights)
        self.framework.set_training(model, training)
        return model

    def eval_model(self) -> Any:
        """Return the model in eval mode with the case's weights, for use without gradients.

        It is built once, since drawing initial values takes longer than loading; the weights are loaded each time.
        """
        if not self._built:
            self._built.append(self.model())
            return self._built[0]
        self.restore(self._built[0])
        self.framework.set_training(self._built[0], training=False)
        return self._built[0]

    def restore(self, model: Any) -> None:
        """Give ``model`` the case's weights again."""
        assert self.weights is not None
        self.framework.load_weights(model, self.weights)

    def fake_inputs(self) -> list[Any]:
        """Return the model's fake inputs as tensors, in the case's order."""
        return [self.framework.tensor(array) for name, array in self.inputs.items() if name != "label"]

    def inputs_of_other_shapes(self) -> dict[str, list[Any]]:
        """Return the model's fake inputs of every shape but the first, as tensors, by a suffix such as ``@1x3x9x9``."""
        sets: dict[str, list[Any]] = {}
        for path, array in self.other_inputs.items():
            sets.setdefault(path.rpartition("/")[0], []).append(self.framework.tensor(array))
        return sets

    def fake_label(self) -> Any:
        """Return the fake label as a tensor."""
        return self.framework.tensor(self.inputs["label"])

    def trainer(self, model: Any, learning_rate: float) -> Trainer:
        """Return the optimizer and schedule for ``model``."""
        return self.framework.trainer(
            model, self.builder("optimizer"), learning_rate, self.case.optimizer_args,
            self.optional_builder("scheduler"), self.case.scheduler_args,
        )  # fmt: skip

    def dataset(self, split: str) -> Any:
        """Return the ``"train"`` or ``"val"`` data set."""
        root = self.train_data if split == "train" else self.eval_data
        dataset = self.builder("dataset")(root, split, **self.case.data.args)
        if len(dataset) == 0:
            raise DataError(f"has no samples in {split}", file=root, expected="at least one")
        return dataset


def in_order(length: int, size: int) -> list[list[int]]:
    """Return the numbers of ``length`` samples in batches of ``size``; the last batch may be smaller."""
    return split(list(range(length)), size)


def split(order: Sequence[int], size: int) -> list[list[int]]:
    """Return ``order`` in batches of ``size``; the last batch may be smaller."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]
