"""What a case says about its stages and inputs: a mapping for each key of the case file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tipchain.errors import did_you_mean
from tipchain.numbers.rounding import ULPS
from tipchain.parity.envelope import FACTOR
from tipchain.yaml_lines import Reader

# What a case says about the stage ``backward``.


EVAL, TRAIN = MODES = ("eval", "train")
"""The modes that a model can run backward in, by the names that they have in a case."""

SINGLE, DOUBLE = DTYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardSettings:
    """The stage that runs some iterations.

    Attributes:
        iterations: the number of updates in each mode.
        learning_rate: the learning rate.
        modes: ``eval``, ``train`` or both. The names of the second mode's tensors begin with the mode: ``train/loss_0``.
        inputs: the inputs of the model: fake ones, or those of the training loader.
        dtype: the precision. Some nets need ``float64``, because rounding dominates their gradients in float32.
    """

    iterations: int = 5
    learning_rate: float = 1e-4
    modes: tuple[str, ...] = (EVAL,)
    inputs: str = "fake"
    dtype: str = SINGLE


def read_backward(reader: Reader) -> BackwardSettings:
    """Read the mapping ``backward`` of a case; ``training: true`` is another way to say ``modes: [train]``.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    backward = reader.mapping("backward", default={})
    assert backward is not None
    settings = BackwardSettings(
        iterations=backward.integer("iterations", 5, least=2),
        learning_rate=backward.positive("learning_rate", 1e-4),
        modes=_modes(backward),
        inputs=backward.choice("inputs", ("fake", "train_loader"), default="fake"),
        dtype=backward.choice("dtype", DTYPES, default=SINGLE),
    )
    backward.done()
    return settings


def _modes(backward: Reader) -> tuple[str, ...]:
    training = backward.flag("training", default=False)
    found = backward.items("modes", default=[TRAIN if training else EVAL])
    expected = f"some of {', '.join(MODES)}"
    for number, mode in enumerate(found):
        if mode not in MODES:
            raise backward.error(
                f"modes.{number}", "is not a mode", found=mode, expected=expected, hint=did_you_mean(str(mode), MODES)
            )
    if not found or len(set(found)) < len(found):
        raise backward.error("modes", "is empty or names one twice", found=list(found), expected=expected)
    if "training" in backward.data and "modes" in backward.data:
        raise backward.error("training", "cannot stand beside 'modes'", expected="modes alone")
    return tuple(found)


# What a case says about the stage ``distributed``.


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

    processes: int = 2
    iterations: int = 3
    batch_size: int | None = None
    learning_rate: float = 1e-4
    training: bool = False
    find_unused_parameters: bool = False
    timeout_s: float = field(default=300.0, repr=False)

    def global_batch(self, fake: int) -> int:
        """Return the samples of the global batch, where the fake inputs have ``fake``."""
        return self.batch_size or -(-fake // self.processes) * self.processes


def read_distributed(reader: Reader) -> DistributedSettings:
    """Read the mapping ``distributed`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    distributed = reader.mapping("distributed", default={})
    assert distributed is not None
    processes = distributed.integer("processes", 2, least=2)
    settings = DistributedSettings(
        processes=processes,
        iterations=distributed.integer("iterations", 3, least=1),
        batch_size=_batch_size(distributed, processes),
        learning_rate=distributed.positive("learning_rate", 1e-4),
        training=distributed.flag("training", default=False),
        find_unused_parameters=distributed.flag("find_unused_parameters", default=False),
        timeout_s=distributed.positive("timeout_s", 300.0),
    )
    distributed.done()
    return settings


def _batch_size(distributed: Reader, processes: int) -> int | None:
    if distributed.data.get("batch_size") is None:
        distributed.asked.append("batch_size")
        return None
    size = distributed.integer("batch_size", processes, least=1)
    if size % processes:
        raise distributed.error(
            "batch_size",
            "cannot be shared equally",
            found=f"{size} samples on {processes} processes",
            expected=f"a multiple of {processes}",
        )
    return size


# What a case says about the stage ``inference``.


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """The stage that holds the exported model's outputs against the training engine's.

    Attributes:
        batch_sizes: the batch sizes that the exported program must handle: at least two different numbers.
        onnx: whether the program is also converted by paddle2onnx and run in onnxruntime.
        opset: the ONNX operator set of the conversion. paddle2onnx takes a later one if an operator needs it.
    """

    batch_sizes: tuple[int, ...] = (1, 4)
    onnx: bool = True
    opset: int = 17


def read_inference(reader: Reader) -> InferenceSettings:
    """Read the mapping ``inference`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    inference = reader.mapping("inference", default={})
    assert inference is not None
    settings = InferenceSettings(
        batch_sizes=_batch_sizes(inference),
        onnx=inference.flag("onnx", default=True),
        opset=inference.integer("opset", 17, least=7),
    )
    inference.done()
    return settings


def _batch_sizes(inference: Reader) -> tuple[int, ...]:
    found = inference.items("batch_sizes", default=[1, 4])
    good = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in found)
    if not good or len(set(found)) < len(found) or len(found) < 2:
        raise inference.error(
            "batch_sizes",
            "are not two or more different sizes",
            found=found,
            expected="e.g. [1, 4]; with one alone a batch size frozen into the program is not seen",
        )
    return tuple(found)


# What a case says about the stage ``init``.


@dataclass(frozen=True, slots=True, kw_only=True)
class InitSettings:
    """The stage that compares initial values.

    Attributes:
        seeds: the number of models per side. They are built with the case's seed and the numbers after it.
        values: the number of values that are taken from each parameter of a model, evenly spread.
        alpha: the probability of a false alarm, for all parameters together.
    """

    seeds: int = 5
    values: int = 2000
    alpha: float = 1e-3


def read_init(reader: Reader) -> InitSettings:
    """Read the mapping ``init`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    init = reader.mapping("init", default={})
    assert init is not None
    settings = InitSettings(
        seeds=init.integer("seeds", 5, least=2), values=init.integer("values", 2000, least=100), alpha=read_alpha(init)
    )
    init.done()
    return settings


def read_alpha(reader: Reader) -> float:
    """Return the key ``alpha``, a probability between 0 and 0.05.

    Raises:
        CaseError: it is no such number.
    """
    alpha = reader.positive("alpha", 1e-3)
    if alpha > 0.05:
        raise reader.error("alpha", "is too large", found=alpha, expected="a probability of at most 0.05")
    return alpha


# The case's ``loss``: arguments of both ``build_loss``, and variants of them that the loss stage compares too.


Args = Mapping[str, Any]
BASE = ""
"""The name of the case's own loss among its variants."""
_RESERVED = ("loss", "gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """What the sides' losses are built with.

    Attributes:
        args: arguments of both loss builders, in every stage.
        variants: more runs of the loss stage. Each name has arguments that are added to ``args`` or replace them. The labels are
            those of the case, except with ``soft_label`` and ``ignore_index``.
    """

    args: Args = field(default_factory=dict)
    variants: Mapping[str, Args] = field(default_factory=dict)

    def all(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of the case's own loss, under `BASE`, and of every variant."""
        return {BASE: dict(self.args)} | {name: {**self.args, **more} for name, more in self.variants.items()}


def read_loss(reader: Reader) -> LossSettings:
    """Read the mapping ``loss``.

    Raises:
        CaseError: a variant whose name cannot be part of a key, or that changes no argument.
    """
    loss = reader.mapping("loss", default={})
    assert loss is not None
    args = loss.args("args")
    variants = loss.mapping("variants", default={})
    assert variants is not None
    for name in variants.data:
        if not name.strip() or "/" in name or name in _RESERVED:
            raise variants.error(
                name, "cannot name a variant", found=repr(name), expected="a name without '/', such as smoothed"
            )
    named = {name: variants.args(name) for name in variants.data}
    for name, more in named.items():
        if not more:
            raise variants.error(name, "changes no argument", expected="e.g. {label_smoothing: 0.1}")
    loss.done()
    return LossSettings(args=args, variants=MappingProxyType(named))


# What a case says about the stage ``lr``.


@dataclass(frozen=True, slots=True, kw_only=True)
class LrSettings:
    """The learning rate's curve.

    Attributes:
        steps: the number of learning rates that are compared. Between two of them the schedule takes a step, of an iteration or an
            epoch (``train.schedule_per``).
        learning_rate: the initial rate. Without it, that of ``train``.
    """

    steps: int = 100
    learning_rate: float | None = None


def read_lr(reader: Reader) -> LrSettings:
    """Read the mapping ``lr`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    lr = reader.mapping("lr", default={})
    assert lr is not None
    settings = LrSettings(
        steps=lr.integer("steps", 100, least=2),
        learning_rate=lr.positive("learning_rate", 1.0) if "learning_rate" in lr.data else None,
    )
    lr.done("learning_rate")
    return settings


# What a case says about the stage ``train``.


DROPOUT = ("off", "equal")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSettings:
    """How far the losses of a port may be from the reference's, measured on the reference itself.

    Attributes:
        runs: the number of reference runs that start from slightly different parameters.
        iterations: the losses of this many first iterations are compared.
        ulps: the difference of the start, in units in the last place of each parameter.
        factor: the allowed multiple of the envelope. A value above the default needs a ``reason``.
    """

    runs: int = 3
    iterations: int = 10
    ulps: int = ULPS
    factor: float = field(default=FACTOR, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The training stage, and the defaults of ``tools/train.py``.

    Attributes:
        epochs: the number of epochs, if the mode names none.
        batch_size: samples per step and device.
        learning_rate: initial learning rate.
        schedule_per: when the scheduler is stepped.
        benchmark: published values of the metrics. Without them, the run of torch is the benchmark.
        dropout: dropout in the run from equal weights on equal batches: off, or with equal masks on both sides.
        envelope: the comparison of the losses.
        seeds: the number of runs per side, from different seeds. With 2 or more, the final metrics are compared as groups.
        margin: a difference of the mean metrics up to this value does not matter. It has the unit of the metric.
    """

    epochs: int = 1
    batch_size: int = 4
    learning_rate: float = 1e-4
    schedule_per: str = "epoch"
    benchmark: Mapping[str, float] | None = None
    dropout: str = "off"
    envelope: EnvelopeSettings = field(default_factory=EnvelopeSettings)
    seeds: int = 1
    margin: float = field(default=0.15, repr=False)


def read_train(reader: Reader) -> TrainSettings:
    """Read the mapping ``train`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    train = reader.mapping("train", default={})
    assert train is not None
    settings = TrainSettings(
        epochs=train.integer("epochs", 1, least=1),
        batch_size=train.integer("batch_size", 4, least=1),
        learning_rate=train.positive("learning_rate", 1e-4),
        schedule_per=train.choice("schedule_per", ("epoch", "iteration"), default="epoch"),
        benchmark=_benchmark(train),
        dropout=_dropout(train),
        envelope=_envelope(train),
        seeds=train.integer("seeds", 1, least=1),
        margin=train.positive("margin", 0.15),
    )
    if settings.seeds > 1 and settings.benchmark is not None:
        raise train.error("seeds", "cannot stand beside 'benchmark': torch is not run then", found=settings.seeds)
    train.done()
    return settings


def _benchmark(train: Reader) -> Mapping[str, float] | None:
    benchmark = train.mapping("benchmark", default=None)
    if benchmark is None:
        return None
    published = {key: float(benchmark.value(key, (int, float), "a number")) for key in benchmark.data}
    if not published:
        raise train.error("benchmark", "is empty", expected="metric values in percent, e.g. {acc_top1: 56.5}")
    return published


def _dropout(train: Reader) -> str:
    # YAML 1.1 takes a plain `off` for false.
    found = train.value("dropout", (str, bool), ", ".join(DROPOUT), default="off")
    if found is False:
        return "off"
    if found not in DROPOUT:
        raise train.error("dropout", "is not known", found=found, expected=", ".join(DROPOUT))
    return str(found)


def _envelope(train: Reader) -> EnvelopeSettings:
    envelope = train.mapping("envelope", default={})
    assert envelope is not None
    settings = EnvelopeSettings(
        runs=envelope.integer("runs", 3, least=1),
        iterations=envelope.integer("iterations", 10, least=2),
        ulps=envelope.integer("ulps", ULPS, least=1),
        factor=envelope.positive("factor", FACTOR),
    )
    reason = envelope.text("reason", default="")
    envelope.done()
    if settings.factor > FACTOR and not reason.strip():
        raise envelope.error(
            "factor",
            f"is above the usual {FACTOR:g} and gives no reason",
            found=settings.factor,
            expected="reason: what was measured",
        )
    return settings


# What a case says about the stage ``train_data``.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDataSettings:
    """The stage that compares training data.

    Attributes:
        epochs: the order of the samples is compared for this many epochs.
        batch_size: samples per batch. Without it, that of ``train``.
        drop_last: whether the loaders must drop a smaller last batch. Without it, they are only compared with each other.
        shuffle: whether the loaders must shuffle. Without it, they are only compared with each other.
        samples: the number of samples, evenly spread over the split, whose values are compared.
        draws: the number of augmented images that each side draws.
        images: the number of different images for these draws.
        alpha: the probability of a false alarm, for all random quantities together.
    """

    epochs: int = 2
    batch_size: int | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    samples: int = 64
    draws: int = 2000
    images: int = 4
    alpha: float = 1e-3


def read_train_data(reader: Reader) -> TrainDataSettings:
    """Read the mapping ``train_data`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    found = reader.mapping("train_data", default={})
    assert found is not None
    settings = TrainDataSettings(
        epochs=found.integer("epochs", 2, least=2),
        batch_size=found.integer("batch_size", 0, least=1) if "batch_size" in found.data else None,
        drop_last=found.value("drop_last", bool, "true or false", default=None),
        shuffle=found.value("shuffle", bool, "true or false", default=None),
        samples=found.integer("samples", 64, least=1),
        draws=found.integer("draws", 2000, least=100),
        images=found.integer("images", 4, least=1),
        alpha=read_alpha(found),
    )
    found.done()
    return settings


# What a case says about the stages ``optimizer`` and ``regularization``.


LAYERS, MODEL = PARAMETERS = ("layers", "model")
"""What is updated: a few layers of the usual kinds, or the case's own model."""


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

    iterations: int = 5
    learning_rate: float = 0.1
    decay_learning_rate: float = 100.0
    seed: int = 0
    parameters: str = LAYERS
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_updates(reader: Reader) -> UpdatesSettings:
    """Read the mapping ``updates`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    updates = reader.mapping("updates", default={})
    assert updates is not None
    variants = updates.mapping("variants", default={})
    assert variants is not None
    for name in variants.data:
        if not name or "/" in name:
            raise variants.error(name, "cannot name a variant", expected="a name without a slash")
    settings = UpdatesSettings(
        iterations=updates.integer("iterations", 5, least=5),
        learning_rate=updates.positive("learning_rate", 0.1),
        decay_learning_rate=updates.positive("decay_learning_rate", 100.0),
        seed=updates.integer("seed", 0),
        parameters=updates.choice("parameters", PARAMETERS, default=LAYERS),
        variants=MappingProxyType({name: variants.args(name) for name in variants.data}),
    )
    updates.done()
    return settings
