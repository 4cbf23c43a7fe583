"""All that can be compared before anything runs, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tipchain.parity.findings import Finding
from tipchain.parity.locate.differences import arrange, relative
from tipchain.parity.locate.layer_pairs import LayerPair
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.trace import Value
from tipchain.parity.preflight.containers import container_pairs
from tipchain.parity.preflight.environment import check_environment
from tipchain.parity.preflight.flags import check_flags
from tipchain.parity.preflight.layers import check_layers
from tipchain.parity.preflight.optimizers import FIRST_RATE, check_optimizers
from tipchain.parity.preflight.parameters import compare_tensors
from tipchain.parity.preflight.schedulers import check_schedulers
from tipchain.parity.preflight.table import Pair
from tipchain.parity.preflight.tensors import Tensors
from tipchain.parity.preflight.ties import check_ties
from tipchain.parity.rounding import SAME_SINGLE

SHAPING = frozenset(
    (
        "kernel-size",
        "groups",
        "normalized-shape",
        "layers",
        "direction",
        "bias",
        "projection",
        "layer-type",
        "slopes",
    )
)
"""Arguments that decide which parameters there are and their shapes."""
FOLLOWING = frozenset(("shape", "missing-parameter", "bias", "affine", "statistics"))
"""Findings about parameters that such an argument explains."""


def check(
    reference: Any, port: Any, layer_pairs: Iterable[LayerPair], call_pairs: Iterable[CallPair] = (), *,
    optimizers: tuple[Any, Any] | None = None, schedulers: tuple[Any, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[Finding]:  # fmt: skip
    """Compare two models, and what trains them, without running either.

    Args:
        reference: the ``torch.nn.Module``.
        port: the ``paddle.nn.Layer``.
        layer_pairs: the layers with parameters that belong together.
        call_pairs: calls of two traces that belong together; they tell of layers without parameters, and of the shapes
            that layers were called with. Layers are looked up in the models by path: traces are of copies.
        optimizers: torch's and Paddle's optimizer, of these models.
        schedulers: torch's and Paddle's schedule.
        names: Paddle's path by torch's, as layers were matched with.

    Returns:
        The findings, each once: about layers in the order of torch's model, then about the models, the optimizers, the
        schedules, the environment. A pair of calls that names and inputs do not confirm makes findings without effect.

    Raises:
        WeightsError: a lazy layer of torch's has no shape yet.
    """
    layers = list(layer_pairs)
    tensors = Tensors(reference, port, layers, names)
    pairs = _Pairs(_modules(reference, "named_modules"), _modules(port, "named_sublayers"))
    pairs.take(layers, list(call_pairs))
    arguments = [pairs.weigh(one) for one in check_layers(pairs.found) if not pairs.freezes(one)]
    shaped = {_paths(one) for one in arguments if one.code in SHAPING}
    told = {(one.code, *_paths(one)) for one in arguments}
    kept = [
        one for one in compare_tensors(tensors)
        if not (one.code in FOLLOWING and (_paths(one) in shaped or (one.code, *_paths(one)) in told))
    ]  # fmt: skip
    flags = [
        one for one in check_flags(reference, port, pairs.found, tensors)
        if one.code != "mode" or ("statistics", *_paths(one)) not in told
    ]  # fmt: skip
    of_models = [*arguments, *kept, *flags, *check_ties(reference, port)]
    order = {path: number for number, path in enumerate(pairs.modules[0])}
    last = len(order)
    found = sorted(
        of_models, key=lambda one: order.get(one.reference_path, last) if any(_paths(one)) else last
    )
    schedules = [] if schedulers is None else check_schedulers(*schedulers)
    if optimizers is not None:
        updates = check_optimizers(*optimizers, reference, port, layers, tensors=tensors)
        found += [
            one for one in updates if not (one.code == FIRST_RATE and one.kind == "scheduler" and schedules)
        ]
    found += schedules
    on_gpu = any(one.is_cuda for one in reference.parameters())  # elsewhere TF32 is not computed in
    around = [one if on_gpu else replace(one, effect="none") for one in check_environment()]
    return list(dict.fromkeys([*found, *around]))


def _paths(one: Finding) -> tuple[str, str]:
    return one.reference_path, one.port_path


def _modules(model: Any, method: str) -> dict[str, Any]:
    """Return the layers of a model by path; one that stands at several paths comes at each."""
    if method == "named_modules":
        return dict(model.named_modules(remove_duplicate=False))
    return dict(_sublayers(model, ""))


def _sublayers(layer: Any, path: str) -> Iterable[tuple[str, Any]]:
    yield path, layer
    for name, child in layer._sub_layers.items():  # noqa: SLF001
        if child is not None:
            yield from _sublayers(child, f"{path}.{name}" if path else name)


@dataclass(slots=True)
class _Pairs:
    """Pairs of layers of the models themselves, in the order of torch's."""

    reference: Mapping[str, Any]
    port: Mapping[str, Any]
    found: list[Pair] = field(default_factory=list)
    calls: dict[tuple[str, str], CallPair] = field(default_factory=dict)
    given: set[tuple[str, str]] = field(default_factory=set)

    @property
    def modules(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The layers of both models by path."""
        return self.reference, self.port

    def take(self, layers: Iterable[LayerPair], calls: Iterable[CallPair]) -> None:
        """Pair layers as they are given, those that calls add, and those that hold them."""
        for call in calls:
            self.calls.setdefault((call.reference.path, call.port.path), call)
        self.given = {(one.reference, one.port) for one in layers}
        inner = {key for key, call in self.calls.items() if not call.whole}
        paths = {*self.given, *inner}
        order = {path: number for number, path in enumerate(self.reference)}
        known = sorted(
            (one for one in paths if one[0] in self.reference and one[1] in self.port),
            key=lambda one: order[one[0]],
        )
        held = list(container_pairs(self.reference, self.port, known))
        made = [
            Pair(one[0], self.reference[one[0]], one[1], self.port[one[1]], self._shapes(one))
            for one in known
        ]
        self.given |= {(one.reference_path, one.port_path) for one in held}
        self.found = sorted([*made, *held], key=lambda one: order[one.reference_path])

    def _shapes(self, paths: tuple[str, str]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        call = self.calls.get(paths)
        if call is None or not call.reference.inputs or not call.port.inputs:
            return None
        return call.reference.inputs[0].shape, call.port.inputs[0].shape

    def freezes(self, one: Finding) -> bool:
        """Tell whether a finding is about a normalization that both freeze: torch by its mode, Paddle by an argument."""
        if (
            one.code != "statistics"
            or not self.reference[""].training
            or self.reference[one.reference_path].training
        ):
            return False
        return bool(getattr(self.port[one.port_path], "_use_global_stats", False))

    def weigh(self, one: Finding) -> Finding:
        """Return the finding; one without effect where only the order of calls says that the layers belong together."""
        call = self.calls.get(_paths(one))
        if one.harmless or call is None or _paths(one) in self.given:
            return one
        if one.code in ("missing-dropout", "extra-dropout"):  # an identity may stand where a function drops
            return one if _one_name(*_paths(one)) else replace(one, effect="none")
        inputs = alike(call.reference.inputs, call.port.inputs)
        if one.code == "layer-type" and not inputs:
            return replace(one, effect="none")
        return one if inputs or _one_name(*_paths(one)) else replace(one, effect="none")


def _one_name(ours: str, theirs: str) -> bool:
    """Tell whether two layers are called the same: by their whole paths, or by names that are no numbers."""
    names = [path.rpartition(".")[2] for path in (ours, theirs)]
    return ours == theirs or (names[0] == names[1] and not names[0].isdigit())


def alike(ours: tuple[Value, ...], theirs: tuple[Value, ...]) -> bool:
    """Tell whether the first tensors are the same, whatever the order of their axes; not where they are not in memory."""
    if not ours or not theirs:
        return False
    if theirs[0].stored.twin is ours[0].stored:
        return True
    one, other = ours[0].stored.kept, theirs[0].stored.kept
    if one is None or other is None or one.size != other.size:
        return False
    axes = arrange(one, other)
    return axes is not None and relative(one.transpose(axes), other) <= SAME_SINGLE
