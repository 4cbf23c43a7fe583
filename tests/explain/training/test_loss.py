"""Two losses, held against each other on the reference's outputs."""

from __future__ import annotations

from dataclasses import dataclass

import both_frameworks  # noqa: F401
import numpy as np
import pytest

from tipchain.errors import Outcome

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.standard_normal((8, 5)).astype(np.float32)
OTHER = RANDOM.standard_normal((8, 5)).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 0, 1, 2])
TARGETS = RANDOM.standard_normal((8, 5)).astype(np.float32)
SHARES = RANDOM.random((8, 5)).astype(np.float32)
MAPS = RANDOM.standard_normal((2, 5, 4, 4)).astype(np.float32)
PLACES = RANDOM.integers(0, 5, (2, 4, 4))
BITS = (SHARES < 0.4).astype(np.float32)
WEIGHTS = [0.5, 1.0, 2.0, 1.0, 3.0]


@dataclass(frozen=True)
class Case:
    ours: object
    theirs: object
    code: str = ""
    outputs: object = None
    labels: object = None
    words: str = ""


def our_ce(k, **options):
    if "weight" in options:
        options["weight"] = k.torch.tensor(WEIGHTS, dtype=k.torch.float64)
    return lambda o, y: k.our_loss.cross_entropy(o, y, **options)


def their_ce(k, **options):
    def loss(o, y):
        given = dict(options)
        if "weight" in given:
            given["weight"] = k.paddle.to_tensor(WEIGHTS, dtype=o.dtype)
        return k.their_loss.cross_entropy(o, y, **given)

    return loss


def focal(functional, output, bits):
    """Return torch's focal loss of alpha 0.25 and gamma 2."""
    chance = output.sigmoid()
    right = chance * bits + (1 - chance) * (1 - bits)
    entropy = functional.binary_cross_entropy_with_logits(output, bits, reduction="none")
    return ((0.25 * bits + 0.75 * (1 - bits)) * (1 - right) ** 2 * entropy).mean()


def both(ours, theirs, first, second):
    """Return losses of two outputs: the first's, and a share of the second's."""
    return (
        lambda o, y: ours(o[first], y) + 0.4 * ours(o[second], y),
        lambda o, y: theirs(o[first], y) + 0.4 * theirs(o[second], y),
    )


CLEAN = {
    "weighted, as modules that hold float32": lambda k: Case(
        k.torch.nn.CrossEntropyLoss(weight=k.torch.tensor(WEIGHTS)),
        k.paddle.nn.CrossEntropyLoss(weight=k.paddle.to_tensor(WEIGHTS)),
    ),
    "float32 only": lambda k: Case(
        lambda o, y: k.our_loss.cross_entropy(o, y, weight=k.torch.FloatTensor(WEIGHTS)), their_ce(k, weight=True)
    ),
    "ignored": lambda k: Case(our_ce(k, ignore_index=2), their_ce(k, ignore_index=2)),
    "large outputs": lambda k: Case(our_ce(k), their_ce(k), outputs=LOGITS * 60),
    "segmentation": lambda k: Case(our_ce(k), their_ce(k, axis=1), outputs=MAPS, labels=PLACES),
    "smooth": lambda k: Case(
        lambda o, y: k.our_loss.smooth_l1_loss(o, y, beta=0.3),
        lambda o, y: k.their_loss.smooth_l1_loss(o, y, delta=0.3) / 0.3,
        labels=TARGETS,
    ),
    "tuple": lambda k: Case(*both(our_ce(k), their_ce(k), 0, 1), outputs=(LOGITS, OTHER)),
    "mapping": lambda k: Case(*both(our_ce(k), their_ce(k), "out", "aux"), outputs={"out": LOGITS, "aux": OTHER}),
    "attributes": lambda k: Case(
        lambda o, y: our_ce(k)(o.logits, y), lambda o, y: their_ce(k)(o.logits, y), outputs={"logits": LOGITS}
    ),
    "without labels": lambda k: Case(lambda o, _: (o**2).mean(), lambda o, _: (o**2).mean(), labels=()),
}


def run(pieces, kits, case, **options):
    made = case(kits)
    outputs = LOGITS if made.outputs is None else made.outputs
    labels = LABELS if made.labels is None else made.labels
    return pieces.loss(made.ours, made.theirs, outputs, None if isinstance(labels, tuple) else labels, **options)


def codes(found):
    return [one.code for one in found.diagnoses]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLEAN)
def test_equal_losses_agree(pieces, kits, name):
    found = run(pieces, kits, CLEAN[name])
    assert found.outcome is Outcome.PASS, (found.reason, found.diagnoses)
    assert found.diagnoses == ()
    assert found.numbers["gradient_difference"] <= 1e-6
    assert ("in float32" in found.reason) == (name == "float32 only")


def test_softmax_that_cuts_low_outputs_is_told_but_no_fault(pieces, kits):
    """Paddle's softmax takes logits more than 64 below the largest for 64 below; the gradient is the same."""
    found = run(pieces, kits, CLEAN["large outputs"])
    assert abs(found.numbers["loss_difference"]) > 0.1
    assert "clips outputs at 64 below the largest" in found.reason


FAULTS = {
    "softmax twice": lambda k: Case(our_ce(k), lambda o, y: their_ce(k)(k.their_loss.softmax(o), y), "argument", words="`use_softmax`"),
    "no class weights": lambda k: Case(our_ce(k, weight=True), their_ce(k), "parting", words="weight=…"),
    "no auxiliary loss": lambda k: Case(
        both(our_ce(k), None, 0, 1)[0], lambda o, y: their_ce(k)(o[0], y), "parting", (LOGITS, OTHER)
    ),
    "auxiliary weight": lambda k: Case(
        both(our_ce(k), None, 0, 1)[0], lambda o, y: their_ce(k)(o[0], y) + 0.3 * their_ce(k)(o[1], y), "argument",
        (LOGITS, OTHER), words="it multiplies by 0.3 at",
    ),
    "gradient alone": lambda k: Case(
        our_ce(k),
        lambda o, y: their_ce(k)(o, y) * 0.25 + their_ce(k)(o, y).detach() * 0.75, "cut-gradient",
    ),
    "temperature": lambda k: Case(our_ce(k), lambda o, y: their_ce(k)(o / 4.0, y), "extra-call", words="it calls `divide` at test_loss.py"),
    "L1 for L2": lambda k: Case(k.our_loss.mse_loss, k.their_loss.l1_loss, "function", labels=TARGETS, words="it calls `l1_loss`"),
    "no gradient": lambda k: Case(our_ce(k), lambda o, y: their_ce(k)(o.detach(), y), "cut-gradient", words="`detach` at test_loss.py"),
    "no gradient of one output": lambda k: Case(
        both(our_ce(k), None, 0, 1)[0], lambda o, y: their_ce(k)(o[0], y) + 0.4 * their_ce(k)(o[1].detach(), y),
        "cut-gradient", (LOGITS, OTHER),
    ),
    "share of positive ones": lambda k: Case(
        lambda o, y: focal(k.our_loss, o, y), lambda o, y: k.their_loss.sigmoid_focal_loss(o, y, alpha=0.6, reduction="mean"),
        "argument", labels=BITS, words="`alpha` of `sigmoid_focal_loss` at test_loss.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_is_named(pieces, kits, name):
    case = FAULTS[name](kits)
    found = run(pieces, kits, FAULTS[name])
    assert found.outcome is Outcome.FAIL, found.reason
    assert codes(found) == [case.code], found.diagnoses
    assert found.diagnoses[0].explained is None or found.diagnoses[0].explained >= 0.99
    assert found.diagnoses[0].port_path == "loss"
    assert case.words in found.diagnoses[0].message
    assert f"expected {found.numbers['reference_loss']:.9g}, actual" in found.reason


def test_what_nothing_explains_is_shown(pieces, kits):
    """A hook squares the gradient of equal values."""

    def hooked(o, y):
        if not o.stop_gradient:
            o.register_hook(lambda gradient: gradient * gradient)
        return their_ce(kits)(o, y)

    found = pieces.loss(our_ce(kits), hooked, LOGITS, LABELS)
    (cause,) = found.diagnoses
    assert cause.code == "parting"
    assert "the values agree, and the gradients do not: the port's `cross_entropy(" in cause.message
    assert "; the gradient of output 0: 40 of 40 values, most at [" in cause.evidence
    assert "test_loss.py" in cause.message


@pytest.mark.parametrize("layer", [False, True])
def test_a_mean_of_what_paddle_does_not_ignore_in_the_count_is_named(pieces, kits, layer):
    """Of a term alone the factor of the whole loss tells; beside another one the call must be known."""
    labels = np.where(np.arange(8) % 3, LABELS, -100)
    held = kits.paddle.nn.CrossEntropyLoss()

    def built(o, y):
        return held(o, y) if layer else kits.their_loss.cross_entropy(o, y)

    found = pieces.loss(
        lambda o, y: kits.our_loss.cross_entropy(o, y) + o.square().mean(),
        lambda o, y: built(o, y) + o.square().mean(),
        LOGITS,
        labels,
    )
    (cause,) = found.diagnoses
    assert cause.code == "argument"
    assert "divides by all labels where `ignore_index` is negative, torch's by those that are another" in cause.message


def test_zero_losses_prove_nothing(pieces, kits):
    found = pieces.loss(lambda o, y: our_ce(kits)(o, y) * 0, lambda o, y: their_ce(kits)(o, y) * 0, LOGITS, LABELS)
    assert found.outcome is Outcome.ERROR
    assert "proves nothing" in found.reason


def test_a_loss_that_raises_is_an_error(pieces, kits):
    def broken(_, __):
        raise KeyError("aux")

    for losses in ((broken, their_ce(kits)), (our_ce(kits), broken)):
        found = pieces.loss(*losses, LOGITS, LABELS)
        assert found.outcome is Outcome.ERROR
        assert "KeyError: 'aux'" in found.reason
    assert pieces.loss(lambda o, y: 1.0, their_ce(kits), LOGITS, LABELS).outcome is Outcome.ERROR


def test_outputs_of_another_structure_and_order_of_axes(pieces, kits):
    moved = np.ascontiguousarray(MAPS.transpose(0, 2, 3, 1))
    losses = our_ce(kits), lambda o, y: their_ce(kits)(o["map"], y)
    found = pieces.loss(*losses, MAPS, PLACES, port_outputs={"map": moved})
    assert found.outcome is Outcome.PASS, found.reason
    halved = pieces.loss(losses[0], lambda o, y: losses[1](o, y) / 2, MAPS, PLACES, port_outputs={"map": moved})
    assert codes(halved) == ["extra-call"]
    other = pieces.loss(*losses, MAPS, PLACES, port_outputs={"map": moved[:1]})
    assert other.outcome is Outcome.ERROR
    assert "other shapes" in other.reason


def test_a_difference_as_small_as_float32_constants_is_none(pieces, kits):
    for factor, outcome in ((1 + 5e-8, Outcome.PASS), (1 + 1e-5, Outcome.FAIL)):
        found = pieces.loss(our_ce(kits), lambda o, y, f=factor: their_ce(kits)(o, y) * f, LOGITS, LABELS)
        assert found.outcome is outcome
