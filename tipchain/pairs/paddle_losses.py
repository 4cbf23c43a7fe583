"""Losses in Paddle; `tipchain.pairs.torch_losses` has the same ones under the same names.

Cross entropy is put together from logarithms here, since ``paddle.nn.functional.cross_entropy`` (3.3) is not torch's

- for a negative ``ignore_index``: the mean divides by all samples, torch's by those that count;
- for label smoothing with class weights: it weights by the smoothed label's mean weight, torch each class by its own;
- for label smoothing with ``ignore_index``: the ignored samples count;
- for soft labels with class weights: the same, and the mean divides by the weights, torch's by the samples;
- for logits more than 64 below a sample's largest: it takes them for 64 below (so does ``log_softmax``), torch as
  they are, so that a sample's loss ends at about 64;
- where every sample is ignored: it gives 0, torch NaN.

Each builder returns ``loss(output, label)``. Logits are float ``[n, c]`` or ``[n, c, d1, ...]``, as torch has them.
Source: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/functional/cross_entropy_en.html
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle.nn import functional

from tipchain.framework_types import Loss, Tensor


def build_loss(
    label_smoothing: float = 0.0,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    soft_label: bool = False,
    reduction: str = "mean",
) -> Loss:
    """Return the cross entropy of logits; the arguments are those of `torch_losses.build_loss`."""

    def loss(output: object, label: object) -> Tensor:
        logits = _classes_last(output)
        logs, factors = _log_softmax(logits), _factors(weight, logits)
        if soft_label:
            target = _classes_last(label).astype(logits.dtype)
            share = paddle.ones(target.shape[:-1], dtype=logits.dtype)
            losses, size = -(target * factors * logs).sum(axis=-1), share.sum()
        else:
            losses, share, size = _hard(logs, label, factors, ignore_index)
        if label_smoothing:
            spread = -(factors * logs).sum(axis=-1) * share / logits.shape[-1]
            losses = (1 - label_smoothing) * losses + label_smoothing * spread
        return _reduce(losses, size, reduction)

    return loss


def build_nll_loss(weight: Sequence[float] | None = None, ignore_index: int = -100, reduction: str = "mean") -> Loss:
    """Return the negative log likelihood of log-probabilities ``[n, c, ...]`` and class numbers ``[n, ...]``."""

    def loss(output: object, label: object) -> Tensor:
        logs = _classes_last(output)
        losses, _, size = _hard(logs, label, _factors(weight, logs), ignore_index)
        return _reduce(losses, size, reduction)

    return loss


def build_bce_loss(pos_weight: Sequence[float] | None = None, reduction: str = "mean") -> Loss:
    """Return the binary cross entropy of logits and labels in ``[0, 1]`` of one shape."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        factors = None if pos_weight is None else paddle.to_tensor(pos_weight, dtype=output.dtype, place=output.place)
        target = label.astype(output.dtype)
        return functional.binary_cross_entropy_with_logits(output, target, pos_weight=factors, reduction=reduction)

    return loss


def build_kl_loss(reduction: str = "batchmean") -> Loss:
    """Return the Kullback-Leibler divergence of labels (probabilities) from logits ``[n, c]``."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        logs = _log_softmax(_classes_last(output))
        return functional.kl_div(logs, _classes_last(label).astype(output.dtype), reduction=reduction)

    return loss


def build_mse_loss(reduction: str = "mean") -> Loss:
    """Return the squared error of outputs and float labels of one shape."""
    return lambda output, label: functional.mse_loss(output, label.astype(output.dtype), reduction=reduction)


def build_smooth_l1_loss(beta: float = 1.0, reduction: str = "mean") -> Loss:
    """Return the smooth L1 error: ``0.5 d^2 / beta``, beyond ``beta`` ``|d| - 0.5 beta`` (Girshick 2015).

    Paddle's function of this name is Huber's loss, ``beta`` times as large.
    """

    def loss(output: Tensor, label: Tensor) -> Tensor:
        huber = functional.smooth_l1_loss(output, label.astype(output.dtype), delta=beta, reduction=reduction)
        return huber / beta

    return loss


def _classes_last(tensor: Tensor) -> Tensor:
    """Return a tensor ``[n, c, d1, ...]`` as ``[n, d1, ..., c]``."""
    rank = len(tensor.shape)
    return tensor if rank == 2 else tensor.transpose([0, *range(2, rank), 1])


def _log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of softmax over the last axis, exact for logits of any size."""
    shifted = logits - logits.max(axis=-1, keepdim=True).detach()
    return shifted - shifted.exp().sum(axis=-1, keepdim=True).log()


def _factors(weight: Sequence[float] | None, logits: Tensor) -> Tensor:
    values = [1.0] * logits.shape[-1] if weight is None else list(weight)
    return paddle.to_tensor(values, dtype=logits.dtype, place=logits.place)


def _hard(logs: Tensor, label: Tensor, factors: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return each sample's weighted loss, 0 if ignored, and the sum of weights."""
    counts = label != ignore_index
    share = counts.astype(logs.dtype)
    valid = paddle.where(counts, label, paddle.zeros_like(label))
    weights = paddle.nn.functional.embedding(valid, factors.unsqueeze(-1)).squeeze(-1) * share
    picked = paddle.take_along_axis(logs, valid.unsqueeze(-1), axis=-1).squeeze(-1)
    losses = paddle.where(counts, -picked * weights, paddle.zeros_like(weights))
    return losses, share, weights.sum()


def _reduce(losses: Tensor, size: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum"):
        raise ValueError(f"the reduction is {reduction!r}, expected 'mean' or 'sum'")
    return losses.sum() if reduction == "sum" else losses.sum() / size
