"""Where to look when backward fails: the reproduction guide's section 3.8, read off the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict
from tipchain.parity.judging.base import Judged
from tipchain.parity.settings.backward import TRAIN

STATISTICS = ("running_mean", "running_var")


def add_hints(judged: Judged, mode: str, other: Judged | None = None) -> Judged:
    """Say in which mode and from which iteration on the losses part, and what to look at first.

    Args:
        judged: the verdicts of one mode, subjects without a mode.
        mode: its name, or "" where it is not known.
        other: the verdicts of the mode that was judged before, if there was one.
    """
    hint = _Hint(judged, mode, other)
    first = next(filter(None, map(hint.of_kind, ("loss_", "parameter/", "buffer/"))), None)
    if first is None:
        return judged
    verdict, text = first
    changed = replace(verdict, reason=f"{verdict.reason}; {text}")
    return replace(judged, verdicts=tuple(changed if one is verdict else one for one in judged.verdicts))


class _Hint:
    """Finds the first verdict that a hint belongs to."""

    def __init__(self, judged: Judged, mode: str, other: Judged | None) -> None:
        self.judged, self.mode, self.other = judged, mode, other
        self.place = f"in {mode} mode " if mode else ""

    def of_kind(self, kind: str) -> tuple[Verdict, str] | None:
        """Return the first failed verdict of a kind with the hint for it, or None if none failed."""
        words: dict[str, Callable[[str], str]] = {
            "loss_": self._about_losses, "parameter/": self._about_updates, "buffer/": self._about_buffers,
        }  # fmt: skip
        for verdict in _failed(self.judged, kind):
            text = words[kind](_key(verdict))
            if text:
                return verdict, text
        return None

    def _about_losses(self, key: str) -> str:
        number = int(key.rpartition("_")[2])
        if number:
            return f"{self.place}the losses are equal until loss_{number - 1}: {self._cause(number)}"
        if self.mode == TRAIN and self.other is not None and not _failed(self.other, "loss_0"):
            return (
                "in train mode alone the first losses differ: look at BatchNorm (eps, the batch's statistics) and at "
                "random layers that are still on"
            )
        return f"{self.place}the first losses differ: look at forward and loss first"

    def _cause(self, number: int) -> str:
        rates = _failed(self.judged, "lr_")
        gradients = _failed(self.judged, "gradient/")
        if gradients:
            count = sum(_key(verdict).startswith("gradient/") for verdict in self.judged.verdicts)
            return f"the first gradients differ too, {len(gradients)} of {count}: look at the backward pass"
        if rates:
            return f"the learning rates differ from {_key(rates[0])} on: look at the schedule"
        known = "the first gradients and the learning rates agree: look at the optimizer"
        if number == 1:
            return f"{known}'s arguments (momentum, Nesterov, weight decay, clipping)"
        return (
            f"{known}'s state (momentum, Nesterov) and whether gradients are cleared before the next iteration; "
            "`backward: {dtype: float64}` tells whether it is rounding"
        )

    def _about_updates(self, key: str) -> str:  # noqa: ARG002
        if _failed(self.judged, "gradient/") or _failed(self.judged, "lr_"):
            return ""
        return (
            f"{self.place}the losses are close, the first gradients and the learning rates agree: look at the optimizer's "
            "arguments (momentum, weight decay, which parameters it has)"
        )

    def _about_buffers(self, key: str) -> str:
        if not key.endswith(STATISTICS):
            return ""
        return "look at BatchNorm's momentum, which is 1 - torch's in Paddle"


def _key(verdict: Verdict) -> str:
    return verdict.subject.partition("/")[2]


def _failed(judged: Judged, kind: str) -> Sequence[Verdict]:
    return [
        verdict
        for verdict in judged.verdicts
        if verdict.outcome is Outcome.FAIL and _key(verdict).startswith(kind)
    ]
