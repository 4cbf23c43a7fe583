"""Weights from a live torch module into a live Paddle layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tipchain.conversion.convert import to_paddle


def copy_weights(reference: Any, port: Any, names: Mapping[str, str] | None = None) -> None:
    """Give the port the reference's parameters and buffers, matched by name, then by structure.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``; it is changed, whole or not at all.
        names: Paddle's name by torch's, of tensors or of layers, where structure cannot tell.

    Raises:
        WeightsError: what could not be matched or does not fit; all of it is listed.
    """
    port.set_state_dict(dict(to_paddle(reference, reference.state_dict(), port, names).state))
