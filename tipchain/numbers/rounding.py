"""What rounding makes of two computations of the same, and how much of a difference a cause must explain.

Each number has one derivation, and every comparison takes the one that its numbers went through: float64 all the way,
constants that a framework keeps in float32 meanwhile, or float32 all the way.
"""

from __future__ import annotations

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
"""Share that a cause leaves which is all there is: another one, taking 99 % of what a first has left, would leave as much."""
WHOLE = 1 - REMAINDER
"""Share from which on a cause leaves nothing for another one."""
TINY = 2.0**-1022
"""What stands for zero under a division: float64's least normal number."""
LOGIT_FLOOR = 64.0
"""Paddle's softmax takes logits more than this below the largest for this much below."""
ULPS = 16
"""Units in the last place by which parameters of two runs of the reference are apart, where the case does not say: a nudge that
meets the kinks of ReLUs as often as a port whose every operation rounds otherwise."""
