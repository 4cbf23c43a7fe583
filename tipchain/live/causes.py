"""Causes of a port's differences: layers' faults, and differences of construction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tipchain.core.language import many
from tipchain.core.progress import Pace
from tipchain.errors import Outcome
from tipchain.explain.causes.hypotheses import below
from tipchain.explain.causes.search import diagnose, said_alike, unsearched
from tipchain.explain.findings import BUILT, CONSTRUCTED, PIECES, Diagnosis, of_piece, shown_path
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.other_runs import DrawComparer, explain_draws
from tipchain.explain.locate.trace import Store
from tipchain.explain.locate.verdicts import LayerVerdict
from tipchain.explain.preflight.construction import every_path
from tipchain.facts.layers import KINDS
from tipchain.framework_types import Options
from tipchain.live.report import AlignmentReport, LiveResults
from tipchain.live.request import LiveRequest
from tipchain.numbers.tolerance import EXPLAINED
from tipchain.weights.sides import join
from tipchain.weights.structure import group_by

Verdicts = Sequence[LayerVerdict]
Findings = Sequence[Diagnosis]
DESCRIBING = frozenset({"nan", "parting"})
"""Causes that only describe: a difference of the same layer's construction stands in their place."""
SEARCHED = 5
"""Faults whose causes are searched for without construction, or a layer of the same type, telling them; then one gives up."""
UNTRIED = frozenset({"layer-type", "dropout-p"})
"""Differences of construction that no trial surely removes, told for an error unknown."""
LATER = frozenset(one.code for kind in KINDS for one in kind.properties if not one.visible)
"""Arguments that never show in a layer's result, so that no other cause of its error speaks against them."""


def explain(asked: LiveRequest, results: LiveResults, located: Located | None, store: Store) -> None:
    """Look for the causes of layers' differences; construction's findings stand beside them."""
    if located is not None:
        drawn: list[Diagnosis] = []
        draws = located.reference.draws.made or located.port.draws.made
        if draws and results.report.stages["forward"] is Outcome.FAIL:
            unlike = DrawComparer(located, asked.models).unlike()
            alone = [one for one in unlike if None in (one.reference, one.port)]
            both = [(one, one.reference, one.port) for one in unlike]
            rates = [one for one, ours, theirs in both if ours and theirs and not ours.is_as_frequent(theirs)]
            drawn = explain_draws(located, rates if asked.training else alone, training=asked.training)
        verdicts = [] if located.elsewhere is None else [located.elsewhere]
        verdicts += [one for one in results.report.layers if one not in results.of_runs]
        of_layers, places = explain_layers(asked, located, verdicts, results.report.findings, store, results.pace)
        told = {one.port_path: one.code for one in of_layers if one.is_known}
        if asked.training:  # one rate is told by its call; where several differ no change of one call explains all
            drawn = [one for one in drawn if told.get(one.port_path, "parting") == "parting"]
        drawn = [one for one in drawn if one.code != "missing-call" or one.port_path not in told]
        known = [one for one in of_layers if not drawn or (one.is_known and one.name != "dropout-p")]
        if asked.training:
            known = [one for one in known if one.port_path not in {draw.port_path for draw in drawn}]
        results.report.diagnoses[:] = [*drawn, *known, *results.report.diagnoses]
        results.first = placed(asked, results.first, places, located)
        if not results.passed("forward"):
            results.report.diagnoses[:0] = missing_layers(asked, located)
    results.report.diagnoses[:] = with_construction(results.report.diagnoses, results.report.findings)


def missing_layers(asked: LiveRequest, located: Located) -> Iterator[Diagnosis]:
    """Yield the layers that the reference calls beyond the end of a list of layers, which is shorter in the port."""
    port = {path for path, _ in every_path(asked.models[1])}
    partners = {pair.reference.path: pair.port.path for pair in located.matching.containers}
    partners |= {pair.reference: pair.port for pair in located.layers}
    called = {call.path for call in located.reference.trace.calls}
    for path, layer in asked.models[0].named_modules():
        holder, _, name = path.rpartition(".")
        around, count = partners.get(holder, holder), sum(1 for _ in layer.parameters())
        lacks = name.isdigit() and around in port and join(around, name) not in port
        if count and lacks and path in called and not any(below(one, path) is not None for one in partners):
            told = f"`{path}` ({type(layer).__name__}, {many(count, 'parameter')})"
            told = f"{shown_path(around)} has no counterpart of {told}, which the reference calls"
            fix = f"build as many layers in {shown_path(around)} as the reference"
            cause = of_piece(around, "structure", told, CONSTRUCTED, fix)
            yield replace(cause, name="layers", reference_path=path, stage="forward")


def explain_layers(
    asked: LiveRequest, located: Located, verdicts: Verdicts, findings: Findings, store: Store, pace: Pace
) -> tuple[list[Diagnosis], dict[str, str]]:
    """Return the causes of the faults, one that several layers share once, and where the code stands that is wrong.

    A layer's fault may be that of the code around it, or of one layer inside: the second value has the path of that by
    the path of the layer that was found to be at fault.

    Layers that are built otherwise in the same way are one group: what construction tells is applied to the first, and
    if it explains that one's error it is the cause of all. Other layers are tried with the causes of their type first.
    """
    places, searched = dict[str, str](), 0
    serious, at_fault = grave(findings), [one for one in verdicts if one.at_fault]
    faults = {path: ones[0] for path, ones in group_by(at_fault, lambda one: one.port_path).items()}
    wrong = [one.port_path for one in at_fault if one.direction == "forward"]
    search_one = partial(diagnose, models=asked.models, seed=asked.seed, findings=serious, pace=pace)

    def search(path: str, verdict: LayerVerdict, like: Findings, *, only_like: bool = False) -> list[Diagnosis]:
        shown, within = located.shown(verdict), [one for one in wrong if below(one, path) is not None]
        # Code that is wrong at several places has layers at fault inside; else that is not known.
        inside = {*within} - {path} if path in located.again or (located.later and len(within) > 1) else None
        told = search_one(shown, verdict, asked.sides, store, like=like, inside=inside, only_like=only_like)
        stage = "preflight" if verdict.direction == "construction" else verdict.direction
        return [replace(one, stage=stage, reference_path=_counterpart(one.port_path, verdict, shown)) for one in told]

    ways = group_by([one for one in serious if one.code in BUILT], lambda one: one.port_path)
    built = {path: tuple((one.name, one.reference, one.port) for one in ones) for path, ones in ways.items()}
    found: list[Diagnosis] = []
    settled: dict[tuple[object, ...], Diagnosis] = {}
    by_type: dict[tuple[str, str], list[Diagnosis]] = {}
    for number, (path, verdict) in enumerate(faults.items()):
        if pace.over:
            return [*found, unsearched(verdict)], places
        pace.tell("looking for the causes of layers", number, len(faults))
        group = built.get(path)
        if group in settled:
            settled[group] = _joined(found, settled[group], path)
            continue
        like = by_type.setdefault((verdict.reference_type, verdict.port_type), [])
        if searched == SEARCHED and group is None and not like:
            continue
        told = search(path, verdict, like)
        searched += group is None or not told[0].evidence.startswith(CONSTRUCTED)
        for cause in told:
            if cause.is_known:
                places.setdefault(path, cause.port_path)
            known = (other for other in found if other.is_known and cause.is_known)
            if same := next((other for other in known if _alike(other) == _alike(cause)), None):
                _joined(found, same, cause.port_path)
                continue
            found.append(cause)
            if cause.is_known:
                like.append(cause)
            if group is not None and cause.evidence.startswith(CONSTRUCTED):
                settled[group] = cause
    for path, verdict in faults.items():
        # A layer whose fault was only shown joins a later one of its type, if what mends that one mends it, too.
        kind = verdict.reference_type, verdict.port_type
        edits = [one for one in by_type.get(kind, ()) if one.code not in DESCRIBING]
        shown = next((one for one in found if one.code in DESCRIBING and one.layers == (path,)), None)
        if shown is None or not edits or pace.over:
            continue
        cause = search(path, verdict, edits, only_like=True)[0]
        if same := next((one for one in found if one.code not in DESCRIBING and _alike(one) == _alike(cause)), None):
            more = _joined(found, same, path)
            first, second = sorted((found.index(shown), found.index(more)))
            found[first] = more
            del found[second]
    lines = {(one.code, one.name, one.port_path) for one in found if one.place}
    return [one for one in found if one.place or (one.code, one.name, one.port_path) not in lines], places


def placed(
    asked: LiveRequest, verdict: LayerVerdict | None, places: Mapping[str, str], located: Located
) -> LayerVerdict | None:
    """Return a verdict where its cause says that the code stands; as it is where no cause says so."""
    path = None if verdict is None else places.get(verdict.port_path)
    if verdict is None or path is None or path == verdict.port_path:
        return verdict
    there = asked.fault(_counterpart(path, verdict, located), path, verdict.reason)
    types: Options = {"port_type": there.port_type, "reference_type": there.reference_type}
    return replace(verdict, port_path=path, reference_path=there.reference_path, **types)


def _counterpart(path: str, verdict: LayerVerdict, located: Located) -> str:
    """Return the reference's layer that belongs to one of the port's, or that of the verdict where none is known."""
    if path == verdict.port_path:
        return verdict.reference_path
    known = (*located.matching.containers, *located.matching.pairs)
    return next((one.reference.path for one in known if one.port.path == path), verdict.reference_path)


def _alike(one: Diagnosis, *, by_message: bool = True) -> tuple[str, ...]:
    """Return what is said of a layer, which is the same of another one that has it; of a parting no values."""
    texts = (one.fix, one.message) if by_message and one.code != "parting" else (one.fix,)
    return one.code, one.name, one.reference, one.port, *(said_alike(text, one.port_path) for text in texts)


def _joined(found: list[Diagnosis], cause: Diagnosis, path: str) -> Diagnosis:
    """Add a layer to those of a cause, in the list too; return the cause."""
    more = replace(cause, paths=(*cause.layers, path))
    found[found.index(cause)] = more
    return more


def with_stage(cause: Diagnosis, report: AlignmentReport) -> Diagnosis:
    """Return a cause with the stage that it makes fail and the reference's layer, which the verdict on its layer has."""
    if cause.stage:
        return cause
    # A cause may be told of a layer within the one whose verdict says that it is at fault.
    around = [one for one in report.layers if one.at_fault and below(cause.port_path, one.port_path) is not None]
    fault = max(around, key=lambda one: len(one.port_path), default=None) if cause.port_path not in PIECES else None
    if fault is not None:
        stage = "preflight" if fault.direction == "construction" else fault.direction
        return replace(cause, stage=stage, reference_path=cause.reference_path or fault.reference_path)
    built = next((one.reference_path for one in report.findings if one.port_path == cause.port_path), "")
    return replace(cause, stage="preflight", reference_path=built)


def with_construction(diagnoses: Findings, findings: Findings) -> list[Diagnosis]:
    """Return the causes with those differences of construction that no number has shown, equal ones together.

    Where a piece differs by a cause unknown, what is known of its construction takes that one's place; so does what says
    why where a cause only describes, and what no trial could show of a layer. What another cause of the same error refutes
    is a finding, and no cause.
    """
    diagnoses = list(diagnoses)
    serious = []
    for one in grave(findings):
        if any(_covers(cause, one) for cause in diagnoses):
            continue
        here = (each for each in findings if each.effect == "here" and one.code in BUILT)
        shown = [each for each in here if _alike(each, by_message=False) == _alike(one, by_message=False)]
        same = next((cause for cause in diagnoses if any(cause.says(each) for each in shown)), None)
        if same is None:
            serious.append(one)
        else:
            _joined(diagnoses, same, one.port_path)
    paths = {one.port_path for one in serious}
    untried = {one.port_path for one in grave(findings) if one.name in UNTRIED and one.effect == "here"}
    kept = [one for one in diagnoses if one.is_known or one.port_path not in untried]
    kept = [one for one in kept if not DESCRIBING & {one.code, one.name} or one.port_path not in paths]
    groups = [(ones[0], tuple(one.port_path for one in ones)) for ones in group_by(serious, _alike).values()]
    more = [replace(first, paths=paths if len(paths) > 1 else ()) for first, paths in groups]
    first = next((one.port_path for one in diagnoses), None)
    ahead = [one for one in more if first in one.layers and first not in [each.port_path for each in kept]]
    return [*ahead, *kept, *(one for one in more if one not in ahead)]


def _covers(cause: Diagnosis, finding: Diagnosis) -> bool:
    if not cause.is_known or finding.port_path not in cause.layers:
        return False
    shows = finding.code != "setting" and finding.effect == "here" and finding.name not in LATER
    explains = (cause.explained or 0.0) >= EXPLAINED and not DESCRIBING & {cause.code, cause.name}
    return cause.says(finding) or (shows and explains)


def grave(findings: Findings) -> list[Diagnosis]:
    """Return the findings that fail something."""
    return [one for one in findings if not one.harmless]
