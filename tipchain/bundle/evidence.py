"""What shows that a new reference is as good as the old one: numbers, statistics, trainings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np

from tipchain.bundle.manifest import DUMPS, STATISTICS, TRUTH, BundleManifest, StoredBundle
from tipchain.core.json_text import Json, read_json
from tipchain.errors import BAD
from tipchain.framework_types import Array
from tipchain.modes import SOLO, dump_name, tensors_name
from tipchain.numbers.dumps import Record, load_record
from tipchain.numbers.two_samples import Answer, grid_step, judge_runs
from tipchain.parity.envelope import compare_curves
from tipchain.parity.recorder import NOISE
from tipchain.parity.stages import judge_dumps
from tipchain.parity.stages.judging import Dumps, Rules, details
from tipchain.parity.stages.tensors import TensorFile

# Arrays of two references held against each other.

Arrays = Mapping[str, Array]
TRUTH_RTOL = 1e-10
"""Share of a tensor's largest value by which two correct float64 runs may differ; ResNet-50's gradients need 2e-11."""
NOISE_FACTOR = 10.0
"""How many times its own movement from weights a few units apart a float64 result may differ."""
MOST_NOISE = 1e-7
"""Share of the largest value above which float64's own movement allows no more."""
LAST_PLACES = 16
"""Units in the last place of the largest value that count as equal, where there is no float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """A stage's float64 arrays of two references.

    Attributes:
        noise: by how much rounding moves each of them, of both references.
    """

    old: Arrays
    new: Arrays
    noise: tuple[Mapping[str, float], Mapping[str, float]]


def group_of(name: str) -> str:
    """Return what a tensor is measured with: ``gradient`` of ``gradient/head.bias``, itself where it stands alone.

    A second mode's names keep it: ``train/gradient`` of ``train/gradient/head.bias``.
    """
    parts = name.split("/")
    depth = 2 if parts[0] in ("train", "eval") and len(parts) > 2 else 1
    return "/".join(parts[:depth]) if len(parts) > depth else name


def same(left: Arrays, right: Arrays) -> bool:
    """Tell whether both have the same arrays, bit by bit."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def mismatch(left: Arrays, right: Arrays) -> str:
    """Say which array only one side has or has another shape or dtype, or ""."""
    for first, second, words in ((left, right, "gone"), (right, left, "new")):
        names = [name for name in first if name not in second]
        if names:
            return f"{len(names)} arrays are {words}: {', '.join(names[:3])}"
    for name, array in left.items():
        other = right[name]
        if (array.shape, array.dtype) != (other.shape, other.dtype):
            return f"{name} was {array.dtype} {array.shape}, is {other.dtype} {other.shape}"
    return ""


def difference(left: Array, right: Array) -> float:
    """Return the largest ``|difference|``; infinite where only one side is not finite, or whole numbers differ."""
    if left.dtype.kind not in "fc":
        return 0.0 if np.array_equal(left, right) else float("inf")
    finite = np.isfinite(left)
    if not np.array_equal(finite, np.isfinite(right)) or not np.array_equal(
        left[~finite], right[~finite], equal_nan=True
    ):
        return float("inf")
    kind = np.complex128 if left.dtype.kind == "c" else np.float64
    return float(np.abs(right[finite].astype(kind) - left[finite].astype(kind)).max(initial=0.0))


def largest(array: Array) -> float:
    """Return the largest finite ``|value|``, 0 of none."""
    if array.dtype.kind not in "fc":
        return 0.0
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def compare_truths(truths: Truths) -> tuple[float, str, str]:
    """Return the largest difference as a multiple of what is allowed, of which tensor, and what else is wrong.

    Allowed is `TRUTH_RTOL` of the tensor's own largest value (and a trace of its group's, for what is zero by
    structure), and `NOISE_FACTOR` times its noise.
    """
    wrong = mismatch(truths.old, truths.new)
    if wrong:
        return float("inf"), "", f"float64: {wrong}"
    groups: dict[str, float] = {}
    for name, array in truths.old.items():
        groups[group_of(name)] = max(groups.get(group_of(name), 0.0), largest(array))
    worst, where = 0.0, ""
    for name, array in truths.old.items():
        scale = groups[group_of(name)]
        noise = max((one.get(name, 0.0) for one in truths.noise if isfinite(one.get(name, 0.0))), default=0.0)
        allowed = TRUTH_RTOL * (largest(array) + 1e-4 * scale) + min(NOISE_FACTOR * noise, MOST_NOISE * scale)
        ratio = _ratio(difference(array, truths.new[name]), allowed)
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where, ""


def own_error(dump: Arrays, truth: Arrays, names: Iterable[str]) -> float:
    """Return the root mean square over tensors of their root mean square error, as a share of their group's largest."""
    names = [name for name in names if name in truth and dump[name].dtype.kind == "f"]
    groups: dict[str, float] = {}
    for name in names:
        groups[group_of(name)] = max(groups.get(group_of(name), 0.0), largest(truth[name]))
    squares = []
    for name in names:
        scale = groups[group_of(name)]
        if not dump[name].size or not scale > 0:
            continue
        if difference(dump[name], truth[name]) == float("inf"):
            return float("inf")
        finite = np.isfinite(truth[name])
        away = dump[name][finite].astype(np.float64) - truth[name][finite]
        squares.append(float(np.mean(np.square(away))) / scale**2 if away.size else 0.0)
    return float(np.sqrt(np.mean(squares))) if squares else 0.0


def within_last_places(left: Arrays, right: Arrays) -> tuple[float, str]:
    """Return the largest difference as a share of `LAST_PLACES` of each array's largest value, and of which array."""
    worst, where = 0.0, ""
    for name, array in left.items():
        eps = float(np.finfo(array.dtype).eps) if array.dtype.kind in "fc" else 0.0
        ratio = _ratio(difference(array, right[name]), LAST_PLACES * eps * largest(array))
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where


def _ratio(away: float, allowed: float) -> float:
    if away == 0:
        return 0.0
    return away / allowed if allowed > 0 else float("inf")


# Statistics of what a bundle's dumps hold, for people and for what changed between two bundles.
#
# They follow from the dumps, so nothing rests on what a bundle says they are: they are computed again and compared.

SUMMED = 1e-9
"""How far a mean may be off, of the largest value, for machines add in other orders: 2**-53 for each of 10 million numbers."""


def describe(array: Array) -> dict[str, Json]:
    """Return shape, dtype and, of numbers, least, largest, mean and root mean square (float64) of the finite ones."""
    facts: dict[str, Json] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.dtype.kind not in "biuf" or not array.size:
        return facts
    finite = np.isfinite(array)
    values = np.asarray(array if finite.all() else array[finite], dtype=np.float64)
    facts["finite"] = int(finite.sum())
    if values.size:
        facts |= {
            "min": float(values.min()),
            "max": float(values.max()),
            "mean": float(values.mean()),
            "rms": float(np.sqrt(np.mean(np.square(values)))),
        }
    return facts


def describe_folder(folder: Path) -> dict[str, dict[str, dict[str, object]]]:
    """Return statistics of every array, by file and name, of the dumps and safetensors files in ``folder``."""
    found: dict[str, dict[str, dict[str, Json]]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npy":
            found[path.name] = {name: describe(array) for name, array in load_record(path).arrays.items()}
        elif path.suffix == ".safetensors":
            with TensorFile(path) as tensors:
                found[path.name] = {name: describe(tensors[name]) for name in sorted(tensors)}
    return found


def false_statistics(folder: Path) -> str:
    """Return where a bundle's statistics are not those of its dumps; "" if they are.

    Raises:
        RecordError: a dump cannot be read.
    """
    try:
        told = read_json(folder / STATISTICS)
    except (OSError, ValueError) as error:
        return f"{STATISTICS} cannot be read: {error}"
    found = describe_folder(folder / DUMPS)
    if not isinstance(told, dict) or told.keys() != found.keys():
        return f"{STATISTICS} is of other dumps"
    for file, arrays in found.items():
        if not isinstance(told[file], dict) or told[file].keys() != arrays.keys():
            return f"{STATISTICS} is of other arrays than {file} has"
        for name, facts in arrays.items():
            if not _is_same(told[file][name], facts):
                return f"{STATISTICS} is not what follows from {name} in {file}"
    return ""


def _is_same(told: object, facts: dict[str, Json]) -> bool:
    if not isinstance(told, dict) or told.keys() != facts.keys():
        return False
    room = SUMMED * max(abs(facts.get("min", 0.0)), abs(facts.get("max", 0.0)))
    return all(
        isinstance(told[name], float) and math.isclose(told[name], one, rel_tol=0.0, abs_tol=room)
        if name in ("mean", "rms")
        else told[name] == one
        for name, one in facts.items()
    )


DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found about one stage.

    Attributes:
        stage: its name, or ``weights``.
        how: ``identical``, ``float64``, ``equivalence``, ``tests`` (the stage's own, of distributions), ``last places``,
            or `DIFFERS`.
        reason: one sentence.
        figures: the numbers behind it.
    """

    stage: str
    how: str
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether it lets the reference move."""
        return self.how != DIFFERS


# Two references' trainings held against each other: losses by float64 and the envelope, metrics by the equivalence test.

SEEDS = "seeds/"


def _judge_training(left: Arrays, right: Arrays, truths: Truths | None, rules: Rules, *, samples: object) -> Evidence:
    """Judge the stage ``train``.

    Accepted: the metrics of several seeds are equivalent; or the first losses agree in float64, in float32 they stay in
    the old reference's envelope, and no metric of the one run moved beyond the margin.
    """
    figures: dict[str, float] = {}
    count = samples if isinstance(samples, int) else 0
    seeds = {name for name in (*left, *right) if name.startswith(SEEDS)}
    equivalent, said = _judge_seeds(left, right, seeds, (rules.margin, count), figures)
    if equivalent is Answer.EQUIVALENT:
        return Evidence("train", "equivalence", said, figures)
    if equivalent is Answer.DIFFERENT:
        return Evidence("train", DIFFERS, said, figures)
    problem = _judge_losses(left, right, truths, rules, figures) or _judge_metrics(left, right, rules, figures)
    if problem:
        return Evidence("train", DIFFERS, f"{problem}; {said}" if said else problem, figures)
    if same(*({name: one[name] for name in one if name == "loss"} for one in (left, right))):
        return Evidence("train", "last places", "the losses are equal, and the metrics within the margin", figures)
    reason = "rounding: the first losses agree in float64 and stay in the envelope, the metrics within the margin"
    return Evidence("train", "float64", reason, figures)


def _judge_seeds(
    left: Arrays, right: Arrays, names: set[str], limits: tuple[float, int], figures: dict[str, float]
) -> tuple[Answer, str]:
    """Return what the equivalence test says of all metrics together, and why."""
    if not names:
        return Answer.NOT_ENOUGH_RUNS, "train.seeds of 8 to 31 would let the equivalence test tell"
    (margin, samples), unsure = limits, ""
    for name in sorted(names):
        metric = name.removeprefix(SEEDS)
        if name not in left or name not in right or min(left[name].size, right[name].size) < 2:
            unsure = unsure or f"{metric} has several seeds in one reference only"
            continue
        runs = [one[name].astype(np.float64).tolist() for one in (left, right)]
        if not all(np.isfinite(runs_of).all() for runs_of in runs):
            return Answer.DIFFERENT, f"{metric}: runs that ended in NaN or Inf"
        try:
            found = judge_runs(runs[0], runs[1], margin, step=grid_step([*runs[0], *runs[1]], samples))
        except ImportError as error:
            return (Answer.NOT_ENOUGH_RUNS, f"the seeds were not compared: {error}; pip install 'tipchain[stats]'")
        figures[f"{metric} difference"] = found.difference
        interval = f"{found.low:+.3g} to {found.high:+.3g}, margin {margin:g}"
        if found.answer is Answer.DIFFERENT:
            return found.answer, f"{metric} is different: 90 % interval of the means' difference {interval}"
        if found.answer is Answer.NOT_ENOUGH_RUNS:
            more = f"{found.more:,} more" if found.more is not None else "too many more"
            unsure = unsure or f"{metric}: {more} seeds a side needed, 90 % interval {interval}"
    if unsure:
        return Answer.NOT_ENOUGH_RUNS, unsure
    return (Answer.EQUIVALENT, f"equivalent: {', '.join(n.removeprefix(SEEDS) for n in sorted(names))} over the seeds")


def _judge_losses(left: Arrays, right: Arrays, truths: Truths | None, rules: Rules, figures: dict[str, float]) -> str:
    """Return what is wrong with the losses, or ""."""
    if "loss" not in left or "loss" not in right:
        return ""  # a published benchmark has none
    if left["loss"].shape != right["loss"].shape or "envelope" not in left:
        return f"{left['loss'].size} losses were compared, now {right['loss'].size}"
    if left["loss"].tobytes() != right["loss"].tobytes():
        if truths is None:
            return "the losses moved, and there is no float64 of both references to tell whether that is rounding"
        worst, _, wrong = compare_truths(truths)
        figures["float64 difference, of what is allowed"] = worst
        if wrong or not worst <= 1:
            return wrong or f"the losses differ in float64, by {worst:.3g} times what rounding there allows"
    curve = compare_curves(left["loss"], right["loss"], left["envelope"], rules.factor)
    figures["loss, times the envelope"] = float(curve.ratios[curve.worst])
    if curve.outside is not None:
        return (
            f"the loss of step {curve.outside} left the envelope: {curve.ratios[curve.outside]:.3g} times it, "
            f"allowed {rules.factor:g}"
        )
    return ""


def _judge_metrics(left: Arrays, right: Arrays, rules: Rules, figures: dict[str, float]) -> str:
    """Return which metric of the one run moved beyond the margin, or ""."""
    rest = ("loss", "envelope")
    names = [name for name in left if name not in rest and not name.startswith(SEEDS)]
    gone = sorted(set(names) ^ {name for name in right if name not in rest and not name.startswith(SEEDS)})
    if gone:
        return f"metrics of one reference only: {', '.join(gone)}"
    if within_last_places({name: left[name] for name in names}, right)[0] <= 1:
        return ""
    if "loss" not in left:
        return "the published numbers are others"
    for name in names:
        moved = float(np.max(np.abs(right[name].astype(np.float64) - left[name]), initial=0.0))
        figures[f"{name} moved"] = moved
        if not moved <= rules.margin:
            before, after = float(left[name].ravel()[0]), float(right[name].ravel()[0])
            return f"{name} moved from {before:.6g} to {after:.6g}, by more than the margin {rules.margin:g}"
    return ""


# What two bundles of one case say about each other: is the difference rounding, or is the reference another one?
#
# Of stages that run the network, the float64 truths decide: where they agree, both references compute the same function,
# and their float32 dumps differ by rounding, whatever its size. A dump may still be worse than the other (another
# precision, a broken kernel): so its own error against float64 is held against the old one's. A training is held
# against its envelope, and its final metrics by the equivalence test. Where no float64 was recorded, as of data, numbers
# must be equal to a few units in the last place.

OWN_ERROR_FACTOR = 4.0
"""How many times the old dump's error against float64 the new one's may be."""
OWN_ERROR_FLOOR = 4 * float(np.finfo(np.float32).eps)
"""Errors below this share of the largest value are no worse than one another."""
DRAWN = {"init": ("",), "train_data": ("draw/", "pixels/", "order_", "sizes_", "repeat")}
"""What the names of random draws begin with: these are equal as distributions only, which the stage's own tests tell."""


def compare_bundles(old: StoredBundle, new: StoredBundle, rules: Rules) -> list[Evidence]:
    """Return the evidence, stage by stage of the old bundle.

    Args:
        old: the reference in use.
        new: the one that shall take its place.
        rules: the case's, for the factor of the envelope and the margin of the metrics.

    Raises:
        RecordError: a file of a bundle cannot be read.
    """
    stages = [stage for stage in old.manifest.stages if stage not in SOLO]
    found = [_judge(stage, old, new, rules) for stage in stages if stage in new.manifest.stages]
    absent = [stage for stage in old.manifest.stages if stage not in new.manifest.stages]
    found += [Evidence(stage, DIFFERS, "the new reference has no such stage") for stage in absent]
    return [*found, *_judge_weights(old.manifest, new.manifest, found)]


def _judge_weights(old: BundleManifest, new: BundleManifest, found: list[Evidence]) -> list[Evidence]:
    """Judge the weights where no stage did that with them."""
    left, right = (
        {name: (one.digest, side.files.get(one.file), side.files.get(one.torch)) for name, one in side.weights.items()}
        for side in (old, new)
    )
    if left == right:
        return [Evidence("weights", "identical", "torch's weights are equal")]
    if any(one.how in ("float64", DIFFERS) for one in found):
        return []
    return [Evidence("weights", DIFFERS, "torch's weights are others")]


def _judge(stage: str, old: StoredBundle, new: StoredBundle, rules: Rules) -> Evidence:
    with ExitStack() as stack:
        (record, left), (record2, right) = (_load(side.folder / DUMPS, stage, stack) for side in (old, new))
        if stage == "forward":  # what it runs besides has no float64, and a bundle of another version may lack it
            left, right = record.arrays, record2.arrays
        facts = _other_facts(details(record), details(record2))
        if facts:
            return Evidence(stage, DIFFERS, f"other {', '.join(facts)}")
        if same(left, right):
            return Evidence(stage, "identical", f"all {len(left)} arrays are equal bit by bit")
        truths = _truths(stage, old, new, stack)
        if stage == "train":
            return _judge_training(left, right, truths, rules, samples=details(record).get("samples"))
        wrong = mismatch(left, right)
        if wrong:
            return Evidence(stage, DIFFERS, wrong)
        if truths is not None:
            return _judge_truths(stage, left, right, truths)
        return _judge_without(stage, left, right, (record, record2), rules, _why_none(stage, old, new))


def _load(folder: Path, stage: str, stack: ExitStack) -> tuple[Record, Arrays]:
    """Return a stage's dump, and all of its arrays, those of the safetensors file read when asked for."""
    record = load_record(folder / dump_name(stage, "torch"))
    path = folder / tensors_name(stage, "torch")
    tensors: Mapping[str, Array] = stack.enter_context(TensorFile(path)) if path.is_file() else {}
    return record, {**record.arrays, **{name: tensors[name] for name in tensors}}


def _truths(stage: str, old: StoredBundle, new: StoredBundle, stack: ExitStack) -> Truths | None:
    if any(side.manifest.truths.get(stage, "none") for side in (old, new)):
        return None
    arrays, noises = [], []
    for side in (old, new):
        _, both = _load(side.folder / TRUTH, stage, stack)
        arrays.append({name: one for name, one in both.items() if not name.startswith(NOISE)})
        noises.append({name.removeprefix(NOISE): float(one) for name, one in both.items() if name.startswith(NOISE)})
    return Truths(old=arrays[0], new=arrays[1], noise=(noises[0], noises[1]))


def _why_none(stage: str, old: StoredBundle, new: StoredBundle) -> str:
    for word, side in (("old", old), ("new", new)):
        reason = side.manifest.truths.get(stage, "")
        if reason:
            return f"the {word} reference has no float64: {reason}"
    return ""


def _judge_truths(stage: str, left: Arrays, right: Arrays, truths: Truths) -> Evidence:
    """Judge by float64: the same function, and no larger rounding."""
    worst, name, wrong = compare_truths(truths)
    figures = {"float64 difference, of what is allowed": worst}
    if wrong or not worst <= 1:
        reason = wrong or f"float64 differs: {name} by {worst:.3g} times what rounding there allows"
        return Evidence(stage, DIFFERS, reason, figures)
    names = [name for name in left if _tells_own_error(stage, name)]
    before, after = own_error(left, truths.old, names), own_error(right, truths.new, names)
    noise = [float(left[one]) for one in left if "gradient_noise/" in one]
    scale = max((float(np.abs(left[one]).max(initial=0)) for one in names if "gradient/" in one), default=0.0)
    moved = float(np.sqrt(np.mean(np.square(noise)))) / scale if noise and scale > 0 else 0.0
    limit = OWN_ERROR_FACTOR * max(before, moved, OWN_ERROR_FLOOR)
    figures |= {"old error": before, "new error": after}
    if not after <= limit:
        reason = (
            f"float64 agrees, but the new dump is {after:.3g} away from it, the old one {before:.3g} "
            f"(allowed {limit:.3g}): another precision, or a wrong kernel"
        )
        return Evidence(stage, DIFFERS, reason, figures)
    reason = (
        f"rounding: float64 agrees ({worst:.2g} of what is allowed); against it the old dump's error is {before:.2g}, "
        f"the new one's {after:.2g}"
    )
    return Evidence(stage, "float64", reason, figures)


def _tells_own_error(stage: str, name: str) -> bool:
    """Tell whether an array's error is of one pass through the network: after updates rounding has grown."""
    if stage != "backward":
        return True
    return name.endswith("loss_0") or group_of(name).endswith("gradient")


def _judge_without(
    stage: str, left: Arrays, right: Arrays, records: tuple[Record, Record], rules: Rules, why: str
) -> Evidence:
    """Judge a stage that has no float64."""
    drawn = [name for name in left if name.startswith(DRAWN.get(stage, ("/",)))]
    fixed = [name for name in left if name not in drawn]
    worst, name = within_last_places({one: left[one] for one in fixed}, right)
    figures = {"difference, of what is allowed": worst}
    also = f"; {why}" if why else ""
    if not worst <= 1:
        reason = f"{name} differs by {worst:.3g} times what a few units in the last place come to{also}"
        return Evidence(stage, DIFFERS, reason, figures)
    if not drawn or same({one: left[one] for one in drawn}, {one: right[one] for one in drawn}):
        reason = f"equal to a few units in the last place ({worst:.2g} of what is allowed){also}"
        return Evidence(stage, "last places", reason, figures)
    dumps = Dumps(stage=stage, reference=records[0], port=records[1], reference_path=Path(), port_path=Path())
    bad = [v for v in judge_dumps(dumps, rules).verdicts if v.outcome in BAD]
    if bad:
        return Evidence(stage, DIFFERS, f"{bad[0].subject}: {bad[0].reason}", figures)
    reason = "other random numbers, of the same distributions by the stage's own tests"
    return Evidence(stage, "tests", reason, figures)


def _other_facts(left: object, right: object, path: str = "") -> list[str]:
    """Return the paths of facts that differ and are no floats: those round, as the arrays they come from."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        # Another version of tipchain may tell more; and where code stands is no fact of what it does.
        names = [name for name in left if name in right and name not in ("place", "refused")]
        return [
            one
            for name in names
            for one in _other_facts(left[name], right[name], f"{path}.{name}" if path else str(name))
        ]
    if isinstance(left, float) and isinstance(right, float):
        return []
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        return [path] if any(_other_facts(one, other, path) for one, other in pairs) else []
    return [] if left == right else [path]
