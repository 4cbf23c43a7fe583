"""The items of a night: one process call each, their needs, which of them run, and nights in shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

from tipchain.core.store import digest
from tipchain.errors import Outcome, UsageError, suggestion

Kind = Literal["chain", "align", "command"]
REPORT, LOG, FOLDER, PYTHON = "{report}", "{log}", "{folder}", "{python}"
"""Texts in an item's call that stand for paths: of its attempt the JSON report, the log of its output and the folder;
and the interpreter that tipchain runs in there."""


def filled(words: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return words in which such texts are replaced by values."""
    found = list(words)
    for name, value in values.items():
        found = [word.replace(name, value) for word in found]
    return tuple(found)


CLUSTERS_OWN = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources of a cluster's node that Ray has names of its own for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The resources of a machine that an item takes while it runs.

    Attributes:
        cpus: slots; an item that wants more than a machine has runs alone on it.
        gpus: GPUs, leased.
        memory_mb: MiB; 0: not known.
        resources: what else it takes of a cluster's node, by name; this machine pays no heed to it.
    """

    cpus: int = 1
    gpus: int = 0
    memory_mb: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)


def kind_of_room(needs: Needs) -> tuple[str, ...]:
    """Return the names of the rare resources that an item needs; items that need others do not queue behind it."""
    return (*(["GPU"] if needs.gpus else []), *needs.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to run in a night.

    Attributes:
        id: ``alexnet[lite_train_lite_infer;cpu]``, with ``#2`` behind it for a repeat; unique in a plan.
        kind: a chain (``tipchain run``), a case (``tipchain align``), or any other command with tipchain's exit codes.
        subject: the model's or case's name, the same for every mode and device.
        source: the parameter file or case, below the root.
        mode: the TIPC mode; "" for a command without one.
        device: ``"cpu"`` or ``"gpu"``.
        repeat: from 1.
        tags: words it can be selected by.
        argv: the call; `REPORT`, `LOG`, `FOLDER` and `PYTHON` stand for paths, in the middle of a word too.
        cwd: the folder it runs in, below the root; ``"."`` is the root.
        env: variables that are set for it.
        timeout_s: seconds it may take.
        needs: what it takes of a machine.
        settled: the outcome of what cannot run here (data that is missing), and PASS of what can.
        reason: why it is settled; "" if it is not.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for what is none, and in nights of earlier tipchains.
    """

    id: str
    kind: Kind
    subject: str
    source: str
    mode: str
    device: Literal["cpu", "gpu"]
    repeat: int
    tags: tuple[str, ...]
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float
    needs: Needs = field(default_factory=Needs)
    settled: Outcome = Outcome.PASS
    reason: str = ""
    chain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a plan was cut.

    Attributes:
        ids: of all its items, in the plan's order.
        shares: of each of them the number of its share, from 1.
    """

    ids: tuple[str, ...]
    shares: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a cut that is none."""
        if len(self.ids) != len(self.shares):
            raise ValueError(f"a cut of {len(self.ids)} items has {len(self.shares)} shares")

    @property
    def digest(self) -> str:
        """16 hexadecimal digits: the same for the same items in the same shares, whatever their order."""
        return digest(sorted(zip(self.ids, self.shares, strict=True)))[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class NightPlan:
    """The items of a manifest.

    Attributes:
        name: the manifest's.
        root: the absolute path that items' paths are relative to.
        manifest: the manifest's path.
        sha256: of the manifest's bytes.
        items: in the order in which they are started.
        cut: of a share, how the whole plan was cut.
    """

    name: str
    root: str
    manifest: str
    sha256: str
    items: tuple[Item, ...]
    cut: Cut | None = None


# Nights that were run in shares: the cut of a plan, which nights are the shares of one, and whether nothing is lost.
#
# A whole night is what runs of a manifest on several machines with ``--shard 1/3``, ``2/3``, ``3/3``. What its shares have in
# common is an id: one that the user gives (`VARIABLE`), or that of the CI service's run.


VARIABLE = "TIPCHAIN_NIGHT_ID"
CI_VARIABLES = (
    "GITHUB_RUN_ID",
    "CI_PIPELINE_ID",
    "BUILD_BUILDID",
    "CIRCLE_WORKFLOW_ID",
    "BUILDKITE_BUILD_ID",
    "BUILD_TAG",
)
"""The names of a run that all of its jobs share on GitHub, GitLab, Azure, CircleCI, Buildkite and Jenkins."""
NIGHT_ID = "night_id"
"""The id's name among a night's options."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPart:
    """The share of a whole night that a night ran.

    Attributes:
        share: from 1.
        of: how many there are.
        title: the manifest's name.
        manifest: SHA-256 of its bytes.
        commit: of the project; "" where it is not known.
        night: the whole night's id.
        cut: `Cut.digest`; "" of a night of a tipchain that did not write it down.
        total: items of the whole plan; 0 where that is not known.
    """

    share: int
    of: int
    title: str
    manifest: str
    commit: str
    night: str
    cut: str = ""
    total: int = 0

    @property
    def whole(self) -> Hashable:
        """The identity common to all shares of a night."""
        return (self.title, self.of, self.night)

    def __str__(self) -> str:
        return f"{self.share}/{self.of}"


def night_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the id that the environment gives to all shares of a night.

    Raises:
        UsageError: it gives none.
    """
    for name in (VARIABLE, *CI_VARIABLES):
        if value := environ.get(name, "").strip():
            return value if name == VARIABLE else f"{name}={value}"
    raise UsageError(
        f"--shard: nothing says which shares are one night\n  expected: {VARIABLE}, the same for all of them"
    )


def gather(ones: Iterable[T], part: Callable[[T], ShardPart | None]) -> list[list[T]]:
    """Group nights that are shares of one; of a share that ran once more under the same id the later counts.

    Args:
        ones: nights, in the order in which they began.
        part: returns which share one is; None for a night of its own.
    """
    groups: dict[Hashable, dict[int, T]] = {}
    for one in ones:
        own = part(one)
        groups.setdefault(own.whole if own else object(), {})[own.share if own else 0] = one
    return [[shares[number] for number in sorted(shares)] for shares in groups.values()]


def missing(parts: Sequence[ShardPart]) -> str:
    """Return which shares of a night are not there, as ``2/3, 3/3``; "" for none.

    Of fewer items than shares the last shares are empty, and run no night.
    """
    there = {part.share for part in parts}
    count = parts[0].of if parts else 0
    last = min(count, max((part.total for part in parts), default=0) or count)
    return ", ".join(f"{share}/{count}" for share in range(1, last + 1) if share not in there)


def merge_facts(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge environments; where they differ, all values are listed."""
    found: dict[str, set[str]] = {}
    for one in facts:
        for name, value in one.items():
            found.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(filter(None, values))) for name, values in found.items()}


def disagreement(parts: Sequence[ShardPart]) -> str:
    """Return why the shares of a night are not those of one plan; "" if they are."""
    for name, words in (("manifest", "are of different manifests"), ("cut", "were cut differently")):
        values = [(getattr(part, name), part) for part in parts if getattr(part, name)]
        other = next((part for value, part in values if value != values[0][0]), None)
        if other is not None:
            return f"shares {values[0][1]} and {other} {words}"
    return ""


FIELDS = ("id", "tag", "mode", "device", "kind", "subject")
NOT = "!"


def parse_shard(text: str) -> tuple[int, int]:
    """Return the number of the share that ``2/3`` names, and how many there are.

    Raises:
        UsageError: it names none.
    """
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise UsageError(f"--shard {text}: is no shard\n  expected: i/n with 1 <= i <= n, as 2/3")


def select(plan: NightPlan, patterns: Sequence[str]) -> NightPlan:
    """Return the items that match one of ``patterns``, and none of those that begin with ``!``.

    A pattern is a glob of ids, with ``*`` and ``?``, or of something else of an item: ``tag:lite``, ``mode:whole_*``,
    ``device:gpu``, ``kind:align``, ``subject:alexnet``. Brackets stand for themselves: ids have them.

    Raises:
        UsageError: a pattern matches nothing in the plan.
    """
    chosen = [pattern for pattern in patterns if not pattern.startswith(NOT)]
    refused = [pattern.removeprefix(NOT) for pattern in patterns if pattern.startswith(NOT)]
    for pattern in (*chosen, *refused):
        if not any(matches(item, pattern) for item in plan.items):
            ids = [item.id for item in plan.items]
            raise UsageError(f"--only {pattern}: matches none of the {len(ids)} items{suggestion(pattern, ids[:2000])}")
    items = [
        item
        for item in plan.items
        if (not chosen or any(matches(item, pattern) for pattern in chosen))
        and not any(matches(item, pattern) for pattern in refused)
    ]
    return replace(plan, items=tuple(items))


def matches(item: Item, pattern: str) -> bool:
    """Return whether an item matches one pattern."""
    name, colon, rest = pattern.partition(":")
    if not colon or name not in FIELDS:
        name, rest = "id", pattern
    values = item.tags if name == "tag" else (getattr(item, name),)
    glob = rest.replace("[", "[[]")
    return any(fnmatchcase(value, glob) for value in values)


def share(plan: NightPlan, index: int, of: int) -> NightPlan:
    """Return a share, from 1 to ``of``: all shares together are the plan, and take about as long as each other, by their timeouts.

    The longest item goes to the share that has least to do so far, and so on (Graham's longest processing time
    rule). The same ids and timeouts give the same shares on every machine, whatever its nights were and whatever can run there.
    """
    loads, counts = [0.0] * of, [0] * of
    places: dict[str, int] = {}
    for item in sorted(plan.items, key=lambda one: (-one.timeout_s, one.id)):
        best = min(range(of), key=lambda one: (loads[one], counts[one], one))
        loads[best] += item.timeout_s
        counts[best] += 1
        places[item.id] = best + 1
    ids = tuple(item.id for item in plan.items)
    cut = Cut(ids=ids, shares=tuple(places[name] for name in ids))
    return replace(plan, items=tuple(item for item in plan.items if places[item.id] == index), cut=cut)
