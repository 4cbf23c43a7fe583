"""The request of an alignment."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.explain.causes.optimizer_builders import Clips, build_both, build_torch_schedule
from tipchain.explain.locate.runs import ModelInputs
from tipchain.explain.preflight.optimizers import level_epsilons
from tipchain.framework_types import Function, Loss, Model, Nested, Options
from tipchain.frameworks.live_models import Sides, name_alike
from tipchain.live.predictions import PREDICT, Fed
from tipchain.live.training import STEP, Built, Step

Builders = tuple[Function, Function]
MODES = ("eval", "train")
RANDOM = "random, not comparable: the models' random numbers cannot be made the same"
"""Message of results that depend on random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """The arguments of `tipchain.align`, checked; ``wanted`` are the stages, ``raw`` the inputs as they were given."""

    sides: Sides
    models: tuple[Model, Model]
    inputs: ModelInputs
    loss: tuple[Loss, Loss] | None
    optimizers: Builders | None
    schedulers: tuple[Function | None, Function | None] | None
    clips: Clips
    step: tuple[Step, Step] | None
    iterations: int
    training: bool
    modes: tuple[str, ...]
    wanted: frozenset[str]
    others: tuple[ModelInputs, ...]
    names: dict[str, str]
    seed: int
    causes: bool
    equal_nan: bool
    fed: Fed
    raw: object

    @property
    def pieces(self) -> dict[str, Nested]:
        """The models' surroundings, by their names in causes."""
        given: Options = {
            "loss": self.loss,
            "optimizer": self.optimizers,
            "scheduler": self.schedulers,
            STEP: self.step,
            "metric": self.fed.metrics,
            PREDICT: self.fed.predict,
            **self.fed.data,
        }
        return {name: tuple(pair) for name, pair in given.items() if pair is not None}

    @property
    def stages(self) -> list[str]:
        """The stages beside the layers' whose needs are given, in their order of running."""
        trained = self.optimizers is not None
        given = {
            "preflight": True,
            "loss": self.loss is not None,
            "metric": self.fed.metrics is not None,
            PREDICT: self.fed.predict is not None,
            "optimizer": trained,
            "schedule": trained and self.schedulers is not None,
            "train": trained and self.loss is not None,
            STEP: trained and self.step is not None,
        }
        return [stage for stage, there in given.items() if there and stage in {"preflight"} | self.wanted]

    @property
    def call(self) -> str:
        """The call as it was made; objects stand by their argument's name."""
        objects = {
            "loss": self.loss,
            "optimizers": self.optimizers,
            "schedulers": self.schedulers,
            "clip": any(self.clips),
            "step": self.step,
            "data": self.fed.data,
            "samples": self.fed.samples is not None,
            "metrics": self.fed.metrics,
            "predict": self.fed.predict,
            "names": self.names,
            "outputs": any(one is not None for one in self.inputs.outputs),
            "equal_nan": self.equal_nan,
        }
        told = [f"{name}={name}" for name, value in objects.items() if value]
        told += [f"{name}={getattr(self, name)}" for name in ("iterations", "training", "seed")]
        return f"tipchain.align(reference, port, inputs, {', '.join(told)})"

    def copied(self, number: int, *, training: bool | None, double: bool = True) -> Model:
        """Return a fresh copy of a model; the rules of optimizers may read the names of parameters."""
        made = self.sides[number].copied(self.models[number], double=double, training=training)
        if number:
            name_alike(self.models[1], made)
        return made

    def build(self, models: tuple[Model, Model]) -> tuple[Built, Built]:
        """Return each side's optimizer and schedule (or None) over copies of the models."""
        if self.optimizers is None:
            raise ValueError("no optimizers were given")
        ours, theirs, schedule = build_both(self.sides, self.optimizers, models, self.schedulers)
        level_epsilons(ours, theirs)
        if schedule is not None:
            theirs.set_lr_scheduler(schedule)
        if self.schedulers is None:
            return (ours, None), (theirs, None)
        return (ours, build_torch_schedule(self.schedulers[0], ours)), (theirs, schedule)
