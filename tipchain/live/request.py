"""The request of an alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tipchain.core.blame import one_line
from tipchain.core.progress import Pace
from tipchain.errors import UsageError
from tipchain.explain.causes.optimizer_builders import TrainingPair, build_both, build_torch_schedule
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.locate import Locator
from tipchain.explain.locate.other_runs import Called, Refusal, call_seeded, is_fault, raising
from tipchain.explain.locate.rerun import buffers_of, changed_buffers
from tipchain.explain.locate.runs import ModelInputs
from tipchain.explain.locate.trace import Store, take_out
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.framework_types import Array, Function, Loader, Loss, Model, Nested, Optimizer, Options, Schedule
from tipchain.frameworks.randomness import Draws
from tipchain.live.arguments import check_pair

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
