"""What optimizers do to each parameter, in torch's terms.

Sources: ``torch/optim/*.py`` of torch 2.13; ``paddle/optimizer/*.py`` and ``paddle/regularizer.py`` of Paddle 3.3,
https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tipchain.parity.optimizers import rate_factor
from tipchain.parity.preflight.table import plain

Decay = tuple[tuple[str, float], ...]
"""What decays a parameter: forms (``l2``, ``l1``, ``decoupled``) and coefficients; empty: nothing."""
TORCH_NAMES = {
    "SGD": "SGD", "Adam": "Adam", "AdamW": "Adam", "RMSprop": "RMSProp", "Adagrad": "Adagrad", "Adamax": "Adamax",
    "Adadelta": "Adadelta", "NAdam": "NAdam", "RAdam": "RAdam", "ASGD": "ASGD", "Rprop": "Rprop", "LBFGS": "LBFGS",
}  # fmt: skip
"""Common names of torch's classes; how AdamW decays is told beside."""
PADDLE_NAMES = {
    "SGD": "SGD", "Momentum": "SGD", "Adam": "Adam", "AdamW": "Adam", "RMSProp": "RMSProp", "Adagrad": "Adagrad",
    "Adamax": "Adamax", "Adadelta": "Adadelta", "NAdam": "NAdam", "RAdam": "RAdam", "ASGD": "ASGD", "Rprop": "Rprop",
    "LBFGS": "LBFGS", "Lamb": "Lamb",
}  # fmt: skip
"""Those of Paddle's: Momentum is torch's SGD with a momentum."""
ADAMS = frozenset(("Adam", "Adamax", "NAdam", "RAdam"))
SETTINGS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "SGD": (("momentum", "momentum", "_momentum"), ("nesterov", "nesterov", "_use_nesterov"),
            ("dampening", "dampening", "")),
    "Adam": (("epsilon", "eps", "_epsilon"), ("amsgrad", "amsgrad", "_amsgrad")),
    "RMSProp": (("rho", "alpha", "_rho"), ("epsilon", "eps", "_epsilon"), ("momentum", "momentum", "_momentum"),
                ("centered", "centered", "_centered")),
    "Adagrad": (("epsilon", "eps", "_epsilon"),
                ("initial-accumulator", "initial_accumulator_value", "initial_accumulator_value"),
                ("rate-decay", "lr_decay", "")),
    "Adamax": (("epsilon", "eps", "_epsilon"),),
    "Adadelta": (("rho", "rho", "_rho"), ("epsilon", "eps", "_epsilon")),
    "NAdam": (("epsilon", "eps", "_epsilon"), ("momentum-decay", "momentum_decay", "_momentum_decay")),
    "RAdam": (("epsilon", "eps", "_epsilon"),),
    "Rprop": (("etas", "etas", "_etas"),),
}  # fmt: skip
"""Code, torch's key in a group and Paddle's attribute, by common name; Paddle lacks what has none."""
ABSENT: Mapping[str, Any] = {"dampening": 0.0, "rate-decay": 0.0, "maximize": False}
"""What Paddle does as to settings that it does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What an optimizer does to one parameter.

    Attributes:
        rate: the learning rate now, multipliers included.
        decay: what decays it.
        settings: the rest by code, as torch means it.
    """

    rate: float
    decay: Decay
    settings: Mapping[str, Any]


def torch_name(optimizer: Any) -> str | None:
    """Return the common name of a torch optimizer; None of a user's own."""
    return _name(optimizer, "torch.optim", TORCH_NAMES)


def paddle_name(optimizer: Any) -> str | None:
    """Return the common name of a Paddle optimizer; None of a user's own."""
    return _name(optimizer, "paddle.optimizer", PADDLE_NAMES)


def _name(optimizer: Any, package: str, names: Mapping[str, str]) -> str | None:
    found = (one for one in type(optimizer).__mro__ if one.__module__.startswith(package))
    return next((names[one.__name__] for one in found if one.__name__ in names), None)


def torch_treatments(optimizer: Any) -> Iterator[tuple[Any, Treatment]]:
    """Yield each parameter of a torch optimizer with what is done to it."""
    name = torch_name(optimizer)
    for group in optimizer.param_groups:
        settings = {code: plain(group[key]) for code, key, _ in SETTINGS.get(name or "", ()) if key in group}
        settings["maximize"] = bool(group.get("maximize", False))
        if name in ADAMS and "betas" in group:
            settings["beta1"], settings["beta2"] = plain(tuple(group["betas"]))
        if name == "SGD" and not settings.get("momentum"):
            settings.pop("dampening", None)  # nothing without a momentum
            settings.pop("nesterov", None)
        treatment = Treatment(
            rate=float(group["lr"]), decay=_torch_decay(optimizer, group), settings=settings
        )
        for one in group["params"]:
            yield one, treatment


def _torch_decay(optimizer: Any, group: Mapping[str, Any]) -> Decay:
    named = type(optimizer).__name__ == "AdamW" or any(
        one.__name__ == "AdamW" for one in type(optimizer).__mro__
    )
    decoupled = bool(group.get("decoupled_weight_decay", named))
    terms = (("decoupled" if decoupled else "l2", group.get("weight_decay")), ("l1", group.get("l1_decay")))
    return _decay(terms)


def _decay(terms: Any) -> Decay:
    return tuple((form, float(plain(coefficient))) for form, coefficient in terms if coefficient)


def paddle_treatments(optimizer: Any) -> Iterator[tuple[Any, Treatment]]:
    """Yield each parameter of a Paddle optimizer with what is done to it."""
    name = paddle_name(optimizer)
    for group, parameters in _paddle_groups(optimizer):
        settings = dict(_paddle_settings(optimizer, group, name))
        for one in parameters:
            treatment = Treatment(
                rate=_paddle_rate(optimizer, one),
                decay=_paddle_decay(optimizer, group, one),
                settings=settings,
            )
            yield one, treatment


def _paddle_groups(optimizer: Any) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    groups = optimizer._param_groups or []  # noqa: SLF001
    if groups and isinstance(groups[0], dict):
        yield from ((group, list(group["params"])) for group in groups)
    else:
        yield {}, list(groups)


def _paddle_settings(optimizer: Any, group: Mapping[str, Any], name: str | None) -> Iterator[tuple[str, Any]]:
    keys = [(code, attribute) for code, _, attribute in SETTINGS.get(name or "", ())]
    keys += [(beta, f"_{beta}") for beta in ("beta1", "beta2") if name in ADAMS]
    found = {code: _kept(optimizer, group, attribute, ABSENT.get(code)) for code, attribute in keys}
    if name == "SGD" and not found["momentum"]:
        found = {"momentum": 0}
    if name == "Rprop":
        found["etas"] = found["etas"][0]
    found["maximize"] = ABSENT["maximize"]
    rescale = _kept(optimizer, group, "_rescale_grad", 1.0)
    if rescale != 1:
        found["rescale"] = rescale
    yield from found.items()


def _kept(optimizer: Any, group: Mapping[str, Any], attribute: str, absent: Any) -> Any:
    """Return a setting of a group, else of the optimizer, else what holds where there is none."""
    key = attribute.lstrip("_")
    return plain(group[key]) if key and key in group else plain(getattr(optimizer, attribute or "-", absent))


def _paddle_rate(optimizer: Any, parameter: Any) -> float:
    return float(optimizer.get_lr()) * rate_factor(optimizer, parameter)


def _paddle_decay(optimizer: Any, group: Mapping[str, Any], parameter: Any) -> Decay:
    """Return what decays a parameter: its own regularizer before the optimizer's; AdamW's decay stands beside it."""
    own = getattr(parameter, "regularizer", None)
    terms: list[tuple[str, Any]] = []
    if any(one.__name__ == "AdamW" for one in type(optimizer).__mro__):
        chosen = getattr(optimizer, "_apply_decay_param_fun", None)
        if chosen is None or chosen(parameter.name):
            terms.append(("decoupled", group.get("weight_decay", optimizer._weight_decay)))  # noqa: SLF001
        return _decay([*terms, *_regularizer(own)])
    fused = group.get("regularization_coeff", getattr(optimizer, "_regularization_coeff", 0.0))
    if own is not None:
        return _decay(_regularizer(own))
    return _decay([("l2", fused), *_regularizer(getattr(optimizer, "regularization", None))])


def _regularizer(regularizer: Any) -> Iterator[tuple[str, Any]]:
    if regularizer is not None:
        yield "l1" if "L1" in type(regularizer).__name__ else "l2", getattr(regularizer, "_coeff", None)
