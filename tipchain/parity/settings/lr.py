"""What a case says about the stage ``lr``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.yaml_lines import Reader


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


def read(reader: Reader) -> LrSettings:
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
