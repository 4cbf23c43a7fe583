"""Functions and arguments as causes: left out, added, mistaken for each other, or set otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import product
from types import ModuleType

from tipchain.explain.causes.hypotheses import Hypothesis
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, Act, Op, Unary, instead, then, with_argument
from tipchain.explain.causes.program import argument as argument_of
from tipchain.explain.locate.matching import ACTIVATIONS
from tipchain.explain.preflight.kinds import AXES, EPSILON, EPSILONS, RATES, SLOPES, called_kind, kind_of, named_kind
from tipchain.explain.preflight.table import (
    FLAGS,
    PAD_MODES,
    UNTOLD,
    LayerKind,
    Pads,
    Trait,
    ntuple,
    paddle_pads,
    plain,
    same,
)
from tipchain.framework_types import Function, Model, Nested, Options, Tensor
from tipchain.frameworks.randomness import attributes
from tipchain.numbers.tolerance import LOGIT_FLOOR

# Constructor arguments of Paddle's layers as causes: set to the reference's values first, then to usual ones.


def by_arguments(layer: object, reference: object, path: str) -> Iterator[Hypothesis]:
    """Yield a layer with each constructor argument changed, the reference's value first; then its mode."""
    kind, name = named_kind(layer), class_of(layer)
    for trait in () if kind is None or name.startswith("Conv") else _changeable(kind):
        yield from _values(layer, reference, path, trait)
    if "Norm" in name or "Dropout" in name:
        yield from _modes(layer, reference, path)


def _changeable(kind: LayerKind) -> list[Trait]:
    """Return what a made layer can be given otherwise; first what has few values, which explains less by chance."""
    return sorted((one for one in kind.properties if one.usual is not None), key=lambda one: len(one.usual or ()))


def _values(layer: Model, reference: object, path: str, trait: Trait) -> Iterator[Hypothesis]:
    attribute = next((name for name in trait.attributes[1] if hasattr(layer, name)), None)
    if attribute is None:
        return
    present, argument = getattr(layer, attribute), trait.argument
    told = list(_reference_values(layer, reference, trait))
    values = [*told, *(trait.usual or ())]
    for number, value in enumerate(values):
        if any(same_setting(value, one) for one in (present, *values[:number])):
            continue
        changes = {attribute: value}
        if attribute == "num_heads":
            if layer.embed_dim % value:
                continue
            changes["head_dim"] = layer.embed_dim // value
        confirmed = number < len(told)
        yield Hypothesis(
            code=trait.code,
            message=f"its `{argument}` is {present!r}, the reference's {'' if confirmed else 'behaves like '}{value!r}",
            fix=f"pass `{argument}={value!r}` to `{path}`",
            confirmed=confirmed,
            within=partial(attributes, layer, **changes),
        )


def _reference_values(layer: object, reference: object, trait: Trait) -> Iterator[object]:
    """Yield the reference's setting as Paddle writes it, where it is told and another one than the port's."""
    with suppress(AttributeError, TypeError, ValueError):  # a user's own class, or another kind of layer
        ours, theirs = (read(one, None) for read, one in zip(trait.readers, (reference, layer), strict=True))
        if UNTOLD not in (ours, theirs) and not same(ours, theirs, trait.slack):
            yield trait.write(ours)


def same_setting(one: object, other: object) -> bool:
    """Tell whether two settings are the same; a list is a tuple of the same, a flag is no number."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same_setting(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _modes(layer: Model, reference: object, path: str) -> Iterator[Hypothesis]:
    """Yield the layer in the other of train and eval mode."""
    training = not layer.training
    confirmed = reference is not None and getattr(reference, "training", None) == training
    if "Dropout" in class_of(layer):
        code = "dropout-in-eval" if layer.training else "dropout-off"
    else:
        code = "batch-norm-mode"
    wanted, present = ("train", "eval") if training else ("eval", "train")
    yield Hypothesis(
        code=code,
        message=f"it is in {present} mode, the reference is in {wanted} mode",
        confirmed=confirmed,
        fix=f"call `{path}.{wanted}()` before the model runs",
        within=partial(attributes, layer, training=training),
    )
    if hasattr(layer, "_use_global_stats"):
        for value in (None, True, False):
            if value is not layer._use_global_stats:  # noqa: SLF001
                yield Hypothesis(
                    code="use-global-stats",
                    message=f"its `use_global_stats` is {layer._use_global_stats}, the reference behaves like {value}",  # noqa: SLF001
                    fix=f"pass `use_global_stats={value}` to `{path}`",
                    within=partial(attributes, layer, _use_global_stats=value),
                )


def by_geometry(op: Op, reference: object, paddle: ModuleType, path: str) -> Iterator[Hypothesis]:
    """Yield a convolution with other padding, stride, dilation or groups.

    Args:
        op: the call of the port's convolution.
        reference: torch's module at its place, or None.
        paddle: the framework.
        path: what the layer is called in messages.
    """
    layer, kind = op.layer, class_of(op.layer)
    if not kind.startswith("Conv") or not hasattr(layer, "_padding"):
        return
    sizes = layer._kernel_size  # noqa: SLF001
    dims, pads = len(sizes), _pads(layer, layer._padding)  # noqa: SLF001
    convolve = partial(
        getattr(paddle.nn.functional, f"conv{dims}d" + ("_transpose" if "Transpose" in kind else "")),
        data_format=layer._data_format,  # noqa: SLF001
    )
    found = {name: getattr(layer, f"_{name}") for name in ("stride", "dilation", "groups", "padding")}
    present = {**found, "output_padding": layer.output_padding} if "Transpose" in kind else found

    def variant(code: str, values: Options, *, confirmed: bool = False) -> Hypothesis:
        act: Act = lambda _, args, __: convolve(args[0], layer.weight, layer.bias, **{**present, **values})  # noqa: E731
        how = "" if confirmed else "behaves like "
        told = [f"`{name}` is {present[name]!r}, the reference's {how}{value!r}" for name, value in values.items()]
        return Hypothesis(
            code=code,
            message=f"its {', '.join(told)}",
            acts={op.number: act},
            confirmed=confirmed,
            fix=f"pass {', '.join(f'`{name}={value!r}`' for name, value in values.items())} to `{path}`",
        )

    wanted = _wanted(layer, reference, present)
    for name, value in wanted.items():
        yield variant(name.replace("_", "-"), {name: value}, confirmed=True)
    if len(wanted) > 1:
        yield variant(next(iter(wanted)).replace("_", "-"), wanted, confirmed=True)
    yield from _padding_modes(op, reference, paddle, path, convolve)
    if "Transpose" in kind:
        return
    for sides in product(
        *[((size - 1, 0), (0, size - 1), ((size - 1) // 2, size // 2), (size // 2, (size - 1) // 2)) for size in sizes]
    ):
        if sides != pads:
            yield variant("padding-side", {"padding": [one for side in sides for one in side]})


def _wanted(layer: Model, reference: object, present: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments that the reference has otherwise, as Paddle writes them; a user's own class may keep them in any form."""
    dims, known = len(layer._kernel_size), named_kind(layer)  # noqa: SLF001
    if known is None or kind_of(reference, 0) is None:
        given = {name: _kept(reference, name, dims) for name in present}
        return {
            name: value
            for name, value in given.items()
            if value is not None and ntuple(value, dims) != ntuple(present[name], dims)
        }
    traits = {one.argument: one for one in known.properties}
    return {
        name: value if name == "groups" else list(ntuple(value, dims))
        for name in present
        if name in traits
        for value in _reference_values(layer, reference, traits[name])
    }


def _kept(reference: object, name: str, dims: int) -> object:
    """Return an argument that a user's own class keeps, as a convolution of Paddle's takes it; None where it takes no such."""
    value = plain(getattr(reference, name, None))
    if isinstance(value, str):
        return value.upper()
    axes = value if isinstance(value, tuple) else (value,)
    numbers = [one for pair in axes for one in (pair if isinstance(pair, tuple) else (pair,))]
    if len(numbers) not in (1, dims, 2 * dims) or any(not isinstance(one, int) for one in numbers):
        return None
    return numbers if len(numbers) > 1 else numbers[0]


def _pads(layer: Model, padding: object) -> Pads:
    """Return a padding as a convolution of Paddle's adds it; none where that depends on its input."""
    kernel, stride = tuple(layer._kernel_size), ntuple(layer._stride, len(layer._kernel_size))  # noqa: SLF001
    found = paddle_pads(padding, kernel, stride, None, last=layer._data_format.endswith("C"))  # noqa: SLF001
    return ((0, 0),) * len(kernel) if isinstance(found, str) else found


def _padded(op: Op, paddle: ModuleType, convolve: Function, amounts: Sequence[int], mode: str) -> Act:
    """Return a convolution without padding of its own whose input is padded, the last axis first."""
    layer = op.layer
    pad = getattr(paddle.nn.functional.pad, "__wrapped__", paddle.nn.functional.pad)
    sizes = {"stride": layer._stride, "dilation": layer._dilation, "groups": layer._groups}  # noqa: SLF001

    def act(_: Function, args: tuple[Nested, ...], __: Options) -> Tensor:
        padded = pad(args[0], amounts, mode=mode, data_format=layer._data_format)  # noqa: SLF001
        return convolve(padded, layer.weight, layer.bias, padding=0, **sizes)

    return act


def _padding_modes(op: Op, reference: Model, paddle: ModuleType, path: str, convolve: Function) -> Iterator[Hypothesis]:
    """Yield a convolution whose input is padded with other values."""
    layer = op.layer
    wanted = getattr(reference, "padding_mode", "")
    given = _kept(reference, "padding", len(layer._kernel_size))  # noqa: SLF001
    told = layer._padding if given is None or isinstance(given, str) else given  # noqa: SLF001
    amounts = [one for pair in reversed(_pads(layer, told)) for one in pair]
    for mode in PAD_MODES:
        shown = "zeros" if mode == "constant" else mode
        if shown == layer._padding_mode:  # noqa: SLF001
            continue
        yield Hypothesis(
            code="padding-mode",
            message=f"its `padding_mode` is {layer._padding_mode!r}, the reference's {shown!r}",  # noqa: SLF001
            fix=f"pass `padding_mode={shown!r}` to `{path}`",
            acts={op.number: _padded(op, paddle, convolve, amounts, mode)},
            confirmed=shown == wanted,
        )


def class_of(layer: object) -> str:
    """Return the name of the layer's class, or of Paddle's class that the user's is derived from."""
    for one in type(layer).__mro__:
        if one.__module__.startswith("paddle.nn.") and one.__name__ != "Layer":
            return str(one.__name__)
    return type(layer).__name__


ACTIVE = frozenset((*ACTIVATIONS, *ACTIVATIONS.values()))
"""Names of activations, as layers and as functions."""
RARE: Mapping[str, frozenset[str]] = {
    "normalize": frozenset({"normalize", "norm", "vector_norm", "linalg_vector_norm"}),
    "exp": frozenset({"exp"}),
    "abs": frozenset({"abs", "absolute"}),
    "square": frozenset({"square", "pow"}),
}
"""Functions that are tried only where the reference calls something of the kind, by torch's names."""


def activations(paddle: ModuleType, *, shape: Sequence[int]) -> Iterator[tuple[str, str, Unary]]:
    """Yield activations: torch's name, how Paddle's code writes it, and the function; the usual ones first."""
    f = paddle.nn.functional
    axes = [axis for axis in (-1, *range(len(shape) - 1)) if shape and shape[axis] > 1]

    def plain(*names: str, holder: ModuleType = f) -> Iterator[tuple[str, str, Unary]]:
        return ((name, f"{'F' if holder is f else 'paddle'}.{name}", getattr(holder, name)) for name in names)

    yield from plain("relu", "gelu", "silu", "relu6", "sigmoid")
    yield from plain("tanh", holder=paddle)
    for axis in axes:
        yield "softmax", f"F.softmax(axis={axis})", partial(f.softmax, axis=axis)
    yield from plain("leaky_relu", "hardswish", "hardsigmoid", "elu")
    yield "gelu", "F.gelu(approximate=True)", partial(f.gelu, approximate=True)
    yield from plain("mish", "softplus")
    for slope in filter(None, SLOPES):
        yield ("leaky_relu", f"F.leaky_relu(negative_slope={slope})", partial(f.leaky_relu, negative_slope=slope))
    for axis in axes:
        yield "log_softmax", f"F.log_softmax(axis={axis})", partial(f.log_softmax, axis=axis)
    yield "hardsigmoid", "F.hardsigmoid(slope=0.2)", partial(f.hardsigmoid, slope=0.2)
    yield from plain("selu", "hardtanh", "softsign")
    yield "logsigmoid", "F.log_sigmoid", f.log_sigmoid
    yield "quick_gelu", "x * F.sigmoid(1.702 * x)", lambda x: x * f.sigmoid(1.702 * x)
    yield from plain("exp", "abs", "square", holder=paddle)
    yield ("squared relu", "F.relu(x) ** 2", lambda x: f.relu(x) ** 2)  # of what is not negative the square, too
    if -1 in axes:  # Paddle's norm reads beyond a number without axes
        yield "normalize", "F.normalize(axis=-1)", partial(f.normalize, axis=-1)


def by_activation(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    """Yield a call followed by an activation, or with another one in its place, or without it."""
    kind = type(op.layer).__name__ if op.name == LAYER else op.name
    is_one = kind in ACTIVE
    where = place_of(op, piece)
    built = {type(one).__name__.lower() for _, one in piece.sides.reference.layers(piece.reference)}
    if is_one:
        yield Hypothesis(
            code="extra-activation",
            acts={op.number: argument_of(0)},
            message=f"it applies `{kind}`{where}, the reference doesn't",
            fix=f"remove `{kind}`{where}",
        )
    for name, written, function in activations(piece.paddle, shape=first.shape):
        rare = name in RARE
        if rare and not RARE[name] & set(piece.truth.record.names):
            continue
        called_so = any(one.rstrip("_") == name for one in piece.truth.record.names)  # torch's ReLU6 calls hardtanh
        confirmed = not rare and (called_so or name.replace("_", "") in built)
        plain = kind.lower().replace("_", "") == name.replace("_", "") and "(" not in written
        if is_one and not plain:  # its settings are looked at elsewhere
            code = "other-activation"
            if name == "leaky_relu" and kind in ("leaky_relu", "LeakyReLU"):
                code = "negative-slope"
            elif name == "gelu" and kind in ("gelu", "GELU"):
                code = "gelu-form"
            elif name == "softmax" and kind in ("softmax", "Softmax"):
                code = "softmax-axis"
            yield Hypothesis(
                code=code,
                acts={op.number: instead(function)},
                confirmed=confirmed,
                message=f"it applies `{kind}`{where}, the reference `{written}`",
                fix=f"write `{written}` for `{kind}`{where}",
                place=op.path if op.name == LAYER else None,
            )
        yield Hypothesis(
            code="missing-activation",
            acts={op.number: then(function)},
            confirmed=confirmed,
            message=f"it lacks `{written}` after {called(op)}{where}",
            fix=f"apply `{written}` after {called(op)}{where}",
            place=op.path if op.layer is not None and op.result is op.args[0] else None,
        )


def by_floor(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield `log_softmax` as torch computes it, where Paddle's stops at `LOGIT_FLOOR` below the largest."""
    for op in ops:
        kind = type(op.layer).__name__ if op.name == LAYER else op.name
        given = piece.floats(op.args[:1])
        if kind.lower().replace("_", "") != "logsoftmax" or not given:
            continue
        axis = op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else getattr(op.layer, "_axis", -1))
        axis = -1 if axis is None else axis
        if float((given[0].max(axis=axis) - given[0].min(axis=axis)).max()) <= LOGIT_FLOOR:
            continue
        exact = f"x - paddle.logsumexp(x, axis={axis}, keepdim=True)"
        yield Hypothesis(
            code="other-activation",
            acts={op.number: instead(partial(_log_softmax, piece.paddle, axis))},
            confirmed=True,
            message=f"Paddle's `{kind}`{place_of(op, piece)} takes inputs more than {LOGIT_FLOOR:g} below the largest for "
            f"{LOGIT_FLOOR:g} below, torch's takes them as they are",
            fix=f"write `{exact}` for `{kind}`{place_of(op, piece)}",
            place=op.path if op.name == LAYER else None,
        )


def by_ignored(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a mean cross entropy without what it ignores: Paddle's divides by all labels where `ignore_index` is negative (3.3.1)."""
    for op in ops:
        kind = type(op.layer).__name__ if op.name == LAYER else op.name
        if kind.lower().replace("_", "").removesuffix("loss") != "crossentropy":
            continue
        usual = {"label": None, "weight": None, "ignore_index": -100, "reduction": "mean"}
        order = ("input", "label") if op.name == LAYER else ("input", *usual)
        given = {**usual, **op.kwargs, **dict(zip(order, op.args, strict=False))}
        if op.name == LAYER:
            given |= {name: getattr(op.layer, name) for name in ("weight", "ignore_index", "reduction")}
        labels, ignored = given["label"], given["ignore_index"]
        if given["reduction"] != "mean" or given["weight"] is not None or ignored >= 0 or labels.is_floating_point():
            continue
        kept = int((labels != ignored).sum())
        if not 0 < kept < labels.size:
            continue
        where = place_of(op, piece)
        yield Hypothesis(
            code="reduction",
            acts={op.number: then(partial(_scaled, labels.size / kept))},
            confirmed=True,
            message=f"Paddle's `{kind}`{where} divides by all {labels.size} labels where `ignore_index` is negative, "
            f"torch's by the {kept} that are not {ignored}",
            fix=f"sum in `{kind}`{where} with `reduction='sum'`, and divide by the number of labels that are not {ignored}",
            place=op.path if op.name == LAYER else None,
        )


def _scaled(factor: float, x: Tensor) -> Tensor:
    return x * factor


def _log_softmax(paddle: ModuleType, axis: int, x: Tensor) -> Tensor:
    return x - paddle.logsumexp(x, axis=axis, keepdim=True)


def by_dropout(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call followed by dropout, where the reference drops: torch's probabilities first."""
    if not piece.reference.training:
        return
    functional = piece.paddle.nn.functional
    layers = [one for _, one in piece.sides.reference.layers(piece.reference)]
    told = [one.p for one in layers if "Dropout" in type(one).__name__]
    for probability in dict.fromkeys([*told, *RATES]):
        yield Hypothesis(
            code="missing-dropout",
            acts={op.number: then(partial(functional.dropout, p=probability, training=True))},
            confirmed=probability in told,
            message=f"it lacks `dropout` with p={probability} after {called(op)}{place_of(op, piece)}",
            fix=f"apply `F.dropout(p={probability}, training=self.training)` after {called(op)}{place_of(op, piece)}",
        )


def has_own_backward(op: Op) -> bool:
    """Tell whether what was called is a `PyLayer`."""
    return any(one.__name__ == "PyLayer" for one in getattr(getattr(op.function, "__self__", None), "__mro__", ()))


def called(op: Op) -> str:
    """Return what a call is called in messages."""
    return f"`{op.path}`" if op.name == LAYER and op.path else f"`{op.name}`" if op.name != LAYER else "the layer"


def place_of(op: Op, piece: Piece) -> str:
    """Return where a call stands, for messages."""
    return f" at {op.place}" if op.place and not (op.name == LAYER and not op.path) else f" in {piece.shown}"


def index_text(item: object) -> str:
    """Return an index as code writes it."""
    if isinstance(item, tuple):
        return ", ".join(map(index_text, item))
    if isinstance(item, slice):
        ends = ":".join("" if one is None else str(one) for one in (item.start, item.stop))
        return f"{ends}:{item.step}" if item.step is not None else ends
    return "..." if item is Ellipsis else str(item)


# Arguments of functions as the cause: a flag, an axis, a slope or an epsilon that a call does not get.


MOST_EPSILON = max(EPSILONS)
"""Largest number that is added to be taken for an epsilon: the largest of ``EPSILONS``."""


ALONG = Trait("axis", "axis", usual=AXES)
NORM_P = Trait("norm-p", "p", usual=(2, 1))
OWN_ARGUMENTS: Mapping[str, Sequence[Trait]] = {
    "hardsigmoid": (Trait("slope", "slope", usual=(1 / 6, 0.2)),),
    "smooth_l1_loss": (Trait("huber", "is_huber", usual=FLAGS), Trait("beta", "delta", usual=(1.0,))),
    "dropout": (Trait("dropout-in-eval", "training", usual=FLAGS),),
    "batch_norm": (Trait("batch-norm-mode", "training", usual=FLAGS),),
    "normalize": (NORM_P, ALONG, EPSILON),
    "norm": (NORM_P, ALONG),
    "scaled_dot_product_attention": (
        Trait("causal-mask", "is_causal", usual=FLAGS),
        Trait("mask", "attn_mask", usual=(None,)),
        Trait("dropout-p", "dropout_p", usual=RATES),
    ),
    **dict.fromkeys(
        ("mean", "sum", "max", "min", "logsumexp", "prod"),
        (Trait("axis", "axis", usual=(*AXES, [2, 3], [-2, -1], [1, 2])),),
    ),
    **dict.fromkeys(("cumsum", "concat", "stack", "split", "chunk"), (ALONG,)),
    **dict.fromkeys(("std", "var"), (Trait("unbiased-variance", "unbiased", usual=FLAGS), ALONG)),
    "matmul": tuple(Trait("transposed-operand", name, usual=FLAGS) for name in ("transpose_y", "transpose_x")),
    "roll": (Trait("shift", "shifts", usual=(1, -1, 2, -2)),),
    "temporal_shift": (Trait("shift-ratio", "shift_ratio", usual=(0.25, 0.125)),),
    **dict.fromkeys(("tril", "triu"), (Trait("causal-mask", "diagonal", usual=(0, 1, -1)),)),
    "flip": (Trait("axis", "axis", usual=(0, 1, 2, 3, -1)),),
    "put_along_axis": (Trait("reduction", "reduce", usual=("add", "assign", "amax", "mean")),),
}
"""Arguments of functions that no layer is made with."""
CALLED = {"pad": "Pad2D", "interpolate": "Upsample"}
"""Layers by functions of another name; ``max_pool2d`` is MaxPool2D's."""


@cache
def arguments_of(function: str) -> tuple[Trait, ...]:
    """Return what a function of Paddle's may be given otherwise: what its layer is made with, and what is its own."""
    kind = called_kind(CALLED.get(function, function.replace("_", "")))
    return (*(() if kind is None else _changeable(kind)), *OWN_ARGUMENTS.get(function, ()))


def by_function_arguments(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a call with each of its arguments changed; numbers that the reference's code has come first."""
    names = list(op.parameters)
    both = (
        (one, next((name for name in reversed(one.arguments) if name in names), "")) for one in arguments_of(op.name)
    )
    # A number that a call adds may be as small as the constants that keep roots and divisions finite.
    operand = op.args[1] if op.name == "add" and len(op.args) > 1 else None
    added = isinstance(operand, float) and 0 < operand <= MOST_EPSILON
    for trait, name, place in (
        *((one, name, names.index(name)) for one, name in both if name),
        *(((Trait("epsilon", "y", usual=EPSILONS), "y", 1),) if added else ()),
    ):
        usual = trait.usual or ()
        given = op.kwargs.get(name, op.args[place] if place < len(op.args) else None)
        told = [
            value
            for value in piece.truth.record.constants.get(op.name, ())
            if not isinstance(value, bool) and any(type(value) is type(one) for one in usual)
        ]
        tried: list[object] = [] if given is None else [given]
        for number, value in enumerate([*told, *usual]):
            if any(type(value) is type(one) and value == one for one in tried):
                continue
            tried.append(value)
            if name.endswith("axis") and not has_axis(op, value):
                continue
            yield Hypothesis(
                code=trait.code,
                acts={op.number: with_argument(place, value, name)},
                confirmed=number < len(told),
                message=f"`{name}` of `{op.name}` at {op.place} is {'the default' if given is None else repr(given)}, the reference's behaves like {value!r}",
                fix=f"pass `{name}={value!r}` to `{op.name}` at {op.place}: `{op.line}`",
            )


def has_axis(op: Op, axis: object) -> bool:
    """Tell whether the first tensor of a call has some axes: some of Paddle's kernels read beyond it where not."""
    given = op.args[0] if op.args else op.kwargs.get("x")
    given = given[0] if isinstance(given, list | tuple) and given else given
    rank = len(getattr(given, "shape", ())) + (op.name == "stack")
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    return all(-rank <= one < rank for one in axes if isinstance(one, int))
