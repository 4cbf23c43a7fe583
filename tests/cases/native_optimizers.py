"""Paddle's own optimizers where their formulas are not torch's, and a tiny net with a frozen layer."""

import paddle
import torch

from tests.cases.tiny import tiny_paddle, tiny_torch


def build_rmsprop(parameters, learning_rate, epsilon, rho, momentum=0.0):
    return paddle.optimizer.RMSProp(learning_rate, rho=rho, epsilon=epsilon, momentum=momentum, parameters=parameters)


def build_frozen_torch():
    model = tiny_torch.build_model()
    model.square.weight.requires_grad_(False)
    return model


def build_frozen_paddle():
    model = tiny_paddle.build_model()
    model.square.weight.stop_gradient = True
    return model


class _DecayBeforeClipping(paddle.nn.ClipGradByGlobalNorm):
    """Clips gradients to which the decay was already added: the wrong way round."""

    def __init__(self, limit, weight_decay):
        super().__init__(limit)
        self.weight_decay = weight_decay

    def _dygraph_clip(self, params_grads):
        return super()._dygraph_clip([(one, grad + self.weight_decay * one) for one, grad in params_grads])


def build_clipped_decay(parameters, learning_rate, weight_decay, clip_global_norm):
    clip = _DecayBeforeClipping(clip_global_norm, weight_decay)
    return paddle.optimizer.SGD(learning_rate, parameters=parameters, grad_clip=clip)


def build_onecycle(optimizer, name, total_steps):
    peak = optimizer.param_groups[0]["lr"]
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=peak, total_steps=total_steps)
