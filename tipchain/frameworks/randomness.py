"""Random numbers that both frameworks draw alike.

The frameworks draw different numbers from equal seeds. While a run follows a `Draws`, what they draw (masks of dropout, of
attention, of whole paths, noise) comes from NumPy's generator instead: the n-th draw of a port's run is the reference's n-th,
in the order of axes that the port has. torch is caught below its functions and Paddle below its own, so that it does not
matter how a model came by a function. What cannot be replaced (a kernel that draws inside) is noted: then a difference says
nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate
from math import isclose, prod
from types import FrameType
from typing import Literal

import numpy as np

from tipchain.framework_types import Array

Kind = Literal["uniform", "normal", "own"]
LIBRARIES = ("torch", "paddle", "numpy", "contextlib", "functools", "tipchain")
"""Packages whose lines draw for others."""
MODELS = "paddle.vision.models."
"""Their modules whose code is a model's."""
LEVELS = 2.0**16
"""How many different uniform numbers there are. Between two of them lies no probability that a person writes: ``u >= p`` and
``floor(1 - p + u)`` are then the same mask, whatever they are computed in."""
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
"""Functions of both frameworks that have a switch of their own."""
SAME_RATE = 1e-6
"""How far apart the rates of two draws may be that are the same: some layers keep theirs in float32."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Some random numbers that a model drew at once.

    Attributes:
        kind: what they are made of; ``"own"``: the framework drew them itself.
        shape: of the tensor.
        rate: the probability that an element is dropped, of a mask; None of other numbers.
        place: the file and line of the model's code that drew; None where that is not known.
    """

    kind: Kind
    shape: tuple[int, ...]
    rate: float | None = None
    place: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def fits(self, other: Draw) -> bool:
        """Tell whether one set of numbers can be both draws."""
        return self.kind == other.kind != "own" and self.size == other.size

    def is_as_frequent(self, other: Draw) -> bool:
        """Tell whether two masks drop the same share, as far as both are known to be masks."""
        return self.rate is None or other.rate is None or isclose(self.rate, other.rate, abs_tol=SAME_RATE)

    @property
    def is_noise(self) -> bool:
        """Whether these are numbers of a distribution, not known to be a mask."""
        return self.kind != "own" and self.rate is None

    def __str__(self) -> str:
        what = f"{self.kind} numbers" if self.is_noise else "a mask"
        return f"{what} of shape {list(self.shape)}{'' if self.rate is None else f' with p={self.rate:g}'}"


class Draws:
    """The random numbers of one run; the n-th are the same whoever asks, given the seed and the shape.

    Args:
        seed: of the numbers.
        follows: the reference's run, whose numbers these are where they fit.
        partners: which draw of the reference's is which of these; None: they belong together by their order.
        start: the number of the first, for a run of what was a part of another.
        small: a mask keeps where the numbers are small, not where they are large.
        even: numbers of the reference's draws whose elements are all equal, so that a mask keeps all.
    """

    def __init__(
        self,
        *seed: int,
        follows: Draws | None = None,
        partners: dict[int, int] | None = None,
        start: int = 0,
        small: bool = False,
        even: frozenset[int] = frozenset(),
    ) -> None:
        self.seed, self.follows, self._planned, self._start = seed, follows, partners is not None, start
        self.small, self.even = small, even
        self.made: list[Draw] = []
        self.partners: dict[int, int] = {} if partners is None else partners

    @property
    def number(self) -> int:
        """The number of the next draw."""
        return self._start + len(self.made)

    def again(self, start: int = 0) -> Draws:
        """Return the same numbers, from one of them on."""
        known = self.partners if self.follows is not None else None
        return Draws(*self.seed, follows=self.follows, partners=known, start=start, small=self.small, even=self.even)

    def of_step(self, step: int, follows: Draws | None = None) -> Draws:
        """Return other numbers, for a step of a training, that belong together as these do."""
        known = None if follows is None or self.in_order() else self.partners
        return Draws(*self.seed, step, follows=follows, partners=known, small=self.small, even=self.even)

    def rewind(self) -> None:
        """Begin once more."""
        self.made.clear()

    def uniform(self, shape: Sequence[int], rate: float | None = None) -> Array:
        """Return float32 numbers between 0 and 1, neither included."""
        return self._next(Draw("uniform", tuple(shape), rate, _place()))

    def normal(self, shape: Sequence[int]) -> Array:
        """Return float32 numbers of mean 0 and variance 1."""
        return self._next(Draw("normal", tuple(shape), None, _place()))

    def kept(self, shape: Sequence[int], rate: float) -> Array:
        """Return float32 ones where a value is kept, zeros where it is dropped with the probability ``rate``."""
        drawn = self.uniform(shape, rate)
        return np.asarray(drawn < 1 - rate if self.small else drawn >= rate, dtype=np.float32)

    def own(self, shape: Sequence[int] = ()) -> None:
        """Note numbers that the framework draws itself."""
        self.made.append(Draw("own", tuple(shape), None, _place()))

    def in_order(self) -> bool:
        """Tell whether each draw is the reference's of that number, and none of the reference's is left."""
        other = self.follows
        return other is None or (len(self.made) == len(other.made) and all(map(Draw.fits, self.made, other.made)))

    def comparable(self, ours: range, theirs: range) -> bool:
        """Tell whether a difference between parts of both runs can be due to anything but random numbers."""
        if self.follows is None:
            return True
        made = self.follows.made
        mine = [self.made[one] for one in theirs]
        if any(one.kind == "own" for one in (*mine, *(made[one] for one in ours))):
            return False
        known = set(self.partners.values())
        alone = [one for one in ours if one not in known], [one for one in theirs if one not in self.partners]
        return not (alone[0] and alone[1])

    def mixed(self, theirs: range) -> bool:
        """Tell whether a mask of one side is made by hand, of numbers, on the other: which of them it keeps is not known."""
        made = [] if self.follows is None else self.follows.made
        both = ((self.made[one], made[self.partners[one]]) for one in theirs if one in self.partners)
        return any((one.rate is None) != (other.rate is None) for one, other in both)

    def unclear(self) -> frozenset[int]:
        """Return the reference's draws of which nobody knows which element is which of these: shapes do not tell."""
        made = [] if self.follows is None else self.follows.made
        return frozenset(
            ours for its, ours in self.partners.items() if not _tells(made[ours].shape, self.made[its].shape)
        )

    def _next(self, draw: Draw) -> Array:
        number = self.number
        self.made.append(draw)
        if self.follows is None:
            return self.numbers(number, draw)
        found = self.partners.get(number)
        if found is None and not self._planned and number < len(self.follows.made):
            found = number if draw.fits(self.follows.made[number]) else None
        if found is None:
            return self.numbers(number, draw)
        self.partners[number] = found
        return arranged(self.follows.numbers(found, self.follows.made[found]), draw.shape)

    def numbers(self, number: int, draw: Draw) -> Array:
        """Return the numbers of one draw, given its number."""
        if self.follows is None and number in self.even:
            return np.full(draw.shape, 0.5 / LEVELS if self.small else 1 - 0.5 / LEVELS, np.float32)
        generator = np.random.default_rng((*self.seed, number))
        if draw.kind == "normal":
            return generator.standard_normal(draw.shape, dtype=np.float32)
        drawn: Array = generator.integers(0, int(LEVELS), draw.shape, dtype=np.uint16)
        return (drawn.astype(np.float32) + np.float32(0.5)) / np.float32(LEVELS)


def _place() -> tuple[str, int] | None:
    """Return the innermost line that runs which is no library's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in LIBRARIES or module.startswith(MODELS):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _tells(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Tell whether one shape says which axis of it is which of another."""
    ours, theirs = ([size for size in one if size != 1] for one in (shape, other))
    return ours == theirs or (sorted(ours) == sorted(theirs) and len({*ours}) == len(ours))


def arranged(values: Array, shape: Sequence[int]) -> Array:
    """Return numbers in another shape of the same size: axes in another order, or split, joined, of size 1."""
    wanted = [size for size in shape if size != 1]
    plain = values.reshape([size for size in values.shape if size != 1])
    if sorted(plain.shape) == sorted(wanted):
        free = list(range(plain.ndim))
        axes = []
        for size in wanted:
            axes.append(next(axis for axis in free if plain.shape[axis] == size))
            free.remove(axes[-1])
        plain = plain.transpose(axes)
    return plain.reshape(tuple(shape))


def partners_of(ours: Sequence[Draw | Hashable], theirs: Sequence[Draw | Hashable]) -> dict[int, int]:
    """Return which draw of the reference's belongs to which of the port's, by their numbers among all draws.

    Both come in order, with marks of where they stand in between.
    """
    mine, other = ([(one.kind, one.size) if isinstance(one, Draw) else one for one in side] for side in (ours, theirs))
    # How many draws come before each event.
    numbers = [list(accumulate((isinstance(one, Draw) for one in side), initial=0)) for side in (ours, theirs)]
    found = {}
    for block in SequenceMatcher(a=mine, b=other, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            one, its = ours[block.a + step], theirs[block.b + step]
            if isinstance(one, Draw) and isinstance(its, Draw) and one.fits(its):
                found[numbers[1][block.b + step]] = numbers[0][block.a + step]
    return found


@contextmanager
def attributes(holder: object, /, **values: object) -> Iterator[None]:
    """Set attributes of a layer, a module or a class for a while."""
    absent = object()
    own = vars(holder) if isinstance(holder, type) else {name: getattr(holder, name, absent) for name in values}
    held = {name: own.get(name, absent) for name in values}
    try:
        for name, value in values.items():
            setattr(holder, name, value)
        yield
    finally:
        for name, value in held.items():
            delattr(holder, name) if value is absent else setattr(holder, name, value)


def switched_off(functional: object) -> AbstractContextManager[None]:
    """Return a context in which the functions for dropout of an ``nn.functional`` drop nothing in either mode."""

    def in_eval_mode(original: Callable[..., object]) -> Callable[..., object]:
        signature = inspect.signature(original)

        def replacement(*args: object, **kwargs: object) -> object:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["training"] = False
            return original(*bound.args, **bound.kwargs)

        return replacement

    there = (name for name in DROPOUTS if hasattr(functional, name))
    return attributes(functional, **{name: in_eval_mode(getattr(functional, name)) for name in there})
