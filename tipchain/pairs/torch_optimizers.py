"""The optimizers in torch: ``torch.optim``'s own, with clipping and L1 decay as hooks that run before each step.

https://pytorch.org/docs/stable/optim.html; the twins stand in ``tipchain.pairs.paddle_optimizers``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from tipchain.facts.optimizers import spelled
from tipchain.framework_types import Model, Setting
from tipchain.pairs.settings import OptimizerSettings, read_optimizer_settings, treatments_of


def build_optimizer(
    parameters: Iterable[torch.Tensor], learning_rate: float, *, name: str, model: object = None, **arguments: Setting
) -> torch.optim.Optimizer:
    """Return an optimizer whose ``step()`` clips, decays and updates as its Paddle twin does.

    Args:
        parameters: what to update.
        learning_rate: the rate; parameter groups get their multiples of it.
        name: which one.
        model: the module; rules for parameters need it.
        **arguments: those of `tipchain.pairs.settings.read_optimizer_settings`.

    Raises:
        InputError: an argument that cannot be, or a rule that fits no parameter.
    """
    settings = read_optimizer_settings(name=name, **arguments)
    (kind, options), _ = spelled(settings.name, settings.options)
    optimizer: torch.optim.Optimizer = getattr(torch.optim, kind)(
        _groups(settings, parameters, learning_rate, model), lr=learning_rate, **options
    )
    if settings.clip:
        optimizer.register_step_pre_hook(partial(_clip_gradients, settings))
    if settings.decay == "l1" and settings.weight_decay:
        optimizer.register_step_pre_hook(_add_signs)
    return optimizer


def _clip_gradients(settings: OptimizerSettings, optimizer: torch.optim.Optimizer, *_: object) -> None:
    known = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
    if settings.clip == "clip_value":
        torch.nn.utils.clip_grad_value_(known, settings.limit)
        return
    for some in [known] if settings.clip == "clip_global_norm" else [[one] for one in known]:
        torch.nn.utils.clip_grad_norm_(some, settings.limit)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _add_signs(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Add the gradient of L1 decay, which no torch optimizer has."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            if one.grad is not None:
                one.grad.add_(one.sign(), alpha=group["l1_decay"])


def _groups(
    settings: OptimizerSettings, parameters: Iterable[torch.Tensor], learning_rate: float, model: Model
) -> list[dict[str, Setting]]:
    """Return parameter groups, the ordinary one first: its rate is the one that is shown."""
    given, signs = list(parameters), settings.decay == "l1"
    layers = (
        None
        if model is None
        else ((path, one, one.named_parameters(recurse=False)) for path, one in model.named_modules())
    )
    groups: dict[tuple[float, bool], list[torch.Tensor]] = {} if settings.has_rules else {(1.0, True): given}
    for one in treatments_of(settings, given, layers):
        groups.setdefault((one.multiplier, one.decays), []).append(one.tensor)
    made: list[dict[str, Setting]] = []
    for multiplier, decays in sorted(groups, key=lambda key: (key[0] != 1.0, not key[1])):
        decay = settings.weight_decay if decays else 0.0
        group = {"params": groups[multiplier, decays], "lr": learning_rate * multiplier}
        made.append({**group, "weight_decay": 0.0, "l1_decay": decay} if signs else {**group, "weight_decay": decay})
    return made
