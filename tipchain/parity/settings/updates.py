"""What a case says about the stages ``optimizer`` and ``regularization``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tipchain.yaml_lines import Reader

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


def read(reader: Reader) -> UpdatesSettings:
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
