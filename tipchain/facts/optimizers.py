"""The table of optimizers: torch's classes, Paddle's, and Paddle's arguments with torch's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tipchain.framework_types import Options

# Sources: ``torch/optim/*.py`` of torch 2.13; ``paddle/optimizer/*.py`` and ``paddle/regularizer.py`` of Paddle 3.3,
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerKind:
    """Optimizers of one rule: a row of the table.

    Attributes:
        name: Paddle's class; decoupled decay and a momentum tell AdamW from Adam, Momentum from SGD.
        classes: of ``torch.optim`` and of ``paddle.optimizer``.
        arguments: Paddle's, with what a group of torch's keeps each as.
        differs: what equal arguments mean otherwise; ``tipchain.pairs.paddle_optimizers`` has torch's formula.
    """

    name: str
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    arguments: Mapping[str, str]
    differs: str = ""


def _row(
    name: str, arguments: Mapping[str, str] | None = None, *others: tuple[str, ...], differs: str = ""
) -> OptimizerKind:
    torch, paddle = others or ((name,), (name,))
    return OptimizerKind(name=name, classes=(torch, paddle), arguments=arguments or {}, differs=differs)


MOMENTS = {"beta1": "betas[0]", "beta2": "betas[1]", "epsilon": "eps"}
KINDS = (
    _row(
        "SGD",
        {"momentum": "momentum", "use_nesterov": "nesterov", "dampening": "dampening"},
        ("SGD",),
        ("SGD", "Momentum"),
    ),
    _row("Adam", {**MOMENTS, "amsgrad": "amsgrad"}, ("Adam", "AdamW"), ("Adam", "AdamW")),
    _row(
        "RMSProp",
        {"rho": "alpha", "epsilon": "eps", "momentum": "momentum", "centered": "centered"},
        ("RMSprop",),
        ("RMSProp",),
        differs="Paddle's RMSProp has epsilon below the root and the rate inside the momentum, torch's beside and outside",
    ),
    _row(
        "Adagrad", {"epsilon": "eps", "initial_accumulator_value": "initial_accumulator_value", "lr_decay": "lr_decay"}
    ),
    _row("Adamax", MOMENTS, differs="Paddle's Adamax adds epsilon to the norm kept, torch's to the gradient"),
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


def classes_of(name: str) -> tuple[str, str]:
    """Return torch's and Paddle's class of an optimizer that is named in small letters: ``momentum``, ``adamw``."""
    kind = next(one for one in KINDS if name in map(str.lower, one.classes[1]))
    torch, paddle = ({one.lower(): one for one in side} for side in kind.classes)
    return torch.get(name, kind.classes[0][0]), paddle[name]


def torch_options(paddle_class: str, options: Options) -> Options:
    """Return Paddle's arguments as torch's."""
    names = BY_CLASS[1][paddle_class].arguments
    given = {names.get(name, name): value for name, value in options.items()}
    betas = tuple(value for name, value in given.items() if name.startswith("betas"))
    plain = {name: value for name, value in given.items() if not name.startswith("betas")}
    return {**plain, "betas": betas} if betas else plain
