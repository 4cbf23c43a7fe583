"""Whether a suite's other scripts do the same with tipchain in the checkout as without it.

A suite's benchmark_train.sh, test_train_dy2static_python.sh, its _npu and _xpu drivers and the like run, edit or source its
test_train_inference_python.sh. Each of them is run in copies of a checkout: as it is, and after tipchain came in, in one
way or another. Programs that note how they were called stand in for python, pip, wget, sleep and the like, so that nothing
is trained, installed or downloaded. Commands, exit code, what was printed and all files that changed are compared.

    python benchmarks/adoption.py --checkout DIR [--suite NAME] [--params FILE]

beside    the driver as test_tipc/tipchain.sh, a workflow, a manifest; a chain was run, with an output folder of its own
common    the same, but that run wrote to test_tipc/output, as the suite's own scripts do
replaced  the driver in place of the suite's own

The exit code is 1 if `beside` changes anything, 2 if nothing can be compared.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DRIVER = "test_tipc/test_train_inference_python.sh"
BESIDE = "test_tipc/tipchain.sh"
MODE = "lite_train_lite_infer"
WORKDIR = "tipchain-output"
PLAIN = "as it is"
CALLS = re.compile(r"^[^#]*test_train_inference_python\.sh", re.MULTILINE)
LARGE = 1 << 20
LIMIT_S = 300

NOTE = """\
#!/bin/bash
printf '%s\\t%s\\t%s\\n' "$PWD" "${CUDA_VISIBLE_DEVICES-unset}" "$(printf '%q ' "${0##*/}" "$@")" >> "$ADOPTION_COMMANDS"
"""
PROGRAM = f"""\
{NOTE}case "${{1:-}}" in
  *extract_loss.py) exec "$ADOPTION_PYTHON" "$@" ;;  # it only reads what the others printed
esac
echo "[TRAIN] epoch: 1, Iter: [0/1], loss: 0.50000, ips: 8.0"
"""
TIPCHAIN = """\
#!/bin/bash
PYTHONPATH="$ADOPTION_ROOT" exec "$ADOPTION_PYTHON" -m tipchain "$@"
"""
JETSON = """\
===========================infer_params===========================
model_name:net
python:python
infer_model:./inference/net
infer_export:null
infer_quant:False
inference:infer.py
--use_gpu:True|False
--mkldnn:False
--threads:1
--batch:1|2
--trt:False
--precision:fp32
--model:null
--image:./images
--log:null
--benchmark:False
--extra:null
"""


class BenchError(Exception):
    """Nothing can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one call of a script did: its exit code, commands and printed lines, and the text of each changed file."""

    code: int
    commands: tuple[str, ...]
    printed: str
    files: Mapping[str, str]


def callers(checkout: Path) -> list[str]:
    """Return the scripts in ``test_tipc`` that use the suite's driver, by what they say."""
    scripts = sorted((checkout / "test_tipc").glob("*.sh"))
    return [
        script.name
        for script in scripts
        if script.name not in (Path(DRIVER).name, Path(BESIDE).name)
        and CALLS.search(script.read_text(errors="replace"))
    ]


def arguments(script: str, params: str) -> list[list[str]]:
    """Return the calls that are tried of a script: its arguments, for each."""
    if "benchmark" in script:
        return [[params, "benchmark_train", f"dynamic_bs4_fp32_DP_{devices}"] for devices in ("N1C1", "N1C2")]
    if "dy2static" in script:
        return [[params]]
    if re.search("jeston|jetson", script):
        return [["test_tipc/jetson.txt", "whole_infer"]]
    return [[params, MODE]]


def copy_tree(source: Path, target: Path) -> None:
    """Copy a checkout without its history and without large files, which no script of these reads."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        paths = {name: Path(folder, name) for name in names}
        large = {n for n, path in paths.items() if path.is_file() and path.stat().st_size > LARGE}
        return large | ({".git", "output"} & set(names))

    shutil.copytree(source, target, symlinks=True, ignore=left_out)


def contents(root: Path) -> Iterator[tuple[str, str]]:
    """Yield path and SHA-256 of every file, and where links lead."""
    for folder, folders, names in os.walk(root):
        for name in (*names, *(name for name in folders if Path(folder, name).is_symlink())):
            path = Path(folder, name)
            told = f"link to {path.readlink()}" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
            yield str(path.relative_to(root)), told


class Bench:
    """Copies of one checkout, always at the same place, so that paths in commands and files are the same."""

    def __init__(self, checkout: Path, work: Path, suite: str | None) -> None:
        self.suite, self.work = suite, work
        self.pristine, self.root = work / "pristine" / checkout.name, work / "here" / checkout.name
        self.commands = work / "commands"
        copy_tree(checkout, self.pristine)
        (self.pristine / "test_tipc/jetson.txt").write_text(JETSON)
        programs = work / "bin"
        programs.mkdir()
        for name in ("python", "python2", "python3", *(f"python3.{minor}" for minor in range(6, 15))):
            _write_program(programs / name, PROGRAM)
        for name in ("pip", "pip3", "sleep", "nvidia-smi", "wget", "curl", "apt", "apt-get", "sudo"):
            _write_program(programs / name, NOTE)
        _write_program(programs / "tipchain", TIPCHAIN)
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "PATH", "TMPDIR")}
        self.env = {
            **kept,
            "PATH": f"{programs}:{kept['PATH']}",
            "ADOPTION_COMMANDS": str(self.commands),
            "ADOPTION_PYTHON": sys.executable,
            "ADOPTION_ROOT": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )

    def make(self, way: str, adopt: Callable[[Bench], None]) -> None:
        """Make the copy of ``way``, into which ``adopt`` brings tipchain."""
        self._renew(self.pristine)
        adopt(self)
        self.root.rename(self.work / way)

    def trace(self, script: str, words: list[str], way: str) -> Trace:
        """Call a script in a copy of ``way``."""
        self._renew(self.work / way)
        before = dict(contents(self.root))
        self.commands.write_text("")
        done = self.call("bash", f"test_tipc/{script}", *words)
        after = dict(contents(self.root))
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        return Trace(
            code=done.returncode,
            commands=tuple(self.commands.read_text().splitlines()),
            printed=done.stdout,
            files={name: self._text(name) for name in sorted(changed)},
        )

    def _renew(self, source: Path) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(source, self.root, symlinks=True)

    def _text(self, name: str) -> str:
        path = self.root / name
        if path.is_symlink():
            return f"link to {path.readlink()}\n"
        return path.read_text(errors="replace") if path.exists() else "deleted\n"


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def nothing(_bench: Bench) -> None:
    """Leave the checkout as it is."""


def beside(bench: Bench, params: str, *, common: bool = False) -> None:
    """Add what docs/suite-in-ci.md adds, and run a chain."""
    shutil.copy(ROOT / "test_train_inference_python.sh", bench.root / BESIDE)
    (bench.root / ".github/workflows").mkdir(parents=True, exist_ok=True)
    (bench.root / ".github/workflows/tipc.yml").write_text("on: pull_request\n")
    (bench.root / "test_tipc/nightly.yaml").write_text("name: suite\n")
    words = [] if common else ["--out", WORKDIR]
    if bench.suite:
        words += ["--suite", bench.suite]
    for command in (["tipchain", "run"], ["bash", BESIDE]):
        done = bench.call(*command, params, MODE, "--device", "cpu", "--lenient", *words)
        # The stand-ins leave no weights, so that the chain itself fails; on a machine without GPUs nothing is run.
        if done.returncode not in (0, 1, 4):
            raise BenchError(f"{' '.join(command)} {params}: exit code {done.returncode}\n{done.stdout}")


def replaced(bench: Bench) -> None:
    """Put the driver in place of the suite's own."""
    (bench.root / DRIVER).unlink()
    shutil.copy(ROOT / "test_train_inference_python.sh", bench.root / DRIVER)


def settled(text: str) -> list[str]:
    """Return what was printed, without what depends on which of two programs of a pipe came first."""
    lines = (line.partition("+")[0] for line in text.splitlines())  # `set -x` traces both into one line, even
    return sorted(line for line in lines if line.strip())


def differences(before: Trace, after: Trace) -> list[str]:
    """Return what is not the same, a line for each."""
    found = [] if before.code == after.code else [f"exit code {before.code}, then {after.code}"]
    lines = difflib.unified_diff(before.commands, after.commands, "before", "after", lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if changed:
        found.append(f"{len(before.commands)} commands, then {len(after.commands)}; first: {changed[0]}")
    if settled(before.printed) != settled(after.printed):
        lines = after.printed.splitlines()
        new = next((line for line in lines if line not in before.printed), lines[-1] if lines else "nothing")
        found.append(f"prints something else: {new.strip()}")
    for name in sorted({*before.files, *after.files}):
        if (
            name not in before.files
            or name not in after.files
            or (settled(before.files[name]) != settled(after.files[name]))
        ):
            what = (
                "other content"
                if name in before.files and name in after.files
                else ("not written any more" if name in before.files else "written now")
            )
            found.append(f"{name}: {what}")
    return found


def compare(bench: Bench, params: str, ways: Mapping[str, Callable[[Bench], None]]) -> dict[str, int]:
    """Print a table of all calls in all ways; return the number of calls that changed, by way."""
    bench.make(PLAIN, nothing)
    for way, adopt in ways.items():
        bench.make(way, adopt)
    changed = dict.fromkeys(ways, 0)
    for script in callers(bench.pristine):
        for words in arguments(script, params):
            first = bench.trace(script, words, PLAIN)
            if unstable := differences(first, bench.trace(script, words, PLAIN)):
                raise BenchError(f"{script} does not do the same twice: {unstable}")
            print(f"\n{script} {' '.join(words[1:])}")
            print(f"  {PLAIN}  exit {first.code}, {len(first.commands)} commands, {len(first.files)} files changed")
            for way in ways:
                found = differences(first, bench.trace(script, words, way))
                changed[way] += bool(found)
                print(f"  {way:<9} {f'{len(found)} differences' if found else 'the same'}")
                for line in found[:4]:
                    print(f"            {line[:160]}")
    return changed


def default_params(checkout: Path) -> str:
    """Return the first parameter file that all scripts can use."""
    for file in sorted((checkout / "test_tipc/configs").glob("**/*train_infer_python.txt")):
        if "train_benchmark_params" in file.read_text(errors="replace"):
            return str(file.relative_to(checkout))
    raise SystemExit(f"{checkout}: no train_infer_python.txt with a section train_benchmark_params; give --params")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR")
    parser.add_argument("--suite", metavar="NAME", help="the suite's profile; told from the file if left out")
    parser.add_argument("--params", metavar="FILE", help="parameter file, from the checkout's root")
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    if not (checkout / DRIVER).is_file():
        parser.error(f"{checkout} has no {DRIVER}")
    params = args.params or default_params(checkout)
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%h of %cs"], cwd=checkout, capture_output=True, text=True, check=False
    ).stdout.strip()
    if not callers(checkout):
        parser.error(f"no script in {checkout}/test_tipc uses {DRIVER}")
    print(f"{checkout.name} {commit or '(no git)'}, {params}")
    ways = {
        "beside": lambda bench: beside(bench, params),
        "common": lambda bench: beside(bench, params, common=True),
        "replaced": replaced,
    }
    with tempfile.TemporaryDirectory(prefix="adoption-") as work:
        try:
            changed = compare(Bench(checkout, Path(work), args.suite), params, ways)
        except BenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    print("\ncalls that changed: " + ", ".join(f"{way} {count}" for way, count in changed.items()))
    return 1 if changed["beside"] else 0


if __name__ == "__main__":
    sys.exit(main())
