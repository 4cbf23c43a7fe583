"""What an optimizer says about itself, as a formula for each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tipchain.parity.pieces.formulas import Formula
from tipchain.parity.pieces.trained import Trained

TORCH: Mapping[str, str] = {
    "SGD": "sgd", "Adam": "adam", "AdamW": "adam", "RMSprop": "rmsprop", "Adagrad": "adagrad",
    "Adadelta": "adadelta", "Adamax": "adamax",
}  # fmt: skip
PADDLE: Mapping[str, str] = {
    "SGD": "sgd", "Momentum": "sgd", "Adam": "adam", "AdamW": "adam", "RMSProp": "rmsprop", "Adagrad": "adagrad",
    "Adadelta": "adadelta", "Adamax": "adamax",
}  # fmt: skip
CLIPS = {"ClipGradByValue": "value", "ClipGradByNorm": "norm", "ClipGradByGlobalNorm": "global"}


def torch_formula(trained: Trained, name: str) -> Formula | None:
    """Return what torch's optimizer says that it does to a parameter; None for one of an unknown kind."""
    optimizer, tensor = trained.optimizer, trained.tensor(name)
    kind = _known(type(optimizer), TORCH)
    groups = (group for group in optimizer.param_groups if any(one is tensor for one in group["params"]))
    group = next(groups, None)
    if kind is None:
        return None
    if group is None or not tensor.requires_grad:
        return Formula(algorithm=TORCH[kind], frozen=True)
    betas = group.get("betas", (0.9, 0.999))
    decoupled = bool(group.get("decoupled_weight_decay", kind == "AdamW"))
    return Formula(
        algorithm=TORCH[kind], lr=float(group["lr"]), decay=float(group.get("weight_decay", 0.0)),
        form="decoupled" if decoupled else "l2", momentum=float(group.get("momentum", 0.0)),
        dampening=float(group.get("dampening", 0.0)), nesterov=bool(group.get("nesterov", False)),
        beta1=float(betas[0]), beta2=float(group.get("alpha", group.get("rho", betas[1]))),
        epsilon=float(group.get("eps", 1e-8)), amsgrad=bool(group.get("amsgrad", False)),
        centered=bool(group.get("centered", False)), initial=float(group.get("initial_accumulator_value", 0.0)),
        rate_decay=float(group.get("lr_decay", 0.0)), maximize=bool(group.get("maximize", False)),
    )  # fmt: skip


def paddle_formula(trained: Trained, name: str) -> Formula | None:
    """Return what Paddle's optimizer says that it does to a parameter; None for one of an unknown kind."""
    optimizer, tensor = trained.optimizer, trained.tensor(name)
    kind = _known(type(optimizer), PADDLE)
    if kind is None:
        return None
    rate = trained.rates().get(name)
    if rate is None or tensor.stop_gradient:
        return Formula(algorithm=PADDLE[kind], frozen=True)
    group = next((one for one in optimizer._param_groups if isinstance(one, dict)  # noqa: SLF001
                  and any(other is tensor for other in one["params"])), {})  # fmt: skip

    def said(key: str, otherwise: Any) -> Any:
        return group.get(key, getattr(optimizer, f"_{key}", otherwise))

    decay, form = _decay(kind, optimizer, group, tensor)
    clip, limit = _clip(bool(group), group.get("grad_clip", optimizer._grad_clip))  # noqa: SLF001
    own = type(optimizer).__name__ == kind
    return Formula(
        algorithm=PADDLE[kind], lr=rate, decay=decay, form=form, momentum=float(said("momentum", 0.0)),
        nesterov=bool(said("use_nesterov", False)), rate_inside=own and kind == "RMSProp",
        beta1=float(said("beta1", 0.9)), beta2=float(said("rho", said("beta2", 0.999))),
        epsilon=float(said("epsilon", 1e-8)), place="inside" if own and kind in ("RMSProp", "Adamax") else "outside",
        amsgrad=bool(said("amsgrad", False)), centered=bool(said("centered", False)),
        initial=float(group.get("initial_accumulator_value", getattr(optimizer, "initial_accumulator_value", 0.0))),
        clip=clip, limit=limit,
    )  # fmt: skip


def _known(kind: type, names: Mapping[str, str]) -> str | None:
    return next((base.__name__ for base in kind.__mro__ if base.__name__ in names), None)


def _decay(kind: str, optimizer: Any, group: Mapping[str, Any], tensor: Any) -> tuple[float, str]:
    if kind == "AdamW":
        chooses = group.get("apply_decay_param_fun", optimizer._apply_decay_param_fun)  # noqa: SLF001
        decays = chooses is None or chooses(tensor.name)
        given = group.get("weight_decay", optimizer._weight_decay)  # noqa: SLF001
        return (float(given) if decays else 0.0), "decoupled"
    regularizer = tensor.regularizer
    if regularizer is None:
        regularizer = group.get("weight_decay", getattr(optimizer, "regularization", None))
    if regularizer is None and kind == "Momentum":
        return float(getattr(optimizer, "_regularization_coeff", 0.0)), "l2"
    if regularizer is None:
        return 0.0, "l2"
    if isinstance(regularizer, int | float):
        return float(regularizer), "l2"
    return float(getattr(regularizer, "_coeff", 0.0)), "l1" if "L1" in type(regularizer).__name__ else "l2"


def groups_of(trained: Trained, names: Iterable[str]) -> dict[str, int]:
    """Return the number of each parameter's group in Paddle's optimizer, 0 without groups."""
    groups = [one for one in getattr(trained.optimizer, "_param_groups", None) or () if isinstance(one, dict)]
    numbers = {id(one): number for number, group in enumerate(groups) for one in group["params"]}
    return {name: numbers.get(id(trained.tensor(name)), 0) for name in names}


def _clip(grouped: bool, clip: Any) -> tuple[str, float]:
    kind = next((CLIPS[one.__name__] for one in type(clip).__mro__ if one.__name__ in CLIPS), "")
    if not kind:
        return "", 0.0
    limit = {"value": "max", "norm": "clip_norm", "global": "clip_norm"}[kind]
    # Paddle clips the gradients of each group by a global norm of their own.
    return "group" if grouped and kind == "global" else kind, float(getattr(clip, limit))
