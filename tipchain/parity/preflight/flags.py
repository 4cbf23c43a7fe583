"""Whether matched layers are in the same mode, and keep their parameters in the same precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tipchain.parity.findings import Finding
from tipchain.parity.preflight.kinds import kind_of
from tipchain.parity.preflight.layers import AnyPair, expanded, name_of
from tipchain.parity.preflight.table import Pair
from tipchain.parity.preflight.tensors import Tensors, is_floating, port_name

MINDED = frozenset(
    (
        "BatchNorm",
        "Dropout",
        "AlphaDropout",
        "FeatureAlphaDropout",
        "RReLU",
        "LSTM",
        "GRU",
        "RNN",
        "MultiheadAttention",
    )
)
"""Kinds of layers that do other things in train mode than in eval mode."""


def check_flags(
    reference: Any, port: Any, pairs: Iterable[AnyPair] = (), tensors: Tensors | None = None
) -> list[Finding]:
    """Compare the modes of matched layers, where the models' own agree, and the dtypes of their parameters.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        pairs: layers that belong together.
        tensors: the models' tensors, matched; without them dtypes are compared as the models' sets of dtypes.
    """
    found: list[Finding] = []
    if bool(reference.training) != bool(port.training):
        found.append(_modes_of_models(reference, port, [*expanded(pairs)]))
    else:
        found += [one for pair in expanded(pairs) for one in _modes(pair)]
    if tensors is not None:
        found += _dtypes(tensors)
    return found


def _word(layer: Any) -> str:
    return "train" if layer.training else "eval"


def _modes_of_models(reference: Any, port: Any, pairs: Iterable[Pair]) -> Finding:
    """Return the difference of the models' own modes; it matters if a layer does other things in train mode."""
    minding = [name_of(pair) for pair in pairs if _mind_modes(pair)]
    shown = ", ".join(minding[:3]) + (f" and {len(minding) - 3} more" if len(minding) > 3 else "")
    told = f"; a run in the modes that they are in would show it ({shown})" if minding else ""
    return Finding(
        code="mode", kind="flag", reference_path="", port_path="", reference=f"training={reference.training}",
        port=f"training={port.training}",
        message=f"the port is in {_word(port)} mode, torch's model in {_word(reference)} mode{told}",
        fix=f"call `{_word(reference)}()` of the port", effect="elsewhere" if minding else "none",
    )  # fmt: skip


def _mind_modes(pair: Pair) -> bool:
    """Tell whether a layer of a pair does other things in train mode: of its kind, or as its own code asks."""
    for kind, layer in ((kind_of(pair.reference, 0), pair.reference), (kind_of(pair.port, 1), pair.port)):
        if (
            kind is None
            and "training" in getattr(type(layer).forward, "__code__", _mind_modes.__code__).co_names
        ):
            return True
        if kind is not None and kind.name in MINDED and _drops(layer):
            return True
    return False


def _modes(pair: Pair) -> Iterator[Finding]:
    kinds = kind_of(pair.reference, 0), kind_of(pair.port, 1)
    if kinds[0] is not kinds[1] or kinds[0] is None or kinds[0].name not in MINDED:
        return
    ours, theirs = _minds(pair.reference), _minds(pair.port)
    if ours is None or theirs is None or ours == theirs:
        return
    yield Finding(
        code="mode", kind="flag", reference_path=pair.reference_path, port_path=pair.port_path,
        reference=f"training={pair.reference.training}", port=f"training={pair.port.training}",
        message=f"{name_of(pair)} is in {_word(pair.port)} mode, torch's in {_word(pair.reference)} mode, "
        "and the models' own modes agree",
        fix=f"call `{_word(pair.reference)}()` of `{pair.port_path}`",
    )  # fmt: skip


def _minds(layer: Any) -> bool | None:
    """Tell whether a layer does what it does in train mode; None where that is the same as in eval mode."""
    if not _drops(layer):
        return None
    if getattr(layer, "_use_global_stats", None):  # frozen: running statistics in either mode
        return False
    if hasattr(layer, "running_mean") and layer.running_mean is None:
        return None
    return bool(layer.training)


def _drops(layer: Any) -> bool:
    """Tell whether a layer that has a probability of dropping drops anything; of any other layer, that it may."""
    rate = getattr(layer, "p", getattr(layer, "dropout", None))
    if not isinstance(rate, int | float):
        return True
    return rate != 0 and getattr(layer, "num_layers", 2) != 1


def _dtypes(tensors: Tensors) -> Iterator[Finding]:
    """Yield the dtypes that differ; one finding where all of both models' do alike."""
    pairs = [
        (pair, pair.ours, pair.theirs)
        for pair in tensors.pairs
        if pair.ours is not None
        and pair.theirs is not None
        and is_floating(pair.ours)
        and is_floating(pair.theirs)
    ]
    kinds = {(ours.dtype, theirs.dtype) for _, ours, theirs in pairs}
    if len(kinds) == 1 and len(pairs) > 1:
        ((ours_, theirs_),) = kinds
        if ours_ != theirs_:
            yield Finding(
                code="dtype", kind="flag", reference_path="", port_path="", reference=f"torch.{ours_}",
                port=f"paddle.{theirs_}", message=f"the port's parameters are {theirs_}, those of torch's model {ours_}",
                fix=f"call `to(dtype='{ours_}')` of the port",
            )  # fmt: skip
        return
    for pair, ours, theirs in pairs:
        if ours.dtype != theirs.dtype:
            yield Finding(
                code="dtype", kind="flag", reference_path=pair.layers.reference, port_path=pair.layers.port,
                reference=f"torch.{ours.dtype}", port=f"paddle.{theirs.dtype}",
                message=f"{port_name(theirs)} is {theirs.dtype}, torch's {ours.name} {ours.dtype}",
                fix=f"make `{port_name(theirs)}` {ours.dtype}",
            )  # fmt: skip
