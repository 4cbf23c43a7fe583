"""The arguments of the optimizers and schedules, checked; the same for both frameworks.

Sources: https://pytorch.org/docs/stable/optim.html,
https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/Overview_en.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tipchain.errors import InputError, did_you_mean
from tipchain.facts.optimizers import NAMED
from tipchain.facts.schedules import REQUIRED, SCHEDULES, TORCH_CLASSES
from tipchain.framework_types import Options, Tensor

# Optimizers.


DECAYS = ("l2", "l1", "decoupled")
CLIPS = ("clip_value", "clip_norm", "clip_global_norm")
Layers = Iterable[tuple[str, object, Iterable[tuple[str, Tensor]]]]
KINDS = ("bias", "norm", "vector")
"""Words in a rule: biases; tensors of a normalization layer; tensors of one dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """One optimizer, as `read_optimizer_settings` is given it: ``clip`` is one of `CLIPS`, or "", with its ``limit``."""

    name: str
    weight_decay: float
    decay: str
    options: Options
    clip: str
    limit: float
    no_decay: tuple[str, ...]
    lr_multipliers: Mapping[str, float]

    @property
    def has_rules(self) -> bool:
        """Whether parameters are told apart."""
        return bool(self.no_decay or self.lr_multipliers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTreatment:
    """The treatment of one parameter: torch's name of it, the live tensor, its `KINDS`, and the rules' words."""

    name: str
    tensor: Tensor
    kinds: frozenset[str]
    decays: bool = False
    multiplier: float = 1.0

    def fits(self, rule: str) -> bool:
        """Tell whether a rule is about this parameter."""
        return rule in self.kinds or fnmatchcase(self.name, rule)


def read_optimizer_settings(
    *,
    name: str,
    weight_decay: float = 0.0,
    decay: str | None = None,
    clip_value: float | None = None,
    clip_norm: float | None = None,
    clip_global_norm: float | None = None,
    no_decay: Sequence[str] = (),
    lr_multipliers: Mapping[str, float] | None = None,
    **options: object,
) -> OptimizerSettings:
    """Check the arguments of an optimizer.

    Args:
        name: sgd, momentum, adam, adamw, rmsprop, adagrad or adamax.
        weight_decay: coefficient of the decay.
        decay: ``l2`` (the default but for adamw) adds ``weight_decay * p`` to the gradient, ``l1``
            ``weight_decay * sign(p)``, both after clipping; ``decoupled`` is AdamW's own.
        clip_value: largest absolute value of a gradient's elements (``clip_grad_value_``).
        clip_norm: largest L2 norm of each tensor's gradient, one by one.
        clip_global_norm: largest L2 norm of all gradients together (``clip_grad_norm_``).
        no_decay: which parameters are not decayed: ``bias``, ``norm`` (of a normalization layer), ``vector`` (one
            dimension), or fnmatch patterns of their names.
        lr_multipliers: factors of the learning rate by such rules; the first that fits holds.
        **options: the optimizer's own: momentum, nesterov · beta1, beta2, epsilon, amsgrad · rho, epsilon, momentum,
            centered · epsilon, initial_accumulator_value. Defaults are torch's.

    Raises:
        InputError: an unknown name or option, a value that cannot be, or what one of the frameworks cannot do.
    """
    known = _known_options("optimizer", NAMED, name, options)
    for key, value in options.items():
        flag = isinstance(NAMED[name][key], bool)
        if not (isinstance(value, bool) if flag else is_number(value)):
            raise _error(
                f"optimizer.{key}", "has the wrong kind of value", repr(value), "true or false" if flag else "a number"
            )
    if known.get("nesterov") and not known["momentum"] > 0:
        raise _error("optimizer.nesterov", "needs a momentum", f"momentum {known['momentum']}", "momentum > 0")
    clips = {"clip_value": clip_value, "clip_norm": clip_norm, "clip_global_norm": clip_global_norm}
    given = {key: limit for key, limit in clips.items() if limit is not None}
    if len(given) > 1:
        raise _error(
            f"optimizer.{min(given)}", "stands beside another way of clipping", ", ".join(given), "one of them"
        )
    for key, number in {"weight_decay": weight_decay, **(lr_multipliers or {})}.items():
        if not is_number(number) or number < 0:
            raise _error(f"optimizer.{key}", "is not a number >= 0", number)
    for key, limit in given.items():
        if not is_number(limit) or limit <= 0:
            raise _error(f"optimizer.{key}", "is not a number > 0", limit)
    form = decay or ("decoupled" if name == "adamw" else "l2")
    if form not in DECAYS:
        raise _error("optimizer.decay", "is not known", form, ", ".join(DECAYS), did_you_mean(form, DECAYS))
    if (form == "decoupled") != (name == "adamw"):
        expected = "decoupled with adamw, l2 or l1 with the others"
        raise _error("optimizer.decay", f"cannot go with {name}", form, expected)
    return OptimizerSettings(
        name=name,
        weight_decay=float(weight_decay),
        decay=form,
        options=known,
        clip=next(iter(given), ""),
        limit=float(next(iter(given.values()), 0.0)),
        no_decay=tuple(no_decay),
        lr_multipliers=dict(lr_multipliers or {}),
    )


def _known_options(kind: str, defaults: Mapping[str, Options], name: str, options: Options) -> Options:
    if name not in defaults:
        message = "is no known optimizer" if kind == "optimizer" else "is no known schedule"
        raise _error(f"{kind}.name", message, name, ", ".join(defaults), did_you_mean(name, defaults))
    known = defaults[name]
    for key in options:
        if key not in known:
            expected, hint = ", ".join(known) or "none", did_you_mean(key, known)
            raise _error(f"{kind}.{key}", f"is no argument of {name}", options[key], expected, hint)
    return {**known, **options}


def treatments_of(
    settings: OptimizerSettings, given: Iterable[object], layers: Layers | None
) -> list[ParameterTreatment]:
    """Return the treatment of each given parameter, or nothing where no rule tells parameters apart.

    Args:
        settings: with the rules.
        given: what is updated.
        layers: each layer of the model with its path, and its own parameters with torch's names in it; None: no model.

    Raises:
        InputError: rules without a model, or a rule that fits no parameter.
    """
    if not settings.has_rules:
        return []
    if layers is None:
        rules = ", ".join([*settings.no_decay, *settings.lr_multipliers])
        raise _error("optimizer", "has rules for parameters, but no model was given", rules, "model=")
    wanted, known = {id(one) for one in given}, []
    for path, layer, parameters in layers:
        for leaf, tensor in parameters:
            if id(tensor) in wanted:
                wanted.discard(id(tensor))
                classes = (kind.__name__.lower().rstrip("123d_") for kind in type(layer).__mro__)
                kinds = {
                    "bias": leaf.endswith("bias"),
                    "norm": any(name.endswith("norm") for name in classes),
                    "vector": tensor.ndim <= 1,
                }
                name = f"{path}.{leaf}" if path else leaf
                own = frozenset(kind for kind, holds in kinds.items() if holds)
                known.append(ParameterTreatment(name=name, tensor=tensor, kinds=own))
    for key, patterns in (("no_decay", settings.no_decay), ("lr_multipliers", settings.lr_multipliers)):
        for rule in patterns:
            if not any(one.fits(rule) for one in known):  # it would silently do nothing
                names = [one.name for one in known]
                shown = f"{', '.join(KINDS)} or a pattern of: {', '.join(names[:6])}{', …' if len(names) > 6 else ''}"
                hint = did_you_mean(rule, [*KINDS, *names])
                raise _error(f"optimizer.{key}", "fits no parameter", rule, shown, hint)
    return [
        replace(
            one,
            decays=settings.weight_decay > 0 and not any(map(one.fits, settings.no_decay)),
            multiplier=next((float(factor) for rule, factor in settings.lr_multipliers.items() if one.fits(rule)), 1.0),
        )
        for one in known
    ]


def is_number(value: object) -> bool:
    """Tell whether ``value`` is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error(key: str, fact: str, found: object = None, expected: object = None, hint: str | None = None) -> InputError:
    return InputError(fact, key=key, found=found, expected=expected, hint=hint)


# Schedules.


WHOLE = ("step_size", "total_steps")
NUMBERS = ("gamma", "end_rate", "power", "pct_start", "div_factor", "final_div_factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """One schedule, as `read_scheduler_settings` is given it."""

    name: str
    options: Options
    warmup_steps: int
    warmup_start: float

    @property
    def torch_class(self) -> str:
        """Torch's class."""
        return TORCH_CLASSES[self.name]

    @property
    def arguments(self) -> Options:
        """The arguments under the names that Paddle has for them, and torch too where it has the same."""
        if self.name == "constant":
            return {"lr_lambda": lambda _: 1.0}
        names = SCHEDULES[self.torch_class].spelled
        return {names.get(key, key): float(value) if key in NUMBERS else value for key, value in self.options.items()}


def read_scheduler_settings(
    *, name: str, warmup_steps: int = 0, warmup_start: float = 0.0, **options: object
) -> SchedulerSettings:
    """Check the arguments of a schedule.

    Args:
        name: constant; step (step_size, gamma); multistep (milestones, gamma); exponential (gamma); cosine
            (total_steps, end_rate); polynomial (total_steps, power, end_rate, cycle); onecycle (total_steps, pct_start,
            div_factor, final_div_factor, anneal_strategy, three_phase; the momentum is left alone).
        warmup_steps: steps of a linear warm-up: rate t of them is start + (first - start) t / warmup_steps, and the
            schedule's own first rate follows at t = warmup_steps.
        warmup_start: the warm-up's first rate as a share of the schedule's first.
        **options: the schedule's own arguments, as named above.

    Raises:
        InputError: an unknown name or option, a missing one, or a value that cannot be.
    """
    merged = _known_options(
        "scheduler", {known: SCHEDULES[kind].options for known, kind in TORCH_CLASSES.items()}, name, options
    )
    for key, value in merged.items():
        if value is REQUIRED:
            raise _error(f"scheduler.{key}", "is missing", expected=f"{key}: ...")
        if key in WHOLE and not _is_whole(value, least=1):
            raise _error(f"scheduler.{key}", "is no whole number >= 1", value)
        if key in NUMBERS and not is_number(value):
            raise _error(f"scheduler.{key}", "is no number", repr(value))
    steps = merged.get("milestones", [])
    if (
        not isinstance(steps, list | tuple)
        or not all(_is_whole(one, least=1) for one in steps)
        or sorted(set(steps)) != list(steps)
    ):
        raise _error("scheduler.milestones", "are no growing whole numbers >= 1", steps, "e.g. [30, 60, 80]")
    if "gamma" in merged and not 0 < merged["gamma"] < 1:
        raise _error(
            "scheduler.gamma", "does not lie between 0 and 1", merged["gamma"], "0 < gamma < 1; Paddle takes no other"
        )
    if not _is_whole(warmup_steps, least=0):
        raise _error("scheduler.warmup_steps", "is no whole number >= 0", warmup_steps)
    if not is_number(warmup_start) or not 0 <= warmup_start < 1:
        raise _error("scheduler.warmup_start", "is no fraction below 1", warmup_start, "0 <= warmup_start < 1")
    return SchedulerSettings(name=name, options=merged, warmup_steps=warmup_steps, warmup_start=float(warmup_start))


def _is_whole(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
