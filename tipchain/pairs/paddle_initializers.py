"""torch's default initialization for Paddle layers.

The two frameworks' layers start differently: Paddle draws the kernels of convolutions from a normal distribution of
gain sqrt(2), the matrices of Linear by Xavier's rule, and sets biases to zero, where torch draws all of them uniformly
within 1/sqrt(fan_in). A port that is to be trained from scratch as its reference was calls `like_torch` on its model.

Source: ``reset_parameters`` of the layers in ``torch.nn`` (torch 2.13).
"""

from __future__ import annotations

import math
from typing import TypeVar

import paddle
from paddle import Tensor, nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.norm import _BatchNormBase, _InstanceNormBase

from tipchain.errors import UsageError

Model = TypeVar("Model", bound=nn.Layer)
Norms = (_BatchNormBase, _InstanceNormBase, nn.LayerNorm, nn.GroupNorm)


def like_torch(model: Model) -> Model:
    """Give every layer torch's default initial values, and return the model.

    Values come from Paddle's own generator (``paddle.seed``), so that they follow torch's distributions, not its
    numbers. Convolutions (transposed ones too), Linear, Bilinear, Embedding, the recurrent layers and cells,
    normalizations, PReLU, MultiHeadAttention and Transformer are set, subclasses included; everything else,
    such as parameters of your own classes, and all buffers stay as they are. Call it before initializing anything
    in a way of your own, and before ``weight_norm``.

    Args:
        model: any layer; it is changed in place.

    Raises:
        UsageError: a layer's weight is no parameter of it any more (``weight_norm``, ``spectral_norm``).
    """
    with paddle.no_grad():
        for path, layer in model.named_sublayers(include_self=True):
            _reset(path, layer)
        # These set again what the layers inside them have been given.
        for layer in model.sublayers(include_self=True):
            if isinstance(layer, nn.MultiHeadAttention):  # one Xavier over three projections, biases to zero
                width, packed = layer.embed_dim, layer.kdim == layer.vdim == layer.embed_dim
                three = (layer.q_proj, layer.k_proj, layer.v_proj)
                for projection in three:
                    fan_out = 3 * width if packed else width
                    _uniform(math.sqrt(6 / (projection.weight.shape[0] + fan_out)), projection.weight)
                for projection in (*three, layer.out_proj):
                    if projection.bias is not None:
                        projection.bias.fill_(0.0)
        for transformer in model.sublayers(include_self=True):
            if isinstance(transformer, nn.Transformer):  # every other matrix by Xavier's rule
                inside = transformer.sublayers()
                attentions = [one for one in inside if isinstance(one, nn.MultiHeadAttention)]
                done = {id(one) for layer in attentions for one in (layer.q_proj, layer.k_proj, layer.v_proj)}
                for layer in inside:
                    if isinstance(layer, nn.Linear) and id(layer) not in done:
                        _uniform(math.sqrt(6 / sum(layer.weight.shape)), layer.weight)
    return model


def _reset(path: str, layer: nn.Layer) -> None:
    if isinstance(layer, _ConvNd | nn.Linear | nn.Bilinear):
        weight = _weight(path, layer)
        # Paddle keeps a Linear's matrix transposed; of a kernel it is the second axis, whatever that stands for.
        fan_in = weight.shape[0] if isinstance(layer, nn.Linear) else weight.shape[1]
        field = math.prod(weight.shape[2:]) if isinstance(layer, _ConvNd) else 1
        _uniform(1 / math.sqrt(fan_in * field), weight, layer.bias)
    elif isinstance(layer, nn.Embedding):
        weight = _weight(path, layer)
        weight.normal_(0.0, 1.0)
        if layer._padding_idx is not None and layer._padding_idx >= 0:  # noqa: SLF001  (-1 stands for none)
            weight[layer._padding_idx] = 0.0  # noqa: SLF001
    elif isinstance(layer, nn.RNNCellBase):
        _uniform(1 / math.sqrt(layer.hidden_size), *layer.parameters(include_sublayers=False))
    elif isinstance(layer, nn.PReLU):
        layer._weight.fill_(0.25)  # noqa: SLF001
    elif isinstance(layer, Norms):
        for name, value in (("weight", 1.0), ("scale", 1.0), ("bias", 0.0)):  # InstanceNorm's weight is its scale
            if layer._parameters.get(name) is not None:  # noqa: SLF001
                getattr(layer, name).fill_(value)


def _weight(path: str, layer: nn.Layer) -> Tensor:
    if "weight" not in layer._parameters:  # noqa: SLF001
        raise UsageError(
            f"{path or type(layer).__name__}: the weight is made of other parameters (weight_norm, spectral_norm)\n"
            "  expected: like_torch before that"
        )
    return layer.weight


def _uniform(bound: float, *parameters: Tensor | None) -> None:
    for parameter in parameters:
        if parameter is not None:
            parameter.uniform_(-bound, bound)
