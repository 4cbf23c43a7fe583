"""The optimizers in Paddle: ``paddle.optimizer``'s own where their formulas are torch's, else torch's formulas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import paddle

from tipchain.errors import UsageError
from tipchain.facts.layers import storage_of
from tipchain.facts.optimizers import spelled
from tipchain.framework_types import Model, Nested, Setting, Tensor
from tipchain.pairs.settings import OptimizerSettings, ParameterTreatment, read_optimizer_settings, treatments_of

# torch's formulas in Paddle, where Paddle's own differ.
#
# ===================  =========================================  ==========================================
# what                 torch                                      Paddle
# ===================  =========================================  ==========================================
# RMSProp              lr · Σ mu^k g / (√v + eps)                 Σ mu^k lr g / √(v + eps): eps below the root, and the
#                                                                 rate inside the momentum
# Adamax               u = max(b2 u, abs(g) + eps)                u = max(b2 u + eps, abs(g))
# clipping by a norm   g · min(1, limit / (norm + 1e-6))          g · limit / max(norm, limit)
# ===================  =========================================  ==========================================
#
# Sources: ``torch/optim/{rmsprop,adamax}.py`` and ``torch/nn/utils/clip_grad.py``;
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html,
# ``paddle/optimizer/{rmsprop,adamax}.py``, ``paddle/nn/clip.py`` and the kernels they name. Adam, AdamW (Paddle scales
# eps by √(1 - b2^t), which is the same), Adagrad and Momentum need nothing.


NORM_EPSILON = 1e-6
"""The number that torch's ``clip_grad_norm_`` adds to a norm before it divides by it."""


class TorchRMSProp(paddle.optimizer.RMSProp):  # type: ignore[misc]
    """RMSProp with torch's epsilon beside the root, and its rate outside the momentum."""

    def _append_optimize_op(self, block: object, param_and_grad: object) -> None:  # noqa: ARG002
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

    def _append_optimize_op(self, block: object, param_and_grad: object) -> None:  # noqa: ARG002
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

    def _dygraph_clip(self, params_grads: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[object, object]]:
        return [
            (param, grad * _factor(paddle.linalg.norm(grad), self.clip_norm) if _clipped(param) else grad)
            for param, grad in params_grads
            if grad is not None
        ]


class TorchClipByGlobalNorm(paddle.nn.ClipGradByGlobalNorm):  # type: ignore[misc]
    """Clips all gradients by their common L2 norm, with torch's epsilon."""

    def _dygraph_clip(self, params_grads: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[object, object]]:
        known = [(param, grad) for param, grad in params_grads if grad is not None]
        norms = [paddle.linalg.norm(grad) for param, grad in known if _clipped(param)]
        if not norms:
            return known
        factor = _factor(paddle.linalg.norm(paddle.stack(norms)), self.clip_norm)
        return [(param, grad * factor if _clipped(param) else grad) for param, grad in known]


def _factor(norm: Tensor, limit: float) -> object:
    return paddle.clip(limit / (norm + NORM_EPSILON), max=1.0)


def _clipped(param: object) -> bool:
    return bool(getattr(param, "need_clip", True))


def _dynamic(param_and_grad: Nested) -> tuple[Tensor, Tensor]:
    if not paddle.in_dynamic_mode() or isinstance(param_and_grad, dict):
        raise UsageError(
            "this optimizer follows torch's formula, in dynamic mode and for a plain list of parameters; "
            "take paddle.optimizer's own for static graphs"
        )
    param, grad = param_and_grad
    return param, grad


def _assign(target: object, value: object) -> None:
    paddle.assign(value, target)


def build_optimizer(
    parameters: Iterable[paddle.Tensor],
    learning_rate: float | paddle.optimizer.lr.LRScheduler,
    *,
    name: str,
    model: object = None,
    **arguments: Setting,
) -> paddle.optimizer.Optimizer:
    """Return an optimizer whose ``step()`` clips, decays and updates as its torch twin does.

    The arguments are those of `tipchain.pairs.torch_optimizers.build_optimizer`; ``learning_rate`` may be a schedule.

    Rules become attributes of the parameters, what ``ParamAttr(regularizer=..., learning_rate=...)`` sets, instead of
    parameter groups: Paddle would clip every group by a global norm of its own. With ``no_decay`` or
    ``lr_multipliers`` the attributes that the model's layers declare are replaced; without them they hold.

    Raises:
        InputError: an argument that cannot be, or a rule that fits no parameter.
    """
    settings = read_optimizer_settings(name=name, **arguments)
    given = list(parameters)
    treatments = treatments_of(settings, given, None if model is None else _layers(model))
    if settings.lr_multipliers:
        for one in treatments:
            one.tensor.optimize_attr["learning_rate"] = one.multiplier
    rate = learning_rate if isinstance(learning_rate, paddle.optimizer.lr.LRScheduler) else float(learning_rate)
    clips = {
        "clip_value": paddle.nn.ClipGradByValue,
        "clip_norm": TorchClipByNorm,
        "clip_global_norm": TorchClipByGlobalNorm,
    }
    _, (kind, options) = spelled(settings.name, settings.options)
    built: paddle.optimizer.Optimizer = {"RMSProp": TorchRMSProp, "Adamax": TorchAdamax}.get(
        kind, getattr(paddle.optimizer, kind)
    )(
        learning_rate=rate,
        parameters=given,
        grad_clip=clips[settings.clip](settings.limit) if settings.clip else None,
        **_decay(settings, treatments),
        **options,
    )
    return built


def _layers(model: Model) -> Iterator[tuple[str, Model, Iterable[tuple[str, Tensor]]]]:
    for path, layer in model.named_sublayers(include_self=True):
        stored = storage_of(layer, "paddle")
        renamed = {} if stored is None else {paddle_leaf: leaf for leaf, paddle_leaf in stored.renamed.items()}
        own = layer.named_parameters(include_sublayers=False)
        yield path, layer, [(renamed.get(leaf, leaf), tensor) for leaf, tensor in own]


def _decay(settings: OptimizerSettings, treatments: list[ParameterTreatment]) -> dict[str, object]:
    """Return the optimizer's arguments for weight decay; with rules, set the regularizers of the parameters."""
    chosen = {one.tensor.name for one in treatments if one.decays}
    if settings.decay == "decoupled":
        only = {"apply_decay_param_fun": chosen.__contains__} if settings.no_decay else {}
        return {"weight_decay": settings.weight_decay, **only}
    kind = paddle.regularizer.L1Decay if settings.decay == "l1" else paddle.regularizer.L2Decay
    regularizer = kind(settings.weight_decay) if settings.weight_decay else None
    if not settings.no_decay:
        return {"weight_decay": regularizer}
    for one in treatments:
        one.tensor.regularizer = regularizer if one.decays else None
    return {"weight_decay": None}
