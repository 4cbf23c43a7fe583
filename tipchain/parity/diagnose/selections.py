"""What is taken of a tensor as the cause: another index, another slice, one element for all of an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tipchain.parity.diagnose.acts import instead, with_argument
from tipchain.parity.diagnose.asking import first_tensor, is_tensor, paddle_of
from tipchain.parity.diagnose.functions import place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import Op

REDUCED = frozenset({"mean", "sum", "max", "min"})


def by_indices(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield indexing with another number: the last for the first, one further."""
    if op.name != "getitem" or len(op.args) < 2:
        return
    items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    where = place_of(op, piece)
    slices = [place for place, item in enumerate(items) if isinstance(item, slice) and item != slice(None)]
    if len(slices) > 1:
        for by in (1, -1):
            moved = tuple(_shifted(item, by) if place in slices else item for place, item in enumerate(items))
            told = [", ".join(map(_told, one)) for one in (items, moved)]
            yield Hypothesis(
                code="off-by-one", acts={op.number: with_argument(1, moved)},
                message=f"it takes index [{told[0]}]{where}, which is shifted: the reference [{told[1]}]",
                fix=f"write [{told[1]}] for [{told[0]}]{where}: `{op.line}`",
            )  # fmt: skip
    for place, item in enumerate(items):
        if isinstance(item, int):
            changed: list[Any] = [one for one in (0, -1, item + 1, item - 1, 1, 2) if one != item]
        elif isinstance(item, slice) and (item.start is not None or item.stop is not None):
            changed = [_shifted(item, by) for by in (1, -1)]
        elif isinstance(item, slice) and item.step == -1:
            changed = [slice(None)]
        else:
            continue
        for value in changed:
            new = (*items[:place], value, *items[place + 1 :])
            act = with_argument(1, new)
            code = "wrong-index" if isinstance(item, int) else "off-by-one"
            yield Hypothesis(
                code=code, acts={op.number: act}, message=f"it takes index {_told(item)}{where}, the reference {_told(value)}",
                fix=f"write {_told(value)} for {_told(item)}{where}: `{op.line}`",
            )  # fmt: skip


def _shifted(item: slice, by: int) -> slice:
    """Return a slice moved by one, of the same length where it ends at the first or the last."""
    if by > 0:
        return slice((item.start or 0) + 1, None if item.stop in (None, -1) else item.stop + 1, item.step)
    start = None if item.start in (None, 0, 1) else item.start - 1
    return slice(start, -1 if item.stop is None else item.stop - 1, item.step)


def _told(item: Any) -> str:
    if isinstance(item, slice):
        return ":".join("" if one is None else str(one) for one in (item.start, item.stop))
    return str(item)


def by_selections(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield one element in place of all along an axis, and all in place of one."""
    given, where, paddle = first_tensor(op, piece), place_of(op, piece), paddle_of(piece)
    if given is None or not given.shape:
        return
    rank = len(given.shape)
    if op.name in REDUCED:
        axis = op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else None)
        axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
        if not isinstance(axis, int) or isinstance(axis, bool):
            return
        keep = list(given.shape) if op.kwargs.get("keepdim") else None
        for number in (0, -1):
            yield Hypothesis(
                code="pooling", acts={op.number: instead(partial(_one, axis % rank, number, keep))},
                message=f"it takes the {op.name} over axis {axis}{where}, the reference takes index {number} there",
                fix=f"take index {number} of axis {axis} for the {op.name}{where}: `{op.line}`",
            )  # fmt: skip
    elif op.name == "getitem" and len(op.args) > 1:
        items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
        whole = all(isinstance(one, int) or one == slice(None) for one in items if not is_tensor(piece)(one))
        places = [
            place for place, one in enumerate(items) if isinstance(one, int) and not isinstance(one, bool)
        ]
        if not whole or len(places) != 1 or any(is_tensor(piece)(one) for one in items):
            return
        for name in ("mean", "max", "sum"):
            yield Hypothesis(
                code="pooling", acts={op.number: instead(partial(_all, getattr(paddle, name), places[0]))},
                message=f"it takes index {items[places[0]]} of axis {places[0]}{where}, the reference the {name} over that axis",
                fix=f"take the {name} over axis {places[0]}{where}: `{op.line}`",
            )  # fmt: skip


def _one(axis: int, number: int, kept: Sequence[int] | None, tensor: Any) -> Any:
    taken = tensor[(slice(None),) * axis + (number,)]
    return taken if kept is None else taken.unsqueeze(axis)


def _all(reduce: Any, axis: int, tensor: Any) -> Any:
    return reduce(tensor, axis=axis)


def counted(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield calls of one line that all take the same index, each taking the next one."""
    if op.name != "getitem" or len(op.args) < 2 or not isinstance(op.args[1], int) or not op.place:
        return
    alike = [
        one for one in ops
        if one.name == op.name and one.place == op.place and one.args[0] is op.args[0] and one.args[1:] == op.args[1:]
    ]  # fmt: skip
    if len(alike) < 2 or alike[0] is not op or len(alike) > op.args[0].shape[0]:
        return
    where = place_of(op, piece)
    yield Hypothesis(
        code="wrong-index", acts={one.number: with_argument(1, number) for number, one in enumerate(alike)},
        message=f"it takes index {op.args[1]} each of {len(alike)} times{where}, the reference the next one each time",
        fix=f"take the index of the turn{where}: `{op.line}`",
    )  # fmt: skip
