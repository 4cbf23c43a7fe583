"""Step 5 of the guide, the optimizer: its updates, from equal gradients."""

from __future__ import annotations

import gc
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice

import numpy as np

from tipchain.errors import InputError, Outcome
from tipchain.framework_types import Array, Options
from tipchain.frameworks import Updates
from tipchain.frameworks.base import make_optimizer
from tipchain.numbers.compare import common_factor, largest
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details, scaled

# What the stages optimizer, regularization and lr share: a model to update, and equal numbers on both sides.


MOST_ELEMENTS = 512
"""Elements of a parameter that are recorded; all are updated, and more would only repeat these."""

MOST_DRAWN = 100_003
"""Elements of a parameter that are drawn, a prime, so that rows of a matrix do not repeat in step."""


def build_subject(bench: Bench) -> object:
    """Return the parameters' owner for the optimizer: the small model of layers, or the case's own."""
    if bench.case.updates.parameters == "model":
        return bench.framework.build(bench.builder("model"), bench.case.model_args)
    return bench.framework.build(bench.framework.build_layers, {})


def names(bench: Bench) -> Mapping[str, str]:
    """Return Paddle's names by torch's for the model of `build_subject`."""
    return bench.case.weights.names if bench.case.updates.parameters == "model" else {}


def variants(bench: Bench) -> dict[str, Options]:
    """Return the optimizer's arguments by prefix of the keys: the case's own under "", each variant under ``name/``."""
    named = {f"{name}/": args for name, args in bench.case.updates.variants.items()}
    return {"": bench.case.optimizer_args, **named}


def open_variant(bench: Bench, model: object, prefix: str, args: Mapping[str, object], rate: float) -> Updates:
    """Build an optimizer over ``model``; the model's state is as it was, the optimizer's is fresh.

    Raises:
        InputError: the builder refuses its arguments.
    """
    case = bench.case
    if case.updates.parameters == "model":
        gc.collect()  # optimizers stand in cycles; the one before may hold several times the model
    try:
        return bench.framework.updates(
            model, make_optimizer(bench.builder("optimizer"), model, rate, args), names(bench)
        )
    except InputError as error:
        key = error.key or "optimizer"
        if prefix:
            key = key.replace("optimizer", f"updates.variants.{prefix[:-1]}", 1)
        hints = [error.hint] if error.hint else []
        if case.updates.parameters != "model":
            hints.append("rules for the case's own parameters need `updates: {parameters: model}`")
        own = {name: getattr(error, name) for name in ("line", "found", "expected")}
        hint = "; ".join(hints) or None
        raise InputError(error.message, file=error.file or case.path, key=key, hint=hint, **own) from error


def update(updates: Updates, start: Mapping[str, Array], gradients: Mapping[str, Array]) -> None:
    """Update the parameters once with these gradients, from these values."""
    for name, value in start.items():
        updates.assign(name, value)
        updates.add_gradient(name, gradients[name])
    updates.step()


def draw(shapes: Mapping[str, tuple[int, ...]], seed: int, number: int) -> dict[str, Array]:
    """Return standard normal float32 arrays that depend on nothing but name, shape, seed and number.

    More than `MOST_DRAWN` elements repeat themselves.
    """
    arrays = {}
    for name, shape in shapes.items():
        generator = np.random.default_rng([seed, number, zlib.crc32(name.encode())])
        drawn = generator.standard_normal(min(math.prod(shape), MOST_DRAWN), dtype=np.float32)
        arrays[name] = np.resize(drawn, shape)
    return arrays


def multiplied(arrays: Mapping[str, Array], factor: float) -> dict[str, Array]:
    """Return every array times ``factor``."""
    return {name: array * np.float32(factor) for name, array in arrays.items()}


def sample(array: Array) -> Array:
    """Return the array itself, or `MOST_ELEMENTS` elements evenly spread over a larger one."""
    if array.size <= MOST_ELEMENTS:
        return array
    flat: Array = array.reshape(-1)
    return flat[np.linspace(0, array.size - 1, MOST_ELEMENTS).astype(np.int64)]


GRADIENTS = (1e-6, 1e-3, 1.0, 30.0, 0.1)
"""Sizes of the gradients, update by update. The first is so small that epsilon counts, the fourth so large that any usual
clipping acts, the last so small that the optimizer's state decides."""
RATES = (1.0, 0.5, 2.0, 1.0, 0.1)
"""Shares of the learning rate: formulas that have the rate inside the momentum differ from those that have it outside."""


def record(bench: Bench) -> Recording:
    """The parameters after each update, as ``NAME_i``; of a variant as ``VARIANT/NAME_i``.

    Before each update they are set back to zero, while the optimizer goes on: so an update is exact, none hides in the
    rounding of a parameter, and no decay moves anything, for that is the regularization stage's.
    """
    settings = bench.case.updates
    sizes = list(islice(zip(cycle(GRADIENTS), cycle(RATES), strict=False), settings.iterations))
    arrays: dict[str, Array] = {}
    for prefix, args in variants(bench).items():
        updates = open_variant(bench, build_subject(bench), prefix, args, settings.learning_rate)
        shapes = updates.shapes()
        zeros = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
        for number, (size, rate) in enumerate(sizes):
            updates.set_rate(rate)
            update(updates, zeros, multiplied(draw(shapes, settings.seed, number), size))
            arrays |= {f"{prefix}{name}_{number}": sample(updates.value(name)) for name in shapes}
    return Recording(arrays=arrays, details={"sizes": [size for size, _ in sizes]})


# Judge the optimizer: every update of every parameter, and what an update that differs looks like.


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare each update; rtol goes with the largest element of the reference's."""
    reference, port = dumps.reference.arrays, dumps.port.arrays
    tolerances = rules.for_arrays(dumps.stage, {**port, **reference})
    tolerances |= {key: scaled(tolerances[key], largest(array), array) for key, array in reference.items()}
    verdicts = compare(reference, port, tolerances)
    sizes = details(dumps.reference).get("sizes")
    explained: set[str] = set()
    for number, verdict in enumerate(verdicts):
        key = verdict.subject
        parameter, _, last = key.rpartition("_")
        if verdict.outcome is Outcome.FAIL and verdict.diff and verdict.diff.size and parameter not in explained:
            explained.add(parameter)
            words = "an update that differs"  # of a dump made elsewhere
            if last.isdigit():
                words = f"update {int(last) + 1} is the first that differs"
                if isinstance(sizes, list) and int(last) < len(sizes):
                    words += f" (gradients of size {sizes[int(last)]:g})"
                factor = common_factor(reference[key], port[key])
                if factor is not None:
                    words += f"; the port's is {factor:.6g} times the reference's at every element"
            verdicts[number] = replace(verdict, reason=f"{verdict.reason} · {words}")
        elif verdict.outcome is Outcome.PASS and not np.any(reference[key]) and not np.any(port[key]):
            verdicts[number] = replace(verdict, outcome=Outcome.SKIP, reason="neither side moves it: it is frozen")
    if all(verdict.outcome is Outcome.SKIP for verdict in verdicts):
        reason = "proves nothing: no update moves any parameter, on either side"
        verdicts = [Verdict(Outcome.ERROR, "dump", reason)]
    return Judged(verdicts=verdicts, tolerances=tolerances)
