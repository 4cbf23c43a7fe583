"""Read what a case says about its stages, a mapping for each.

Each function raises `CaseError` with file, line and key for a value that cannot be.
"""

from __future__ import annotations

from tipchain.modes import DATA_SETS, DIGITS
from tipchain.parity.case_types import BackwardSettings, DataSettings, TrainSettings
from tipchain.yaml_lines import Reader


def read_backward(reader: Reader) -> BackwardSettings:
    """Read the mapping ``backward``."""
    backward = reader.mapping("backward", default={})
    assert backward is not None
    settings = BackwardSettings(
        iterations=backward.integer("iterations", 5, least=2),
        learning_rate=backward.positive("learning_rate", 1e-4),
        training=backward.flag("training", default=False),
        inputs=backward.choice("inputs", ("fake", "train_loader"), default="fake"),
    )
    backward.done()
    return settings


def read_train(reader: Reader) -> TrainSettings:
    """Read the mapping ``train``."""
    train = reader.mapping("train", default={})
    assert train is not None
    benchmark = train.mapping("benchmark", default=None)
    published = None
    if benchmark is not None:
        published = {key: float(benchmark.value(key, (int, float), "a number")) for key in benchmark.data}
        if not published:
            raise train.error(
                "benchmark", "is empty", expected="metric values in percent, e.g. {acc_top1: 56.5}"
            )
    settings = TrainSettings(
        epochs=train.integer("epochs", 1, least=1),
        batch_size=train.integer("batch_size", 4, least=1),
        learning_rate=train.positive("learning_rate", 1e-4),
        schedule_per=train.choice("schedule_per", ("epoch", "iteration"), default="epoch"),
        benchmark=published,
    )
    train.done()
    return settings


def read_data(reader: Reader) -> DataSettings:
    """Read the mapping ``data``."""
    data = reader.mapping("data", default={})
    assert data is not None
    settings = DataSettings(
        batch_size=data.integer("batch_size", 4, least=1),
        max_batches=data.integer("max_batches", 100, least=1),
        transform_samples=data.integer("transform_samples", 2, least=1),
        set=data.choice("set", tuple(DATA_SETS), default=DIGITS),
        args=data.args("args"),
    )
    data.done()
    return settings
