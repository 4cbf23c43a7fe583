"""What of the disk a plan depends on: files that globs name, their own problems, full data that are there or not.

Each file is read and parsed once, whatever number of modes, devices and repeats it comes in, and each data folder is
looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tipchain.chain.kinds import TRAIN_INFER, tell_kind
from tipchain.errors import InputError, ManifestError, TipchainError
from tipchain.modes import CHAIN_MODES, Mode
from tipchain.nightly.manifest import DataFolder, ManifestEntry, NightManifest, missing_data

if TYPE_CHECKING:
    from tipchain.chain.params import ParamFile
    from tipchain.chain.suites import Suite
    from tipchain.parity.case_types import Case

LENIENT = "--lenient"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadParams:
    """A parameter file that was read: its text, what was parsed of it and the suite; or what is wrong."""

    text: str = ""
    file: ParamFile | None = None
    suite: Suite | None = None
    problem: str = ""


@dataclass(slots=True)
class DiskProject:
    """The project that a manifest belongs to, as it is on the disk now.

    Args:
        manifest: the manifest.
    """

    manifest: NightManifest
    _params: dict[tuple[str, str], _ReadParams] = field(default_factory=dict)
    _modes: dict[tuple[str, str, tuple[str, ...], Mode], str] = field(default_factory=dict)
    _cases: dict[str, Case | str] = field(default_factory=dict)
    _data: dict[str, str] = field(default_factory=dict)

    def files(self, entry: ManifestEntry) -> Sequence[str]:
        """Return the files that an entry names, below the root, sorted.

        Raises:
            ManifestError: a glob is none, leads out of the root, names no file, or one whose name cannot be shown.
        """
        found: dict[str, None] = {}
        for pattern, line in entry.files:
            matching = [one for one in self._matching(pattern, line) if not _excluded(one, entry.exclude)]
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
        return self._case_problem(file, entry) if entry.kind == "align" else self._problem(file, entry, mode)

    def chain(self, entry: ManifestEntry, file: str, mode: Mode) -> str:
        """Return the kind of chain of a parameter file in a mode; "" for one that cannot be read."""
        read = self._read(file, entry.suite)
        if read.file is None:
            return ""
        try:
            return tell_kind(read.file, mode, _option(entry, "--chain")).kind.name
        except TipchainError:
            return ""

    def lacking(self, data: DataFolder) -> str:
        """Return what is missing of full data, with the path that was wanted; "" for nothing."""
        if data.name not in self._data:
            self._data[data.name] = missing_data(data.path, data.layout)
        return self._data[data.name]

    def _problem(self, file: str, entry: ManifestEntry, mode: Mode) -> str:
        from tipchain.chain.build import build_spec

        key = (file, entry.suite, entry.options, mode)
        if key in self._modes:
            return self._modes[key]
        own = self.chain(entry, file, mode)
        read = self._read(file, entry.suite)
        problem = read.problem
        if own and (own != TRAIN_INFER or mode not in CHAIN_MODES):
            problem = self._kind_problem(file, entry, mode)
        elif not problem:
            assert read.file is not None
            assert read.suite is not None
            try:
                build_spec(read.file, read.suite, mode, lenient=LENIENT in entry.options, text=read.text)
            except TipchainError as error:
                problem = one_line(error)
        self._modes[key] = problem
        return problem

    def _kind_problem(self, file: str, entry: ManifestEntry, mode: Mode) -> str:
        """Return what is wrong with a file of another kind than `TRAIN_INFER`, as its plan says it."""
        from tipchain.chain.load import load_plan
        from tipchain.chain.plan import Options

        root = self.manifest.root
        try:
            load_plan(
                root / file,
                mode,
                chain=_option(entry, "--chain"),
                suite=entry.suite or None,
                lenient=LENIENT in entry.options,
                options=Options(root=str(root)),
            )
        except TipchainError as error:
            return one_line(error).replace(f"{root}/", "")
        return ""

    def _read(self, file: str, suite: str) -> _ReadParams:
        from tipchain.chain.load import checkout, detect_suite
        from tipchain.chain.params import parse_params, read_text
        from tipchain.chain.profiles import get_suite

        key = (file, suite)
        if key not in self._params:
            path = self.manifest.root / file
            try:
                text = read_text(path)
                parsed = parse_params(text, file)
                chosen = get_suite(suite) if suite else detect_suite(parsed, root=checkout(path))
                self._params[key] = _ReadParams(text=text, file=parsed, suite=chosen)
            except TipchainError as error:
                self._params[key] = _ReadParams(problem=one_line(error))
        return self._params[key]

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


def _option(entry: ManifestEntry, name: str) -> str | None:
    """Return the value of an option of an entry's chains, None where it is not given."""
    words = [*entry.options, ""]
    return next((after for word, after in pairwise(words) if word == name), None)


def _excluded(file: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def one_line(error: TipchainError) -> str:
    """Return an error's message in one line: what was found and expected stands behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) if isinstance(error, InputError) else " ".join(lines)
