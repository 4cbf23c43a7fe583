"""From a manifest to the items of a night. Nothing is looked at but what `Project` answers, nothing is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from tipchain.errors import ManifestError
from tipchain.modes import Mode
from tipchain.nightly.items import FOLDER, PYTHON, REPORT, Item, Needs, NightPlan
from tipchain.nightly.manifest import EVERY_MODE, DataFolder, Device, ManifestEntry, NightManifest
from tipchain.outcome import Outcome
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE

OUTPUT = f"{FOLDER}/work"
PAGE = f"{FOLDER}/report.html"
"""Where an item's own output goes: two items of one chain never write to one folder."""


class Project(Protocol):
    """What of the disk a plan depends on."""

    def files(self, entry: ManifestEntry) -> Sequence[str]:
        """Return the files that an entry names, below the root, sorted.

        Raises:
            ManifestError: a glob names none.
        """

    def problem(self, entry: ManifestEntry, file: str, mode: Mode) -> str:
        """Return what is wrong with a parameter file or case in a mode; "" for nothing."""

    def chain(self, entry: ManifestEntry, file: str, mode: Mode) -> str:
        """Return the kind of chain of a parameter file in a mode; "" for one that cannot be read."""

    def lacking(self, data: DataFolder) -> str:
        """Return what is missing of full data, with the path that was wanted; "" for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Why an item does not run, and what it counts as; PASS for one that does."""

    outcome: Outcome = Outcome.PASS
    reason: str = ""


def expand(manifest: NightManifest, project: Project, *, require_data: bool = False) -> NightPlan:
    """Return the items of a manifest, in its order.

    Args:
        manifest: the manifest.
        project: what is on the disk.
        require_data: whether missing data are an ERROR; a SKIP otherwise.

    Raises:
        ManifestError: a glob names no file, or two entries come to items of one name.
    """
    files = {entry.place: tuple(project.files(entry)) for entry in manifest.entries if entry.files}
    subjects = _subjects({file for found in files.values() for file in found})
    items: dict[str, Item] = {}
    origins: dict[str, tuple[ManifestEntry, str]] = {}
    for entry in manifest.entries:
        maker = _Maker(entry, manifest, project, require_data=require_data)
        for source in files.get(entry.place, ("",)):
            for item in maker.items(source, subjects.get(source, entry.id)):
                if item.id in items:
                    raise _twice(manifest, item.id, origins[item.id], (entry, source))
                items[item.id], origins[item.id] = item, (entry, source)
    return NightPlan(
        name=manifest.name,
        root=str(manifest.root),
        manifest=str(manifest.path),
        sha256=manifest.sha256,
        items=tuple(items.values()),
    )


def _subjects(files: set[str]) -> dict[str, str]:
    """Return what each file is called: parameter files after their folder, cases after themselves."""
    parameter_files = defaultdict(list)
    for file in files:
        if file.endswith(".txt"):
            parameter_files[PurePosixPath(file).parent].append(file)
    names = {file: PurePosixPath(file).stem for file in files}
    for folder, found in parameter_files.items():
        for file in found:
            own = folder.name or PurePosixPath(file).stem
            names[file] = own if len(found) == 1 else f"{own}/{PurePosixPath(file).stem}"
    return names


def _twice(
    manifest: NightManifest, name: str, first: tuple[ManifestEntry, str], second: tuple[ManifestEntry, str]
) -> ManifestError:
    def said(one: tuple[ManifestEntry, str]) -> str:
        entry, source = one
        return f"{entry.place} (line {entry.line})" + (f", {source}" if source else "")

    return ManifestError(
        f"two items are called {name}",
        file=manifest.path,
        line=second[0].line,
        found=f"{said(first)}; {said(second)}",
        expected="items that differ in file, mode, device or kind",
    )


class _Maker:
    """Makes the items of one entry."""

    def __init__(self, entry: ManifestEntry, manifest: NightManifest, project: Project, *, require_data: bool) -> None:
        self.entry, self.manifest, self.project = entry, manifest, project
        self.require_data = require_data

    def items(self, source: str, subject: str) -> Iterator[Item]:
        entry, common = self.entry, self.entry.common
        for mode in entry.modes or (None,):
            settled, data = self.settled(source, mode), self.data(mode)
            for device in common.devices:
                argv, env = self.argv(source, mode, device, data), self.env(mode, data)
                kind = ":align" if entry.kind == "align" else ""
                name = f"{subject}{kind}[{f'{mode.value};' if mode else ''}{device}]"
                needs = Needs(
                    cpus=common.cpus,
                    gpus=common.gpus if device == "gpu" else 0,
                    memory_mb=common.memory_mb,
                    resources=common.resources,
                )
                for repeat in range(1, common.repeats + 1):
                    yield Item(
                        id=name if repeat == 1 else f"{name}#{repeat}",
                        kind=entry.kind,
                        subject=subject,
                        source=source,
                        mode=mode.value if mode else "",
                        device=device,
                        repeat=repeat,
                        tags=common.tags,
                        argv=argv,
                        cwd=entry.cwd,
                        env=env,
                        timeout_s=common.timeout_s,
                        needs=needs,
                        settled=settled.outcome,
                        reason=settled.reason,
                        chain=self.chain(source, mode),
                    )

    def data(self, mode: Mode | None) -> DataFolder | None:
        """Return the full data that a mode needs."""
        name = self.entry.data.get(EVERY_MODE) or self.entry.data.get(mode.value if mode else "")
        return self.manifest.data[name] if name else None

    def chain(self, source: str, mode: Mode | None) -> str:
        """Return the kind of chain of a file; "" for what is none."""
        return self.project.chain(self.entry, source, mode) if mode and self.entry.kind == "chain" else ""

    def settled(self, source: str, mode: Mode | None) -> Settled:
        """Return why items of a file and a mode do not run: its own problem first, then missing data."""
        problem = self.project.problem(self.entry, source, mode) if mode and source else ""
        if problem:
            return Settled(outcome=Outcome.ERROR, reason=problem)
        data = self.data(mode)
        lacking = self.project.lacking(data) if data else ""
        if data and lacking:
            outcome = Outcome.ERROR if self.require_data else Outcome.SKIP
            return Settled(outcome=outcome, reason=f"data {data.name!r}: {lacking}")
        return Settled()

    def env(self, mode: Mode | None, data: DataFolder | None) -> Mapping[str, str]:
        """Return the variables of an item; a command is told of its mode and data as a chain's commands are."""
        own: dict[str, str] = {}
        if self.entry.kind == "command":
            own |= {MODE_VARIABLE: mode.value} if mode else {}
            own |= {DATA_VARIABLE: str(data.path)} if data else {}
        return {**own, **self.entry.common.env}

    def argv(self, source: str, mode: Mode | None, device: Device, data: DataFolder | None) -> tuple[str, ...]:
        entry = self.entry
        if entry.kind == "command":
            values = {"{mode}": mode.value if mode else "", "{device}": device}
            return tuple(_filled(word, values) for word in entry.argv)
        assert mode is not None
        words = [PYTHON, "-m", "tipchain"]
        if entry.kind == "chain":
            words += ["run", source, mode.value, "--json", REPORT, "--html", PAGE, "--out", OUTPUT]
            words += ["--suite", entry.suite] if entry.suite else []
            words += ["--require-gpu"] if device == "gpu" else []
        else:
            words += ["align", source, "--mode", mode.value, "--json", REPORT, "--html", PAGE, "--out", OUTPUT]
            words += ["--only", ",".join(entry.stages)] if entry.stages else []
        words += ["--device", device]
        words += ["--prepare"] if entry.prepare else []
        words += ["--data-path", str(data.path)] if data else []
        return (*words, *entry.options)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
