"""What the two optimizers are made with, parameter by parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tipchain.parity.findings import Effect, Finding
from tipchain.parity.locate.layer_pairs import LayerPair
from tipchain.parity.preflight.optimizer_facts import (
    ADAMS,
    SETTINGS,
    Decay,
    Treatment,
    paddle_name,
    paddle_treatments,
    torch_name,
    torch_treatments,
)
from tipchain.parity.preflight.table import same
from tipchain.parity.preflight.tensors import Tensors, port_name, port_trained

FIRST_RATE = "first-rate"
"""The code of a rate that is not the optimizer's own but its schedule's first."""
SHOWN = 4
"""How many parameters a message names."""
ARGUMENTS = {
    "momentum": ("momentum", "momentum"), "nesterov": ("nesterov", "use_nesterov"), "dampening": ("dampening", "dampening"),
    "epsilon": ("eps", "epsilon"), "amsgrad": ("amsgrad", "amsgrad"), "beta1": ("betas[0]", "beta1"),
    "beta2": ("betas[1]", "beta2"), "centered": ("centered", "centered"), "maximize": ("maximize", "maximize"),
    "initial-accumulator": ("initial_accumulator_value", "initial_accumulator_value"), "rate-decay": ("lr_decay", "lr_decay"),
    "momentum-decay": ("momentum_decay", "momentum_decay"), "etas": ("etas", "etas"), "rescale": ("rescale_grad", "rescale_grad"),
}  # fmt: skip
"""What a setting is called in torch and in Paddle."""
CLASSES = {"SGD": ("SGD", "Momentum"), "Adam": ("Adam", "AdamW")}
"""Paddle's classes of one common name: without and with a momentum; coupled and decoupled."""

Matched = list[tuple[str, Treatment, Treatment]]


def check_optimizers(
    torch_optimizer: Any, paddle_optimizer: Any, reference: Any, port: Any, pairs: Iterable[LayerPair],
    names: Mapping[str, str] | None = None, *, tensors: Tensors | None = None,
) -> list[Finding]:  # fmt: skip
    """Compare two optimizers: type, and for each parameter the rate, decay and everything else that it is updated with.

    Known to differ with equal numbers: Paddle's RMSProp has epsilon below the root, torch's beside it. Adam's differ in
    form only. Clipping is part of Paddle's optimizer and of torch's loop, so it is told and fails nothing.

    Args:
        torch_optimizer: a ``torch.optim.Optimizer`` of ``reference``.
        paddle_optimizer: a ``paddle.optimizer.Optimizer`` of ``port``.
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        pairs: the layers that belong together.
        names: Paddle's path by torch's, as they were matched with.
        tensors: the models' tensors, if they are matched already.

    Raises:
        WeightsError: a lazy layer of torch's has no shape yet.
    """
    known = tensors or Tensors(reference, port, pairs, names)
    types = torch_name(torch_optimizer), paddle_name(paddle_optimizer)
    if None not in types and types[0] != types[1]:
        return [_other_type(torch_optimizer, paddle_optimizer, str(types[0]))]
    matched, lone = _match(torch_optimizer, paddle_optimizer, known)
    found = [*lone, *_rates(matched, paddle_optimizer)]
    if None not in types:  # a user's own optimizer says nothing about how it decays
        found += _decays(matched)
    for code in _codes(types[0], matched):
        found += _settings(code, matched, types[0] or "", paddle_optimizer)
    return [*found, *_formulas(paddle_optimizer), *_clipping(torch_optimizer, paddle_optimizer)]


def _finding(
    code: str, reference: str, port: str, message: str, fix: str, *, effect: Effect = "here"
) -> Finding:
    return Finding(
        code=code, kind="optimizer", reference_path="", port_path="", reference=reference, port=port, message=message,
        fix=fix, effect=effect,
    )  # fmt: skip


def _other_type(ours: Any, theirs: Any, name: str) -> Finding:
    wanted = CLASSES.get(name, (name,))
    decoupled = any(one.__name__ == "AdamW" for one in type(ours).__mro__)
    momentum = any(group.get("momentum") for group in ours.param_groups)
    paddle = wanted[-1] if decoupled or (name == "SGD" and momentum) else wanted[0]
    names = type(ours).__name__, type(theirs).__name__
    return _finding(
        "optimizer-type", names[0], names[1], f"the port's optimizer is {names[1]} where torch's is {names[0]}",
        f"use `paddle.optimizer.{paddle}`",
    )  # fmt: skip


def _match(ours: Any, theirs: Any, tensors: Tensors) -> tuple[Matched, list[Finding]]:
    """Return what both do to each matched parameter, and the parameters that one of them does not have."""
    done = {id(one): treatment for one, treatment in torch_treatments(ours)}
    port_done = {id(one): treatment for one, treatment in paddle_treatments(theirs)}
    matched: Matched = []
    lone: dict[str, list[str]] = defaultdict(list)
    foreign = True
    for pair in tensors.pairs:
        if (
            pair.ours is None
            or pair.theirs is None
            or not tensors.trained(pair.ours)
            or not port_trained(pair.theirs)
        ):
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


def _as_wholes(ours: list[Treatment], theirs: list[Treatment]) -> Matched:
    """Return the one treatment that either has for all its parameters, if there is only one."""
    if not ours or not theirs or any(one != side[0] for side in (ours, theirs) for one in side):
        return []
    return [("every parameter", ours[0], theirs[0])]


def _lone(side: str, names: list[str]) -> Finding:
    shown = _list(names)
    if side == "port":
        return _finding(
            "optimized-parameters", "not optimized", f"optimizes {shown}",
            f"the port's optimizer updates {shown}, torch's does not", f"leave {shown} out of the optimizer",
        )  # fmt: skip
    return _finding(
        "optimized-parameters", f"optimizes {shown}", "not optimized",
        f"torch's optimizer updates {shown}, the port's does not", f"give {shown} to the optimizer",
    )  # fmt: skip


def _list(names: list[str]) -> str:
    kept = list(dict.fromkeys(names))
    more = f" and {len(kept) - SHOWN} more" if len(kept) > SHOWN else ""
    return ", ".join(kept[:SHOWN]) + more


def _grouped(matched: Matched, values: Any) -> Iterator[tuple[Any, Any, list[str]]]:
    """Yield each pair of values that differ with the parameters that have them."""
    found: dict[tuple[Any, Any], list[str]] = defaultdict(list)
    for name, ours, theirs in matched:
        one, other = values(ours), values(theirs)
        if not same(one, other):
            found[one, other].append(name)
    for (one, other), names in found.items():
        yield one, other, names


def _of(matched: Matched, names: list[str]) -> str:
    return "" if len(names) == len(matched) else f" for {_list(names)}"


def _rates(matched: Matched, optimizer: Any) -> Iterator[Finding]:
    """Yield the rates that differ; one that a schedule gives to every parameter is the schedule's."""
    scheduled = not isinstance(getattr(optimizer, "_learning_rate", 0.0), int | float)
    for one, other, names in _grouped(matched, lambda treatment: treatment.rate):
        where = _of(matched, names)
        multiplied = "set `ParamAttr(learning_rate=...)` or the group's `learning_rate` so that the rate is"
        found = _finding(
            "learning-rate", f"lr={one:.9g}", f"learning_rate={other:.9g}",
            f"the port's learning rate{where} is {other:.9g}, torch's {one:.9g}",
            f"pass `learning_rate={one:.9g}` to the optimizer" if not where else f"{multiplied} {one:.9g}{where}",
        )  # fmt: skip
        if scheduled and not where:
            found = replace(
                found, code=FIRST_RATE, kind="scheduler", message=f"the port's schedule begins at {other:.9g}, torch's at {one:.9g}",
                fix=f"let the schedule begin at {one:.9g}",
            )  # fmt: skip
        yield found


def _decays(matched: Matched) -> Iterator[Finding]:
    for one, other, names in _grouped(matched, lambda treatment: treatment.decay):
        where = _of(matched, names)
        forms = {form for form, _ in one}, {form for form, _ in other}
        code = "weight-decay-form" if one and other and forms[0] != forms[1] else "weight-decay"
        if where and (not one or not other):
            code = "decayed-parameters"
        yield _finding(
            code, f"weight_decay={_spell(one)}", f"weight_decay={_spell(other)}",
            f"the port's weight decay{where} is {_spell(other)}, torch's {_spell(one)}", _decay_fix(one, where),
        )  # fmt: skip


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


def _codes(name: str | None, matched: Matched) -> list[str]:
    listed = [code for code, _, _ in SETTINGS.get(name or "", ())]
    listed += ["beta1", "beta2"] if name in ADAMS else []
    rescaled = any("rescale" in theirs.settings for _, _, theirs in matched)
    return [*listed, "maximize", *(["rescale"] if rescaled else [])]


def _settings(code: str, matched: Matched, name: str, optimizer: Any) -> Iterator[Finding]:
    there = [
        one for one in matched if code == "rescale" or (code in one[1].settings and code in one[2].settings)
    ]
    keys = {listed: key for listed, key, _ in SETTINGS.get(name, ())}
    ours, theirs = ARGUMENTS.get(code, (keys.get(code, code), code))
    for one, other, names in _grouped(there, lambda treatment: treatment.settings.get(code, 1.0)):
        where = _of(matched, names)
        fix = f"pass `{theirs}={one!r}` to the optimizer"
        if code == "momentum" and name == "SGD" and not hasattr(optimizer, "_momentum"):
            fix = f"use `paddle.optimizer.Momentum` with `momentum={one!r}`"
        yield _finding(
            code, f"{ours}={one!r}", f"{theirs}={other!r}",
            f"the port's optimizer has {theirs}={other!r}{where} where torch's has {ours}={one!r}", fix,
        )  # fmt: skip


def _formulas(theirs: Any) -> Iterator[Finding]:
    """Yield what equal numbers mean differently.

    Sources: ``torch/optim/rmsprop.py`` (``avg = square_avg.sqrt().add_(eps)``) and ``paddle/phi/kernels/impl/
    rmsprop_kernel_impl.h`` (``sqrt(ms + epsilon)``); ``torch/optim/adamax.py`` and Paddle's ``adamax_kernel_impl.h``.
    """
    kind = type(theirs)
    if not kind.__module__.startswith("paddle.optimizer"):
        return  # a user's own formula
    if kind.__name__ == "RMSProp":
        yield _finding(
            "epsilon-in-root", "grad / (sqrt(v) + eps)", "grad / sqrt(v + epsilon)",
            "Paddle's RMSProp adds epsilon below the root, torch's beside it: equal numbers give other updates",
            "use `tipchain.pairs.paddle_formulas.TorchRMSProp`, or an epsilon that is small beside the squared gradients",
        )  # fmt: skip
    elif kind.__name__ == "Adamax":
        yield _finding(
            "epsilon-in-norm", "max(beta2 u, |grad| + eps)", "max(beta2 u + epsilon, |grad|)",
            "Paddle's Adamax adds epsilon to the norm kept, torch's to the gradient: they differ by about epsilon",
            "use `tipchain.pairs.paddle_formulas.TorchAdamax` where gradients are as small as epsilon", effect="none",
        )  # fmt: skip


def _clipping(ours: Any, theirs: Any) -> Iterator[Finding]:
    clip = getattr(theirs, "_grad_clip", None)
    hooks = getattr(ours, "_optimizer_step_pre_hooks", None)
    if clip is None or hooks:
        return
    limit = getattr(clip, "clip_norm", getattr(clip, "max", None))
    yield _finding(
        "clipping", "none in the optimizer", f"grad_clip={type(clip).__name__}({limit!r})",
        f"the port clips gradients ({type(clip).__name__}, {limit!r}); torch's optimizer never does, its loop may",
        "clip in the reference's loop alike, or pass `grad_clip=None`", effect="none",
    )  # fmt: skip
