# ruff: noqa: RUF009  (what stands behind each key is a field)
"""A case's settings of its stages: a mapping for each, whose keys, defaults and limits stand once, in its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias, TypeVar, get_type_hints

from msgspec import Meta

from tipchain.core.blame import SIDES
from tipchain.core.yaml_reader import Reader
from tipchain.framework_types import Options, Setting
from tipchain.modes import DATA_SETS, DIGITS
from tipchain.numbers.tolerance import ULPS
from tipchain.parity.envelope import FACTOR

T = TypeVar("T")
Args = Options
SIZES = "e.g. [1, 4]; with one alone a batch size frozen into the program is not seen"
BASE = ""
"""The name of the case's own loss among its variants."""


Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Several: TypeAlias = Annotated[int, Meta(ge=2)]
Positive: TypeAlias = Annotated[float, Meta(gt=0)]
Alpha: TypeAlias = Annotated[float, Meta(gt=0, le=0.05, description="a probability of at most 0.05")]


def read_settings(kind: type[T], reader: Reader, key: str) -> T:
    """Read a mapping of a case, each field by its type or as it says itself, then check all of them together by ``check``.

    Raises:
        InputError: a value that cannot be; the message names file, line and key.
    """
    mapping = reader.mapping(key, optional=True)
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for one in fields(kind):  # type: ignore[arg-type]
        hint = hints[one.name]
        if "read" in one.metadata:
            values[one.name] = one.metadata["read"](mapping, one.name)
        elif hint == Args:
            values[one.name] = mapping.args(one.name)
        else:
            values[one.name] = mapping.read(one.name, hint, default=one.default)
    found = kind(**values)
    if hasattr(found, "check"):
        found.check(mapping)
    mapping.done()
    return found


def _own(default: T, read: Callable[[Reader, str], object]) -> T:
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardSettings:
    """The stage that runs some iterations.

    Attributes:
        iterations: the number of updates.
        learning_rate: the learning rate.
        mode: the mode of both models. In train mode dropout is off.
        inputs: the inputs of the model: fake ones, or those of the training loader.
        dtype: the precision. Some nets need ``float64``, because rounding dominates their gradients in float32.
    """

    iterations: Several = 5
    learning_rate: Positive = 1e-4
    mode: Literal["eval", "train"] = "eval"
    inputs: Literal["fake", "train_loader"] = "fake"
    dtype: Literal["float32", "float64"] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedSettings:
    """The stage that holds training on several processes against one process with the same global batch.

    Attributes:
        processes: the number of processes. On GPUs each process needs its own GPU.
        iterations: the number of training steps.
        batch_size: samples in the global batch, a multiple of ``processes``. Default: the smallest multiple that is not smaller
            than the batch of the fake inputs.
        learning_rate: the initial learning rate of both runs.
        training: whether the models are in train mode. Random layers are off then.
        find_unused_parameters: the argument of ``paddle.DataParallel``, for models that do not use all parameters in each step.
        timeout_s: the time limit of the processes, in seconds.
    """

    processes: Several = 2
    iterations: Count = 3
    batch_size: Count | None = None
    learning_rate: Positive = 1e-4
    training: bool = False
    find_unused_parameters: bool = False
    timeout_s: Positive = field(default=300.0, repr=False)

    def check(self, reader: Reader) -> None:
        """Refuse a global batch that cannot be shared equally."""
        if self.batch_size is not None and self.batch_size % self.processes:
            raise reader.error(
                "batch_size",
                "cannot be shared equally",
                found=f"{self.batch_size} samples on {self.processes} processes",
                expected=f"a multiple of {self.processes}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """The stage that holds the exported model's outputs against the training engine's.

    Attributes:
        batch_sizes: the batch sizes that the exported program must handle: at least two different numbers.
        onnx: whether the program is also converted by paddle2onnx and run in onnxruntime.
        opset: the ONNX operator set of the conversion. paddle2onnx takes a later one if an operator needs it.
    """

    batch_sizes: Annotated[tuple[Count, ...], Meta(description=SIZES)] = (1, 4)
    onnx: bool = True
    opset: Annotated[int, Meta(ge=7)] = 17

    def check(self, reader: Reader) -> None:
        """Refuse sizes of which one would do."""
        if not 2 <= len(self.batch_sizes) == len(set(self.batch_sizes)):
            message = "are not two or more different sizes"
            raise reader.error("batch_sizes", message, found=list(self.batch_sizes), expected=SIZES)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings:
    """The stage that compares initial values.

    Attributes:
        seeds: the number of models per side. They are built with the case's seed and the numbers after it.
        values: the number of values that are taken from each parameter of a model, evenly spread.
        alpha: the probability of a false alarm, for all parameters together.
    """

    seeds: Several = 5
    values: Annotated[int, Meta(ge=100)] = 2000
    alpha: Alpha = 1e-3


def _variants(reader: Reader, key: str) -> Mapping[str, Args]:
    variants = reader.mapping(key, optional=True)
    for name in variants.data:
        if not name.strip() or "/" in name or name in ("loss", "gradient"):
            expected = "a name without '/', such as smoothed"
            raise variants.error(name, "cannot name a variant", found=repr(name), expected=expected)
    return MappingProxyType({name: variants.args(name) for name in variants.data})


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """Settings of the sides' losses.

    Attributes:
        args: arguments of both loss builders, in every stage.
        variants: more runs of the loss stage. Each name has arguments that are added to ``args`` or replace them. The labels are
            those of the case, except with ``soft_label`` and ``ignore_index``.
    """

    args: Args = field(default_factory=dict)
    variants: Mapping[str, Args] = field(default_factory=dict, metadata={"read": _variants})

    def check(self, reader: Reader) -> None:
        """Refuse a variant that changes nothing."""
        for name in (name for name, more in self.variants.items() if not more):
            raise reader.error(("variants", name), "changes no argument", expected="e.g. {label_smoothing: 0.1}")

    def all(self) -> dict[str, dict[str, Setting]]:
        """Return the arguments of the case's own loss, under `BASE`, and of every variant."""
        return {BASE: dict(self.args)} | {name: {**self.args, **more} for name, more in self.variants.items()}


def _schedule_per(reader: Reader, key: str) -> Mapping[str, str]:
    own = isinstance(reader.data.get(key), dict)
    sides = reader.mapping(key) if own else reader
    per = {side: str(sides.choice(side if own else key, ("epoch", "iteration"), default="epoch")) for side in SIDES}
    if own:
        sides.done()
    return per


@dataclass(frozen=True, slots=True, kw_only=True)
class LrSettings:
    """The learning rate's curve.

    Attributes:
        steps: the number of learning rates that are compared. Between two of them the schedule takes a step, of an iteration or an
            epoch (``train.schedule_per``).
        learning_rate: the initial rate. Without it, that of ``train``.
    """

    steps: Several = 100
    learning_rate: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSettings:
    """How far the losses of a port may be from the reference's, measured on the reference itself.

    Attributes:
        runs: the number of reference runs that start from slightly different parameters.
        iterations: the losses of this many first iterations are compared.
        ulps: the difference of the start, in units in the last place of each parameter.
        factor: the allowed multiple of the envelope. A value above the default needs a ``reason``.
    """

    runs: Count = 3
    iterations: Several = 10
    ulps: Count = ULPS
    factor: Positive = field(default=FACTOR, repr=False)

    def check(self, reader: Reader) -> None:
        """Refuse a factor above the usual one without a reason."""
        reason = reader.read("reason", str, default="")
        if self.factor > FACTOR and not reason.strip():
            expected = "reason: what was measured"
            message = f"is above the usual {FACTOR:g} and gives no reason"
            raise reader.error("factor", message, found=self.factor, expected=expected)


def _benchmark(reader: Reader, key: str) -> Mapping[str, float] | None:
    benchmark = reader.mapping(key, optional=True)
    if reader.data.get(key) is None:
        return None
    published = {key: benchmark.read(key, float) for key in benchmark.data}
    if not published:
        raise reader.error(key, "is empty", expected="metric values in percent, e.g. {acc_top1: 56.5}")
    return published


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The training stage, and the defaults of ``tools/train.py``.

    Attributes:
        epochs: the number of epochs, if the mode names none.
        batch_size: samples per step and device.
        learning_rate: initial learning rate.
        schedule_per: when the scheduler is stepped: ``epoch`` or ``iteration``, or a mapping with one of them for ``torch`` and ``paddle``.
        steps_per_epoch: iterations in an epoch of the stages ``lr`` and ``backward``. It is needed where the sides' schedules are stepped
            at different times: learning rates of iterations are compared then.
        benchmark: published values of the metrics. Without them, the run of torch is the benchmark.
        dropout: dropout in the run from equal weights on equal batches: off, or with equal masks on both sides.
        envelope: the comparison of the losses.
        seeds: the number of runs per side, from different seeds. With 2 or more, the final metrics are compared as groups.
        margin: a difference of the mean metrics up to this value does not matter. It has the unit of the metric.
    """

    epochs: Count = 1
    batch_size: Count = 4
    learning_rate: Positive = 1e-4
    schedule_per: Mapping[str, str] = field(
        default_factory=lambda: dict.fromkeys(SIDES, "epoch"), metadata={"read": _schedule_per}
    )
    steps_per_epoch: Count | None = None
    benchmark: Mapping[str, float] | None = _own(None, _benchmark)
    dropout: Literal["off", "equal"] = "off"
    envelope: EnvelopeSettings = _own(
        EnvelopeSettings(), lambda reader, key: read_settings(EnvelopeSettings, reader, key)
    )
    seeds: Count = 1
    margin: Positive = field(default=0.15, repr=False)

    def check(self, reader: Reader) -> None:
        """Refuse seeds beside a benchmark, and schedules that cannot be compared by iteration."""
        if len(set(self.schedule_per.values())) > 1 and self.steps_per_epoch is None:
            raise reader.error(
                "steps_per_epoch", "is missing", expected="the iterations in an epoch, a whole number >= 1"
            )
        if self.seeds > 1 and self.benchmark is not None:
            raise reader.error("seeds", "cannot stand beside 'benchmark': torch is not run then", found=self.seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDataSettings:
    """The stage that compares training data.

    Attributes:
        epochs: the order of the samples is compared for this many epochs.
        batch_size: samples per batch. Without it, that of ``train``.
        samples: the number of samples, evenly spread over the split, whose values are compared.
        draws: the number of augmented images that each side draws.
        images: the number of different images for these draws.
        alpha: the probability of a false alarm, for all random quantities together.
    """

    epochs: Several = 2
    batch_size: Count | None = None
    samples: Count = 64
    draws: Annotated[int, Meta(ge=100)] = 2000
    images: Count = 4
    alpha: Alpha = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesSettings:
    """Updates from equal parameters and equal synthetic gradients.

    Attributes:
        iterations: the number of updates in the optimizer stage.
        learning_rate: the first learning rate of the optimizer stage. It changes with every update.
        decay_learning_rate: the learning rate of the regularization stage. It is high, so that a small decay is larger than rounding.
        seed: the seed of parameters and gradients.
        parameters: the optimizer updates synthetic layers, or the parameters of the model.
        variants: more runs of the optimizer stage. Each name has arguments that replace ``optimizer:``.
    """

    iterations: Annotated[int, Meta(ge=5)] = 5
    learning_rate: Positive = 0.1
    decay_learning_rate: Positive = 100.0
    seed: Natural = 0
    parameters: Literal["layers", "model"] = "layers"
    variants: Mapping[str, Args] = field(default_factory=dict, metadata={"read": _variants})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The data, and the evaluation loader.

    Attributes:
        batch_size: samples per batch.
        max_batches: the data stage records at most this many batches.
        set: the data set that ``tipchain prepare`` makes or checks.
        args: more arguments of both dataset builders.
    """

    batch_size: Count = 4
    max_batches: Count = 100
    set: str = _own(DIGITS, lambda reader, key: reader.choice(key, tuple(DATA_SETS), default=DIGITS))
    args: Args = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSettings:
    """The changes of one TIPC mode.

    Attributes:
        data: the data of training and evaluation. Without it, those of the mode.
        epochs: replaces ``train.epochs``.
        seeds: replaces ``train.seeds``.
    """

    data: Literal["lite", "whole"] | None = None
    epochs: Count | None = None
    seeds: Count | None = None
