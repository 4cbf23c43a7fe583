"""The request of an alignment: the arguments of `tipchain.align`, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tipchain.core.blame import one_line
from tipchain.core.progress import Pace
from tipchain.errors import UsageError
from tipchain.explain.causes.optimizer_builders import TrainingPair, build_both, build_torch_schedule
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.locate import Locator
from tipchain.explain.locate.other_runs import Called, Refusal, call_seeded, is_fault, raising
from tipchain.explain.locate.rerun import buffers_of, changed_buffers
from tipchain.explain.locate.runs import ARGS, LABELS, ModelInputs
from tipchain.explain.locate.trace import Store, take_out
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.framework_types import Array, Function, Loader, Loss, Model, Nested, Optimizer, Options, Schedule, Tensor
from tipchain.frameworks.base import map_nested
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.dumps import read_npz
from tipchain.weights.files import array_of

FRAMEWORKS = "torch", "paddle"
WHOSE = "the reference's", "the port's"


def check_models(reference: object, port: object) -> None:
    """Refuse models that are swapped, or none.

    Raises:
        UsageError: the reference is no ``torch.nn.Module``, or the port no ``paddle.nn.Layer``.
    """
    import paddle
    import torch

    kinds: tuple[tuple[type, str], ...] = ((torch.nn.Module, "torch.nn.Module"), (paddle.nn.Layer, "paddle.nn.Layer"))
    if isinstance(reference, kinds[1][0]) and isinstance(port, kinds[0][0]):
        raise UsageError(
            "the models are swapped: the reference is a paddle.nn.Layer, the port a torch.nn.Module\n"
            "  expected: the torch module first, then the Paddle layer"
        )
    for where, model, (kind, name) in zip(("the reference", "the port"), (reference, port), kinds, strict=True):
        if not isinstance(model, kind):
            raise UsageError(f"{where} is a {type(model).__name__}\n  expected: a {name}")


def as_inputs(inputs: object) -> Mapping[str, object]:
    """Return both models' inputs by name: arrays, whatever they were given as.

    Args:
        inputs: a mapping (see `tipchain.align`), a tuple or list of forward's arguments, one of them alone, or the path of
            a ``.npz`` file. Tensors of either framework become arrays.
    """
    if isinstance(inputs, str | Path):
        return read_arrays(Path(inputs))

    def as_array(one: Tensor) -> object:
        if framework_of(one) and hasattr(one, "numpy"):
            return array_of(one) if framework_of(one) == "torch" else np.array(one.numpy())
        return one

    given = map_nested(as_array, inputs)
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if isinstance(given, tuple | list | np.ndarray | np.generic):
        return {ARGS: tuple(given) if isinstance(given, tuple | list) else given}
    raise UsageError(
        f"inputs is a {type(inputs).__name__}\n"
        "  expected: an array, a tensor, a tuple or dict of them, or the path of a .npz file"
    )


def read_arrays(path: Path) -> dict[str, object]:
    """Return inputs from a ``.npz`` file: arrays by the name of forward's argument, several by ``args_0``, ``labels_0``, ….

    Raises:
        RecordError: it cannot be read, or holds anything but arrays.
        UsageError: one thing stands in it in several forms.
    """
    found: dict[str, object] = dict(read_npz(path))
    for name in (ARGS, LABELS):
        # Put ``name_0``, ``name_1`` in place as a tuple, and ``name.key`` as a mapping.
        ends = {one.removeprefix(f"{name}_"): one for one in found if one.startswith(f"{name}_")}
        numbered = {int(end): one for end, one in ends.items() if end.isdecimal()}
        named = [one for one in found if name == LABELS and one.startswith(f"{name}.")]
        if bool(numbered) + bool(named) + (name in found) > 1:
            raise UsageError(
                f"{path}: holds {name} in several forms\n  expected: {name}, or {name}_0, {name}_1, …"
                + (f", or {name}.KEY" if name == LABELS else "")
            )
        if numbered:
            found[name] = tuple(found.pop(numbered[number]) for number in sorted(numbered))
        elif named:
            found[name] = {one.removeprefix(f"{name}."): found.pop(one) for one in named}
    return found


def check_pair(name: str, given: object, *, lacking: bool = False, called: bool = True) -> None:
    """Refuse all but a pair, torch's first, of callables unless they are not ``called``.

    Args:
        name: the argument.
        given: what it was given; None is nothing.
        lacking: whether one of the two may be None.
        called: whether both are functions.

    Raises:
        UsageError: one thing in place of two, something that cannot be called, or a pair that is swapped.
    """
    if given is None:
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        what = f"{len(given)} things" if isinstance(given, tuple | list) else f"one {type(given).__name__}"
        raise UsageError(f"{name} is {what}\n  expected: a pair, {name}=(torch's, Paddle's)")
    if not called:
        return
    for whose, one in zip(WHOSE, given, strict=True):
        if one is None and lacking and any(other is not None for other in given):
            continue
        if not callable(one):
            raise UsageError(
                f"{name}: {whose} is a {type(one).__name__}\n  expected: a callable{' or None' if lacking else ''}"
            )
    for whose, one, other in zip(WHOSE, given, reversed(FRAMEWORKS), strict=True):
        if framework_of(one) == other:
            raise UsageError(
                f"{name}: {whose} is {other}'s: is the pair swapped?\n  expected: {name}=(torch's, Paddle's)"
            )


def required(function: Function) -> list[str]:
    """Return the names of a function's positional parameters without a default."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in plain and one.default is one.empty]


def as_callable(made: object, call: str, given: str) -> Function:
    """Return what a call of the user's function gave, which is called with ``given``.

    Raises:
        UsageError: it cannot be called.
    """
    if not callable(made):
        raise UsageError(f"`{call}` returned a {type(made).__name__}, expected a callable of `{given}`")
    return made


def framework_of(value: object) -> str:
    """Return of which framework an object, a class or a function is, or ""."""
    inner = getattr(value, "func", value)
    kinds = inner.__mro__ if isinstance(inner, type) else type(inner).__mro__
    names = [getattr(inner, "__module__", None), *(one.__module__ for one in kinds)]
    roots = [str(one).partition(".")[0] for one in names]
    return next((one for one in roots if one in FRAMEWORKS), "")


DataPair = tuple[Loader, Loader]
Built = tuple[Optimizer, Schedule]
Step = Function
Predict = Function
DATA_STAGES = ("data", "train_data")
"""The stages that data may be given for; a pair alone is that of ``data``."""
METRIC_STAGE, PREDICT, STEP = "metric", "predict", "step"
MODES = ("eval", "train")
RANDOM = "random, not comparable: the models' random numbers cannot be made the same"
"""Message of results that depend on random numbers."""
STAGES = tuple(
    """
        data train_data preflight forward metric predict loss backward optimizer schedule train step
    """.split()
)
"""The stages in the order in which a report has them."""
RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "loss": ("forward",),
    "metric": ("forward",),
    "backward": ("forward", "loss"),
    "train": ("forward", "loss", "backward"),
}
"""The stages that are compared with a stage, for it says nothing where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest(TrainingPair):
    """The arguments of `tipchain.align`; ``only`` are the stages that were asked for, ``raw`` the inputs as they were given.

    Raises:
        UsageError: an argument that is wrong, or lacks another one.
    """

    inputs: ModelInputs
    loss: tuple[Loss, Loss] | None
    step: tuple[Step, Step] | None
    training: bool
    modes: tuple[str, ...]
    only: Sequence[str]
    others: tuple[ModelInputs, ...]
    causes: bool
    equal_nan: bool
    data: Mapping[str, DataPair]
    samples: Sequence[Nested] | None
    metrics: DataPair | None
    predict: tuple[Predict, Predict] | None
    raw: object

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise UsageError(f"iterations is {self.iterations}, expected at least 1")
        for name, words, known in (("stages", self.only, STAGES), ("modes", self.modes, MODES)):
            if wrong := [word for word in words if word not in known]:
                raise UsageError(f"{name} has {wrong[0]!r}\n  expected: {', '.join(known)}")
        for name in ("loss", "optimizers", STEP, PREDICT):
            check_pair(name, getattr(self, name))
        check_pair("schedulers", self.schedulers, lacking=True)
        check_pair("clip", self.clips if any(self.clips) else None, lacking=True)
        for name, value in ((STEP, self.step), ("clip", any(self.clips)), ("schedulers", self.schedulers)):
            if value and self.optimizers is None:
                raise UsageError(
                    f"{name} was given without optimizers\n  expected: optimizers=(torch's builder, Paddle's)"
                )
        if wrong := [name for name in self.data if name not in DATA_STAGES]:
            raise UsageError(f"data: {wrong[0]!r} is no stage\n  expected: {' or '.join(map(repr, DATA_STAGES))}")
        check_pair("metrics", self.metrics, called=False)
        for sources in self.data.values():
            check_pair("data", sources, called=False)
        if self.samples is not None and not self.data and self.predict is None:
            raise UsageError(
                "samples were given without data\n  expected: data=(reference_transform, port_transform), or predict="
            )
        if self.samples is not None and len(self.samples) == 0:
            raise UsageError("samples are empty: nothing to give the transforms")
        if len(chosen := self.inputs.outputs) != 2:
            raise UsageError(
                f"outputs is a tuple of {len(chosen)}\n  expected: (of the reference, of the port); a list takes several"
            )
        for one in (part for each in chosen for part in (each if isinstance(each, list) else [each])):
            if not (one is None or isinstance(one, str | int) or callable(one)) or isinstance(one, bool):
                kind = type(one).__name__
                raise UsageError(f"outputs: found a {kind}\n  expected: a name, an index or a callable")

    @property
    def wanted(self) -> set[str]:
        """The stages that are compared: those that were asked for, and what they rest on."""
        return {*(self.only or STAGES)}.union(*(RESTS_ON.get(one, ()) for one in self.only))

    @property
    def raws(self) -> Sequence[Nested]:
        """The raw samples, or the inputs where there are none."""
        if self.samples is not None:
            return self.samples
        return [dict(self.raw) if isinstance(self.raw, Mapping) else self.raw]

    @property
    def pieces(self) -> dict[str, Nested]:
        """The models' surroundings, by their names in causes."""
        given: Options = {
            "loss": self.loss,
            "optimizer": self.optimizers,
            "scheduler": self.schedulers,
            STEP: self.step,
            "metric": self.metrics,
            PREDICT: self.predict,
            **self.data,
        }
        return {name: tuple(pair) for name, pair in given.items() if pair is not None}

    @property
    def stages(self) -> list[str]:
        """The stages beside the layers' whose needs are given, in their order of running."""
        trained = self.optimizers is not None
        given = {
            "preflight": True,
            "loss": self.loss is not None,
            METRIC_STAGE: self.metrics is not None,
            PREDICT: self.predict is not None,
            "optimizer": trained,
            "schedule": trained and self.schedulers is not None,
            "train": trained and self.loss is not None,
            STEP: trained and self.step is not None,
        }
        return [stage for stage, there in given.items() if there and stage in {"preflight"} | self.wanted]

    @property
    def call(self) -> str:
        """The call as it was made; objects stand by their argument's name."""
        chosen = any(one is not None for one in self.inputs.outputs)
        given = {"clip": any(self.clips), "samples": self.samples is not None, "outputs": chosen}
        names = "loss optimizers schedulers clip step data samples metrics predict names outputs equal_nan".split()
        told = [f"{name}={name}" for name in names if (given[name] if name in given else getattr(self, name))]
        told += [f"{name}={getattr(self, name)}" for name in ("iterations", "training", "seed")]
        return f"tipchain.align(reference, port, inputs, {', '.join(told)})"

    def locator(self, store: Store, pace: Pace, **how: bool) -> Locator:
        """Return what runs both models and compares their layers."""
        return Locator(self.sides, store, seed=self.seed, pace=pace, equal_nan=self.equal_nan, **how)

    def call_both(
        self, inputs: ModelInputs, *, training: bool, double: bool, before: ModelInputs | None = None
    ) -> Called | Refusal:
        """Call copies of both models in a mode, with equal random numbers, without gradients; with other inputs ``before`` that."""
        outputs: list[list[Array]] = []
        drawn: list[Draws] = []
        moved = False
        for number, (side, model) in enumerate(zip(self.sides, self.models, strict=True)):
            made = model
            draws = Draws(self.seed, follows=drawn[0] if drawn else None)
            drawn.append(draws)
            try:
                made = side.copied(model, double=double, training=training)
                held = buffers_of(side, made)
                output = call_seeded(side, made, inputs, draws, seed=self.seed, double=double, before=before)
                _, tensors, _ = take_out(output, side.is_tensor)
            except Exception as error:  # noqa: BLE001  (a model may refuse the mode or the inputs: labels it lacks, a batch of one)
                told, fault = one_line(error), bool(number) and is_fault(error, side, made)
                path = raising(error, side, made) if fault else ""
                return Refusal(
                    by_port=bool(number), told=told, fault=fault, path=path, made=outputs[0] if number else ()
                )
            outputs.append([side.array(one) for one in tensors])
            moved = moved or bool(changed_buffers(held, buffers_of(side, made)))
        ours, theirs = outputs
        apart = None
        if drawn[1].in_order() and ours and [one.shape for one in ours] == [one.shape for one in theirs]:
            apart = max(relative(one, other) for one, other in zip(ours, theirs, strict=True))
        return Called(draws=(drawn[0], drawn[1]), made=(ours, theirs), apart=apart, changed=moved)

    def fault(self, reference_path: str, port_path: str, reason: str, own: float | None = None) -> LayerVerdict:
        """Return the verdict on a layer that is at fault in forward."""
        places = zip(self.sides, self.models, (reference_path, port_path), strict=True)
        reference_type, port_type = (type(dict(side.layers(model)).get(path)).__name__ for side, model, path in places)
        return LayerVerdict(
            reference_path=reference_path,
            port_path=port_path,
            reference_type=reference_type,
            port_type=port_type,
            direction="forward",
            own=own,
            closeness=Closeness.DIFFERS,
            reason=reason,
        )

    def build(self, models: tuple[Model, Model]) -> tuple[Built, Built]:
        """Return each side's optimizer and schedule (or None) over copies of the models."""
        ours, theirs, schedule, _ = build_both(self, models)
        if self.schedulers is None:
            return (ours, None), (theirs, None)
        return (ours, build_torch_schedule(self.schedulers[0], ours)), (theirs, schedule)
