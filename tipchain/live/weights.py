"""Weights from a live torch module into a live Paddle layer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tipchain.conversion.convert import to_paddle
from tipchain.conversion.matching import Match

_log = logging.getLogger(__name__)


def copy_weights(
    reference: Any, port: Any, names: Mapping[str, str] | None = None, ignore: Iterable[str] = ()
) -> Match:
    """Give the port the reference's parameters and buffers, matched by name, then by structure.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``; it is changed, whole or not at all.
        names: Paddle's name by torch's, of tensors or of layers, where structure cannot tell; see ``docs/weights.md``.
        ignore: layers or tensors of either model that the other one lacks; the port's keep their values.

    Returns:
        How the two belong together; printed, what was decided without names, and what was left alone. A warning is logged
        if order of declaration alone decided about some layers.

    Raises:
        WeightsError: what could not be matched or does not fit; all of it is listed.
    """
    converted = to_paddle(reference, reference.state_dict(), port, names, ignore)
    port.set_state_dict(dict(converted.state))
    match = converted.match
    if match.by_order or match.assumed:
        _log.warning(
            "copy_weights: %d layers were told apart by the order of their declaration alone, %d layouts were assumed: "
            "print(copy_weights(...)) lists them", len(match.by_order), len(match.assumed),
        )  # fmt: skip
    return match
