"""Causes told by the reference's code: what it does where the port's parts from it, and with which settings."""

from __future__ import annotations

import inspect
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from tipchain.explain.causes.functions import (
    ACTIVE,
    MOST_EPSILON,
    arguments_of,
    called,
    class_of,
    has_axis,
    index_text,
    place_of,
    same_setting,
)
from tipchain.explain.causes.hypotheses import Hypothesis, holder_of
from tipchain.explain.causes.piece import Piece, ReferenceCall, is_plain
from tipchain.explain.causes.program import (
    CREATORS,
    FUSED,
    LAYER,
    LIKES,
    Act,
    Op,
    called_as,
    constant,
    numpy_of,
    passed_through,
    signature_of,
    with_argument,
    with_arguments,
    with_tensors,
)
from tipchain.explain.causes.steps import layout_code
from tipchain.explain.causes.tensors import own_tensors, told_by_name
from tipchain.explain.causes.walk import CASTING, LAYOUT, Key, Parting, Walk, acts_of
from tipchain.explain.locate.differences import HIDING
from tipchain.explain.locate.matching import common_path
from tipchain.framework_types import Tensor

NAMES = {
    "dim": "axis",
    "dims": "axis",
    "other": "y",
    "eps": "epsilon",
    "exponent": "y",
    "key": "item",
    "dim0": "axis",
    "min_val": "min",
    "max_val": "max",
    "lambd": "threshold",
}
"""Paddle's names of settings that torch calls otherwise."""
ASIDE = frozenset(
    {"inplace", "out", "dtype", "device", "requires_grad", "layout", "memory_format", "non_blocking", "copy"}
)
"""Settings that say where a result is kept, not what it is."""
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?!\w)")
"""A number in a line of code."""
FEW = 8
"""Numbers of a tensor that are shown one by one at most."""
SIZES = frozenset({"view", "reshape", "permute", "repeat", "expand", "flip", "tile"})
"""Torch's methods that take a list of numbers one by one."""
GROUPS: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (code, frozenset(names))
    for code, names in (
        (
            "mask",
            "where masked_fill masked_fill_ tril triu less less_equal greater greater_equal "
            "logical_not logical_and logical_or".split(),
        ),
        ("position-table", "outer arange linspace rpow meshgrid".split()),
        (
            "wrong-index",
            "getitem gather gather_nd index_select take_along_axis index_sample setitem "
            "put_along_axis topk argmax argmin argsort sort".split(),
        ),
        ("shift", "roll pad".split()),
        ("repeat-order", "tile repeat_interleave".split()),
        ("other-activation", ACTIVE),
        ("concat-order", "concat stack split chunk unbind flip".split()),
        ("pooling", "mean max min sum median var std norm logsumexp avg_pool2d max_pool2d".split()),
        ("interpolation-mode", "interpolate grid_sample affine_grid".split()),
        (
            "arithmetic",
            "add subtract rsub multiply divide rdiv neg pow exp log sqrt cos sin cumsum rsqrt "
            "abs square matmul clip".split(),
        ),
    )
)
"""Slugs by the functions that only one of two programs calls, the most telling first."""
NUMBERED = {
    **dict.fromkeys(("rpow", "pow"), "exponent"),
    **dict.fromkeys(("multiply", "divide", "rdiv"), "scale-factor"),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), "threshold"),
}
"""Slugs of functions of a tensor and a number."""


BY = {
    "multiply": "multiplies by",
    "divide": "divides by",
    "add": "adds",
    "subtract": "subtracts",
    "pow": "takes the power",
    "rsub": "subtracts from",
    "rdiv": "divides",
    "maximum": "takes at least",
    "minimum": "takes at most",
}
"""What functions of a tensor and a number do with the number."""


def by_counterparts(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port's calls as the reference makes them where the two programs part: settings, functions, operands."""
    if walk.leaves:
        yield _other_leaves(piece, walk)
    for group in alike(walk.partings):
        yield from _settings(group, piece, walk)
        yield from _other_function(group, piece, walk)
        yield from _operands(group, piece, walk)
        yield from _given_otherwise(group, piece, walk)
        yield from _given_less(group, piece, walk)
        yield from _missing_step(group, piece, walk)


def straight_through(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield tensors whose gradient goes on to another one as if they were that, as the reference has it.

    It writes ``x + (q - x).detach()``, which is ``q`` and has the gradient of ``x``.
    """
    for step in walk.steps:
        if step.name != "add" or len(step.given) != 2:
            continue
        for kept, apart in (step.given, step.given[::-1]):
            less = walk.makers.get(apart)
            if less is None or less.name != "subtract" or less.given[1:] != (kept,):
                continue
            keys = walk.key_of(less.given[0]), walk.key_of(kept)
            maker = None if keys[0] is None else walk.makers_of.get(keys[0])
            taker = None if keys[1] is None else next((op for op in walk.ops if keys[1] in walk.given(op)), None)
            if taker is None or keys[1] is None:
                continue
            place = next((number for number, one in enumerate(taker.args) if id(one) == keys[1][0]), -1)
            if place < 0:
                continue
            ends = [
                op for op in walk.ops if set(step.made) & {one for key in walk.made(op) for one in walk.matched[key]}
            ]
            makers = {one.number: one for one in (maker, *ends) if one is not None and one.number >= taker.number}
            for one in makers.values():
                told, where = walk.told(keys[1]), place_of(one, piece)
                yield Hypothesis(
                    code="straight-through",
                    acts=passed_through(taker.number, place, one.number),
                    confirmed=True,
                    message=f"the gradient of what {called(one)}{where} returns does not go straight through to {told}, as the reference's does{_at(step)}",
                    fix=f"use `x + (q - x).detach()` for q, the result of {called(one)}{where}, and x, {told}",
                )


def _other_leaves(piece: Piece, walk: Walk) -> Hypothesis:
    """Return the port with the tensors that its code is given, or keeps, as the reference has them."""
    acts: dict[int, dict[int | str, object]] = {}
    for key, (_, new) in walk.leaves.items():
        for op in walk.consumers[key]:
            places: dict[int | str, object] = {number: new for number, one in enumerate(op.args) if id(one) == key[0]}
            acts.setdefault(op.number, {}).update(places)
    key, (old, new) = next(iter(walk.leaves.items()))
    ours, theirs = numpy_of(new), numpy_of(old)
    given = zip(piece.theirs.call.input_names, piece.theirs.inputs, strict=False)
    name = next((name for name, one in given if one.shape == theirs.shape and np.array_equal(one, theirs)), "")
    name = _argument(piece, name) if name else ""
    what = f"`{name}`" if name else walk.told(key)
    told = (
        f"it is given another {what} than the reference"
        if name
        else f"it keeps another tensor than the reference: {what}"
    )
    code = "wrong-input" if name else "wrong-buffer"
    known = told_by_name(ours, theirs)
    if known is not None:
        code, words = known
        told = f"{told}: it {words}"
    elif theirs.dtype.kind == "b" or "mask" in name or bool((ours <= HIDING).any() or (theirs <= HIDING).any()):
        code, told = "mask", f"{told}: a mask"
    return Hypothesis(
        code=code,
        message=told,
        fix=f"make {what} of {piece.shown} as the reference makes it",
        acts={number: with_arguments(values) for number, values in acts.items()},
        confirmed=True,
        changes=len(walk.leaves),
        evidence=f"with the reference's tensors ({len(walk.leaves)}) the error is gone",
    )


def _argument(piece: Piece, name: str) -> str:
    """Return what forward calls an argument that is known by its number (``0.1``) or by its name (``1.mask``)."""
    which, _, rest = name.partition(".")
    parameters = list(inspect.signature(piece.port.forward).parameters)
    if which == "0" and rest.isdigit() and int(rest) < len(parameters):
        return parameters[int(rest)]
    return rest or name


def alike(partings: Sequence[Parting]) -> list[list[Parting]]:
    """Return the partings, those of one line and function of both programs together."""
    found: dict[tuple[str, ...], list[Parting]] = {}
    for one in partings:
        where = (one.op.place, one.op.name, one.op.path, one.step.place, one.step.said)
        found.setdefault(where, []).append(one)
    return list(found.values())


def _settings(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls with the settings that the reference's calls of the same function have."""
    segments = [walk.layout_before(one.ops) for one in group]
    steps = walk.layout_steps_before(group[0].steps)
    whole: dict[int, dict[int | str, object]] = {}
    told = []
    for place, op in enumerate(segments[0]):
        for step in [one for one in steps if one.name == op.name and op.name != LAYER]:
            changes = differences(op, step, walk)
            numbers = [
                one[place].number for one in segments if len(one) == len(segments[0]) and one[place].place == op.place
            ]
            for size in range(1, min(len(changes), 3) + 1):
                for chosen in combinations(changes, size):
                    values = {slot: value for slot, _, _, value in chosen}
                    yield _with_settings(op, chosen, numbers, values, piece, walk)
            for slot, name, present, value in changes:
                for number in numbers:
                    whole.setdefault(number, {})[slot] = value
                told.append((op, name, present, value))
    yield from _settings_in_turn(segments, steps, piece, walk)
    if len(told) > 1 and all(op.name in LAYOUT for op, *_ in told):
        (op, name, present, value), *_ = told
        shaped = next((one for one, *_ in told if one.name == "reshape"), op)
        yield Hypothesis(
            code=layout_code(shaped, shaped.args[0], shaped.result),
            confirmed=True,
            changes=len(told),
            acts={number: with_arguments(values) for number, values in whole.items()},
            message=f"it divides and orders axes differently from the reference: `{name}` of `{op.name}`{place_of(op, piece)} is {present!r}, the reference's {value!r}, and so on",
            fix="; ".join(
                f"pass `{name}={value!r}` to `{op.name}`{place_of(op, piece)}" for op, name, _, value in told
            ),
        )


def _settings_in_turn(
    segments: Sequence[Sequence[Op]], steps: Sequence[ReferenceCall], piece: Piece, walk: Walk
) -> Iterator[Hypothesis]:
    """Yield several calls with the reference's settings at once, where both call the same functions as often, in turn."""
    acts: dict[int, Act] = {}
    told: list[tuple[Op, str, object, object]] = []
    for name in dict.fromkeys(op.name for op in segments[0] if op.name != LAYER and op.name not in LAYOUT):
        places = [place for place, op in enumerate(segments[0]) if op.name == name]
        counterparts = sorted((one for one in steps if one.name == name), key=lambda one: one.number)
        if len(places) != len(counterparts):
            continue
        for place, step in zip(sorted(places, key=lambda at: segments[0][at].number), counterparts, strict=True):
            op = segments[0][place]
            changes = differences(op, step, walk)
            told += [(op, name, present, value) for _, name, present, value in changes]
            values = {slot: value for slot, _, _, value in changes}
            acts |= {
                one[place].number: with_arguments(values) for one in segments if values and len(one) == len(segments[0])
            }
    if len({op.number for op, *_ in told}) < 2:
        return
    first, name, present, value = told[0]
    expected, actual = ", ".join(f"{one!r}" for *_, one in told), ", ".join(f"{was!r}" for _, _, was, _ in told)
    where = place_of(first, piece)
    yield Hypothesis(
        code=_code(first, name, present, value, walk),
        confirmed=True,
        changes=len(told),
        acts=acts,
        message=f"its settings{where} are {actual}, the reference's {expected}, in {' and '.join(f'`{one}`' for one in dict.fromkeys(op.name for op, *_ in told))}",
        fix=f"write {expected} for {actual}{where}: `{first.line}`",
    )


def _with_settings(
    op: Op,
    chosen: Sequence[tuple[int | str, str, object, object]],
    numbers: Sequence[int],
    values: Mapping[int | str, object],
    piece: Piece,
    walk: Walk,
) -> Hypothesis:
    _, name, present, value = chosen[0]
    where = place_of(op, piece)
    code = _code(op, name, present, value, walk)
    count = f", in {len(numbers)} calls" if len(numbers) > 1 else ""
    listed = ", ".join(f"`{each}={one!r}`" for _, each, _, one in chosen)
    if code in ("rope-theta", "position-base"):
        what = "rotary positions have the base (theta)" if code == "rope-theta" else "positions have the base"
        message = f"its {what} {present!r}{where}, the reference's {value!r}{count}"
    elif name == "item":
        message = f"it takes index [{index_text(present)}]{where}, the reference [{index_text(value)}]{count}"
    elif name == "y" and op.name in BY:
        message = f"it {BY[op.name]} {present:.10g}{where}, the reference {BY[op.name]} {value:.10g}{count}"
        listed = f"{value:.10g}"
    else:
        message = "; ".join(
            f"`{each}` of `{op.name}`{where} is {was!r}, the reference's {one!r}" for _, each, was, one in chosen
        )
        message += count
    if name == "item":
        fix = f"write [{index_text(value)}] for [{index_text(present)}]{where}"
    elif name == "y" and op.name in BY:
        fix = f"write {listed} in `{op.name}`{where}"
    else:
        fix = f"pass {listed} to `{op.name}`{where}"
    return Hypothesis(
        code=code,
        message=message,
        confirmed=True,
        changes=len(chosen),
        acts={number: with_arguments(values) for number in numbers},
        fix=f"{fix}: `{op.line}`",
    )


def differences(op: Op, step: ReferenceCall, walk: Walk) -> list[tuple[int | str, str, object, object]]:
    """Return where the settings of a call are not those of the reference's: slot, name, the port's value, the reference's."""
    slots, settings = _slots(op), spelled(step, walk)
    found: list[tuple[int | str, str, object, object]] = []
    for given, value in settings.items():
        named = [one for one in slots if one[1].rstrip("s") == given.rstrip("s")]
        placed = [one for one in slots if str(one[0]) == given]
        if not named and given.isdigit():
            same = [one for one in slots if _kind(one[2]) == _kind(value)]
            by_place = [one for one in same if isinstance(one[0], int)]
            named = [one for one in placed if _kind(one[2]) in (_kind(value), "none")] or by_place[:1]
            named = named or (same if len(same) == 1 else [])  # torch's place, Paddle's name
        for slot, name, present in named[:1]:
            told = _as_ports(value, present)
            if _kind(told) == "none" or same_setting(told, present) or (name == "axis" and not has_axis(op, told)):
                continue
            found.append((slot, name, present, told))
    told_of = {name for _, name, _, _ in found} | set(settings)
    numbered = {_kind(one) for name, one in settings.items() if name.isdigit()}  # one of them may be what a slot holds
    found += [
        (slot, name, present, default)
        for (slot, name, present), default in zip(slots, _defaults(op, slots), strict=True)
        if is_plain(default)
        and default is not None
        and not same_setting(default, present)
        and name not in told_of
        and _kind(present) not in numbered
    ]
    return found


def _defaults(op: Op, slots: Sequence[tuple[int | str, str, object]]) -> list[object]:
    """Return the defaults of a call's settings; a class stands for none."""
    parameters = op.parameters
    return [parameters[name].default if name in parameters else inspect.Parameter.empty for _, name, _ in slots]


def _slots(op: Op) -> list[tuple[int | str, str, object]]:
    """Return where a call has settings: position or name, the name, the value."""
    parameters = list(op.parameters.values())
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        parameters = []
    found: list[tuple[int | str, str, object]] = []
    for number, one in enumerate(op.args):
        name = parameters[number].name if number < len(parameters) else str(number)
        if op.name in ("getitem", "setitem") and number == 1:
            name = "item"
        elif name.isdigit() and number == 1:
            name = "y"
        elif op.name == "arange" and len(op.args) == 1 and "end" not in op.kwargs:
            name = "end"
        if is_plain(one):
            found.append((number, name, one))
    found += [(name, name, one) for name, one in op.kwargs.items() if is_plain(one)]
    found += [
        (one.name, one.name, one.default)
        for one in parameters[len(op.args) :]
        if one.name not in op.kwargs and one.default is not one.empty and is_plain(one.default) and one.name != "name"
    ]
    return found


def spelled(step: ReferenceCall, walk: Walk) -> dict[str, object]:
    """Return the reference's settings under Paddle's names, numbers that were given one by one as a list."""
    settings = {name: one for name, one in step.settings.items() if name not in ASIDE}
    rank = next((held.array.ndim for held in (walk.values[one] for one in step.given) if held.array is not None), 0)
    if step.said in SIZES:
        numbers = [one for name, one in settings.items() if name.isdigit() and isinstance(one, int)]
        if numbers:
            settings = {"1": numbers}
    elif step.said in ("transpose", "swapaxes", "T", "mT") and rank:
        pair = [one for one in settings.values() if isinstance(one, int)] or [-2, -1]
        order = list(range(rank))
        if step.said == "T":
            order.reverse()
        elif len(pair) == 2:
            first, second = (one % rank for one in pair)
            order[first], order[second] = order[second], order[first]
        settings = {"1": order}
    elif step.name == "arange" and settings.keys() == {"0"}:
        settings = {"end": settings["0"]}
    if step.name == "smooth_l1_loss" and "beta" in settings:
        settings["delta"] = settings.pop("beta")
    return {NAMES.get(name, name): one for name, one in settings.items()}


def _as_ports(value: object, present: object) -> object:
    """Return a value of torch's as the port writes such values: a tuple as a list, texts with the port's capitals."""
    if isinstance(value, tuple) and _kind(value) == "list":
        return list(value) if not isinstance(present, tuple) else value
    if isinstance(value, str) and isinstance(present, bool):
        return value == "tanh"
    if isinstance(value, str) and isinstance(present, str) and present.isupper():
        return value.upper()
    return value


def _kind(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    items = value if isinstance(value, list | tuple) else (value,)
    indexes = any(isinstance(one, slice) or one is Ellipsis or one is None for one in items)
    return "index" if indexes else "list"


def _code(op: Op, name: str, present: object, value: object, walk: Walk) -> str:
    known = next((one.code for one in arguments_of(op.name) if name in one.arguments), None)
    if known is not None:
        return known
    if op.name in ("add", "subtract", "rsub"):
        small = all(isinstance(one, float) and 0 < abs(one) <= MOST_EPSILON for one in (present, value))
        return "epsilon" if small else "shift"
    angles = position_code(op, walk) if op.name in ("rpow", "pow") else ""
    if angles or op.name in NUMBERED:
        return angles or NUMBERED[op.name]
    if op.name in LAYOUT:
        return layout_code(op, op.args[0], op.result)
    if op.name in CREATORS and op.name in dict(GROUPS)["position-table"]:
        return "position-table"
    return "wrong-index" if name == "item" else name.replace("_", "-")


def position_code(op: Op, walk: Walk) -> str:
    """Return the slug of a call that makes angles: of rotary positions, which multiply, or of others; empty if it does not."""
    reached = after(op, walk)
    turned = {one.name for one in reached} & {"cos", "sin"}
    if len(turned) < 2:
        return ""
    angles = [one for one in reached if one.name == "cos"]
    return (
        "rope-theta" if any(one.name == "multiply" for each in angles for one in after(each, walk)) else "position-base"
    )


def after(op: Op, walk: Walk) -> list[Op]:
    """Return the calls that rest on a call."""
    keys: set[Key] = set(walk.made(op))
    found = []
    for one in walk.ops:
        if one.number > op.number and any(key in keys for key in walk.given(one)):
            found.append(one)
            keys.update(walk.made(one))
    return found


def _other_function(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call of the function that the reference calls, on what the port's is given."""
    first = group[0]
    if len(first.ops) != 1 or len(first.steps) != 1 or LAYER in (first.op.name, first.step.name):
        return
    op, step = first.op, first.step
    paddle = piece.paddle
    function = getattr(paddle, step.name, None) or getattr(paddle.nn.functional, step.name, None)
    if function is None or step.name == op.name or op.written is not None:
        return
    parameters = signature_of(function)
    if not parameters:
        return
    names = list(parameters)
    settings: dict[str, object] = {}
    for name, value in spelled(step, walk).items():
        given = names[int(name)] if name.isdigit() and int(name) < len(names) else name
        if given in parameters and value is not None:
            settings[given] = list(value) if isinstance(value, tuple) else value
    count = len([one for one in op.args if piece.is_tensor(one)])
    act = called_as(function, most=max(count, 1), without=tuple(op.kwargs), **settings)
    where = place_of(op, piece)
    how = f"({', '.join(f'{name}={value!r}' for name, value in settings.items())})" if settings else ""
    code = _function_code(op.name, step.name)
    yield Hypothesis(
        code=code,
        confirmed=True,
        acts={one.op.number: act for one in group},
        message=f"it does `{op.name}`{where}, the reference `{step.said}`",
        fix=f"write `{step.name}{how}` for `{op.name}`{where}: `{op.line}`",
    )


def _function_code(ours: str, theirs: str) -> str:
    if {ours, theirs} == {"add", "subtract"}:
        return "sign"
    if {ours, theirs} <= ACTIVE:
        return "other-activation"
    pools = ("mean", "sum", "max", "min", "pool", "median", "logsumexp")
    if any(word in ours for word in pools) and any(word in theirs for word in pools):
        return "reduction" if {ours, theirs} == {"sum", "mean"} else "pooling"
    if {ours, theirs} == {"tile", "repeat_interleave"}:
        return "repeat-order"
    return "other-operation"


def _operands(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call that is given the tensors that the reference's counterpart is given, where the port has them."""
    op, step = group[0].op, group[0].step
    if op.name != step.name or op.written is not None:
        return
    places = [number for number, one in enumerate(op.args) if piece.is_tensor(one)]
    matched = {}
    for number in places:
        matched[number] = walk.matched_given(op, op.args[number])
    missing = [one for one in step.given if not any(one in found for found in matched.values())]
    wrong = [number for number in places if not set(matched[number]) & set(step.given)]
    for value in missing:
        key = walk.key_of(value)
        if key is None:
            continue
        tensor, where = walk.tensor_of(key), place_of(op, piece)
        for number in wrong:
            if key in _made_of(op.args[number], op, walk):
                continue  # then a call too many is made, which is what is told
            if list(tensor.shape) != list(op.args[number].shape):
                continue
            told, name = walk.told(key), argument_name(op, number)
            yield Hypothesis(
                code="residual" if op.name == "add" else "wrong-input",
                confirmed=True,
                acts={op.number: with_argument(number, tensor)},
                message=f"it gives {called(op)}{where} another tensor{name} than the reference, which gives it {told}",
                fix=f"give {called(op)}{where} {told} as argument {number}: `{op.line}`",
            )


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A call that is given one tensor of the port's, and another one that the reference gives in its place."""

    op: Op
    old: Key
    new: Key

    def words(self, piece: Piece, walk: Walk, *, late: bool) -> tuple[str, str, str]:
        """Return the slug, what is said, and what the call should be given."""
        given, wanted = walk.told(self.old), walk.told(self.new)
        wanted = f"{wanted} of another iteration" if given == wanted else wanted
        after_that = ", which the port makes only after it: the order is another one" if late else ""
        code = "order" if late else "residual" if self.op.name == "add" else "wrong-input"
        where = place_of(self.op, piece)
        what = f"it gives {called(self.op)}{where} another argument than the reference: {given} in place of {wanted}{after_that}"
        return code, what, wanted


def _exchange(parting: Parting, walk: Walk, *, healed: bool = False) -> tuple[_Exchange, dict[int, Act]] | None:
    """Return the one tensor that a stretch of calls is given otherwise, and the calls with the reference's; else None."""
    taken, wanted = walk.stretch(parting)
    wrong = [key for key in taken if not wanted.intersection(walk.matched[key])]
    missing = [number for number in wanted if not any(number in walk.matched[key] for key in taken)]
    new = walk.key_of(missing[0], healed=healed) if len(missing) == len(wrong) == 1 else None
    if new is None:
        return None
    tensor, old = walk.right(new), wrong[0]
    if list(tensor.shape) == list(walk.tensor_of(old).shape):
        acts = {op.number: with_tensors(op.args, {old[0]: tensor}) for op in taken[old]}
        return _Exchange(taken[old][0], old, new), acts
    sizes = [list(tensor.shape)]
    fitting = [op for op in parting.ops if [list(each.shape) for each in walk.made(op).values()] == sizes]
    if not fitting or set(walk.given(fitting[0])) != {old}:
        return None
    return _Exchange(parting.op, next(iter(walk.made(fitting[0]))), new), {fitting[0].number: constant(tensor)}


def _given_otherwise(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield stretches of calls that are given one other tensor than the reference's are, whatever functions they call."""
    found = [one for one in (_exchange(each, walk) for each in group) if one is not None]
    if len(found) < len(group):
        return
    # Of several turns one tells best that what it is given is made of what it should be given.
    late = [one for one, _ in found if walk.rests(one.new, one.old)]
    told = (late or [found[0][0]])[0]
    acts = {number: act for _, several in found for number, act in several.items()}
    code, what, wanted = told.words(piece, walk, late=bool(late))
    fix = f"give {called(told.op)}{place_of(told.op, piece)} {wanted}: `{told.op.line}`"
    alike = next((one.line for each in group for one in each.steps if _masked(one.line) == _masked(told.op.line)), "")
    both = zip(*(NUMBER.findall(one) for one in (alike, told.op.line)), strict=False) if alike else ()
    if apart := [
        pair for pair in both if pair[0] != pair[1]
    ]:  # exchanged factors give each call what the other is given
        code, fix = "arithmetic", f"write as the reference does: `{alike}`"
        numbers, port_numbers = (", ".join(side) for side in zip(*apart, strict=True))
        what = f"it writes {port_numbers}{place_of(told.op, piece)}, the reference writes {numbers}: `{alike}`"
    yield Hypothesis(code=code, message=what, confirmed=True, acts=acts, changes=len(acts), fix=fix)


def _masked(line: str) -> str:
    """Return a line of code without its numbers."""
    return NUMBER.sub("#", line)


def _given_less(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call with a tensor that the reference gives to the same function, and the port does not."""
    op, step = group[0].op, group[0].step
    if op.name != step.name or op.name == LAYER or op.written is not None:
        return
    parameters = list(op.parameters)
    where = place_of(op, piece)
    for name, number in step.named.items():
        given, value = NAMES.get(name, name), walk.values[number].array
        place = parameters.index(given) if given in parameters else -1
        present = op.kwargs.get(given, op.args[place] if 0 <= place < len(op.args) else None)
        if place < 0 or value is None or piece.is_tensor(present):
            continue
        tensor = piece.sides.port.tensor(value, gradient=False)
        shown_value = f" {value.tolist()}" if value.size <= FEW else f" of shape {list(value.shape)}"
        yield Hypothesis(
            code=f"missing-{given.replace('_', '-')}",
            confirmed=True,
            acts={one.op.number: with_argument(place, tensor, given) for one in group},
            message=f"it does not pass `{given}` to `{op.name}`{where}, the reference passes{shown_value}",
            fix=f"pass `{given}` as the reference does to `{op.name}`{where}: `{op.line}`",
        )


def argument_name(op: Op, number: int) -> str:
    """Return in words which argument of a layer's forward one is, where it has several."""
    if op.layer is None or len(op.args) < 2:
        return ""
    names = list(signature_of(type(op.layer).forward))[1:]
    return f" as `{names[number]}`" if number < len(names) else ""


def _made_of(tensor: object, op: Op, walk: Walk) -> set[Key]:
    """Return the tensors that one argument of a call was made of, except those whose shape alone was taken."""
    left = [key for key in walk.given(op) if key[0] == id(tensor)]
    found: set[Key] = set()
    while left:
        maker = walk.makers_of.get(left.pop())
        if maker is not None and maker.number < op.number and maker.name not in LIKES:
            new = walk.given(maker).keys() - found
            found |= new
            left += new
    return found


def _missing_step(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls that are given what one more call of the reference's makes of it."""
    op, extra = group[0].op, [one for one in group[0].steps[:-1] if one.name not in CASTING]
    same = op.name == group[0].step.name
    if not same or len(extra) != 1 or len(group[0].ops) != 1 or op.written is not None:
        return
    acts = {}
    for one in group:
        step = next((each for each in one.steps[:-1] if each.name not in CASTING), None)
        place = None if step is None else _place_of_given(one.op, step, walk)
        made = None if step is None else _done(step, piece, walk)
        if place is None or made is None or list(made.shape) != list(one.op.args[place].shape):
            return
        acts[one.op.number] = with_argument(place, made)
    step, where = extra[0], place_of(op, piece)
    numbers = [
        value for value in step.settings.values() if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    scaled = step.name in ("multiply", "divide") and len(step.given) == 1 and numbers
    by = (
        f" by {numbers[0]:.6g}"
        if scaled
        else f" to the power of {numbers[0]:g}"
        if step.name == "pow" and numbers
        else ""
    )
    code = (
        "scale-factor"
        if scaled
        else "sign"
        if step.name == "neg"
        else "missing-activation"
        if step.name in ACTIVE
        else "missing-residual"
        if step.name == "add" and len(step.given) == 2
        else _one_sided(next((code for code, known in GROUPS if step.name in known), ""), "missing")
    )
    yield Hypothesis(
        code=code,
        confirmed=True,
        acts=acts,
        message=f"it lacks `{step.name}`{by} in front of {called(op)}{where}: the reference has `{step.line}`",
        fix=f"apply `{step.name}`{by} to what {called(op)} is given{where}: `{op.line}`",
    )


OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "pow": operator.pow,
    "rsub": lambda tensor, number: number - tensor,
    "rdiv": lambda tensor, number: number / tensor,
    "rpow": lambda tensor, number: number**tensor,
    "getitem": operator.getitem,
}
"""Functions that Paddle has as operators of tensors and numbers."""


def _place_of_given(op: Op, step: ReferenceCall, walk: Walk) -> int | None:
    """Return which argument of a call the reference first hands to a step."""
    given = (number for number, one in enumerate(op.args) if set(walk.matched_given(op, one)) & set(step.given))
    return next(given, None)


def _done(step: ReferenceCall, piece: Piece, walk: Walk) -> Tensor:
    """Return what Paddle's function makes of the port's tensors as a step does of the reference's; None if it is not that."""
    paddle = piece.paddle
    function = (
        OPERATORS.get(step.name) or getattr(paddle, step.name, None) or getattr(paddle.nn.functional, step.name, None)
    )
    keys = [walk.key_of(number) for number in step.given]
    if function is None or not step.made:
        return None
    tensors = [walk.tensor_of(key) for key in keys if key is not None]
    settings = [value for value in spelled(step, walk).values() if value is not None]
    try:
        made = function(*tensors, *settings) if len(tensors) == len(step.given) else None
    except Exception:  # noqa: BLE001  (Paddle may write this function otherwise: then it is not said)
        return None
    if made is None or not piece.is_tensor(made) or step.made[0] not in walk.find(numpy_of(made)):
        return None
    return made


def by_substitution(piece: Piece, walk: Walk, every: Sequence[Parting] = ()) -> Iterator[Hypothesis]:
    """Yield the port with the reference's tensors wherever the two part: it tells the place, and what stands there.

    ``every`` is where else they part, without effect: a tensor that is exchanged there with one that matters here tells why.
    """
    groups = alike(walk.partings)
    if not groups:
        return
    ours = [op for one in groups[0] for op in walk.layout_before(one.ops)]
    theirs = [step for one in groups[0] for step in walk.layout_steps_before(one.steps)]
    first = groups[0][0]
    op, step = first.op, first.step
    where = place_of(op, piece)
    made, wanted = walk.expression(first), walk.reference_expression(first)
    arranged = any(one.name in LAYOUT - CASTING for one in ours)
    same = made == wanted or (made == walk.reference_expression(first, shared=True) and not arranged)
    apart = differences(op, step, walk) if same else []
    if apart:
        made += f" with {', '.join(f'{name}={index_text(value)}' for _, name, value, _ in apart)}"
        wanted += f" with {', '.join(f'{name}={index_text(value)}' for _, name, _, value in apart)}"
        same = False
    code = "wrong-input" if same else _difference(piece, walk, ours, theirs)
    told = _left_unused(piece, walk, theirs) or _turned_round(walk) or _reordered(first, piece)
    if told is None and code not in NAMED:
        told = _exchanged(first, piece, walk, every or walk.partings)
    code, lead = told or (code, "")
    beside = f"; {len(groups) - 1} more places of its code differ" if len(groups) > 1 else ""
    known = told_by_name(numpy_of(first.new), numpy_of(first.old))
    if known is not None:
        code, words = known
        beside = f": it {words}"
    mine, others = _telling(op, step, ours, theirs)
    at = next((one for one in (others, *reversed(theirs)) if one.place), None)
    if at is None:
        fix = f"compare the code of {piece.shown} with the reference's"
    elif mine is not op and others is step:
        fix = f"remove `{mine.name}`{place_of(mine, piece)}: `{mine.line}`"
    else:
        fix = f"do{place_of(mine, piece)} (`{mine.line}`) what the reference does at {at.place}: `{at.line}`"
    behind = f"{beside}{only_in_one(ours, theirs)}{WORDS.get(code, '')}"
    message = f"{lead}it makes {made}{where}, the reference {wanted}{behind}"
    if same:
        message = f"{lead}it makes {made}{where} of another tensor than the reference{behind}"
        given = [walk.matched[key] for key in walk.given(op)]
        if given and all(set(one) & set(step.given) for one in given):
            code = "other-code"
            message = f"{lead}it makes {made}{where} of the reference's tensors, with other values{behind}"
    yield Hypothesis(
        code=code,
        confirmed=False,
        changes=len(groups),
        acts=acts_of(walk.partings, piece.paddle.assign),
        message=message,
        fix=fix,
        evidence=f"with the reference's tensors at {len(walk.partings)} calls the error is gone"
        if len(walk.partings) > 1
        else "with the reference's tensor there the error is gone",
        place=holder_of((op for one in walk.partings for op in one.ops), piece),
    )


SPELLINGS = re.compile(r"\b(?:torch|paddle|nn|functional|F)\.|\s")
"""What lines of both frameworks that do the same differ in."""


def _telling(
    op: Op, step: ReferenceCall, ours: Sequence[Op], theirs: Sequence[ReferenceCall]
) -> tuple[Op, ReferenceCall]:
    """Return the calls whose lines say what differs: those that end two stretches, or the last that is made on one side alone.

    The ends say nothing where their lines read alike.
    """
    if SPELLINGS.sub("", op.line) != SPELLINGS.sub("", step.line):
        return op, step
    mine = list({one.number: one for one in ours if one.line and one.name not in CASTING}.values())
    others = list({one.number: one for one in theirs if one.line and one.name not in CASTING}.values())
    counts = Counter(one.name for one in mine), Counter(one.name for one in others)
    alone = [one for one in mine if one.name in counts[0] - counts[1]]
    missed = [one for one in others if one.name in counts[1] - counts[0]]
    if not alone and not missed:
        alone, missed = [one for one in mine if one.name in LAYOUT], [one for one in others if one.name in LAYOUT]
    return (alone or [op])[0], (missed or [step])[0]


def _exchanged(parting: Parting, piece: Piece, walk: Walk, every: Sequence[Parting]) -> tuple[str, str] | None:
    """Return the slug and words where the same function is given one other tensor, or one too few."""
    op = parting.op
    if op.name != parting.step.name:
        return None
    found = _exchange(parting, walk, healed=True)
    if found is not None:
        one, _ = found
        given, wanted = walk.told(one.old), walk.told(one.new)
        others = (each for each in map(partial(_exchange, walk=walk, healed=True), every) if each is not None)
        if given == wanted:  # two steps of one line, which says nothing
            return None
        if any((walk.told(each.new), walk.told(each.old)) == (given, wanted) for each, _ in others):
            return "swapped-inputs", f"{given} and {wanted} are exchanged{place_of(op, piece)}: "
        code, what, _ = one.words(piece, walk, late=False)
        return code, f"{what}: "
    taken, numbers = walk.stretch(parting)
    missing = [number for number in numbers if not any(number in walk.matched[key] for key in taken)]
    new = walk.key_of(missing[0], healed=True) if len(missing) == 1 and len(parting.ops) == 1 else None
    if new is None or not all(numbers.intersection(walk.matched[key]) for key in taken):
        return None
    return (
        "missing-input",
        f"it does not give {called(op)}{place_of(op, piece)} {walk.told(new)}, the reference does: ",
    )


def _left_unused(piece: Piece, walk: Walk, theirs: Sequence[ReferenceCall]) -> tuple[str, str] | None:
    """Return the slug and words of a layer, or a tensor of the layer's own, that the reference uses there and the port never."""
    for path, partner in piece.idle.items():
        step = next((one for one in theirs if one.name == LAYER and one.said == partner), None)
        if step is not None:
            where = f" at {step.place} (`{step.line}`)" if step.place else ""
            return "missing-layer", f"it never calls `{path}`, the reference does{where}: "
    used = {key[0] for op in walk.ops for key in walk.given(op)}
    given = {number for one in theirs for number in one.given}
    for name, tensor in own_tensors(piece):
        if id(tensor) not in used and given & set(walk.find(numpy_of(tensor))) and "float" in str(tensor.dtype):
            return "missing-term", f"its `{name}` is not used, the reference's is: "
    return None


def _at(step: ReferenceCall) -> str:
    return f" at {step.place} (`{step.line}`)" if step.place else ""


def _turned_round(walk: Walk) -> tuple[str, str] | None:
    """Return the slug and words of two layers that are called one after the other, in the reference the other way round."""
    calls = [(op, step) for op in walk.ops if (step := walk.partner(op)) is not None]
    ours = {op.number: {one.number for one in after(op, walk)} for op, _ in calls}
    theirs = {step.number: walk.resting_on(step) for _, step in calls}
    for one, step in calls:
        for other, another in calls:
            if other.number in ours[one.number] and step.number in theirs[another.number]:
                # Two paths up to where they part.
                shared = common_path([one.path, other.path])
                depth = len(shared.split(".")) if shared else 0
                first, second = blocks = [".".join(path.split(".")[: depth + 1]) for path in (one.path, other.path)]
                if any(op.path in blocks and "Norm" in class_of(op.layer) for op in (one, other)):
                    continue  # a norm in front of its branch or behind it has a name of its own
                return "layer-order", f"it applies `{first}` before `{second}`, the reference after it: "
    return None


def _reordered(parting: Parting, piece: Piece) -> tuple[str, str] | None:
    """Return the slug and words of two functions that the reference applies in the other order."""
    mine = [one for one in sorted(parting.ops, key=lambda one: one.number) if one.name not in LAYOUT]
    others = [one for one in sorted(parting.steps, key=lambda one: one.number) if one.name not in LAYOUT]
    names = Counter(one.name for one in mine)
    apart = [place for place, (op, step) in enumerate(zip(mine, others, strict=False)) if op.name != step.name]
    if names != Counter(one.name for one in others) or LAYER in names or len(apart) != 2:
        return None
    place, after_it = apart
    if after_it != place + 1:
        return None
    op, step = mine[place], others[place]
    at = f" at {step.place}" if step.place else ""
    return "order", f"it applies `{op.name}`{place_of(op, piece)}, the reference after `{step.name}`{at}: "


WORDS = {
    "rotate-half": ": one rotates halves (rotate_half), the other neighbours (interleaved)",
    "norm-order": ": the norm stands elsewhere, in front of the branch or behind the sum",
    "sign": ": the minus sign stands at another tensor",
    "missing-rotation": ": rotary positions (rotate_half) are not applied here",
    "axis-order": ": the axes are divided or transposed in another order (reshape, transpose, permute, shuffle)",
}
"""What is added to a message, by its slug."""


NAMED = frozenset(("norm-order", "missing-norm", "rotate-half", "missing-rotation"))
"""Slugs that say more than which tensor a call is given."""


def _difference(piece: Piece, walk: Walk, ours: Sequence[Op], theirs: Sequence[ReferenceCall]) -> str:
    """Return the slug of what only one of two stretches of code does."""
    mine = list({op.number: op for op in ours}.values())
    others = list({step.number: step for step in theirs}.values())
    layers = dict(piece.sides.reference.layers(piece.reference))

    def port_norms(ops: Iterable[Op]) -> int:
        return sum(op.name == LAYER and "Norm" in class_of(op.layer) for op in ops)

    def reference_norms(steps: Iterable[ReferenceCall]) -> int:
        return sum(one.name == LAYER and "Norm" in type(layers.get(one.said)).__name__ for one in steps)

    if port_norms(mine) or reference_norms(others):
        return "norm-order" if port_norms(walk.ops) >= reference_norms(walk.steps) else "missing-norm"
    turned = _rotation(walk, mine, others)
    if turned:
        return turned
    made = _count([(op.name, len(walk.given(op))) for op in mine])
    wanted = _count([(one.name, len(one.given)) for one in others])
    extra, missing = {*(made - wanted)} - LAYOUT, {*(wanted - made)} - LAYOUT
    only, every = extra | missing, {*made, *wanted}
    arranged = (every & LAYOUT) - CASTING
    if not only and "neg" in made and not arranged:
        return "sign"
    if not only and (arranged or not made):
        return "axis-order" if arranged else "wrong-input"
    for names in (only, every - LAYOUT):
        for code, known in GROUPS:
            if names & known:
                return code if (extra and missing) or not only else _one_sided(code, "extra" if extra else "missing")
    shuffled = any("shuffle" in name for name in every)
    return "axis-order" if shuffled or not names else "other-code"


def _rotation(walk: Walk, mine: Sequence[Op], others: Sequence[ReferenceCall]) -> str:
    """Return the slug where both programs rotate pairs of channels otherwise, or the reference alone; empty where not."""
    every = [op.name for one in walk.partings for op in walk.layout_before(one.ops)]
    each_step = [step.name for one in walk.partings for step in walk.layout_steps_before(one.steps)]
    angled = any(one.name in ("cos", "sin") for one in walk.ops)
    turned = _rotates(every) and _rotates(each_step) and "neg" in {*every, *each_step}
    if turned or (angled and {"repeat_interleave", "concat"} <= {*every, *each_step}):
        return "rotate-half"
    names = [one.name for one in others]
    alone = "neg" in names and all(op.name != "neg" for op in mine)
    return "missing-rotation" if alone and _rotates(names) else ""


def _count(called: Sequence[tuple[str, int]]) -> Counter[str]:
    """Count functions, of fused ones what they do; attention that is given a fourth tensor masks."""
    names = [part for name, _ in called if name != LAYER for part in FUSED.get(name, (name,))]
    masked = [name for name, given in called if name == "scaled_dot_product_attention" and given > len("qkv")]
    return Counter([*names, *("masked_fill" for _ in masked)])


def _one_sided(code: str, which: str) -> str:
    kind = {"mask": "mask", "other-activation": "activation", "arithmetic": "term", "shift": "shift"}.get(code, "step")
    return f"{which}-{kind}"


def only_in_one(ours: Sequence[Op], theirs: Sequence[ReferenceCall]) -> str:
    """Return in words which functions only one of two stretches of code calls."""
    mine = Counter(name for _, name in {(op.number, op.name) for op in ours if op.name != LAYER})
    others = Counter(name for _, name in {(one.number, one.name) for one in theirs if one.name != LAYER})
    told = []
    for who, names in (("it alone", mine - others), ("the reference alone", others - mine)):
        listed = sorted(names.keys() - CASTING)
        if listed:
            told.append(f"{who} calls {', '.join(f'`{one}`' for one in listed)}")
    return f"; {', '.join(told)}" if told else ""


def _rotates(names: Sequence[str]) -> bool:
    """Tell whether some calls take a tensor apart, and put it together again."""
    apart = {"getitem", "chunk", "split", "unbind"} & set(names)
    return bool(apart) and bool({"concat", "stack"} & set(names))
