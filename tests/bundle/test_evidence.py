"""What lets a reference move: bundles of a few arrays, one thing changed in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tipchain.bundle.evidence import Evidence, compare_bundles
from tipchain.bundle.manifest import BundledWeights, BundleManifest, CaseIdentity, StoredBundle
from tipchain.modes import dump_name, tensors_name
from tipchain.numbers.dumps import save_record
from tipchain.parity.recorder import NOISE, TRUTH_STAGES
from tipchain.parity.stages.judging import Rules
from tipchain.parity.stages.tensors import save_tensors

RULES = Rules(own={})
RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((4, 10))
GRADIENTS = {"gradient/a": RNG.standard_normal(50), "gradient/b": 1e-9 * RNG.standard_normal(3)}
LOSSES = np.linspace(2.3, 1.2, 10)


def rounded(array, seed=1, units=1.0):
    """Return float64 values as a float32 run has them: each a few units in the last place away."""
    noise = np.random.default_rng(seed).standard_normal(array.shape) * units * 6e-8 * np.abs(array).max()
    return (array + noise).astype(np.float32)


@dataclass
class Stage:
    """What one stage has left in a bundle."""

    arrays: dict
    tensors: dict = field(default_factory=dict)
    truth: dict = field(default_factory=dict)
    noise: dict = field(default_factory=dict)
    details: dict = field(default_factory=dict)
    no_truth: str = ""


def bundle(folder: Path, digest: str = "w", **stages: Stage) -> StoredBundle:
    for name in ("dumps", "truth"):
        (folder / name).mkdir(parents=True)
    for stage, left in stages.items():
        meta = {"side": "torch", "stage": stage, "details": left.details}
        save_record(folder / "dumps" / dump_name(stage, "torch"), left.arrays, meta=meta)
        if left.tensors:
            save_tensors(folder / "dumps" / tensors_name(stage, "torch"), left.tensors)
        if left.truth:
            save_record(folder / "truth" / dump_name(stage, "torch"), left.truth)
            noise = {f"{NOISE}{name}": np.array(one) for name, one in left.noise.items()}
            save_tensors(folder / "truth" / tensors_name(stage, "torch"), noise)
    weights = BundledWeights(file="w", torch="t", spec="", digest=digest, names={})
    manifest = BundleManifest(
        tipchain="0",
        case=CaseIdentity(id="c", file="c.yaml", sha256="0", sources={}),
        mode="m",
        stages=tuple(stages),
        reseed=0,
        seed=0,
        device="cpu",
        threads=1,
        versions={},
        weights={"": weights},
        truths={name: one.no_truth for name, one in stages.items() if name in TRUTH_STAGES},
    )
    return StoredBundle(folder, manifest)


def compare(tmp_path, stage: str, old: Stage, new: Stage, rules: Rules = RULES) -> Evidence:
    found = compare_bundles(bundle(tmp_path / "old", **{stage: old}), bundle(tmp_path / "new", **{stage: new}), rules)
    return found[0]


def forward(dump, truth=LOGITS, noise=1e-15, **more) -> Stage:
    return Stage(arrays={"logits": dump}, truth={"logits": truth}, noise={"logits": noise}, **more)


def test_equal_dumps_are_accepted(tmp_path):
    found = compare(tmp_path, "forward", forward(rounded(LOGITS)), forward(rounded(LOGITS)))
    assert (found.accepted, found.how) == (True, "identical")


def test_rounding_is_accepted(tmp_path):
    found = compare(tmp_path, "forward", forward(rounded(LOGITS)), forward(rounded(LOGITS, seed=2)))
    assert (found.accepted, found.how) == (True, "float64")
    assert found.figures["old error"] > 0
    assert found.figures["new error"] > 0


def test_a_small_change_of_the_function_is_refused_below_float32s_rounding(tmp_path):
    """The dumps differ by less than rounding would let them; float64 knows better."""
    changed = LOGITS * (1 + 3e-9)
    found = compare(tmp_path, "forward", forward(rounded(LOGITS)), forward(rounded(LOGITS, seed=2), truth=changed))
    assert (found.accepted, found.how) == (False, "differs")
    assert "float64 differs: logits by" in found.reason


def test_float64s_own_noise_is_allowed_but_not_without_end(tmp_path):
    moved = LOGITS * (1 + 2e-9)
    arguments = rounded(LOGITS), rounded(LOGITS, seed=2)
    old, new = forward(arguments[0], noise=1e-9), forward(arguments[1], truth=moved)
    assert compare(tmp_path / "a", "forward", old, new).accepted
    moved = LOGITS * (1 + 1e-5)
    new = forward(rounded(moved, seed=2), truth=moved)
    assert not compare(tmp_path / "b", "forward", forward(arguments[0], noise=1.0), new).accepted


def test_a_lower_precision_is_refused_though_float64_agrees(tmp_path):
    worse = rounded(LOGITS, seed=2, units=8192)
    found = compare(tmp_path, "forward", forward(rounded(LOGITS)), forward(worse))
    assert not found.accepted
    assert "another precision, or a wrong kernel" in found.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_is_refused(tmp_path, bad):
    dump, truth = rounded(LOGITS), LOGITS.copy()
    dump[0, 0] = truth[0, 0] = bad
    found = compare(tmp_path / "a", "forward", forward(rounded(LOGITS)), forward(dump, truth=truth))
    assert not found.accepted
    found = compare(tmp_path / "b", "forward", forward(rounded(LOGITS)), forward(dump))
    assert not found.accepted


def test_another_shape_name_or_dtype_is_refused(tmp_path):
    old = forward(rounded(LOGITS))
    assert (
        "was float32 (4, 10), is float32 (2, 10)"
        in compare(tmp_path / "a", "forward", old, forward(rounded(LOGITS)[:2], truth=LOGITS[:2])).reason
    )
    renamed = Stage(arrays={"other": rounded(LOGITS)}, truth={"other": LOGITS})
    assert "1 arrays are gone: logits" in compare(tmp_path / "b", "forward", old, renamed).reason
    found = compare(tmp_path / "c", "forward", old, forward(rounded(LOGITS).astype(np.float64)))
    assert "was float32 (4, 10), is float64" in found.reason


def test_without_float64_only_the_last_places_may_differ(tmp_path):
    old = Stage(arrays={"logits": rounded(LOGITS)}, no_truth="float32 only")
    near = Stage(arrays={"logits": np.nextafter(rounded(LOGITS), np.float32(9))}, truth={"logits": LOGITS})
    found = compare(tmp_path / "a", "forward", old, near)
    assert (found.accepted, found.how) == (True, "last places")
    assert "the old reference has no float64: float32 only" in found.reason
    far = forward(rounded(LOGITS, seed=2, units=100))
    found = compare(tmp_path / "b", "forward", old, far)
    assert not found.accepted
    assert "no float64: float32 only" in found.reason


def backward(seed: int, gradients=GRADIENTS, noise=1e-6, last=None) -> Stage:
    """A backward stage whose later losses have drifted apart, as they do."""
    dump = {name: rounded(one, seed) for name, one in gradients.items()}
    dump |= {f"gradient_noise/{name.partition('/')[2]}": np.array(noise) for name in gradients}
    losses = {"loss_0": rounded(np.array([2.3]), seed), "loss_4": np.array([2.0 + 0.1 * seed**3], np.float32)}
    truth = {**gradients, "loss_0": np.array([2.3]), "loss_4": np.array([2.0]) if last is None else last}
    return Stage(
        arrays=losses, tensors=dump, truth=truth, noise={"gradient/b": 1e-17, "gradient/a": 1e-15, "loss_4": 1e-12}
    )


def test_what_rounding_has_grown_to_after_updates_does_not_count(tmp_path):
    found = compare(tmp_path, "backward", backward(1), backward(2))
    assert found.accepted, found.reason


def test_a_gradient_or_a_later_loss_that_differs_in_float64_is_refused(tmp_path):
    wrong = {**GRADIENTS, "gradient/b": GRADIENTS["gradient/b"] * 1.001}
    found = compare(tmp_path / "a", "backward", backward(1), backward(2, wrong))
    assert "float64 differs: gradient/b" in found.reason, "it is far below the largest gradient"
    found = compare(tmp_path / "b", "backward", backward(1), backward(2, last=np.array([2.0 + 1e-8])))
    assert "float64 differs: loss_4" in found.reason


def train(losses=LOSSES, metric=80.0, seeds=None, truth=LOSSES, details=None) -> Stage:
    tensors = {"loss": np.array(losses), "envelope": LOSSES + np.linspace(1e-7, 1e-5, 10) * np.ones((3, 1))}
    if seeds is not None:
        tensors["seeds/acc"] = np.array(seeds, np.float32)
    return Stage(
        arrays={"acc": np.array([metric], np.float32)},
        tensors=tensors,
        truth={"loss": truth},
        noise={"loss": 1e-14},
        details=details or {},
    )


SEEDS = 80 + 0.02 * RNG.standard_normal(12)
TRAININGS = {
    "rounding": (train(), train(losses=LOSSES + 1e-7, metric=80.1), True, "float64"),
    "equal losses": (train(), train(metric=80.1), True, "last places"),
    "another rate": (train(), train(losses=LOSSES + 1e-7, truth=LOSSES + 1e-6), False, "differ in float64"),
    "out of the envelope": (train(), train(losses=LOSSES + 1e-3), False, "left the envelope"),
    "a metric that moved": (train(), train(losses=LOSSES + 1e-7, metric=81.0), False, "acc moved from 80 to 81"),
    "other files": (
        train(details={"batches": "a", "losses": [1.5]}),
        train(losses=LOSSES + 1e-7, details={"batches": "b", "losses": [1.6]}),
        False,
        "other batches",
    ),
    "equivalent runs": (
        train(seeds=SEEDS),
        train(losses=LOSSES + 0.5, truth=LOSSES + 0.5, metric=83.0, seeds=SEEDS[::-1] + 0.01),
        True,
        "equivalence",
    ),
    "different runs": (train(seeds=SEEDS), train(losses=LOSSES + 1e-7, seeds=SEEDS - 1.0), False, "acc is different"),
    "too few runs": (
        train(seeds=[80.0, 82.0]),
        train(losses=LOSSES + 0.5, truth=LOSSES + 0.5, seeds=[81.0, 79.0]),
        False,
        "more seeds a side needed",
    ),
}


@pytest.mark.parametrize("what", TRAININGS)
def test_trainings(tmp_path, what):
    if "seeds/acc" in TRAININGS[what][0].tensors:
        pytest.importorskip("scipy")
    old, new, accepted, words = TRAININGS[what]
    found = compare(tmp_path, "train", old, new)
    assert found.accepted is accepted, found
    assert words in f"{found.how}: {found.reason}"


def test_data_must_be_equal_to_the_last_places(tmp_path):
    images = np.random.default_rng(3).random((2, 3, 4), np.float32)
    labels = np.array([1, 2])

    def data(images, labels, files=("a", "b")):
        arrays = {"dataloader_0": images, "label_0": labels, "length": np.array([2])}
        return Stage(arrays=arrays, details={"files": list(files)})

    old = data(images, labels)
    assert compare(tmp_path / "a", "data", old, data(np.nextafter(images, np.float32(2)), labels)).accepted
    assert not compare(tmp_path / "b", "data", old, data(images + np.float32(1 / 255), labels)).accepted
    found = compare(tmp_path / "c", "data", old, data(np.nextafter(images, np.float32(2)), labels[::-1]))
    assert "label_0 differs" in found.reason
    assert compare(tmp_path / "d", "data", old, data(images, labels, ("a", "c"))).reason == "other files"


def test_random_draws_need_the_same_distribution_only(tmp_path):
    def draws(scale, seed):
        numbers = np.random.default_rng(seed).random((400, 1)) * scale
        arrays = {"length": np.array([9]), "draw/share": numbers}
        return Stage(arrays=arrays, details={"alpha": 1e-3, "augmentation": True})

    found = compare(tmp_path / "a", "train_data", draws(1, 1), draws(1, 2))
    assert (found.accepted, found.how) == (True, "tests")
    found = compare(tmp_path / "b", "train_data", draws(1, 1), draws(2, 2))
    assert not found.accepted
    assert "train_data/share: other distributions" in found.reason


def test_a_stage_that_is_gone_and_weights_nobody_judged_are_refused(tmp_path):
    metric = Stage(arrays={"acc": np.array([80.0], np.float32)})
    old = bundle(tmp_path / "old", forward=forward(rounded(LOGITS)), metric=metric)
    new = bundle(tmp_path / "new", metric=metric)
    assert [one.stage for one in compare_bundles(old, new, RULES) if not one.accepted] == ["forward"]
    other = bundle(tmp_path / "other", digest="v", metric=metric)
    assert [one.stage for one in compare_bundles(new, other, RULES) if not one.accepted] == ["weights"]
