"""A public suite's own chains, run in its own checkout: what really happened, what its driver says, what tipchain says.

For each model of the suite's recipe (`suite_recipes`) the original driver and tipchain run with a shim in place of the
interpreter, which notes the exit status of every command. A false alarm is a command that tipchain calls FAIL or ERROR
although its program ended with 0 and left what it should; a missed failure is a PASS of a program that failed, or of one
that a planted fault kept from its work. With ``--faults`` seven faults are planted in the first model.

    python benchmarks/real_suites.py --checkout DIR --suite NAME [--paddle 2.6.2|3.3.1] [--python PATH]
        [--chain KIND] [--model NAME ...] [--faults] [--work DIR] [--table FILE]

The checkout is used as it is and gains tiny data and output; give it a clone that can be thrown away. Without ``--python``
a virtual environment with the recipe's packages is made below ``--work``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suite_recipes import Model, Recipe, get_recipe

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tipchain.chain.kinds import KINDS, TRAIN_INFER  # noqa: E402
from tipchain.chain.load import changed_text, device_changes, set_changes  # noqa: E402
from tipchain.chain.params import parse_params, read_text  # noqa: E402
from tipchain.chain.profiles import get_suite  # noqa: E402
from tipchain.chain.slots import read_slots  # noqa: E402

LIMIT_S = 1800
# pynvml has Python load its own zlib before Paddle 2.6.2 brings another, beside which SciPy crashes or inference hangs.
BASES = {
    "2.6.2": ("paddlepaddle==2.6.2", "numpy<2", "setuptools<81", "pynvml"),
    "3.3.1": ("paddlepaddle==3.3.1", "setuptools<81"),
}
# paddle2onnx 2 reads the programs of Paddle 3, 1 those of Paddle 2.
OF_CHAIN = {
    "paddle2onnx": {
        "2.6.2": ("paddle2onnx==1.3.1", "onnx<1.17", "onnxruntime<1.21"),
        "3.3.1": ("paddle2onnx==2.1.0", "onnxruntime"),
    },
    "ptq_infer_python": {"2.6.2": ("paddleslim==2.6.0",), "3.3.1": ("paddleslim==2.6.0",)},
}
SHIM = """\
import json, os, signal, subprocess, sys, time
real, notes, kill = {real!r}, {notes!r}, {kill!r}
argv, start = sys.argv[1:], time.time()
child = subprocess.Popen([real, *argv])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: child.send_signal(number))
if kill and kill in " ".join(argv):
    time.sleep(float(os.environ.get("SHIM_KILL_AFTER_S", "3")))
    child.kill()
code = child.wait()
with open(notes, "a") as file:
    file.write(json.dumps({{"argv": argv, "cwd": os.getcwd(), "code": code, "seconds": time.time() - start}}) + "\\n")
if code < 0:
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
OURS = "import sys; sys.path.insert(0, {root!r}); from tipchain.cli import main; sys.exit(main())"
STATUS = re.compile(r"Run (successfully|failed) with command")
STUB = "import importlib.machinery as m, sys\nclass _Any:\n    def __getattr__(self, name): return _Any()\n    def __call__(self, *a, **k): return _Any()\n__path__ = []\ndef __getattr__(name):\n    if name.startswith('__'): raise AttributeError(name)\n    return _Any()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A planted fault.

    Attributes:
        name: what the table calls it.
        settings: lines to change.
        lost_role: the role whose line is taken out, "" for none.
        moved: whether the data are moved away.
        kill: a text in the words of the command that is killed, "" for none.
        fails: the step that must not pass; "" where the file must be refused.
    """

    name: str
    settings: tuple[str, ...] = ()
    lost_role: str = ""
    moved: bool = False
    kill: str = ""
    fails: str = ""


@dataclass(slots=True, kw_only=True)
class Row:
    """One command: the words of all three."""

    model: str
    command: str
    truth: str
    original: str
    ours: str
    wrong: str = ""


@dataclass(slots=True, kw_only=True)
class Ran:
    """What one side's run came to: exit code, the shim's notes, the words by command."""

    code: int
    notes: list[dict[str, Any]] = field(default_factory=list)
    words: list[tuple[str, str, str]] = field(default_factory=list)
    output: str = ""


def main() -> int:
    """Run what the command line names; 1 if tipchain was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--paddle", choices=tuple(BASES), default="3.3.1")
    parser.add_argument("--python", type=Path, help="interpreter with Paddle and the suite's packages")
    parser.add_argument("--chain", choices=KINDS, default=TRAIN_INFER, help="the kind of chain (%(default)s)")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--faults", action="store_true", help="plant faults in the first model instead")
    parser.add_argument("--work", type=Path, default=Path("/tmp/real_suites"))  # noqa: S108 - a benchmark's own
    parser.add_argument("--table", type=Path, help="write the table there, too")
    args = parser.parse_args()
    recipe = get_recipe(args.suite)
    models = [one for one in recipe.models if one.chain == args.chain and args.paddle in one.versions]
    models = [one for one in models if not args.model or one.name in args.model]
    if not models or (args.faults and args.chain != TRAIN_INFER):
        parser.error("the recipe has nothing for that")
    bench = Bench(recipe, args.checkout.resolve(), args.paddle, args.work.resolve(), args.python, args.chain)
    bench.prepare()
    rows = bench.faults(models[0]) if args.faults else [row for one in models for row in bench.compare(one)]
    text = bench.table(rows)
    print(text)
    if args.table:
        args.table.write_text(text + "\n", encoding="utf-8")
    return 1 if any(row.wrong for row in rows) else 0


class Bench:
    """One suite in one checkout with one version of Paddle."""

    def __init__(
        self, recipe: Recipe, checkout: Path, paddle: str, work: Path, python: Path | None, chain: str
    ) -> None:
        self.recipe, self.checkout, self.paddle, self.work = recipe, checkout, paddle, work
        self.start = checkout / recipe.start
        self.packages = OF_CHAIN.get(chain, {}).get(paddle, ())
        own = f"-{chain}" if self.packages else ""
        self.python = python or work / f"venv-{recipe.suite}-{paddle}{own}" / "bin" / "python"
        self.given = python is not None
        self.suite = get_suite(recipe.suite)
        self.stubs = work / f"stubs-{recipe.suite}"

    def prepare(self) -> None:
        """Make the environment and the data."""
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.given and not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.python.parents[1]], check=True)
            wanted = (*BASES[self.paddle], *self.recipe.packages.get(self.paddle, ()), *self.packages)
            subprocess.run([self.python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        for name in self.recipe.unchecked:
            path = self.stubs.joinpath(*name.split(".")[:-1], f"{name.split('.')[-1]}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(STUB, encoding="utf-8")
        self.recipe.make_data(self.start)

    # The parameter file

    def edited(self, model: Model, settings: Sequence[str], *, device: bool, lost: str = "") -> str:
        """Return the model's file with lines changed, as tipchain itself changes them."""
        path = self.start / model.file
        text = read_text(path)
        text, _ = changed_text(text, set_changes(parse_params(text, model.file), settings))
        if model.chain not in (TRAIN_INFER, "benchmark_train"):
            return text  # these name no device that the CPU stands for
        slots = read_slots(parse_params(text, model.file), self.suite)
        if device:
            text, _ = changed_text(text, tuple(device_changes(slots, "cpu")))
        lines = text.splitlines()
        if lost:
            del lines[slots[lost].line - 1]
        return "\n".join(lines) + "\n"

    def setting(self, model: Model, role: str, value: str) -> str:
        """Return the setting that gives the line of ``role`` a value."""
        slot = read_slots(parse_params(read_text(self.start / model.file), model.file), self.suite)[role]
        return f"{slot.line}:{slot.key}={value}"

    # The two sides

    def shim(self, name: str, kill: str = "") -> tuple[Path, Path]:
        """Return a folder with a noting interpreter under the usual names, and the file of its notes."""
        folder, notes = self.work / f"shim-{name}", self.work / f"shim-{name}.jsonl"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        notes.write_text("")
        (folder / "shim.py").write_text(SHIM.format(real=str(self.python), notes=str(notes), kill=kill))
        script = f'"{self.python.parent / "paddle2onnx"}"'
        aliases = dict.fromkeys(("python", "python3", "python3.7", "python3.8", "python3.9", "python3.10"), "")
        for alias, program in {**aliases, "paddle2onnx": script}.items():
            path = folder / alias
            path.write_text(f'#!/bin/sh\nexec "{self.python}" "{folder}/shim.py" {program} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
        for alias in ("pip", "pip3", "sleep"):
            (folder / alias).write_text("#!/bin/sh\nexit 0\n")
            (folder / alias).chmod(0o755)
        return folder, notes

    def environment(self, shim: Path) -> dict[str, str]:
        """Return the environment of both sides."""
        paths = [str(self.stubs)] if self.recipe.unchecked else []
        given = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_VISIBLE")}
        paths += [one["PYTHONPATH"] for one in (self.recipe.env, given) if one.get("PYTHONPATH")]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        path = f"{shim}{os.pathsep}{self.python.parent}{os.pathsep}{given['PATH']}"
        extra = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
        return {**given, **threads, **self.recipe.env, **extra, "PATH": path}

    def run_original(self, model: Model, text: str, kill: str = "") -> Ran:
        """Run the suite's own driver on ``text``."""
        file = Path(model.file).with_name("real_suites_train_infer_python.txt")
        (self.start / file).write_text(text)
        self.clean(model, text)
        shim, notes = self.shim("original", kill)
        env = {**self.environment(shim)}
        try:
            driver = self.recipe.driver
            if model.chain != TRAIN_INFER:
                driver = str(Path(driver).with_name(KINDS[model.chain].driver))
            argument = [model.argument] if model.argument else []
            done = _bounded(["bash", driver, str(file), model.mode, *argument], self.start, env)
        finally:
            (self.start / file).unlink()
        ran = Ran(code=done.returncode, notes=_notes(notes), output=done.stdout)
        ran.words = [
            ("", "", "passed" if found[1] == "successfully" else "failed") for found in STATUS.finditer(done.stdout)
        ]
        return ran

    def run_ours(self, model: Model, settings: Sequence[str], kill: str = "", text: str = "") -> Ran:
        """Run tipchain on the model's unedited file with ``--device cpu`` and ``--set``, or on ``text`` as it is."""
        file, words = model.file, ["--device", "cpu", *(f"--set={one}" for one in settings)]
        if text:
            file, words = str(Path(model.file).with_name("real_suites_train_infer_python.txt")), []
            (self.start / file).write_text(text)
        shim, notes = self.shim("ours", kill)
        report = self.work / "report.json"
        report.unlink(missing_ok=True)
        env = self.environment(shim)
        try:
            argument = [model.argument] if model.argument else []
            words = [file, model.mode, *argument, *words, *model.words, "--chain", model.chain]
            words += ["--suite", self.recipe.suite, "--json", str(report)]
            argv = [sys.executable, "-c", OURS.format(root=str(ROOT)), "run", *words]
            done = _bounded(argv, self.start, env)
        finally:
            if text:
                (self.start / file).unlink()
        ran = Ran(code=done.returncode, notes=_notes(notes), output=done.stdout)
        if report.exists():
            for result in json.loads(report.read_text())["results"]:
                shown = {
                    name: value
                    for name, value in result.get("figures", {}).items()
                    if name == "difference_ratio" or name.startswith("avg_ips[")
                }
                figures = ", ".join(f"{name} {float(value):.3g}" for name, value in shown.items())
                said = result.get("reason", "") or figures
                ran.words.append((result["command"]["id"], result["outcome"], said))
        return ran

    def clean(self, model: Model, text: str) -> None:
        """Take away what an earlier run of the original left: it counts old files as its own."""
        for file in re.findall(r"^--save_file:(.*)$", text, re.MULTILINE):  # an ONNX model
            (self.start / file.strip()).unlink(missing_ok=True)
        name = re.search(r"^model_name:(.*)$", text, re.MULTILINE)
        if name:
            where = {"root": str(self.start), "model": name[1].strip(), "mode": model.mode}
            shutil.rmtree(self.start / self.suite.out.format(**where), ignore_errors=True)

    def make(self, model: Model) -> None:
        """Make what a model's chain needs and nobody has put there: an export, say."""
        env = self.environment(self.shim("make")[0])
        for file, line in model.makes:
            if not (self.start / file).exists():
                _bounded([str(self.python), *line.split()], self.start, env)
                if not (self.start / file).exists():
                    sys.exit(f"{line}: it did not make {file}")

    # Comparing

    def compare(self, model: Model) -> list[Row]:
        """Return the rows of a model: each command of tipchain's with its own truth, the original's beside it."""
        self.make(model)
        ours = self.run_ours(model, model.settings)
        original = self.run_original(
            model, self.edited(model, (*model.settings, *model.original_settings), device=True)
        )
        return self.rows(model.name, ours, original)

    def rows(self, name: str, ours: Ran, original: Ran, fault: Fault | None = None) -> list[Row]:
        """Return a row for each command, or one where tipchain refused the file."""
        said = [word for _, _, word in original.words]
        truths = [_truth(note) for note in original.notes]
        theirs = [f"{word} ({truth})" for word, truth in _padded(said, truths)]
        if ours.code == 2:
            lines = ours.output.strip().splitlines()
            wrong = "" if fault and not fault.fails else "refused"
            beside = f"exit {original.code}: " + ", ".join(theirs)
            return [
                Row(
                    model=name,
                    command="(whole file)",
                    truth="",
                    original=beside,
                    ours=f"exit 2: {lines[-1] if lines else ''}",
                    wrong=wrong,
                )
            ]
        if len(truths) > len(ours.words):  # it runs other commands as well
            theirs = [", ".join(theirs) if len(said) == len(truths) else f"{', '.join(said)} ({', '.join(truths)})"]
        notes, rows = list(ours.notes), list[Row]()
        started = [one for one in ours.words if one[1] != "SKIP" and "not started" not in one[2]]
        for identifier, outcome, reason in ours.words:
            note = notes.pop(0) if (identifier, outcome, reason) in started and notes else None
            truth = _truth(note) if note else "not run"
            wrong = _wrong(identifier, outcome, note, fault)
            index = len(rows)
            rows.append(
                Row(
                    model=name,
                    command=identifier,
                    truth=truth,
                    wrong=wrong,
                    original=theirs[index] if index < len(theirs) else "-",
                    ours=outcome + (f": {reason}" if reason else ""),
                )
            )
        if fault and not fault.fails:
            rows.append(
                Row(
                    model=name,
                    command="(whole file)",
                    truth="must be refused",
                    original="",
                    ours=f"exit {ours.code}",
                    wrong="missed",
                )
            )
        elif fault and not any(row.command.startswith(fault.fails) and not row.ours.startswith("PASS") for row in rows):
            rows.append(
                Row(
                    model=name,
                    command=f"({fault.fails})",
                    truth="must not pass",
                    original="",
                    ours=f"exit {ours.code}",
                    wrong="missed",
                )
            )
        if not rows:
            rows.append(
                Row(
                    model=name,
                    command="(whole file)",
                    truth="",
                    original=", ".join(theirs),
                    ours=f"exit {ours.code}: {ours.output.strip()[-200:]}",
                    wrong="nothing run",
                )
            )
        return rows

    def faults(self, model: Model) -> list[Row]:
        """Return the rows of seven faults planted in a model."""
        text = self.edited(model, model.settings, device=True)
        slots = read_slots(parse_params(text, model.file), self.suite)
        program = slots["train_norm"].value.split()[0]
        if program == "-u":
            program = slots["train_norm"].value.split()[1]
        # Where the checkpoint's name is not the file's, it is made of the model's.
        named = "train_model_name" if "{name}" in self.suite.weights else "model_name"
        weights = f"{model.mode}=no_such_model" if named in self.suite.mode_lists else "no_such_model"
        batch = f"{model.mode}=-5" if "batch" in self.suite.mode_lists else "-5"
        planted = (
            Fault(name="data path", moved=True, fails="train"),
            Fault(name="lost line", lost_role="epoch"),
            Fault(name="trainer typo", settings=(self.setting(model, "trainer", "norm_trian"),)),
            Fault(name="inference batch 0", settings=(self.setting(model, "infer_batch", "0"),), fails="infer"),
            Fault(name="training batch -5", settings=(self.setting(model, "batch", batch),), fails="train"),
            Fault(name="wrong checkpoint name", settings=(self.setting(model, named, weights),), fails="train"),
            Fault(name="SIGKILL of training", kill=program, fails="train"),
        )
        return [row for fault in planted for row in self.fault(model, fault)]

    def fault(self, model: Model, fault: Fault) -> list[Row]:
        """Return the rows of one fault."""
        settings = (*_without(model.settings, fault.settings), *fault.settings)
        moved = [
            (self.start / name, self.start / f"{name.rstrip('/')}.away") for name in self.recipe.data if fault.moved
        ]
        for path, away in moved:
            path.rename(away)
        try:
            text = self.edited(model, settings, device=True, lost=fault.lost_role)
            ours = self.run_ours(model, settings, fault.kill, text if fault.lost_role else "")
            text = self.edited(model, (*settings, *model.original_settings), device=True, lost=fault.lost_role)
            original = self.run_original(model, text, fault.kill)
        finally:
            for path, away in moved:
                shutil.rmtree(path, ignore_errors=True)
                away.rename(path)
        return self.rows(f"{model.name}, {fault.name}", ours, original, fault)

    def table(self, rows: Iterable[Row]) -> str:
        """Return the rows as a table in Markdown, with where and when."""
        git = ["git", "-C", str(self.checkout), "log", "-1", "--format=%h %cs"]
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
        day = datetime.now(timezone.utc).date().isoformat()
        rows = list(rows)
        alarms = sum(row.wrong == "false alarm" for row in rows)
        head = f"{self.recipe.repository} {commit}, Paddle {self.paddle}, CPU, {day}: {len(rows)} rows, "
        head += f"{alarms} false alarms, {sum(row.wrong == 'missed' for row in rows)} missed, {sum(row.wrong in ('refused', 'nothing run') for row in rows)} refused"
        lines = [
            head,
            "",
            "| model | command | truth | original says (truth) | tipchain says | |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {' | '.join(_cell(one) for one in (row.model, row.command, row.truth, row.original, row.ours, row.wrong))} |"
            for row in rows
        ]
        return "\n".join(lines)


def _cell(text: str) -> str:
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return text if len(text) <= 140 else f"{text[:137]}..."


def _without(settings: Sequence[str], planted: Sequence[str]) -> tuple[str, ...]:
    """Return ``settings`` without those of the lines that a fault changes; both name them in one way or another."""
    keys = {one.partition(":")[2].partition("=")[0] for one in planted}
    return tuple(
        one for one in settings if not any(key and (one.startswith(f"{key}=") or f":{key}=" in one) for key in keys)
    )


def _padded(words: Sequence[str], truths: Sequence[str]) -> list[tuple[str, str]]:
    if len(words) == len(truths):
        return list(zip(words, truths, strict=True))
    return (
        [("no word", truth) for truth in truths]
        if not words
        else [(f"{len(words)} words: {','.join(words)}", truth) for truth in truths]
    )


def _truth(note: Mapping[str, object]) -> str:
    code = int(str(note["code"]))
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _wrong(identifier: str, outcome: str, note: Mapping[str, object] | None, fault: Fault | None) -> str:
    """Return what is wrong with an outcome, "" for nothing."""
    if note is None:
        return ""
    ended_well = note["code"] == 0
    if outcome == "PASS":
        return "" if ended_well else "missed"
    planted = fault is not None and identifier.startswith(fault.fails or "-")
    return "false alarm" if ended_well and not planted else ""


def _notes(path: Path) -> list[dict[str, Any]]:
    """Return what the shim noted of programs; that an interpreter was asked for a version is none."""
    notes = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in notes if one["argv"][:1] != ["-c"]]


def _bounded(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, or for LIMIT_S seconds."""
    start = time.monotonic()
    done = subprocess.run(
        ["timeout", "--kill-after=10", str(LIMIT_S), *argv],
        cwd=cwd,
        env=dict(env),
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    print(
        f"{time.monotonic() - start:7.1f} s  exit {done.returncode}  {' '.join(argv[:1])} {cwd.name}", file=sys.stderr
    )
    return done


if __name__ == "__main__":
    sys.exit(main())
