"""An optimizer's treatment of each parameter, in one form, and Paddle's optimizer made of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from tipchain.core.language import listed
from tipchain.explain.findings import CodeEdit
from tipchain.facts.optimizers import ABSENT, BY_CLASS, BY_NAME, DEFAULTS, OptimizerKind
from tipchain.facts.settings import plain, same, tidy
from tipchain.framework_types import Optimizer, Options, Setting, Tensor
from tipchain.frameworks.base import rate_factor
from tipchain.frameworks.paddle_ import parameter_groups

Decay = tuple[tuple[str, float], ...]
"""Decay of a parameter: forms (``l2``, ``l1``, ``decoupled``) and coefficients; empty: none."""
PACKAGES = "torch.optim", "paddle.optimizer"
SHOWN = 4
"""Parameters that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """An optimizer's treatment of one parameter.

    Attributes:
        kind: a row of the table of optimizers; empty of a user's own optimizer.
        rate: the learning rate now, factors included; None of an optimizer that tells none.
        decay: what decays it.
        options: the rest by Paddle's arguments, in Paddle's terms.
    """

    kind: str
    rate: float | None
    decay: Decay
    options: Options


Matched = Sequence[tuple[str, Treatment, Treatment]]
"""A parameter's name with both treatments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """A setting of two optimizers, or of two schedules, that differs.

    Attributes:
        path: Paddle's argument behind those of warm-ups that lead to it; ``kind`` for an optimizer's class.
        expected: the reference's value.
        shown: both as a message has them.
        names: of the parameters, where it does not differ for all; None of schedules.
        fix: what to write in the port.
    """

    path: tuple[str, ...]
    expected: Setting
    shown: tuple[str, str]
    names: tuple[str, ...] | None = None
    fix: str

    @property
    def name(self) -> str:
        """The argument."""
        return self.path[-1]

    @property
    def message(self) -> str:
        """Both values, as a message has them."""
        expected, actual = self.shown
        where = f" for {listed(self.names, SHOWN)}" if self.names else ""
        if self.name == "kind":
            return f"the port's optimizer is {actual}, the reference's {expected}"
        if self.names is None:
            return f"`{self.name}` of the port's schedule is {actual}, the reference's {expected}"
        return f"`{self.name}` of the port's optimizer is {actual}{where}, the reference's {expected}"

    @property
    def edit(self) -> CodeEdit | None:
        """What to pass to the optimizer or the schedule; None where it takes another class, or another group."""
        value = repr(tidy(self.expected))
        if self.name == "weight_decay":
            form, coefficient = self.expected[0] if self.expected else ("decoupled", 0)
            value = "" if form == "decoupled" else f"paddle.regularizer.{form.upper()}Decay({coefficient:.9g})"
        if not value or self.name == "kind" or (self.name == "learning_rate" and self.names):
            return None
        return CodeEdit(kind="pass", call="", arguments=((self.name, value),))


def _kind(optimizer: object, side: int) -> OptimizerKind | None:
    of_package = (one for one in type(optimizer).__mro__ if one.__module__.startswith(PACKAGES[side]))
    return next((known for one in of_package if (known := BY_CLASS[side].get(one.__name__)) is not None), None)


def read_torch(optimizer: Optimizer) -> Iterator[tuple[Tensor, Treatment]]:
    """Yield each parameter of a torch optimizer with its treatment."""
    row = _kind(optimizer, 0)
    kind, arguments = ("", {}) if row is None else (row.name, row.arguments)
    for group in optimizer.param_groups:
        options: dict[str, Setting] = {"maximize": bool(group.get("maximize", False))}
        for name, key in arguments.items():
            if key.partition("[")[0] in group:
                options[name] = plain(group["betas"][int(key[-2])] if key.startswith("betas") else group[key])
        if kind == "SGD" and not options.get("momentum"):
            options = {"momentum": 0, "maximize": options["maximize"]}
        if kind == "RMSProp":
            options["epsilon"] = options["epsilon"] ** 2
        decoupled = bool(group.get("decoupled_weight_decay", _is_adamw(optimizer)))
        terms = (("decoupled" if decoupled else "l2", group.get("weight_decay")), ("l1", group.get("l1_decay")))
        treatment = Treatment(kind=kind, rate=float(group["lr"]), decay=_decay(terms), options=options)
        for one in group["params"]:
            yield one, treatment


def read_paddle(optimizer: Optimizer) -> Iterator[tuple[Tensor, Treatment]]:
    """Yield each parameter of a Paddle optimizer with its treatment."""
    row = _kind(optimizer, 1)
    kind, arguments = ("", {}) if row is None else (row.name, row.arguments)
    rate = float(optimizer.get_lr()) if hasattr(optimizer, "get_lr") else None
    for group, parameters in parameter_groups(optimizer):
        options: dict[str, Setting] = {"maximize": False}
        for name in (*arguments, "rescale_grad"):
            options[name] = _kept(optimizer, group, name)
        if options["rescale_grad"] in (None, 1):
            del options["rescale_grad"]
        if kind == "SGD" and not options["momentum"]:
            options = {
                "momentum": 0,
                "maximize": False,
                **{key: options[key] for key in options if key == "rescale_grad"},
            }
        if kind == "RMSProp" and "_append_optimize_op" in vars(type(optimizer)) and not _is_paddles(optimizer):
            options["epsilon"] = options["epsilon"] ** 2  # a formula of its own: torch's, as in `tipchain.pairs`
        if kind == "Rprop":
            options["etas"] = options["etas"][0]
        for one in parameters:
            own = None if rate is None else rate * rate_factor(optimizer, one)
            yield one, Treatment(kind=kind, rate=own, decay=_paddle_decay(optimizer, group, one), options=options)


def _is_paddles(optimizer: object) -> bool:
    return type(optimizer).__module__.startswith("paddle.")


def _kept(optimizer: object, group: Options, name: str) -> Setting:
    """Return a setting of a group, else of the optimizer, else the default."""
    if name in group:
        return plain(group[name])
    return plain(getattr(optimizer, f"_{name}", getattr(optimizer, name, ABSENT.get(name))))


def _is_adamw(optimizer: object) -> bool:
    return any(one.__name__ == "AdamW" for one in type(optimizer).__mro__)


def _decay(terms: Iterable[tuple[str, Setting]]) -> Decay:
    return tuple((form, float(plain(coefficient))) for form, coefficient in terms if coefficient)


def _paddle_decay(optimizer: Optimizer, group: Options, parameter: Tensor) -> Decay:
    """Return a parameter's decay: its own regularizer before the optimizer's; AdamW's stands beside it."""
    own = getattr(parameter, "regularizer", None)
    if _is_adamw(optimizer):
        chosen = getattr(optimizer, "_apply_decay_param_fun", None)
        takes = chosen is None or chosen(parameter.name)
        coefficient = group.get("weight_decay", getattr(optimizer, "_weight_decay", 0.0))
        return _decay([*([("decoupled", coefficient)] if takes else []), *_regularizer(own)])
    if own is not None:
        return _decay(_regularizer(own))
    fused = group.get("regularization_coeff", getattr(optimizer, "_regularization_coeff", 0.0))
    return _decay([("l2", fused), *_regularizer(getattr(optimizer, "regularization", None))])


def _regularizer(regularizer: object) -> Iterator[tuple[str, object]]:
    if regularizer is not None:
        yield "l1" if "L1" in type(regularizer).__name__ else "l2", getattr(regularizer, "_coeff", None)


def match(
    ours: Optimizer, theirs: Optimizer, tensors: Iterable[tuple[str, Tensor, Tensor]]
) -> tuple[Matched, list[str], list[str]]:
    """Return both treatments of each parameter, and the names of those that the port, the reference alone updates.

    Of a port's optimizer that tells no parameters nothing is said.
    """
    done, port_done = (
        {id(one): treatment for one, treatment in read} for read in (read_torch(ours), read_paddle(theirs))
    )
    matched: list[tuple[str, Treatment, Treatment]] = []
    port_alone: list[str] = []
    reference_alone: list[str] = []
    for name, tensor, port_tensor in tensors if port_done else ():
        expected = done.get(id(tensor)) if tensor.requires_grad else None
        actual = None if port_tensor.stop_gradient else port_done.get(id(port_tensor))
        if expected is not None and actual is not None:
            matched.append((name, expected, actual))
        elif expected is not None or actual is not None:
            (port_alone if expected is None else reference_alone).append(name)
    return matched, port_alone, reference_alone


def differences(matched: Matched, theirs: Optimizer) -> list[SettingDifference]:
    """Return the settings that differ, given both optimizers' treatments of each parameter."""
    if not matched:
        return []
    kinds = [one.kind for one in matched[0][1:]]
    if all(kinds) and kinds[0] != kinds[1]:
        expected, actual = (_class_of(one) for one in matched[0][1:])
        fix = f"use `paddle.optimizer.{expected}`"
        classes = expected, actual
        return [SettingDifference(path=("kind",), expected=expected, shown=classes, names=(), fix=fix)]
    known = ["learning_rate", *(["weight_decay"] if all(kinds) else ())]
    known += dict.fromkeys(name for _, one, other in matched for name in (*one.options, *other.options))
    rate = float(theirs.get_lr()) if hasattr(theirs, "get_lr") else 0.0
    found = []
    for name in known:
        apart: dict[tuple[Setting, Setting], list[str]] = defaultdict(list)
        for parameter, *both in matched:
            expected, actual = (_value(one, name) for one in both)
            if None not in (expected, actual) and not same(expected, actual):
                apart[expected, actual].append(parameter)
        for (expected, actual), names in apart.items():
            some = tuple(names) if len(names) < len(matched) else ()
            fix = _fix(name, expected, f" for {listed(some, SHOWN)}" if some else "", rate)
            if name == "epsilon" and kinds[0] == "RMSProp":
                fix += f": torch's {expected**0.5:.6g} stands beside the root, Paddle's below it"
            shown = _spell(name, expected), _spell(name, actual)
            found.append(SettingDifference(path=(name,), expected=expected, shown=shown, names=some, fix=fix))
    return found


def _value(treatment: Treatment, name: str) -> Setting:
    if name == "learning_rate":
        return treatment.rate
    return treatment.decay if name == "weight_decay" else treatment.options.get(name, DEFAULTS.get(name))


def _fix(name: str, wanted: Setting, where: str, rate: float) -> str:
    if name == "learning_rate" and where and rate:
        return f"let the factor{where} be {wanted / rate:.6g}: a group's `learning_rate` multiplies the optimizer's {rate:.6g}"
    if name == "weight_decay" and not wanted:
        return f"do not decay{where or ' any parameter'} (`apply_decay_param_fun`, or a group with `weight_decay=0.0`)"
    if name == "weight_decay":
        form, coefficient = wanted[0]
        ways = {"decoupled": "use `paddle.optimizer.AdamW` with `weight_decay={}`"}
        regular = f"pass `weight_decay=paddle.regularizer.{form.upper()}Decay({{}})`"
        return ways.get(form, regular).format(f"{coefficient:.9g}") + where
    return f"pass `{name}={tidy(wanted)!r}` to the optimizer{where}"


def _spell(name: str, value: Setting) -> str:
    if name != "weight_decay":
        return repr(tidy(value))
    return " + ".join(f"{coefficient:.9g} ({form})" for form, coefficient in value) or "0"


def with_settings(treatment: Treatment, reference: Treatment, names: Iterable[str]) -> Treatment:
    """Return a treatment with the reference's values of some settings."""
    for name in names:
        if name == "kind":
            return reference
        if name == "learning_rate":
            treatment = replace(treatment, rate=reference.rate)
        elif name == "weight_decay":
            treatment = replace(treatment, decay=reference.decay)
        else:
            treatment = replace(treatment, options={**treatment.options, name: _value(reference, name)})
    return treatment


def _class_of(treatment: Treatment) -> str:
    """Return the class of Paddle's that does it."""
    if treatment.kind == "SGD" and treatment.options.get("momentum"):
        return "Momentum"
    return "AdamW" if dict(treatment.decay).get("decoupled") and treatment.kind == "Adam" else treatment.kind


def build(paddle: ModuleType, optimizer: Optimizer, treatments: Sequence[tuple[Tensor, Treatment]]) -> Optimizer:
    """Make Paddle's optimizer that treats each parameter so, with the clipping of another.

    Raises:
        ValueError: the other is no optimizer of Paddle's, or Paddle has no such setting.
        Exception: whatever Paddle raises.
    """
    if not _is_paddles(optimizer):
        raise ValueError(type(optimizer))
    kinds = {_class_of(one) for _, one in treatments}
    kind = next((one for one in kinds if one in ("AdamW", "Momentum")), min(kinds))
    decoupled = {tensor.name: size for tensor, one in treatments if (size := dict(one.decay).get("decoupled"))}
    common: dict[str, Setting] = {"grad_clip": getattr(optimizer, "_grad_clip", None)}
    if kind == "AdamW":
        common["apply_decay_param_fun"] = decoupled.__contains__
    groups: dict[tuple[tuple[str, Setting], ...], list[Tensor]] = defaultdict(list)
    for tensor, treatment in treatments:
        options = {name: value for name, value in treatment.options.items() if value is not None}
        if any(options.pop(name, value) != value for name, value in ABSENT.items()):
            raise ValueError(ABSENT)
        if kind == "AdamW":  # groups would be clipped one by one
            options["weight_decay"] = decoupled.get(tensor.name, max(decoupled.values()))
        groups[tuple(sorted(options.items())) if kind != "SGD" else ()].append(tensor)
    made = [{"params": tensors, **dict(options)} for options, tensors in groups.items()]
    if len(made) == 1:
        common |= dict(next(iter(groups)))
    rate = float(optimizer.get_lr())
    built = getattr(paddle.optimizer, kind)(
        learning_rate=rate, parameters=made if len(made) > 1 else made[0]["params"], **common
    )
    for tensor, treatment in treatments:  # a group gives its own to its parameters
        tensor.optimize_attr = {"learning_rate": (treatment.rate or rate) / rate}
        kept = [(form, size) for form, size in treatment.decay if form != "decoupled"]
        tensor.regularizer = getattr(paddle.regularizer, f"{kept[0][0].upper()}Decay")(kept[0][1]) if kept else None
    return built


def level_epsilons(ours: Optimizer, theirs: Optimizer) -> str:
    """Take epsilon out of both corresponding RMSProps, which place it differently; return a note."""
    if not _is_paddles(theirs) or _kind(theirs, 1) is not BY_NAME["RMSProp"]:
        return ""
    values = [one.options.get("epsilon") for read in (read_torch(ours), read_paddle(theirs)) for _, one in read]
    if None in values or not all(same(values[0], one) for one in values):
        return ""
    for group in ours.param_groups:
        group["eps"] = 1e-18
    keep(theirs, "epsilon", 1e-36)
    below: Setting = values[0]
    return f"epsilon is left out: {below**0.5:.6g} beside torch's root is {below:.6g} below Paddle's"


def keep(optimizer: Optimizer, argument: str, value: object) -> None:
    """Set an argument that a Paddle optimizer and its groups keep."""
    groups: Setting = parameter_groups(optimizer)
    for group, _ in groups:
        group[argument] = value
    for name in (f"_{argument}", argument):
        if hasattr(optimizer, name):
            setattr(optimizer, name, value)
    getattr(optimizer, "_default_dict", {})[argument] = value
