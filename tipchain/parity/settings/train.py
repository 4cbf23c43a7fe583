"""What a case says about the stage ``train``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tipchain.parity.envelope import FACTOR, ULPS
from tipchain.yaml_lines import Reader

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


def read(reader: Reader) -> TrainSettings:
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
        raise train.error(
            "seeds", "cannot stand beside 'benchmark': torch is not run then", found=settings.seeds
        )
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
            "factor", f"is above the usual {FACTOR:g} and gives no reason", found=settings.factor,
            expected="reason: what was measured",
        )  # fmt: skip
    return settings
