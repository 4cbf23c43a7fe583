"""What a PASS is worth: faults planted into copies of a port, and which of them would have been caught."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import wraps

import numpy as np

from tipchain.core.json_text import Json
from tipchain.core.language import say
from tipchain.core.progress import interrupted
from tipchain.errors import BAD, ExitCode
from tipchain.explain.causes.optimizer_builders import build_both
from tipchain.framework_types import Array, Function, Model, Nested, Optimizer, Options, Schedule, Setting
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide, name_alike
from tipchain.frameworks.paddle_ import held_parameters, own_schedule, parameter_groups
from tipchain.live.align import align
from tipchain.live.report import AlignmentReport

# Faults that are planted into a copy of a port, to see whether they would be caught.
#
# Each is a mistake that ports are known for, as small as it usually is: nothing here makes a model fall over.


Plant = Callable[[Model], None]
Builder = Function
LAYER, LOSS, OPTIMIZER, SCHEDULE = "layer", "loss", "optimizer", "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that can be planted.

    Attributes:
        code: its slug, as diagnoses have it.
        piece: what it is planted into: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"schedule"``.
        port_path: the layer; empty for the other pieces.
        what: what is changed, in words.
        plant: changes a copy of the layer, given the model's copy and the path; or returns another builder or loss.
    """

    code: str
    piece: str
    port_path: str
    what: str
    plant: Callable[[Model], object]


def faults_of(port: Model, *, loss: bool = False, optimizer: object = None, schedule: bool = False) -> list[Fault]:
    """Return the faults that can be planted into a Paddle layer and what trains it.

    Args:
        port: the ``paddle.nn.Layer``; it is not changed.
        loss: whether there is a loss.
        optimizer: its optimizer, over a copy; None without one.
        schedule: whether there is a schedule.
    """
    found: list[Fault] = []
    for path, layer in port.named_sublayers(include_self=True):
        found += (
            Fault(code=code, piece=LAYER, port_path=path, what=what, plant=plant)
            for code, what, plant in _of_layer(layer, path)
        )
    if loss:
        found += _of_loss()
    if optimizer is not None:
        found += (one for one in _of_optimizer(optimizer) if not (schedule and one.code == "learning-rate"))
    if schedule:
        found += (
            Fault(code=code, piece=SCHEDULE, port_path="", what=what, plant=_changed_once_built(change))
            for code, what, change in (
                ("shift", "the schedule is a step ahead", lambda one: one.step()),
                ("learning-rate", "the learning rate is 1 % higher", _faster),
            )
        )
    return found


def choose(faults: Sequence[Fault], most: int) -> list[Fault]:
    """Return at most ``most`` faults: of every code in turn, from layers spread evenly over the model."""
    by_code: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_code[fault.code].append(fault)
    spread = [_spread(one) for one in by_code.values()]
    chosen = [
        one for turn in range(max(map(len, spread), default=0)) for kind in spread for one in kind[turn : turn + 1]
    ]
    kept = {id(one) for one in chosen[:most]}
    return [one for one in faults if id(one) in kept]


def _spread(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults in an order whose beginnings are spread over them: the middle, the ends, then between."""
    count = len(faults)
    order = [count // 2, 0, count - 1, count // 4, 3 * count // 4, *range(count)]
    return [faults[number] for number in dict.fromkeys(order) if number < count]


def _of_layer(layer: object, path: str) -> Iterator[tuple[str, str, Plant]]:
    """Yield code, words and planting of what one layer can have wrong."""
    from paddle import nn

    kinds: tuple[tuple[Nested, Callable[[Model, str], Iterator[tuple[str, str, Plant]]]], ...] = (
        ((nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D), _of_batch_norm),
        ((nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1D, nn.InstanceNorm2D, nn.InstanceNorm3D), _of_norm),
        ((nn.Linear, nn.Conv1D, nn.Conv2D, nn.Conv3D), _of_weights),
        ((nn.ReLU, nn.GELU, nn.Silu, nn.Hardswish, nn.Tanh, nn.Sigmoid, nn.ReLU6), _of_activation),
        ((nn.MaxPool2D, nn.AvgPool2D), _of_pool),
        (nn.Dropout, _of_dropout),
        (nn.Embedding, _of_embedding),
        ((nn.LSTM, nn.GRU), _of_recurrent),
        (nn.MultiHeadAttention, _of_attention),
    )
    for types, faults in kinds:
        if isinstance(layer, types):
            yield from faults(layer, path)


def _at(path: str, change: Callable[[Model], object]) -> Plant:
    """Return what changes the layer at ``path`` of a model."""

    def plant(model: Model) -> None:
        change(dict(model.named_sublayers(include_self=True))[path])

    return plant


def _set(path: str, name: str, value: object) -> Plant:
    return _at(path, lambda layer: setattr(layer, name, value))


def _replace(path: str, made: Callable[[], object]) -> Plant:
    """Return what puts another layer in the place of the one at ``path``."""

    def plant(model: Model) -> None:
        above, _, name = path.rpartition(".")
        holder = dict(model.named_sublayers(include_self=True))[above]
        holder._sub_layers[name] = made()  # noqa: SLF001
        model.train() if model.training else model.eval()

    return plant


def _write(path: str, name: str, change: Callable[[Array], object]) -> Plant:
    """Return what changes a tensor of the layer at ``path``."""

    def plant(layer: object) -> None:
        tensor = getattr(layer, name)
        tensor.set_value(np.ascontiguousarray(change(tensor.numpy())))

    return _at(path, plant)


def _of_batch_norm(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    epsilon, momentum = layer._epsilon, layer._momentum  # noqa: SLF001
    yield ("epsilon", f"epsilon {epsilon * 100:g} instead of {epsilon:g}", _set(path, "_epsilon", epsilon * 100))
    yield "momentum", f"momentum {1 - momentum:g}, as torch counts it", _set(path, "_momentum", 1 - momentum)


def _of_norm(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    epsilon = layer._epsilon  # noqa: SLF001
    yield "epsilon", f"epsilon {epsilon * 10:g} instead of {epsilon:g}", _set(path, "_epsilon", epsilon * 10)


def _of_weights(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    shape = tuple(layer.weight.shape)
    if shape[0] == shape[1]:
        yield (
            "transposed-weight",
            "its square weight is transposed",
            _write(path, "weight", lambda array: array.swapaxes(0, 1)),
        )
    yield (
        "scaled-weight",
        "its weight is 0.1 % larger",
        _write(path, "weight", lambda array: array * np.float32(1.001)),
    )
    yield "wrong-elements", "one element of its weight is another", _write(path, "weight", _one_element)
    if layer.bias is not None and float(abs(layer.bias).max()) > 0:
        yield "missing-bias", "its bias is zero", _write(path, "bias", np.zeros_like)
    yield (
        "frozen-parameters",
        "its weight is frozen",
        _at(path, lambda one: setattr(one.weight, "stop_gradient", True)),
    )


def _one_element(array: Array) -> object:
    changed = np.array(array)
    changed.reshape(-1)[array.size // 2] += np.abs(array).mean()
    return changed


def _of_activation(layer: object, path: str) -> Iterator[tuple[str, str, Plant]]:
    from paddle import nn

    if not path:
        return
    yield "missing-activation", "it is left out", _replace(path, nn.Identity)
    if isinstance(layer, nn.GELU):
        other = not layer._approximate  # noqa: SLF001
        yield "gelu-form", f"approximate={other}", _replace(path, lambda: nn.GELU(approximate=other))
    else:
        made = nn.GELU if isinstance(layer, nn.ReLU) else nn.ReLU
        yield "other-activation", f"{made.__name__} instead of {type(layer).__name__}", _replace(path, made)


def _of_pool(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    from paddle import nn

    if not path:
        return
    kernel, stride, padding = layer.ksize, layer.stride, layer.padding
    largest = isinstance(layer, nn.MaxPool2D)
    made = nn.AvgPool2D if largest else nn.MaxPool2D

    def other() -> Model:
        return made(kernel, stride, padding, ceil_mode=layer.ceil_mode)

    yield "pooling", f"{made.__name__} instead of {type(layer).__name__}", _replace(path, other)


def _of_dropout(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    if isinstance(layer.p, float) and 0 < layer.p < 1:
        yield "dropout-p", f"p={layer.p / 2:g} instead of {layer.p:g}", _set(path, "p", layer.p / 2)
        yield "dropout-mode", "mode downscale_in_infer", _set(path, "mode", "downscale_in_infer")


def _of_embedding(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:  # noqa: ARG001
    yield "row-order", "its rows are one off", _write(path, "weight", lambda array: np.roll(array, 1, 0))


def _of_recurrent(layer: object, path: str) -> Iterator[tuple[str, str, Plant]]:
    gates = 4 if type(layer).__name__ == "LSTM" else 3

    def swap(one: Model) -> None:
        for name, tensor in one.named_parameters():
            if "weight" in name or "bias" in name:
                parts = np.split(tensor.numpy(), gates)
                tensor.set_value(np.concatenate([parts[1], parts[0], *parts[2:]]))

    yield "gate-order", "its first two gates are swapped", _at(path, swap)


def _of_attention(layer: Model, path: str) -> Iterator[tuple[str, str, Plant]]:
    if tuple(layer.q_proj.weight.shape) != tuple(layer.k_proj.weight.shape):
        return

    def swap(one: Model) -> None:
        first, second = one.q_proj.weight.numpy(), one.k_proj.weight.numpy()
        one.q_proj.weight.set_value(second)
        one.k_proj.weight.set_value(first)

    yield "swapped-qkv", "its weights of queries and keys are swapped", _at(path, swap)


def _of_loss() -> Iterator[Fault]:
    def scaled(loss: Builder) -> Builder:
        return lambda output, label: loss(output, label) * 1.01

    yield Fault(code="scale", piece=LOSS, port_path="", what="the loss is 1 % larger", plant=scaled)


def _of_optimizer(built: Optimizer) -> Iterator[Fault]:
    def faster(optimizer: Optimizer) -> None:
        schedule = own_schedule(optimizer)
        if schedule is None:
            optimizer.set_lr(optimizer.get_lr() * 1.01)
        else:
            _faster(schedule)

    def undecayed(optimizer: Optimizer) -> None:
        from paddle.regularizer import L2Decay

        optimizer._coeff = 0.0  # noqa: SLF001  (AdamW's)
        for parameter in held_parameters(optimizer):
            parameter.regularizer = L2Decay(0.0)

    decays = getattr(built, "_coeff", 0.0) or built.regularization is not None
    faults = [("learning-rate", "the learning rate is 1 % higher", faster)]
    if decays and not any(settings for settings, _ in parameter_groups(built)):
        faults.append(("weight-decay", "there is no weight decay", undecayed))
    for code, what, change in faults:
        yield Fault(code=code, piece=OPTIMIZER, port_path="", what=what, plant=_changed_once_built(change))


def _faster(schedule: Schedule) -> None:
    schedule.base_lr *= 1.01
    schedule.last_lr *= 1.01


def _changed_once_built(change: Callable[[object], object]) -> Callable[[Builder], Builder]:
    """Return what has the optimizers or schedules of a builder changed once they are built."""

    def plant(builder: Builder) -> Builder:
        @wraps(builder)
        def wrapped(*args: object, **kwargs: object) -> object:
            schedule = builder(*args, **kwargs)
            change(schedule)
            return schedule

        return wrapped

    return plant


MOST = 24
"""Faults that are planted unless more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What became of one planted fault.

    Attributes:
        code: its slug.
        piece: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"schedule"``.
        port_path: the layer it was planted into.
        what: what was changed.
        caught: a stage failed.
        stages: the stages that failed.
        located: the layer that was named is the one; None for other pieces.
    """

    code: str
    piece: str
    port_path: str
    what: str
    caught: bool
    stages: tuple[str, ...]
    located: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How well a comparison sees.

    Attributes:
        report: of the port as it is.
        planted: every fault that was planted; empty where the port itself does not pass.
        possible: how many faults could be planted in all.
    """

    report: AlignmentReport
    planted: tuple[Planted, ...]
    possible: int

    @property
    def exit_code(self) -> ExitCode:
        """The report's, and FAILED where nothing that was planted is caught."""
        if self.report.exit_code is not ExitCode.PASSED or not self.planted:
            return self.report.exit_code if not self.report.passed else ExitCode.NOTHING_CHECKED
        return ExitCode.PASSED if any(one.caught for one in self.planted) else ExitCode.FAILED

    def to_document(self) -> dict[str, Json]:
        """Return it as values that JSON can hold, without the report's layers."""
        return {
            "passed": self.report.passed,
            "stages": {name: outcome.value for name, outcome in self.report.stages.items()},
            "possible": self.possible,
            "caught": sum(one.caught for one in self.planted),
            "planted": [asdict(one) for one in self.planted],
        }

    def __str__(self) -> str:
        """Return the verdict, a line per kind of fault, and what was not caught, in the reader's language."""
        return say(self.text)

    @property
    def text(self) -> str:
        """The same lines in English, as they are stored."""
        lines = [self.report.headline]
        if not self.report.passed:
            return "\n".join([*lines, "the port itself does not pass: nothing was planted"])
        caught = sum(one.caught for one in self.planted)
        lines.append(f"{caught} of {len(self.planted)} planted faults would be caught ({self.possible} are possible)")
        by_code: dict[str, list[Planted]] = defaultdict(list)
        for one in self.planted:
            by_code[one.code].append(one)
        for code, ones in by_code.items():
            seen = sum(one.caught for one in ones)
            stages = ", ".join(dict.fromkeys(stage for one in ones for stage in one.stages))
            lines.append(f"  {seen:>3} of {len(ones):<3} {code}" + (f": {stages}" if stages else ""))
        lines += (
            f"not caught: {one.port_path or one.piece}: {one.what} ({one.code})"
            for one in self.planted
            if not one.caught
        )
        return "\n".join(lines)


def certify(
    reference: Model,
    port: Model,
    inputs: Mapping[str, Nested],
    *,
    most: int = MOST,
    tell: Callable[[int, int], object] = lambda *_: None,
    **options: Setting,
) -> Certificate:
    """Plant faults into copies of the port, one at a time, and see which of them `tipchain.align` catches.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``; neither is changed.
        inputs: as for `tipchain.align`.
        most: how many faults are planted at most: of each kind in turn, spread over the layers.
        tell: is told the number of each fault before it is planted, and how many there are.
        options: what else `tipchain.align` is given.

    Returns:
        The certificate; a port that does not pass by itself gets none.
    """
    report = align(reference, port, inputs, **{**options, "causes": False})
    if not report.passed:
        return Certificate(report=report, planted=(), possible=0)
    faults = faults_of(
        port,
        loss=options.get("loss") is not None,
        optimizer=_built(reference, port, options),
        schedule=(options.get("schedulers") or (None, None))[1] is not None,
    )
    planted: list[Planted] = []
    chosen = choose(faults, most)
    for number, fault in enumerate(chosen, 1):
        if interrupted.is_set():
            break
        tell(number, len(chosen))
        done = _plant(reference, port, inputs, options, fault)
        if not interrupted.is_set():  # else it was not looked at to its end
            planted.append(done)
    return Certificate(report=report, planted=tuple(planted), possible=len(faults))


def _built(reference: object, port: object, options: Options) -> object:
    """Return the port's optimizer over a copy, to see what it has; None without one."""
    if options.get("optimizers") is None:
        return None
    sides = Sides(TorchSide(), PaddleSide())
    models = sides.reference.copied(reference, double=False), sides.port.copied(port, double=False)
    return build_both(sides, options["optimizers"], models, options.get("schedulers"))[1]


def _plant(reference: Model, port: object, inputs: Mapping[str, Nested], options: Options, fault: Fault) -> Planted:
    changed = {**options, "causes": False}
    model = port
    pairs = {LOSS: "loss", OPTIMIZER: "optimizers", SCHEDULE: "schedulers"}
    if fault.piece in pairs:
        ours, theirs = options[pairs[fault.piece]]
        changed[pairs[fault.piece]] = (ours, fault.plant(theirs))
    else:
        model = copy.deepcopy(port)
        name_alike(port, model)
        fault.plant(model)
    report = align(reference, model, inputs, **changed)
    stages = tuple(name for name, outcome in report.stages.items() if outcome in BAD)
    first = report.first_divergence
    located = None if fault.piece in pairs else first is not None and _names(first.port_path, fault.port_path)
    return Planted(
        code=fault.code,
        piece=fault.piece,
        port_path=fault.port_path,
        what=fault.what,
        caught=bool(stages),
        stages=stages,
        located=located,
    )


def _names(found: str, planted: str) -> bool:
    """Tell whether the layer that was named is the one, or the code around it."""
    return found == planted or f"{planted}.".startswith(f"{found}.") or not found
