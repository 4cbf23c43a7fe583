"""Other runs of models that agree: the other mode, known random numbers, other inputs."""

from __future__ import annotations

import dis
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tipchain.core.blame import is_users
from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine, shown_path
from tipchain.explain.locate.rerun import conditions
from tipchain.explain.locate.runs import ModelInputs, TracedRun, bind, call_model, drawn_between, samples_of
from tipchain.explain.locate.verdicts import LayerVerdict
from tipchain.facts.layers import kind_of
from tipchain.framework_types import Array, Model, Nested
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draw, Draws, partners_of
from tipchain.numbers.tolerance import ROUGH
from tipchain.weights.structure import group_by

if TYPE_CHECKING:
    from tipchain.explain.locate.locate import Located
from time import monotonic

from tipchain.core.progress import Pace
from tipchain.explain.locate.runs import few_of
from tipchain.explain.locate.trace import take_out
from tipchain.numbers.two_samples import compare_distribution


@contextmanager
def in_mode(sides: Sides, models: Sequence[Model], *, training: bool) -> Iterator[None]:
    """Have two models in train mode or in eval mode for a while; one that is in it keeps the modes of its layers, but its own way."""
    both = list(zip(sides, models, strict=True))
    kept = [(layer, layer.training) for side, model in both for _, layer in side.layers(model)]
    try:
        for side, model in both:
            side.switch(model, training=training)
        yield
    finally:
        for layer, was in kept:
            layer.training = was


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The findings of one forward of both models.

    Attributes:
        draws: the random numbers of both.
        apart: how far their outputs are apart, relative RMS; None where they cannot be compared one by one, or were given other
            random numbers: few of those may agree by chance.
        changed: whether it changed buffers of a model, but for those of the frameworks' norms.
        made: the outputs of both.
    """

    draws: tuple[Draws, Draws]
    made: tuple[Sequence[Array], Sequence[Array]]
    apart: float | None
    changed: bool

    @property
    def differs(self) -> bool:
        """Whether the outputs differ beyond rounding to float32, or may differ."""
        return self.apart is None or not self.apart <= ROUGH


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error of one model: the reference, or the port where the reference ran.

    Attributes:
        by_port: whether it was the port.
        told: what was raised, and where.
        fault: whether it is a fault of the port's.
        path: the port's layer that raised.
        made: the reference's outputs.
    """

    by_port: bool
    told: str
    fault: bool = False
    path: str = ""
    made: Sequence[Array] = ()


def is_fault(error: Exception, side: LiveSide, model: Model) -> bool:
    """Tell faults from errors of memory, missing kernels, or a model's `raise` or `assert`.

    Paddle's kernels raise `MemoryError`, `NotImplementedError`, and `OSError` for what a library of the machine's raises.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or isinstance(error, (MemoryError, NotImplementedError, OSError)):
        return False
    code, package = last.tb_frame.f_code, str(last.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    roots = {type(layer).__module__.partition(".")[0] for _, layer in side.layers(model)} - {side.name}
    own = is_users(code.co_filename) or package in roots
    return package != "tipchain" and not (own and code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"])


def raising(error: Exception, side: LiveSide, model: Model) -> str:
    """Return the path of the innermost layer whose code, other than the framework's, was running when something was raised."""
    paths = {id(one): path for path, one in side.layers(model) if type(one).__module__.partition(".")[0] != side.name}
    inside = [paths.get(id(frame.f_locals.get("self"))) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next(filter(None, reversed(inside)), "")


def answers(before: Sequence[Array], made: Sequence[Array], counts: tuple[int, int]) -> bool:
    """Tell whether outputs for other inputs mean something: they are numbers, some, of as many samples as there are now.

    Args:
        before: the outputs for the inputs that were given.
        made: those for the others.
        counts: the samples of those inputs, and of the others.
    """
    given, now = counts
    samples = len(before) == len(made) and all(
        one.shape[:1] != (given,) or other.shape[:1] == (now,) for one, other in zip(before, made, strict=True)
    )
    return samples and all(one.size and (one.dtype.kind not in "fc" or np.isfinite(one).all()) for one in made)


def call_seeded(
    side: LiveSide,
    model: Model,
    inputs: ModelInputs,
    draws: Draws,
    *,
    seed: int,
    double: bool = False,
    before: ModelInputs | None = None,
) -> Nested:
    """Return a model's results for known random numbers, without gradients, perhaps after inputs ``before``.

    Raises:
        Exception: whatever the model raises.
    """
    with conditions(side, double=double, seed=seed, draws=draws, gradient=False):
        for given in filter(None, (before, inputs)):
            output = call_model(side, model, bind(model, given), double=double)
    return output


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


class DrawComparer:
    """Finds which draws of two runs that drew belong together, and which do not."""

    def __init__(self, found: Located, models: Sequence[Model]) -> None:
        self.runs = found.reference, found.port
        self.paths = {path for path, _ in models[1].named_sublayers(include_self=True)}
        self.names = defaultdict(str, {pair.reference: pair.port for pair in found.layers})
        events = [drawn_between(run, found.layers, number) for number, run in enumerate(self.runs)]
        self.made = [run.draws.made for run in self.runs]
        self.partners = self.runs[1].draws.partners or partners_of(*events)
        # Where each draw stands: between which calls, the n-th of a layer being another than its first.
        self.places: list[list[Place]] = [[], []]
        for side, several in enumerate(events):
            for at in (at for at, one in enumerate(several) if isinstance(one, Draw)):
                ends = several[:at][::-1], several[at:]
                before, after = (next((one for one in some if isinstance(one, str)), "") for some in ends)
                self.places[side].append((before, after))

    def unlike(self) -> list[UnlikeDraw]:
        """Return the draws that do not belong together, or differ in their rates, in the order in which they are made."""
        pairs = [(ours, theirs) for theirs, ours in self.partners.items()]
        rare = (two for two in pairs if not self.made[0][two[0]].is_as_frequent(self.made[1][two[1]]))
        found = [self._told(*two, sure=True) for two in rare]
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

        def order(one: UnlikeDraw) -> tuple[int, int]:
            side, draw = (1, one.port) if one.reference is None else (0, one.reference)
            return next(number for number, other in enumerate(self.made[side]) if other is draw), side

        return sorted(found, key=order)

    def _tells(self, ours: Sequence[int], theirs: Sequence[int], *, elsewhere: bool) -> bool:
        """Tell whether draws cannot amount to the same: those of one side alone, other features, or another number elsewhere."""
        if not ours or not theirs:
            return bool(ours or theirs)
        draws = [[self.made[side][one] for one in several] for side, several in enumerate((ours, theirs))]
        for side, several in enumerate((ours, theirs)):
            inside = (call for call in self.runs[side].trace.calls if any(one in call.drawn for one in several))
            kinds = (kind_of(call.layer, 1 if side else 0) for call in inside)
            # Masks of packed sequences have shapes that tell nothing.
            if any(kind is not None and kind.family == "recurrent" for kind in kinds):
                return False
        if elsewhere:
            masks = all(one.rate is not None for several in draws for one in several)
            return masks and not {one.size for one in draws[0]} & {one.size for one in draws[1]}
        # One mask drops single elements and the other whole channels or samples, or the same of all samples. One that is
        # shorter along an axis in the middle may be one of which the rest is not used.
        (one, *_), (other, *_) = draws
        sizes = list(zip(one.shape, other.shape, strict=False))
        alike = len(one.shape) == len(other.shape) and all(a == b or 1 in (a, b) for a, b in sizes)
        masks = one.kind == other.kind == "uniform" and (one.rate, other.rate) != (None, None)
        return bool(masks and alike and sizes and any(a != b for a, b in (sizes[0], sizes[-1])))

    def _told(self, ours: int | None, theirs: int | None, *, sure: bool) -> UnlikeDraw:
        place = self.places[1][theirs or 0] if ours is None else self.places[0][ours]
        port_place = place if theirs is None else self.places[1][theirs]
        path = "" if ours is None else _drawing(self.runs[0], ours)
        port_path = (path if path in self.paths else "") if theirs is None else _drawing(self.runs[1], theirs)
        between, port_between = ((self.names[before], self.names[after]) for before, after in (place, port_place))
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


def _drawing(run: TracedRun, number: int) -> str:
    """Return the innermost layer that was running when numbers were drawn."""
    inside = [call for call in run.trace.calls if number in call.drawn]
    return max(inside, key=lambda call: call.number).path if inside else ""


def judge_draws(
    unlike: Sequence[UnlikeDraw], fault: Callable[[str, str, str], LayerVerdict], shown: str = ""
) -> list[LayerVerdict]:
    """Return a verdict about each layer whose draws cannot amount to the reference's, or all, where something has ``shown`` that.

    ``fault`` returns the verdict on a layer, given both paths and the reason.
    """
    made: dict[str, LayerVerdict] = {}
    for one in unlike:
        if (one.sure or shown) and one.place not in made:
            reason = f"{_tell(one).message}{f'; {shown}' if shown else ''}"
            made[one.place] = fault(one.reference_path, one.place, reason)
    return list(made.values())


def explain_draws(found: Located, unlike: Sequence[UnlikeDraw], *, training: bool) -> list[Diagnosis]:
    """Return a cause for each kind of difference between the draws of two runs in train mode, or in eval mode."""
    ours, theirs = (len(run.draws.made) for run in (found.reference, found.port))
    told = [(one, _tell(one, training=training)) for one in unlike]
    made = []
    for several in group_by(told, lambda both: (both[1].code, both[1].name)).values():
        (first, cause), *others = several
        never = first.port is None and first.port_path and not first.called  # then the code around it lacks the call
        path = first.port_path.rpartition(".")[0] if never else first.place
        more = f"; {len(others)} more of its draws differ so" if others else ""
        message, line = f"{shown_path(path)}: {cause.message}{more}", _line(first.reference)
        evidence = f"random draws of one call: the reference {ours}, the port {theirs}"
        cause = replace(cause, port_path=path, message=message, evidence=evidence, stage="forward")
        paths = tuple(dict.fromkeys(one.place for one, _ in several))
        made.append(replace(cause, paths=paths, reference_path=first.reference_path, reference_place=line))
    return made


def _line(draw: Draw | None) -> SourceLine | None:
    return None if draw is None or draw.place is None else SourceLine.at(*draw.place)


def _cause(code: str, name: str, message: str, fix: str, draw: Draw | None = None) -> Diagnosis:
    return Diagnosis(code=code, name=name, port_path="", message=message, evidence="", fix=fix, place=_line(draw))


def _tell(one: UnlikeDraw, *, training: bool = True) -> Diagnosis:
    ours, theirs = one.reference, one.port
    if theirs is None:
        return _tell_missing(one, ours or Draw("own", ()), training=training)
    line = _line(theirs)
    mask, place = str(theirs), "?" if line is None else line.short
    if ours is None and not training:
        told, fix = f"in eval mode it draws {mask} at {place}", f"pass `training=self.training` at {place}"
        return _cause("setting", "mode", told, fix, theirs)
    if ours is None:
        told, fix = f"the reference does not draw {mask} as it does at {place}", f"remove what draws at {place}"
        return _cause("extra-call", "dropout", told, fix, theirs)
    both = f"it draws {mask} at {place}, {_referred(ours)}"
    if one.port_between != one.between:
        told = f"{both}: there {_beside(one.between)}, here {_beside(one.port_between)}"
        fix = f"move what draws at {place}: it belongs {_beside(one.between)}"
        return _cause("call-order", "dropout", told, fix, theirs)
    if ours.kind != theirs.kind and ours.is_noise and theirs.is_noise:
        function = {"normal": "paddle.randn", "uniform": "paddle.rand"}[ours.kind]
        return _cause("function", "noise", both, f"draw with `{function}` at {place}", theirs)
    if ours.shape == theirs.shape and ours.rate is not None:
        return _cause("argument", "dropout-p", both, f"make p={ours.rate:g} of what draws at {place}", theirs)
    fix = f"draw a mask of shape {list(ours.shape)} at {place}: `F.dropout` drops elements, `F.dropout2d` channels"
    return _cause("function", "dropout", both, fix, theirs)


def _tell_missing(one: UnlikeDraw, draw: Draw, *, training: bool) -> Diagnosis:
    where = _beside(one.between)
    told = f"it draws nothing {where}, {_referred(draw)}"
    rate = () if draw.rate is None else (("p", f"{draw.rate:g}"),)
    arguments = (*rate, ("training", "self.training" if training else "True"))
    fix = f"apply `F.dropout({', '.join(map('='.join, arguments))})` {where}"
    before, after = one.between
    edit = CodeEdit(kind="after" if before else "before", call=before or after, written="dropout", arguments=arguments)
    if not training:
        told = f"in eval mode {told}"
    elif one.port_path and not one.called:
        told, fix = f"`{one.port_path}` is never called: {told}", f"call `{one.port_path}` {where}"
        edit = replace(edit, written=one.port_path)
    return replace(_cause("missing-call", "dropout", told, fix), edit=edit)


def _beside(place: Place) -> str:
    before, after = place
    return f"after `{before}`" if before else f"before `{after}`" if after else "in the model"


def _referred(draw: Draw) -> str:
    if draw.place is None:
        return f"the reference draws {draw}"
    file, line = draw.place
    return f"line {line} of the reference's {Path(file).name} draws {draw}"


# Other inputs that are made of those given.


EVEN = 32
"""Divisor of images' sizes where a model halves them up to five times."""


def other_batch(inputs: ModelInputs) -> ModelInputs | None:
    """Return the first sample alone; of a batch of one two samples; None where the inputs have no common batch."""
    count = samples_of(inputs)
    if count is None or any(one.shape[:1] != (count,) for one in inputs.arrays()):
        return None
    if count != 1:
        return _each(inputs, lambda one: one[:1])

    def twice(array: Array) -> Array:  # a sample, and one of the same values in another order
        return np.concatenate([array, np.roll(array, 1, axis=-1)]) if array.ndim > 1 else np.repeat(array, 2, axis=0)

    return _each(inputs, twice)


def other_counts(inputs: ModelInputs) -> Iterator[ModelInputs]:
    """Yield inputs without a common batch, such as those of graphs, of other lengths: fewer edges and a node more, fewer edges.

    The edges are as many as the longest axis of the whole numbers; what has such an axis is cut. Nodes are along the first axis
    of the first input, and no number is as large.
    """
    arrays = inputs.arrays()
    numbers = [one for one in arrays if one.dtype.kind in "iu" and one.ndim]
    edges = max((max(one.shape) for one in numbers), default=0)
    nodes = samples_of(inputs) or 0
    if edges < 2 or any(one.shape.count(edges) > 1 for one in arrays) or edges == nodes:
        return
    indices = [one for one in numbers if edges in one.shape and one.size]
    if all(one.min() >= 0 and one.max() < nodes for one in indices):

        def grown(one: Array) -> Array:
            one = _cut(one, edges)
            return np.concatenate([one, one[-1:]]) if one.shape[:1] == (nodes,) else one

        yield _each(inputs, grown)
    yield _each(inputs, lambda one: _cut(one, edges))


def _cut(array: Array, length: int) -> Array:
    """Return three quarters of an axis of a length, or an array that has no such axis."""
    kept = np.arange(max(length * 3 // 4, 1))
    return np.take(array, kept, axis=array.shape.index(length)) if length in array.shape else array


def other_inputs(inputs: ModelInputs, *, last: bool) -> Iterator[ModelInputs]:
    """Yield further inputs for models that agree: other sizes (see `other_sizes`), other decoder lengths, another batch."""
    batch = other_batch(inputs)
    if batch is None:
        yield from other_counts(inputs)
        return
    yield from (_whole(one, inputs) for one in other_sizes(batch, last=last))
    # Further ids alone are longer, as a decoder's are: an encoder's input may have but one size.
    first, *more = batch.arrays()
    for old in dict.fromkeys(one.shape[1] for one in more if one.ndim == 2 and one.dtype.kind in "iu"):
        if old > 1 and old not in first.shape[1:]:
            yield from (_each(batch, partial(_lengthened, old=old, new=new)) for new in (2 * old, old * 10 // 8 | 1))
    yield _whole(batch, inputs)


def _whole(made: ModelInputs, inputs: ModelInputs) -> ModelInputs:
    """Return inputs whose longest sequence is as long as the axis of sequences, where the lengths that were given say so."""
    first, arrays = made.arrays()[0], inputs.arrays()
    shape = arrays[0].shape
    longest = [int(one.max()) if one.ndim == 1 and one.size and one.dtype.kind in "iu" else 0 for one in arrays]
    axes = iter([shape.index(one, 1) if one in shape[1:] else 0 for one in longest])

    def whole(array: Array) -> Array:
        axis = next(axes)
        if not axis:
            return array
        array = np.minimum(array, first.shape[axis])
        array[array.argmax()] = first.shape[axis]
        return array

    return _each(made, whole)


def other_sizes(inputs: ModelInputs, *, last: bool) -> Iterator[ModelInputs]:
    """Yield inputs of other sizes: odd ones first, then those that can be halved. Ids and masks end in zeros, as padding does.

    Args:
        inputs: what was given.
        last: whether the last of three axes is the one that a model goes along, as one-dimensional convolutions do.
    """
    arrays = inputs.arrays()
    shape = arrays[0].shape
    places: list[tuple[int, int]] = []
    if len(shape) >= 4:
        places = [(len(shape) - 2, len(shape) - 1), (1, 2)]
    elif len(shape) == 3:
        places = [(2, 2)] if last else [(1, 1)]
    elif len(shape) == 2 and arrays[0].dtype.kind in "iu":
        places = [(1, 1)]
    for first, second in places:
        longer = shape[second] * 10 // 8
        even = shape[first] * 6 // 8 // EVEN * EVEN if shape[first] > EVEN else shape[first] // 2
        odd, other = shape[first] * 6 // 8 | 1, longer | 1 if first == second else longer // 4 * 4 + 1
        for lengths in ({first: odd, second: other}, {first: odd}, {first: even}):
            if all(lengths.values()) and any(new != shape[axis] for axis, new in lengths.items()):
                yield _each(inputs, partial(_sized, shape=shape, lengths=lengths))


def _lengthened(array: Array, old: int, new: int) -> Array:
    return _padded(np.take(array, np.arange(new) % old, axis=1), array) if array.shape[1:] == (old,) else array


def _sized(array: Array, shape: tuple[int, ...], lengths: Mapping[int, int]) -> Array:
    """Cut or repeat an array along the axes that are as long as those of the first input: at the same places, or of a sequence anywhere."""
    if array.shape == shape or len(lengths) > 1:
        same = array.ndim == len(shape)
        made = {axis: new for axis, new in lengths.items() if same and array.shape[axis] == shape[axis]}
    else:
        olds = {shape[axis]: new for axis, new in lengths.items()}
        made = {axis: olds[size] for axis, size in enumerate(array.shape) if axis and size in olds}
    given = array
    for axis, new in made.items():
        array = np.take(array, np.arange(new) % array.shape[axis], axis=axis)
    return _padded(array, given) if made and array.ndim == 2 else array


def _padded(array: Array, given: Array) -> Array:
    """Return ids, or a mask of ones, with zeros at the end of each row; an order of all places where ``given`` is one, as a route is."""
    if given.dtype.kind in "iu" and (np.sort(given, axis=1) == np.arange(given.shape[1])).all():
        return array.argsort(axis=1, kind="stable").argsort(axis=1).astype(array.dtype)
    marks = array.dtype.kind in "iub" and int(array.min()) >= 0
    if not marks and not np.isin(array, (0, 1)).all():
        return array
    array = array.copy()
    array[:, -max(array.shape[1] // 4, 1) :] = 0
    return array


def without_zeros(made: ModelInputs, inputs: ModelInputs) -> ModelInputs | None:
    """Return inputs with ids in place of the zeros that those given do not have; None where there are none."""
    ids = [one.dtype.kind in "iu" and one.size and bool(one.min() > 0) for one in inputs.arrays()]
    if not any(known and not one.all() for known, one in zip(ids, made.arrays(), strict=True)):
        return None
    given = iter(ids)
    return _each(made, lambda one: np.where(one == 0, one.max(), one) if next(given) else one)


def others(inputs: ModelInputs) -> ModelInputs:
    """Return inputs of the same shapes with their values in another order."""
    return _each(inputs, lambda one: np.roll(one, 1, axis=-1) if one.ndim > 1 else one)


def _each(inputs: ModelInputs, change: Callable[[Array], Array]) -> ModelInputs:
    return replace(inputs, labels=None).each(change)


def told_shapes(inputs: ModelInputs) -> str:
    """Return the shapes of inputs as messages have them."""
    return ", ".join(str(list(one.shape)) for one in inputs.arrays())


RUNS = 256
"""Runs of each model: two distributions whose cumulative functions are a quarter apart somewhere are told from each other."""
FEWEST = 32
"""Runs without which nothing is told."""
SECONDS = 10.0
"""Time that the runs may take."""
CHANCE = 1e-6
"""Probability of equal distributions to be told apart. A choice."""
PROJECTIONS = 4
"""Directions in which outputs are looked at, beside their mean and their size."""


def distributed_otherwise(
    sides: Sides, models: Sequence[Model], inputs: ModelInputs, seed: int, pace: Pace, *, training: bool
) -> str:
    """Return how the outputs of many runs show two distributions; empty where they do not show it, or too few runs were made.

    Both models draw numbers of their own in each run. The outputs' means, sizes and projections are compared by the
    two-sample test of Kolmogorov and Smirnov.

    Args:
        sides: torch's and Paddle's.
        models: both.
        inputs: what they are called with; few samples do.
        seed: of the numbers.
        pace: how long everything may take.
        training: the mode.
    """
    pace.tell("comparing distributions of random outputs")
    copies = [side.copied(model, double=False, training=training) for side, model in zip(sides, models, strict=True)]
    given, ends = few_of(inputs) or inputs, monotonic() + SECONDS
    made: tuple[list[list[Array]], list[list[Array]]] = ([], [])
    for run in range(RUNS):
        if pace.over or monotonic() > ends:
            break
        for number, (side, model) in enumerate(zip(sides, copies, strict=True)):
            draws = Draws(seed, number, run)
            try:
                output = call_seeded(side, model, given, draws, seed=seed + 2 * run + number)
            except Exception:  # noqa: BLE001  (a model may refuse fewer samples)
                return ""
            made[number].append([side.array(one) for one in take_out(output, side.is_tensor)[1]])
    ours, theirs = made
    shapes = {tuple((one.shape, one.dtype.kind) for one in run) for run in (*ours, *theirs)}
    if len(theirs) < FEWEST or len(shapes) > 1:  # how much comes out may be random, too
        return ""
    for place in range(len(ours[0])):
        both = [np.stack([run[place] for run in runs]).reshape(len(runs), -1) for runs in made]
        if not all(one.size and one.dtype.kind != "c" and np.isfinite(one).all() for one in both):
            continue
        both = [one.astype(np.float64) for one in both]
        middle = both[0].mean(axis=0)
        directions = np.random.default_rng([seed, 5]).standard_normal((middle.size, PROJECTIONS)) / middle.size**0.5
        found = [("the mean", [one.mean(axis=1) for one in both])]
        found += [("the spread", [np.sqrt(((one - middle) ** 2).mean(axis=1)) for one in both])]
        found += [("a projection", [(one - middle) @ axis for one in both]) for axis in directions.T]
        near = ROUGH * float(np.sqrt((both[0] ** 2).mean()))
        for what, (one, other) in found:
            # Where a mask drops all, both sides give one number, up to rounding.
            _, chance = compare_distribution(*(np.round(each / near) if near else each for each in (one, other)))
            if chance <= CHANCE:
                means = f"{one.mean():.4g} ± {one.std():.2g}, the port's {other.mean():.4g} ± {other.std():.2g}"
                return (
                    f"in {len(theirs)} runs {what} of output {place} is distributed otherwise: the reference's {means}"
                )
    return ""
