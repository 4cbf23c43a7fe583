"""The entries of all lists: pairs whose port is wrong or right."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def entries() -> dict[str, Any]:
    """Return what makes each pair, by the list and the id."""
    from zoo.clean import CLEAN
    from zoo.faults import FAULTS

    return {f"zoo/{one.id}": one for one in (*FAULTS, *CLEAN)}
