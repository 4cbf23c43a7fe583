"""What the two optimizers are made with, parameter by parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tipchain.core.language import listed
from tipchain.explain.findings import Effect, Finding
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.preflight.kinds import EPSILON
from tipchain.explain.preflight.parameters import Tensors, port_name, port_trained
from tipchain.explain.preflight.table import Trait, plain, same
from tipchain.framework_types import Optimizer, Options, Setting, Tensor
from tipchain.frameworks.base import rate_factor
from tipchain.frameworks.paddle_ import own_schedule, parameter_groups

# What optimizers do to each parameter, in torch's terms.
#
# Sources: ``torch/optim/*.py`` of torch 2.13; ``paddle/optimizer/*.py`` and ``paddle/regularizer.py`` of Paddle 3.3,
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html


Decay = tuple[tuple[str, float], ...]
"""What decays a parameter: forms (``l2``, ``l1``, ``decoupled``) and coefficients; empty: nothing."""
_SAME = {name: name for name in "SGD Adam Adagrad Adamax Adadelta NAdam RAdam ASGD Rprop LBFGS".split()}
TORCH_NAMES = {**_SAME, "AdamW": "Adam", "RMSprop": "RMSProp"}
"""Common names of torch's classes; how AdamW decays is told beside."""
PADDLE_NAMES = {**_SAME, "Momentum": "SGD", "AdamW": "Adam", "RMSProp": "RMSProp", "Lamb": "Lamb"}
"""Those of Paddle's: Momentum is torch's SGD with a momentum."""
MOMENTUM = Trait("momentum", "momentum")
BETAS = (
    Trait("beta1", "betas[0]", "beta1", read=lambda group, _: plain(group["betas"][0])),
    Trait("beta2", "betas[1]", "beta2", read=lambda group, _: plain(group["betas"][1])),
)
SETTINGS: Mapping[str | None, tuple[Trait, ...]] = {
    "SGD": (MOMENTUM, Trait("nesterov", "nesterov", "use_nesterov"), Trait("dampening", "dampening")),
    "Adam": (EPSILON, Trait("amsgrad", "amsgrad"), *BETAS),
    "RMSProp": (Trait("rho", "alpha", "rho"), EPSILON, MOMENTUM, Trait("centered", "centered")),
    "Adagrad": (
        EPSILON,
        Trait("initial-accumulator", "initial_accumulator_value"),
        Trait("learning-rate-decay", "lr_decay"),
    ),
    "Adamax": (EPSILON, *BETAS),
    "Adadelta": (Trait("rho", "rho"), EPSILON),
    "NAdam": (EPSILON, Trait("momentum-decay", "momentum_decay"), *BETAS),
    "RAdam": (EPSILON, *BETAS),
    "Rprop": (Trait("etas", "etas"),),
}
"""What optimizers of a common name are made with; torch keeps it in a group, under its name there."""
MAXIMIZE = Trait("maximize", "maximize")
ABSENT: Options = {"dampening": 0.0, "learning-rate-decay": 0.0, "maximize": False}
"""What Paddle does as to settings that it does not have."""
SCALE = Trait("gradient-scale", "rescale_grad")
"""A factor that Paddle's Momentum multiplies gradients by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTreatment:
    """What an optimizer does to one parameter.

    Attributes:
        rate: the learning rate now, multipliers included.
        decay: what decays it.
        settings: the rest by code, as torch means it.
    """

    rate: float
    decay: Decay
    settings: Options


def torch_name(optimizer: object) -> str | None:
    """Return the common name of a torch optimizer; None of a user's own."""
    return _name(optimizer, "torch.optim", TORCH_NAMES)


def paddle_name(optimizer: object) -> str | None:
    """Return the common name of a Paddle optimizer; None of a user's own."""
    return _name(optimizer, "paddle.optimizer", PADDLE_NAMES)


def _name(optimizer: object, package: str, names: Mapping[str, str]) -> str | None:
    found = (one for one in type(optimizer).__mro__ if one.__module__.startswith(package))
    return next((names[one.__name__] for one in found if one.__name__ in names), None)


def torch_treatments(optimizer: Optimizer) -> Iterator[tuple[object, UpdateTreatment]]:
    """Yield each parameter of a torch optimizer with what is done to it."""
    name = torch_name(optimizer)
    for group in optimizer.param_groups:
        there = (one for one in SETTINGS.get(name, ()) if one.torch.partition("[")[0] in group)
        settings = {one.code: one.read(group, None) if one.read else plain(group[one.torch]) for one in there}
        settings[MAXIMIZE.code] = bool(group.get("maximize", False))
        if name == "SGD" and not settings.get("momentum"):
            settings.pop("dampening", None)  # nothing without a momentum
            settings.pop("nesterov", None)
        decoupled = bool(group.get("decoupled_weight_decay", _is_adamw(optimizer)))
        terms = (("decoupled" if decoupled else "l2", group.get("weight_decay")), ("l1", group.get("l1_decay")))
        treatment = UpdateTreatment(rate=float(group["lr"]), decay=_decay(terms), settings=settings)
        for one in group["params"]:
            yield one, treatment


def _is_adamw(optimizer: object) -> bool:
    return any(one.__name__ == "AdamW" for one in type(optimizer).__mro__)


def _decay(terms: Iterable[tuple[str, Setting]]) -> Decay:
    return tuple((form, float(plain(coefficient))) for form, coefficient in terms if coefficient)


def paddle_treatments(optimizer: Optimizer) -> Iterator[tuple[object, UpdateTreatment]]:
    """Yield each parameter of a Paddle optimizer with what is done to it."""
    name = paddle_name(optimizer)
    for group, parameters in parameter_groups(optimizer):
        settings = {one.code: _kept(optimizer, group, one, ABSENT.get(one.code)) for one in SETTINGS.get(name, ())}
        if name == "SGD" and not settings["momentum"]:
            settings = {"momentum": 0}
        if name == "Rprop":
            settings["etas"] = settings["etas"][0]
        settings[MAXIMIZE.code] = ABSENT[MAXIMIZE.code]
        rescale = _kept(optimizer, group, SCALE, 1.0)
        if rescale != 1:
            settings[SCALE.code] = rescale
        for one in parameters:
            treatment = UpdateTreatment(
                rate=float(optimizer.get_lr()) * rate_factor(optimizer, one),
                decay=_paddle_decay(optimizer, group, one),
                settings=settings,
            )
            yield one, treatment


def _kept(optimizer: object, group: Options, setting: Trait, absent: object) -> Setting:
    """Return a setting of a group, else of the optimizer, else what holds where there is none."""
    key = setting.argument
    return plain(group[key] if key in group else getattr(optimizer, f"_{key}", getattr(optimizer, key, absent)))


def _paddle_decay(optimizer: Optimizer, group: Options, parameter: Tensor) -> Decay:
    """Return what decays a parameter: its own regularizer before the optimizer's; AdamW's decay stands beside it."""
    own = getattr(parameter, "regularizer", None)
    terms: list[tuple[str, Setting]] = []
    if _is_adamw(optimizer):
        chosen = getattr(optimizer, "_apply_decay_param_fun", None)
        if chosen is None or chosen(parameter.name):
            terms.append(("decoupled", group.get("weight_decay", optimizer._weight_decay)))  # noqa: SLF001
        return _decay([*terms, *_regularizer(own)])
    fused = group.get("regularization_coeff", getattr(optimizer, "_regularization_coeff", 0.0))
    if own is not None:
        return _decay(_regularizer(own))
    return _decay([("l2", fused), *_regularizer(getattr(optimizer, "regularization", None))])


def _regularizer(regularizer: object) -> Iterator[tuple[str, object]]:
    if regularizer is not None:
        yield "l1" if "L1" in type(regularizer).__name__ else "l2", getattr(regularizer, "_coeff", None)


FIRST_RATE = "first-rate"
"""The code of a rate that is not the optimizer's own but its schedule's first."""
SHOWN = 4
"""How many parameters a message names."""
CLASSES = {"SGD": ("SGD", "Momentum"), "Adam": ("Adam", "AdamW")}
"""Paddle's classes of one common name: without and with a momentum; coupled and decoupled."""

Matched = list[tuple[str, UpdateTreatment, UpdateTreatment]]


def check_optimizers(
    torch_optimizer: object,
    paddle_optimizer: object,
    reference: object,
    port: object,
    pairs: Iterable[LayerPair],
    names: Mapping[str, str] | None = None,
    *,
    tensors: Tensors | None = None,
) -> list[Finding]:
    """Compare two optimizers: type, and for each parameter the rate, decay and everything else that it is updated with.

    Known to differ with equal numbers: Paddle's RMSProp has epsilon below the root, torch's beside it. Adam's differ in
    form only. Clipping is part of Paddle's optimizer and of torch's loop, so it is told and fails nothing.

    Raises:
        WeightsError: a lazy layer of torch's has no shape yet.
    """
    known = tensors or Tensors(reference, port, pairs, names)
    matched, lone = _match(torch_optimizer, paddle_optimizer, known)
    found = updates_apart(torch_optimizer, paddle_optimizer, matched)
    return found if any(one.code == "optimizer-type" for one in found) else [*lone, *found]


def updates_apart(torch_optimizer: object, paddle_optimizer: object, matched: Matched) -> list[Finding]:
    """Compare what two optimizers are made with, given what both do to each matched parameter."""
    name, other = torch_name(torch_optimizer), paddle_name(paddle_optimizer)
    if name is not None and other is not None and name != other:
        return [_other_type(torch_optimizer, paddle_optimizer, name)]
    found = [*_rates(matched, paddle_optimizer)]
    if name is not None and other is not None:  # a user's own optimizer says nothing about how it decays
        found += _decays(matched)
    rescaled = any(SCALE.code in theirs.settings for _, _, theirs in matched)
    for one in [*SETTINGS.get(name, ()), MAXIMIZE, *([SCALE] if rescaled else [])]:
        found += _settings(one, matched, name, paddle_optimizer)
    return [*found, *_formulas(paddle_optimizer), *_clipping(torch_optimizer, paddle_optimizer)]


def _optimizer_finding(
    code: str, reference: str, port: str, message: str, fix: str, *, effect: Effect = "here"
) -> Finding:
    return Finding(code=code, kind="optimizer", reference=reference, port=port, message=message, fix=fix, effect=effect)


def _other_type(ours: Optimizer, theirs: object, name: str) -> Finding:
    wanted = CLASSES.get(name, (name,))
    momentum = any(group.get("momentum") for group in ours.param_groups)
    paddle = wanted[-1] if _is_adamw(ours) or (name == "SGD" and momentum) else wanted[0]
    reference, port = type(ours).__name__, type(theirs).__name__
    return _optimizer_finding(
        "optimizer-type",
        reference,
        port,
        f"the port's optimizer is {port} where torch's is {reference}",
        f"use `paddle.optimizer.{paddle}`",
    )


def _match(ours: object, theirs: object, tensors: Tensors) -> tuple[Matched, list[Finding]]:
    """Return what both do to each matched parameter, and the parameters that one of them does not have."""
    done = {id(one): treatment for one, treatment in torch_treatments(ours)}
    port_done = {id(one): treatment for one, treatment in paddle_treatments(theirs)}
    matched: Matched = []
    lone: dict[str, list[str]] = defaultdict(list)
    foreign = True
    for pair in tensors.pairs:
        if pair.ours is None or pair.theirs is None or not tensors.trained(pair.ours) or not port_trained(pair.theirs):
            continue
        first = done.get(id(tensors.live[pair.ours.name]))
        for part in pair.theirs.parts:
            second = port_done.get(id(part.tensor))
            foreign = foreign and first is None and second is None
            if first is not None and second is not None:
                matched.append((port_name(pair.theirs), first, second))
            elif (first is None) != (second is None):
                lone["port" if first is None else "torch"].append(port_name(pair.theirs))
    if foreign:  # they were built over other copies of the models
        return _as_wholes(list(done.values()), list(port_done.values())), []
    return matched, [_lone(side, names) for side, names in lone.items()]


def _as_wholes(ours: list[UpdateTreatment], theirs: list[UpdateTreatment]) -> Matched:
    """Return the one treatment that either has for all its parameters, if there is only one."""
    if not ours or not theirs or any(one != side[0] for side in (ours, theirs) for one in side):
        return []
    return [("every parameter", ours[0], theirs[0])]


def _lone(side: str, names: list[str]) -> Finding:
    shown = _list(names)
    if side == "port":
        return _optimizer_finding(
            "optimized-parameters",
            "not optimized",
            f"optimizes {shown}",
            f"the port's optimizer updates {shown}, torch's does not",
            f"leave {shown} out of the optimizer",
        )
    return _optimizer_finding(
        "optimized-parameters",
        f"optimizes {shown}",
        "not optimized",
        f"torch's optimizer updates {shown}, the port's does not",
        f"give {shown} to the optimizer",
    )


def _list(names: list[str]) -> str:
    return listed(list(dict.fromkeys(names)), SHOWN)


_T = TypeVar("_T")


def _grouped(matched: Matched, values: Callable[[UpdateTreatment], _T]) -> Iterator[tuple[_T, _T, list[str]]]:
    found: dict[tuple[_T, _T], list[str]] = defaultdict(list)
    for name, ours, theirs in matched:
        one, other = values(ours), values(theirs)
        if not same(one, other):
            found[one, other].append(name)
    return ((one, other, names) for (one, other), names in found.items())


def _of(matched: Matched, names: list[str]) -> str:
    return "" if len(names) == len(matched) else f" for {_list(names)}"


def _rates(matched: Matched, optimizer: object) -> Iterator[Finding]:
    """Yield the rates that differ; one that a schedule gives to every parameter is the schedule's."""
    scheduled = own_schedule(optimizer) is not None
    for one, other, names in _grouped(matched, lambda treatment: treatment.rate):
        where = _of(matched, names)
        multiplied = "set `ParamAttr(learning_rate=...)` or the group's `learning_rate` so that the rate is"
        found = _optimizer_finding(
            "learning-rate",
            f"lr={one:.9g}",
            f"learning_rate={other:.9g}",
            f"the port's learning rate{where} is {other:.9g}, torch's {one:.9g}",
            f"pass `learning_rate={one:.9g}` to the optimizer" if not where else f"{multiplied} {one:.9g}{where}",
        )
        if scheduled and not where:
            found = replace(
                found,
                code=FIRST_RATE,
                kind="scheduler",
                message=f"the port's schedule begins at {other:.9g}, torch's at {one:.9g}",
                fix=f"let the schedule begin at {one:.9g}",
            )
        yield found


def _decays(matched: Matched) -> Iterator[Finding]:
    for one, other, names in _grouped(matched, lambda treatment: treatment.decay):
        where = _of(matched, names)
        code = "weight-decay-form" if one and other and dict(one).keys() != dict(other).keys() else "weight-decay"
        if where and (not one or not other):
            code = "decayed-parameters"
        yield _optimizer_finding(
            code,
            f"weight_decay={_spell(one)}",
            f"weight_decay={_spell(other)}",
            f"the port's weight decay{where} is {_spell(other)}, torch's {_spell(one)}",
            _decay_fix(one, where),
        )


def _spell(decay: Decay) -> str:
    return " + ".join(f"{coefficient:.9g} ({form})" for form, coefficient in decay) or "0"


def _decay_fix(decay: Decay, where: str) -> str:
    if not decay:
        return f"do not decay{where or ' any parameter'} (`apply_decay_param_fun`, or a group with `weight_decay=0.0`)"
    form, coefficient = decay[0]
    ways = {
        "decoupled": f"use `paddle.optimizer.AdamW` with `weight_decay={coefficient:.9g}`",
        "l2": f"pass `weight_decay=paddle.regularizer.L2Decay({coefficient:.9g})`",
        "l1": f"pass `weight_decay=paddle.regularizer.L1Decay({coefficient:.9g})`",
    }
    return ways[form] + where


def _settings(setting: Trait, matched: Matched, name: str | None, optimizer: object) -> Iterator[Finding]:
    code, (ours, theirs) = setting.code, setting.arguments
    there = [one for one in matched if setting is SCALE or (code in one[1].settings and code in one[2].settings)]
    for one, other, names in _grouped(there, lambda treatment: treatment.settings.get(code, 1.0)):
        where = _of(matched, names)
        fix = f"pass `{theirs}={one!r}` to the optimizer"
        if code == "momentum" and name == "SGD" and not hasattr(optimizer, "_momentum"):
            fix = f"use `paddle.optimizer.Momentum` with `momentum={one!r}`"
        yield _optimizer_finding(
            code,
            f"{ours}={one!r}",
            f"{theirs}={other!r}",
            f"the port's optimizer has {theirs}={other!r}{where} where torch's has {ours}={one!r}",
            fix,
        )


def _formulas(theirs: object) -> Iterator[Finding]:
    """Yield what equal numbers mean differently.

    Sources: ``torch/optim/rmsprop.py`` (``avg = square_avg.sqrt().add_(eps)``) and ``paddle/phi/kernels/impl/
    rmsprop_kernel_impl.h`` (``sqrt(ms + epsilon)``); ``torch/optim/adamax.py`` and Paddle's ``adamax_kernel_impl.h``.
    """
    kind = type(theirs)
    if not kind.__module__.startswith("paddle.optimizer"):
        return  # a user's own formula
    if kind.__name__ == "RMSProp":
        yield _optimizer_finding(
            "epsilon-placement",
            "grad / (sqrt(v) + eps)",
            "grad / sqrt(v + epsilon)",
            "Paddle's RMSProp adds epsilon below the root, torch's beside it: equal numbers give other updates",
            "use `tipchain.pairs.paddle_optimizers.TorchRMSProp`, or an epsilon that is small beside the squared gradients",
        )
    elif kind.__name__ == "Adamax":
        yield _optimizer_finding(
            "epsilon-placement",
            "max(beta2 u, |grad| + eps)",
            "max(beta2 u + epsilon, |grad|)",
            "Paddle's Adamax adds epsilon to the norm kept, torch's to the gradient: they differ by about epsilon",
            "use `tipchain.pairs.paddle_optimizers.TorchAdamax` where gradients are as small as epsilon",
            effect="none",
        )


def _clipping(ours: object, theirs: object) -> Iterator[Finding]:
    clip = getattr(theirs, "_grad_clip", None)
    hooks = getattr(ours, "_optimizer_step_pre_hooks", None)
    if clip is None or hooks:
        return
    limit = getattr(clip, "clip_norm", getattr(clip, "max", None))
    yield _optimizer_finding(
        "gradient-clipping",
        "none in the optimizer",
        f"grad_clip={type(clip).__name__}({limit!r})",
        f"the port clips gradients ({type(clip).__name__}, {limit!r}); torch's optimizer never does, its loop may",
        "clip in the reference's loop alike, or pass `grad_clip=None`",
        effect="none",
    )
