"""Small things that several groups of causes ask about a piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import Op, floats_of
from tipchain.parity.locate.differences import HIDING


def is_tensor(piece: Piece) -> Callable[[Any], bool]:
    """Return what tells the port's tensors."""
    return piece.sides[1].is_tensor


def paddle_of(piece: Piece) -> Any:
    """Return the port's framework."""
    return piece.sides[1].framework.paddle  # type: ignore[attr-defined]


def first_tensor(op: Op, piece: Piece) -> Any:
    """Return the first floating-point tensor that a call was given."""
    found = floats_of((op.args, dict(op.kwargs)), is_tensor(piece))
    return found[0] if found else None


def is_mask(value: Any, piece: Piece) -> bool:
    """Tell whether a value hides others: booleans, or large negative numbers."""
    if not is_tensor(piece)(value) or not value.size:
        return False
    if "float" not in str(value.dtype):
        return "bool" in str(value.dtype)
    return bool((value <= HIDING).any())
