"""One or two steps of a layer's code as the cause: left out, added, done elsewhere, or on tensors in another arrangement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice, permutations
from types import ModuleType
from typing import Any

import numpy as np

from tipchain.explain.causes.functions import ACTIVE, called, index_text, place_of
from tipchain.explain.causes.hypotheses import Hypothesis
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import (
    LAYER,
    LIKES,
    Act,
    Op,
    argument,
    constant,
    instead,
    numpy_of,
    on_input,
    then,
    then_first,
    with_argument,
    with_argument_detached,
    with_tensors,
)
from tipchain.explain.causes.program import in_order as reordered
from tipchain.explain.locate.differences import Sketch, known_numbers, relative
from tipchain.framework_types import Array, Function, Nested, Options, Tensor
from tipchain.numbers.tolerance import SAME_DOUBLE, SAME_SINGLE

# The order of things as the cause: axes and lists; and factors that are missing.


MOST_TENSORS = 14
"""Tensors of a call that are looked at: a limit on the search, three for each of query, key and value with their biases fit in."""
MOST_ORDERS = 24
"""Orders of axes that are tried: 4!, all of a tensor with four."""
MOST_AXES, FIRST = 6, 256
"""Axes of a tensor whose orders are compared rather than tried, 6! of them; numbers that tell most of them wrong."""
HEADS = 4
"""Axes that a tensor of batch, sequence and divided channels has at least."""
CURVED = frozenset({"exp", "softmax", "log_softmax", "sigmoid", "tanh"})
"""Functions of which a factor in front is another one than a factor behind."""


def by_orders(op: Op, piece: Piece, results: Sequence[object]) -> Iterator[Hypothesis]:
    """Yield lists of tensors in another order."""
    where = place_of(op, piece)
    given = op.args[0] if op.args else op.kwargs.get("x")
    if op.name in ("concat", "stack") and isinstance(given, list | tuple) and len(given) > 1:
        for order in islice(permutations(range(len(given))), 1, MOST_ORDERS):
            yield Hypothesis(
                code="concat-order",
                acts={op.number: reordered(order)},
                message=f"`{op.name}`{where} joins its tensors in the wrong order: the right one is {list(order)}",
                fix=f"give `{op.name}`{where} its tensors in the order {list(order)}: `{op.line}`",
            )
    many = isinstance(op.result, list | tuple) and all(piece.is_tensor(one) for one in op.result)
    if op.name in ("split", "chunk", "unbind", "unstack") and many and len(results) > 1:
        for order in islice(permutations(range(len(results))), 1, MOST_ORDERS):
            yield Hypothesis(
                code="swapped-qkv" if len(results) == 3 else "split-order",
                acts={op.number: then(lambda made, order=order: [made[number] for number in order])},  # type: ignore[misc]
                message=f"the parts of `{op.name}`{where} are taken in the wrong order: the right one is {list(order)}",
                fix=f"take the parts of `{op.name}`{where} in the order {list(order)}: `{op.line}`",
            )


def by_axes(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    """Yield another order of axes in front of, inside or after a call that changes shapes."""
    where = place_of(op, piece)
    given = piece.first_given(op)
    if op.name in ("reshape", "flatten", "unflatten") and given is not None:
        code = layout_code(op, given, first)
        for order in islice(permutations(range(len(given.shape))), 1, MOST_ORDERS):
            yield Hypothesis(
                code=code,
                acts={op.number: _transposed_before(order)},
                message=f"the axes are in another order in front of `{op.name}`{where}",
                fix=f"transpose by {list(order)} in front of `{op.name}`{where}: `{op.line}`",
            )
        for order in islice(permutations(range(len(first.shape))), 1, MOST_ORDERS):
            sizes = [first.shape[axis] for axis in order]
            back = sorted(range(len(order)), key=order.__getitem__)
            yield Hypothesis(
                code=code,
                acts={op.number: instead(lambda one, sizes=sizes, back=back: one.reshape(sizes).transpose(back))},  # type: ignore[misc]
                message=f"`{op.name}`{where} divides an axis in another order",
                fix=f"reshape to {sizes} and transpose by {back} for `{op.name}`{where}: `{op.line}`",
            )
    yield from _ordered_as_expected(op, piece, given)
    rank = len(first.shape)
    if 1 < rank <= 4 and op.name != LAYER:
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if [first.shape[axis] for axis in order] == list(first.shape):
                yield Hypothesis(
                    code="axis-order",
                    acts={op.number: then_first(lambda one, order=order: one.transpose(list(order)))},  # type: ignore[misc]
                    message=f"the result of `{op.name}`{where} has its axes in another order",
                    fix=f"transpose the result of `{op.name}`{where} by {list(order)}: `{op.line}`",
                )


def _ordered_as_expected(op: Op, piece: Piece, given: Tensor) -> Iterator[Hypothesis]:
    """Yield the order of a transposition's axes in which its numbers are the reference's output, of more axes than can be tried."""
    truth = piece.truth.outputs
    if op.name not in TRANSPOSING or given is None or not truth or not HEADS < len(given.shape) <= MOST_AXES:
        return
    expected, array = truth[0].reshape(-1), numpy_of(given)
    if array.size != expected.size:
        return
    for order in permutations(range(array.ndim)):
        turned = array.transpose(order)
        close = relative(expected[:FIRST], turned.flat[:FIRST]) <= SAME_DOUBLE
        if close and relative(expected, turned.reshape(-1)) <= SAME_DOUBLE:
            yield Hypothesis(
                code="axis-order",
                acts={op.number: instead(lambda one, order=order: one.transpose(list(order)))},  # type: ignore[misc]
                message=f"`{op.name}`{place_of(op, piece)} takes the axes in the wrong order: the right one is {list(order)}",
                fix=f"pass {list(order)} to `{op.name}`{place_of(op, piece)}: `{op.line}`",
            )
            return


def layout_code(op: Op, given: Tensor, made: Tensor) -> str:
    """Return the slug of a call that arranges numbers otherwise: of heads or windows, of a flattened tensor, of axes."""
    if op.name not in ("reshape", "flatten", "unflatten"):
        return "axis-order"
    heads = op.name == "reshape" and max(len(given.shape), len(made.shape)) >= HEADS
    return "head-order" if heads else "flatten-order"


def _transposed_before(order: Sequence[int]) -> Act:
    """Return a call of its argument transposed, its result in the shape that it would have had."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        shape = original(*args, **kwargs).shape
        return original(args[0].transpose(list(order)), *args[1:], **kwargs).reshape(shape)

    return act


def _times(factor: float, tensor: Tensor) -> object:
    return tensor * factor


def by_scales(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    """Yield the result times numbers that models multiply by; of the reference's own code first."""
    where = place_of(op, piece)
    sizes = [int(size) for one in (first, *piece.floats_given(op)) for size in one.shape]
    told = {
        float(value): f"{value:.6g}"
        for name in ("multiply", "divide", "rdiv", "pow", "add")
        for value in piece.truth.record.constants.get(name, ())
        if isinstance(value, int | float) and value
    }
    told.update({1 / value: f"1/{value:.6g}" for value in told})
    # A softmax hides how much is added where a mask is: any number that is large enough explains as much.
    known = {} if np.isin(numpy_of(first), (0, 1)).all() else known_numbers(sizes)
    for value, name in {**told, **{key: one for key, one in known.items() if key not in told}}.items():
        if value == 1:
            continue
        code = "sign" if value == -1 else "scale-factor"
        if op.name in CURVED:
            yield Hypothesis(
                code=code,
                acts={op.number: on_input(partial(_times, value))},
                confirmed=value in told,
                message=f"the reference multiplies what goes into {called(op)}{where} by {name}",
                fix=f"multiply what goes into {called(op)}{where} by {name}: `{op.line}`",
            )
        yield Hypothesis(
            code=code,
            acts={op.number: then_first(partial(_times, value))},
            confirmed=value in told,
            message=f"the reference multiplies by {name} after {called(op)}{where}",
            fix=f"multiply the result of {called(op)}{where} by {name}: `{op.line}`",
        )


# Which calls of a layer's code are looked at first: those near the first whose result the reference does not have.


NEAR = 3
"""How far cleared calls may be from the first doubtful one to be looked at with it."""


class Flow:
    """Which calls rest on which.

    Attributes:
        directs: by call, the calls whose results it is given.
        rests: by call, all calls that it rests on.
    """

    def __init__(self, ops: Sequence[Op], piece: Piece) -> None:
        self.directs: list[set[int]] = []
        self.rests: list[set[int]] = []
        makers: dict[int, int] = {}
        for index, op in enumerate(ops):
            given = piece.tensors((op.args, dict(op.kwargs)))
            given = given if op.written is None else [op.written, *given]
            direct = {makers[id(one)] for one in given if id(one) in makers}
            self.directs.append(direct)
            self.rests.append(direct.union(*(self.rests[one] for one in direct)))
            for one in piece.tensors(op.result):
                makers.setdefault(id(one), index)
            if op.written is not None:
                makers[id(op.written)] = index


def in_order(ops: Sequence[Op], piece: Piece) -> list[Op]:
    """Return the calls, those near the first doubtful one first.

    A call is cleared where the reference has a tensor of the same values, in whatever order, and so is all that it
    rests on. What nothing wrong rests on, and what is cleared and far from the first doubtful one, comes last.
    """
    flow = Flow(ops, piece)
    directs, rests = flow.directs, flow.rests
    made = [piece.floats(op.result) for op in ops]
    cleared = {index for index, ones in enumerate(made) if ones and all(_known(one, piece) for one in ones)}
    cleared = cleared.union(*(rests[index] for index in cleared))
    last = piece.consumer_call if piece.consumer_call >= 0 else len(ops)
    end = next((index for index, op in enumerate(ops) if op.number == last), len(ops) - 1)
    ends = {end} if piece.consumer_call >= 0 else _ends(ops, directs, piece)
    wanted = ends.union(*(rests[index] for index in ends))
    cleared |= {index for index, op in enumerate(ops) if op.name == LAYER and op.path in piece.judged}
    suspects = [index for index in range(len(ops)) if index not in cleared and index in wanted]
    makes = [index for index in suspects if piece.floats(ops[index].result)]
    doubtful = next(iter(makes or suspects), end)
    frontier: set[int] = directs[doubtful] if ops else set()

    def place(index: int) -> tuple[bool, bool, float, int]:
        apart = 1.0 if index in frontier else abs(index - doubtful + 0.25)
        aside = index not in wanted or (index in cleared and apart > NEAR)
        return ops[index].number >= last, aside, apart, index

    return [ops[index] for index in sorted(range(len(ops)), key=place)]


def _ends(ops: Sequence[Op], directs: Sequence[set[int]], piece: Piece) -> set[int]:
    """Return the calls whose results nothing takes and that may be outputs, by their shapes; all if there are none."""
    taken: set[int] = set().union(*directs)
    sizes = {int(np.prod(one.shape)) for one in piece.truth.outputs}
    return {
        index
        for index, op in enumerate(ops)
        if index not in taken and any(int(np.prod(one.shape)) in sizes for one in piece.tensors(op.result))
    } or set(range(len(ops)))


def _known(tensor: object, piece: Piece) -> bool:
    sketch = Sketch(numpy_of(tensor))
    return any(sketch.close(one, SAME_DOUBLE) for one in piece.truth.record.sketches)


def available_before(op: Op, ops: Sequence[Op], piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the tensors that there were before a call, the latest first, with names for messages."""
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()

    def take(tensors: Sequence[object], name: str) -> None:
        for one in tensors:
            if id(one) not in seen:
                seen.add(id(one))
                found.append((name, one))

    for earlier in reversed([one for one in ops if one.number < op.number]):
        told = f"the result of `{earlier.path}`" if earlier.path else f"the result of `{earlier.line or earlier.name}`"
        take(piece.tensors(earlier.result), told)
        take(
            piece.tensors((earlier.args, dict(earlier.kwargs))),
            f"what goes into `{earlier.path or earlier.line or earlier.name}`",
        )
    take(piece.tensors((op.args, dict(op.kwargs))), "what goes in")
    taken = [(list(one.shape), one) for _, one in found]
    for number, array in enumerate(piece.theirs.inputs):
        held = any(shape == list(array.shape) and np.array_equal(one.numpy(), array) for shape, one in taken)
        if not held:
            found.append(
                (f"input {piece.theirs.call.input_names[number]}", piece.sides.port.tensor(array, gradient=False))
            )
    return found


# Masks as the cause: missing, hiding the opposite, or too weak.


HIDDEN = -1e30
"""What is added to scores of what may not be seen: float32 holds it, and its exponential is 0 in float64, too."""


def by_masks(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield softmax of masked values: what comes later is hidden, or what a tensor of the model hides."""
    if op.name != "softmax" and type(op.layer).__name__ != "Softmax":
        return
    paddle, where, shape = piece.paddle, place_of(op, piece), list(op.result.shape)
    masks: list[tuple[str, str, Tensor]] = []
    if len(shape) >= 2 and shape[-1] == shape[-2]:
        seen = paddle.tril(paddle.ones(shape[-2:], dtype="int32")).astype("bool")
        masks.append(("causal-mask", "what comes later", seen))
    for name, tensor in available_before(op, ops, piece):
        if "float" not in str(tensor.dtype):
            flags = tensor if "bool" in str(tensor.dtype) else tensor != 0
            for fitted in _fitted(flags, shape):
                masks += [
                    ("missing-mask", f"where {name} is zero", fitted),
                    ("missing-mask", f"where {name} is not zero", paddle.logical_not(fitted)),
                ]
    for code, told, seen in masks[:MOST_TENSORS]:
        yield Hypothesis(
            code=code,
            acts={op.number: on_input(partial(_hidden, paddle, seen))},
            message=f"it does not mask {told} in front of softmax{where}",
            fix=f"add a mask that hides {told} in front of softmax{where}: `{op.line}`",
        )


def _hidden(paddle: ModuleType, seen: Tensor, scores: Tensor) -> Tensor:
    hidden = paddle.full(scores.shape, HIDDEN, dtype=scores.dtype)
    return paddle.where(paddle.broadcast_to(seen, scores.shape), scores, hidden)


def _fitted(flags: Tensor, shape: Sequence[int]) -> Iterator[Tensor]:
    """Yield a mask as it fits to scores: by keys where it has one axis for them."""
    sizes = list(flags.shape)
    rank = len(shape)
    if sizes == [shape[0], shape[-1]] and rank > 2:
        yield flags.reshape([shape[0], *[1] * (rank - 2), shape[-1]])
    elif rank >= len(sizes) and all(a in (1, b) for a, b in zip(reversed(sizes), reversed(shape), strict=False)):
        yield flags


def by_indices(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield indexing with another number: the last for the first, one further."""
    if op.name != "getitem" or len(op.args) < 2:
        return
    items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    where = place_of(op, piece)
    slices = [place for place, item in enumerate(items) if isinstance(item, slice) and item != slice(None)]
    if len(slices) > 1:
        for by in (1, -1):
            moved = tuple(_shifted(item, by) if place in slices else item for place, item in enumerate(items))
            present, wanted = index_text(items), index_text(moved)
            yield Hypothesis(
                code="off-by-one",
                acts={op.number: with_argument(1, moved)},
                message=f"it takes index [{present}]{where}, which is shifted: the reference [{wanted}]",
                fix=f"write [{wanted}] for [{present}]{where}: `{op.line}`",
            )
    for place, item in enumerate(items):
        if isinstance(item, int):
            changed: list[object] = [one for one in (0, -1, item + 1, item - 1, 1, 2) if one != item]
        elif isinstance(item, slice) and (item.start is not None or item.stop is not None):
            changed = [_shifted(item, by) for by in (1, -1)]
        elif isinstance(item, slice) and item.step == -1:
            changed = [slice(None)]
        else:
            continue
        for value in changed:
            new = (*items[:place], value, *items[place + 1 :])
            code = "wrong-index" if isinstance(item, int) else "off-by-one"
            yield Hypothesis(
                code=code,
                acts={op.number: with_argument(1, new)},
                message=f"it takes index {index_text(item)}{where}, the reference {index_text(value)}",
                fix=f"write {index_text(value)} for {index_text(item)}{where}: `{op.line}`",
            )


def _shifted(item: slice, by: int) -> slice:
    """Return a slice moved by one, of the same length where it ends at the first or the last."""
    if by > 0:
        return slice((item.start or 0) + 1, None if item.stop in (None, -1) else item.stop + 1, item.step)
    start = None if item.start in (None, 0, 1) else item.start - 1
    return slice(start, -1 if item.stop is None else item.stop - 1, item.step)


# Two steps of a layer's code as the cause, and layers that are called elsewhere or not at all.


MOST_MOVES = 60
"""Changes that are tried together with others: a limit on the search."""
MOMENTS = frozenset({"mean", "var", "std", "norm", "sum"})
EVERYWHERE = frozenset(
    """
    head-order concat-order flatten-order axis axis-order scale-factor other-activation gelu-form negative-slope
    epsilon missing-activation interpolation-mode align-corners align-mode padding-mode pooling reduction
    softmax-axis causal-mask mask-inverted extra-activation extra-step sign other-operation shift split-order
    slope alpha norm-p
""".split()
)
"""Causes that a helper's code has wherever it is called."""


def output_order(piece: Piece, outputs: Sequence[Array], ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield the piece with its outputs in the reference's order, or with another of its tensors as one of several outputs."""
    truths = piece.truth.outputs
    if len(outputs) < 2 or len(outputs) != len(truths):
        return
    order = [
        next(
            (at for at, one in enumerate(outputs) if one.shape == truth.shape and relative(truth, one) <= SAME_DOUBLE),
            -1,
        )
        for truth in truths
    ]
    if sorted(order) == list(range(len(order))) != order:
        ends = piece.ends or tuple((number, number) for number in order)
        shown = [port for _, port in sorted((ends[at][0], ends[each][1]) for at, each in enumerate(order))]
        told = "reversed" if shown == sorted(shown, reverse=True) else "in another order"
        yield Hypothesis(
            code="output-order",
            edit=lambda given: [given[at] for at in order],
            confirmed=True,
            message=f"its outputs are {told}: the reference's are its numbers {', '.join(map(str, shown))}",
            fix=f"return the outputs of {piece.shown} in the order {shown}",
        )
    wrong = [number for number, at in enumerate(order) if at != number]
    for number in wrong if len(wrong) == 1 else ():
        returned, wanted = _made_as(outputs[number], ops, piece), _made_as(truths[number], ops, piece)
        if wanted is not None:
            (op, tensor), (here, _) = wanted, returned or (None, None)
            told = "another tensor" if here is None else f"the result of {called(here)}{place_of(here, piece)}"
            what = f"the result of {called(op)}{place_of(op, piece)}"
            yield Hypothesis(
                code="wrong-output",
                edit=lambda given, at=number, one=tensor: [*given[:at], one, *given[at + 1 :]],  # type: ignore[misc]
                message=f"its output {number} is {told}, the reference's {what}",
                fix=f"return {what} as output {number} of {piece.shown}",
                place="",
            )


def _made_as(array: Array, ops: Sequence[Op], piece: Piece) -> tuple[Op, Tensor] | None:
    made = ((op, one) for op in reversed(ops) for one in piece.floats(op.result) if tuple(one.shape) == array.shape)
    return next(((op, one) for op, one in made if relative(array, numpy_of(one)) <= SAME_DOUBLE), None)


def everywhere(hypotheses: Iterator[Hypothesis], op: Op, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield each hypothesis about a call, and the same about all calls of that function that look alike.

    Those are the calls from the same line (a helper that is called for query, key and value), and reductions over
    the same axes (a mean and a variance).
    """
    alike = [one.number for one in ops if one is not op and _alike(one, op)]
    for one in hypotheses:
        yield one
        if alike and list(one.acts) == [op.number] and one.code in EVERYWHERE:
            acts = dict.fromkeys((op.number, *alike), one.acts[op.number])
            heads = one.code == "axis-order" and len(acts) >= 3
            code = "norm-axes" if one.code == "axis" else "head-order" if heads else one.code
            yield replace(one, acts=acts, code=code, message=f"{one.message}, in {len(acts)} calls")


def _alike(one: Op, other: Op) -> bool:
    if LAYER in (one.name, other.name):
        return one.name == other.name and one.layer is other.layer
    if one.name == other.name and one.place == other.place and bool(one.place):
        return True
    if one.name == other.name and one.kwargs and _settings(one) == _settings(other):
        return True
    axis, another = (op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else None) for op in (one, other))
    both = one.name in MOMENTS and other.name in MOMENTS
    return both and axis is not None and type(axis) is type(another) and axis == another


def _settings(op: Op) -> list[tuple[str, str]]:
    return sorted((name, repr(value)) for name, value in op.kwargs.items() if not hasattr(value, "shape"))


def norms(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield all norms of a block behind its sums, or all in front of its branches."""
    found = [
        one for one in ops if one.name == LAYER and "Norm" in type(one.layer).__name__ and _keeps_shape(one, piece)
    ]
    sums = [one for one in ops if one.name == "add" and len(piece.floats(one.args)) == 2]
    behind: dict[int, Act] = {}
    for norm in found:
        kept = next(
            (one for one in sums if one.number > norm.number and any(norm.args[0] is each for each in one.args)), None
        )
        if kept is not None and _fits(norm, kept, piece):
            behind.update(_moved(norm, kept))
    if behind:
        yield Hypothesis(
            code="norm-order",
            acts=behind,
            message="it applies its norms in front of its branches, the reference behind the sums",
            fix=f"apply each norm to the sum in the forward of {piece.shown}: `norm(x + branch(x))`",
        )
    front: dict[int, Act] = {}
    for norm in found:
        total = next((one for one in sums if one.result is norm.args[0]), None)
        branch = None if total is None else _branch(total, ops, piece)
        if branch is not None:
            front[norm.number] = argument(0)
            front.update(dict.fromkeys(branch, _normed(norm)))
    if front:
        yield Hypothesis(
            code="norm-order",
            acts=front,
            message="it applies its norms behind the sums, the reference in front of its branches",
            fix=f"apply each norm in front of its branch in the forward of {piece.shown}: `x + branch(norm(x))`",
        )


def _branch(total: Op, ops: Sequence[Op], piece: Piece) -> list[int] | None:
    """Return the layers that are given the tensor that a sum adds to what they make."""
    kept = {id(one) for one in piece.floats(total.args)}
    found = [
        one.number
        for one in ops
        if one.name == LAYER
        and one.number < total.number
        and "Norm" not in type(one.layer).__name__
        and any(id(tensor) in kept for tensor in piece.floats(one.args[:1]))
        and one.result is not one.args[0]
    ]
    return found or None


def _normed(norm: Op) -> Act:
    return lambda original, args, kwargs: original(norm.layer(args[0]), *args[1:], **kwargs)


def moves(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield one step done later or earlier: two neighbours exchanged, a norm moved behind or in front of others."""
    unary = [one for one in ops if _keeps_shape(one, piece)]
    made = 0
    for op in unary:
        norm = op.name == LAYER and "Norm" in type(op.layer).__name__
        for other in ops:
            near = abs(other.number - op.number) == 1
            if other is op or not (near or norm) or made >= MOST_MOVES or not _fits(op, other, piece):
                continue
            made += 1
            of_norms = norm or (other.name == LAYER and "Norm" in type(other.layer).__name__)
            yield Hypothesis(
                code=_order_code(op, other, norms=of_norms),
                acts=_moved(op, other),
                message=f"it applies {called(op)}{place_of(op, piece)}, the reference after {called(other)}{place_of(other, piece)}",
                fix=f"apply {called(op)} after {called(other)}{place_of(other, piece)}: `{other.line}`",
            )


def _order_code(op: Op, other: Op, *, norms: bool) -> str:
    kinds = [one.name if one.layer is None else type(one.layer).__name__ for one in (op, other)]
    active = any(kind in ACTIVE for kind in kinds)
    if active and norms:
        return "activation-order"
    if active and "add" in kinds:
        return "residual-order"
    return "norm-order" if norms else "order"


def _moved(op: Op, other: Op) -> Mapping[int, Act]:
    """Return what leaves out one call, and does it after another instead."""

    def later(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        result = original(*args, **kwargs)
        return op.layer(result) if op.layer is not None else _again(op, result)

    return {op.number: argument(0), other.number: later}


def _again(op: Op, tensor: object) -> Nested:
    function = getattr(tensor, op.name, None)
    if function is None:
        import paddle

        function = getattr(paddle.nn.functional, op.name)
        return function(tensor, *op.args[1:], **op.kwargs)
    return function(*op.args[1:], **op.kwargs)


def _keeps_shape(op: Op, piece: Piece) -> bool:
    given = piece.floats_given(op)
    made = piece.floats(op.result)
    return len(given) == 1 and len(made) == 1 and list(given[0].shape) == list(made[0].shape) and bool(op.args)


def _fits(op: Op, other: Op, piece: Piece) -> bool:
    made = piece.floats(other.result)
    return len(made) == 1 and list(made[0].shape) == list(op.args[0].shape)


def gradients(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield backward without what cuts it."""
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
            yield Hypothesis(
                code="stop-gradient",
                acts={op.number: act},
                message=f"{called(op)}{place_of(op, piece)} stops the gradient",
                fix=f"don't cut the gradient at {op.place}: `{op.line}`",
            )
    if {"detach", "stop_gradient", "set_grad_enabled", "no_grad"} & set(piece.truth.record.names):
        found, wanted = list(_missing_detaches(piece, ops)), piece.truth.record.detached
        first = {
            id(one): any(sketch.close(Sketch(numpy_of(one)), SAME_SINGLE) for sketch in wanted)
            for one, _ in (found if wanted else ())
        }
        yield from (one for _, one in sorted(found, key=lambda each: not first.get(id(each[0]))))
    if len(cut) > 1:
        places = list(dict.fromkeys(f"{called(op)}{place_of(op, piece)}" for op in ops if op.number in cut))[:3]
        yield Hypothesis(
            code="stop-gradient",
            acts=cut,
            message=f"{len(cut)} of its calls stop the gradient: {', '.join(places)}",
            fix=f"don't cut the gradient in the forward of {piece.shown}",
        )


def _missing_detaches(piece: Piece, ops: Sequence[Op]) -> Iterator[tuple[Tensor, Hypothesis]]:
    """Yield the tensors whose gradient may have to be stopped, each with what stops it."""
    for op in ops:
        made = piece.floats(op.result)
        if any(not one.stop_gradient for one in made):
            yield (
                made[0],
                Hypothesis(
                    code="missing-detach",
                    acts={op.number: then_first(lambda one: one.detach())},
                    message=f"the reference stops the gradient of what {called(op)}{place_of(op, piece)} returns",
                    fix=f"detach the result of {called(op)}{place_of(op, piece)}: `{op.line}`",
                ),
            )
    for op in ops:
        given = [
            n
            for n, one in enumerate(op.args)
            if any(each is one and not one.stop_gradient for each in piece.floats([one]))
        ]
        names = list(op.parameters)
        for number in given if (len(given) > 1 or op.layer is not None) and op.written is None else ():
            name = names[number] if number < len(names) else str(number)
            yield (
                op.args[number],
                Hypothesis(
                    code="missing-detach",
                    acts={op.number: with_argument_detached(number)},
                    message=f"the reference stops the gradient of `{name}` of {called(op)}{place_of(op, piece)}",
                    fix=f"detach `{name}` of {called(op)}{place_of(op, piece)}: `{op.line}`",
                ),
            )


# One step of a layer's code as the cause: a step left out, added, or done to other tensors.


BINARY = frozenset({"add", "subtract", "multiply", "divide", "matmul", "maximum", "minimum", "rsub", "rdiv", "pow"})
TRANSPOSING = frozenset({"t", "transpose", "swapaxes", "moveaxis"})


def by_step(op: Op, piece: Piece, available: Sequence[tuple[str, object]]) -> Iterator[Hypothesis]:
    """Yield what may be wrong with one call and what is done with it."""
    results = piece.floats(op.result)
    if not results:
        return
    first = results[0]
    yield from _left_out(op, piece, first)
    yield from by_indices(op, piece)
    yield from _residual(op, piece, first, available)
    yield from by_axes(op, piece, first)
    yield from by_scales(op, piece, first)


def _left_out(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    given = piece.first_given(op)
    where = place_of(op, piece)
    if given is None or list(given.shape) != list(first.shape) or op.name in LIKES:
        return
    if op.name not in BINARY:
        skip: Act = lambda _, args, kwargs: piece.floats((args, kwargs))[0]  # noqa: E731
        does = f"it transposes by {called(op)}{where}, which" if op.name in TRANSPOSING else f"its {called(op)}{where}"
        yield Hypothesis(
            code=_extra_code(op),
            acts={op.number: skip},
            message=f"{does} is not in the reference",
            fix=f"remove {called(op)}{where}: `{op.line}`",
        )
    else:
        for number, side in enumerate(op.args[:2]):
            if piece.is_tensor(side) and list(side.shape) == list(first.shape):
                keep = argument(number)
                other = op.args[1 - number]
                whole = piece.is_tensor(other) and list(other.shape) == list(first.shape)
                code = {
                    "add": "residual" if whole else "extra-term",
                    "multiply": "scale-factor",
                    "divide": "scale-factor",
                }.get(op.name, "extra-step")
                code = "extra-mask" if piece.is_mask(other) else code
                yield Hypothesis(
                    code=code,
                    acts={op.number: keep},
                    message=f"its `{op.name}`{'' if piece.is_tensor(other) else f' by {other!r}'}{where} is not in the reference",
                    fix=f"remove `{op.name}`{where}: `{op.line}`",
                )


def _extra_code(op: Op) -> str:
    kind = op.name if op.layer is None else type(op.layer).__name__.lower()
    for word, code in (
        ("norm", "extra-norm"),
        ("dropout", "extra-dropout"),
        ("astype", "lower-precision"),
        ("scale", "scale-factor"),
        ("where", "extra-mask"),
        ("masked_fill", "extra-mask"),
        ("roll", "order"),
        ("flip", "order"),
    ):
        if word in kind:
            return code
    if kind in TRANSPOSING:
        return "axis-order"
    return "extra-step" if op.layer is None else "extra-layer"


def _residual(op: Op, piece: Piece, first: Tensor, available: Sequence[tuple[str, Tensor]]) -> Iterator[Hypothesis]:
    where = place_of(op, piece)
    shape = list(first.shape)
    fitting = [(name, one) for name, one in available if list(one.shape) == shape and one is not first]
    for name, tensor in fitting[:MOST_TENSORS]:
        # A sum is no residual where it already is in this one.
        yield Hypothesis(
            code="missing-residual",
            acts={op.number: then_first(tensor.add)},
            message=f"it does not add {name} to the result of {called(op)}{where}",
            fix=f"add {name} to the result of {called(op)}{where}",
        )


def exchanged(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield this call's result exchanged with that of another of the same kind, given the same."""
    given = piece.first_given(op)
    for other in ops:
        if other.number <= op.number or other.name != op.name:
            continue
        same = op.name in (LAYER, "getitem", "linear", "matmul") and piece.first_given(other) is given
        if not same and op.name not in ("concat", "roll", "flip", "pad"):
            continue
        shapes, others = ([list(one.shape) for one in piece.tensors(each.result)] for each in (op, other))
        if shapes != others:
            continue
        words = f"{op.path} {other.path} {op.line} {other.line}".lower()
        code = "swapped-qkv" if any(word in words for word in ("q", "query", "key", "attn")) else "swapped-inputs"
        yield Hypothesis(
            code=code,
            acts={op.number: constant(other.result), other.number: constant(op.result)},
            message=f"the results of {called(op)} and {called(other)} stand in each other's place",
            fix=f"exchange the results of {called(op)}{place_of(op, piece)} and {called(other)}{place_of(other, piece)}",
        )


def in_helpers(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield two tensors exchanged in all that one of the user's functions does with them: its arguments stand in the wrong order."""
    calls: dict[tuple[tuple[str, str], ...], list[Op]] = {}
    for op in ops:
        for depth in range(len(op.helpers)):
            calls.setdefault(op.helpers[depth:], []).append(op)
    for (helper, *_), inside in calls.items():
        made = {id(one) for op in inside for one in piece.tensors(op.result)}
        given: dict[int, Tensor] = {}
        for op in inside:
            given |= {id(one): one for one in piece.floats_given(op) if id(one) not in made}
        tensors = list(given.values())[:MOST_TENSORS]
        for one, other in combinations(tensors, 2):
            if list(one.shape) != list(other.shape):
                continue
            changes = {id(one): other, id(other): one}
            name, place = helper
            yield Hypothesis(
                code="swapped-inputs",
                acts={
                    op.number: with_tensors(op.args, changes)
                    for op in inside
                    if any(id(each) in changes for each in piece.tensors(op.args))
                },
                message=f"two arguments of `{name}`, called at {place}, are exchanged",
                fix=f"exchange the arguments of `{name}` at {place} that are tensors of shape {list(one.shape)}",
            )
