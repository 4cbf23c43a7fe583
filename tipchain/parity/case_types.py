"""What an alignment case holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tipchain.modes import Mode
from tipchain.numbers.tolerance import Tolerance
from tipchain.parity.settings import (
    Args,
    BackwardSettings,
    DataSettings,
    DistributedSettings,
    InferenceSettings,
    InitSettings,
    LossSettings,
    LrSettings,
    ModeSettings,
    TrainDataSettings,
    TrainSettings,
    UpdatesSettings,
)

SIDES = ("torch", "paddle")
BUILDERS = ("model", "loss", "optimizer", "scheduler", "dataset", "transforms", "metric", "loader", "augmentation")
DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
LABEL = "label"
"""The input that goes to the loss instead of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One framework's builders, each ``"module:callable"`` or None.

    Attributes:
        model: called with ``model_args``; returns the module or layer.
        loss: called with ``loss.args``; returns a callable of output and label that returns a scalar.
        optimizer: called with the parameters, the learning rate and the case's ``optimizer``; returns an optimizer.
        scheduler: called with the optimizer and the case's ``scheduler``, Paddle's with None and ``learning_rate``;
            returns a schedule.
        dataset: called with the data folder, ``"train"`` or ``"val"`` and ``data.args``; returns a data set of (image,
            label, file name).
        transforms: called as ``dataset`` is; returns a function that loads the image of an index, and the transforms, as
            pairs of name and callable, in the order in which they are applied.
        metric: called without arguments; returns a callable of output and label that returns percentages by name, or an
            object with ``update`` and ``compute``.
        loader: called with the data set, the batch size, a seed and the epoch; returns the side's own training loader.
        augmentation: called with the data folder and a seed; returns the random augmentation whose draws are compared.
    """

    model: str
    loss: str | None = None
    optimizer: str | None = None
    scheduler: str | None = None
    dataset: str | None = None
    transforms: str | None = None
    metric: str | None = None
    loader: str | None = None
    augmentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One fake input: floats as ``values`` says, uniform integers in ``[low, high)`` otherwise.

    Attributes:
        name: the argument of the model's ``forward``; ``label`` goes to the loss.
        shape: the shape. Give this key or ``shapes``.
        shapes: several shapes. The forward stage tries all of them, the other stages use the first one.
        dtype: the type of the array.
        seed: seed of the random values.
        low: the smallest integer.
        high: the integers are smaller than this. For a label, it is the number of classes.
        values: ``"normal"`` (standard normal) or ``"probabilities"`` (positive, summing to 1 along the last axis).
    """

    name: str
    shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "float32"
    seed: int = 0
    low: int = 0
    high: int = 2
    values: str = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSpec:
    """Where weights come from: a seeded initialization, or a torch file.

    Attributes:
        init: the initialization, if ``torch`` names no file.
        seed: seed of the initialization.
        fit_head: whether the last Linear is fitted (ridge) on the training data.
        calibrate: the source of BatchNorm's running statistics: the training data, or the fake inputs.
        torch: a torch weight file.
        names: names that differ: torch's name of a layer, a parameter or a buffer, and Paddle's.
        ignore: layers or tensors of one model that do not exist in the other.
    """

    init: str | None = "kaiming"
    seed: int = 0
    fit_head: bool = False
    calibrate: str = "train_data"
    torch: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeviation:
    """A tensor known to differ; fails when it stops deviating.

    Attributes:
        subject: ``STAGE/KEY``, such as ``forward/logits``.
        reason: why the deviation is accepted.
    """

    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What one stage does with another model than the rest: None keeps the case's own.

    Attributes:
        model_args: arguments of both model builders in this stage.
        weights: the weights of this stage.
        inputs: the fake inputs of this stage.
        outputs: the names of the model's outputs in this stage.
    """

    model_args: Args | None = None
    weights: WeightsSpec | None = None
    inputs: Mapping[str, InputSpec] | None = None
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alignment case, checked.

    Attributes:
        id: the name of the case, and of its folder below ``test_tipc/output``.
        path: the YAML file.
        root: the project's root, relative to the file. Paths and imports start there. Without it, the nearest folder above with a
            ``pyproject.toml`` or a ``test_tipc``.
        digest: SHA-256 of the YAML file.
        sides: the builders of ``torch`` and ``paddle``.
        model_args: arguments of both model builders.
        weights: the source of the weights.
        inputs: the fake inputs, by the name of forward's argument, and ``label``.
        outputs: the names of the model's outputs, in order.
        stages: the stages of ``tipchain align``, among those whose builders exist.
        backward: settings of the stage ``backward``.
        train: settings of the stage ``train``, and defaults of ``tipchain train``.
        data: the data set, and the evaluation loader.
        loss: arguments of both loss builders, and more variants for the stage ``loss``.
        optimizer_args: arguments of both optimizer builders.
        scheduler_args: arguments of both scheduler builders.
        tolerances: tolerances by stage, then by tensor. Names of tensors may be patterns with ``*`` and ``?``.
        modes: settings by TIPC mode.
        known_deviations: tensors that are known to differ. One that no longer differs is a FAIL.
        overrides: settings by stage.
        seed: the seed of everything random without a seed of its own.
        init: settings of the stage ``init``.
        inference: settings of the stage ``inference``.
        distributed: settings of the stage ``distributed``.
        training_data: settings of the stage ``train_data``.
        updates: settings of the stages ``optimizer`` and ``regularization``.
        lr: settings of the stage ``lr``.
        variant: the stage whose overrides are applied, or "".
        reseed: what was added to the seeds that the file names.
    """

    id: str
    path: Path
    root: Path
    digest: str
    sides: Mapping[str, Side]
    model_args: Args
    weights: WeightsSpec
    inputs: Mapping[str, InputSpec]
    outputs: tuple[str, ...]
    stages: tuple[str, ...]
    backward: BackwardSettings
    train: TrainSettings
    data: DataSettings
    loss: LossSettings
    optimizer_args: Args
    scheduler_args: Args
    tolerances: Mapping[str, Mapping[str, Tolerance]]
    modes: Mapping[str, ModeSettings]
    known_deviations: tuple[KnownDeviation, ...]
    overrides: Mapping[str, Override]
    seed: int
    init: InitSettings = field(default_factory=InitSettings)
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    distributed: DistributedSettings = field(default_factory=DistributedSettings)
    training_data: TrainDataSettings = field(default_factory=TrainDataSettings)
    updates: UpdatesSettings = field(default_factory=UpdatesSettings)
    lr: LrSettings = field(default_factory=LrSettings)
    variant: str = ""
    reseed: int = 0

    def reseeded(self, by: int) -> Case:
        """Return the case with ``by`` added to its seed and to those of weights and fake inputs, in overrides too."""
        if not by:
            return self
        return replace(
            self,
            seed=self.seed + by,
            weights=replace(self.weights, seed=self.weights.seed + by),
            inputs=_reseeded(self.inputs, by),
            overrides={
                stage: replace(
                    one,
                    weights=one.weights and replace(one.weights, seed=one.weights.seed + by),
                    inputs=one.inputs and _reseeded(one.inputs, by),
                )
                for stage, one in self.overrides.items()
            },
            reseed=self.reseed + by,
        )

    def for_stage(self, stage: str) -> Case:
        """Return the case as ``stage`` sees it: itself, or with the stage's overrides applied."""
        override = self.overrides.get(stage)
        if override is None or self.variant:
            return self
        named = {
            name: value
            for name in ("model_args", "weights", "inputs", "outputs")
            if (value := getattr(override, name)) is not None
        }
        return replace(self, variant=stage, **named)

    def mode_settings(self, mode: Mode) -> ModeSettings:
        """Return what the case says about ``mode``."""
        return self.modes.get(mode.value, ModeSettings())

    def train_data(self, mode: Mode) -> str:
        """Return ``"lite"`` or ``"whole"``: the training data of ``mode``."""
        return self.mode_settings(mode).data or mode.train_data

    def eval_data(self, mode: Mode) -> str:
        """Return ``"lite"`` or ``"whole"``: the evaluation data of ``mode``."""
        return self.mode_settings(mode).data or mode.eval_data

    def epochs(self, mode: Mode) -> int:
        """Return the number of training epochs of ``mode``."""
        return self.mode_settings(mode).epochs or self.train.epochs

    def seeds(self, mode: Mode) -> int:
        """Return how many trainings a side from other seeds ``mode`` has; with a published benchmark there are none."""
        return 1 if self.train.benchmark else self.mode_settings(mode).seeds or self.train.seeds


def _reseeded(inputs: Mapping[str, InputSpec], by: int) -> Mapping[str, InputSpec]:
    return {name: replace(spec, seed=spec.seed + by) for name, spec in inputs.items()}
