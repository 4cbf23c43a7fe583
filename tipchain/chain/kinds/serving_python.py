"""Serving chains with a Python server (`tipchain.chain.kinds.serving`)."""

from __future__ import annotations

from tipchain.chain.kinds.base import Request
from tipchain.chain.kinds.serving import MEANINGS, plan_serving
from tipchain.chain.kinds.serving import PYTHON_LAYOUTS as LAYOUTS
from tipchain.chain.plan import Plan

__all__ = ["LAYOUTS", "MEANINGS", "plan"]


def plan(request: Request) -> Plan:
    """Return the plan of a file."""
    return plan_serving(request, "serving_python", LAYOUTS)
