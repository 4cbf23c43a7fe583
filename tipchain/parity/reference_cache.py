"""torch's dumps of earlier runs: a stage is not recorded again while all that it rests on is as it was.

What a dump rests on is known in two halves. Before anything runs: the case with its prepared inputs, weights and data, how it is
run (device, threads, environment), what is installed, tipchain's own code. After it ran: the files that the process has imported
and opened. An entry serves where the first half is equal and every file of the second is as it was; else the stage is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from filelock import FileLock

import tipchain
from tipchain.core.files import RUN_VARIABLE, atomic_write
from tipchain.modes import DATA_FOLDER, NONE
from tipchain.outcome import Outcome
from tipchain.parity.case import Case
from tipchain.parity.inputs import mark
from tipchain.parity.publish import link, stage_files
from tipchain.parity.recorder import RecordingJob
from tipchain.parity.stages.judging import StageJudgement

FORMAT = 1
"""Number of the entries' format."""
KEPT_BYTES = 2 << 30
"""What the entries of all cases may take; the ones that served least recently go first."""
PASSING = {RUN_VARIABLE, "PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES"}
"""Variables that differ from one command to the next and reach no number."""
PROCESSOR = ("vendor", "model", "stepping", "flags", "CPU ", "Features")
"""What the lines of ``/proc/cpuinfo`` begin with that decide on kernels."""
PASSING_JOB = {"stages", "needs", "folder", "commit", "since", "noise"}
"""What a job says besides of one run."""


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCache:
    """The entries of one case: a folder each, with the files of a stage and ``entry.json``, written last.

    Attributes:
        folder: of the entries of all cases.
        case: the id of the case.
        keys: what is known before anything runs, as a SHA-256, by stage.
        served: when the entries that served were recorded, by stage.
        marks: of what those rest on, by stage; what is recorded besides rests on that, too.
        seen: marks of files as they are now.
    """

    folder: Path
    case: str
    keys: Mapping[str, str]
    served: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mapping[str, str]] = field(default_factory=dict)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, job: RecordingJob, stages: Sequence[str]) -> ReferenceCache:
        """Return the cache for what ``job`` would record of ``stages``."""
        common = {
            "format": FORMAT,
            "case": case.digest,
            "path": job.case,
            "data": [] if case.data.set == NONE else [_listing(Path(one)) for one in (job.train_data, job.eval_data)],
            "job": {key: value for key, value in asdict(job).items() if key not in PASSING_JOB},
            "cwd": str(Path.cwd()),
            "environment": {k: v for k, v in os.environ.items() if k not in PASSING},
            **_machine(),
        }
        keys = {}
        for stage in stages:
            needs = asdict(job.needs[stage])
            needs["inputs"] = bool(needs["inputs"])  # the file lies in the run's folder; its digest is among the others
            keys[stage] = _digest({**common, "stage": stage, "needs": needs})
        return cls(folder=case.root / DATA_FOLDER / "references", case=case.id, keys=keys)

    def _entry(self, stage: str) -> Path:
        return self.folder / self.case / f"{stage}-{self.keys[stage][:20]}"

    def adopt(self, stage: str, folder: Path) -> bool:
        """Bring the files of a stage to ``folder`` if an entry serves, and tell whether one does."""
        entry = self._entry(stage)
        try:
            content = json.loads((entry / "entry.json").read_bytes())
            intact = content["key"] == self.keys[stage] and content["files"] == _files(entry, content["files"])
            if not intact or any(self._mark(path, one) != one for path, one in content["marks"].items()):
                return False
            for name in content["files"]:
                link(entry / name, folder / name)
            os.utime(entry / "entry.json")
            self.served[stage], self.marks[stage] = str(content["recorded"]), content["marks"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        return True

    def _mark(self, path: str, known: str) -> str:
        """Return what a path is now known by, in the way it was."""
        key = path, known.partition(" ")[0]
        if key not in self.seen:
            self.seen[key] = mark(*key)
        return self.seen[key]

    def note(self) -> str:
        """Return what a reader should know of the stages that were not recorded anew."""
        since = min(self.served.values())
        return (
            f"torch's side is of an earlier run ({since}) in {len(self.served)} of the stages: nothing it rests on has "
            "changed since; --fresh records it anew"
        )

    def keep(self, judgement: StageJudgement, marks: Mapping[str, str] | None, folder: Path) -> None:
        """Keep what torch has recorded of a stage, unless it changed what it rests on or could not be judged."""
        stage = judgement.stage
        if not marks or any(one.outcome is Outcome.ERROR for one in judgement.verdicts):
            return
        entry = self._entry(stage)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                shutil.rmtree(entry, ignore_errors=True)
                entry.mkdir()
                names = [name for name in stage_files(stage, ("torch",)) if (folder / name).is_file()]
                for name in names:
                    link(folder / name, entry / name)
                content = {
                    "key": self.keys[stage],
                    "recorded": time.strftime("%Y-%m-%d %H:%M"),
                    "files": _files(entry, names),
                    "marks": {**self.marks.get(stage, {}), **marks},
                }
                atomic_write(entry / "entry.json", json.dumps(content) + "\n")
                self._shrink()
        except OSError as error:  # a full or read-only disk costs time, no result
            print(f"{entry}: not kept: {error}", file=sys.stderr)

    def _shrink(self) -> None:
        """Remove the entries that served least recently, until the others take no more than `KEPT_BYTES`."""
        entries = sorted(self.folder.glob("*/*/entry.json"), key=lambda one: -one.stat().st_mtime)
        taken = 0
        for one in entries:
            taken += sum(file.stat().st_size for file in one.parent.iterdir())
            if taken > KEPT_BYTES:
                one.unlink()
                shutil.rmtree(one.parent, ignore_errors=True)


def _files(entry: Path, names: Sequence[str]) -> dict[str, list[int]]:
    """Return size and time of an entry's files, in which a change of one shows."""
    found = {name: (entry / name).stat() for name in names}
    return {name: [status.st_size, status.st_mtime_ns] for name, status in found.items()}


def _listing(folder: Path) -> str:
    """Return a digest of the names, sizes and times of all files below a folder of data."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _digest([(str(path), (status := path.stat()).st_size, status.st_mtime_ns) for path in files])


@cache
def _machine() -> dict[str, object]:
    """Return what is installed and which processor computes, for its kernels decide on the last places."""
    package = Path(tipchain.__file__).parent
    code = {str(path.relative_to(package)): mark(str(path), "content") for path in sorted(package.rglob("*.py"))}
    lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    processor = [line for line in lines if line.startswith(PROCESSOR)]
    installed = [
        (str(one), one.stat().st_mtime_ns)
        for folder in dict.fromkeys(Path(one).absolute() for one in sys.path)
        if folder.is_dir()
        for one in sorted(folder.iterdir())
        if one.suffix in (".dist-info", ".egg-info", ".egg-link", ".pth")
    ]
    return {
        "tipchain": _digest(code),
        "python": sys.version,
        "executable": sys.executable,
        "path": sys.path,
        "platform": platform.platform(),
        "processor": processor,
        "installed": _digest(installed),
    }
