"""What matched layers are made with, compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tipchain.parity.findings import Effect, Finding
from tipchain.parity.preflight.kinds import DROPOUTS, computes_the_same, kind_of, never_alike, runs_as_built
from tipchain.parity.preflight.kinds_sequence import INNER, inner_pairs, orders_comparable
from tipchain.parity.preflight.own import compare_own
from tipchain.parity.preflight.spelling import axes_comparable
from tipchain.parity.preflight.table import UNTOLD, Kind, Pair, Property, plain, same, tidy

AnyPair = Pair | tuple[str, Any, str, Any]


def check_layers(pairs: Iterable[AnyPair]) -> list[Finding]:
    """Compare what matched layers are made with, whether or not they hold parameters.

    Values are compared as torch means them: Paddle's momentum of 0.99 is torch's of 0.01, ``padding="SAME"`` is the
    numbers it comes to, no stride is the kernel's. What does not matter in a layer (whether padding counts in an average
    without padding) is not compared, nor what cannot be told: an axis of two inputs of different layouts.

    Args:
        pairs: of a path and layer of torch's model and a path and layer of Paddle's, or `Pair`.

    Returns:
        A finding per setting that differs, in the order of the pairs.
    """
    found: list[Finding] = []
    for pair in expanded(pairs):
        ours, theirs = kind_of(pair.reference, 0), kind_of(pair.port, 1)
        if ours is None or theirs is None:
            found += compare_own(pair)
        elif ours is theirs:
            found += _compare(pair, ours)
        elif not computes_the_same(pair, (ours, theirs)):
            found.append(_other_dropout(pair, ours, theirs) or _other_type(pair, ours, theirs))
    return found


def expanded(pairs: Iterable[AnyPair]) -> Iterator[Pair]:
    """Yield the pairs, each once, and after those of Transformer layers the layers inside."""
    given = [Pair(*one) for one in pairs]
    seen = set()
    known = {(one.reference_path, one.port_path) for one in given}
    for pair in given:
        if (pair.reference_path, pair.port_path) in seen:
            continue
        seen.add((pair.reference_path, pair.port_path))
        yield pair
        kind = kind_of(pair.reference, 0)
        if kind is not None and kind.name in INNER and kind is kind_of(pair.port, 1):
            yield from (
                one
                for one in inner_pairs(pair, kind.name)
                if (one.reference_path, one.port_path) not in known
            )


def _compare(pair: Pair, kind: Kind) -> Iterator[Finding]:
    built = runs_as_built(pair.reference, 0) and runs_as_built(pair.port, 1)
    if kind.name == "Dropout" and pair.reference.p == pair.port.p == 0:
        return
    for one in kind.properties:
        values = tuple(_read(pair, one, side) for side in (0, 1))
        if UNTOLD in values or not _comparable(pair, one, values):
            continue
        if one.code == "time-order":
            if orders_comparable(pair) is not (values[0] != values[1]):
                continue
        elif same(values[0], values[1], one.slack):
            continue
        yield _finding(
            pair, one, values, effect="none" if one.measured or (one.visible and not built) else "elsewhere"
        )


def _read(pair: Pair, one: Property, side: Literal[0, 1]) -> Any:
    layer = (pair.reference, pair.port)[side]
    shape = None if pair.shapes is None else pair.shapes[side]
    try:
        return one.readers[side](layer, shape)
    except (
        AttributeError,
        TypeError,
        ValueError,
    ):  # a user's subclass that keeps its settings in another way
        return UNTOLD


def _comparable(pair: Pair, one: Property, values: tuple[Any, ...]) -> bool:
    if one.axis:
        return axes_comparable(pair, *values)
    return not one.sized or pair.shapes is None or sorted(pair.shapes[0]) == sorted(pair.shapes[1])


def _finding(pair: Pair, one: Property, values: tuple[Any, ...], *, effect: Effect) -> Finding:
    reference, port = (_spelled(pair, one, side, values[side]) for side in (0, 1))
    looks_alike = reference.partition("=")[2].strip("[](),") == port.partition("=")[2].strip("[](),")
    terms = f" ({tidy(values[1])!r} in torch's terms)" if looks_alike and one.code != "time-order" else ""
    hint = f", {one.hint}" if looks_alike and one.hint else ""
    return Finding(
        code=one.code, kind="argument", reference_path=pair.reference_path, port_path=pair.port_path,
        reference=reference, port=port,
        message=f"{name_of(pair)} has {port}{terms} where torch's has {reference}",
        fix=f"{one.lacking} in {place_of(pair)}" if one.lacking
        else f"pass `{_wanted_text(one, values)}` to {place_of(pair)}{hint}", effect=effect,
    )  # fmt: skip


def _wanted_text(one: Property, values: tuple[Any, ...]) -> str:
    """Return the arguments that the port needs."""
    value = tidy(one.write(_wanted(one, values)))
    return ", ".join(f"{name}={value!r}" for name in one.arguments[1].split(", "))


def _wanted(one: Property, values: tuple[Any, ...]) -> Any:
    """Return the value that the port needs; batches are first in Paddle exactly if they are not in the port now."""
    return not values[1] if one.code == "time-order" else values[0]


def _spelled(pair: Pair, one: Property, side: Literal[0, 1], value: Any) -> str:
    """Return a setting as its framework writes it: what the layer keeps, else what it comes to."""
    layer = (pair.reference, pair.port)[side]
    for name in one.attributes[side]:
        kept = getattr(layer, name, None)
        if isinstance(kept, bool | int | float | str | tuple | list):
            return f"{one.arguments[side]}={kept!r}"
    names = one.arguments[side].split(", ")
    if names[0].endswith("_attr"):
        values = value if isinstance(value, tuple) else (value,)
        return ", ".join(f"{name}={one.write((each,))!r}" for name, each in zip(names, values, strict=False))
    return f"{names[0]}={tidy(value)!r}"


def _other_type(pair: Pair, ours: Kind, theirs: Kind) -> Finding:
    names = f"nn.{type(pair.reference).__name__}", f"nn.{type(pair.port).__name__}"
    return Finding(
        code="layer-type", kind="argument", reference_path=pair.reference_path, port_path=pair.port_path,
        reference=names[0], port=names[1], message=f"{name_of(pair)} is a {names[1]} where torch's is a {names[0]}",
        fix=f"make {place_of(pair)} a `paddle.nn.{ours.classes[1][0]}`", effect="elsewhere" if never_alike(ours, theirs) else "none",
    )  # fmt: skip


def _other_dropout(pair: Pair, ours: Kind, theirs: Kind) -> Finding | None:
    """Return the finding where one layer drops something and the other hands on what it is given."""
    missing = theirs.name == "Identity"
    if not {ours.name, theirs.name} & DROPOUTS or "Identity" not in (ours.name, theirs.name):
        return None
    rate = plain(pair.reference.p if missing else pair.port.p)
    values = (f"p={rate!r}", "nn.Identity") if missing else ("nn.Identity", f"p={rate!r}")
    word = "nothing, torch's drops with" if missing else "something, torch's nothing:"
    return Finding(
        code="missing-dropout" if missing else "extra-dropout", kind="argument", reference_path=pair.reference_path,
        port_path=pair.port_path, reference=values[0], port=values[1],
        message=f"{name_of(pair)} drops {word} p={rate!r}",
        fix=f"make {place_of(pair)} a `paddle.nn.{ours.classes[1][0]}({rate!r})`" if missing
        else f"make {place_of(pair)} a `paddle.nn.Identity`",
    )  # fmt: skip


def name_of(pair: Pair) -> str:
    """Return what a sentence begins with that is about a layer."""
    return pair.port_path or "the model"


def place_of(pair: Pair) -> str:
    """Return the layer in a line that says what to write."""
    return f"`{pair.port_path}`" if pair.port_path else "the model"
