"""Weights that are one tensor in one model and several equal ones in the other: they are trained apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.paddle_weights import view_of
from tipchain.parity.findings import Finding
from tipchain.parity.locate.layer_pairs import Print, print_of
from tipchain.torch_weights import array_of

Array = npt.NDArray[Any]
Key = tuple[int, float, float]


def check_ties(reference: Any, port: Any) -> list[Finding]:
    """Return a finding for every weight that one model has once and the other several times.

    Equal values, in whatever order of elements, tell: copies of one tensor are equal, initial values hardly ever.
    Constant tensors tell nothing.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
    """
    ours = {name: array_of(one) for name, one in reference.named_parameters()}
    theirs = {name: view_of(one) for name, one in _once(port)}
    keys = _keys(ours), _keys(theirs)
    several = {key for held in keys for key, count in Counter(held.values()).items() if count > 1}
    if not several:
        return []
    groups = _groups(ours, keys[0], several), _groups(theirs, keys[1], several)
    return [
        _finding(names, groups[1][key])
        for key, names in groups[0].items()
        if groups[1].get(key) and len(names) != len(groups[1][key]) and 1 in (len(names), len(groups[1][key]))
    ]


def _once(port: Any) -> Iterator[tuple[str, Any]]:
    """Yield the port's parameters, each under its first name."""
    seen: set[int] = set()
    for name, one in port.named_parameters():
        if id(one) not in seen:
            seen.add(id(one))
            yield name, one


def _keys(arrays: Mapping[str, Array]) -> Mapping[str, Key]:
    """Return what equal parameters have alike: size, least and largest; nothing of constants."""
    found = {name: (one.size, float(one.min()), float(one.max())) for name, one in arrays.items() if one.size}
    return {name: key for name, key in found.items() if key[1] < key[2]}


def _groups(
    arrays: Mapping[str, Array], keys: Mapping[str, Key], several: set[Key]
) -> Mapping[Print, list[str]]:
    """Return the names of parameters by what they hold, of those that may stand several times."""
    found: dict[Print, list[str]] = defaultdict(list)
    for name, key in keys.items():
        if key in several:
            found[print_of(arrays[name].astype(np.float32, copy=False))].append(name)
    return found


def _finding(ours: list[str], theirs: list[str]) -> Finding:
    split = len(theirs) > len(ours)
    names = theirs if split else ours
    one, many = (ours[0], "the port") if split else (theirs[0], "the reference")
    told = ", ".join(f"`{name}`" for name in names)
    kept = "the reference" if split else "the port"
    fix = f"use one tensor for {told}" if split else f"give {told} tensors of their own"
    return Finding(
        code="tied-weights", kind="parameter", reference_path=_around(ours), port_path=_around(theirs),
        reference=f"{len(ours)} tensors" if len(ours) > 1 else "one tensor",
        port=f"{len(theirs)} tensors" if len(theirs) > 1 else "one tensor",
        message=f"{told} of {many} hold the same values but are trained apart; {kept} has one tensor, `{one}`, tied",
        fix=fix,
    )  # fmt: skip


def _around(names: list[str]) -> str:
    """Return the path of the innermost layer that holds all of some tensors."""
    parts = [name.split(".")[:-1] for name in names]
    common: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return ".".join(common)
