"""What two layers of users' own classes are made with, as far as their attributes tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tipchain.parity.findings import Finding
from tipchain.parity.preflight.table import Pair, plain, same

SYNONYMS = {
    "epsilon": ("eps", "epsilon", "variance_epsilon", "norm_eps", "layer_norm_eps"),
    "dropout": ("p", "prob", "drop_prob", "drop", "dropout", "dropout_p", "dropout_prob", "drop_rate", "dropout_rate",
                "drop_path", "drop_path_prob", "drop_path_rate"),
    "negative-slope": ("negative_slope", "slope", "leaky_slope"),
    "heads": ("num_heads", "nhead", "n_heads", "n_head", "heads"),
}  # fmt: skip
"""Names under which classes of different authors keep the same; a class must have one of them only."""
CONVENTIONS = (
    "momentum",
    "axis",
    "dim",
    "format",
    "dtype",
    "name",
    "device",
    "version",
    "scale",
    "path",
    "inplace",
)
"""Words in names of attributes that the frameworks mean differently, or that compute nothing."""


def compare_own(pair: Pair) -> Iterator[Finding]:
    """Yield the plain attributes of one name, or of names for the same, that differ.

    They may be kept and not used, or used in other ways; what they do to the outputs is measured elsewhere. So they
    count for nothing, but for a dropout's probability in classes of one name, which no output of an eval mode shows.
    """
    ours, theirs = _attributes(pair.reference), _attributes(pair.port)
    for code, one, other in _common(ours, theirs):
        if same(_folded(ours[one]), _folded(theirs[other])):
            continue
        values = f"{one}={ours[one]!r}", f"{other}={theirs[other]!r}"
        random = code == "dropout" and _same_class(pair) and _rates(ours[one], theirs[other])
        yield Finding(
            code=code, kind="argument", reference_path=pair.reference_path, port_path=pair.port_path,
            reference=values[0], port=values[1],
            message=f"{pair.port_path or 'the model'} ({type(pair.port).__name__}) has {values[1]} where torch's has "
            f"{values[0]}",
            fix=f"set `{other}` of `{pair.port_path}` to {ours[one]!r}", effect="elsewhere" if random else "none",
        )  # fmt: skip


def _attributes(layer: Any) -> dict[str, Any]:
    """Return a layer's attributes that are numbers, strings, truth values or tuples of them, without underscores."""
    found = {}
    for name, value in vars(layer).items():
        known = plain(value) if isinstance(value, bool | int | float | str | tuple | list) else None
        if known is not None and _is_plain(known):
            found[name.lstrip("_")] = known
    for name in ("training", "full_name", "built", "init_in_dynamic_mode"):
        found.pop(name, None)
    return found


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(one) for one in value)
    return isinstance(value, bool | int | float | str)


def _common(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the code and both names of attributes that belong together."""
    grouped = set()
    for code, names in SYNONYMS.items():
        found = [[name for name in names if name in side] for side in (ours, theirs)]
        if [len(one) for one in found] == [1, 1]:
            grouped.add(found[0][0])
            yield code, found[0][0], found[1][0]
    for name in ours:
        odd = any(word in name.lower() for word in CONVENTIONS)
        if name in theirs and name not in grouped and not odd and type(ours[name]) is type(theirs[name]):
            yield name.replace("_", "-").lower(), name, name


def _same_class(pair: Pair) -> bool:
    names = {type(layer).__name__.replace("_", "").lower() for layer in (pair.reference, pair.port)}
    return len(names) == 1


def _rates(*values: Any) -> bool:
    return all(isinstance(one, float | int) and not isinstance(one, bool) and 0 <= one < 1 for one in values)
