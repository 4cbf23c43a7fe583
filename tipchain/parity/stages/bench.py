"""The tools of a stage on one side, and its results. The same code serves both frameworks."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.core.blame import UsersError, placed
from tipchain.core.json_text import Json, JsonObject
from tipchain.core.machine import release_memory
from tipchain.errors import DataError
from tipchain.framework_types import Array, Dataset, Function, Metric, Model, Nested, Tensor
from tipchain.frameworks import Framework
from tipchain.frameworks.base import Trainer, concat_outputs, map_nested
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import ULPS
from tipchain.parity.case import Case, open_builder
from tipchain.parity.inputs import make_inputs

REREAD = 32
"""Training samples that are read twice, to learn whether they have the same values: a flip in one of ten spares all but once in 500."""

NOISE_RUNS = 4
"""Runs that show how much rounding can move a result: two perturbations and their mirror images."""


def measure(framework: Framework, metric: Metric, batches: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return a metric's values of all batches together.

    Args:
        framework: whose tensors the batches hold.
        metric: what ``build_metric()`` gave: a callable ``metric(output, label)``, which is called once, on all
            batches joined along axis 0; or an object with ``update(output, label)``, called with one batch after
            another, and ``compute()``. Either gives numbers in percent by name.
        batches: a model's output for each batch, and the labels, at least one.

    Raises:
        UsersError: the metric is neither, or what it gives is no mapping of names to single numbers.
    """
    if hasattr(metric, "accumulate"):
        raise UsersError(
            f"{placed(metric)}: a metric with accumulate(), whose values have no names\n"
            "  expected: a callable `(output, label) -> {name: percent}`, or an object with `update` and `compute`"
        )
    if hasattr(metric, "update") and hasattr(metric, "compute"):
        for output, label in batches:
            metric.update(output, label)
        found = metric.compute()
    elif callable(metric):
        found = metric(*(concat_outputs(framework, [batch[n] for batch in batches]) for n in (0, 1)))
    else:
        raise UsersError(f"the metric is a {type(metric).__name__}, which cannot be called")
    if not isinstance(found, Mapping) or not found:
        raise UsersError(
            f"{placed(metric)}: the metric gave {found!r:.80}\n  expected: percentages by name, such as {{'acc_top1': 75.0}}"
        )
    numbers = {}
    for key, value in found.items():
        try:
            numbers[str(key)] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:  # noqa: PERF203  (it ends the loop)
            message = f"{placed(metric)}: the metric's {str(key)!r} is no single number: {value!r:.80}"
            raise UsersError(message) from error
    return numbers


def as_arrays(values: Mapping[str, float]) -> dict[str, Array]:
    """Return metric values as a dump holds them: float32 of shape (1,)."""
    return {key: np.array([value], dtype=np.float32) for key, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The recording of a stage.

    Attributes:
        arrays: the dump.
        tensors: large captures, for the safetensors file beside it.
        details: facts for the JSON beside it.
        reference: the reference's dump, of a stage that holds the port against itself.
        reference_tensors: its large captures.
    """

    arrays: Mapping[str, Array]
    tensors: Mapping[str, Array] = field(default_factory=dict)
    details: JsonObject = field(default_factory=dict)
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
        noise: whether it is wanted how far rounding moves torch's gradients and losses.
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
    noise: bool = True
    _kept: dict[str, Any] = field(default_factory=dict)

    def builder(self, name: str) -> Function:
        """Return this side's builder called ``name``; the loss's comes with the case's arguments."""
        return open_builder(self.case, self.framework.name, name)

    def optional_builder(self, name: str) -> Function | None:
        """Return this side's builder called ``name``, or None where the case names none."""
        return self.builder(name) if getattr(self.case.sides[self.framework.name], name) else None

    def model(self, *, training: bool = False) -> Model:
        """Return a new model with the case's weights."""
        assert self.weights is not None
        self.forget()
        with self.framework.undrawn():
            model = self.framework.build(self.builder("model"), self.case.model_args)
        self.framework.load_weights(model, self.weights)
        self.framework.set_training(model, training)
        return model

    def forget(self) -> None:
        """Free the model that is kept: the tensors of another would not fit where its own are."""
        if self._kept.pop("model", None) is not None and self.weights is not None:
            release_memory(self.weights.stat().st_size)

    def eval_model(self) -> Model:
        """Return the model in eval mode with the case's weights, for use without gradients.

        It is built once, since drawing initial values takes longer than loading; the weights are loaded each time.
        """
        if "model" not in self._kept:
            self._kept["model"] = self.model()
            return self._kept["model"]
        self.restore(self._kept["model"])
        self.framework.set_training(self._kept["model"], training=False)
        return self._kept["model"]

    def eval_output(self) -> Nested:
        """Return the model's output for the fake inputs in eval mode, without gradients; it is computed once."""
        if "output" not in self._kept:
            model = self.eval_model()
            with self.framework.inference(), self.framework.randomness(Draws(self.case.seed)):
                self._kept["output"] = model(*self.fake_inputs())
        return self._kept["output"]

    def restore(self, model: object) -> None:
        """Give ``model`` the case's weights again."""
        assert self.weights is not None
        self.framework.load_weights(model, self.weights)

    def nudge(self, model: Model, number: int, ulps: int = ULPS) -> None:
        """Give a model the case's weights, ``ulps`` units in the last place apart, up or down by a seeded coin.

        Args:
            model: the model, changed in place.
            number: which of the nudges; every odd one is the mirror image of the one before.
            ulps: how far each element moves.
        """
        self.restore(model)
        if self.framework.name == "torch":
            from tipchain.frameworks.torch_ import perturb

            perturb(model, ulps, number)
            return
        coins = np.random.default_rng(number // 2)
        for one in model.parameters():
            array = self.framework.array(one)
            steps = (coins.integers(0, 2, array.shape) * 2 - 1) * (-ulps if number % 2 else ulps)
            one.set_value((array + steps * np.spacing(np.abs(array))).astype(array.dtype))

    def moved(
        self, model: Model, run: Callable[[], Mapping[str, Array]], usual: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return how far rounding moves each of the ``usual`` results at most: `NOISE_RUNS` runs start from nudged weights.

        A value within rounding of a ReLU's kink lets a gradient jump by a share of it that no precision makes smaller.
        """
        found = dict.fromkeys(usual, 0.0)
        for number in range(NOISE_RUNS):
            self.nudge(model, number)
            for name, array in run().items():
                if name in usual:
                    far = float(np.abs(np.subtract(array, usual[name], dtype=np.float64)).max(initial=0))
                    found[name] = max(found[name], far)
        return {name: np.array(far) for name, far in found.items()}

    def fake_inputs(self) -> list[Tensor]:
        """Return the model's fake inputs as tensors, in the case's order."""
        return [self.framework.tensor(array) for name, array in self.inputs.items() if name != "label"]

    def trainer(self, model: object, learning_rate: float) -> Trainer:
        """Return the optimizer and schedule for ``model``."""
        return self.framework.trainer(
            model,
            self.builder("optimizer"),
            learning_rate,
            self.case.optimizer_args,
            self.optional_builder("scheduler"),
            self.case.scheduler_args,
        )

    def steps_schedule(self, number: int) -> bool:
        """Tell whether the schedule steps after an update of a number from 1; sides that do at other times count iterations."""
        per, length = self.case.train.schedule_per, self.case.train.steps_per_epoch or 1
        return len(set(per.values())) == 1 or per[self.framework.name] == "iteration" or number % length == 0

    def dataset(self, split: str) -> Dataset:
        """Return the ``"train"`` or ``"val"`` data set."""
        root = self.train_data if split == "train" else self.eval_data
        dataset: Dataset = self.builder("dataset")(root, split, **self.case.data.args)
        if len(dataset) == 0:
            raise DataError(f"has no samples in {split}", file=root, expected="at least one")
        return dataset

    def steady_dataset(self) -> tuple[Dataset, bool]:
        """Return the training data set; the evaluation set, and True, where it gives other values at every read.

        The random numbers of two frameworks differ, and so does what a random augmentation makes of a sample: both sides
        would be fed different images.
        """
        dataset = self.dataset("train")
        wanted = split(range(min(len(dataset), REREAD)), self.case.train.batch_size)
        pairs = zip(*(self.framework.batches(dataset, wanted) for _ in range(2)), strict=True)
        for (first, label, _), (again, _, _) in pairs:
            image, other = self.framework.array(first), self.framework.array(again)
            if not np.array_equal(image, other, equal_nan=True):
                evaluation, dtypes = self.dataset("val"), (image.dtype, self.framework.array(label).dtype)
                return like(evaluation, partial(self._read_typed, evaluation, dtypes)), True
        return dataset, False

    def _read_typed(self, dataset: Dataset, dtypes: Sequence[np.dtype[Any]], index: int) -> tuple[object, ...]:
        *parts, file = dataset[index]
        arrays = [self.framework.array(part) if self.framework.is_tensor(part) else np.asarray(part) for part in parts]
        of_types = zip(parts, arrays, dtypes, strict=True)
        return *(part if array.dtype == dtype else array.astype(dtype) for part, array, dtype in of_types), file


def like(dataset: Dataset, read: Callable[[int], tuple[object, ...]]) -> Dataset:
    """Return a data set like ``dataset``, of a subclass of its type, whose samples ``read`` gives."""
    kind, copied = type(dataset), copy.copy(dataset)
    # torch asks for __getitems__ first, where a data set has one.
    items = {"__getitem__": lambda _, index: read(index), "__getitems__": None}
    copied.__class__ = type(kind.__name__, (kind,), items)
    return copied


def split(order: Sequence[int], size: int) -> list[list[int]]:
    """Return ``order`` in batches of ``size``; the last batch may be smaller."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


# Which samples a side was fed, for the facts beside a dump: both sides must have seen equal batches.


class BatchLog:
    """Files and labels, batch by batch: a digest of all, the first of them in full.

    Args:
        kept: how many batches are kept in full.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first: list[dict[str, Json]] = []
        self._digest = hashlib.sha256()

    def add(self, files: Sequence[str], label: Array) -> None:
        """Note one batch."""
        # Labels that are no plain numbers (soft ones, masks) are known by their bytes.
        plain = label.ndim == 1
        labels = label.tolist() if plain else hashlib.sha256(label.tobytes()).hexdigest()
        self._digest.update(json.dumps([list(files), labels]).encode())
        if len(self.first) < self.kept:
            self.first.append({"files": list(files), "labels": labels})

    def facts(self) -> dict[str, Json]:
        """Return the facts for the JSON beside the dump."""
        return {"batches": self._digest.hexdigest(), "first_batches": self.first}


def fake_batch(case: Case, size: int) -> dict[str, Array]:
    """Return the case's fake inputs and label with ``size`` samples: the first dimension of each becomes that.

    The numbers are drawn as the case's own, so that a smaller batch is the beginning of a larger one.
    """
    specs = {name: replace(spec, shape=(size, *spec.shape[1:]), shapes=()) for name, spec in case.inputs.items()}
    return make_inputs(replace(case, inputs=specs))


def run_evaluation(bench: Bench, model: Model) -> tuple[dict[str, Array], dict[str, int], Nested, Nested]:
    """Run ``model``, which is in eval mode, over the whole evaluation set.

    Return the metrics in percent, float32 of shape (1,); the numbers of samples and of NaN among the outputs, for a ranking
    of NaN looks like any other; the outputs of all batches joined along axis 0, in the model's own structure; the labels,
    likewise.
    """
    framework, dataset = bench.framework, bench.dataset("val")
    batches: list[tuple[Nested, Nested]] = []
    nan: list[int] = []

    def count(value: object) -> None:
        if framework.is_tensor(value):
            nan.append(int(np.count_nonzero(np.isnan(framework.array(value)))))

    with framework.inference():
        for image, label, _ in framework.batches(dataset, split(range(len(dataset)), bench.case.data.batch_size)):
            batches.append((model(image), label))
        metrics = as_arrays(measure(framework, bench.builder("metric")(), batches))
        output, labels = (concat_outputs(framework, [batch[n] for batch in batches]) for n in (0, 1))
        map_nested(count, output)
    return metrics, {"samples": len(dataset), "nan": sum(nan)}, output, labels
