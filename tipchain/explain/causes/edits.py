"""The catalogue of edits: the port's calls as the reference makes them, at the places where both programs part."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any, Literal

import numpy as np

from tipchain.explain.causes.apart import Divergence
from tipchain.explain.causes.hypotheses import (
    Hypothesis,
    Lines,
    called,
    class_of,
    has_axis,
    holder_of,
    index_text,
    lines_of,
    place_of,
    same_setting,
)
from tipchain.explain.causes.lines import Frame, innermost
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import (
    LAYER,
    LAYOUT,
    Act,
    Op,
    Program,
    argument,
    called_as,
    constant,
    is_plain,
    numpy_of,
    signature_of,
    then,
    then_first,
    with_argument_detached,
    with_arguments,
    with_tensors,
)
from tipchain.explain.causes.tensors import own_tensors
from tipchain.explain.causes.walk import CASTING, Parting, Walk, acts_of
from tipchain.explain.findings import CodeEdit
from tipchain.explain.locate.differences import Sketch, rms
from tipchain.facts.functions import DEFAULTS, NAMES, OPPOSITES
from tipchain.framework_types import Array, Function, Nested, Options, Setting, Tensor
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE

ASIDE = frozenset(
    {"inplace", "out", "dtype", "device", "requires_grad", "layout", "memory_format", "non_blocking", "copy"}
)
"""Settings of the place where a result is kept, not of its value."""
MENDS = "makes what the reference makes"
"""How it is said that an edit is right which the reference's calls do not show."""
MOST_RESULTS = 4
"""Results of one call whose orders are tried."""
SIZES = frozenset({"view", "reshape", "permute", "repeat", "expand", "flip", "tile"})
"""Torch's methods that take a list of numbers one by one."""
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
"""Functions of a tensor and a number, in words."""


def edits(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port with one edit where the two programs part: arguments, functions, operands, calls."""
    yield from _result_orders(piece, walk)
    yield from _written_before(piece, walk)
    for group in alike(walk.partings):
        yield from _arguments(group, piece, walk)
        yield from _function(group, piece, walk)
        yield from _number(group, piece)
        yield from _operand_order(group, piece, walk)
        yield from _missing_call(group, piece, walk)
        yield from _missing_behind(group, piece, walk)
        yield from _extra_call(group, piece, walk)
        yield from _operands(group, piece, walk)
    for op in () if walk.partings else walk.ops:  # a last call too many
        ends = not any(walk.matched[key] or walk.consumers.get(key) for key in walk.made(op)) and op.written is None
        place = kept_argument(op, piece, walk) if ends else None
        if place is not None and walk.matched_given(op, op.args[place]):
            yield without_call(op, {op.number: argument(place)}, piece)


def alike(partings: Sequence[Parting]) -> list[list[Parting]]:
    """Return the partings, those of one line and function of both programs together."""
    found: dict[tuple[str, ...], list[Parting]] = {}
    for one in partings:
        where = (one.op.place, one.op.name, one.op.path, one.step.place, one.step.said)
        found.setdefault(where, []).append(one)
    return list(found.values())


# Arguments of a call that are no tensors.


def _arguments(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls with the arguments of the reference's calls of the same function."""
    segments = [walk.ops.with_layout(one.ops) for one in group]
    steps = walk.steps.with_layout(group[0].steps)
    whole: dict[int, dict[int | str, object]] = {}
    apart = []
    for place, op in enumerate(segments[0]):
        for step in [one for one in steps if one.name == op.name and op.name != LAYER]:
            changes = differences(op, step, walk)
            numbers = [
                one[place].number for one in segments if len(one) == len(segments[0]) and one[place].place == op.place
            ]
            for size in range(1, min(len(changes), 3) + 1):
                for chosen in combinations(changes, size):
                    yield with_settings(op, step, chosen, numbers, piece)
            for slot, name, present, value in changes:
                for number in numbers:
                    whole.setdefault(number, {})[slot] = value
                apart.append((op, name, present, value))
    if len(apart) > 1 and all(op.name in LAYOUT for op, *_ in apart):
        op, name, present, value = apart[0]
        where = place_of(op, piece)
        yield Hypothesis(
            code="argument",
            name=name,
            confirmed=True,
            changes=len(apart),
            acts={number: with_arguments(values) for number, values in whole.items()},
            message=f"it divides and orders axes differently from the reference: `{name}` of `{op.name}`{where} is {present!r}, the reference's {value!r}, and so on",
            fix="; ".join(
                f"pass `{name}={value!r}` to `{op.name}`{place_of(op, piece)}" for op, name, _, value in apart
            ),
            lines=lines_of(op),
        )


SOLVED: Mapping[str, Callable[[Array, Array, float], Array]] = {
    "multiply": lambda old, new, number: number * new / old,
    "divide": lambda old, new, number: number * old / new,
    "add": lambda old, new, number: number + new - old,
    "subtract": lambda old, new, number: number + old - new,
}
"""The number that gives a new result in place of an old one, of functions of a tensor and a number."""


def _number(group: Sequence[Parting], piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call with the number with which it makes the tensor that another function of the reference's makes."""
    (op, step), (old, new) = (group[0].op, group[0].step), map(numpy_of, (group[0].old, group[0].new))
    if op.name not in SOLVED or op.name == step.name or len(op.args) != 2 or kind_of_setting(op.args[1]) != "number":
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        found = SOLVED[op.name](old, new, op.args[1])[np.abs(old) > ROUGH * rms(old)]
    number = float(np.median(found)) if found.size > 1 else np.nan
    if np.allclose(found, number, rtol=SAME_SINGLE, atol=0):
        edit = with_settings(op, step, [(1, "y", op.args[1], number)], [one.op.number for one in group], piece)
        told = f"it {BY[op.name]} {op.args[1]:.10g}{place_of(op, piece)}; {number:.10g} makes what `{step.said}` of the reference makes"
        yield replace(edit, message=f"{told}{_at(step)}")


def with_settings(
    op: Op,
    step: Op | None,
    chosen: Sequence[tuple[int | str, str, object, object]],
    numbers: Sequence[int],
    piece: Piece,
) -> Hypothesis:
    _, name, present, value = chosen[0]
    where = place_of(op, piece)
    reference, whose, mends = (
        ("; with", "; with", f" it {MENDS}") if step is None else (", the reference", ", the reference's", "")
    )
    change: CodeEdit | None = CodeEdit(
        kind="pass", call=op.name, arguments=_as_code((each, one) for _, each, _, one in chosen)
    )
    if name == "item":
        message = f"it takes index [{index_text(present)}]{where}{reference} [{index_text(value)}]{mends}"
        fix = f"write [{index_text(value)}] for [{index_text(present)}]{where}"
        change = CodeEdit(kind="write", call=f"[{index_text(present)}]", written=f"[{index_text(value)}]")
    elif name == "y" and op.name in BY:
        layer = dict(piece.sides.port.layers(piece.port)).get(op.holder)
        names = (
            re.findall(r"\bself\.(\w+)", op.line) if layer is not None else []
        )  # the attribute that the number is taken from
        held = ((each, vars(layer).get(each)) for each in names)
        kept = next((each for each, one in held if is_plain(one) and same_setting(one, present)), "")
        message = (
            f"it {BY[op.name]} {present:.10g}{where}{reference}{f' {BY[op.name]}' if step else ''} {value:.10g}{mends}"
        )
        fix = f"write {value:.10g} in `{op.name}`{where}"
        fix = f"set `self.{kept}` to {value:.10g}, which `{op.name}`{where} is given" if kept else fix
        change = CodeEdit(kind="set", call=kept, written=f"{value:.10g}") if kept else None
    else:
        message = "; ".join(
            f"`{each}` of `{op.name}`{where} is {was!r}{whose} {one!r}{mends}" for _, each, was, one in chosen
        )
        fix = f"pass {', '.join(f'`{each}={one!r}`' for _, each, _, one in chosen)} to `{op.name}`{where}"
    acts = dict.fromkeys(numbers, with_arguments({slot: one for slot, _, _, one in chosen}))
    message = f"{message}{_at(step)}" if step is not None else message
    return at_call(
        "argument", op, step, acts, message, fix, name=name, calls=len(numbers), changes=len(chosen), code_edit=change
    )


def at_call(
    code: str, op: Op, step: Op | None, acts: Mapping[int, Act], message: str, fix: str, **more: Setting
) -> Hypothesis:
    """Return an edit of a call's statement, which does what the reference's does."""
    given = {"name": class_of(op.layer) if op.name == LAYER else op.name, "confirmed": True, **more}
    return Hypothesis(
        code=code, acts=acts, message=message, fix=f"{fix}: `{op.line}`", lines=lines_of(op, step), **given
    )


def differences(op: Op, step: Op, walk: Walk) -> list[tuple[int | str, str, object, object]]:
    """Return where the settings of a call are not those of the reference's: slot, name, the port's value, the reference's."""
    slots, settings, parameters = slots_of(op), spelled(step, walk), op.parameters
    found: list[tuple[int | str, str, object, object]] = []
    for given, value in settings.items():
        named = [one for one in slots if one[1].rstrip("s") == given.rstrip("s")]
        placed = [one for one in slots if str(one[0]) == given]
        if not named and given.isdigit():
            same = [one for one in slots if kind_of_setting(one[2]) == kind_of_setting(value)]
            by_place = [one for one in same if isinstance(one[0], int)]
            named = [one for one in placed if kind_of_setting(one[2]) in (kind_of_setting(value), "none")] or by_place[
                :1
            ]
            named = named or (same if len(same) == 1 else [])  # torch's place, Paddle's name
        for slot, name, present in named[:1]:
            wanted = _as_ports(value, present)
            if kind_of_setting(wanted) == "none" or same_setting(wanted, present):
                continue
            if name == "axis" and not has_axis(op, wanted):
                continue
            found.append((slot, name, present, wanted))
    named_settings = {name for _, name, _, _ in found} | set(settings)
    numbered = {
        kind_of_setting(one) for name, one in settings.items() if name.isdigit()
    }  # one of them may be what a slot holds
    found += [
        (slot, name, present, default)
        for slot, name, present in slots
        if name in parameters
        and is_plain(default := parameters[name].default)
        and default is not None
        and not same_setting(default, present)
        and name not in named_settings
        and kind_of_setting(present) not in numbered
    ]
    return found


def slots_of(op: Op) -> list[tuple[int | str, str, object]]:
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


def spelled(step: Op, walk: Walk) -> dict[str, object]:
    """Return the reference's settings under Paddle's names, numbers that were given one by one as a list."""
    settings = {name: one for name, one in step.kwargs.items() if name not in ASIDE}
    rank = next((held.ndim for held in (walk.steps.values[one] for one in step.given) if held is not None), 0)
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
    told = {NAMES.get(name, name): one for name, one in settings.items() if name not in OPPOSITES}
    told |= {OPPOSITES[name]: not one for name, one in settings.items() if name in OPPOSITES}
    return {**DEFAULTS.get(step.name, {}), **{name: one for name, one in told.items() if one is not None}}


def _as_ports(value: object, present: object) -> object:
    """Return a value of torch's as the port writes such values: a tuple as a list, texts with the port's capitals."""
    if isinstance(value, tuple) and kind_of_setting(value) == "list":
        return list(value) if not isinstance(present, tuple) else value
    if isinstance(value, str) and isinstance(present, bool):
        return value == "tanh"
    if isinstance(value, str) and isinstance(present, str) and present.isupper():
        return value.upper()
    return value


def kind_of_setting(value: object) -> str:
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


# Another function.


def _function(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call of the function that the reference calls, on the tensors that the port's call is given."""
    op, step = group[0].op, group[0].step
    single = len(group[0].ops) == 1 and len(group[0].steps) == 1
    if not single or step.name in (LAYER, op.name) or op.written is not None:
        return
    if op.name == LAYER and len(piece.floats_given(op)) != 1:
        return
    function = in_paddle(step, piece)
    parameters = signature_of(function)
    if function is None or not parameters:
        return
    settings = passed(step, walk, parameters)
    count = len([one for one in op.args if piece.is_tensor(one)])
    act = called_as(function, most=max(count, 1), without=tuple(op.kwargs), **settings)
    where, name, how = place_of(op, piece), class_of(op.layer) if op.name == LAYER else op.name, _shown(settings)
    change = CodeEdit(kind="write", call=name, written=step.name, arguments=_as_code(settings.items()))
    yield at_call(
        "function",
        op,
        step,
        {one.op.number: act for one in group},
        f"it calls `{name}`{where}, the reference `{step.said}{how}`{_at(step)}",
        f"write `{step.name}{how}` for `{name}`{where}",
        name=step.name,
        calls=len(group),
        place=op.path if op.name == LAYER else None,
        code_edit=None if op.name == LAYER else change,
    )


def _as_code(settings: Iterable[tuple[str, object]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in settings)


def _shown(settings: Mapping[str, object]) -> str:
    return f"({', '.join(f'{name}={value!r}' for name, value in settings.items())})" if settings else ""


def passed(step: Op, walk: Walk, parameters: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    """Return the reference's settings as arguments of Paddle's function."""
    names, settings = list(parameters), dict[str, object]()
    for name, value in spelled(step, walk).items():
        given = names[int(name)] if name.isdigit() and int(name) < len(names) else name
        if given in parameters and value is not None:
            wanted = _as_ports(value, parameters[given].default)
            settings[given] = list(wanted) if isinstance(wanted, tuple) else wanted
    return settings


def _at(step: Op) -> str:
    return f" at {step.place} (`{step.line}`)" if step.place else ""


# Other tensors, or the same ones in another order.


def _operand_order(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call whose tensors stand in the reference's order."""
    acts, order = {}, list[int]()
    for one in group:
        op, step = one.op, one.step
        tensors = piece.tensors((op.args, {}))
        matched = [set(walk.matched_given(op, each)) for each in tensors]
        order = []
        for number in step.given:
            order.append(next((at for at, found in enumerate(matched) if number in found and at not in order), -1))
        if op.name != step.name or sorted(order) != list(range(len(tensors))) or order == sorted(order):
            return
        acts[op.number] = with_tensors(op.args, {id(old): tensors[at] for old, at in zip(tensors, order, strict=True)})
    op, step = group[0].op, group[0].step
    where = place_of(op, piece)
    message = f"the tensors of {called(op)}{where} are in another order: the reference's is {order}{_at(step)}"
    fix = f"give {called(op)}{where} its tensors in the order {order}"
    change = CodeEdit(kind="order", call=op.name, order=tuple(order))
    yield at_call("operand-order", op, step, acts, message, fix, calls=len(group), code_edit=change)


def _operands(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield a call that is given the tensors that the reference's counterpart is given, where the port has them."""
    op, step = group[0].op, group[0].step
    if op.name != step.name or op.written is not None:
        return
    places = [number for number, one in enumerate(op.args) if piece.is_tensor(one)]
    matched = {number: walk.matched_given(op, op.args[number]) for number in places}
    missing = [one for one in step.given if not any(one in found for found in matched.values())]
    wrong = [number for number in places if not set(matched[number]) & set(step.given)]
    for value in missing:
        key = walk.key_of(value)
        if key is None:
            continue
        tensor, where = walk.ops.values[key], place_of(op, piece)
        for number in wrong:
            if list(tensor.shape) != list(op.args[number].shape):
                continue
            wanted = walk.told(key)
            message = (
                f"it gives {called(op)}{where} another tensor than the reference, which gives it {wanted}{_at(step)}"
            )
            fix = f"give {called(op)}{where} {wanted} as argument {number}"
            yield at_call(
                "operand", op, step, {op.number: with_arguments({number: tensor})}, message, fix, name=op.name
            )


def _result_orders(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls that are right and give several tensors of one shape, which the code takes in another order."""
    calls: dict[tuple[str, str], list[Op]] = {}
    for op in walk.ops:
        made = walk.made(op)
        shapes = {tuple(one.shape) for one in made.values()}
        if isinstance(op.result, list | tuple) and 1 < len(made) <= MOST_RESULTS and len(shapes) == 1:
            calls.setdefault((op.name, op.place), []).append(op)
    for several in calls.values() if walk.partings else ():
        op, count = several[0], len(walk.made(several[0]))
        if op.name == LAYER or not all(walk.matched[key] for key in walk.given(op)):
            continue
        where = place_of(op, piece)
        for order in list(permutations(range(count)))[1:]:
            acts = dict.fromkeys((one.number for one in several), then(operator.itemgetter(*order)))
            message = f"the results of {called(op)}{where} are taken in another order than the reference's: its are {list(order)}"
            fix = f"take the results of {called(op)}{where} in the order {list(order)}"
            yield at_call("operand-order", op, None, acts, message, fix)


def _written_before(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls with a tensor as it was made, to which other code has written since: the reference's has stayed as it was."""
    acts, taken = dict[int, Act](), list[tuple[Op, Op]]()
    for op in (one for one in walk.ops if one.written is None):
        if all(walk.matched[key] for key in walk.made(op)):
            continue
        step = walk.partner(op)
        for tensor in piece.tensors((op.args, op.kwargs)):
            before = [one for one in walk.ops if one.written is tensor and one.number < op.number]
            writers = [one for one in before if walk.matched[one.given[0]]]
            if not writers:
                continue
            meant = (one for one in writers if step and set(walk.matched[one.given[0]]) & set(step.given))
            writer = next(meant, writers[0])
            acts[op.number] = with_tensors(op.args, {id(tensor): walk.ops.values[writer.given[0]]})
            taken.append((op, writer))
    if taken:
        op, writer = taken[0]
        where = place_of(writer, piece)
        message = (
            f"{called(writer)}{where} writes to a tensor that {called(op)}{place_of(op, piece)} is given later; the "
            "reference's stays as it was"
        )
        fix = f"make a new tensor{where} and leave the old one as it is"
        yield at_call("operand", writer, None, acts, message, fix, name=writer.name, changes=len(acts))


def other_layers(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls of the layer that the reference calls, where another one makes the same of the same, and gets the gradient."""
    ports = {ours: theirs for theirs, ours in (*piece.partners.items(), *piece.idle.items())}
    layers = dict(piece.sides.port.layers(piece.port))
    found: dict[tuple[str, str, str], list[tuple[Op, Op]]] = {}
    for op in (one for one in walk.ops if one.name == LAYER):
        made = [walk.makers[number] for key in walk.made(op) for number in walk.matched[key] if number in walk.makers]
        step = next((one for one in made if one.name == LAYER), None)
        wanted = None if step is None else ports.get(step.said)
        if step is not None and wanted in layers and wanted != op.path:
            found.setdefault((op.path, op.place, wanted), []).append((op, step))
    for (_, _, wanted), several in found.items():
        op, step = several[0]
        where, acts = place_of(op, piece), {one.number: called_as(layers[wanted]) for one, _ in several}
        message = f"it calls {called(op)}{where}, the reference `{step.said}`{_at(step)}"
        fix = f"call `{wanted}` for {called(op)}{where}"
        yield at_call("operand", op, step, acts, message, fix, calls=len(several))


# A call too few, or too many.


def _missing_call(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls that are given the result of one more call of the reference's."""
    op, extra, alone = group[0].op, _acting(group[0].steps[:-1], walk.steps), _acting(group[0].ops, walk.ops)
    if op.name != group[0].step.name or len(extra) != 1 or len(alone) != 1 or op.written is not None:
        return
    acts, given = {}, list[int | None]()
    for one in group:
        steps = _acting(one.steps[:-1], walk.steps)
        wanted = {number for step in steps[:1] for number in step.given}
        places = [at for at, arg in enumerate(one.op.args) if wanted & set(walk.matched_given(one.op, arg))]
        made = _done(steps[0], piece, walk) if places else None
        if made is None or list(made.shape) != list(one.op.args[places[0]].shape):
            return
        acts[one.op.number] = with_arguments({places[0]: made})
        given.append(walk.number_of(one.op, one.op.args[places[0]]))
    step, key, takers = extra[0], given[0], [one.op for one in group]
    maker = walk.makers_of.get(key) if key is not None and all(one in takers for one in walk.consumers[key]) else None
    statement = Divergence(walk).before(op, step)
    own = maker is not None and maker.place not in ("", op.place)
    behind = maker if maker and own and statement in maker.frames and statement not in op.frames else None
    numbers = [value for value in step.kwargs.values() if kind_of_setting(value) == "number"]
    by = f" by {numbers[0]:.6g}" if step.name in BY and len(step.given) == 1 and numbers else ""
    settings = {} if step.name in OPERATORS else passed(step, walk, signature_of(in_paddle(step, piece)))
    kind: Literal["before", "after"] = "before" if behind is None else "after"
    yield _lacking(group, step, acts, (kind, behind or group[0].ops[0]), statement, piece, settings, by)


def _missing_behind(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls followed by one more call of the reference's."""
    acts = {}
    for one in group:
        matched = {number for key in walk.made(one.op) for number in walk.matched[key]}
        made = _done(one.step, piece, walk) if matched.intersection(one.step.given) else None
        if made is None:
            return
        acts[one.op.number] = constant(made)
    op, step = group[0].op, group[0].step
    statement, _ = Divergence(walk).statements(op, step)
    yield _lacking(group, step, acts, ("after", op), statement, piece)


def _lacking(
    group: Sequence[Parting],
    step: Op,
    acts: Mapping[int, Act],
    beside: tuple[Literal["before", "after"], Op],
    statement: Frame,
    piece: Piece,
    settings: Mapping[str, object] | None = None,
    by: str = "",
) -> Hypothesis:
    """Return the port with a call of the reference's that it lacks before or after one of its own."""
    (kind, op), settings = beside, settings or {}
    where = f"{'in front of' if kind == 'before' else 'after'} {called(op)} at {statement.place}"
    has = f"the reference has `{step.line}`{f' at {step.place}' if step.place else ''}"
    edit = None
    if len(step.given) == 1 and hasattr(piece.paddle.nn.functional, step.name):
        call = (op.path or "layer") if op.name == LAYER else op.name
        edit = CodeEdit(kind=kind, call=call, written=step.name, arguments=_as_code(settings.items()))
    return Hypothesis(
        code="missing-call",
        name=step.name,
        confirmed=True,
        acts=acts,
        message=f"it lacks `{step.said}`{by} {where}: {has}",
        calls=len(group),
        fix=f"apply `{step.name}{_shown(settings)}`{by} {where}: `{statement.line}`",
        lines=Lines(statement.source, innermost(step.frames).source),
        code_edit=edit,
    )


def _acting(calls: Sequence[Op], program: Program) -> list[Op]:
    """Return the calls that change their arguments: no cast, no dropout in eval mode."""
    found = []
    for one in calls:
        given, made = ([program.array(number) for number in numbers] for numbers in (one.given, one.made))
        idle = len(made) == 1 and any(
            array is not None and made[0] is not None and np.array_equal(array, made[0]) for array in given
        )
        if one.name not in CASTING and not idle:
            found.append(one)
    return found


def _extra_call(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls without one call in front of them that the reference does not make."""
    for extra in (one for one in group[0].ops if one.name not in CASTING or walk.alters(one)):
        partner = piece.partners.get(extra.path)
        made = any(one.name == extra.name and (extra.name != LAYER or one.said == partner) for one in group[0].steps)
        if made or group[0].op.written is not None:
            continue
        acts = {
            op.number: argument(place)
            for one in group
            for op in one.ops
            if (op.name, op.path, op.place) == (extra.name, extra.path, extra.place)
            and (place := kept_argument(op, piece, walk)) is not None
        }
        if acts:
            yield without_call(extra, acts, piece)


def kept_argument(op: Op, piece: Piece, walk: Walk) -> int | None:
    """Return which argument of a call, of its result's shape, the reference has, or will have."""
    made = piece.tensors(op.result)
    shape = list(made[0].shape) if len(made) == 1 else None
    fitting = [at for at, one in enumerate(op.args) if piece.is_tensor(one) and list(one.shape) == shape]
    return next((at for at in fitting if walk.matched_given(op, op.args[at])), next(iter(fitting), None))


def without_call(op: Op, acts: Mapping[int, Act], piece: Piece) -> Hypothesis:
    where = place_of(op, piece)
    numbers = [one for one in op.args if kind_of_setting(one) == "number"]
    by = f" by {numbers[0]:.6g}" if op.name in BY and numbers else ""
    message = f"it calls {called(op)}{by}{where}, the reference does not"
    change = CodeEdit(kind="remove", call=op.path if op.name == LAYER else op.name)
    return at_call(
        "extra-call", op, None, acts, message, f"remove {called(op)}{where}", calls=len(acts), code_edit=change
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


def in_paddle(step: Op, piece: Piece) -> Function | None:
    """Return Paddle's function of a step's name; None where there is none."""
    paddle = piece.paddle
    return getattr(paddle, step.name, None) or getattr(paddle.nn.functional, step.name, None)


def _done(step: Op, piece: Piece, walk: Walk) -> Tensor:
    """Return Paddle's counterpart of a step, applied to the port's tensors; None if it differs."""
    function = OPERATORS.get(step.name) or in_paddle(step, piece)
    keys = [walk.key_of(number) for number in step.given]
    if function is None or not step.made:
        return None
    tensors = [walk.ops.values[key] for key in keys if key is not None]
    parameters = signature_of(function)
    settings: dict[str, object] = {} if step.name in OPERATORS else passed(step, walk, parameters)
    numbers = [one for one in spelled(step, walk).values() if one is not None] if step.name in OPERATORS else []
    try:
        made = function(*tensors, *numbers, **settings) if len(tensors) == len(step.given) else None
    except Exception:  # noqa: BLE001  (Paddle may write this function otherwise: then it is not said)
        return None
    if made is None or not piece.is_tensor(made) or step.made[0] not in walk.index.find(numpy_of(made)):
        return None
    return made


# Gradients.


def cut_gradients(piece: Piece, ops: Sequence[Op], outputs: Sequence[Array]) -> Iterator[Hypothesis]:
    """Yield backward without calls that cut it, or cut where the reference cuts it."""
    side: Any = piece.sides.port
    cut: dict[int, Act] = {}
    stopped: set[int] = set()
    for op in ops:
        given = piece.floats_given(op)
        made = piece.floats(op.result)
        takes = any(not one.stop_gradient or id(one) in stopped for one in given)
        if takes and made and all(one.stop_gradient for one in made):
            stopped.update(map(id, made))

            def act(original: Function, args: tuple[Nested, ...], kwargs: Options, name: str = op.name) -> Nested:
                if name == "detach":
                    return args[0]
                with side.recording(gradient=True):
                    return original(*args, **kwargs)

            cut[op.number] = act
    for name, at in dict.fromkeys((op.name, op.place) for op in ops if op.number in cut):
        several = [op for op in ops if op.number in cut and (op.name, op.place) == (name, at)]
        message = f"{called(several[0])}{place_of(several[0], piece)} stops the gradient, the reference does not"
        acts, fix = {op.number: cut[op.number] for op in several}, f"don't cut the gradient at {at}"
        yield at_call("cut-gradient", several[0], None, acts, message, fix, name=name, calls=len(acts), confirmed=False)
    if {"detach", "stop_gradient", "set_grad_enabled", "no_grad"} & set(piece.record.names):
        yield from _detached_outputs(piece, outputs)
        yield from _missing_detaches(piece, ops)
    if len(cut) > 1:
        places = list(dict.fromkeys(f"{called(op)}{place_of(op, piece)}" for op in ops if op.number in cut))[:3]
        yield Hypothesis(
            code="cut-gradient",
            acts=cut,
            message=f"{len(cut)} of its calls stop the gradient: {', '.join(places)}",
            fix=f"don't cut the gradient in the forward of {piece.shown}",
        )


def _detached_outputs(piece: Piece, outputs: Sequence[Array]) -> Iterator[Hypothesis]:
    """Yield the outputs without their gradients that the reference detaches."""
    cut = [
        number
        for number, one in enumerate(outputs)
        if any(sketch.close(Sketch(one), SAME_SINGLE) for sketch in piece.record.detached)
    ]
    if cut and len(cut) < len(outputs):
        ends = dict(piece.ends or ())
        shown = ", ".join(str(ends.get(number, number)) for number in cut)
        yield Hypothesis(
            code="cut-gradient",
            name="detach",
            edit=lambda given: [one.detach() if number in cut else one for number, one in enumerate(given)],
            message=f"the reference stops the gradient of its outputs {shown}",
            fix=f"detach the outputs {shown} of {piece.shown}",
            place="",
        )


def _missing_detaches(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield each tensor without its gradient, those first that the reference detaches."""
    found: list[tuple[Tensor, Hypothesis]] = []

    def detach(tensor: Tensor, op: Op, act: Act, which: str) -> None:
        what = f"{which} of {called(op)}{place_of(op, piece)}"
        message, acts = f"the reference stops the gradient of {what}", {op.number: act}
        detached = at_call("cut-gradient", op, None, acts, message, f"detach {what}", name="detach", confirmed=False)
        found.append((tensor, detached))

    for op in ops:
        made = piece.floats(op.result)
        if any(not one.stop_gradient for one in made):
            detach(made[0], op, then_first(lambda one: one.detach()), "the result")
    for op in ops:
        given = [
            at for at, one in enumerate(op.args) if piece.floats([one]) and not getattr(one, "stop_gradient", True)
        ]
        names = list(op.parameters)
        for number in given if (len(given) > 1 or op.layer is not None) and op.written is None else ():
            name = names[number] if number < len(names) else str(number)
            detach(op.args[number], op, with_argument_detached(number), f"`{name}`")
    wanted = piece.record.detached
    first = {
        id(one): any(sketch.close(Sketch(numpy_of(one)), SAME_SINGLE) for sketch in wanted)
        for one, _ in (found if wanted else ())
    }
    yield from (one for _, one in sorted(found, key=lambda each: not first.get(id(each[0]))))


# The place where the programs part, if no edit mends it: the reference's tensors put in.


def by_substitution(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield the port with the reference's tensors wherever the two part: it proves the place, and both statements are shown."""
    groups = alike(walk.partings)
    if not groups:
        return
    parted = Divergence(walk)
    op, step = parted.first(proved=True)
    apart, (kind, unused), count = parted.told(op, step), _left_unused(piece, walk), len(walk.partings)
    beside = f"{len(groups) - 1} more places of its code differ" if len(groups) > 1 else ""
    made = walk.partings[0].op
    there = "tensor there" if made is op else f"tensor as the result of {called(made)}{place_of(made, piece)}"
    proof = f"tensors at {count} calls" if count > 1 else there
    yield Hypothesis(
        code=kind,
        name=class_of(op.layer) if op.name == LAYER else op.name,
        confirmed=False,
        changes=len(groups),
        acts=acts_of(walk.partings, piece.paddle.assign),
        message="; ".join(filter(None, (unused, apart.said, beside))),
        fix=apart.fix,
        evidence=f"with the reference's {proof} the error is gone",
        place=holder_of((op for one in walk.partings for op in one.ops), piece),
        lines=Lines(apart.here.source, apart.there.source),
    )


def _left_unused(piece: Piece, walk: Walk) -> tuple[str, str]:
    """Return the kind and words of a layer, or a tensor of the layer's own, that the reference uses there and the port never."""
    theirs = [step for one in alike(walk.partings)[0] for step in walk.steps.with_layout(one.steps)]
    for path, partner in piece.idle.items():
        if any(one.name == LAYER and one.said == partner for one in theirs):
            return "missing-call", f"it never calls `{path}`, the reference does"
    used = {id(one) for op in walk.ops for one in (*piece.tensors((op.args, op.kwargs)), op.written)}
    given = {number for one in theirs for number in one.given}
    for name, tensor in own_tensors(piece):
        if id(tensor) not in used and given & set(walk.index.find(numpy_of(tensor))) and "float" in str(tensor.dtype):
            return "operand", f"its `{name}` is not used, the reference's is"
    return "parting", ""
