"""Random numbers that one model draws and the other does not: masks that are missing, extra, elsewhere, of another rate or shape."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from tipchain.explain.findings import Cause, Diagnosis, SourceLine, shown_path
from tipchain.explain.locate.locate import Located, drawn_between
from tipchain.explain.locate.runs import TracedRun
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.explain.preflight.kinds import kind_of
from tipchain.framework_types import Model
from tipchain.frameworks.randomness import Draw, partners_of

RECURRENT = ("LSTM", "GRU", "RNN")
"""Kinds of layers whose masks may be of packed sequences on one side: their shapes tell nothing."""
Place = tuple[str, str]
"""The paired layers that were called before a draw and after it, by the reference's paths; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeDraw:
    """A draw that only one side makes, or that the sides make otherwise.

    Attributes:
        reference: the reference's; None where only the port draws.
        port: the port's; None where only the reference draws.
        between: the layers before and after the reference's, by the port's paths; after the port's where that alone draws.
        port_between: those of the port's.
        reference_path: the layer of the reference that draws.
        port_path: that of the port; of a missing draw the layer at the same path, if the port has one.
        called: whether that layer was called.
        sure: whether the draws cannot amount to the same.
    """

    reference: Draw | None
    port: Draw | None
    between: Place
    port_between: Place
    reference_path: str = ""
    port_path: str = ""
    called: bool = True
    sure: bool = False

    @property
    def place(self) -> str:
        """The layer of the port's that a cause is about: the one that draws, or the one that should."""
        return self.port_path if self.port is not None else (self.between[0] or self.between[1]).rpartition(".")[0]


class _Comparer:
    """Finds which draws of two runs belong together, and which do not."""

    def __init__(self, found: Located, models: Sequence[Model]) -> None:
        self.runs = found.reference, found.port
        self.paths = {path for path, _ in models[1].named_sublayers(include_self=True)}
        self.names = {pair.reference: pair.port for pair in found.layers}
        events = [drawn_between(run, found.layers, number) for number, run in enumerate(self.runs)]
        self.places = [_places(one) for one in events]
        self.made = [run.draws.made for run in self.runs]
        self.partners = self.runs[1].draws.partners or partners_of(*events)

    def unlike(self) -> list[UnlikeDraw]:
        """Return the draws that do not belong together, or differ in their rates, in the order in which they are made."""
        found = [self._other_rate(ours, theirs) for theirs, ours in self.partners.items()]
        left = [one for one in range(len(self.made[0])) if one not in set(self.partners.values())]
        port_left = [one for one in range(len(self.made[1])) if one not in self.partners]
        for ours in list(left):
            same = next((one for one in port_left if self.places[1][one] == self.places[0][ours]), None)
            if same is not None:
                left.remove(ours)
                port_left.remove(same)
                found.append(self._told(ours, same, sure=self._tells([ours], [same], elsewhere=False)))
        sure = self._tells(left, port_left, elsewhere=True)
        if len(left) == len(port_left):
            found += [self._told(*both, sure=sure) for both in zip(left, port_left, strict=True)]
        else:
            found += [self._told(one, None, sure=sure) for one in left]
            found += [self._told(None, one, sure=sure) for one in port_left]
        return sorted(filter(None, found), key=self._order)

    def _order(self, one: UnlikeDraw) -> tuple[int, int]:
        side, draw = (1, one.port) if one.reference is None else (0, one.reference)
        return next(number for number, other in enumerate(self.made[side]) if other is draw), side

    def _other_rate(self, ours: int, theirs: int) -> UnlikeDraw | None:
        rate, port_rate = self.made[0][ours].rate, self.made[1][theirs].rate
        if rate is None or port_rate is None or isclose(rate, port_rate, abs_tol=1e-6):
            return None
        return self._told(ours, theirs, sure=True)

    def _tells(self, ours: Sequence[int], theirs: Sequence[int], *, elsewhere: bool) -> bool:
        """Tell whether draws cannot amount to the same: those of one side alone, other features, or another number elsewhere."""
        if not ours or not theirs:
            return bool(ours or theirs)
        draws = [[self.made[side][one] for one in several] for side, several in enumerate((ours, theirs))]
        if any(self._is_recurrent(one, side) for side, several in enumerate((ours, theirs)) for one in several):
            return False
        if elsewhere:
            masks = all(one.rate is not None for several in draws for one in several)
            return masks and not {one.size for one in draws[0]} & {one.size for one in draws[1]}
        return _other_features(draws[0][0], draws[1][0])

    def _told(self, ours: int | None, theirs: int | None, *, sure: bool) -> UnlikeDraw:
        place = self.places[1][theirs or 0] if ours is None else self.places[0][ours]
        port_place = place if theirs is None else self.places[1][theirs]
        path = "" if ours is None else _drawing(self.runs[0], ours)
        port_path = (path if path in self.paths else "") if theirs is None else _drawing(self.runs[1], theirs)
        between, port_between = (
            (self.names.get(before, ""), self.names.get(after, "")) for before, after in (place, port_place)
        )
        return UnlikeDraw(
            reference=None if ours is None else self.made[0][ours],
            port=None if theirs is None else self.made[1][theirs],
            between=between,
            port_between=port_between,
            reference_path=path,
            port_path=port_path,
            called=any(call.path == port_path for call in self.runs[1].trace.calls),
            sure=sure,
        )

    def _is_recurrent(self, number: int, side: int) -> bool:
        inside = [call for call in self.runs[side].trace.calls if number in call.drawn]
        kinds = [kind_of(call.layer, 1 if side else 0) for call in inside]
        return any(kind is not None and kind.name in RECURRENT for kind in kinds)


def _places(events: Sequence[Draw | str]) -> list[Place]:
    """Return where each draw stands: between which calls, the n-th of a layer being another than its first."""
    found: list[Place] = []
    calls = [(number, one) for number, one in enumerate(events) if isinstance(one, str)]
    for at, one in enumerate(events):
        if isinstance(one, Draw):
            before = [name for number, name in calls if number < at]
            after = [name for number, name in calls if number > at]
            found.append((before[-1] if before else "", after[0] if after else ""))
    return found


def _drawing(run: TracedRun, number: int) -> str:
    """Return the innermost layer that was running when numbers were drawn."""
    inside = [call for call in run.trace.calls if number in call.drawn]
    return max(inside, key=lambda call: call.number).path if inside else ""


def _other_features(ours: Draw, theirs: Draw) -> bool:
    """Tell whether one mask drops single elements and the other whole channels or samples, or the same of all samples.

    A mask that is shorter along an axis in the middle may be one of which the rest is not used.
    """
    one, other = ours.shape, theirs.shape
    alike = len(one) == len(other) and all(a == b or 1 in (a, b) for a, b in zip(one, other, strict=True))
    masks = ours.kind == theirs.kind == "uniform" and (ours.rate, theirs.rate) != (None, None)
    return bool(masks and alike and one and (one[-1] != other[-1] or one[0] != other[0]))


def unlike_draws(found: Located, models: Sequence[Model]) -> list[UnlikeDraw]:
    """Return the draws of two runs that do not belong together, or differ in their rates.

    Args:
        found: what was found of models that drew.
        models: both models.
    """
    return _Comparer(found, models).unlike()


def judge_draws(unlike: Sequence[UnlikeDraw], models: Sequence[Model]) -> list[LayerVerdict]:
    """Return a verdict about each layer whose draws cannot amount to the reference's."""
    ours, theirs = models
    layers = dict(ours.named_modules()), dict(theirs.named_sublayers(include_self=True))
    types = [{path: type(layer).__name__ for path, layer in one.items()} for one in layers]
    made: dict[str, LayerVerdict] = {}
    for one in unlike:
        if one.sure and one.place not in made:
            made[one.place] = LayerVerdict(
                reference_path=one.reference_path,
                port_path=one.place,
                reference_type=types[0].get(one.reference_path, ""),
                port_type=types[1].get(one.place, ""),
                direction="forward",
                own=None,
                closeness=Closeness.DIFFERS,
                reason=_tell(one).message,
            )
    return list(made.values())


def explain_draws(found: Located, unlike: Sequence[UnlikeDraw], *, training: bool) -> list[Diagnosis]:
    """Return a cause for each kind of difference between the draws of two runs in train mode, or in eval mode."""
    ours, theirs = (len(run.draws.made) for run in (found.reference, found.port))
    causes: dict[str, list[tuple[UnlikeDraw, Cause]]] = {}
    for one in unlike:
        cause = _tell(one, training=training)
        causes.setdefault(cause.code, []).append((one, cause))
    made = []
    for code, several in causes.items():
        (first, cause), *others = several
        path = first.place
        more = f"; {len(others)} more of its draws differ so" if others else ""
        made.append(
            Diagnosis(
                code=code,
                port_path=path,
                message=f"{shown_path(path)}: {cause.message}{more}",
                evidence=f"random draws of one call: the reference {ours}, the port {theirs}",
                fix=cause.fix,
                paths=tuple(dict.fromkeys(one.place for one, _ in several)),
                stage="forward",
                reference_path=first.reference_path,
                reference_place=None if first.reference is None else _source(first.reference),
            )
        )
    return made


def _tell(one: UnlikeDraw, *, training: bool = True) -> Cause:
    """Return what is wrong about a draw, and what to do."""
    ours, theirs = one.reference, one.port
    if theirs is None:
        return _tell_missing(one, ours or Draw("own", ()))
    mask, place = _said(theirs), _line(theirs)
    if ours is None and not training:
        told, fix = f"in eval mode it draws {mask} at {place}", f"pass `training=self.training` at {place}"
        return Cause(code="dropout-in-eval", message=told, fix=fix)
    if ours is None:
        told, fix = f"the reference does not draw {mask} as it does at {place}", f"remove what draws at {place}"
        return Cause(code="extra-dropout", message=told, fix=fix)
    both = f"it draws {mask} at {place}, {_referred(ours)}"
    if one.port_between != one.between:
        told = f"{both}: there {_beside(one.between)}, here {_beside(one.port_between)}"
        fix = f"move what draws at {place}: it belongs {_beside(one.between)}"
        return Cause(code="dropout-place", message=told, fix=fix)
    if ours.shape == theirs.shape and ours.rate is not None:
        return Cause(code="dropout-p", message=both, fix=f"make p={ours.rate:g} of what draws at {place}")
    fix = f"draw a mask of shape {list(ours.shape)} at {place}: `F.dropout` drops elements, `F.dropout2d` channels"
    return Cause(code="dropout-shape", message=both, fix=fix)


def _tell_missing(one: UnlikeDraw, draw: Draw) -> Cause:
    where = _beside(one.between)
    told = f"it draws nothing {where}, {_referred(draw)}"
    rate = "" if draw.rate is None else f"p={draw.rate:g}, "
    fix = f"apply `F.dropout({rate}training=self.training)` {where}"
    if one.port_path and not one.called:
        told, fix = f"`{one.port_path}` is never called: {told}", f"call `{one.port_path}` {where}"
    return Cause(code="missing-dropout", message=told, fix=fix)


def _beside(place: Place) -> str:
    before, after = place
    return f"after `{before}`" if before else f"before `{after}`" if after else "in the model"


def _said(draw: Draw) -> str:
    shape = list(draw.shape)
    return f"a mask of shape {shape}" if draw.rate is None else f"a mask of shape {shape} with p={draw.rate:g}"


def _line(draw: Draw) -> str:
    """Return where the port draws: the line that its causes are placed at."""
    return "?" if draw.place is None else f"{Path(draw.place[0]).name}:{draw.place[1]}"


def _referred(draw: Draw) -> str:
    """Return what the reference draws; its line is written so that no cause is placed there."""
    if draw.place is None:
        return f"the reference draws {_said(draw)}"
    file, line = draw.place
    return f"line {line} of the reference's {Path(file).name} draws {_said(draw)}"


def _source(draw: Draw) -> SourceLine | None:
    if draw.place is None:
        return None
    file, line = draw.place
    return SourceLine(file=file, line=line, code=linecache.getline(file, line).strip())
