"""Cross entropy in torch; `tipchain.pairs.paddle_losses` has the same.

Source of what is computed: https://docs.pytorch.org/docs/stable/nn.functional.html#loss-functions
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import functional

from tipchain.framework_types import Loss, Tensor


def build_loss(
    label_smoothing: float = 0.0,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    soft_label: bool = False,
    reduction: str = "mean",
) -> Loss:
    """Return the cross entropy of logits, float ``[n, c]`` or ``[n, c, d1, ...]``, as a function of output and label.

    Args:
        label_smoothing: share of every target that is spread evenly over the classes, in ``[0, 1]``.
        weight: one factor per class.
        ignore_index: samples of this class do not count, neither in the sum nor in the mean's number of samples.
        soft_label: whether labels are probabilities of the logits' shape instead of class numbers ``[n, d1, ...]``.
        reduction: ``"mean"`` (over the weights of the samples that count; with soft labels over all samples) or
            ``"sum"``.
    """

    def loss(output: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(
            output,
            label.to(output.dtype) if soft_label else label,
            weight=None if weight is None else output.new_tensor(weight),
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )

    return loss
