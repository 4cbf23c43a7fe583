"""The table of optimizers: torch's classes, Paddle's, and Paddle's arguments with torch's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tipchain.framework_types import Options, Setting

# Sources: ``torch/optim/*.py`` of torch 2.13; ``paddle/optimizer/*.py`` and ``paddle/regularizer.py`` of Paddle 3.3,
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerKind:
    """Optimizers of one rule: a row of the table.

    Attributes:
        name: Paddle's class; decoupled decay and a momentum tell AdamW from Adam, Momentum from SGD.
        classes: of ``torch.optim`` and of ``paddle.optimizer``.
        arguments: Paddle's, with what a group of torch's keeps each as.
        named: a case's names of them, which are Paddle's classes in small letters, with their arguments and torch's defaults.
        differs: what equal arguments mean otherwise; ``tipchain.pairs.paddle_optimizers`` has torch's formula.
    """

    name: str
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    arguments: Mapping[str, str]
    named: Mapping[str, Options] = field(default_factory=dict)
    differs: str = ""


def _row(
    name: str, arguments: Mapping[str, str] | None = None, *others: tuple[str, ...], **facts: Setting
) -> OptimizerKind:
    torch, paddle = others or ((name,), (name,))
    return OptimizerKind(name=name, classes=(torch, paddle), arguments=arguments or {}, **facts)


BETAS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
MOMENTS = {"beta1": "betas[0]", "beta2": "betas[1]", "epsilon": "eps"}
KINDS = (
    _row(
        "SGD",
        {"momentum": "momentum", "use_nesterov": "nesterov", "dampening": "dampening"},
        ("SGD",),
        ("SGD", "Momentum"),
        named={"sgd": {}, "momentum": {"momentum": 0.9, "nesterov": False}},
    ),
    _row(
        "Adam",
        {**MOMENTS, "amsgrad": "amsgrad"},
        ("Adam", "AdamW"),
        ("Adam", "AdamW"),
        named={name: {**BETAS, "amsgrad": False} for name in ("adam", "adamw")},
    ),
    _row(
        "RMSProp",
        {"rho": "alpha", "epsilon": "eps", "momentum": "momentum", "centered": "centered"},
        ("RMSprop",),
        ("RMSProp",),
        named={"rmsprop": {"rho": 0.99, "epsilon": 1e-8, "momentum": 0.0, "centered": False}},
        differs="Paddle's RMSProp has epsilon below the root and the rate inside the momentum, torch's beside and outside",
    ),
    _row(
        "Adagrad",
        {"epsilon": "eps", "initial_accumulator_value": "initial_accumulator_value", "lr_decay": "lr_decay"},
        named={"adagrad": {"epsilon": 1e-10, "initial_accumulator_value": 0.0}},
    ),
    _row(
        "Adamax",
        MOMENTS,
        named={"adamax": BETAS},
        differs="Paddle's Adamax adds epsilon to the norm kept, torch's to the gradient",
    ),
    _row("Adadelta", {"rho": "rho", "epsilon": "eps"}),
    _row("NAdam", {**MOMENTS, "momentum_decay": "momentum_decay"}),
    _row("RAdam", MOMENTS),
    _row("Rprop", {"etas": "etas"}),
    _row("ASGD"),
    _row("LBFGS"),
    _row("Lamb", None, (), ("Lamb",)),
)
BY_CLASS: tuple[Mapping[str, OptimizerKind], ...] = tuple(
    {name: one for one in KINDS for name in one.classes[side]} for side in (0, 1)
)
"""Rows by the classes of torch, of Paddle."""
BY_NAME = {one.name: one for one in KINDS}
ABSENT: Options = {"dampening": 0.0, "lr_decay": 0.0, "maximize": False}
"""Paddle's behaviour for settings of torch's that it does not have."""
DEFAULTS: Options = {"rescale_grad": 1.0, "use_nesterov": False, "dampening": 0.0}
"""Values that hold where an optimizer has no such argument, or none without a momentum."""


NAMED = {name: options for one in KINDS for name, options in one.named.items()}
"""The arguments of the optimizers that a case can name, with torch's defaults; Paddle's are others for RMSProp and Adagrad."""


def spelled(name: str, options: Options) -> tuple[tuple[str, Options], tuple[str, Options]]:
    """Return torch's class and Paddle's of an optimizer by a case's name, each with its own arguments."""
    kind = next(one for one in KINDS if name in one.named)
    torch, paddle = ({one.lower(): one for one in side} for side in kind.classes)
    names = {kind.arguments.get(key, key): value for key, value in options.items()}
    betas = tuple(names.pop(key) for key in ("betas[0]", "betas[1]") if key in names)
    paddles = {ours: theirs for theirs, ours in kind.arguments.items()}
    port = {paddles.get(key, key): value for key, value in options.items()}
    return (torch.get(name, kind.classes[0][0]), {**names, **({"betas": betas} if betas else {})}), (paddle[name], port)
