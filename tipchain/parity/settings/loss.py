"""The case's ``loss``: arguments of both ``build_loss``, and variants of them that the loss stage compares too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tipchain.yaml_lines import Reader

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


def read(reader: Reader) -> LossSettings:
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
                name,
                "cannot name a variant",
                found=repr(name),
                expected="a name without '/', such as smoothed",
            )
    named = {name: variants.args(name) for name in variants.data}
    for name, more in named.items():
        if not more:
            raise variants.error(name, "changes no argument", expected="e.g. {label_smoothing: 0.1}")
    loss.done()
    return LossSettings(args=args, variants=MappingProxyType(named))
