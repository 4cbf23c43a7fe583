"""An optimizer's treatment of each parameter, in one form, and Paddle's optimizer made of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from tipchain.core.language import listed
from tipchain.explain.findings import CodeEdit
from tipchain.explain.preflight.schedules import OPTIMIZER, SettingDifference, Settings, shown
from tipchain.facts.optimizers import ABSENT, BY_CLASS, BY_NAME, OptimizerKind
from tipchain.facts.settings import plain, same, tidy
from tipchain.framework_types import Optimizer, Options, Setting, Tensor
from tipchain.frameworks.base import rate_factor
from tipchain.frameworks.paddle_ import parameter_groups

Decay = tuple[tuple[str, float], ...]
"""``weight_decay`` of a parameter: forms (``l2``, ``l1``, ``decoupled``) and coefficients; empty: none."""
PACKAGES = "torch.optim", "paddle.optimizer"
SHOWN = 4
"""Parameters that a message names."""
ALWAYS = ("learning_rate", "weight_decay", "momentum", "maximize", "rescale_grad")
"""Settings that all optimizers may have; the learning rate is the present one, factors included, None where none is told."""


def _row(optimizer: object, side: int) -> OptimizerKind:
    of_package = (one for one in type(optimizer).__mro__ if one.__module__.startswith(PACKAGES[side]))
    found = (known for one in of_package if (known := BY_CLASS[side].get(one.__name__)) is not None)
    return next(found, OptimizerKind(name="", classes=((), ()), arguments={}))


def _treatment(row: OptimizerKind, options: Options, *, as_torch: bool) -> Settings:
    """Return the settings that count; ``as_torch``: epsilon stands beside the root, where Paddle's is below it."""
    if row.name == "SGD" and not options.get("momentum"):
        options = {name: 0 if name == "momentum" else options[name] for name in ALWAYS if name in options}
    if row.name == "RMSProp" and as_torch:
        options = {**options, "epsilon": options["epsilon"] ** 2}
    return Settings(kind=row.name, arguments=options)


def read_torch(optimizer: Optimizer) -> Iterator[tuple[Tensor, Settings]]:
    """Yield each parameter of a torch optimizer with its treatment."""
    row = _row(optimizer, 0)
    for group in optimizer.param_groups:
        kept = {**group, **{f"betas[{number}]": beta for number, beta in enumerate(group.get("betas", ()))}}
        decoupled = bool(group.get("decoupled_weight_decay", _is_adamw(optimizer)))
        terms = (("decoupled" if decoupled else "l2", group.get("weight_decay")), ("l1", group.get("l1_decay")))
        maximize = bool(group.get("maximize", False))
        options = {"learning_rate": float(group["lr"]), "weight_decay": _decay(terms), "maximize": maximize}
        options |= {name: plain(kept[key]) for name, key in row.arguments.items() if key in kept}
        treatment = _treatment(row, options, as_torch=True)
        for one in group["params"]:
            yield one, treatment


def read_paddle(optimizer: Optimizer) -> Iterator[tuple[Tensor, Settings]]:
    """Yield each parameter of a Paddle optimizer with its treatment."""
    row = _row(optimizer, 1)
    # A formula of its own is torch's, as in `tipchain.pairs`.
    as_torch = "_append_optimize_op" in vars(type(optimizer)) and not _is_paddles(optimizer)
    rate = float(optimizer.get_lr()) if hasattr(optimizer, "get_lr") else None
    for group, parameters in parameter_groups(optimizer):
        options: dict[str, Setting] = {"maximize": False}
        for name in (*row.arguments, "rescale_grad"):
            kept = getattr(optimizer, f"_{name}", getattr(optimizer, name, ABSENT.get(name)))
            options[name] = plain(group.get(name, kept))
        if options["rescale_grad"] in (None, 1):
            del options["rescale_grad"]
        if row.name == "Rprop":
            options["etas"] = options["etas"][0]
        for one in parameters:
            own = getattr(one, "regularizer", None)
            if _is_adamw(optimizer):  # its decay stands beside the parameter's own regularizer
                chosen = getattr(optimizer, "_apply_decay_param_fun", None)
                takes = chosen is None or chosen(one.name)
                decoupled = group.get("weight_decay", getattr(optimizer, "_weight_decay", 0.0)) if takes else 0.0
                terms = [("decoupled", decoupled), *_regularizer(own)]
            elif own is not None:  # before the optimizer's
                terms = [*_regularizer(own)]
            else:
                fused = group.get("regularization_coeff", getattr(optimizer, "_regularization_coeff", 0.0))
                terms = [("l2", fused), *_regularizer(getattr(optimizer, "regularization", None))]
            present = None if rate is None else rate * rate_factor(optimizer, one)
            treated = {"learning_rate": present, "weight_decay": _decay(terms), **options}
            yield one, _treatment(row, treated, as_torch=as_torch)


def _is_paddles(optimizer: object) -> bool:
    return type(optimizer).__module__.startswith("paddle.")


def _is_adamw(optimizer: object) -> bool:
    return any(one.__name__ == "AdamW" for one in type(optimizer).__mro__)


def _decay(terms: Iterable[tuple[str, Setting]]) -> Decay:
    return tuple((form, float(plain(coefficient))) for form, coefficient in terms if coefficient)


def _regularizer(regularizer: object) -> Iterator[tuple[str, object]]:
    if regularizer is not None:
        yield "l1" if "L1" in type(regularizer).__name__ else "l2", getattr(regularizer, "_coeff", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatments:
    """Two optimizers' treatments of the parameters.

    Attributes:
        matched: a parameter's name with both treatments.
        port_alone: the names of those that the port alone updates.
        reference_alone: the names of those that the reference alone updates.
        found: the settings that differ.
    """

    matched: Sequence[tuple[str, Settings, Settings]]
    port_alone: list[str]
    reference_alone: list[str]
    found: list[SettingDifference]


def compare(ours: Optimizer, theirs: Optimizer, tensors: Iterable[tuple[str, Tensor, Tensor]]) -> Treatments:
    """Compare both treatments of each parameter; of a port's optimizer that tells no parameters nothing is said."""
    done, port_done = ({id(one): told for one, told in read} for read in (read_torch(ours), read_paddle(theirs)))
    matched: list[tuple[str, Settings, Settings]] = []
    port_alone: list[str] = []
    reference_alone: list[str] = []
    for name, tensor, port_tensor in tensors if port_done else ():
        expected = done.get(id(tensor)) if tensor.requires_grad else None
        actual = None if port_tensor.stop_gradient else port_done.get(id(port_tensor))
        if expected is not None and actual is not None:
            matched.append((name, expected, actual))
        elif expected is not None or actual is not None:
            (port_alone if expected is None else reference_alone).append(name)
    rate = float(theirs.get_lr()) if hasattr(theirs, "get_lr") else 0.0
    found = list(_differences(matched, rate)) if matched else []
    return Treatments(matched=matched, port_alone=port_alone, reference_alone=reference_alone, found=found)


def _differences(matched: Sequence[tuple[str, Settings, Settings]], rate: float) -> Iterator[SettingDifference]:
    _, *first = matched[0]
    kinds = [one.kind for one in first]
    if all(kinds) and kinds[0] != kinds[1]:
        expected, actual = (_class_of(one) for one in first)
        message = f"the port's optimizer is {actual}, the reference's {expected}"
        fix = f"use `paddle.optimizer.{expected}`"
        yield SettingDifference(piece=OPTIMIZER, path=("kind",), expected=expected, message=message, fix=fix)
        return
    apart: dict[str, dict[tuple[Setting, Setting], list[str]]] = defaultdict(lambda: defaultdict(list))
    for parameter, reference, port in matched:
        for (name,), *values in reference.apart(port):
            if all(kinds) or name != "weight_decay":
                apart[name][values[0], values[1]].append(parameter)
    for name in dict.fromkeys(name for _, *both in matched for one in both for name in one.arguments):
        for (expected, actual), names in apart[name].items():
            where = f" for {listed(names, SHOWN)}" if len(names) < len(matched) else ""
            value, port_value = _spell(name, expected), _spell(name, actual)
            fix, edit = _mending(name, expected, where, rate)
            if name == "epsilon" and kinds[0] == "RMSProp":
                fix += f": torch's {expected**0.5:.6g} stands beside the root, Paddle's below it"
            message = f"`{name}` of the port's optimizer is {port_value}{where}, the reference's {value}"
            yield SettingDifference(
                piece=OPTIMIZER, path=(name,), expected=expected, message=message, fix=fix, edit=edit
            )


def _mending(name: str, wanted: Setting, where: str, rate: float) -> tuple[str, CodeEdit | None]:
    """Return what to do, and what to pass to the optimizer: None where it takes another class, or another group."""
    if name == "learning_rate" and where and rate:
        told = f"let the factor{where} be {wanted / rate:.6g}: a group's `learning_rate` multiplies the optimizer's {rate:.6g}"
        return told, None
    if name == "weight_decay" and not wanted:
        told = f"do not decay{where or ' any parameter'} (`apply_decay_param_fun`, or a group with `weight_decay=0.0`)"
        return told, None
    value = repr(tidy(wanted))
    if name == "weight_decay":
        form, coefficient = wanted[0]
        if form == "decoupled":
            return f"use `paddle.optimizer.AdamW` with `weight_decay={coefficient:.9g}`{where}", None
        value = f"paddle.regularizer.{form.upper()}Decay({coefficient:.9g})"
        return f"pass `{name}={value}`{where}", CodeEdit(kind="pass", call="", arguments=((name, value),))
    edit = None if name == "learning_rate" and where else CodeEdit(kind="pass", call="", arguments=((name, value),))
    return f"pass `{name}={value}` to the optimizer{where}", edit


def _spell(name: str, value: Setting) -> str:
    if name != "weight_decay":
        return shown(value)
    return " + ".join(f"{coefficient:.9g} ({form})" for form, coefficient in value) or "0"


def _decay_of(treatment: Settings) -> dict[str, float]:
    return dict(treatment.arguments["weight_decay"])


def _class_of(treatment: Settings) -> str:
    if treatment.kind == "SGD" and treatment.value("momentum"):
        return "Momentum"
    return "AdamW" if _decay_of(treatment).get("decoupled") and treatment.kind == "Adam" else treatment.kind


def build(paddle: ModuleType, optimizer: Optimizer, treatments: Sequence[tuple[Tensor, Settings]]) -> Optimizer:
    """Make Paddle's optimizer that treats each parameter so, with the clipping of another.

    Raises:
        ValueError: the other is no optimizer of Paddle's, or Paddle has no such setting.
        Exception: whatever Paddle raises.
    """
    if not _is_paddles(optimizer):
        raise ValueError(type(optimizer))
    kinds = {_class_of(one) for _, one in treatments}
    kind = next((one for one in kinds if one in ("AdamW", "Momentum")), min(kinds))
    decoupled = {tensor.name: size for tensor, one in treatments if (size := _decay_of(one).get("decoupled"))}
    common: dict[str, Setting] = {"grad_clip": getattr(optimizer, "_grad_clip", None)}
    if kind == "AdamW":
        common["apply_decay_param_fun"] = decoupled.__contains__
    groups: dict[tuple[tuple[str, Setting], ...], list[Tensor]] = defaultdict(list)
    for tensor, treatment in treatments:
        given = {name: value for name, value in treatment.arguments.items() if value is not None}
        options = {name: value for name, value in given.items() if name not in ALWAYS[:2]}
        if any(options.pop(name, value) != value for name, value in ABSENT.items()):
            raise ValueError(ABSENT)
        if kind == "AdamW":  # groups would be clipped one by one
            options["weight_decay"] = decoupled.get(tensor.name, max(decoupled.values()))
        groups[tuple(sorted(options.items())) if kind != "SGD" else ()].append(tensor)
    made = [{"params": tensors, **dict(options)} for options, tensors in groups.items()]
    if len(made) == 1:
        common |= dict(next(iter(groups)))
    rate = float(optimizer.get_lr())
    parameters = made if len(made) > 1 else made[0]["params"]
    built = getattr(paddle.optimizer, kind)(learning_rate=rate, parameters=parameters, **common)
    for tensor, treatment in treatments:  # a group gives its own to its parameters
        tensor.optimize_attr = {"learning_rate": (treatment.value("learning_rate") or rate) / rate}
        kept = [(form, size) for form, size in _decay_of(treatment).items() if form != "decoupled"]
        tensor.regularizer = getattr(paddle.regularizer, f"{kept[0][0].upper()}Decay")(kept[0][1]) if kept else None
    return built


def level_epsilons(ours: Optimizer, theirs: Optimizer) -> str:
    """Take epsilon out of both corresponding RMSProps, which place it differently; return a note."""
    if not _is_paddles(theirs) or _row(theirs, 1) is not BY_NAME["RMSProp"]:
        return ""
    values = [one.value("epsilon") for read in (read_torch(ours), read_paddle(theirs)) for _, one in read]
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
