"""Construction of both models: all comparisons that run nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tipchain.errors import Outcome
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.trace import Store
from tipchain.explain.preflight.construction import check
from tipchain.explain.preflight.parameters import MANY, Tensors, two_initializations
from tipchain.explain.preflight.trials import weigh
from tipchain.live.causes import of_finding
from tipchain.live.layers import locate
from tipchain.live.request import LiveRequest
from tipchain.live.results import LiveResults


def check_strangers(results: LiveResults, tensors: Tensors) -> PieceCheck | None:
    """Return the FAIL of weights that are two initializations, where nothing else is worth comparing; else None."""
    strange = two_initializations(tensors)
    if strange is None or strange.compared < MANY:
        return None
    finding = strange.finding
    results.report.findings[:] = [finding]
    cause = replace(of_finding(finding), evidence="parameters whose elements are all equal were not counted")
    reason = f"{finding.message}; nothing else was compared"
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, diagnoses=(cause,))


def check_construction(
    asked: LiveRequest,
    results: LiveResults,
    pairs: Sequence[LayerPair],
    tensors: Tensors | None,
    located: Located | None,
    store: Store,
) -> PieceCheck:
    """Compare layers and parameters; the report has the findings, weighed where models run."""
    calls = () if located is None else located.matching.pairs
    findings = check(*asked.models, pairs, calls, names=asked.names, tensors=tensors)
    results.report.findings[:] = findings
    if located is None and any(one.kind in ("argument", "parameter", "flag") for one in findings):
        with suppress(Exception):  # a difference that is not weighed counts
            located = locate(asked, results.pace, store, pairs, losses=False)
    if located is not None:
        findings = weigh(findings, located, asked.sides, asked.models, store, asked.seed, results.pace)
    results.report.findings[:] = findings
    grave = [one.message for one in findings if not one.harmless]
    if located is not None and located.elsewhere is not None:
        code = located.elsewhere
        grave.append(f"{code.port_path or 'the model'} ({code.port_type}): {code.reason}")
    if grave:
        others = f", and {len(grave) - 1} more" if len(grave) > 1 else ""
        return PieceCheck(outcome=Outcome.FAIL, reason=f"{grave[0]}{others}")
    if not pairs and not calls:
        return PieceCheck(outcome=Outcome.SKIP, reason="no layer of one model was found in the other")
    count = len({pair.port for pair in pairs} | {pair.port.path for pair in calls})
    return PieceCheck(outcome=Outcome.PASS, reason=f"{count} layers are built alike")
