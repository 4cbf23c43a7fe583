"""Losses, optimizers and schedulers of both frameworks, and those of a port that has them wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch
from paddle.nn import functional as PF  # noqa: N812
from torch.nn import functional as TF  # noqa: N812

RATE = 0.01
Losses = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
Builders = tuple[Callable[..., Any], Callable[..., Any]]


def cross_entropy(output: Any, labels: Any) -> Any:
    """Return torch's."""
    return TF.cross_entropy(output, labels)


def paddle_cross_entropy(output: Any, labels: Any) -> Any:
    """Return Paddle's."""
    return PF.cross_entropy(output, labels)


def _from_scratch(base: float) -> Callable[[Any, Any], Any]:
    def loss(output: Any, labels: Any) -> Any:
        logs = PF.log_softmax(output, axis=-1) / float(np.log(base))
        hot = PF.one_hot(labels, output.shape[-1]).astype(output.dtype)
        return -(hot * logs).sum(-1).mean()

    return loss


def elbo(output: Any, labels: Any) -> Any:
    """Return the squared error and the divergence of a variational autoencoder (Kingma and Welling 2013)."""
    image, mean, log_variance = output
    return (image**2).mean() - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()


def _without_divergence(output: Any, labels: Any) -> Any:
    return (output[0] ** 2).mean()


def _class_weights(output: Any, labels: Any) -> Any:
    values = paddle.linspace(0.5, 1.5, output.shape[-1]).astype(output.dtype)
    return PF.cross_entropy(output, labels, weight=values)


def _ignored(output: Any, labels: Any) -> Any:
    return PF.cross_entropy(output, labels, ignore_index=int(labels[0]))


def _detached(output: Any, labels: Any) -> Any:
    loss = PF.cross_entropy(output, labels)
    return loss.detach() + PF.cross_entropy(output * 0.5, labels) * 0


LOSSES: Mapping[str, Losses] = {
    "": (cross_entropy, paddle_cross_entropy),
    "from scratch": (cross_entropy, _from_scratch(np.e)),
    "elbo": (elbo, elbo),
    "softmax twice": (cross_entropy, lambda output, labels: PF.cross_entropy(PF.softmax(output), labels)),
    "sum": (cross_entropy, lambda output, labels: PF.cross_entropy(output, labels, reduction="sum")),
    "class mean": (
        cross_entropy,
        lambda output, labels: PF.cross_entropy(output, labels, reduction="sum") / output.shape[-1],
    ),
    "smoothing": (cross_entropy, lambda output, labels: PF.cross_entropy(output, labels, label_smoothing=0.1)),
    "class weights": (cross_entropy, _class_weights),
    "ignored": (cross_entropy, _ignored),
    "log2": (cross_entropy, _from_scratch(2.0)),
    "no divergence": (elbo, _without_divergence),
    "detached": (cross_entropy, _detached),
}


def _sgd(**options: Any) -> Callable[..., Any]:
    def build(parameters: Any, learning_rate: float = RATE) -> Any:
        return torch.optim.SGD(parameters, lr=learning_rate, **options)

    return build


def _momentum(*, factor: float = 1.0, momentum: float = 0.9, **options: Any) -> Callable[..., Any]:
    def build(parameters: Any, learning_rate: Any = RATE) -> Any:
        rate = learning_rate * factor if isinstance(learning_rate, float) else learning_rate
        return paddle.optimizer.Momentum(rate, momentum, parameters=list(parameters), **options)

    return build


def _torch(kind: str, **options: Any) -> Callable[..., Any]:
    def build(parameters: Any, learning_rate: float = RATE) -> Any:
        return getattr(torch.optim, kind)(parameters, lr=learning_rate, **options)

    return build


def _paddle(kind: str, **options: Any) -> Callable[..., Any]:
    def build(parameters: Any, learning_rate: Any = RATE) -> Any:
        return getattr(paddle.optimizer, kind)(learning_rate, parameters=list(parameters), **options)

    return build


def _without_bias(parameters: Any, learning_rate: Any = RATE) -> Any:
    """Return momentum with weight decay for matrices alone."""
    given = list(parameters)
    groups = [
        {"params": [one for one in given if one.ndim > 1], "weight_decay": 0.1},
        {"params": [one for one in given if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return paddle.optimizer.Momentum(learning_rate, 0.9, parameters=groups)


def _clipped(**options: Any) -> Callable[..., Any]:
    """Return torch's SGD that clips the global norm of its gradients before each step."""

    class Clipped(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                torch.nn.utils.clip_grad_norm_(group["params"], 0.1)
            return super().step(closure)

    def build(parameters: Any, learning_rate: float = RATE) -> Any:
        return Clipped(parameters, lr=learning_rate, **options)

    return build


OPTIMIZERS: Mapping[str, Builders] = {
    "momentum right": (_sgd(momentum=0.9), _momentum()),
    "adam right": (_torch("Adam"), _paddle("Adam")),
    "adamw right": (_torch("AdamW", weight_decay=0.1), _paddle("AdamW", weight_decay=0.1)),
    "decay right": (_sgd(momentum=0.9, weight_decay=0.1), _momentum(weight_decay=0.1)),
    "nesterov right": (_sgd(momentum=0.9, nesterov=True), _momentum(use_nesterov=True)),
    "rate": (_sgd(momentum=0.9), _momentum(factor=1.001)),
    "momentum": (_sgd(momentum=0.9), _momentum(momentum=0.8)),
    "nesterov": (_sgd(momentum=0.9, nesterov=True), _momentum()),
    "dampening": (_sgd(momentum=0.9, dampening=0.1), _momentum()),
    "no decay": (_sgd(momentum=0.9, weight_decay=1e-4), _momentum()),
    "decay not on bias": (_sgd(momentum=0.9, weight_decay=0.1), _without_bias),
    "adam epsilon": (_torch("Adam", eps=1e-6), _paddle("Adam")),
    "beta2": (_torch("Adam"), _paddle("Adam", beta2=0.99)),
    "coupled": (_torch("Adam", weight_decay=0.1), _paddle("AdamW", weight_decay=0.1)),
    "clip right": (_clipped(momentum=0.9), _momentum(grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1))),
    "clip value": (_clipped(momentum=0.9), _momentum(grad_clip=paddle.nn.ClipGradByValue(0.1))),
    "clip each": (_clipped(momentum=0.9), _momentum(grad_clip=paddle.nn.ClipGradByNorm(0.1))),
    "rmsprop centered": (_torch("RMSprop", alpha=0.95, centered=True), _paddle("RMSProp", rho=0.95, epsilon=1e-16)),
}


def _torch_schedule(kind: str, **options: Any) -> Callable[..., Any]:
    return lambda optimizer: getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)


def _paddle_schedule(kind: str, **options: Any) -> Callable[..., Any]:
    return lambda optimizer=None: getattr(paddle.optimizer.lr, kind)(**options)


_STEP = _torch_schedule("StepLR", step_size=2, gamma=0.5)
_COSINE = _torch_schedule("CosineAnnealingLR", T_max=10)
_WARM = _torch_schedule("LinearLR", start_factor=0.1, total_iters=4)

SCHEDULERS: Mapping[str, Builders] = {
    "step right": (_STEP, _paddle_schedule("StepDecay", learning_rate=RATE, step_size=2, gamma=0.5)),
    "cosine right": (_COSINE, _paddle_schedule("CosineAnnealingDecay", learning_rate=RATE, T_max=10)),
    "warm right": (
        _WARM,
        _paddle_schedule("LinearWarmup", learning_rate=RATE, warmup_steps=4, start_lr=RATE * 0.1, end_lr=RATE),
    ),
    "gamma": (_STEP, _paddle_schedule("StepDecay", learning_rate=RATE, step_size=2, gamma=0.1)),
    "step": (_STEP, _paddle_schedule("StepDecay", learning_rate=RATE, step_size=3, gamma=0.5)),
    "cosine period": (_COSINE, _paddle_schedule("CosineAnnealingDecay", learning_rate=RATE, T_max=20)),
    "warmup start": (
        _WARM,
        _paddle_schedule("LinearWarmup", learning_rate=RATE, warmup_steps=4, start_lr=0.0, end_lr=RATE),
    ),
    "missing": (_STEP, _paddle_schedule("StepDecay", learning_rate=RATE, step_size=1000, gamma=0.5)),
}
