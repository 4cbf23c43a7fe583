"""Certify a PASS: plant faults into copies of a port, and count the caught ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tipchain.core.json_text import Json
from tipchain.core.language import say
from tipchain.core.progress import Pace, Progress
from tipchain.errors import BAD, ExitCode
from tipchain.framework_types import Array, Model, Nested, Setting
from tipchain.frameworks.live_models import name_alike
from tipchain.live.align import align
from tipchain.live.report import AlignmentReport
from tipchain.weights.structure import group_by

Change = Callable[[Model], object]
MOST = 24
"""Faults that are planted unless more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A mistake that ports are known for, as small as it usually is: no model falls over by one.

    Attributes:
        code: its slug.
        port_path: the layer.
        what: what is changed, in words.
        change: changes the layer, or returns another one for its place.
        stages: the stages that failed once it was planted.
        located: the layer that was named then is the one, or the code around it.
    """

    code: str
    port_path: str
    what: str
    change: Change
    stages: tuple[str, ...] = ()
    located: bool = False

    @property
    def caught(self) -> bool:
        """Whether a stage failed."""
        return bool(self.stages)


def faults_of(port: Model) -> list[Fault]:
    """Return the faults that can be planted into the layers of a ``paddle.nn.Layer``, which is not changed."""
    layers = port.named_sublayers(include_self=True)
    every = ((path, *fault) for path, layer in layers for fault in _of_layer(layer))
    kept = (one for one in every if one[0] or one[1] not in REPLACING)
    return [Fault(code=code, port_path=path, what=what, change=change) for path, code, what, change in kept]


def choose(faults: Sequence[Fault], most: int) -> list[Fault]:
    """Return at most ``most`` faults: of every code in turn, from layers spread evenly over the model."""
    turns = []
    for same in group_by(faults, lambda fault: fault.code).values():
        count = len(same)
        order = [count // 2, 0, count - 1, count // 4, 3 * count // 4, *range(count)]
        turns += [(turn, id(same[at])) for turn, at in enumerate(dict.fromkeys(order))]
    kept = {number for _, number in sorted(turns, key=lambda one: one[0])[:most]}
    return [one for one in faults if id(one) in kept]


REPLACING = ("missing-activation", "other-activation")
"""Faults that put another layer in the place of one."""


def _of_layer(layer: Model) -> Iterator[tuple[str, str, Change]]:
    """Yield code, words and change of a layer's possible faults; changes may return a replacement."""
    from paddle import nn

    kind, epsilon = type(layer).__name__, getattr(layer, "_epsilon", None)
    if isinstance(epsilon, float):
        yield "epsilon", f"epsilon {epsilon * 10:g} instead of {epsilon:g}", _set("_epsilon", epsilon * 10)
    if kind.startswith("BatchNorm"):
        momentum = 1 - layer._momentum  # noqa: SLF001
        yield "momentum", f"momentum {momentum:g}, as torch counts it", _set("_momentum", momentum)
    if isinstance(layer, nn.Dropout) and isinstance(layer.p, float) and 0 < layer.p < 1:
        yield "dropout-p", f"p={layer.p / 2:g} instead of {layer.p:g}", _set("p", layer.p / 2)
    if isinstance(layer, nn.ReLU | nn.GELU | nn.Silu | nn.Hardswish | nn.Tanh | nn.Sigmoid | nn.ReLU6):
        other = nn.GELU if isinstance(layer, nn.ReLU) else nn.ReLU
        yield "missing-activation", "it is left out", lambda _: nn.Identity()
        yield "other-activation", f"{other.__name__} instead of {kind}", lambda _: other()
    own = dict(layer.named_parameters(include_sublayers=False))
    if own:
        name, weight = next(iter(own.items()))
        if len(weight.shape) > 1 and weight.shape[0] == weight.shape[1]:
            transposed = _write(name, lambda one: one.swapaxes(0, 1))
            yield "transposed-weight", f"its square {name} is transposed", transposed
        yield "scaled-weight", f"its {name} is 0.1 % larger", _write(name, lambda one: one * np.float32(1.001))
        yield "wrong-elements", f"one element of its {name} is another", _write(name, _one_element)
        told = f"its {name} is frozen"
        yield "frozen-parameters", told, lambda one: setattr(getattr(one, name), "stop_gradient", True)
    if "bias" in own and float(abs(own["bias"]).max()) > 0:
        yield "missing-bias", "its bias is zero", _write("bias", np.zeros_like)


def _set(name: str, value: object) -> Change:
    return lambda layer: setattr(layer, name, value)


def _write(name: str, change: Callable[[Array], Array]) -> Change:
    def write(layer: Model) -> None:
        tensor = getattr(layer, name)
        tensor.set_value(np.ascontiguousarray(change(tensor.numpy())))

    return write


def _one_element(array: Array) -> Array:
    changed = np.array(array)
    changed.flat[array.size // 2] += np.abs(array).mean()
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How well a comparison sees.

    Attributes:
        report: of the port as it is.
        planted: every fault that was planted; empty where the port itself does not pass.
        possible: how many faults could be planted in all.
    """

    report: AlignmentReport
    planted: tuple[Fault, ...]
    possible: int

    @property
    def exit_code(self) -> ExitCode:
        """The report's, and FAILED where nothing that was planted is caught."""
        if not self.report.passed:
            return self.report.exit_code
        if not self.planted:
            return ExitCode.NOTHING_CHECKED
        return ExitCode.PASSED if any(one.caught for one in self.planted) else ExitCode.FAILED

    def to_document(self) -> dict[str, Json]:
        """Return it as values that JSON can hold, without the report's layers."""
        return {
            "passed": self.report.passed,
            "stages": {name: outcome.value for name, outcome in self.report.stages.items()},
            "possible": self.possible,
            "caught": sum(one.caught for one in self.planted),
            "planted": [
                {name: getattr(one, name) for name in ("code", "port_path", "what")}
                | {"caught": one.caught, "stages": list(one.stages), "located": one.located}
                for one in self.planted
            ],
        }

    def __str__(self) -> str:
        """Return the verdict, a line per kind of fault, and the missed faults, translated."""
        return say(self.text)

    @property
    def text(self) -> str:
        """The same lines in English, as they are stored."""
        lines = [self.report.headline]
        if not self.report.passed:
            return "\n".join([*lines, "the port itself does not pass: nothing was planted"])
        caught = sum(one.caught for one in self.planted)
        lines.append(f"{caught} of {len(self.planted)} planted faults would be caught ({self.possible} are possible)")
        for code, ones in group_by(self.planted, lambda fault: fault.code).items():
            seen = sum(one.caught for one in ones)
            stages = ", ".join(dict.fromkeys(stage for one in ones for stage in one.stages))
            lines.append(f"  {seen:>3} of {len(ones):<3} {code}" + (f": {stages}" if stages else ""))
        missed = (fault for fault in self.planted if not fault.caught)
        lines += (f"not caught: {fault.port_path}: {fault.what} ({fault.code})" for fault in missed)
        return "\n".join(lines)


def certify(
    reference: Model,
    port: Model,
    inputs: Mapping[str, Nested],
    *,
    most: int = MOST,
    progress: Progress | None = None,
    **options: Setting,
) -> Certificate:
    """Plant faults into the layers of copies of the port, one at a time, and see which of them `tipchain.align` catches.

    Losses, optimizers and schedules are left out: their settings are compared, whatever the inputs.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``; neither is changed.
        inputs: as for `tipchain.align`.
        most: how many faults are planted at most: of each kind in turn, spread over the layers.
        progress: says which fault is planted, and how many there are.
        options: what else `tipchain.align` is given.

    Returns:
        The certificate; a port that does not pass by itself gets none.
    """
    report = align(reference, port, inputs, **{**options, "causes": False})
    if not report.passed:
        return Certificate(report=report, planted=(), possible=0)
    faults = faults_of(port)
    planted: list[Fault] = []
    chosen, pace = choose(faults, most), Pace(progress=progress)
    for number, fault in enumerate(chosen):
        if pace.over:
            break
        pace.tell("planting faults", number, len(chosen))
        model = copy.deepcopy(port)
        name_alike(port, model)
        layers = dict(model.named_sublayers(include_self=True))
        made = fault.change(layers[fault.port_path])
        if made is not None:
            above, _, name = fault.port_path.rpartition(".")
            layers[above]._sub_layers[name] = made  # noqa: SLF001
            model.train() if model.training else model.eval()
        told = align(reference, model, inputs, **{**options, "causes": False})
        stages = tuple(name for name, outcome in told.stages.items() if outcome in BAD)
        first = told.first_divergence
        around = first is not None and (not first.port_path or f"{fault.port_path}.".startswith(f"{first.port_path}."))
        if not pace.over:  # else it was not looked at to its end
            planted.append(replace(fault, stages=stages, located=around))
    return Certificate(report=report, planted=tuple(planted), possible=len(faults))
