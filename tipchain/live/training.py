"""A few training steps of both models in float64, and how far rounding alone would take them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tipchain.core.machine import collect, keep_memory
from tipchain.explain.causes.optimizer_builders import Clips, any_precision, clipping
from tipchain.explain.causes.schedules import stepper
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.runs import ModelInputs, Precise, bind, call_model, labels_of
from tipchain.explain.locate.sides import LiveSide, Sides
from tipchain.framework_types import Array, Loss, Model, Nested, Optimizer, Schedule
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import CONSTANT, NOISE, SAME_DOUBLE, TINY, UNIT
from tipchain.outcome import Outcome

Built = tuple[Optimizer, Schedule]
FACTOR = 30.0
"""How many times as far as the reference from itself, moved a little, the port may be: two equal noises of a single number are further
apart once in 47 times (2/pi arctan 1/30), those of whole tensors never."""
MOST_SHAKE = 1e-5
"""How much they are moved at most: where a share this small moves the outputs visibly, nothing can be told of rounding."""
CHAOS = 0.05
"""Where the moved reference is this far from itself, relative, a comparison says nothing any more: `FACTOR` times it is more than all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One model's training.

    Attributes:
        losses: one per iteration, before its update.
        rates: the learning rates that the updates used.
        state: parameters and BatchNorm's statistics afterwards, by the reference's path and torch's name in the layer: the
            model's own memory, which nothing trains any more.
        updates: how far each of them was moved, RMS; nothing of a training of which that was not asked.
        drawn: random numbers, one per iteration.
        single: the loss runs in float32 only.
    """

    losses: list[float]
    rates: list[float]
    state: dict[str, Array]
    updates: dict[str, float]
    drawn: list[Draws]
    single: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Both models' training, judged.

    Attributes:
        outcome: of the comparison.
        reason: one sentence.
        port_path: the layer whose parameter or statistic is the first that is off, if it is known.
        curves: losses of both sides, and how far apart they are allowed to be.
    """

    outcome: Outcome
    reason: str
    port_path: str | None
    curves: dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What both models are trained with.

    Attributes:
        sides: torch's and Paddle's.
        copied: returns a fresh float64 copy of the reference (0) or of the port (1).
        inputs: what the models are called with.
        losses: of both; None where the user's own loops compute them.
        build: returns each side's optimizer and schedule (or None), given both models.
        pairs: the layers with parameters.
        iterations: updates.
        seed: of random numbers.
        draws: those of the port's run before, which tell what belongs together.
        clips: what each side's loop does to the gradients before an update.
    """

    sides: Sides
    copied: Callable[[int], Model]
    inputs: ModelInputs
    losses: tuple[Loss, Loss] | None
    build: Callable[[tuple[Model, Model]], tuple[Built, Built]]
    pairs: Sequence[LayerPair]
    iterations: int
    seed: int
    draws: Draws
    clips: Clips = (None, None)

    def copies(self) -> tuple[object, object]:
        """Return fresh float64 copies of both models."""
        return self.copied(0), self.copied(1)


def train_both(recipe: Recipe, *, same: bool, excused: bool = False, equal_nan: bool = False) -> Training:
    """Train both models on equal batches, and the reference once more from parameters a little off.

    Args:
        recipe: models, data, optimizers.
        same: layers and losses are known to agree. What the first losses then are apart, by constants that Paddle keeps
            in float32 in its layers, is rounding, and the moved reference starts as far off.
        excused: the losses' values are known to differ for a reason, their gradients to agree: only what is trained is judged.
        equal_nan: losses that are NaN on both sides are no difference; nothing can be compared from there on.
    """
    with recipe.sides.reference.precision(double=True), recipe.sides.port.precision(double=True):
        models = recipe.copies()
        size = sum(recipe.sides.reference.view(one).nbytes for _, one in recipe.sides.reference.parameters(models[0]))
        built: list[Nested] = list(recipe.build(models))
        reference = _train(recipe, 0, models[0], built[0], watched=True)
        built[0] = None
        collect(size)  # what an optimizer keeps of each parameter
        port = _train(recipe, 1, models[1], built[1], follows=reference.drawn)
        built[1] = None
        collect(size)
        other, share = recipe.copied(0), NOISE
        if same:
            shake(recipe.sides.reference, other, NOISE, recipe.seed)
            first = abs(_first_loss(recipe, other) - reference.losses[0])
            wanted = abs(port.losses[0] - reference.losses[0])
            share = min(NOISE * max(wanted / first, 1.0), MOST_SHAKE) if first else NOISE
            del other
            collect(size)
            other = recipe.copied(0)
        shake(recipe.sides.reference, other, share, recipe.seed)
        moved = _train(recipe, 0, other, recipe.build((other, models[1]))[0], rate=1 + CONSTANT)
    collect(size)
    allowed = [FACTOR * abs(one - other) for one, other in zip(reference.losses, moved.losses, strict=True)]
    least = FACTOR * UNIT if reference.single or port.single else SAME_DOUBLE
    largest = np.maximum.accumulate(np.asarray(allowed) + [least * abs(one) for one in reference.losses])
    curves = {
        "train/reference": reference.losses,
        "train/port": port.losses,
        "train/allowed": largest.tolist(),
        "lr/reference": reference.rates,
        "lr/port": port.rates,
    }
    apart = np.abs(np.asarray(reference.losses) - np.asarray(port.losses))
    outside = np.flatnonzero(~(apart <= largest) & (not excused))
    chaotic = np.flatnonzero(largest > CHAOS * np.abs(reference.losses))
    nan = np.flatnonzero(np.isnan(reference.losses) & np.isnan(port.losses))
    if nan.size and outside.size and nan[0] == outside[0]:
        reason = f"proves nothing: the losses are NaN on both sides from step {int(nan[0])} on"
        outcome = Outcome.SKIP if equal_nan else Outcome.FAIL
        return Training(outcome=outcome, reason=reason, port_path=None, curves=curves)
    if outside.size and (not chaotic.size or outside[0] < chaotic[0]):
        step = int(outside[0])
        reason = (
            f"the losses part at step {step}: expected {reference.losses[step]:.9g}, actual {port.losses[step]:.9g}, "
            f"allowed {largest[step]:.3g} apart"
        )
        return Training(outcome=Outcome.FAIL, reason=reason, port_path=None, curves=curves)
    if chaotic.size:
        reason = f"rounding alone moves the loss by more than {CHAOS:.0%} from step {int(chaotic[0])} on"
        return Training(outcome=Outcome.SKIP, reason=f"proves nothing: {reason}", port_path=None, curves=curves)
    return _judge_state(recipe, reference, moved, port, curves)


def _judge_state(
    recipe: Recipe, reference: Trained, moved: Trained, port: Trained, curves: dict[str, list[float]]
) -> Training:
    updates = reference.updates
    scale = max(updates.values(), default=0.0)
    paths = {pair.reference: pair.port for pair in recipe.pairs}
    worst: tuple[float, str] | None = None
    compared = 0
    for name, after in reference.state.items():
        other = port.state.get(name)
        if other is None or other.shape != after.shape:
            continue
        compared += 1
        allowed = FACTOR * (distance(after, moved.state[name]) + CONSTANT * updates[name]) + SAME_DOUBLE * (
            rms(after) + scale
        )
        apart = distance(after, other)
        if not apart <= allowed and (worst is None or apart / max(allowed, TINY) > worst[0]):
            worst = apart / max(allowed, TINY), name
    if worst is not None:
        path, _, leaf = worst[1].rpartition(":")
        reason = f"after {recipe.iterations} updates {leaf} of {paths[path] or 'the model'} is {worst[0]:.3g} times as far off as allowed"
        return Training(outcome=Outcome.FAIL, reason=reason, port_path=paths[path], curves=curves)
    if not compared or not scale:
        reason = "proves nothing: no parameter moved" if compared else "no parameter could be compared"
        return Training(outcome=Outcome.ERROR, reason=reason, port_path=None, curves=curves)
    reason = f"{recipe.iterations} losses and {compared} tensors after them are as close as rounding allows"
    return Training(outcome=Outcome.PASS, reason=reason, port_path=None, curves=curves)


def _train(
    recipe: Recipe,
    number: int,
    model: object,
    built: Built,
    rate: float = 1.0,
    follows: Sequence[Draws | None] = (),
    *,
    watched: bool = False,
) -> Trained:
    """Train one side's model with its optimizer and schedule; torch's learning rates times ``rate``.

    ``watched``: tell how far everything was moved.
    """
    side, loss, (optimizer, scheduler) = recipe.sides[number], _loss(recipe, number), built
    side.framework.watch_variances(model)
    start = {name: _held(one) for name, one in state_of(recipe, number, model, shared=True).items()} if watched else {}
    losses, rates, drawn = [], [], []
    advance, clip = stepper(scheduler), clipping(recipe.clips[number], model, optimizer)
    inputs = bind(model, recipe.inputs)
    with keep_memory():
        for step in range(recipe.iterations):
            side.seed(recipe.seed + step)
            drawn.append(recipe.draws.of_step(step, follows[step] if follows else None))
            with side.randomness(drawn[-1]), side.recording(gradient=True):
                value = loss(*_outputs_and_labels(side, model, inputs))
                losses.append(float(side.array(value).reshape(())))
                rates.append(side.learning_rate(optimizer))
                side.backward(value)
            if clip is not None:
                clip()
            paddles = any_precision(side.framework.paddle) if number else nullcontext()  # type: ignore[union-attr]
            with _rates_times(optimizer, rate), paddles:
                optimizer.step()
            side.clear_gradients(model)
            advance(step + 1)
    state = state_of(recipe, number, model, shared=True)
    return Trained(
        losses=losses,
        rates=rates,
        state=state,
        updates={name: distance(one, state[name]) for name, one in start.items()},
        drawn=drawn,
        single=loss.single,
    )


def _held(array: Array) -> Array:
    """Return a copy of an array, in float32 if that has all its values: those of a model in float32 it has."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32) if array.dtype == np.float64 else array.copy()
    return narrow if np.array_equal(narrow, array, equal_nan=array.dtype.kind in "fc") else array.copy()


def _loss(recipe: Recipe, number: int) -> Precise:
    if recipe.losses is None:
        raise ValueError("no losses were given")
    return Precise(recipe.sides[number], recipe.losses[number])


def _first_loss(recipe: Recipe, model: object) -> float:
    """Return the reference's loss before any update."""
    side = recipe.sides.reference
    side.seed(recipe.seed)
    with side.randomness(recipe.draws.of_step(0)), side.recording(gradient=False):
        loss = _loss(recipe, 0)(*_outputs_and_labels(side, model, bind(model, recipe.inputs)))
        return float(side.array(loss).reshape(()))


@contextmanager
def _rates_times(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Multiply the learning rates of a torch optimizer for a while; 1 leaves any optimizer alone."""
    if factor == 1:
        yield
        return
    kept = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    yield
    for group, rate in zip(optimizer.param_groups, kept, strict=True):
        group["lr"] = rate


def _outputs_and_labels(side: LiveSide, model: object, inputs: ModelInputs) -> tuple[object, object]:
    return call_model(side, model, inputs, double=True), labels_of(side, inputs, double=True)


def shake(side: LiveSide, model: object, share: float, seed: int) -> None:
    """Move each value of the parameters up or down by a share of itself."""
    generator = np.random.default_rng([seed, 2])
    for _, parameter in side.parameters(model):
        values = side.array(parameter)
        coins = generator.choice((-1.0, 1.0), values.shape)
        side.assign(parameter, values * (1 + share * coins))


def state_of(recipe: Recipe, number: int, model: object, *, shared: bool = False) -> dict[str, Array]:
    """Return the tensors that the paired layers hold themselves, by the reference's path and torch's name.

    ``shared``: parameters may be the model's own memory.
    """
    side = recipe.sides[number]
    found: dict[str, Array] = {}
    buffers = dict(side.framework.buffers(model, {})) if number == 0 else {}
    seen: set[int] = set()
    layers = dict(side.layers(model))  # a name of Paddle's may have dots
    for pair in recipe.pairs:
        path = pair.port if number else pair.reference
        layer: Model = layers.get(path)
        if layer is None:  # one that stands at several paths comes once
            layer = reduce(getattr, path.split("."), model)
        if id(layer) in seen:  # a layer that stands at several paths
            continue
        seen.add(id(layer))
        held: Mapping[str, Array] = dict(side.framework.parameters(layer, {}, shared=shared))
        if number:
            held = {**held, **dict(side.framework.buffers(layer, {}))}
        else:
            start = f"{path}." if path else ""
            held = {**held, **{name[len(start) :]: array for name, array in buffers.items() if name.startswith(start)}}
        found.update((f"{pair.reference}:{name}", array) for name, array in held.items() if _is_own(name, layer, side))
    return found


def _is_own(name: str, layer: object, side: LiveSide) -> bool:
    first = name.partition(".")[0]
    return "." not in name or first not in dict(side.children(layer))
