"""What a case says about the stage ``init``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.yaml_lines import Reader


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


def read(reader: Reader) -> InitSettings:
    """Read the mapping ``init`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    init = reader.mapping("init", default={})
    assert init is not None
    settings = InitSettings(
        seeds=init.integer("seeds", 5, least=2),
        values=init.integer("values", 2000, least=100),
        alpha=read_alpha(init),
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
