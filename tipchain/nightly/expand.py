"""Expands a manifest into the items of a night, and reads the files that this needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tipchain.chain.kinds import tell_kind
from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE
from tipchain.core.json_text import taken
from tipchain.errors import InputError, Outcome, TipchainError
from tipchain.modes import Mode
from tipchain.nightly.items import FOLDER, PYTHON, REPORT, Item, Needs, NightPlan, filled
from tipchain.nightly.manifest import EVERY_MODE, DataFolder, Device, ManifestEntry, NightManifest, missing_data

if TYPE_CHECKING:
    from tipchain.parity.case import Case

OUTPUT = f"{FOLDER}/work"
PAGE = f"{FOLDER}/report.html"
"""Where an item's own output goes: two items of one chain never write to one folder."""


def expand(manifest: NightManifest, *, require_data: bool = False) -> NightPlan:
    """Return the items of a manifest, in its order.

    Args:
        manifest: the manifest.
        require_data: whether missing data are an ERROR; a SKIP otherwise.

    Raises:
        InputError: a glob names no file, or two entries come to items of one name.
    """
    project = _Project(manifest, require_data=require_data)
    files = {entry.place: project.files(entry) for entry in manifest.entries if entry.files}
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
    origins: dict[str, str] = {}
    for entry in manifest.entries:
        for source in files.get(entry.place, [""]):
            origin = f"{entry.place} (line {entry.line})" + (f", {source}" if source else "")
            for item in project.items(entry, source, subjects.get(source, entry.id)):
                if item.id in items:
                    raise InputError(
                        f"two items are called {item.id}",
                        file=manifest.path,
                        line=entry.line,
                        found=f"{origins[item.id]}; {origin}",
                        expected="items that differ in file, mode, device or kind",
                    )
                items[item.id], origins[item.id] = item, origin
    return NightPlan(
        name=manifest.name,
        root=str(manifest.root),
        manifest=str(manifest.path),
        sha256=manifest.sha256,
        items=tuple(items.values()),
    )


class _Project:
    """The project of a manifest as it is on the disk: each file is read once, each data folder looked at once."""

    def __init__(self, manifest: NightManifest, *, require_data: bool) -> None:
        self.manifest, self.require_data = manifest, require_data
        self.chain, self.case, self.lacking = cache(self._read_chain), cache(self._read_case), cache(missing_data)

    def files(self, entry: ManifestEntry) -> list[str]:
        """Return the files that an entry names, below the root, each once.

        Raises:
            InputError: a glob is none, leads out of the root, names no file, or one whose name cannot be shown.
        """
        root = self.manifest.root
        expected = f"a glob of files below {root}"
        found: dict[str, None] = {}
        for pattern, line in entry.files:
            wrong = partial(InputError, file=self.manifest.path, line=line)
            if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
                raise wrong("leads out of the root", found=pattern, expected=expected)
            try:
                there = sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file())
            except (ValueError, IndexError, NotImplementedError) as error:  # IndexError: "."
                why = f": {error}" if isinstance(error, ValueError) else ""
                expected = "a path with *, ? and [...], and ** alone for folders within folders"
                raise wrong(f"is no glob{why}", found=pattern, expected=expected) from None
            matching = [one for one in there if not any(fnmatchcase(one, left_out) for left_out in entry.exclude)]
            if not matching:
                raise wrong("names no file", found=pattern, expected=expected)
            if strange := next((one for one in matching if not one.isprintable()), ""):
                raise wrong(
                    "names a file that no item can be called after",
                    found=ascii(strange),
                    expected="a name in UTF-8 without control characters",
                    hint="leave it out with `exclude`",
                )
            found.update(dict.fromkeys(matching))
        return list(found)

    def items(self, entry: ManifestEntry, source: str, subject: str) -> Iterator[Item]:
        """Yield the items of a file of an entry, or of a command."""
        common, called = entry.common, f"{subject}:align" if entry.kind == "align" else subject
        for mode in entry.modes or (None,):
            name = entry.data.get(EVERY_MODE) or entry.data.get(mode.value if mode else "")
            data = self.manifest.data[name] if name else None
            chain, reason = self._kind_and_problem(entry, source, mode) if mode and source else ("", "")
            settled = Outcome.ERROR if reason else Outcome.PASS
            if not reason and data and (lacking := self.lacking(data.path, data.holds)):
                settled = Outcome.ERROR if self.require_data else Outcome.SKIP
                reason = f"data {data.name!r}: {lacking}"
            env: dict[str, str] = {}
            if entry.kind == "command":  # it is told of its mode and data as a chain's commands are
                env |= {MODE_VARIABLE: mode.value} if mode else {}
                env |= {DATA_VARIABLE: str(data.path)} if data else {}
            for device in common.devices:
                name = f"{called}[{f'{mode.value};' if mode else ''}{device}]"
                argv = _argv(entry, source, mode, device, data)
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
                        env={**env, **common.env},
                        timeout_s=common.timeout_s,
                        needs=needs,
                        settled=settled,
                        reason=reason,
                        chain=chain,
                    )

    def _kind_and_problem(self, entry: ManifestEntry, file: str, mode: Mode) -> tuple[str, str]:
        """Return the kind of chain of a parameter file, "" of a case, and its fault in a mode, in one line."""
        if entry.kind == "chain":
            return self.chain(file, entry.suite, entry.options, mode)
        case = self.case(file)
        if isinstance(case, str):
            return "", case
        absent = [stage for stage in entry.stages if stage not in case.stages]
        return "", f"{file}: the case has no stage {', '.join(absent)}" if absent else ""

    def _read_chain(self, file: str, suite: str, words: Sequence[str], mode: Mode) -> tuple[str, str]:
        from tipchain.chain.load import load_plan
        from tipchain.chain.params import read_params
        from tipchain.chain.plan import Options

        path, kind = self.manifest.root / file, ""
        option = next((after for word, after in pairwise([*words, ""]) if word == "--chain"), None)
        options = Options(root=str(self.manifest.root))
        try:
            kind = tell_kind(read_params(path), mode, option).kind.name
            load_plan(path, mode, chain=option, suite=suite or None, lenient="--lenient" in words, options=options)
        except TipchainError as error:
            return kind, _one_line(error).replace(f"{self.manifest.root}/", "")
        return kind, ""

    def _read_case(self, file: str) -> Case | str:
        from tipchain.parity.case import load_case

        try:
            return load_case(self.manifest.root / file)
        except TipchainError as error:
            return _one_line(error)


def _one_line(error: TipchainError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) if isinstance(error, InputError) else " ".join(lines)


def _argv(
    entry: ManifestEntry, source: str, mode: Mode | None, device: Device, data: DataFolder | None
) -> tuple[str, ...]:
    if entry.kind == "command":
        return filled(entry.argv, {"{mode}": mode.value if mode else "", "{device}": device})
    assert mode is not None
    words = ["run", source, mode.value] if entry.kind == "chain" else ["align", source, "--mode", mode.value]
    words += ["--json", REPORT, "--html", PAGE, "--out", OUTPUT]
    words += ["--suite", entry.suite] if entry.suite else []
    words += ["--require-gpu"] if entry.kind == "chain" and device == "gpu" else []
    words += ["--only", ",".join(entry.stages)] if entry.stages else []
    words += ["--device", device]
    words += ["--prepare"] if entry.prepare else []
    words += ["--data-path", str(data.path)] if data else []
    return (PYTHON, "-m", "tipchain", *words, *entry.options)
