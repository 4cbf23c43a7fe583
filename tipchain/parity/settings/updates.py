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
        iterations: updates that the optimizer stage compares.
        learning_rate: that stage's first rate; it changes from update to update.
        decay_learning_rate: the regularization stage's rate, so high that a small decay is seen beside rounding.
        seed: of parameters and gradients.
        parameters: ``"layers"`` or ``"model"``.
        variants: further arguments of both ``build_optimizer`` by name, each in place of ``optimizer:``.
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
