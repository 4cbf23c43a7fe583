"""Losses in torch; `tipchain.pairs.paddle_losses` has the same ones under the same names.

Each builder returns ``loss(output, label)``. Logits are float ``[n, c]`` or ``[n, c, d1, ...]``, as torch has them.
Source of what is computed: https://docs.pytorch.org/docs/stable/nn.functional.html#loss-functions
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import functional

from tipchain.framework_types import Function, Loss, Setting, Tensor

WEIGHTS = ("weight", "pos_weight")
"""Arguments of one factor per class."""


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
    return _loss(
        functional.cross_entropy,
        floats=soft_label,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


def build_nll_loss(weight: Sequence[float] | None = None, ignore_index: int = -100, reduction: str = "mean") -> Loss:
    """Return the negative log likelihood of log-probabilities ``[n, c, ...]`` and class numbers ``[n, ...]``."""
    return _loss(functional.nll_loss, floats=False, weight=weight, ignore_index=ignore_index, reduction=reduction)


def build_bce_loss(pos_weight: Sequence[float] | None = None, reduction: str = "mean") -> Loss:
    """Return the binary cross entropy of logits and labels in ``[0, 1]`` of one shape.

    Args:
        pos_weight: one factor per class (last axis) for the positive part.
        reduction: ``"mean"`` over all elements, or ``"sum"``.
    """
    return _loss(functional.binary_cross_entropy_with_logits, pos_weight=pos_weight, reduction=reduction)


def build_kl_loss(reduction: str = "batchmean") -> Loss:
    """Return the Kullback-Leibler divergence of labels (probabilities) from logits ``[n, c]``.

    Args:
        reduction: ``"batchmean"`` (the definition: a mean over samples) or ``"sum"``.
    """
    return _loss(lambda x, target, **how: functional.kl_div(x.log_softmax(1), target, **how), reduction=reduction)


def build_mse_loss(reduction: str = "mean") -> Loss:
    """Return the squared error of outputs and float labels of one shape."""
    return _loss(functional.mse_loss, reduction=reduction)


def build_smooth_l1_loss(beta: float = 1.0, reduction: str = "mean") -> Loss:
    """Return the smooth L1 error: ``0.5 d^2 / beta``, beyond ``beta`` ``|d| - 0.5 beta`` (Girshick 2015)."""
    return _loss(functional.smooth_l1_loss, beta=beta, reduction=reduction)


def _loss(function: Function, *, floats: bool = True, **arguments: Setting) -> Loss:
    """Return a function of torch's as a loss; ``floats``: labels are numbers like outputs."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        given = {
            name: output.new_tensor(value) if name in WEIGHTS and value is not None else value
            for name, value in arguments.items()
        }
        return function(output, label.to(output.dtype) if floats else label, **given)

    return loss
