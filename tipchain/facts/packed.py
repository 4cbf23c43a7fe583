"""How Paddle spells out the layers that torch keeps as one: recurrent layers and multi-head attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tipchain.framework_types import Model, Nested, Tensor

# Sources: ``paddle/nn/layer/rnn.py`` and ``transformer.py`` of Paddle 3.3, ``torch/nn/modules/rnn.py`` and
# ``activation.py`` of torch 2.13. Both frameworks order the gates alike (LSTM i, f, g, o; GRU r, z, n).


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
    tensors: tuple[Tensor, ...]
    transpose: bool = False
    fixed: bool = False


def packed_tensors(layer: object) -> tuple[str, list[Packed]] | None:
    """Return torch's kind and tensors of a layer that torch packs otherwise, else None."""
    import paddle
    from paddle import nn

    if hasattr(paddle, "compat") and isinstance(layer, paddle.compat.nn.MultiheadAttention):
        return "MultiheadAttention", list(_attention_as_torch(layer))
    if isinstance(layer, nn.MultiHeadAttention):
        attention = _attention(layer, nn.Linear)
        return None if attention is None else ("MultiheadAttention", attention)
    for kind, whole in (("LSTM", nn.LSTM), ("GRU", nn.GRU), ("RNN", nn.SimpleRNN)):
        if isinstance(layer, whole):
            return kind, list(_recurrent(layer))
    for kind, cell in (("LSTM", nn.LSTMCell), ("GRU", nn.GRUCell), ("RNN", nn.SimpleRNNCell)):
        cells = list(_cells(layer)) if isinstance(layer, nn.RNN | nn.BiRNN) else []
        if cells and all(isinstance(one, cell) for one, _ in cells):
            return kind, [packed for one, way in cells for packed in cell_tensors(one, f"_l0{way}")]
    return None


def _attention(layer: Model, linear: type) -> list[Packed] | None:
    parts = (layer.q_proj, layer.k_proj, layer.v_proj)
    if not all(isinstance(part, linear) for part in (*parts, layer.out_proj)):
        return None
    weights = tuple(part._parameters.get("weight") for part in parts)  # noqa: SLF001
    biases = tuple(part.bias for part in parts)
    if any(one is None for one in weights) or len({one is None for one in biases}) > 1:
        return None
    if layer.kdim == layer.embed_dim == layer.vdim:
        packed = [Packed(leaf="in_proj_weight", tensors=weights, transpose=True)]
    else:
        packed = [
            Packed(leaf=f"{name}_proj_weight", tensors=(one,), transpose=True)
            for name, one in zip("qkv", weights, strict=True)
        ]
    if biases[0] is not None:
        packed.append(Packed(leaf="in_proj_bias", tensors=biases))
    packed.append(Packed(leaf="out_proj.weight", tensors=(layer.out_proj.weight,), transpose=True))
    if layer.out_proj.bias is not None:
        packed.append(Packed(leaf="out_proj.bias", tensors=(layer.out_proj.bias,)))
    return packed


def _attention_as_torch(layer: Model) -> Iterator[Packed]:
    """Yield the tensors of ``paddle.compat.nn``'s, which packs as torch does, but for the biases of keys of another size."""
    own = {name: one for name, one in layer.named_parameters() if not re.fullmatch("[qkv]_proj_bias", name)}
    yield from (Packed(leaf=name, tensors=(one,)) for name, one in own.items())
    if layer.q_proj_bias is not None:
        yield Packed(leaf="in_proj_bias", tensors=(layer.q_proj_bias, layer.k_proj_bias, layer.v_proj_bias))


def _cells(layer: Model) -> Iterator[tuple[Model, str]]:
    if hasattr(layer, "cell"):
        yield layer.cell, ""
    else:
        yield layer.cell_fw, ""
        yield layer.cell_bw, "_reverse"


def cells_of(layer: Model) -> list[Model]:
    """Return the cells of a recurrent layer of Paddle, or a cell itself."""
    if hasattr(layer, "num_layers"):
        return [one for number in range(layer.num_layers) for one in cells_of(layer[number])]
    return [one for one, _ in _cells(layer)] if hasattr(layer, "cell") or hasattr(layer, "cell_fw") else [layer]


def _recurrent(layer: Model) -> Iterator[Packed]:
    """Yield torch's tensors of an LSTM, GRU or SimpleRNN.

    They are taken from the cells. The names that the layer itself gives them (``bias_ih_l0``) only tell which biases
    there are: without biases Paddle 3.3 gives those names to other tensors than they say.
    """
    for number in range(layer.num_layers):
        for cell, way in _cells(layer[number]):
            for packed in cell_tensors(cell, f"_l{number}{way}"):
                named = packed.leaf in layer._parameters  # noqa: SLF001
                yield replace(packed, fixed=packed.leaf.startswith("bias_") and not named)


def cell_tensors(cell: Model, suffix: str = "") -> Iterator[Packed]:
    """Yield torch's tensors of one recurrent cell; a bias that was switched off is a constant zero in Paddle."""
    for leaf in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        tensor = getattr(cell, leaf)
        absent = leaf.startswith("bias_") and tensor.stop_gradient and not cell.weight_ih.stop_gradient
        yield Packed(leaf=f"{leaf}{suffix}", tensors=(tensor,), fixed=absent)
    if getattr(cell, "proj_size", 0):  # torch calls it by rows and columns, Paddle by input and output
        yield Packed(leaf=f"weight_hr{suffix}", tensors=(cell.weight_ho,), transpose=True)


# torch's cells, step by step: their kernels compute all at once, and a port by hand has nothing to be held against.
#
# Source: the formulas of ``torch.nn.{RNNCell,GRUCell,LSTMCell}``.


def spell_out(model: Model) -> None:
    """Let the cells inside a torch model compute by the formulas of their documentation."""
    for layer in model.modules():
        if type(layer).__module__ == "torch.nn.modules.rnn" and type(layer).__name__ in _FORMULAS:
            layer.forward = partial(_cell, layer)


def _cell(layer: Model, x: Tensor, state: Nested = None) -> Nested:
    from torch.nn import functional

    formula = _FORMULAS[type(layer).__name__]
    kept = (state,) if isinstance(state, type(x)) else state
    zeros = x.new_zeros(*x.shape[:-1], layer.hidden_size)
    h, *others = (zeros, zeros) if kept is None else kept
    given = functional.linear(x, layer.weight_ih, layer.bias_ih), functional.linear(h, layer.weight_hh, layer.bias_hh)
    return formula(layer, *given, h, *others)


def _rnn(layer: Model, x: Tensor, hidden: Tensor, *_: Tensor) -> Tensor:
    return (x + hidden).relu() if layer.nonlinearity == "relu" else (x + hidden).tanh()


def _gru(_layer: Model, x: Tensor, hidden: Tensor, h: Tensor, *_: Tensor) -> Tensor:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), hidden.chunk(3, -1)
    update = (xz + hz).sigmoid()
    return (1 - update) * (xn + (xr + hr).sigmoid() * hn).tanh() + update * h


def _lstm(_layer: Model, x: Tensor, hidden: Tensor, _h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (x + hidden).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


_FORMULAS: Mapping[str, Callable[..., Nested]] = {"RNNCell": _rnn, "GRUCell": _gru, "LSTMCell": _lstm}
