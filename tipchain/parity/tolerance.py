"""What difference is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tipchain.errors import UsageError

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

    @property
    def methods(self) -> tuple[Literal["min", "max", "mean"], ...]:
        """The statistics that must not exceed the threshold, in reprod_log's order. None with ``rtol`` and ``atol``."""
        if self.threshold is None:
            return ()
        return ("min", "max", "mean") if self.method == "all" else (self.method,)

    def __str__(self) -> str:
        nan = ", NaN equals NaN" if self.equal_nan else ""
        if self.threshold is None:
            return f"rtol {self.rtol:g}, atol {self.atol:g}{nan}"
        return f"{' and '.join(self.methods)} <= {self.threshold:g}{nan}"
