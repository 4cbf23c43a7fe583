"""Cross entropy in Paddle; `tipchain.pairs.torch_losses` has the same.

It is put together from logarithms here, since ``paddle.nn.functional.cross_entropy`` (3.3) is not torch's

- for a negative ``ignore_index``: the mean divides by all samples, torch's by those that count;
- for label smoothing with class weights: it weights by the smoothed label's mean weight, torch each class by its own;
- for label smoothing with ``ignore_index``: the ignored samples count;
- for soft labels with class weights: the same, and the mean divides by the weights, torch's by the samples;
- for logits more than 64 below a sample's largest: it takes them for 64 below (so does ``log_softmax``), torch as
  they are, so that a sample's loss ends at about 64;
- where every sample is ignored: it gives 0, torch NaN.

Source: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/functional/cross_entropy_en.html
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from tipchain.framework_types import Loss, Tensor


def build_loss(
    label_smoothing: float = 0.0,
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    soft_label: bool = False,
    reduction: str = "mean",
) -> Loss:
    """Return the cross entropy of logits; the arguments are those of `torch_losses.build_loss`."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"the reduction is {reduction!r}, expected 'mean' or 'sum'")

    def loss(output: object, label: Tensor) -> Tensor:
        logits = _classes_last(output)
        classes = logits.shape[-1]
        shifted = logits - logits.max(axis=-1, keepdim=True).detach()
        logs = shifted - shifted.exp().sum(axis=-1, keepdim=True).log()
        values = [1.0] * classes if weight is None else list(weight)
        factors = paddle.to_tensor(values, dtype=logits.dtype, place=logits.place)
        if soft_label:
            target = _classes_last(label).astype(logits.dtype)
            share = paddle.ones(target.shape[:-1], dtype=logits.dtype)
            losses, size = -(target * factors * logs).sum(axis=-1), share.sum()
        else:
            counts = label != ignore_index
            share = counts.astype(logs.dtype)
            valid = paddle.where(counts, label, paddle.zeros_like(label))
            weights = paddle.nn.functional.embedding(valid, factors.unsqueeze(-1)).squeeze(-1) * share
            picked = paddle.take_along_axis(logs, valid.unsqueeze(-1), axis=-1).squeeze(-1)
            losses, size = paddle.where(counts, -picked * weights, paddle.zeros_like(weights)), weights.sum()
        if label_smoothing:
            spread = -(factors * logs).sum(axis=-1) * share / classes
            losses = (1 - label_smoothing) * losses + label_smoothing * spread
        return losses.sum() if reduction == "sum" else losses.sum() / size

    return loss


def _classes_last(tensor: Tensor) -> Tensor:
    """Return a tensor ``[n, c, d1, ...]`` as ``[n, d1, ..., c]``."""
    rank = len(tensor.shape)
    return tensor if rank == 2 else tensor.transpose([0, *range(2, rank), 1])
