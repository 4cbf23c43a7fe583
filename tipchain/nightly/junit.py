"""A night as JUnit XML: one suite for each kind of items, one case for each item."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

from tipchain.nightly.executor import Work
from tipchain.nightly.items import Item
from tipchain.nightly.log_tail import log_tail
from tipchain.nightly.records import ItemRecord, item_folder
from tipchain.nightly.results import Results, cause_of
from tipchain.outcome import Outcome
from tipchain.report.junit import add_case, add_suite, count_cases, document

KINDS = {"chain": "chains", "align": "alignment cases", "command": "commands"}


def night_junit(results: Results) -> str:
    """Return a night as a JUnit XML document; its environment is in the properties of each suite.

    An item that has no record, because the night was killed, is an error.
    """
    plan, night = results.plan, results.night
    root = ET.Element("testsuites", {"name": plan.name, **count_cases(results.outcomes, results.seconds)})
    facts = {"night": night.name, "manifest": plan.manifest, "folder": str(night.folder), **results.facts}
    for kind, name in KINDS.items():
        items = [item for item in plan.items if item.kind == kind]
        if not items:
            continue
        records = [results.of(item) for item in items]
        counts = count_cases([one.outcome for one in records], sum(one.seconds for one in records))
        suite = add_suite(root, f"{plan.name}: {name}", {"timestamp": night.started, **counts}, facts)
        for item, record in zip(items, records, strict=True):
            group = ".".join(filter(None, (plan.name, kind, item.subject.replace("/", "."))))
            cause = cause_of(results, record)
            reason = cause.summary if cause else record.reason or record.outcome.value
            add_case(
                suite, group, item.id, record.seconds, record.outcome, reason,
                _detail(results, item, record), item.source, cause.place if cause else None,
            )  # fmt: skip
    return document(root)


def _detail(results: Results, item: Item, record: ItemRecord) -> str:
    if record.outcome in (Outcome.PASS, Outcome.SKIP):
        return ""
    folder = Path(os.path.relpath(item_folder(results.folder, item.id))) / f"attempt-{record.attempt}"
    work = Work(item=item, attempt=record.attempt, folder=folder, root=Path(results.plan.root))
    lines = [record.reason, f"$ {shlex.join(work.argv(python='python'))}"]
    lines += [f"machine: {record.machine}"] if record.machine else []
    for name, path in (("report", record.report), ("log", record.log)):
        lines += [f"{name}: {os.path.relpath(results.folder / path)}"] if path else []
    return "\n".join([*lines, *(log_tail(results.folder / record.log) if record.log else ())])
