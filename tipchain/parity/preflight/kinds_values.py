"""Layers that hold values: linear maps, embeddings, normalization.

Sources: ``torch/nn/modules/{linear,sparse,batchnorm,instancenorm,normalization}.py``;
``paddle/nn/layer/{common,norm}.py`` and ``paddle/nn/functional/{norm,input}.py`` of Paddle 3.3.
"""

from __future__ import annotations

from typing import Any

from tipchain.parity.preflight.present import affine_properties, bias_property
from tipchain.parity.preflight.table import UNTOLD, Kind, Shape, kind, plain, prop, tidy
from tipchain.parity.rounding import CONSTANT

USUAL, BATCH, RUNNING = "batch in training, running in eval", "batch", "running"


def _tracks(layer: Any) -> bool:
    return layer.running_mean is not None


def _torch_momentum(layer: Any, _shape: Shape | None) -> Any:
    if not _tracks(layer):
        return UNTOLD
    return "cumulative" if layer.momentum is None else plain(layer.momentum)


def _paddle_momentum(layer: Any, _shape: Shape | None) -> Any:
    return 1 - plain(layer._momentum)  # noqa: SLF001


def _write_momentum(momentum: Any) -> Any:
    return tidy(1 - momentum) if isinstance(momentum, float | int) else momentum


def _torch_statistics(layer: Any, _shape: Shape | None) -> str:
    return USUAL if _tracks(layer) else BATCH


def _paddle_statistics(layer: Any, _shape: Shape | None) -> str:
    """Return whose mean and variance normalize.

    ``use_global_stats`` False makes ``F.batch_norm`` take the batch's in eval mode too; in the older ``BatchNorm`` its
    default, False, does not: there ``trainable_statistics`` does.
    """
    told = getattr(layer, "_use_global_stats", None)
    if told:
        return RUNNING
    if hasattr(layer, "_trainable_statistics"):
        return BATCH if layer._trainable_statistics else USUAL  # noqa: SLF001
    return USUAL if told is None else BATCH


def _write_statistics(how: str) -> Any:
    return {USUAL: None, BATCH: False, RUNNING: True}[how]


def _batch_norm() -> Kind:
    return kind(
        "BatchNorm", ("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm"),
        _epsilon(),
        prop("momentum", "momentum", read=_torch_momentum, read_paddle=_paddle_momentum, write=_write_momentum,
             visible=False, slack=CONSTANT),
        prop("statistics", "track_running_stats", "use_global_stats", read=_torch_statistics,
             read_paddle=_paddle_statistics, write=_write_statistics),
        prop("activation", "act", read=lambda _layer, _shape: None,
             read_paddle=lambda layer, _: getattr(layer, "_act", None), measured=True),
        *affine_properties(),
        torch=("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
    )  # fmt: skip


def _epsilon() -> Any:
    return prop("epsilon", "eps", "epsilon")


def _instance_norm() -> Kind:
    return kind(
        "InstanceNorm", ("InstanceNorm1D", "InstanceNorm2D", "InstanceNorm3D"),
        _epsilon(),
        prop("statistics", "track_running_stats", "momentum", read=_torch_instance,
             read_paddle=lambda _layer, _shape: "instance",
             lacking="keep running statistics in a layer of your own: Paddle's has none"),
        affine_properties()[0],
        torch=("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
    )  # fmt: skip


def _torch_instance(layer: Any, _shape: Shape | None) -> str:
    return "running in eval" if _tracks(layer) else "instance"


def _padding_index(layer: Any, _shape: Shape | None) -> Any:
    index = layer.padding_idx
    rows = layer.num_embeddings if hasattr(layer, "num_embeddings") else layer._num_embeddings  # noqa: SLF001
    return index if index is None or index >= 0 else index + rows


def _padding_row(layer: Any, shape: Shape | None) -> Any:
    """Return what torch gives for the index of padding: the row as it is, where Paddle gives zeros whatever it holds."""
    index = _padding_index(layer, shape)
    return UNTOLD if index is None or not bool(layer.weight[index].any()) else "its row"


def _padding_zeros(layer: Any, shape: Shape | None) -> Any:
    return UNTOLD if _padding_index(layer, shape) is None else "zeros"


def _largest_norm(layer: Any, _shape: Shape | None) -> Any:
    return layer.max_norm if hasattr(layer, "max_norm") else layer._max_norm  # noqa: SLF001


def _norm_type(layer: Any, shape: Shape | None) -> Any:
    if _largest_norm(layer, shape) is None:
        return UNTOLD
    return layer.norm_type if hasattr(layer, "norm_type") else layer._norm_type  # noqa: SLF001


KINDS = (
    kind("Linear", "", bias_property()),
    kind("Bilinear", "", bias_property()),
    kind(
        "Embedding", "",
        prop("padding-idx", "padding_idx", read=_padding_index),
        prop("padding-row", "output at padding_idx", read=_padding_row, read_paddle=_padding_zeros,
             lacking="pass `padding_idx=None` and stop the row's gradient", measured=True),
        prop("max-norm", "max_norm", read=_largest_norm),
        prop("norm-type", "norm_type", read=_norm_type),
        prop("scale-grad-by-freq", "scale_grad_by_freq", visible=False),
    ),
    _batch_norm(),
    _instance_norm(),
    kind("LayerNorm", "", _epsilon(), prop("normalized-shape", "normalized_shape", write=list),
         *affine_properties("elementwise_affine")),
    kind("GroupNorm", "", _epsilon(), prop("groups", "num_groups"), *affine_properties()),
    kind(
        "LocalResponseNorm", "", prop("size", "size"), prop("alpha", "alpha"), prop("beta", "beta"), prop("k", "k"),
    ),
)  # fmt: skip
"""Their kinds."""
