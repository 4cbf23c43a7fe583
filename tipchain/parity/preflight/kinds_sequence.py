"""Layers over sequences: recurrent layers, attention, the layers of a Transformer.

Sources: ``torch/nn/modules/{rnn,activation,transformer}.py``; ``paddle/nn/layer/{rnn,transformer}.py`` of Paddle 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tipchain.conversion.packed import cell_tensors, packed_tensors
from tipchain.parity.preflight.present import write_presence
from tipchain.parity.preflight.table import UNTOLD, Kind, Pair, Property, Shape, kind, plain, prop

ACTIVATIONS = (
    "relu",
    "gelu",
    "silu",
    "swish",
    "elu",
    "selu",
    "tanh",
    "sigmoid",
    "mish",
    "leaky_relu",
    "relu6",
)
INNER = {
    "TransformerEncoderLayer": ("self_attn", "linear1", "linear2", "norm1", "norm2", "dropout", "dropout1", "dropout2"),
    "TransformerDecoderLayer": ("self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3", "dropout",
                                "dropout1", "dropout2", "dropout3"),
}  # fmt: skip
"""torch's names of the layers inside; Paddle's are the same, but for the decoder's second attention."""
RENAMED = {"multihead_attn": "cross_attn"}


def inner_pairs(pair: Pair, name: str) -> Iterator[Pair]:
    """Yield the pairs of layers inside a pair of Transformer layers."""
    for ours in INNER.get(name, ()):
        theirs = RENAMED.get(ours, ours)
        reference, port = getattr(pair.reference, ours, None), getattr(pair.port, theirs, None)
        if reference is not None and port is not None:
            paths = (
                ".".join(filter(None, one)) for one in ((pair.reference_path, ours), (pair.port_path, theirs))
            )
            yield Pair(next(paths), reference, next(paths), port)


def paddle_recurrent(layer: Any) -> str | None:
    """Return the kind of a Paddle ``RNN`` or ``BiRNN`` over a cell that torch has whole, else None."""
    packed = packed_tensors(layer)
    return None if packed is None or packed[0] == "MultiheadAttention" else packed[0]


def _cells(layer: Any) -> list[Any]:
    """Return a Paddle layer's cells; the layer itself if it is one."""
    if hasattr(layer, "num_layers"):
        return [one for number in range(layer.num_layers) for one in _cells(layer[number])]
    found = [getattr(layer, name) for name in ("cell", "cell_fw", "cell_bw") if hasattr(layer, name)]
    return found or [layer]


def _paddle_biases(layer: Any, _shape: Shape | None) -> tuple[bool, bool]:
    packed = packed_tensors(layer)
    tensors = packed[1] if packed is not None else list(cell_tensors(layer))
    there = [one.leaf for one in tensors if not one.fixed]
    return any(leaf.startswith("bias_ih") for leaf in there), any(
        leaf.startswith("bias_hh") for leaf in there
    )


def _torch_direction(layer: Any, _shape: Shape | None) -> str:
    return "bidirectional" if layer.bidirectional else "forward"


def _paddle_direction(layer: Any, _shape: Shape | None) -> str:
    if getattr(layer, "num_directions", 1) == 2 or hasattr(layer, "cell_bw"):
        return "bidirectional"
    return "backward" if getattr(layer, "is_reverse", False) else "forward"


def _torch_activation(layer: Any, _shape: Shape | None) -> str:
    return str(layer.nonlinearity)


def _paddle_activation(layer: Any, _shape: Shape | None) -> str:
    return str(_cells(layer)[0].activation)


def _torch_dropout(layer: Any, _shape: Shape | None) -> Any:
    return plain(layer.dropout) if layer.num_layers > 1 else 0.0


def _paddle_dropout(layer: Any, _shape: Shape | None) -> Any:
    return plain(layer.dropout) if getattr(layer, "num_layers", 1) > 1 else 0.0


def _biases() -> Property:
    return prop(
        "bias", "bias", "bias_ih_attr, bias_hh_attr", read=lambda layer, _: (bool(layer.bias),) * 2,
        read_paddle=_paddle_biases, write=write_presence,
    )  # fmt: skip


def _nonlinearity() -> Property:
    return prop(
        "activation", "nonlinearity", "activation", read=_torch_activation, read_paddle=_paddle_activation
    )


def _recurrent(name: str, paddle: str) -> Iterator[Kind]:
    """Yield a recurrent layer and its cell."""
    own = [_nonlinearity()] if name == "RNN" else []
    if name == "LSTM":
        own = [prop("projection", "proj_size", read_paddle=lambda layer, _: _cells(layer)[0].proj_size)]
    yield kind(
        name, paddle,
        prop("layers", "num_layers", read_paddle=lambda layer, _: getattr(layer, "num_layers", 1)),
        prop("direction", "bidirectional", "direction", read=_torch_direction, read_paddle=_paddle_direction,
             write=lambda way: "bidirect" if way == "bidirectional" else way),
        prop("dropout", "dropout", read=_torch_dropout, read_paddle=_paddle_dropout, visible=False),
        _time_order(),
        _biases(),
        *own,
    )  # fmt: skip
    yield kind(f"{name}Cell", f"{paddle}Cell", _biases(), *([_nonlinearity()] if name == "RNN" else []))


def _time_order() -> Property:
    return prop(
        "time-order", "batch_first", "time_major", read=_time_first, read_paddle=_paddle_time_first,
        write=lambda first: first,
    )  # fmt: skip


def _time_first(layer: Any, _shape: Shape | None) -> bool:
    return not layer.batch_first


def _paddle_time_first(layer: Any, _shape: Shape | None) -> bool:
    return bool(getattr(layer, "time_major", False))


def orders_comparable(pair: Pair) -> bool | None:
    """Tell how two sequence layers are given their batches: alike (True), the other way round (False), unknown (None)."""
    if (
        pair.shapes is None
        or any(len(shape) != 3 for shape in pair.shapes)
        or len(set(pair.shapes[0][:2])) == 1
    ):
        return None
    ours, theirs = pair.shapes
    if ours == theirs:
        return True
    return False if ours == (theirs[1], theirs[0], theirs[2]) else None


def _attention_bias(layer: Any, _shape: Shape | None) -> bool:
    bias = layer.in_proj_bias if hasattr(layer, "in_proj_bias") else layer.q_proj.bias
    return bias is not None


def _added_bias(layer: Any, _shape: Shape | None) -> bool:
    return getattr(layer, "bias_k", None) is not None


def _transformer_activation(layer: Any, _shape: Shape | None) -> Any:
    given = layer.activation
    name = str(getattr(given, "__name__", type(given).__name__)).lower().lstrip("_")
    return name if name in ACTIVATIONS else UNTOLD


def _transformer_layer(name: str) -> Kind:
    return kind(
        name, "",
        prop("norm-order", "norm_first", "normalize_before"),
        prop("activation", "activation", read=_transformer_activation),
    )  # fmt: skip


KINDS = (
    *_recurrent("LSTM", "LSTM"),
    *_recurrent("GRU", "GRU"),
    *_recurrent("RNN", "SimpleRNN"),
    kind(
        "MultiheadAttention", "MultiHeadAttention",
        prop("heads", "num_heads"),
        prop("dropout", "dropout", visible=False),
        prop("key-size", "kdim"),
        prop("value-size", "vdim"),
        prop("bias", "bias", "bias_attr", read=_attention_bias, write=write_presence),
        prop("added-bias", "add_bias_kv", read=_added_bias, lacking="append torch's bias_k and bias_v to keys and values"),
        prop("added-zeros", "add_zero_attn", read=lambda layer, _: bool(getattr(layer, "add_zero_attn", False)),
             lacking="append zeros to keys and values"),
        _time_order(),
    ),
    _transformer_layer("TransformerEncoderLayer"),
    _transformer_layer("TransformerDecoderLayer"),
)  # fmt: skip
"""Their kinds."""
