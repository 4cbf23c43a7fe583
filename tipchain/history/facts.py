"""What the history keeps of a night or a report, before it is rows of tables; and as JSON, for what has to wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tipchain.nightly.shards import ShardPart
from tipchain.outcome import Outcome

Kind = Literal["night", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where something ran.

    Attributes:
        name: the host's.
        machine_class: what makes times comparable: processor, cores, GPUs; "" where it is not known.
    """

    name: str = ""
    machine_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFacts:
    """A night, or a single report.

    Attributes:
        key: what it is told from all others by; adding the same key again adds nothing.
        kind: a night, or a single run.
        name: what users call it.
        title: what it is compared within: the manifest's name, or the report's title and mode.
        began: seconds since 1970, by which entries are ordered.
        started: the same as ISO 8601, as it was written.
        seconds: how long it took; 0 where that is not known.
        finished: whether it came to its end: neither interrupted nor still going on.
        commit: the git commit, with ``-dirty`` for local changes; "" where it is not known.
        root: the project's folder.
        machine: where the coordinator ran.
        environment: by name: versions, devices, settings.
        part: which share of a night it is; None for all else.
    """

    key: str
    kind: Kind
    name: str
    title: str
    began: float
    started: str
    seconds: float = 0.0
    finished: bool = True
    commit: str = ""
    root: str = ""
    machine: Machine = field(default_factory=Machine)
    environment: Mapping[str, str] = field(default_factory=dict)
    part: ShardPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """One command of a chain; see `tipchain.chain.result.Result`."""

    id: str
    step: str
    argv: tuple[str, ...]
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    log: str = ""
    reused: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFacts:
    """One judgement about a tensor; see `tipchain.numbers.verdicts.Verdict` and `tipchain.numbers.compare.TensorDiff`.

    Attributes:
        tensors: dtypes and shapes of both sides, as ``float32[4, 10]``; "" where nothing was compared. The numbers
            below are NaN then.
    """

    subject: str
    outcome: Outcome
    reason: str = ""
    finite: bool = True
    tensors: str = ""
    size: int = 0
    mean_abs: float = float("nan")
    max_abs: float = float("nan")
    min_abs: float = float("nan")
    max_rel: float = float("nan")
    needed_atol: float = float("nan")
    rtol: float = float("nan")
    expected_max_abs: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFacts:
    """What makes verdicts of an item fail; see `tipchain.explain.findings.Diagnosis`.

    Attributes:
        stage: the first stage that it makes fail.
        code: a slug: ``epsilon``, ``transposed-weight``.
        layer: the port's layer, or ``loss``, ``optimizer`` and the like; "" for the model itself.
        message: one sentence: what is wrong.
        fix: what to change.
        file: of the port's line to change; "" where it is not known.
        line: its number; 0 where it is not known.
        explained: the fraction of the error that it explains; NaN where nothing was run to know.
        checks: how many verdicts fail because of it.
    """

    stage: str
    code: str
    layer: str
    message: str
    fix: str = ""
    file: str = ""
    line: int = 0
    explained: float = float("nan")
    checks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFacts:
    """How an item ended; see `tipchain.nightly.records.ItemRecord`.

    Attributes:
        chain: the kind of chain (`tipchain.chain.kinds`); "" for what is none, or where nobody said so.
        environment: the versions that its report names.
        causes: why it failed, the one that comes first first.
    """

    id: str
    outcome: Outcome
    attempt: int = 1
    reason: str = ""
    exit_code: int | None = None
    signal: int = 0
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    machine: Machine = field(default_factory=Machine)
    executor: str = ""
    log: str = ""
    report: str = ""
    chain: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[CommandFacts, ...] = ()
    verdicts: tuple[VerdictFacts, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[CauseFacts, ...] = ()


def facts_json(facts: EntryFacts | ItemFacts) -> dict[str, Any]:
    """Return facts as values for JSON (with Python's ``NaN`` and ``Infinity``)."""

    def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value.value if isinstance(value, Outcome) else value for name, value in pairs}

    return asdict(facts, dict_factory=plain)


def parse_entry(data: dict[str, Any]) -> EntryFacts:
    """Return what `facts_json` was given.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    part = ShardPart(**data["part"]) if data.get("part") else None
    return EntryFacts(**{**data, "machine": Machine(**data["machine"]), "part": part})


def parse_item(data: dict[str, Any]) -> ItemFacts:
    """Return what `facts_json` was given.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    commands = (
        CommandFacts(**{**one, "argv": tuple(one["argv"]), "outcome": Outcome(one["outcome"])})
        for one in data["commands"]
    )
    verdicts = (VerdictFacts(**{**one, "outcome": Outcome(one["outcome"])}) for one in data["verdicts"])
    return ItemFacts(
        **{
            **data,
            "outcome": Outcome(data["outcome"]),
            "machine": Machine(**data["machine"]),
            "commands": tuple(commands),
            "verdicts": tuple(verdicts),
            "causes": tuple(CauseFacts(**one) for one in data.get("causes", ())),
        }
    )
