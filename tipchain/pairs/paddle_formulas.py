"""torch's formulas in Paddle, where Paddle's own differ.

===================  =========================================  ==========================================
what                 torch                                      Paddle
===================  =========================================  ==========================================
RMSProp              lr · Σ mu^k g / (√v + eps)                 Σ mu^k lr g / √(v + eps): eps below the root, and the
                                                                rate inside the momentum
Adamax               u = max(b2 u, abs(g) + eps)                u = max(b2 u + eps, abs(g))
clipping by a norm   g · min(1, limit / (norm + 1e-6))          g · limit / max(norm, limit)
===================  =========================================  ==========================================

Sources: ``torch/optim/{rmsprop,adamax}.py`` and ``torch/nn/utils/clip_grad.py``;
``paddle/optimizer/{rmsprop,adamax}.py``, ``paddle/nn/clip.py`` and the kernels they name. Adam, AdamW (Paddle scales
eps by √(1 - b2^t), which is the same), Adagrad and Momentum need nothing.
"""

from __future__ import annotations

from typing import Any

import paddle

from tipchain.errors import UsageError

NORM_EPSILON = 1e-6
"""What torch's ``clip_grad_norm_`` adds to a norm before it divides by it."""


class TorchRMSProp(paddle.optimizer.RMSProp):  # type: ignore[misc]
    """RMSProp with epsilon beside the root and the learning rate outside the momentum, as torch has it."""

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> None:  # noqa: ARG002
        param, grad = _dynamic(param_and_grad)
        square = self._get_accumulator_master(self._mean_square_acc_str, param)
        _assign(square, square * self._rho + grad * grad * (1 - self._rho))
        variance = square
        if self._centered:
            mean = self._get_accumulator_master(self._mean_grad_acc_str, param)
            _assign(mean, mean + (grad - mean) * (1 - self._rho))
            variance = square - mean * mean
        step = grad / (paddle.sqrt(variance) + self._epsilon)
        if self._momentum > 0:
            velocity = self._get_accumulator_master(self._momentum_acc_str, param)
            _assign(velocity, velocity * self._momentum + step)
            step = velocity
        _assign(param, param - step * self._create_param_lr(param_and_grad))


class TorchAdamax(paddle.optimizer.Adamax):  # type: ignore[misc]
    """Adamax with epsilon beside the gradient, as torch has it."""

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> None:  # noqa: ARG002
        param, grad = _dynamic(param_and_grad)
        mean = self._get_accumulator_master(self._moment_acc_str, param)
        largest = self._get_accumulator_master(self._inf_norm_acc_str, param)
        power = self._get_accumulator_master(self._beta1_pow_acc_str, param)
        _assign(mean, mean + (grad - mean) * (1 - self._beta1))
        _assign(largest, paddle.maximum(largest * self._beta2, paddle.abs(grad) + self._epsilon))
        rate = self._create_param_lr(param_and_grad) / (1 - power.reshape([]))
        _assign(param, param - rate * mean / largest)


class TorchClipByNorm(paddle.nn.ClipGradByNorm):  # type: ignore[misc]
    """Clips each gradient by its own L2 norm, with torch's epsilon."""

    def _dygraph_clip(self, params_grads: Any) -> list[tuple[Any, Any]]:
        return [
            (param, grad * _factor(paddle.linalg.norm(grad), self.clip_norm) if _clipped(param) else grad)
            for param, grad in params_grads
            if grad is not None
        ]


class TorchClipByGlobalNorm(paddle.nn.ClipGradByGlobalNorm):  # type: ignore[misc]
    """Clips all gradients by their common L2 norm, with torch's epsilon."""

    def _dygraph_clip(self, params_grads: Any) -> list[tuple[Any, Any]]:
        known = [(param, grad) for param, grad in params_grads if grad is not None]
        norms = [paddle.linalg.norm(grad) for param, grad in known if _clipped(param)]
        if not norms:
            return known
        factor = _factor(paddle.linalg.norm(paddle.stack(norms)), self.clip_norm)
        return [(param, grad * factor if _clipped(param) else grad) for param, grad in known]


def _factor(norm: Any, limit: float) -> Any:
    return paddle.clip(limit / (norm + NORM_EPSILON), max=1.0)


def _clipped(param: Any) -> bool:
    return bool(getattr(param, "need_clip", True))


def _dynamic(param_and_grad: Any) -> tuple[Any, Any]:
    if not paddle.in_dynamic_mode() or isinstance(param_and_grad, dict):
        raise UsageError(
            "this optimizer follows torch's formula, in dynamic mode and for a plain list of parameters; "
            "take paddle.optimizer's own for static graphs"
        )
    param, grad = param_and_grad
    return param, grad


def _assign(target: Any, value: Any) -> None:
    paddle.assign(value, target)
