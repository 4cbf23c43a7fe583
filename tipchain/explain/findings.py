"""Findings about a port beside numbers: construction's differences, causes, and a piece's outcome."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tipchain.core.blame import is_users, one_line
from tipchain.errors import Outcome, TipchainError
from tipchain.numbers.tolerance import EXPLAINED

Effect = Literal["here", "elsewhere", "none"]
"""Effect of a construction's difference: on these inputs, on others or a training, or none."""


PIECES = ("loss", "optimizer", "scheduler", "metric", "data", "train_data", "step", "predict")
"""Subjects of causes besides layers, as `Diagnosis.port_path` has them."""
KINDS = tuple(
    """
        argument function operand operand-order missing-call extra-call call-order
        parameter buffer cut-gradient setting structure precision nan parting
    """.split()
)
"""Kinds of causes; ``parting`` shows where both programs part, both statements and their values."""
SIDE_NAMES = ("reference", "port")
"""Names of torch's side and Paddle's in messages."""


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

    @classmethod
    def at(cls, file: str, line: int) -> SourceLine:
        """Return a line of a file that Python has read."""
        return cls(file=str(Path(file).resolve()), line=line, code=linecache.getline(file, line).strip())

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """``file:line`` as messages have it: the file's name alone."""
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEdit:
    """A change of one call in the statement of a cause.

    Attributes:
        kind: ``"pass"`` arguments to the call; ``"write"`` something for its function, an index or an operator; ``"make"`` a layer
            of another class; ``"remove"`` the call; apply a function ``"before"`` or ``"after"`` it; give its tensors in another
            ``"order"``; ``"set"`` an attribute.
        call: the function, class, layer, index or attribute that it is about.
        arguments: what it is given: names, and values as code.
        written: the function, class, index or value that is written.
        order: where each tensor stands now.
    """

    kind: Literal["pass", "write", "make", "remove", "before", "after", "order", "set"]
    call: str
    arguments: tuple[tuple[str, str], ...] = ()
    written: str = ""
    order: tuple[int, ...] = ()


CONSTRUCTED = "the reference is constructed this way"
"""Evidence of a cause that construction tells."""
BUILT = ("argument", "structure")
"""Kinds of differences between layers' own construction."""
UNEXPLAINED = ("unknown", "nan", "parting")
"""Kinds of diagnoses that only show the difference; their fraction is the best failed edit's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause that explains an error, or a difference of construction that is there before anything runs.

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
        edit: what to change in the statement at ``place``; None where that is no change of one call.
        corrected: the line at ``place`` as it should be; empty where it is not known.
        reference: of a difference of construction the reference's value, as torch would write it.
        port: the port's, as Paddle would.
        effect: ``"here"``: the results differ; ``"elsewhere"``: other inputs, another mode or a training would show it, and
            the message says which; ``"none"``: it changes no result and no training; told, but it fails nothing.
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
    edit: CodeEdit | None = None
    corrected: str = ""
    reference: str = ""
    port: str = ""
    effect: Effect = "here"

    @property
    def harmless(self) -> bool:
        """Whether it fails nothing."""
        return self.effect == "none"

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
        known = place is None or place.short in self.message
        return self.message + ("" if known else f" ({place})") + (f"; fix: {self.fix}" if self.fix else "")

    @property
    def bare_fix(self) -> str:
        """The fix without the line of code that it ends with, where a report shows that line beside it."""
        code = self.place.code.strip() if self.place else ""
        return self.fix.removesuffix(f": `{code}`") if code else self.fix

    def says(self, finding: Diagnosis) -> bool:
        """Tell whether it names the same difference of construction in the same layer."""
        return self.name == finding.name and finding.port_path in self.layers


def difference(
    name: str,
    values: tuple[str, str],
    message: str,
    fix: str,
    *,
    code: str = "argument",
    paths: tuple[str, str] = ("", ""),
    effect: Effect = "here",
    edit: CodeEdit | None = None,
) -> Diagnosis:
    """Return a difference of construction, given both values as the frameworks write them, and both layers' paths."""
    (reference, port), (ours, theirs) = values, paths
    found = of_piece(theirs, code, message, f"reference {reference}, port {port}", fix)
    return replace(found, name=name, reference_path=ours, reference=reference, port=port, effect=effect, edit=edit)


def shown_path(path: str) -> str:
    """Return the name of a port's layer in messages."""
    return f"`{path}`" if path else "the model itself"


def of_piece(path: str, code: str, message: str, evidence: str, fix: str) -> Diagnosis:
    """Return a diagnosis of one of `PIECES`, or of a layer of the port, of which no more is known."""
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


def source_of(value: object) -> SourceLine | None:
    """Return where a function, a class or a method begins; None where it has no source."""
    with suppress(OSError, TypeError, SyntaxError):
        file, (lines, number) = inspect.getsourcefile(value), inspect.getsourcelines(value)  # type: ignore[arg-type]
        return SourceLine(file=str(Path(file or "").resolve()), line=number, code=lines[0].strip())
    return None


def at_source(value: object) -> str:
    """Return `` at file:line`` of a function, a class or a method; empty where it has no source."""
    source = source_of(value)
    return "" if source is None else f" at {source.short}"


def failed_to_run(what: str, error: BaseException) -> PieceCheck:
    """Return the ERROR of something that raised; an error of tipchain's own says all itself."""
    reason = str(error) if isinstance(error, TipchainError) else f"{what} raised {one_line(error)}"
    return PieceCheck(outcome=Outcome.ERROR, reason=reason)


def raised_at(error: BaseException) -> SourceLine | None:
    """Return the last line of a user's code on the way to an error; None where there is none."""
    places = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
    own = [place for place in places if is_users(place[0])]
    return SourceLine.at(*own[-1]) if own else None
