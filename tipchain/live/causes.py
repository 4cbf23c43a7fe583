"""What makes a port differ: causes of layers' faults, and differences of construction that explain them or stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tipchain.parity.diagnose.diagnose import diagnose
from tipchain.parity.findings import Diagnosis, Finding
from tipchain.parity.locate.locate import Located
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.verdicts import Closeness, LayerVerdict

UNKNOWN = "unknown"
"""The code of a diagnosis that no hypothesis explains."""
DESCRIBING = frozenset({"scaled-gradient"})
"""Causes that say what is seen: a difference of the same layer's construction says why, and comes first."""
WHOLE = 0.99
"""The fraction of an error from which on a cause explains it."""
MOST_DIAGNOSED = 5
"""Faults whose causes are looked for; those after them are listed without."""
PIECES = ("optimizer", "scheduler")
"""Kinds of findings that are about a piece of the training, not about a layer."""


def explain_layers(
    located: Located, verdicts: Sequence[LayerVerdict], findings: Sequence[Finding], sides: tuple[LiveSide, LiveSide],
    models: tuple[Any, Any], store: Store, seed: int,
) -> list[Diagnosis]:  # fmt: skip
    """Look for the causes of the first faults, one for each layer.

    Args:
        located: what was found about both models.
        verdicts: of their layers.
        findings: how they are built otherwise.
        sides: torch's and Paddle's.
        models: the user's.
        store: where the tensors of their runs are.
        seed: of random numbers.
    """
    found: list[Diagnosis] = []
    seen: set[str] = set()
    for verdict in verdicts:
        if not verdict.at_fault or verdict.port_path in seen or len(seen) == MOST_DIAGNOSED:
            continue
        seen.add(verdict.port_path)
        causes = diagnose(located, verdict, sides, store, models=models, seed=seed)
        known = [one for one in causes if one.code != UNKNOWN]
        told = {(one.code, one.port_path) for one in known}
        whole = any((one.explained or 0.0) >= WHOLE for one in known)  # other values would be the same cause
        said = [
            one
            for one in map(of_finding, grave(findings, verdict.port_path, tensors=not whole))
            if (one.code, one.port_path) not in told
        ]
        shallow = bool(known) and known[0].code in DESCRIBING
        found += [*said, *known] if shallow else [*known, *said] or causes
    return found


def with_construction(diagnoses: Sequence[Diagnosis], findings: Sequence[Finding]) -> list[Diagnosis]:
    """Return the causes with those differences of construction that no number has shown.

    Where a piece differs by a cause unknown, what is known of its construction takes that one's place.
    """
    serious = grave(findings)
    known = {one.port_path for one in diagnoses if one.code != UNKNOWN}
    more = [
        of_finding(one) for one in serious if (one.kind if one.kind in PIECES else one.port_path) not in known
    ]
    pieces = {one.kind for one in serious if one.kind in PIECES}
    return [*(one for one in diagnoses if one.code != UNKNOWN or one.port_path not in pieces), *more]


def grave(findings: Sequence[Finding], path: str | None = None, *, tensors: bool = True) -> list[Finding]:
    """Return the findings that fail something, about one layer or all, with or without those about tensors' values."""
    found = [one for one in findings if not one.harmless and path in (None, one.port_path)]
    return [one for one in found if tensors or one.kind != "parameter"]


def first_constructed(
    findings: Sequence[Finding], sides: tuple[LiveSide, LiveSide], models: tuple[Any, Any]
) -> LayerVerdict | None:
    """Return the first layer that is built otherwise, as a verdict; None where none is."""
    found = next((one for one in grave(findings) if one.kind in ("argument", "parameter", "flag")), None)
    if found is None:
        return None
    layers = [dict(side.layers(model)) for side, model in zip(sides, models, strict=True)]
    types = [
        type(layers[number].get(path)).__name__
        for number, path in enumerate((found.reference_path, found.port_path))
    ]
    return LayerVerdict(
        reference_path=found.reference_path, port_path=found.port_path, reference_type=types[0], port_type=types[1],
        turn=0, direction="construction", inherited=0.0, own=None, ratio=None, closeness=Closeness.DIFFERS,
        method="float64", reason=found.message,
    )  # fmt: skip


def of_finding(finding: Finding) -> Diagnosis:
    """Return a difference of construction as a cause."""
    piece = finding.kind if finding.kind in PIECES else ""
    return Diagnosis(
        code=finding.code, port_path=finding.port_path or piece, message=finding.message,
        evidence=f"reference {finding.reference}, port {finding.port}", explained=None, fix=finding.fix,
    )  # fmt: skip
