"""Why two sides' transforms differ, where the raw images are at hand: both pipelines are found out and held together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tipchain.parity.pieces.data_arrays import Array, Cause, apart, channel_axis, rounding, size_of
from tipchain.parity.pieces.data_pipeline import Pipeline, identify
from tipchain.parity.rounding import EXPLAINED, ROUGH

Change = Callable[[Array], Array]


def explain_pipelines(
    raws: tuple[Sequence[Array], Sequence[Array]], expected: Sequence[Array], actual: Sequence[Array]
) -> tuple[list[Cause], str]:
    """Return what the sides do otherwise to raw images, and what each was found to do, in words.

    Args:
        raws: of the reference and of the port, ``[h, w, c]``.
        expected: what the reference makes of its own.
        actual: what the port makes of its.

    Returns:
        No cause where the pipelines do not explain 99 % of the difference; of what was found out the words tell all the same.
    """
    es, acts = [one.astype(np.float64) for one in expected], [one.astype(np.float64) for one in actual]
    off = apart(es, acts)
    scale = min(off, size_of(es) + size_of(acts))
    ours, theirs = (
        identify(raw, made, scale * (1 - EXPLAINED)) for raw, made in zip(raws, (es, acts), strict=True)
    )
    words = "; ".join(
        f"the {side} {found}" for side, found in (("reference", ours), ("port", theirs)) if found is not None
    )
    if ours is None or theirs is None:
        return [], words
    explained = 1 - (ours.left + theirs.left) / scale
    if explained < EXPLAINED:
        return [], words
    crop = es[0].shape[-2:] if channel_axis(es[0].shape) == -3 else es[0].shape[-3:-1]
    ways = (one.alike(raw, (crop[0], crop[1])) for one, raw in zip((ours, theirs), raws, strict=True))
    return list(_differences(ours, theirs, explained, halves=not set.intersection(*ways))), words


def _differences(ours: Pipeline, theirs: Pipeline, explained: float, *, halves: bool) -> Iterator[Cause]:
    """Yield what differs between two pipelines, in the order in which it is done; ``halves``: crops are rounded otherwise."""

    def cause(code: str, message: str, fix: str) -> Cause:
        return Cause(code=code, message=message, fix=fix, explained=explained)

    one, other = ours.geometry, theirs.geometry
    if (one.rule, one.height, one.width, one.rounds) != (other.rule, other.height, other.width, other.rounds):
        yield cause(
            "resize-size", f"resize: the reference {one.size_words()}, the port {other.size_words()}",
            "resize as the reference does: it " + one.size_words(),
        )  # fmt: skip
    if ours.method != theirs.method and ours.method is not None and theirs.method is not None:
        same = ours.method.kernel == theirs.method.kernel and ours.method.grid == theirs.method.grid
        yield cause(
            "antialias" if same else "interpolation",
            f"resize: the reference's interpolation is {ours.method} ({ours.method.known_as}), the port's {theirs.method} ({theirs.method.known_as})",
            f"resize with {ours.method}: {ours.method.known_as}",
        )  # fmt: skip
    elif ours.whole != theirs.whole:
        which = "port" if theirs.whole else "reference"
        yield cause("rounding", f"resize: only the {which} rounds to whole grey levels after resizing",
                    f"resize {'bytes' if ours.whole else 'floats'}, as the reference does")  # fmt: skip
    places = [(at.corner, at.down, at.right) for at in (one, other)]
    if places[0] != places[1] or (halves and not one.corner):
        yield cause("crop-offset", f"crop: the reference takes {one.crop_words()}, the port {other.crop_words()}",
                    f"cut {one.crop_words()}")  # fmt: skip
    if ours.order != theirs.order:
        yield cause("channel-order", f"channel order: the reference takes the raw channels {ours.order}, the port {theirs.order}",
                    "give the port's transforms channels in the reference's order: convert BGR to RGB")  # fmt: skip
    yield from _lines(ours, theirs, cause)


def _lines(ours: Pipeline, theirs: Pipeline, cause: Callable[[str, str, str], Cause]) -> Iterator[Cause]:
    scale = np.abs(ours.factor).max()
    apart_by = np.abs(ours.factor - theirs.factor).max() / scale, np.abs(ours.shift - theirs.shift).max()
    if max(apart_by) <= ROUGH:
        return
    ratio = theirs.factor / ours.factor
    for factor, words in (
        (255.0, "is a division by 255 missing?"),
        (1 / 255.0, "is it divided by 255 twice?"),
    ):
        if np.abs(ratio / factor - 1).max() < 1 - EXPLAINED:
            yield cause("scale", f"scale: the port's factors are {factor:.4g} times the reference's: {words}",
                        "divide the image by 255 once, before the normalization")  # fmt: skip
            return
    yield cause(
        "normalization", f"normalization: the reference's is {ours.constants}, the port's {theirs.constants}",
        f"normalize with the reference's constants: {ours.constants}",
    )  # fmt: skip


RERUNS: tuple[tuple[str, str, str, Change], ...] = (
    ("channel-order", "channel order: reversed (RGB against BGR) before the transforms",
     "convert the raw image's channels to the reference's order", lambda raw: raw[..., ::-1]),
    ("flip", "values: mirrored left to right before the transforms", "remove the flip", lambda raw: raw[:, ::-1]),
    ("flip", "values: mirrored upside down before the transforms", "remove the flip", lambda raw: raw[::-1]),
    ("height-width", "layout: height and width are exchanged before the transforms",
     "exchange height and width back: (h, w), not (w, h)", lambda raw: np.swapaxes(raw, 0, 1)),
)  # fmt: skip
"""What may have been done to a raw image before the transforms."""


def explain_reruns(
    run: Callable[[Array], Array], raws: Sequence[Array], expected: Sequence[Array], actual: Sequence[Array]
) -> list[Cause]:
    """Return what has to be done to raw images so that the reference makes of them what the port makes.

    Args:
        run: the reference's transforms of one raw image.
        raws: ``[h, w, c]``.
        expected: what the reference makes of them.
        actual: what the port makes of them.
    """
    acts = [one.astype(np.float64) for one in actual]
    off = min(apart([one.astype(np.float64) for one in expected], acts), size_of(acts) + 1)
    for code, message, fix, change in RERUNS:
        if any(raw.ndim != 3 for raw in raws):
            continue
        try:
            found = [np.asarray(run(np.ascontiguousarray(change(raw))), dtype=np.float64) for raw in raws]
        except Exception:  # noqa: BLE001, S112  (a transform that cannot take it: the hypothesis does not apply)
            continue
        left = apart(found, acts)
        if left <= max(rounding(found, acts), (1 - EXPLAINED) * off):
            return [Cause(code=code, message=message, fix=fix, explained=min(1.0, 1 - left / off))]
    return []


def spy(dataset: Any, numbers: Sequence[int]) -> list[tuple[Array, Any]] | None:
    """Return what goes into a data set's ``transform`` and what comes out of it, sample by sample; None without one.

    The data set is not changed: a shallow copy of it is given a transform that remembers.
    """
    inner = getattr(dataset, "transform", None)
    if not callable(inner):
        return None
    seen: list[tuple[Any, Any]] = []

    def remember(raw: Any) -> Any:
        before = np.array(raw)
        made = inner(raw)
        seen.append((before, made))
        return made

    try:
        copied = copy.copy(dataset)
        copied.transform = remember
        found = []
        for number in numbers:
            seen.clear()
            copied[number]
            if len(seen) != 1 or seen[0][0].dtype.kind not in "biuf":
                return None
            found.append(seen[0])
    except Exception:  # noqa: BLE001  (a data set that cannot be copied or called so tells nothing)
        return None
    return found
