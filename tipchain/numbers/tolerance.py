"""Accepted differences: the default for every tensor of every stage, and the rounding between two computations of the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tipchain.errors import UsageError

# What rounding makes of two computations of the same, and how much of a difference a cause must explain.
#
# Each number has one derivation, and every comparison takes the one that its numbers went through: float64 all the way,
# constants that a framework keeps in float32 meanwhile, or float32 all the way.


UNIT = 2.0**-24
"""Relative error of a single rounding to float32: half a unit in its last place (IEEE 754, 24 significant bits)."""
CONSTANT = 4 * UNIT
"""Relative error that a constant in float32 makes: it is rounded, and so are three operations with it at most (Paddle keeps
learning rates, momentums, decays, smoothing, one over a pool's size and ratios of resizing so)."""
SAME_SINGLE = 16 * UNIT
"""Relative difference up to which results in float32 are the same: 256 roundings that add up as a random walk does."""
NOISE = 2.0**-40
"""Relative error of float64 through a whole model: ResNet-50's, measured, is below 1e-12, which is this."""
SAME_DOUBLE = 2.0**-32
"""Relative difference up to which results in float64 are the same: as far, in octaves, from the noise of float64 as
from the least that a constant in float32, or anything else that is wrong, changes."""
SAME_ENLARGED = 10 * SAME_SINGLE
"""The same of results that a division by a number of 0.1 or more has enlarged: samples by a standard deviation (ImageNet: 0.22),
metrics and angles by a count or a length."""
ROUGH = 2.0**-10
"""Relative difference that no rounding of float32 makes in an ill-conditioned layer either: the spacing of float16 and of
TF32, which have 10 bits after the point."""

EXPLAINED = 0.99
"""Share of a difference that a cause takes away. By chance a fitted number leaves 1 % of ``n`` independent differences
about once in 100^(n - 1) times: with 5 of them once in 10^8."""
FEW = 5
"""Fewer numbers than this follow any rule, by that reckoning."""
REMAINDER = (1 - EXPLAINED) ** 2
"""Share left by a cause that counts as nothing left: another one, taking 99 % of the rest of a first, would leave as much."""
WHOLE = 1 - REMAINDER
"""Share from which on a cause leaves nothing for another one."""
TINY = 2.0**-1022
"""Stands for zero under a division: float64's least normal number."""
LOGIT_FLOOR = 64.0
"""Paddle's softmax takes logits more than this below the largest for this much below."""
ULPS = 16
"""Units in the last place by which parameters of two runs of the reference are apart, where the case does not say: a nudge that
meets the kinks of ReLUs as often as a port whose every operation rounds otherwise."""


Method = Literal["mean", "min", "max", "all"]
METHODS: tuple[Method, ...] = ("mean", "min", "max", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Either reprod_log's rule (``method`` and ``threshold``) or ``rtol`` and ``atol``.

    With a method, the named statistic of ``|expected - actual|`` must be ``<= threshold``
    (``all``: each of min, max and mean). With ``rtol`` and ``atol`` every element must satisfy
    ``|expected - actual| <= atol + rtol * |expected|`` (numpy.testing.assert_allclose).

    Attributes:
        method: the statistic of the absolute difference. It is not used with ``rtol`` and ``atol``.
        threshold: the largest accepted value of the statistic.
        rtol: the relative tolerance. It needs ``atol``.
        atol: the absolute tolerance. It needs ``rtol``.
        equal_nan: whether NaN at the same positions counts as equal.
        reason: the reason of a tolerance that is looser than the default.

    Raises:
        UsageError: unknown method, negative or NaN bound, half of rtol/atol, or both rules at once.
    """

    method: Method = "mean"
    threshold: float | None = None
    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    reason: str = ""
    _methods: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"unknown method {self.method!r}, expected one of: {', '.join(METHODS)}")
        if (self.rtol is None) != (self.atol is None):
            raise UsageError("rtol and atol must be given together")
        if (self.rtol is None) == (self.threshold is None):
            raise UsageError("a tolerance needs either a threshold or rtol and atol, not both")
        for name in ("threshold", "rtol", "atol"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, (int, float)) or not value >= 0:
                raise UsageError(f"{name} must be a number >= 0, found {value!r}")
        methods: tuple[str, ...] = ("min", "max", "mean") if self.method == "all" else (self.method,)
        if self.threshold is None:
            methods, text = (), f"rtol {self.rtol:g}, atol {self.atol:g}"
        else:
            text = f"{' and '.join(methods)} <= {self.threshold:g}"
        # Thousands of verdicts ask for these.
        object.__setattr__(self, "_methods", methods)
        object.__setattr__(self, "_text", text + (", NaN equals NaN" if self.equal_nan else ""))

    @property
    def methods(self) -> tuple[str, ...]:
        """The statistics held against the threshold, in reprod_log's order. None with ``rtol`` and ``atol``."""
        return self._methods

    def __str__(self) -> str:
        return self._text


EXACT = Tolerance(method="max", threshold=0.0)
LOSS_GRADIENT = Tolerance(rtol=1e-4, atol=0.0)
"""rtol is of the largest RMS among the gradients of one loss."""

# First match wins. Sources: the tutorial's scripts (1e-5), the reproduction guide (1e-6, 0.15 points).
DEFAULTS: Mapping[str, Mapping[str, Tolerance]] = {
    "forward": {"*": Tolerance(threshold=1e-5)},
    "data": {"length": EXACT, "label_*": EXACT, "*": Tolerance(threshold=1e-6)},
    "metric": {"*": Tolerance(threshold=1e-6)},
    # Correct losses differ by 1e-7 of the gradient, behind models whose outputs differ by 1e-6 by 1e-6.
    "loss": {
        "gradient": LOSS_GRADIENT,
        "gradient/*": LOSS_GRADIENT,
        "*/gradient/*": LOSS_GRADIENT,
        "*": Tolerance(threshold=1e-5),
    },
    # Of the largest element of an update: Paddle's Adam keeps 1 - beta2 in float32, 7e-6 at 0.999; all others 5e-7.
    "optimizer": {"*": Tolerance(rtol=5e-5, atol=0.0)},
    "lr": {"*": Tolerance(rtol=1e-6, atol=0.0)},
    # Of the largest movement that decay makes; the rounding of what it is measured by is allowed besides.
    "regularization": {"*": Tolerance(rtol=1e-3, atol=0.0)},
    "backward": {
        # A rate is a plain number on both sides: 1e-5 would accept any rate at all.
        "lr_*": Tolerance(rtol=1e-6, atol=0.0),
        "loss_*": Tolerance(threshold=1e-5),
        "gradient": Tolerance(rtol=1e-4, atol=1e-9),
        "parameter": Tolerance(rtol=1e-2, atol=1e-9),
        "buffer": Tolerance(rtol=1e-5, atol=1e-7),
    },
    # Equal pixels, normalized in another order of operations (x/255 - m)/s and (x - 255 m)/(255 s), differ by 5e-7.
    "train_data": {"length": EXACT, "*label_*": EXACT, "*": Tolerance(rtol=1e-5, atol=1e-5)},
    # What is the same in every model but no constant (a table of sines) may round; constants are compared exactly.
    "init": {"*": Tolerance(rtol=1e-5, atol=1e-6)},
    "train": {"*": Tolerance(threshold=0.15)},
    "inference": {"*": Tolerance(threshold=1e-5)},
    "distributed": {
        "lr_*": Tolerance(rtol=1e-6, atol=0.0),
        "loss_*": Tolerance(rtol=1e-5, atol=1e-7),
        # Of the largest RMS update; AlexNet, MobileNetV3 and MVF need up to 1.5e-4, a summed loss makes it 0.5.
        "parameter": Tolerance(rtol=1e-2, atol=1e-9),
        "buffer": Tolerance(rtol=1e-5, atol=1e-7),
    },
}
STRICT: Mapping[str, Mapping[str, Tolerance]] = {"forward": {"*": Tolerance(threshold=1e-6)}}


def tolerance_for(stage: str, key: str, own: Mapping[str, Tolerance], *, strict: bool = False) -> Tolerance:
    """Return a tensor's tolerance: the case's first match, else the stage's default.

    Args:
        stage: the stage's name.
        key: the tensor's key; ``gradient``, ``parameter`` and ``buffer`` stand for those groups.
        own: the case's rules for this stage, by fnmatch pattern; the first match wins.
        strict: use the guide's tighter forward threshold.
    """
    defaults = STRICT.get(stage, DEFAULTS[stage]) if strict else DEFAULTS[stage]
    for rules in (own, defaults):
        for pattern, tolerance in rules.items():
            if fnmatchcase(key, pattern):
                return tolerance
    return EXACT


def is_looser(tolerance: Tolerance, default: Tolerance) -> bool:
    """Tell whether ``tolerance`` accepts more than ``default``, and so needs a reason."""
    if tolerance.equal_nan and not default.equal_nan:
        return True
    if tolerance.threshold is not None and default.threshold is not None:
        if tolerance.threshold > default.threshold:
            return True
        return tolerance.method != default.method and tolerance.method not in ("max", "all")
    if tolerance.rtol is not None and default.rtol is not None:
        return tolerance.rtol > default.rtol or (tolerance.atol or 0.0) > (default.atol or 0.0)
    return True
