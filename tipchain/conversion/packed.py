"""Layers of Paddle that torch divides into other tensors: recurrent layers and multi-head attention.

Sources: ``paddle/nn/layer/rnn.py`` and ``transformer.py`` of Paddle 3.3, ``torch/nn/modules/rnn.py`` and
``activation.py`` of torch 2.13. Both frameworks order the gates alike (LSTM i, f, g, o; GRU r, z, n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A torch tensor and the Paddle tensors that hold it, one below the other.

    Attributes:
        leaf: torch's name in the layer.
        tensors: Paddle's, in order.
        transpose: whether each of them is stored transposed.
        fixed: a constant zero of Paddle's, which torch does not have.
    """

    leaf: str
    tensors: tuple[Any, ...]
    transpose: bool = False
    fixed: bool = False


def packed_tensors(layer: Any) -> tuple[str, list[Packed]] | None:
    """Return torch's kind of layer and its tensors for a Paddle layer that torch packs otherwise, else None."""
    from paddle import nn

    if isinstance(layer, nn.MultiHeadAttention):
        found = _attention(layer, nn.Linear)
        return None if found is None else ("MultiheadAttention", found)
    for kind, whole in (("LSTM", nn.LSTM), ("GRU", nn.GRU), ("RNN", nn.SimpleRNN)):
        if isinstance(layer, whole):
            return kind, list(_recurrent(layer))
    for kind, cell in (("LSTM", nn.LSTMCell), ("GRU", nn.GRUCell), ("RNN", nn.SimpleRNNCell)):
        cells = list(_cells(layer)) if isinstance(layer, nn.RNN | nn.BiRNN) else []
        if cells and all(isinstance(one, cell) for one, _ in cells):
            return kind, [packed for one, way in cells for packed in cell_tensors(one, f"_l0{way}")]
    return None


def _attention(layer: Any, linear: type) -> list[Packed] | None:
    """Return torch's tensors of a MultiHeadAttention; None where a projection is no plain Linear."""
    parts = (layer.q_proj, layer.k_proj, layer.v_proj)
    if not all(isinstance(part, linear) for part in (*parts, layer.out_proj)):
        return None
    weights = tuple(part._parameters.get("weight") for part in parts)  # noqa: SLF001
    biases = tuple(part.bias for part in parts)
    if any(one is None for one in weights) or len({one is None for one in biases}) > 1:
        return None
    if layer.kdim == layer.embed_dim == layer.vdim:
        found = [Packed(leaf="in_proj_weight", tensors=weights, transpose=True)]
    else:
        found = [
            Packed(leaf=f"{name}_proj_weight", tensors=(one,), transpose=True)
            for name, one in zip("qkv", weights, strict=True)
        ]
    if biases[0] is not None:
        found.append(Packed(leaf="in_proj_bias", tensors=biases))
    found.append(Packed(leaf="out_proj.weight", tensors=(layer.out_proj.weight,), transpose=True))
    if layer.out_proj.bias is not None:
        found.append(Packed(leaf="out_proj.bias", tensors=(layer.out_proj.bias,)))
    return found


def _cells(layer: Any) -> Iterator[tuple[Any, str]]:
    """Yield the cells of an RNN or BiRNN, with what torch adds to the names of that direction's tensors."""
    if hasattr(layer, "cell"):
        yield layer.cell, ""
    else:
        yield layer.cell_fw, ""
        yield layer.cell_bw, "_reverse"


def _recurrent(layer: Any) -> Iterator[Packed]:
    """Yield torch's tensors of an LSTM, GRU or SimpleRNN.

    They are taken from the cells. The names that the layer itself gives them (``bias_ih_l0``) only tell which biases
    there are: without biases Paddle 3.3 gives those names to other tensors than they say.
    """
    for number in range(layer.num_layers):
        for cell, way in _cells(layer[number]):
            for packed in cell_tensors(cell, f"_l{number}{way}"):
                named = packed.leaf in layer._parameters  # noqa: SLF001
                yield replace(packed, fixed=packed.leaf.startswith("bias_") and not named)


def cell_tensors(cell: Any, suffix: str = "") -> Iterator[Packed]:
    """Yield torch's tensors of one recurrent cell.

    A bias that was switched off is still there in Paddle, as a constant zero.
    """
    for leaf in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        tensor = getattr(cell, leaf)
        absent = leaf.startswith("bias_") and tensor.stop_gradient and not cell.weight_ih.stop_gradient
        yield Packed(leaf=f"{leaf}{suffix}", tensors=(tensor,), fixed=absent)
    if getattr(cell, "proj_size", 0):  # torch calls it by rows and columns, Paddle by input and output
        yield Packed(leaf=f"weight_hr{suffix}", tensors=(cell.weight_ho,), transpose=True)
