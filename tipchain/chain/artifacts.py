"""The files and lines that a command must leave, whether it left them, and values settled only when it starts."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tipchain.chain.plan import SUFFIXES, Artifact, Command, Find

# An exit status of 0 says little: a training may save nowhere, an export may write no program. So the files that a
# command shall leave are compared with what was there before it started: by inode, size and times of change, never
# with the clock, which another machine's disk need not share. The time of the inode's change tells a fresh
# ``cp -p`` of an old file from an old file that nobody touched. A file that was only touched counts as written:
# a file system cannot tell it from one rewritten with the same bytes. A link that the command made may lead to a file
# of an earlier run, which nobody could look at before: that one's time is compared with the command's own empty log,
# on the same disk only.


_NOISE = re.compile(
    r"\s*(?:"
    r"[WIEF](?:\d{4}|\d{8}) \d\d:\d\d:\d\d"  # glog: W1121 12:00:00.000000 123 gpu_resources.cc:61] ...
    r"|-{3}\s"  # --- Running analysis [ir_graph_build_pass], ---    enabled FC MKL-DNN for 1 fc ops
    r"|\[?(?:onednn|mkldnn|TRT|TensorRT)\b"
    r"|[-=*#_.~+\s]*$|[-=*#]{3,}[^\d:]*[-=*#]{3,}$"
    r"|.*Warning: |warnings\.warn\("
    r"|.*\d%\|"  # tqdm
    r"|Namespace\("
    r"|\W*(?:platform|system|os|python|paddle\w*(?: compiled with \w+)?|nvcc|nccl|cuda\w*|cudnn|gpus?(?: used| \d+)?|gcc|g\+\+"
    r"|opencv\w*|cv2|numpy|torch\w*|pillow|pip|driver|[\w ]*version)\s*[:=]\s"  # the environment's banner
    r")",
    re.IGNORECASE,
)
_LOGGED = re.compile(r"\[?\d{4}[-/]\d\d[-/]\d\d[ T][\d:,.]+\]?[\s-]*(?:\w+\s+)?\[?(?:INFO|DEBUG)?\]?:?\s*")
"""A logger's prefix of a line."""
_RESULT = re.compile(
    r"\d|result|save|finish|predict|class|score|label|prob|\bacc|psnr|done|\btext\b|caption|translat|transcri|answer"
    r"|\w\s*[=-]+>\s*\w|结果|预测|类别|标签|得分|概率|保存|识别|翻译",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"\W*(?:loading|loaded|load [a-z]\w+|creating|downloading|initiali[sz]ing|using|use \d|inference model)\b"
    r"|\W*(?:runtime_device|ir_optim|enable_\w+|cpu_math\w+|model_name|batch_?size|precision\W+[a-z]+\d+|data_num|input_shape)(?:\W|$)"
    r"|\(\d+(?:, \d+)+\)$|\[\d+, [13], \d+, \d+\]$",
    re.IGNORECASE,
)
"""Steps that a program announces, the settings that AutoLog reports, the shape of an array: no results, whatever digits they have."""
_NO_NUMBER = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?|\b\w+\.py:\d+|\bline \d+|\d+\.\d+\.\d+\S*"
    r"|\w*(?:time|cost|elapsed|latency|fps|_rss|_util)\w*(?: spent)?(?:\([\w%]+\))?\W{1,3}[\d.]+|[\d.]+ ?(?:ms|fps|it/s)\b"
    r"|\d+ (?:\w+ )?(?:images|files|samples|videos|threads)\b|\bframes\W+\d+|\b(?:shape(?: is)?|size)\W*[\[(][\d, ]+",
    re.IGNORECASE,
)
"""Times, places in code, versions, speeds, counts of inputs and shapes: digits that are no result."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\.?\d")
_SETTING = re.compile(r"\W*([\w.-]+)\s*[:=]\s*\S*\s*")
_NUMBERLESS = r"[-+]?(?:nan|NaN|NAN|[Ii]nf(?:inity)?|INF)"
_UNREAL = re.compile(
    rf"(?:[=:\uff1a,(\[|>&\t]\s*|(?:\d\.?|nan|is|\w_\w+)\s+|\b(?:score|prob\w*|loss|acc\w*|result|value|mean)\s+){_NUMBERLESS}"
    rf"(?=[\s.,;)\]}}|%]|$)|^\s*{_NUMBERLESS}(?=[,\]]|\s*$)"
)
_ALIKE = re.compile(r"psnr\W*inf", re.IGNORECASE)
"""The one measure that is infinite for images that are equal."""
_READ = re.compile(
    r"(?:\b(?:(?:image|img|file|input|video|data|path)\w*['\"]?\s*[:=]|predicts? of)[\s(\['\"]*|^(?=\S+[:\t]))(?P<file>[^\s,;:'\"()=]+"
    r"\.(?:jpe?g|png|bmp|tiff?|webp|gif|mp4|avi|mov|wav|flac|npy|npz|nii))\b",
    re.IGNORECASE,
)
"""A file of data that a line tells of; files of settings, models and lists are none."""
_WRITTEN = re.compile(r"sav|writ|output|result|match|nearest|similar|retriev|gallery", re.IGNORECASE)
"""Words of a line that tells of a written file, or of one found among others."""
USUAL = "no line of the program's own has a digit, or a word such as result, class or score"
PATTERN_HINT = "result_line.txt beside the parameter file names another pattern"
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")
_HARMLESS = re.compile(r"Exception ignored |Exception in thread |--- Logging error ---")
"""The line before a traceback that did not end the program's own work."""
LOOKED_AT = 2000
MOST_HELD = 6
"""Files that are named of a folder that lacks a command's artifacts."""
_FIXED = re.compile(r"(?:\[[*?[]\]|[^*?[])*")
_ESCAPED = re.compile(r"\[([*?[])\]")


class Stamp(NamedTuple):
    """A file's state, which changes whenever somebody writes to it, links or renames it."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


Snapshot = Mapping[str, Stamp]
"""Regular files by path, as the patterns give it."""


def matches(pattern: str, root: Path) -> list[str]:
    """Return the paths that match ``pattern``, relative to ``root`` or absolute; ``**`` stands for any folders."""
    return sorted(glob.glob(pattern, root_dir=root, recursive=True))  # noqa: PTH207 - absolute patterns too


def plain(pattern: str) -> str:
    """Return ``pattern`` for messages: without the escapes of special characters."""
    return _ESCAPED.sub(r"\1", pattern)


def names(patterns: Sequence[str]) -> str:
    """Return patterns for messages; those of one folder as ``folder/{a,b}``."""
    if not patterns:
        return "no file was named"
    folders: dict[str, list[str]] = {}
    for pattern in map(plain, patterns):
        folder, slash, name = pattern.rpartition("/")
        folders.setdefault(folder + slash, []).append(name)
    return " or ".join(
        folder + (found[0] if len(found) == 1 else f"{{{','.join(found)}}}") for folder, found in folders.items()
    )


def snapshot(leaves: Iterable[Artifact], root: Path) -> dict[str, Stamp]:
    """Return the files that are there already of those that a command shall leave."""
    patterns = {pattern for one in leaves for pattern in one.files}
    found = ((path, stamp(root / path)) for pattern in sorted(patterns) for path in matches(pattern, root))
    return {path: state for path, state in found if state is not None}


def stamp(path: Path) -> Stamp | None:
    """Return the state of the regular file ``path`` or of its link's target; None if it is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An artifact that a command did not leave; ``why`` goes on where a sentence began with "no checkpoint"."""

    what: str
    looked: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.looked}"


def missing_files(
    leaves: Iterable[Artifact], root: Path, before: Snapshot, start: Stamp | None = None
) -> tuple[Missing, ...]:
    """Return the artifacts among files that were not made or changed since ``before`` was taken.

    ``start`` is the state, at that time, of a file that had just been made.
    """
    old = frozenset(before.values())
    found: list[Missing] = []
    told: set[str] = set()  # folders whose files have been named, which is done once
    for one in leaves:
        if one.in_log:
            continue
        # What lies below the root is named from there, for messages.
        files = tuple(file.removeprefix(f"{glob.escape(str(root))}/") for file in one.files)
        if why := _why_missing(files, root, old, start, told):
            found.append(Missing(what=one.what, looked=names(files), why=f": {why}"))
    return tuple(found)


def _why_missing(
    patterns: Sequence[str], root: Path, old: frozenset[Stamp], start: Stamp | None, told: set[str]
) -> str:
    problems = []
    for pattern in patterns:
        for path in matches(pattern, root):
            problem = _problem(root / path, old, start)
            if not problem:
                return ""
            problems.append((path, problem))
    if problems:
        # What is there and no good tells more than what is not there; old files explain most.
        path, problem = min(problems, key=lambda one: not one[1].startswith("is older"))
        return f"{path} {problem}"
    # The folder of a run has a long path, so it stands behind what is missing.
    fixed = [plain(found[0]).rpartition("/")[0] for found in map(_FIXED.match, patterns) if found]
    folder = os.path.commonpath(fixed) if fixed else ""
    if not folder or not (root / folder).is_dir():
        return f"{names(patterns)} is not there"
    missing = names([glob.escape(os.path.relpath(plain(one), folder)) for one in patterns])
    if folder in told:
        return f"{missing} is not there either"
    told.add(folder)
    held = [path for path in islice((root / folder).rglob("*"), LOOKED_AT) if path.is_file()]
    held.sort(key=lambda path: (-path.stat().st_mtime_ns, str(path)))
    shown = ", ".join(os.path.relpath(path, root / folder) for path in held[:MOST_HELD]) or "no file"
    more = f" and {len(held) - MOST_HELD} more" if len(held) > MOST_HELD else ""
    return f"{missing} is not in {os.path.normpath(folder)}, which contains {shown}{more}"


def _problem(path: Path, old: frozenset[Stamp], start: Stamp | None) -> str:
    state = stamp(path)
    if state is None:
        return "is no file" if path.exists() else "is a link to nothing"
    if state.size == 0:
        return "is empty"
    if state in old:
        return "is older than this command: it was there before and was not written"
    earlier = start and state.device == start.device and state.ctime_ns < start.ctime_ns
    if earlier and path.resolve() != path.absolute():
        return f"is older than this command: it is a link to {path.resolve()}"
    return ""


class LineCheck:
    """Reads a log, line by line: results that artifacts ask for, their numbers, and an exception at its end.

    What a command repeats of its words is no result, nor what it tells of a file that is none of those ``given``.
    """

    def __init__(self, leaves: Iterable[Artifact], argv: Sequence[str] = (), given: Sequence[str] = ()) -> None:
        self.wanted = [one for one in leaves if one.in_log]
        self.waiting = [(one, re.compile(one.line, re.IGNORECASE)) for one in self.wanted]
        self.given = frozenset(given)
        names = (word.partition("=")[0] for word in argv if "=" in word or word.startswith("--"))
        self.settings = {name.strip("-").replace("-", "_").lower() for name in names}
        self.in_traceback = self.counts = False
        self.before = self.raised = self.unreal = self.other = ""

    def read(self, line: str) -> None:
        """Take note of a line."""
        noise = self._is_noise(line)
        self.before = line
        if noise or not self.wanted:
            return
        setting = _SETTING.fullmatch(line)
        repeated = setting is not None and setting[1].replace("-", "_").lower() in self.settings
        text = _NO_NUMBER.sub("", line)
        unreal = _UNREAL.search(line) and not _ALIKE.search(line)
        usual = not repeated and not _ANNOUNCED.match(_LOGGED.sub("", line, count=1)) and _RESULT.search(text)
        self.waiting = [
            (one, pattern) for one, pattern in self.waiting if not (pattern.search(line) if one.line else usual)
        ]
        if not self.wanted[0].reads:
            # An evaluation may have classes without a sample; what it ends with is the measure of all.
            if unreal or (usual and _NUMBER.search(text)):
                self.unreal = line.strip() if unreal and not _NUMBER.search(text) else ""
            return
        if not self.unreal and unreal:
            self.unreal = line.strip()
        found = _READ.search(line) if self.given else None
        name = os.path.basename(found["file"]) if found else ""  # noqa: PTH119 - a word
        if name in self.given or (len(self.given) == 1 and min(self.given) in line):
            self.given, self.other = frozenset(), ""
        elif (
            found
            and not self.other
            and not _WRITTEN.search(line[: found.end()] + line[found.end() :].partition(",")[0])
        ):
            self.other = found["file"]

    def _is_noise(self, line: str) -> bool:
        if self.in_traceback:
            self.in_traceback = line.startswith(" ")  # the first line further left is the exception itself
            self.raised = line if self.counts and not self.in_traceback and _RAISED.match(line) else ""
            return True
        self.in_traceback = _TRACEBACK in line
        if self.in_traceback:
            self.counts = not _HARMLESS.match(self.before)
            return True
        if not self.wanted and not self.raised:
            return False
        noise = _NOISE.match(_LOGGED.sub("", line, count=1)) is not None
        if not noise and not line.startswith(" "):
            self.raised = ""  # the program went on
        return noise

    def missing(self, log: str) -> tuple[Missing, ...]:
        """Return the faults of a log of this name: missing lines, results that are none, a last exception."""
        found = {"end without an exception": self.raised, "finite result": self.unreal}
        told = [Missing(what=what, looked=log, why=f" in {log}: {line}") for what, line in found.items() if line]
        if self.other:
            what = f"result of {os.path.basename(os.path.normpath(self.wanted[0].given))}"  # noqa: PTH119 - a word
            told.append(Missing(what=what, looked=log, why=f" in {log}: it tells of {self.other}"))
        for one, _ in () if self.unreal else self.waiting:
            why = f"nothing matches {one.line!r}" if one.line else USUAL
            hint = f"; {PATTERN_HINT}" if one.reads else ""
            told.append(Missing(what=one.what, looked=log, why=f" in {log}: {why}{hint}"))
        return tuple(told)


def explain(missing: Sequence[Missing]) -> str:
    """Put a command's missing artifacts into words."""
    return "; ".join(f"no {one.what}{one.why}" for one in missing)


# Some texts in a command's words are settled only when it starts: the checkpoint that training left. Suites name such files by a pattern, by the last epoch's number, or by what is there; nobody knows before the
# training has run. Only the run's own folder is searched: a file of another run, or a link out of the folder, must
# not be taken for what this run trained. A model that the suite keeps elsewhere is looked for where the file says.


class UnsettledError(LookupError):
    """A value that a command needs before it starts is not there; the message names the places looked at."""


def settle(command: Command, root: Path, run: Path) -> Command:
    """Return ``command`` with its finds settled in its words; patterns are relative to ``root``.

    Raises:
        UnsettledError: nothing matches, or what matches lies outside the run's folder, and may not.
    """
    if not command.finds:
        return command
    texts = {find.text: _settled_text(find, root, run, command.cwd) for find in command.finds}
    # Longest first, so that a text that begins another one does not cut it; never in the middle of a name.
    longest = sorted(texts, key=len, reverse=True)
    pattern = re.compile(rf"({'|'.join(map(re.escape, longest))})(?![\w-])")
    words = (pattern.sub(lambda match: texts[match[1]], word) for word in command.argv)
    return command._replace(argv=tuple(words))


def _settled_text(find: Find, root: Path, run: Path, cwd: str) -> str:
    if find.anywhere:
        there = [path for one in find.files for path in matches(one, root) if (root / path).exists()]
        if not there:
            return find.text
        path = max(there, key=lambda one: (root / one).stat().st_mtime_ns)
        return _like(find.text, path, root, cwd) if "/" in find.text else Path(path).name
    for pattern in find.files:
        found = [path for path in matches(pattern, root) if (root / path).exists()]
        if not found:
            continue
        path = max(found, key=lambda one: ((root / one).stat().st_mtime_ns, one))
        if not (root / path).resolve().is_relative_to(run.resolve()):
            raise UnsettledError(f"{path}, found for {plain(find.text)}, lies outside the run's folder")
        suffix = Path(path).suffix
        is_prefix = not find.text.endswith(SUFFIXES) and pattern.removesuffix(suffix) in find.files
        return _like(find.text, (path.removesuffix(suffix) if is_prefix and suffix in SUFFIXES else path), root, cwd)
    raise UnsettledError(f"nothing is there for {plain(find.text)}: looked for {names(find.files)}")


def _like(text: str, path: str, root: Path, cwd: str) -> str:
    """Return ``path`` written as ``text`` is: absolute, or relative to the command's folder, with its ``./``."""
    absolute = os.path.normpath(root / path)
    if Path(text).is_absolute():
        return absolute
    relative = os.path.relpath(absolute, os.path.normpath(root / cwd))
    return f"./{relative}" if text.startswith("./") else relative
