"""What running the models leaves: buffers after one call, and parameters after a few steps of training in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce, wraps

import numpy as np

from tipchain.core.machine import collect, keep_memory
from tipchain.errors import Outcome, WeightsError
from tipchain.explain.causes.optimizer_builders import Clips, clipping
from tipchain.explain.causes.schedules import stepper
from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import distance, relative, rms
from tipchain.explain.locate.gradients import Laid, as_reference, laid_otherwise
from tipchain.explain.locate.matching import CallPair, LayerPair
from tipchain.explain.locate.runs import ModelInputs, Precise, bind, buffers_of, call_model, labels_of
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.framework_types import Array, Loss, Model, Nested, Optimizer, Schedule
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import CONSTANT, NOISE, SAME_DOUBLE, TINY, UNIT
from tipchain.weights.matching import match_models

# A few training steps of both models in float64, and how far rounding alone would take them apart.


Built = tuple[Optimizer, Schedule]
FACTOR = 30.0
"""How many times as far as the reference from itself, moved a little, the port may be: two equal noises of a single number are further
apart once in 47 times (2/pi arctan 1/30), those of whole tensors never."""
MOST_SHAKE = 1e-5
"""How much they are moved at most: where a share this small moves the outputs visibly, nothing can be told of rounding."""
SHOWN = 4
"""Elements of a buffer that a message shows."""
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
    """Both models' training, judged."""

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
        laid: what the port's layers keep otherwise than the reference's, by the reference's path and the tensor's name.
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
    laid: Mapping[str, Mapping[str, Laid]] = field(default_factory=dict)

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
        parted = None if same or excused else _parted_at_once(recipe)
        if parted is not None:
            return parted
        model, port_model = models = recipe.copies()
        size = sum(recipe.sides.reference.view(one).nbytes for _, one in recipe.sides.reference.parameters(model))
        built: list[Nested] = list(recipe.build(models))
        reference = _train(recipe, 0, model, built.pop(0), watched=True)
        collect(size)  # what an optimizer keeps of each parameter
        port = _train(recipe, 1, port_model, built.pop(), follows=reference.drawn)
        collect(size)
        finite = int(np.argmin(np.isfinite(reference.losses))) if not np.isfinite(reference.losses).all() else 0
        if finite > 1:  # the update before the first loss that is none may leave none
            before = train_both(replace(recipe, iterations=finite - 1), same=same, excused=excused)
            reason = (
                f"the reference itself diverges at this learning rate, at step {finite}; before that {before.reason}"
            )
            return replace(before, reason=reason)
        plain = _without_noise(recipe, reference, port) if same and not excused else None
        if plain is not None:
            return plain
        other, share = recipe.copied(0), NOISE
        if same:
            shake(recipe.sides.reference, other, NOISE, recipe.seed)
            first, _, _ = _first_loss(recipe, 0, other)
            drift, wanted = abs(first - reference.losses[0]), abs(port.losses[0] - reference.losses[0])
            share = min(NOISE * max(wanted / drift, 1.0), MOST_SHAKE) if drift else NOISE
            del other
            collect(size)
            other = recipe.copied(0)
        shake(recipe.sides.reference, other, share, recipe.seed)
        raised = recipe.build((other, port_model))[0]
        multiply_rates(raised[0], 1 + CONSTANT)
        moved = _train(recipe, 0, other, raised)
    collect(size)
    allowed = [FACTOR * abs(one - other) for one, other in zip(reference.losses, moved.losses, strict=True)]
    least = FACTOR * UNIT if reference.single or port.single else SAME_DOUBLE
    largest = np.maximum.accumulate(np.asarray(allowed) + [least * abs(one) for one in reference.losses])
    curves = _curves(reference, port, largest)
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
        return _parted(step, reference.losses[step], port.losses[step], largest[step], curves)
    if chaotic.size:
        reason = f"rounding alone moves the loss by more than {CHAOS:.0%} from step {int(chaotic[0])} on"
        return Training(outcome=Outcome.SKIP, reason=f"proves nothing: {reason}", port_path=None, curves=curves)
    return _judge_state(recipe, reference, moved, port, curves)


def _without_noise(recipe: Recipe, reference: Trained, port: Trained) -> Training | None:
    """Return the PASS of trainings that agree in float64, so that nobody need know how far rounding takes them apart."""
    allowed = SAME_DOUBLE * np.abs(reference.losses)
    if not (np.abs(np.subtract(reference.losses, port.losses)) <= allowed).all():
        return None
    done = _judge_state(recipe, reference, reference, port, _curves(reference, port, allowed))
    return done if done.outcome is Outcome.PASS else None


def _curves(reference: Trained, port: Trained, allowed: Array) -> dict[str, list[float]]:
    """Return both losses and learning rates, step by step, and how far the losses may be apart."""
    return {
        "train/reference": reference.losses,
        "train/port": port.losses,
        "train/allowed": allowed.tolist(),
        "lr/reference": reference.rates,
        "lr/port": port.rates,
    }


def _parted_at_once(recipe: Recipe) -> Training | None:
    """Return the verdict where the losses part before any update, which no training changes; else None."""
    ours = recipe.copied(0)
    expected, drawn, single = _first_loss(recipe, 0, ours)
    shake(recipe.sides.reference, ours, NOISE, recipe.seed)
    moved, _, _ = _first_loss(recipe, 0, ours)
    del ours
    actual, _, single_too = _first_loss(recipe, 1, recipe.copied(1), drawn)
    least = FACTOR * UNIT if single or single_too else SAME_DOUBLE
    allowed = FACTOR * abs(expected - moved) + least * abs(expected)
    if abs(expected - actual) > allowed and allowed <= CHAOS * abs(expected):
        return _parted(0, expected, actual, allowed, {})
    return None


def _parted(step: int, expected: float, actual: float, allowed: float, curves: dict[str, list[float]]) -> Training:
    reason = (
        f"the losses part at step {step}: expected {expected:.9g}, actual {actual:.9g}, allowed {allowed:.3g} apart"
    )
    return Training(outcome=Outcome.FAIL, reason=reason, port_path=None, curves=curves)


def _judge_state(
    recipe: Recipe, reference: Trained, moved: Trained, port: Trained, curves: dict[str, list[float]]
) -> Training:
    updates = reference.updates
    scale = max(updates.values(), default=0.0)
    paths = {pair.reference: pair.port for pair in recipe.pairs}
    worst, worst_name, compared = 0.0, "", 0
    for name, after in reference.state.items():
        other = port.state.get(name)
        if other is None or other.shape != after.shape:
            continue
        compared += 1
        allowed = allowed_apart(after, distance(after, moved.state[name]), updates[name], scale)
        apart = distance(after, other)
        if not apart <= allowed and (not worst_name or apart / max(allowed, TINY) > worst):
            worst, worst_name = apart / max(allowed, TINY), name
    if worst_name:
        path, _, leaf = worst_name.rpartition(":")
        reason = f"after {recipe.iterations} updates {leaf} of {paths[path] or 'the model'} is {worst:.3g} times as far off as allowed"
        return Training(outcome=Outcome.FAIL, reason=reason, port_path=paths[path], curves=curves)
    if not compared or not scale:
        reason = "proves nothing: no parameter moved" if compared else "no parameter could be compared"
        return Training(outcome=Outcome.ERROR, reason=reason, port_path=None, curves=curves)
    reason = f"{recipe.iterations} losses and {compared} tensors after them are as close as rounding allows"
    return Training(outcome=Outcome.PASS, reason=reason, port_path=None, curves=curves)


def allowed_apart(after: Array, drift: float, update: float, scale: float) -> float:
    """Return how far a trained tensor may be off: how far the moved reference's drifts, and what a constant in float32 makes of its update."""
    return FACTOR * (drift + CONSTANT * update) + SAME_DOUBLE * (rms(after) + scale)


def _train(
    recipe: Recipe,
    number: int,
    model: object,
    built: Built,
    follows: Sequence[Draws | None] = (),
    *,
    watched: bool = False,
) -> Trained:
    """Train one side's model with its optimizer and schedule; if ``watched``, tell how far everything was moved."""
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
            with side.framework.any_precision():
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


def _first_loss(recipe: Recipe, number: int, model: object, follows: Draws | None = None) -> tuple[float, Draws, bool]:
    """Return one side's loss before any update, the random numbers it drew, and whether it runs in float32 only."""
    side, loss, drawn = recipe.sides[number], _loss(recipe, number), recipe.draws.of_step(0, follows)
    side.seed(recipe.seed)
    with side.randomness(drawn), side.recording(gradient=False):
        value = loss(*_outputs_and_labels(side, model, bind(model, recipe.inputs)))
        return float(side.array(value).reshape(())), drawn, loss.single


def multiply_rates(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rates of a torch optimizer in each of its steps, whatever a schedule makes of them."""
    step = optimizer.step

    @wraps(step)
    def stepped(*args: object, **kwargs: object) -> object:
        kept = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        try:
            return step(*args, **kwargs)
        finally:
            for group, rate in zip(optimizer.param_groups, kept, strict=True):
                group["lr"] = rate

    optimizer.step = stepped


def _outputs_and_labels(side: LiveSide, model: object, inputs: ModelInputs) -> tuple[object, object]:
    return call_model(side, model, inputs, double=True), labels_of(side, inputs, double=True)


def shake(side: LiveSide, model: object, share: float, seed: int) -> None:
    """Move each value of the parameters up or down by a share of itself."""
    generator = np.random.default_rng([seed, 2])
    for _, parameter in side.parameters(model):
        values = side.array(parameter)
        values *= np.where(generator.integers(0, 2, values.shape, dtype=np.int8), 1 + share, 1 - share)
        side.assign(parameter, values)


def state_of(recipe: Recipe, number: int, model: object, *, shared: bool = False) -> dict[str, Array]:
    """Return the tensors that the paired layers hold themselves, by the reference's path and torch's name.

    ``shared``: parameters may be the model's own memory.
    """
    found: dict[str, Array] = {}
    for path, held in _own_tensors(recipe, number, model, shared=shared).items():
        put = as_reference(held, recipe.laid.get(path, {})) if number else held
        found.update((f"{path}:{name}", array) for name, array in put.items())
    return found


def laid_of(recipe: Recipe, models: tuple[Model, Model]) -> dict[str, Mapping[str, Laid]]:
    """Return what the port's layers keep otherwise than the reference's, as equal values of both models tell."""
    ours, theirs = (_own_tensors(recipe, number, one, shared=True) for number, one in enumerate(models))
    return {path: laid for path, held in ours.items() if (laid := laid_otherwise(held, theirs.get(path, {})))}


def _own_tensors(recipe: Recipe, number: int, model: object, *, shared: bool) -> dict[str, dict[str, Array]]:
    """Return the tensors that each paired layer holds itself, by the reference's path."""
    side = recipe.sides[number]
    found: dict[str, dict[str, Array]] = {}
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
        found[pair.reference] = {name: array for name, array in held.items() if _is_own(name, layer, side)}
    return found


def _is_own(name: str, layer: object, side: LiveSide) -> bool:
    first = name.partition(".")[0]
    return "." not in name or first not in dict(side.children(layer))


# What one call leaves in the buffers of both models: moving averages, counters, codebooks.


@dataclass(frozen=True, slots=True)
class _Called:
    """The buffers of one model before and after a call, by torch's names and in torch's layout."""

    before: Mapping[str, Array]
    after: Mapping[str, Array]

    def moved(self, name: str) -> bool:
        """Tell whether the call changed a buffer."""
        return not np.array_equal(self.before[name], self.after[name])

    def renamed(self, names: Mapping[str, str]) -> _Called:
        """Return it under other names."""
        before, after = (
            {names.get(name, name): one for name, one in held.items()} for held in (self.before, self.after)
        )
        return _Called(before, after)


def check_buffers(
    sides: Sides,
    models: tuple[object, object],
    inputs: ModelInputs,
    names: Mapping[str, str],
    pairs: Sequence[CallPair],
    draws: tuple[Draws, Draws],
    limit: float,
) -> tuple[list[LayerVerdict], list[Diagnosis]]:
    """Call both models once and compare the buffers that the call changes; those of the frameworks' norms are left out.

    Args:
        sides: torch's and Paddle's.
        models: float64 copies, which are changed.
        inputs: what they are called with.
        names: Paddle's name by torch's where names and structure cannot tell.
        pairs: the calls of both models that belong together.
        draws: the random numbers of a run of each, which are drawn again.
        limit: the relative difference in float64 up to which buffers are the same.

    Returns:
        A verdict about each layer with a buffer that differs, and a cause for each.
    """
    match, (model, port_model) = _names(models, names), models
    ours, theirs = (_called(*one, match) for one in zip(sides, models, (inputs, inputs), draws, strict=True))
    theirs = theirs.renamed(_by_values(ours, theirs, pairs, limit))
    paths = {pair.reference.path: pair.port.path for pair in pairs}
    layers, port_layers = dict(sides.reference.layers(model)), dict(sides.port.layers(port_model))
    verdicts: dict[str, LayerVerdict] = {}
    causes: list[Diagnosis] = []
    both = [name for name in ours.after if name in theirs.after]
    off = {name: apart for name in both if (apart := _apart(ours, theirs, name, limit)) is not None}
    # What only one side moves is told first, then what is declared first.
    for name in sorted(off, key=lambda one: ours.moved(one) == theirs.moved(one)):
        apart = off[name]
        path, _, leaf = name.rpartition(".")
        port = match.get(path, paths.get(path, path))
        if port in verdicts:
            continue
        told = f"after one call its buffer `{leaf}` differs: relative {apart:.3g} in float64"
        if ours.moved(name) != theirs.moved(name):
            stays = (
                "one call changes its buffer `{}`, the reference's stays"
                if theirs.moved(name)
                else "one call leaves its buffer `{}` as it is, the reference's changes"
            )
            told = stays.format(leaf)
        layer = port_layers.get(port)
        shown = f"`{port}`" if port else "the model"
        verdicts[port] = LayerVerdict(
            reference_path=path,
            port_path=port,
            reference_type=type(layers.get(path)).__name__,
            port_type=type(layer).__name__,
            direction="forward",
            own=apart,
            closeness=Closeness.DIFFERS,
            reason=told,
        )
        mode = "train" if getattr(layer, "training", False) else "eval"
        before, after, port_after = (
            ", ".join(f"{one:.6g}" for one in held[name].reshape(-1)[:SHOWN] * 1.0)
            for held in (ours.before, ours.after, theirs.after)
        )
        causes.append(
            Diagnosis(
                code="buffer",
                port_path=port,
                message=f"{shown}: {told}; both are in {mode} mode, and of {before} the port makes {port_after}, the reference {after}",
                evidence="the outputs of this call agree; those of later calls need not",
                fix=f"update `{leaf}` of {shown} in {mode} mode as the reference does",
            )
        )
    return list(verdicts.values()), causes


def _apart(ours: _Called, theirs: _Called, name: str, limit: float) -> float | None:
    """Return how far a buffer is apart that a call changed; None if it is the same, or was another one before."""
    one, other = ours.after[name], theirs.after[name]
    if one.shape != other.shape or not (ours.moved(name) or theirs.moved(name)):
        return None
    if relative(ours.before[name], theirs.before[name]) > limit:
        return None  # the preflight tells that
    apart = relative(one, other)
    return None if apart <= limit else apart


def _by_values(ours: _Called, theirs: _Called, pairs: Sequence[CallPair], limit: float) -> dict[str, str]:
    """Return torch's names by the port's of buffers that names do not pair: those of paired layers that start with equal values.

    Of several that start equal, those belong together that end closest, so that no order of theirs is held against the port.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        own, port_own = (
            [name for name in held.after if name not in other.after and name.rpartition(".")[0] == path]
            for held, other, path in ((ours, theirs, pair.reference.path), (theirs, ours, pair.port.path))
        )
        ends = sorted(
            (relative(ours.after[one], theirs.after[other]), one, other)
            for one in own
            for other in port_own
            if ours.before[one].shape == theirs.before[other].shape
            and relative(ours.before[one], theirs.before[other]) <= limit
        )
        for _, one, other in ends:
            if other not in found and one not in found.values():
                found[other] = one
    return found


def _called(side: LiveSide, model: object, inputs: ModelInputs, draws: Draws, match: Mapping[str, str]) -> _Called:
    before = _own_buffers(side, model, match)
    with side.precision(double=True), side.randomness(draws.again()), side.recording(gradient=False):
        call_model(side, model, bind(model, inputs), double=True)
    return _Called(before, _own_buffers(side, model, match))


def _own_buffers(side: LiveSide, model: object, match: Mapping[str, str]) -> dict[str, Array]:
    """Return copies of a model's own buffers by torch's names: saved ones as the weights are matched, others as they are."""
    own = buffers_of(side, model)
    saved = {name: np.array(one) for name, one in side.framework.buffers(model, match)}
    ported = {match.get(name, name) for name in saved} if side.name != "torch" else set(saved)
    known = {name: one for name, one in saved.items() if name in own or match.get(name, name) in own}
    return {**{name: one for name, one in own.items() if name not in ported}, **known}


def _names(models: tuple[object, object], names: Mapping[str, str]) -> Mapping[str, str]:
    """Return Paddle's names by torch's as the weights are matched, but for what order of declaration alone tells.

    Where the weights cannot be matched, they are the names that were given.
    """
    try:
        match = match_models(*models, names)
    except WeightsError:
        return names
    ordered = {ours for ours, _ in match.by_order}
    return {ours: theirs for ours, theirs in match.names.items() if ours not in ordered}
