"""Losses in torch; `tipchain.pairs.paddle_losses` has the same ones under the same names.

Each builder returns ``loss(output, label)``. Logits are float ``[n, c]`` or ``[n, c, d1, ...]``, as torch has them.
Source of what is computed: https://docs.pytorch.org/docs/stable/nn.functional.html#loss-functions
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from tipchain.framework_types import Loss, Tensor


def build_loss(
    label_smoothing: float = 0.0,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    soft_label: bool = False,
    reduction: str = "mean",
) -> Loss:
    """Return the cross entropy of logits.

    Args:
        label_smoothing: share of every target that is spread evenly over the classes, in ``[0, 1]``.
        weight: one factor per class.
        ignore_index: samples of this class do not count, neither in the sum nor in the mean's number of samples.
        soft_label: whether labels are probabilities of the logits' shape instead of class numbers ``[n, d1, ...]``.
        reduction: ``"mean"`` (over the weights of the samples that count; with soft labels over all samples) or
            ``"sum"``.
    """

    def loss(output: Tensor, label: Tensor) -> Tensor:
        factors = None if weight is None else torch.tensor(weight, dtype=output.dtype, device=output.device)
        target = label.to(output.dtype) if soft_label else label
        return functional.cross_entropy(
            output,
            target,
            weight=factors,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )

    return loss


def build_nll_loss(weight: Sequence[float] | None = None, ignore_index: int = -100, reduction: str = "mean") -> Loss:
    """Return the negative log likelihood of log-probabilities ``[n, c, ...]`` and class numbers ``[n, ...]``."""

    def loss(output: Tensor, label: object) -> Tensor:
        factors = None if weight is None else torch.tensor(weight, dtype=output.dtype, device=output.device)
        return functional.nll_loss(output, label, weight=factors, ignore_index=ignore_index, reduction=reduction)

    return loss


def build_bce_loss(pos_weight: Sequence[float] | None = None, reduction: str = "mean") -> Loss:
    """Return the binary cross entropy of logits and labels in ``[0, 1]`` of one shape.

    Args:
        pos_weight: one factor per class (last axis) for the positive part.
        reduction: ``"mean"`` over all elements, or ``"sum"``.
    """

    def loss(output: Tensor, label: Tensor) -> Tensor:
        factors = None if pos_weight is None else torch.tensor(pos_weight, dtype=output.dtype, device=output.device)
        target = label.to(output.dtype)
        return functional.binary_cross_entropy_with_logits(output, target, pos_weight=factors, reduction=reduction)

    return loss


def build_kl_loss(reduction: str = "batchmean") -> Loss:
    """Return the Kullback-Leibler divergence of labels (probabilities) from logits ``[n, c]``.

    Args:
        reduction: ``"batchmean"`` (the definition: a mean over samples) or ``"sum"``.
    """

    def loss(output: Tensor, label: Tensor) -> Tensor:
        return functional.kl_div(functional.log_softmax(output, dim=1), label.to(output.dtype), reduction=reduction)

    return loss


def build_mse_loss(reduction: str = "mean") -> Loss:
    """Return the squared error of outputs and float labels of one shape."""
    return lambda output, label: functional.mse_loss(output, label.to(output.dtype), reduction=reduction)


def build_smooth_l1_loss(beta: float = 1.0, reduction: str = "mean") -> Loss:
    """Return the smooth L1 error: ``0.5 d^2 / beta``, beyond ``beta`` ``|d| - 0.5 beta`` (Girshick 2015)."""
    return lambda output, label: functional.smooth_l1_loss(
        output, label.to(output.dtype), beta=beta, reduction=reduction
    )
