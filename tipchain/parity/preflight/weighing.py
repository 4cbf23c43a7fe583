"""What running both models says about findings: some are differences of layout or of matching, not of function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tipchain.parity.findings import Finding
from tipchain.parity.locate.verdicts import FINE, LayerVerdict

LAYOUT = ("transposed-weight", "permuted-weight", "flipped-weight", "shape")
"""Codes of a parameter that holds the reference's numbers in another arrangement."""


def weigh(findings: Iterable[Finding], verdicts: Iterable[LayerVerdict]) -> list[Finding]:
    """Return the findings, as harmless those that the layers' verdicts refute.

    A layer that gives what its counterpart gives, in float64, may keep its parameters as it likes; layers that turned out
    to be no counterparts may have other arguments and parameters.
    """
    told = list(verdicts)
    refuted = {_paths(one) for one in told if one.refuted}
    faulty = {_paths(one) for one in told if one.at_fault}
    fine = {
        _paths(one)
        for one in told
        if one.direction == "forward" and one.closeness in FINE and one.method == "float64"
    } - faulty
    return [_weighed(one, refuted, fine) for one in findings]


def _weighed(one: Finding, refuted: set[tuple[str, str]], fine: set[tuple[str, str]]) -> Finding:
    paths = one.reference_path, one.port_path
    otherwise = paths in refuted and one.kind in ("argument", "parameter")
    arranged = paths in fine and one.kind == "parameter" and one.code in LAYOUT
    return replace(one, harmless=True) if otherwise or arranged else one


def _paths(one: LayerVerdict) -> tuple[str, str]:
    return one.reference_path, one.port_path
