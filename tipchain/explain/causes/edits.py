"""The catalogue of edits: the port's calls as the reference makes them, at the places where both programs part."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from tipchain.explain.causes.apart import Divergence
from tipchain.explain.causes.hypotheses import Hypothesis, Lines, called, class_of, holder_of, lines_of, place_of
from tipchain.explain.causes.lines import innermost
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import (
    LAYER,
    Act,
    Op,
    Program,
    called_as,
    numpy_of,
    signature_of,
    then_first,
    with_argument_detached,
    with_arguments,
)
from tipchain.explain.causes.tensors import own_tensors
from tipchain.explain.causes.walk import CASTING, Parting, Walk, acts_of
from tipchain.explain.findings import CodeEdit
from tipchain.explain.locate.differences import Sketch
from tipchain.facts.functions import DEFAULTS, NAMES, OPPOSITES
from tipchain.framework_types import Array, Function, Model, Nested, Options, Setting, Tensor
from tipchain.frameworks.randomness import attributes
from tipchain.numbers.tolerance import SAME_SINGLE

ASIDE = frozenset(
    {"inplace", "out", "dtype", "device", "requires_grad", "layout", "memory_format", "non_blocking", "copy"}
)
"""Settings of the place where a result is kept, not of its value."""
SIZES = frozenset({"view", "reshape", "permute", "repeat", "expand", "flip", "tile"})
"""Torch's methods that take a list of numbers one by one."""


def alike(partings: Sequence[Parting]) -> list[list[Parting]]:
    """Return the partings, those of one line and function of both programs together."""
    found: dict[tuple[str, ...], list[Parting]] = {}
    for one in partings:
        where = (one.op.place, one.op.name, one.op.path, one.step.place, one.step.said)
        found.setdefault(where, []).append(one)
    return list(found.values())


def at_call(
    code: str, op: Op, step: Op | None, acts: Mapping[int, Act], message: str, fix: str, **more: Setting
) -> Hypothesis:
    """Return an edit of a call's statement, which does what the reference's does."""
    given = {"name": class_of(op.layer) if op.name == LAYER else op.name, "confirmed": True, **more}
    return Hypothesis(
        code=code, acts=acts, message=message, fix=f"{fix}: `{op.line}`", lines=lines_of(op, step), **given
    )


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


def as_ports(value: object, present: object) -> object:
    """Return a value of torch's as the port writes such values: a tuple as a list, texts with the port's capitals."""
    if isinstance(value, tuple) and kind_of_setting(value) == "list":
        return list(value) if not isinstance(present, tuple) else value
    if isinstance(value, str) and isinstance(present, bool):
        return value == "tanh"
    if isinstance(value, str) and isinstance(present, str) and present.isupper():
        return value.upper()
    return value


def kind_of_setting(value: object) -> str:
    """Return a word for the kind of a setting."""
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


def as_code(settings: Iterable[tuple[str, object]]) -> tuple[tuple[str, str], ...]:
    """Return settings with their values as code."""
    return tuple((name, repr(value)) for name, value in settings)


def _shown(settings: Mapping[str, object]) -> str:
    return f"({', '.join(f'{name}={value!r}' for name, value in settings.items())})" if settings else ""


def passed(step: Op, walk: Walk, parameters: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    """Return the reference's settings as arguments of Paddle's function."""
    names, settings = list(parameters), dict[str, object]()
    for name, value in spelled(step, walk).items():
        given = names[int(name)] if name.isdigit() and int(name) < len(names) else name
        if given in parameters and value is not None:
            wanted = as_ports(value, parameters[given].default)
            settings[given] = list(wanted) if isinstance(wanted, tuple) else wanted
    return settings


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
        message = f"it calls {called(op)}{where}, the reference `{step.said}` at {step.place} (`{step.line}`)"
        fix = f"call `{wanted}` for {called(op)}{where}"
        yield at_call("operand", op, step, acts, message, fix, calls=len(several))


def idle_layers(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Call a block that the reference calls and the port never, in place of another of its class."""
    layers = dict(piece.sides.port.layers(piece.port))
    for path, partner in piece.idle.items():
        for other in (one for one, layer in layers.items() if type(layer) is type(layers.get(path)) and one != path):
            calls = [frames for name, frames in walk.ops.entered if name == other]
            for turn, frames in enumerate(calls):
                there = innermost(frames)
                yield Hypothesis(
                    code="operand",
                    name=class_of(layers[path]),
                    within=partial(_redirected, layers[other], layers[path], turn),
                    message=f"it calls `{other}` at {there.place} (`{there.line}`) and never `{path}`, the reference calls `{partner}`",
                    fix=f"call `{path}` for `{other}` at {there.place}",
                    lines=Lines(there.source),
                )


@contextmanager
def _redirected(layer: Model, other: Model, turn: int) -> Iterator[None]:
    """Run ``other`` in place of ``layer`` at that turn of its calls, counted over all runs."""
    original, turns = layer.forward, count()

    def forward(*args: Nested, **kwargs: Nested) -> Nested:
        return (other.forward if next(turns) == turn else original)(*args, **kwargs)

    with attributes(layer, forward=forward):
        yield


# A call too few, or too many.


def missing_calls(piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
    """Yield calls that are given the result of one more call of the reference's, where the programs part."""
    for group in alike(walk.partings):
        yield from _missing_call(group, piece, walk)


def _missing_call(group: Sequence[Parting], piece: Piece, walk: Walk) -> Iterator[Hypothesis]:
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
    by = f" by {numbers[0]:.6g}" if step.name in OPERATORS and len(step.given) == 1 and numbers else ""
    settings = {} if step.name in OPERATORS else passed(step, walk, signature_of(in_paddle(step, piece)))
    op, where = behind or group[0].ops[0], "in front of" if behind is None else "after"
    where = f"{where} {called(op)} at {statement.place}"
    edit = None
    if len(step.given) == 1 and hasattr(piece.paddle.nn.functional, step.name):
        call = (op.path or "layer") if op.name == LAYER else op.name
        edit = CodeEdit(
            kind="before" if behind is None else "after",
            call=call,
            written=step.name,
            arguments=as_code(settings.items()),
        )
    has = f"the reference has `{step.line}`{f' at {step.place}' if step.place else ''}"
    yield Hypothesis(
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
    """Yield each statement's result, or argument, without its gradient; those first that the reference detaches."""
    found: dict[tuple[str, str, str], list[tuple[Tensor, Op, Act]]] = {}
    for op in ops:
        made = piece.floats(op.result)
        if any(not one.stop_gradient for one in made):
            act = then_first(lambda one: one.detach())
            found.setdefault((called(op), op.place, "the result"), []).append((made[0], op, act))
    for op in ops:
        given = [
            at for at, one in enumerate(op.args) if piece.floats([one]) and not getattr(one, "stop_gradient", True)
        ]
        names = list(op.parameters)
        for number in given if (len(given) > 1 or op.layer is not None) and op.written is None else ():
            name = f"`{names[number] if number < len(names) else number}`"
            turn = op.args[number], op, with_argument_detached(number)
            found.setdefault((called(op), op.place, name), []).append(turn)

    def is_wanted(turns: Sequence[tuple[Tensor, Op, Act]]) -> bool:
        sketches = (Sketch(numpy_of(one)) for one, *_ in turns if piece.record.detached)
        return any(wanted.close(one, SAME_SINGLE) for one in sketches for wanted in piece.record.detached)

    for (_, _, which), turns in sorted(found.items(), key=lambda one: not is_wanted(one[1])):
        op, acts = turns[0][1], {each.number: act for _, each, act in turns}
        what = f"{which} of {called(op)}{place_of(op, piece)}"
        message = f"the reference stops the gradient of {what}"
        more: Options = {"name": "detach", "confirmed": False, "calls": len(acts)}
        yield at_call("cut-gradient", op, None, acts, message, f"detach {what}", **more)


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
