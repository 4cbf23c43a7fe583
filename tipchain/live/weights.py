"""Weights from a live torch module into a live Paddle layer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tipchain.conversion.convert import to_paddle
from tipchain.conversion.given_names import with_ignored
from tipchain.conversion.layouts import divide
from tipchain.conversion.matching import Match
from tipchain.errors import WeightsError
from tipchain.parity.locate.matching import pair_layers
from tipchain.parity.preflight.parameters import two_initializations
from tipchain.parity.preflight.tensors import Tensors

_log = logging.getLogger(__name__)


def copy_weights(
    reference: Any, port: Any, names: Mapping[str, str] | None = None, ignore: Iterable[str] = ()
) -> Match:
    """Give the port the reference's parameters and buffers, matched by name, then by structure.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``. All of its parameters and buffers are set, or none.
        names: torch's names of tensors or layers, and Paddle's, where names and structure do not decide; see
            ``docs/how-to/weights.md``.
        ignore: layers or tensors of one model that do not exist in the other. Those of the port keep their values.

    Returns:
        The match of the two models. Its text lists the layers that were matched without names, and the tensors that were
        not touched. A warning is logged if the order of declaration alone decided.

    Raises:
        WeightsError: tensors without a counterpart, or of a different shape. The error lists all of them.
    """
    converted = to_paddle(reference, reference.state_dict(), port, names, ignore)
    port.set_state_dict(dict(converted.state))
    match = converted.match
    if match.by_order or match.assumed:
        _log.warning(
            "copy_weights: %d layers were matched by the order of their declaration alone, %d layouts were assumed: "
            "print(copy_weights(...)) lists them", len(match.by_order), len(match.assumed),
        )  # fmt: skip
    return match


def give_weights(reference: Any, port: Any, names: Mapping[str, str], ignore: Iterable[str]) -> str | None:
    """Give a port that has an initialization of its own the reference's weights, as far as the two belong together.

    Weights that somebody copied, well or not, stay as they are: what is wrong with them is to be found.

    Returns:
        What was done, in a sentence; None where the port has the reference's weights already.
    """
    known = with_ignored(names, tuple(ignore), reference, port)
    tensors = Tensors(reference, port, pair_layers(reference, port, known), known)
    strange = two_initializations(tensors)
    if strange is None:
        return None
    told = f"{strange.differing} of {strange.compared} parameters held other values"
    try:
        copy_weights(reference, port, names, ignore)
    except WeightsError:
        left = _give_paired(tensors)
        return f"{told}: the reference's were copied, but for {left} that have no counterpart"
    return f"{told}: the reference's were copied (--no-copy-weights compares them as they are)"


def _give_paired(tensors: Tensors) -> int:
    """Copy every tensor that has a counterpart of its shape; return how many of the reference's have none."""
    left = sum(len(layer.slots) for layer in tensors.unmatched[0])
    for pair in tensors.pairs:
        if pair.ours is None:
            continue
        if pair.theirs is None or pair.ours.shape != pair.theirs.shape:
            left += 1
            continue
        arrays = divide(tensors.array(pair.ours), pair.theirs)
        for part, array in zip(pair.theirs.parts, arrays, strict=True):
            part.tensor.set_value(array.astype(part.tensor.numpy().dtype))
    return left
