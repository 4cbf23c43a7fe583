"""Run a suite's original driver with nothing behind it, note what it would start, and compare that with tipchain.

``python tests/conformance/record_original.py START [FILE ...]`` (``--help`` says more). START is the folder of a checkout
in which the driver is started. The driver runs in a copy of it: scripts and parameter files as they are, all
other files empty. It finds no program but a shell's usual tools, and ``noting.sh`` notes each that it looks for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from command_lists import MODE, ROOT, difference, facts  # noqa: E402

from tipchain.chain.kinds import KINDS, TRAIN_INFER  # noqa: E402
from tipchain.chain.load import FUNCTIONS, fingerprint, load_plan, suite_of  # noqa: E402
from tipchain.chain.params import parse_params, read_text  # noqa: E402
from tipchain.chain.plan import Options, plan_json  # noqa: E402
from tipchain.errors import TipchainError  # noqa: E402
from tipchain.modes import Mode  # noqa: E402

DRIVER = "test_tipc/test_train_inference_python.sh"
PARAMS = "*train*infer_python*.txt"
TOOLS = (
    "awk", "basename", "bash", "cat", "cp", "cut", "date", "dirname", "expr", "find", "grep", "head", "ln", "ls", "mkdir", "mv",
    "readlink", "rm", "sed", "seq", "sort", "tail", "tee", "touch", "tr", "uniq", "wc", "yes",
)  # fmt: skip
LIMIT_S = 120


class Original:
    """A driver in a copy of its checkout, where it can break nothing.

    Args:
        start: the folder of the checkout to start it in.
        driver: the driver, named from there.
        folder: an empty folder for the copy.
    """

    def __init__(self, start: Path, driver: str, folder: Path) -> None:
        self.start, self.driver = start, driver
        self.root, self.tools, self.notes = folder / "checkout", folder / "tools", folder / "notes"
        self.tools.mkdir()
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name) or sys.exit(f"no {name} on this machine"))
        home = Path(driver).parent
        for path, inside in _files(start):
            texts = inside.suffix in (".sh", ".txt") and home in inside.parents
            self._lay(path, inside, whole=texts)
            if texts and home.name != "test_tipc":  # a template, which its users call so
                self._lay(path, Path("test_tipc") / inside.relative_to(home), whole=True)
        self.there = frozenset(_paths(self.root))

    def _lay(self, path: Path, inside: Path, *, whole: bool) -> None:
        (self.root / inside).parent.mkdir(parents=True, exist_ok=True)
        (self.root / inside).write_bytes(path.read_bytes() if whole else b"")

    def inside(self, params: Path) -> Path:
        """Return where tipchain reads a parameter file: a foreign one as if it lay in the checkout, whose driver tells its version."""
        if params.is_relative_to(self.start):
            return params
        (place := self.root / "test_tipc/configs").mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(params, place))

    def record(self, params: Path, mode: str, *more: str) -> list[dict[str, object]]:
        """Return the commands that the driver starts for a parameter file in ``mode``, and with further words."""
        if found := re.search(r"^python:(.*/.*)$", params.read_text(encoding="utf-8-sig"), re.MULTILINE):
            raise SystemExit(f"{params}: {found[1]!r} is a path and would be started; name the interpreter alone")
        own = params.is_relative_to(self.start)
        name = params.relative_to(self.start) if own else params
        self.notes.write_bytes(b"")
        env = {
            "PATH": str(self.tools),
            "BASH_ENV": str(HERE / "noting.sh"),
            "NOTES": str(self.notes),
            "HOME": "/",
            "TEST_DIR": str(self.root),  # what PaddleScience names its checkout by
            "LC_ALL": "C.UTF-8",
        }
        argv = ["bash", self.driver, str(name), mode, *more]
        subprocess.run(
            argv,
            cwd=self.root,
            env=env,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        commands = self._commands(self.notes.read_bytes().decode().split("\0")[:-1])
        for path in sorted(set(_paths(self.root)) - self.there, reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        return commands

    def _commands(self, notes: list[str]) -> list[dict[str, object]]:
        fields, commands = iter(notes), []
        for script in fields:
            if script == "tee":  # noted when it ends, after what it reads from
                pipe, file = next(fields), next(fields)
                for command in commands:
                    command["log"] = file if command["log"] == pipe else command["log"]
                continue
            line, cwd, visible, output, count = (next(fields) for _ in range(5))
            argv = [next(fields).replace(str(self.root), ROOT) for _ in range(int(count))]
            commands.append(
                {
                    "step": self._step(self.root / script, int(line), argv[0]),
                    "cwd": cwd,
                    "cuda_visible_devices": visible[1:] if visible else None,
                    "log": output,
                    "argv": argv,
                }
            )
        for command in commands:
            log = command["log"]
            silent = log == os.devnull or log.startswith("pipe:")
            command["log"] = None if silent else self._inside(log, command["cwd"])
            command["cwd"] = self._inside(".", command["cwd"])
        return commands

    def _inside(self, path: str, cwd: str) -> str:
        return os.path.relpath(Path(cwd, path), self.root)

    def _step(self, script: Path, number: int, program: str) -> str:
        """Return what a line of a driver starts; the public ones call their variables alike."""
        lines = script.read_text(encoding="utf-8").splitlines()[:number]
        line = lines[-1]
        if script.name == "benchmark_train.sh":
            return "other"
        if "func_paddle2onnx" in line:
            return "infer" if program.startswith("python") else "convert"
        if re.search(r"func_\w*inference", line):
            return "infer"
        if script.name == "test_ptq_inference_python.sh":
            return "quantize"
        if "diff_cmd" in line:
            return "compare"
        if "export_cmd" in line or re.search(r"eval \$command", line):
            return "export"
        if "ext_cmd" in line:
            return "other"
        # A driver of three programs calls the words of each alike.
        words = next((one for one in reversed(lines) if re.match(r"\s*cmd=", one)), "")
        if found := re.search(r"\$\{(export|infer)\w*_py\}", words if "$cmd" in line else ""):
            return found[1]
        return "eval" if re.search("(eval|lin)_cmd", line) else "train" if "cmd" in line else "other"


def _files(start: Path) -> Iterator[tuple[Path, Path]]:
    for folder, folders, names in os.walk(start):
        folders[:] = [name for name in folders if name not in (".git", "output")]
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                yield path, path.relative_to(start)


def _paths(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def planned(
    params: Path, mode: str, suite: str | None, root: Path, argument: str | None = None, chain: str | None = None
) -> list[dict[str, object]]:
    """Return the commands of tipchain's legacy plan."""
    options = Options(root=str(root), argument=argument)
    plan = load_plan(params, Mode(mode), chain=chain, suite=suite, legacy=True, options=options)
    commands = [facts(command) for command in plan_json(plan)["commands"]]
    for command in commands:
        command["argv"] = [word.replace(str(root), ROOT) for word in command["argv"]]
    return commands


def render(
    driver: str,
    lists: Mapping[str, Iterable[dict[str, object]]],
    argument: str | None = None,
    versions: Sequence[str] = (),
) -> str:
    """Return recorded lists as lines of JSON: blocks of commands, each under the modes that have it at that place.

    A mode's list is all blocks that name it, one after the other; ``{MODE}`` stands for its name.
    """
    merged: list[tuple[str, list[str]]] = []
    for mode, commands in lists.items():
        lines = [json.dumps(_short(command)).replace(mode, MODE) for command in commands]
        known = [line for line, _ in merged]
        following: list[tuple[str, list[str]]] = []
        for what, start, end, first, last in SequenceMatcher(None, known, lines, autojunk=False).get_opcodes():
            following += [(line, [*modes, mode] if what == "equal" else modes) for line, modes in merged[start:end]]
            following += [] if what == "equal" else [(line, [mode]) for line in lines[first:last]]
        merged = following
    word = {"argument": argument} if argument else {}
    word |= {"versions": list(versions)} if versions else {}
    parts = [json.dumps({"driver": driver, "modes": list(lists)} | word)]
    for modes, block in groupby(merged, key=lambda pair: pair[1]):
        parts += [json.dumps({"modes": modes}), *(line for line, _ in block)]
    return "\n".join(parts) + "\n"


def _short(command: dict[str, object]) -> dict[str, object]:
    rare = {name: command[name] for name in ("cwd", "cuda_visible_devices", "log") if command[name] not in (None, ".")}
    return {"step": command["step"], **rare, "argv": shlex.join(command["argv"])}


def commit_of(start: Path) -> str:
    """Return the name and the commit of the checkout."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(start), *words], capture_output=True, text=True, check=False
        ).stdout.strip()

    top = git("rev-parse", "--show-toplevel") or str(start)
    inside = start.relative_to(top).as_posix()
    return f"{Path(top).name}@{git('rev-parse', 'HEAD')[:9]}" + ("" if inside == "." else f" {inside}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "start", type=Path, metavar="START", help="the folder of a checkout that the driver is started in"
    )
    parser.add_argument(
        "files",
        type=Path,
        nargs="*",
        metavar="FILE",
        help=f"parameter files; by default all {PARAMS} of the driver's folder",
    )
    parser.add_argument("--driver", help="the driver, named from START (default: the kind's, in test_tipc)")
    parser.add_argument("--suite", help="tipchain's suite; by default told from the file")
    parser.add_argument(
        "--mode",
        action="append",
        choices=[mode.value for mode in Mode],
        help="a mode; by default all of the kind's, may be given again",
    )
    parser.add_argument("--chain", default=TRAIN_INFER, choices=KINDS, help="the kind of chain (%(default)s)")
    parser.add_argument("--argument", help="the driver's third word, as benchmark_train's dynamic_bs8_fp32_DP_N1C1")
    parser.add_argument(
        "--write",
        nargs="?",
        const="",
        metavar="VERSION",
        help="write what was recorded beside each file: FILE.txt's to FILE.jsonl, or to FILE.VERSION.jsonl",
    )
    options = parser.parse_args(arguments)
    if Path(options.write or "").suffix in (".txt", ".yaml"):
        parser.error(f"--write {options.write}: is a file, and no version's name; files come before --write")
    kind = KINDS[options.chain]
    options.driver = options.driver or f"test_tipc/{kind.driver}"
    more = [options.argument] if options.argument else []
    modes = options.mode or [mode.value for mode in kind.modes]
    start = options.start.resolve()
    files = [path.resolve() for path in options.files] or sorted((start / options.driver).parent.rglob(PARAMS))
    total = differing = 0
    with tempfile.TemporaryDirectory() as folder:
        original = Original(start, options.driver, Path(folder).resolve())
        for params in files:
            lists = {mode: original.record(params, mode, *more) for mode in modes}
            ours = original.inside(params)
            if options.write is not None:
                versions = suite_of(parse_params(read_text(ours)), options.suite, root=start).version
                text = render(f"{commit_of(start)} {options.driver}", lists, options.argument, versions)
                label = options.write and f".{options.write}"
                params.with_name(f"{params.stem}{label}.jsonl").write_text(text, encoding="utf-8")
            for mode, expected in lists.items():
                total += 1
                try:
                    actual = planned(ours, mode, options.suite, original.root, options.argument, kind.name)
                    found = difference(expected, actual)
                except TipchainError as error:
                    found = f"{len(expected)} commands expected, refused: {error}"
                if found:
                    differing += 1
                    print(f"{os.path.relpath(params, start)} {mode}: {found}\n")
    scripts = [path for path in (start / options.driver, start / FUNCTIONS) if path.is_file()]
    print(*(f"{path.name} {fingerprint(path.read_text(encoding='utf-8'))}" for path in scripts), sep=", ")
    print(f"{len(files)} files, {total} lists, {total - differing} equal, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
