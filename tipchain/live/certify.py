"""What a PASS is worth: faults planted into copies of a port, and which of them would have been caught."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tipchain.live.align import align
from tipchain.live.faults import LOSS, OPTIMIZER, SCHEDULE, Fault, choose, faults_of
from tipchain.live.report import AlignmentReport
from tipchain.outcome import ExitCode, Outcome
from tipchain.parity.locate.sides import PaddleSide, TorchSide, name_alike
from tipchain.parity.pieces.optimizer_builders import build_both
from tipchain.progress import interrupted

MOST = 24
"""Faults that are planted unless more are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What became of one planted fault.

    Attributes:
        code: its slug.
        piece: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"schedule"``.
        port_path: the layer it was planted into.
        what: what was changed.
        caught: a stage failed.
        stages: the stages that failed.
        located: the layer that was named is the one; None for other pieces.
    """

    code: str
    piece: str
    port_path: str
    what: str
    caught: bool
    stages: tuple[str, ...]
    located: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How well a comparison sees.

    Attributes:
        report: of the port as it is.
        planted: every fault that was planted; empty where the port itself does not pass.
        possible: how many faults could be planted in all.
    """

    report: AlignmentReport
    planted: tuple[Planted, ...]
    possible: int

    @property
    def exit_code(self) -> ExitCode:
        """The report's, and FAILED where nothing that was planted is caught."""
        if self.report.exit_code is not ExitCode.PASSED or not self.planted:
            return self.report.exit_code if not self.report.passed else ExitCode.NOTHING_CHECKED
        return ExitCode.PASSED if any(one.caught for one in self.planted) else ExitCode.FAILED

    def to_document(self) -> dict[str, Any]:
        """Return it as values that JSON can hold, without the report's layers."""
        return {
            "passed": self.report.passed,
            "stages": {name: outcome.value for name, outcome in self.report.stages.items()},
            "possible": self.possible,
            "caught": sum(one.caught for one in self.planted),
            "planted": [asdict(one) for one in self.planted],
        }

    def __str__(self) -> str:
        """Return the verdict, a line per kind of fault, and what was not caught."""
        lines = [str(self.report).splitlines()[0]]
        if not self.report.passed:
            return "\n".join([*lines, "the port itself does not pass: nothing was planted"])
        caught = sum(one.caught for one in self.planted)
        lines.append(
            f"{caught} of {len(self.planted)} planted faults would be caught ({self.possible} are possible)"
        )
        by_code: dict[str, list[Planted]] = defaultdict(list)
        for one in self.planted:
            by_code[one.code].append(one)
        for code, ones in by_code.items():
            seen = sum(one.caught for one in ones)
            stages = ", ".join(dict.fromkeys(stage for one in ones for stage in one.stages))
            lines.append(f"  {seen:>3} of {len(ones):<3} {code}" + (f": {stages}" if stages else ""))
        lines += (
            f"not caught: {one.port_path or one.piece}: {one.what} ({one.code})"
            for one in self.planted
            if not one.caught
        )
        return "\n".join(lines)


def certify(
    reference: Any, port: Any, inputs: Mapping[str, Any], *, most: int = MOST,
    tell: Callable[[int, int], object] = lambda *_: None, **options: Any,
) -> Certificate:  # fmt: skip
    """Plant faults into copies of the port, one at a time, and see which of them `tipchain.align` catches.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``; neither is changed.
        inputs: as for `tipchain.align`.
        most: how many faults are planted at most: of each kind in turn, spread over the layers.
        tell: is told the number of each fault before it is planted, and how many there are.
        options: what else `tipchain.align` is given.

    Returns:
        The certificate; a port that does not pass by itself gets none.
    """
    report = align(reference, port, inputs, **{**options, "causes": False})
    if not report.passed:
        return Certificate(report=report, planted=(), possible=0)
    faults = faults_of(
        port, loss=options.get("loss") is not None, optimizer=_built(reference, port, options),
        schedule=(options.get("schedulers") or (None, None))[1] is not None,
    )  # fmt: skip
    planted: list[Planted] = []
    chosen = choose(faults, most)
    for number, fault in enumerate(chosen, 1):
        if interrupted.is_set():
            break
        tell(number, len(chosen))
        done = _plant(reference, port, inputs, options, fault)
        if not interrupted.is_set():  # else it was not looked at to its end
            planted.append(done)
    return Certificate(report=report, planted=tuple(planted), possible=len(faults))


def _built(reference: Any, port: Any, options: Mapping[str, Any]) -> Any:
    """Return the port's optimizer over a copy, to see what it has; None without one."""
    if options.get("optimizers") is None:
        return None
    sides = TorchSide(), PaddleSide()
    models = sides[0].copied(reference, double=False), sides[1].copied(port, double=False)
    return build_both(sides, options["optimizers"], models, options.get("schedulers"))[1]


def _plant(
    reference: Any, port: Any, inputs: Mapping[str, Any], options: Mapping[str, Any], fault: Fault
) -> Planted:
    """Plant one fault and align."""
    changed = {**options, "causes": False}
    model = port
    pairs = {LOSS: "loss", OPTIMIZER: "optimizers", SCHEDULE: "schedulers"}
    if fault.piece in pairs:
        ours, theirs = options[pairs[fault.piece]]
        changed[pairs[fault.piece]] = (ours, fault.plant(theirs))
    else:
        model = copy.deepcopy(port)
        name_alike(port, model)
        fault.plant(model)
    report = align(reference, model, inputs, **changed)
    stages = tuple(
        name for name, outcome in report.stages.items() if outcome in (Outcome.FAIL, Outcome.ERROR)
    )
    first = report.first_divergence
    located = None if fault.piece in pairs else first is not None and _names(first.port_path, fault.port_path)
    return Planted(
        code=fault.code, piece=fault.piece, port_path=fault.port_path, what=fault.what, caught=bool(stages),
        stages=stages, located=located,
    )  # fmt: skip


def _names(found: str, planted: str) -> bool:
    """Tell whether the layer that was named is the one, or the code around it."""
    return found == planted or f"{planted}.".startswith(f"{found}.") or not found
