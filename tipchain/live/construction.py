"""Construction of both models: all comparisons that run nothing, and settings that a user accepts put right."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module

from tipchain.errors import Outcome
from tipchain.explain.causes.settings import reference_settings
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.trace import Store
from tipchain.explain.preflight.construction import check, every_path
from tipchain.explain.preflight.parameters import Tensors
from tipchain.explain.preflight.trials import LayerTrial
from tipchain.framework_types import Model
from tipchain.frameworks.randomness import attributes
from tipchain.live.layers import locate
from tipchain.live.report import AlignmentReport, LiveResults
from tipchain.live.request import LiveRequest


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
    if located is None and findings:
        with suppress(Exception):  # a difference that is not weighed counts
            located = locate(asked, results.pace, store, pairs, losses=False)
    if located is not None:
        findings = LayerTrial(located, asked.sides, asked.models, store, asked.seed, results.pace).weigh(findings)
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


@contextmanager
def put_right(
    report: AlignmentReport, stages: Collection[str], reference: Model, port: Model
) -> Iterator[list[dict[str, str]]]:
    """Give the port the reference's value of each setting that a stage shows; yield stage and message of those causes."""
    paths = {(one.port_path, one.name): one.reference_path for one in report.findings}
    layers, port_layers = dict(reference.named_modules(remove_duplicate=False)), dict(every_path(port))
    settled, nn = [], import_module("paddle").nn
    with ExitStack() as stack:
        for cause in report.diagnoses:
            if cause.stage not in stages or cause.run:
                continue
            changes = []
            for path in cause.layers:
                ours, theirs = layers.get(paths.get((path, cause.name), "")), port_layers.get(path)
                known = [] if ours is None or theirs is None else reference_settings(cause.name, ours, theirs, nn)
                changes += [(theirs, one) for *_, one in known]
            if len(changes) >= len(cause.layers):
                settled.append({"stage": cause.stage, "message": cause.message})
                for layer, one in changes:
                    stack.enter_context(attributes(layer, **one))
        yield settled
