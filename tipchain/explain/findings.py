"""Findings about a port beside numbers: construction's differences, causes, and a piece's outcome."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tipchain.core.blame import one_line
from tipchain.errors import Outcome, TipchainError
from tipchain.numbers.tolerance import EXPLAINED

Effect = Literal["here", "elsewhere", "none"]
"""Effect of a construction's difference: on these inputs, on others or a training, or none."""


PIECES = ("loss", "optimizer", "scheduler", "metric", "data", "train_data", "step", "predict")
"""Subjects of causes besides layers, as `Diagnosis.port_path` has them."""
KINDS = (
    "argument",
    "function",
    "operand",
    "operand-order",
    "missing-call",
    "extra-call",
    "call-order",
    "parameter",
    "buffer",
    "cut-gradient",
    "setting",
    "structure",
    "precision",
    "nan",
    "parting",
)
"""Kinds of causes; ``parting`` shows where both programs part, both statements and their values."""
SIDE_NAMES = ("reference", "port")
"""Names of torch's side and Paddle's in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference that is there before anything runs: an argument, a parameter, a setting, a flag.

    Attributes:
        code: a slug: ``"epsilon"``, ``"momentum"``, ``"padding"``, ``"weight-decay"``.
        kind: what is set differently: ``"argument"`` of a layer, ``"parameter"``, ``"flag"``.
        reference_path: the layer in torch's model; empty for what belongs to no layer.
        port_path: the layer in Paddle's.
        reference: the reference's value, as torch would write it.
        port: the port's, as Paddle would.
        message: one sentence with both values.
        fix: what to write in the port.
        effect: ``"here"``: the results differ; ``"elsewhere"``: other inputs, another mode or a training would show it, and
            the message says which; ``"none"``: it changes no result and no training; told, but it fails nothing.
    """

    code: str
    kind: Literal["argument", "parameter", "flag"]
    reference_path: str = ""
    port_path: str = ""
    reference: str
    port: str
    message: str
    fix: str
    effect: Effect = "here"

    @property
    def harmless(self) -> bool:
        """Whether it fails nothing."""
        return self.effect == "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of a user's code.

    Attributes:
        file: its path; of a run's report below the project's folder, where it lies there.
        line: its number, from 1.
        code: what stands there; empty where that is not known.
    """

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"


CONSTRUCTED = "the reference is constructed this way"
"""Evidence of a cause that construction tells."""
UNEXPLAINED = ("unknown", "nan", "parting")
"""Kinds of diagnoses that only show the difference; their fraction is the best failed edit's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause that explains an error.

    Attributes:
        code: the kind, one of `KINDS`.
        name: the argument, function, operand, parameter or setting that it is about; empty where it has none.
        port_path: the layer, or one of `PIECES`.
        message: one sentence: what is wrong.
        evidence: what was tried, with numbers.
        explained: the fraction of the error that is gone under the hypothesis, from 0 to 1; None where it rests on
            a difference of construction alone.
        fix: the line to change.
        paths: all layers that have it, where it is the cause of several; ``port_path`` is the first.
        stage: the first stage that it makes fail; empty where it was not asked.
        reference_path: the layer in torch's model that was held against it; empty for the model itself and for pieces.
        place: the line of the port to change, or the one that makes the layer; None where it is not known.
        reference_place: the reference's.
        explains: the subjects of the verdicts of a run that fail because of it.
        run: how the models ran when it showed: ``"in train mode"``; empty for the inputs and the mode that were given.
    """

    code: str
    port_path: str
    message: str
    evidence: str
    explained: float | None = None
    fix: str
    paths: tuple[str, ...] = ()
    stage: str = ""
    reference_path: str = ""
    place: SourceLine | None = None
    reference_place: SourceLine | None = None
    explains: tuple[str, ...] = ()
    name: str = ""
    run: str = ""

    @property
    def is_known(self) -> bool:
        """Whether an edit, or the reference's tensors at the place that is shown, take the error away."""
        return self.code not in UNEXPLAINED or (self.explained or 0.0) >= EXPLAINED

    @property
    def layers(self) -> tuple[str, ...]:
        """All layers that have it, the first one first."""
        return self.paths or (self.port_path,)

    @property
    def summary(self) -> str:
        """The fault, its place, and its fix, in one line."""
        place = self.place
        known = place is None or f"{Path(place.file).name}:{place.line}" in self.message
        return self.message + ("" if known else f" ({place})") + (f"; fix: {self.fix}" if self.fix else "")

    def says(self, finding: Finding) -> bool:
        """Tell whether it names the same difference of construction in the same layer."""
        return self.name == finding.code and finding.port_path in self.layers


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """A possible fault, before it is known whether it explains anything.

    Attributes:
        code: the kind, one of `KINDS`.
        message: one sentence.
        fix: the line to change.
        name: the argument, function, operand, parameter or setting that it is about.
    """

    code: str
    message: str
    fix: str
    name: str = ""


def shown_path(path: str) -> str:
    """Return the name of a port's layer in messages."""
    return f"`{path}`" if path else "the model itself"


def of_piece(path: str, code: str, message: str, evidence: str, fix: str) -> Diagnosis:
    """Return a diagnosis of one of `PIECES`, which has no layer."""
    return Diagnosis(code=code, port_path=path, message=message, evidence=evidence, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceCheck:
    """The outcome of one piece: the loss, the optimizers, the schedules.

    Attributes:
        outcome: PASS, FAIL, or ERROR where it could not be found out.
        reason: one sentence, with both values where something differs.
        numbers: figures by name.
        curves: series by name.
        diagnoses: causes, the likeliest first; empty unless something differs.
        left_out: parameters of the reference that were not compared.
        excused: values differ for a reason that is no fault of the port's; nothing that follows from them fails.
    """

    outcome: Outcome
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    diagnoses: tuple[Diagnosis, ...] = ()
    left_out: tuple[str, ...] = ()
    excused: bool = False


def at_source(value: object) -> str:
    """Return `` at file:line`` of a function, a class or a method; empty where it has no source."""
    with suppress(OSError, TypeError):
        file, (_, line) = inspect.getsourcefile(value), inspect.getsourcelines(value)  # type: ignore[arg-type]
        return f" at {Path(file or '').name}:{line}"
    return ""


def parsed(value: object) -> tuple[int, ast.Module] | None:
    """Return the first line of a function or a class in its file, and its code; None where it has no source."""
    with suppress(OSError, TypeError, SyntaxError):
        lines, first = inspect.getsourcelines(value)  # type: ignore[arg-type]
        return first, ast.parse(textwrap.dedent("".join(lines)))
    return None


def only_return(function: object) -> tuple[int, str] | None:
    """Return the number and text of a function's one return statement; None where it has several, or no source."""
    code = parsed(function)
    found = [one.lineno for one in ast.walk(code[1]) if isinstance(one, ast.Return)] if code else []
    if code is None or len(found) != 1:
        return None
    number = code[0] + found[0] - 1
    return number, linecache.getline(inspect.getsourcefile(function) or "", number).strip()  # type: ignore[arg-type]


def failed_to_run(what: str, error: BaseException) -> PieceCheck:
    """Return the ERROR of something that raised; an error of tipchain's own says all itself."""
    reason = str(error) if isinstance(error, TipchainError) else f"{what} raised {one_line(error)}"
    return PieceCheck(outcome=Outcome.ERROR, reason=reason)
