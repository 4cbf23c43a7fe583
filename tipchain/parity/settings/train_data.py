"""What a case says about the stage ``train_data``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.parity.settings.init import read_alpha
from tipchain.yaml_lines import Reader


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


def read(reader: Reader) -> TrainDataSettings:
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
