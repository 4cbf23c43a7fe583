"""Expands a manifest into the items of a night, and reads what that needs from the disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tipchain.chain.kinds import tell_kind
from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE
from tipchain.core.json_text import taken
from tipchain.errors import InputError, ManifestError, Outcome, TipchainError
from tipchain.modes import Mode
from tipchain.nightly.items import FOLDER, PYTHON, REPORT, Item, Needs, NightPlan, filled
from tipchain.nightly.manifest import EVERY_MODE, DataFolder, Device, ManifestEntry, NightManifest, missing_data

if TYPE_CHECKING:
    from tipchain.parity.case import Case


# What of the disk a plan depends on: files that globs name, their own problems, full data that are there or not.
#
# Each file is read and parsed once, whatever number of modes, devices and repeats it comes in, and each data folder is
# looked at once.


LENIENT = "--lenient"


@dataclass(slots=True)
class DiskProject:
    """The project that a manifest belongs to, as it is on the disk now.

    Args:
        manifest: the manifest.
    """

    manifest: NightManifest
    _chains: dict[tuple[str, str, tuple[str, ...], Mode], tuple[str, str]] = field(default_factory=dict)
    _cases: dict[str, Case | str] = field(default_factory=dict)
    _data: dict[str, str] = field(default_factory=dict)

    def files(self, entry: ManifestEntry) -> Sequence[str]:
        """Return the files that an entry names, below the root, sorted.

        Raises:
            ManifestError: a glob is none, leads out of the root, names no file, or one whose name cannot be shown.
        """
        found: dict[str, None] = {}
        for pattern, line in entry.files:
            matching = self._matching(pattern, line)
            matching = [one for one in matching if not any(fnmatchcase(one, left_out) for left_out in entry.exclude)]
            if not matching:
                raise ManifestError(
                    "names no file",
                    file=self.manifest.path,
                    line=line,
                    found=pattern,
                    expected=f"a glob of files below {self.manifest.root}",
                )
            if strange := next((one for one in matching if not one.isprintable()), ""):
                raise ManifestError(
                    "names a file that no item can be called after",
                    file=self.manifest.path,
                    line=line,
                    found=ascii(strange),
                    expected="a name in UTF-8 without control characters",
                    hint="leave it out with `exclude`",
                )
            found.update(dict.fromkeys(matching))
        return tuple(found)

    def _matching(self, pattern: str, line: int) -> list[str]:
        if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
            raise ManifestError(
                "leads out of the root",
                file=self.manifest.path,
                line=line,
                found=pattern,
                expected=f"a glob of files below {self.manifest.root}",
            )
        root = self.manifest.root
        try:
            return sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file())
        except (ValueError, IndexError, NotImplementedError) as error:  # IndexError: "."
            why = f": {error}" if isinstance(error, ValueError) else ""
            raise ManifestError(
                f"is no glob{why}",
                file=self.manifest.path,
                line=line,
                found=pattern,
                expected="a path with *, ? and [...], and ** alone for folders within folders",
            ) from None

    def problem(self, entry: ManifestEntry, file: str, mode: Mode) -> str:
        """Return what is wrong with a parameter file or case in a mode, in one line; "" for nothing."""
        return self._case_problem(file, entry) if entry.kind == "align" else self.chain(entry, file, mode)[1]

    def chain(self, entry: ManifestEntry, file: str, mode: Mode) -> tuple[str, str]:
        """Return the kind of chain of a parameter file in a mode, "" if nothing tells, and what is wrong with it."""
        from tipchain.chain.load import load_plan
        from tipchain.chain.params import read_params
        from tipchain.chain.plan import Options

        key, path = (file, entry.suite, entry.options, mode), self.manifest.root / file
        if key not in self._chains:
            option = next((after for word, after in pairwise([*entry.options, ""]) if word == "--chain"), None)
            lenient, options = LENIENT in entry.options, Options(root=str(self.manifest.root))
            kind = problem = ""
            try:
                kind = tell_kind(read_params(path), mode, option).kind.name
                load_plan(path, mode, chain=option, suite=entry.suite or None, lenient=lenient, options=options)
            except TipchainError as error:
                problem = one_line(error).replace(f"{self.manifest.root}/", "")
            self._chains[key] = kind, problem
        return self._chains[key]

    def lacking(self, data: DataFolder) -> str:
        """Return what is missing of full data, with the path that was wanted; "" for nothing."""
        if data.name not in self._data:
            self._data[data.name] = missing_data(data.path, data.holds)
        return self._data[data.name]

    def _case_problem(self, file: str, entry: ManifestEntry) -> str:
        from tipchain.parity.case import load_case

        if file not in self._cases:
            try:
                self._cases[file] = load_case(self.manifest.root / file)
            except TipchainError as error:
                self._cases[file] = one_line(error)
        case = self._cases[file]
        if isinstance(case, str):
            return case
        absent = [stage for stage in entry.stages if stage not in case.stages]
        return f"{file}: the case has no stage {', '.join(absent)}" if absent else ""


def one_line(error: TipchainError) -> str:
    """Return an error's message in one line, with what was found and expected."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) if isinstance(error, InputError) else " ".join(lines)


OUTPUT = f"{FOLDER}/work"
PAGE = f"{FOLDER}/report.html"
"""Where an item's own output goes: two items of one chain never write to one folder."""


def expand(manifest: NightManifest, project: DiskProject, *, require_data: bool = False) -> NightPlan:
    """Return the items of a manifest, in its order.

    Args:
        manifest: the manifest.
        project: what is on the disk.
        require_data: whether missing data are an ERROR; a SKIP otherwise.

    Raises:
        ManifestError: a glob names no file, or two entries come to items of one name.
    """
    files = {entry.place: tuple(project.files(entry)) for entry in manifest.entries if entry.files}
    # Parameter files are called after their folder, cases after themselves.
    subjects = {file: PurePosixPath(file).stem for found in files.values() for file in found}
    parameter_files = defaultdict(list)
    for file in subjects:
        if file.endswith(".txt"):
            parameter_files[PurePosixPath(file).parent].append(file)
    for folder, beside in parameter_files.items():
        for file in beside:
            own = folder.name or PurePosixPath(file).stem
            subjects[file] = own if len(beside) == 1 else f"{own}/{PurePosixPath(file).stem}"
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

    def __init__(
        self, entry: ManifestEntry, manifest: NightManifest, project: DiskProject, *, require_data: bool
    ) -> None:
        self.entry, self.manifest, self.project = entry, manifest, project
        self.require_data = require_data

    def items(self, source: str, subject: str) -> Iterator[Item]:
        entry, common = self.entry, self.entry.common
        for mode in entry.modes or (None,):
            (settled, reason), data = self.settled(source, mode), self.data(mode)
            for device in common.devices:
                argv, env = self.argv(source, mode, device, data), self.env(mode, data)
                kind = ":align" if entry.kind == "align" else ""
                name = f"{subject}{kind}[{f'{mode.value};' if mode else ''}{device}]"
                needs = taken(Needs, common, gpus=common.gpus if device == "gpu" else 0)
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
                        settled=settled,
                        reason=reason,
                        chain=self.chain(source, mode),
                    )

    def data(self, mode: Mode | None) -> DataFolder | None:
        name = self.entry.data.get(EVERY_MODE) or self.entry.data.get(mode.value if mode else "")
        return self.manifest.data[name] if name else None

    def chain(self, source: str, mode: Mode | None) -> str:
        return self.project.chain(self.entry, source, mode)[0] if mode and self.entry.kind == "chain" else ""

    def settled(self, source: str, mode: Mode | None) -> tuple[Outcome, str]:
        """Return what items that do not run count as and why: their own problem, then missing data; PASS for others."""
        problem = self.project.problem(self.entry, source, mode) if mode and source else ""
        if problem:
            return Outcome.ERROR, problem
        data = self.data(mode)
        lacking = self.project.lacking(data) if data else ""
        if data and lacking:
            outcome = Outcome.ERROR if self.require_data else Outcome.SKIP
            return outcome, f"data {data.name!r}: {lacking}"
        return Outcome.PASS, ""

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
            return filled(entry.argv, values)
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
