"""All that can be compared before anything runs: layers, modes, precision, containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from tipchain.core.language import listed
from tipchain.explain.findings import CodeEdit, Diagnosis, Effect, difference
from tipchain.explain.locate.differences import relative_arranged
from tipchain.explain.locate.matching import CallPair, LayerPair, common_path
from tipchain.explain.locate.trace import TracedValue
from tipchain.explain.preflight.parameters import SHOWN, Tensors, check_parameters, is_floating, port_name
from tipchain.facts.layers import kind_of, runs_as_built
from tipchain.facts.settings import UNTOLD, LayerKind, Shape, Trait, held, ntuple, plain, same, space, tidy
from tipchain.framework_types import Model, Setting
from tipchain.numbers.tolerance import SAME_SINGLE
from tipchain.weights.sides import join
from tipchain.weights.structure import group_by


class PairedLayers(NamedTuple):
    """Two layers that belong together."""

    reference_path: str
    reference: Model
    port_path: str
    port: Model
    shapes: tuple[Shape, Shape] | None = None

    @property
    def paths(self) -> tuple[str, str]:
        """Both paths."""
        return self.reference_path, self.port_path


def _orders_comparable(pair: PairedLayers) -> bool | None:
    """Tell how two sequence layers are given their batches: alike (True), the other way round (False), unknown (None)."""
    if pair.shapes is None or any(len(shape) != 3 for shape in pair.shapes):
        return None
    ours, theirs = pair.shapes
    if len(set(ours[:2])) == 1:
        return None
    if ours == theirs:
        return True
    return False if ours == (theirs[1], theirs[0], theirs[2]) else None


def _never_alike(one: LayerKind, other: LayerKind) -> bool:
    """Tell whether layers of two kinds are no substitutes for each other, whatever they are made with."""
    names = {one.name, other.name}
    if one.family == other.family and (one.family in ("activation", "recurrent") or (one.drops and other.drops)):
        return True
    pools = {name.removeprefix("Adaptive") for name in names}
    if len(pools) == 2 and {name[:3] for name in pools} == {"Max", "Avg"}:
        return len({name[-2:] for name in pools}) == 1
    return "BatchNorm" in names and bool(names & {"LayerNorm", "GroupNorm", "InstanceNorm"})


def _computes_the_same(pair: PairedLayers, kinds: tuple[LayerKind, LayerKind]) -> bool:
    """Tell whether two layers of different kinds do nothing, or are pools of the same windows."""
    layers = list(zip((pair.reference, pair.port), kinds, pair.shapes or (None, None), strict=True))
    if all(kind.name == "Identity" or (kind.drops and layer.p == 0) for layer, kind, _ in layers):
        return True
    window, port_window = (_window(layer, kind, shape) for layer, kind, shape in layers)
    return window is not None and window == port_window


def _window(layer: Model, kind: LayerKind, shape: tuple[int, ...] | None) -> object:
    """Return the windows of a pool that divides its input evenly; an adaptive pool has them if its sizes are known."""
    inputs = space(shape, getattr(layer, "data_format", getattr(layer, "_data_format", None)))
    if inputs is None or "Pool" not in kind.name or kind.name[:2] == "LP":
        return None
    what, axes = kind.name.removeprefix("Adaptive")[:3], len(inputs)
    if kind.name.startswith("Adaptive"):
        outputs = ntuple(held(layer, "_output_size", "output_size"), axes)
        wanted = [size if out is None else out for size, out in zip(inputs, outputs, strict=True)]
        if any(size % out for size, out in zip(inputs, wanted, strict=True)):
            return None
        return what, inputs, tuple(size // out for size, out in zip(inputs, wanted, strict=True))
    kernel = ntuple(held(layer, "ksize", "kernel_size"), axes)
    stride = kernel if layer.stride is None else ntuple(layer.stride, axes)
    even = all(size % length == 0 for size, length in zip(inputs, kernel, strict=True))
    single = kernel == tuple(inputs)
    plain_padding = ntuple(layer.padding, axes) == (0,) * axes
    return (what, inputs, kernel) if plain_padding and (single or (even and stride == kernel)) else None


CONVENTIONS = ("momentum", "axis", "dim", "format", "dtype", "name", "device", "version", "scale", "path", "inplace")
"""Words in names of attributes that the frameworks mean differently, or that compute nothing."""


def _attributes(layer: object) -> dict[str, object]:
    """Return a layer's attributes that are numbers, strings, truth values or tuples of them, without underscores."""
    found = {name.lstrip("_"): plain(value) for name, value in vars(layer).items() if _is_plain(value)}
    own = ("training", "full_name", "built", "init_in_dynamic_mode", *CONVENTIONS)
    return {name: value for name, value in found.items() if not any(word in name.lower() for word in own)}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


# What matched layers are made with, compared.


def check_layers(pairs: Iterable[PairedLayers]) -> Iterator[Diagnosis]:
    """Compare matched layers' settings, whether or not they hold parameters.

    Values are compared as torch means them: Paddle's momentum of 0.99 is torch's of 0.01, ``padding="SAME"`` is the
    numbers it comes to, no stride is the kernel's. What does not matter in a layer (whether padding counts in an average
    without padding) is not compared, nor what cannot be told: an axis of two inputs of different layouts.

    Yields:
        A finding per setting that differs, in the order of the pairs.
    """
    for pair in pairs:
        ours, theirs = kind_of(pair.reference, 0), kind_of(pair.port, 1)
        own = not (runs_as_built(pair.reference, 0) and runs_as_built(pair.port, 1))
        if ours is None or theirs is None:
            # Plain attributes of one name are compared; their effect is measured.
            own_of_port = _attributes(pair.port)
            for name, expected in _attributes(pair.reference).items():
                actual = own_of_port.get(name)
                if type(expected) is not type(actual) or same(expected, actual):
                    continue
                kind = type(pair.port).__name__
                slug, both = name.replace("_", "-").lower(), (f"{name}={expected!r}", f"{name}={actual!r}")
                told = f"{name_of(pair)} ({kind}) has {name}={actual!r} where torch's has {name}={expected!r}"
                fix = f"set `{name}` of {place_of(pair)} to {expected!r}"
                yield difference(slug, both, told, fix, paths=pair.paths, effect="none")
        elif ours is theirs:
            yield from _compare(pair, ours)
        elif not own and not _computes_the_same(pair, (ours, theirs)):  # a user's own forward is judged by its results
            reference, port = f"nn.{type(pair.reference).__name__}", f"nn.{type(pair.port).__name__}"
            # Of the kind's classes in Paddle the one of as many axes.
            names = {one.lower(): one for one in ours.classes[1]}
            known = (names.get(base.__name__.lower()) for base in type(pair.reference).__mro__)
            wanted = f"paddle.nn.{next(filter(None, known), ours.classes[1][0])}"
            told = f"{name_of(pair)} is a {port} where torch's is a {reference}"
            fix = f"make {place_of(pair)} a `{wanted}`"
            edit = CodeEdit(kind="make", call=type(pair.port).__name__, written=wanted)
            other = difference(
                "layer-type", (reference, port), told, fix, code="structure", paths=pair.paths, edit=edit
            )
            effect: Effect = "elsewhere" if _never_alike(ours, theirs) else "none"
            yield _other_dropout(pair, ours, theirs, wanted) or replace(other, effect=effect)


def _compare(pair: PairedLayers, kind: LayerKind) -> Iterator[Diagnosis]:
    built = runs_as_built(pair.reference, 0) and runs_as_built(pair.port, 1)
    if kind.name == "Dropout" and pair.reference.p == pair.port.p == 0:
        return
    for one in kind.properties:
        expected, actual = _read(pair, one, 0), _read(pair, one, 1)
        ours, theirs = pair.shapes or ((), ())
        comparable = not one.sized or sorted(ours) == sorted(theirs)
        if one.axis:  # the layouts are the same, and both count from the same end
            ends = {value < 0 for value in (expected, actual) if isinstance(value, int)}
            comparable = ours == theirs and (pair.shapes is not None or len(ends) < 2)
        if UNTOLD in (expected, actual) or not comparable:
            continue
        if one.code == "time-order":
            if _orders_comparable(pair) is not (expected != actual):
                continue
        elif same(expected, actual, one.slack):
            continue
        effect: Effect = "none" if one.measured or (one.visible and not built) else "elsewhere"
        reference, port = _spelled(pair, one, 0, expected), _spelled(pair, one, 1, actual)
        looks_alike = reference.partition("=")[2].strip("[](),") == port.partition("=")[2].strip("[](),")
        terms = f" ({tidy(actual)!r} in torch's terms)" if looks_alike and one.code != "time-order" else ""
        hint = f", {one.hint}" if looks_alike and one.hint else ""
        value = tidy(one.write(not actual if one.code == "time-order" else expected))
        arguments = tuple((name, repr(value)) for name in one.argument.split(", "))
        wanted = ", ".join(map("=".join, arguments))
        told = f"{name_of(pair)} has {port}{terms} where torch's has {reference}"
        fix = f"{one.lacking} in {place_of(pair)}" if one.lacking else f"pass `{wanted}` to {place_of(pair)}{hint}"
        edit = None if one.lacking else CodeEdit(kind="pass", call=type(pair.port).__name__, arguments=arguments)
        yield difference(one.code, (reference, port), told, fix, paths=pair.paths, effect=effect, edit=edit)


def _read(pair: PairedLayers, one: Trait, side: Literal[0, 1]) -> Setting:
    shape = None if pair.shapes is None else pair.shapes[side]
    try:
        return one.readers[side]((pair.reference, pair.port)[side], shape)
    except (AttributeError, TypeError, ValueError):  # a user's subclass that keeps its settings in another way
        return UNTOLD


def _spelled(pair: PairedLayers, one: Trait, side: Literal[0, 1], value: object) -> str:
    """Return a setting as its framework writes it: the layer's own value, else its number."""
    layer = (pair.reference, pair.port)[side]
    for name in one.attributes[side]:
        kept = getattr(layer, name, None)
        if isinstance(kept, bool | int | float | str | tuple | list):
            return f"{one.arguments[side]}={kept!r}"
    names = one.arguments[side].split(", ")
    if names[0].endswith("_attr"):
        values = value if isinstance(value, tuple) else (value,)
        return ", ".join(f"{name}={one.write((each,))!r}" for name, each in zip(names, values, strict=False))
    return f"{names[0]}={tidy(value)!r}"


def _other_dropout(pair: PairedLayers, ours: LayerKind, theirs: LayerKind, wanted: str) -> Diagnosis | None:
    missing = theirs.name == "Identity"
    if not (ours.drops or theirs.drops) or "Identity" not in (ours.name, theirs.name):
        return None
    rate = plain(pair.reference.p if missing else pair.port.p)
    values = (f"p={rate!r}", "nn.Identity") if missing else ("nn.Identity", f"p={rate!r}")
    word = "nothing, torch's drops with" if missing else "something, torch's nothing:"
    told = f"{name_of(pair)} drops {word} p={rate!r}"
    fix = f"make {place_of(pair)} a `{wanted}({rate!r})`" if missing else f"make {place_of(pair)} a `{wanted}`"
    arguments = (("p", repr(rate)),) if missing else ()
    edit = CodeEdit(kind="make", call=type(pair.port).__name__, written=wanted, arguments=arguments)
    slug = "missing-dropout" if missing else "extra-dropout"
    return difference(slug, values, told, fix, code="structure", paths=pair.paths, edit=edit)


def name_of(pair: PairedLayers) -> str:
    """Return the beginning of a sentence about a layer."""
    return pair.port_path or "the model"


def place_of(pair: PairedLayers) -> str:
    """Return the layer in a line that gives code to write."""
    return f"`{pair.port_path}`" if pair.port_path else "the model"


# Whether matched layers are in the same mode, and keep their parameters in the same precision.


def check_flags(reference: Model, port: Model, pairs: Iterable[PairedLayers], tensors: Tensors) -> Iterator[Diagnosis]:
    """Compare the modes of matched layers, where the models' own agree, and the dtypes of their parameters.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        pairs: layers that belong together.
        tensors: the models' tensors, matched.
    """
    if bool(reference.training) != bool(port.training):
        # It matters if a layer does other things in train mode.
        layers = dict(reference.named_modules()), dict(port.named_sublayers(include_self=True))
        minding = [path or "the model" for path, layer in layers[1].items() if _minds_mode(layer, 1)]
        minding = minding or [path or "the model" for path, layer in layers[0].items() if _minds_mode(layer, 0)]
        shown = f"; a run in the modes that they are in would show it ({listed(minding, 3)})" if minding else ""
        told = f"the port is in {_word(port)} mode, torch's model in {_word(reference)} mode{shown}"
        effect: Effect = "elsewhere" if minding else "none"
        modes, fix = _modes(reference, port), f"call `{_word(reference)}()` of the port"
        yield difference("mode", modes, told, fix, code="setting", effect=effect)
    for pair in pairs if bool(reference.training) == bool(port.training) else ():
        ours, theirs = kind_of(pair.reference, 0), kind_of(pair.port, 1)
        if ours is None or ours is not theirs or pair.reference.training == pair.port.training:
            continue
        if _minds_mode(pair.reference, 0) and _minds_mode(pair.port, 1):
            mode, port_mode = _word(pair.reference), _word(pair.port)
            told = f"{name_of(pair)} is in {port_mode} mode, torch's in {mode} mode, and the models' own modes agree"
            fix = f"call `{mode}()` of `{pair.port_path}`"
            yield difference("mode", _modes(pair.reference, pair.port), told, fix, code="setting", paths=pair.paths)
    both = ((pair.ours, pair.theirs, pair.layers.port) for pair in tensors.pairs if pair.ours and pair.theirs)
    apart = [one for one in both if is_floating(one[0]) and is_floating(one[1]) and one[0].dtype != one[1].dtype]
    for (expected, actual), names in group_by(apart, lambda one: (one[0].dtype, one[1].dtype)).items():
        shown = listed([port_name(theirs) for _, theirs, _ in names], SHOWN)
        told = f"{len(names)} parameters of the port are {actual}, torch's {expected}: {shown}"
        fix = f"call `to(dtype='{expected}')` of the port, or of the layers of {shown}"
        dtypes, paths = (f"torch.{expected}", f"paddle.{actual}"), ("", common_path(path for *_, path in names))
        yield difference("dtype", dtypes, told, fix, code="setting", paths=paths)


def _word(layer: Model) -> str:
    return "train" if layer.training else "eval"


def _modes(reference: Model, port: Model) -> tuple[str, str]:
    return f"training={reference.training}", f"training={port.training}"


def _minds_mode(layer: Model, side: Literal[0, 1]) -> bool:
    """Tell whether a layer does other things in train mode: of its kind and by its settings, or as its own code asks."""
    kind = kind_of(layer, side)
    if kind is None:
        return "training" in getattr(type(layer).forward, "__code__", _minds_mode.__code__).co_names
    frozen = getattr(layer, "_use_global_stats", None) or getattr(layer, "running_mean", "") is None
    rate = getattr(layer, "p", getattr(layer, "dropout", None))
    drops = not isinstance(rate, int | float) or (rate != 0 and getattr(layer, "num_layers", 2) != 1)
    return kind.by_mode and drops and not frozen


SHAPING = frozenset(
    ("kernel-size", "groups", "normalized-shape", "layers", "direction", "bias", "projection", "layer-type", "slopes")
)
"""Arguments that decide which parameters there are and their shapes."""
FOLLOWING = frozenset(("shape", "missing-parameter", "bias", "affine", "statistics"))
"""Diagnosiss about parameters that such an argument explains."""


def check(
    reference: Model,
    port: object,
    layer_pairs: Iterable[LayerPair],
    call_pairs: Iterable[CallPair] = (),
    *,
    names: Mapping[str, str] | None = None,
    tensors: Tensors | None = None,
) -> list[Diagnosis]:
    """Compare two models without running either.

    Args:
        reference: the ``torch.nn.Module``.
        port: the ``paddle.nn.Layer``.
        layer_pairs: the layers with parameters that belong together.
        call_pairs: calls of two traces that belong together; they tell of layers without parameters, and of the shapes
            that layers were called with. Layers are looked up in the models by path: traces are of copies.
        names: Paddle's path by torch's, as layers were matched with.
        tensors: those of the models, if they are matched already.

    Returns:
        The findings, each once: about layers in the order of torch's model, then about the models. A pair of calls that names and inputs do not confirm makes findings without effect.

    Raises:
        WeightsError: a lazy layer of torch's has no shape yet.
    """
    layers = list(layer_pairs)
    tensors = tensors or Tensors(reference, port, layers, names)
    pairs = _Pairs(reference, port, layers, call_pairs)
    arguments = [pairs.weigh(one) for one in check_layers(pairs.found) if not pairs.freezes(one)]
    shaped = {_paths(one) for one in arguments if one.name in SHAPING}
    told = {(one.name, *_paths(one)) for one in arguments}
    told |= {(name, *paths) for name in FOLLOWING for paths in shaped}
    found = check_parameters(tensors)
    kept = [one for one in found if one.name not in FOLLOWING or (one.name, *_paths(one)) not in told]
    of_models = [*arguments, *kept, *check_flags(reference, port, pairs.found, tensors)]
    order = {path: number for number, path in enumerate(pairs.reference)}
    last = len(order)
    found = sorted(of_models, key=lambda one: order.get(one.reference_path, last) if any(_paths(one)) else last)
    return list(dict.fromkeys(found))


def _paths(one: Diagnosis) -> tuple[str, str]:
    return one.reference_path, one.port_path


def every_path(layer: Model, path: str = "") -> Iterable[tuple[str, Model]]:
    """Yield every layer of a Paddle model with its path, under all its paths if it is used several times."""
    yield path, layer
    for name, child in layer._sub_layers.items():  # noqa: SLF001
        if child is not None:
            yield from every_path(child, join(path, name))


class _Pairs:
    """Pairs of layers of the models themselves, in the order of torch's: as they are given, and those that calls add."""

    def __init__(self, reference: Model, port: Model, layers: Iterable[LayerPair], calls: Iterable[CallPair]) -> None:
        self.reference: dict[str, Model] = dict(reference.named_modules(remove_duplicate=False))
        self.port: dict[str, Model] = dict(every_path(port))
        self.calls = {(call.reference.path, call.port.path): call for call in reversed([*calls])}  # the first of each
        self.given = {(one.reference, one.port) for one in layers}
        paths = {*self.given, *(key for key, call in self.calls.items() if not call.whole)}
        order = {path: number for number, path in enumerate(self.reference)}
        given = {key: (call.reference.inputs, call.port.inputs) for key, call in self.calls.items()}
        shapes = {key: (ours[0].shape, theirs[0].shape) for key, (ours, theirs) in given.items() if ours and theirs}
        known = {
            pair: PairedLayers(pair[0], self.reference[pair[0]], pair[1], self.port[pair[1]], shapes.get(pair))
            for pair in paths
            if pair[0] in self.reference and pair[1] in self.port
        }
        # The layers of a Transformer, one by one, where both models have as many of a kind.
        kinds = {path: kind_of(one, 0) for path, one in self.reference.items()}
        port_kinds = {path: kind_of(one, 1) for path, one in self.port.items()}
        for kind in dict.fromkeys(one for one in kinds.values() if one is not None and one.inner):
            ours, theirs = ([path for path, one in each.items() if one is kind] for each in (kinds, port_kinds))
            for both in zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ():
                known.setdefault(both, PairedLayers(both[0], self.reference[both[0]], both[1], self.port[both[1]]))
                self.given.add(both)
        self.found = sorted(known.values(), key=lambda one: order[one.reference_path])

    def freezes(self, one: Diagnosis) -> bool:
        """Tell whether a finding is about a normalization that both freeze: torch by its mode, Paddle by an argument."""
        if one.name != "statistics" or not self.reference[""].training or self.reference[one.reference_path].training:
            return False
        return bool(getattr(self.port[one.port_path], "_use_global_stats", False))

    def weigh(self, one: Diagnosis) -> Diagnosis:
        """Return the finding; one without effect where only the order of calls says that the layers belong together."""
        call = self.calls.get(_paths(one))
        if one.harmless or call is None or _paths(one) in self.given:
            return one
        drops = one.name in ("missing-dropout", "extra-dropout")  # an identity may stand where a function drops
        ours, theirs = (path.rpartition(".")[2] for path in _paths(one))
        one_name = one.reference_path == one.port_path or (ours == theirs and not ours.isdigit())
        named = one.name != "layer-type" and one_name
        sure = named or (not drops and alike(call.reference.inputs, call.port.inputs))
        return one if sure else replace(one, effect="none")


def alike(ours: tuple[TracedValue, ...], theirs: tuple[TracedValue, ...]) -> bool:
    """Tell whether the first tensors are the same, whatever the order of their axes; not where they are not in memory."""
    if not ours or not theirs:
        return False
    if theirs[0].stored.twin is ours[0].stored:
        return True
    one, other = ours[0].stored.kept, theirs[0].stored.kept
    if one is None or other is None or one.size != other.size:
        return False
    return relative_arranged(one, other) <= SAME_SINGLE
