"""What each stage records on one side. The same code serves both frameworks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import DataError
from tipchain.parity.case import Case, resolve
from tipchain.parity.frameworks.base import (
    Array,
    Framework,
    Trainer,
    concat_outputs,
    flatten_outputs,
    scalar,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a stage recorded.

    Attributes:
        arrays: the dump.
        tensors: large captures, for the safetensors file beside it.
        details: facts for the JSON beside it.
    """

    arrays: Mapping[str, Array]
    tensors: Mapping[str, Array] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All that a stage needs on one side.

    Attributes:
        inputs: fake inputs by name, in the case's order.
        train_data: folder of the training data.
        eval_data: folder of the evaluation data.
        epochs: epochs of the training stage.
    """

    framework: Framework
    case: Case
    weights: Path | None
    inputs: Mapping[str, Array]
    train_data: Path
    eval_data: Path
    epochs: int
    _built: list[Any] = field(default_factory=list)

    def builder(self, name: str) -> Callable[..., Any]:
        """Return this side's builder called ``name``."""
        spec = getattr(self.case.sides[self.framework.name], name)
        return resolve(spec, self.case.root)

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
        assert self.weights is not None
        self.framework.load_weights(self._built[0], self.weights)
        self.framework.set_training(self._built[0], training=False)
        return self._built[0]

    def fake_inputs(self) -> list[Any]:
        """Return the model's fake inputs as tensors, in the case's order."""
        return [self.framework.tensor(array) for name, array in self.inputs.items() if name != "label"]

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
        dataset = self.builder("dataset")(root, split)
        if len(dataset) == 0:
            raise DataError("has no samples", file=root / split, expected="at least one image")
        return dataset


Stage = Callable[[Bench], Recording]
_STAGES: dict[str, Stage] = {}


def stage(name: str) -> Callable[[Stage], Stage]:
    """Register the recorder of the stage called ``name``."""

    def register(function: Stage) -> Stage:
        if name in _STAGES:
            raise ValueError(f"stage {name!r} is registered twice")
        _STAGES[name] = function
        return function

    return register


def record(name: str, bench: Bench) -> Recording:
    """Run the stage called ``name`` on one side."""
    return _STAGES[name](bench)


@stage("forward")
def record_forward(bench: Bench) -> Recording:
    """Outputs on the fake input, in eval mode."""
    model = bench.eval_model()
    with bench.framework.inference():
        output = model(*bench.fake_inputs())
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    return Recording(arrays={key: bench.framework.array(value) for key, value in named.items()})


@stage("data")
def record_data(bench: Bench) -> Recording:
    """Length, images, labels and file names of the evaluation loader."""
    dataset, settings = bench.dataset("val"), bench.case.data
    indices = _in_order(len(dataset), settings.batch_size)
    kept = indices[: settings.max_batches]
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    for number, (image, label, names) in enumerate(bench.framework.batches(dataset, kept)):
        arrays[f"dataloader_{number}"] = bench.framework.array(image)
        arrays[f"label_{number}"] = bench.framework.array(label)
        files.extend(names)
    return Recording(
        arrays=arrays, details={"files": files, "batches_kept": len(kept), "batches_in_all": len(indices)}
    )


@stage("metric")
def record_metric(bench: Bench) -> Recording:
    """Metrics of the initial weights over the whole evaluation set, in percent."""
    metrics, facts = _evaluate(bench, bench.eval_model())
    return Recording(arrays=metrics, details=facts)


@stage("loss")
def record_loss(bench: Bench) -> Recording:
    """Loss on the fake input and label, in eval mode."""
    model, criterion = bench.eval_model(), bench.builder("loss")()
    with bench.framework.inference():
        loss = criterion(model(*bench.fake_inputs()), bench.fake_label())
    return Recording(arrays={"loss": scalar(bench.framework.array(loss))})


@stage("backward")
def record_backward(bench: Bench) -> Recording:
    """Losses and learning rates over n iterations, first gradients, last parameters and buffers."""
    settings, framework, names = bench.case.backward, bench.framework, bench.case.weights.names
    model = bench.model(training=settings.training)
    if settings.training and hasattr(framework, "watch_variances"):
        framework.watch_variances(model)
    criterion, trainer = bench.builder("loss")(), bench.trainer(model, settings.learning_rate)
    before = dict(framework.parameters(model, names))
    arrays: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    batches = _backward_batches(bench, settings.iterations)
    for number, (images, label) in enumerate(batches):
        arrays[f"lr_{number}"] = np.array([trainer.learning_rate()])
        loss = criterion(model(*images), label)
        loss.backward()
        if number == 0:
            tensors |= {f"gradient/{name}": value for name, value in framework.gradients(model, names)}
        trainer.step()
        trainer.step_schedule()
        arrays[f"loss_{number}"] = scalar(framework.array(loss))
    for name, value in framework.parameters(model, names):
        tensors[f"parameter/{name}"] = value
        tensors[f"update_rms/{name}"] = np.array(_rms(value, before.pop(name)))
    tensors |= {f"buffer/{name}": value for name, value in framework.buffers(model, names)}
    ordered = sorted(arrays, key=lambda key: (key.startswith("lr_"), int(key.rsplit("_", 1)[1])))
    return Recording(arrays={key: arrays[key] for key in ordered}, tensors=tensors)


@stage("train")
def record_train(bench: Bench) -> Recording:
    """Metrics after a short real training from equal weights on equal batches, random layers off."""
    settings, framework = bench.case.train, bench.framework
    model, dataset = bench.model(training=True), bench.dataset("train")
    criterion, trainer = bench.builder("loss")(), bench.trainer(model, settings.learning_rate)
    losses: list[float] = []
    batches = hashlib.sha256()
    for epoch in range(bench.epochs):
        order = np.random.default_rng([bench.case.seed, epoch]).permutation(len(dataset))
        for image, label, files in framework.batches(dataset, _split(order.tolist(), settings.batch_size)):
            batches.update(json.dumps([files, framework.array(label).tolist()]).encode())
            loss = criterion(model(image), label)
            loss.backward()
            trainer.step()
            if settings.schedule_per == "iteration":
                trainer.step_schedule()
            losses.append(float(scalar(framework.array(loss))[0]))
        if settings.schedule_per == "epoch":
            trainer.step_schedule()
    framework.set_training(model, training=False)
    metrics, facts = _evaluate(bench, model)
    details = {"losses": losses, "epochs": bench.epochs, "batches": batches.hexdigest(), **facts}
    return Recording(arrays=metrics, details=details)


def _evaluate(bench: Bench, model: Any) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the metrics over the whole evaluation set (percent, float32, shape (1,)).

    With them come the number of samples and of NaN among the outputs: a ranking of NaN looks like any other.
    """
    framework, dataset = bench.framework, bench.dataset("val")
    outputs, labels = [], []
    with framework.inference():
        for image, label, _ in framework.batches(
            dataset, _in_order(len(dataset), bench.case.data.batch_size)
        ):
            outputs.append(model(image))
            labels.append(label)
        output = concat_outputs(framework, outputs)
        metrics = bench.builder("metric")()(output, framework.concat(labels))
    arrays = {key: np.array([float(value)], dtype=np.float32) for key, value in metrics.items()}
    return arrays, {"samples": len(dataset), "nan": _count_nan(framework, output)}


def _count_nan(framework: Framework, output: Any) -> int:
    if isinstance(output, Mapping | tuple | list):
        parts = output.values() if isinstance(output, Mapping) else output
        return sum(_count_nan(framework, part) for part in parts)
    return int(np.count_nonzero(np.isnan(framework.array(output)))) if framework.is_tensor(output) else 0


def _backward_batches(bench: Bench, iterations: int) -> Iterator[tuple[list[Any], Any]]:
    if bench.case.backward.inputs == "fake":
        for _ in range(iterations):
            yield bench.fake_inputs(), bench.fake_label()
        return
    dataset = bench.dataset("train")
    size = bench.case.train.batch_size
    wanted = [
        [(start + n) % len(dataset) for n in range(size)] for start in range(0, iterations * size, size)
    ]
    for image, label, _ in bench.framework.batches(dataset, wanted):
        yield [image], label


def _in_order(length: int, size: int) -> list[list[int]]:
    return _split(list(range(length)), size)


def _split(order: Sequence[int], size: int) -> list[list[int]]:
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


def _rms(after: Array, before: Array) -> float:
    difference = np.subtract(after, before).ravel()
    return float(np.sqrt(np.dot(difference, difference) / max(difference.size, 1)))
