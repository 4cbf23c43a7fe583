"""All public parameter files of the suites' checkouts: what is refused, what lint says, and how default and legacy plans differ.

    python benchmarks/public_files.py --checkouts DIR [--lost-lines]

``DIR`` holds the checkouts, each a folder. Every ``*train*infer_python*.txt`` below it is read, planned in all modes, with
and without the originals' defects, and looked at by lint. ``--lost-lines`` takes each line out of each file in turn, and
counts how often the refusal names the place. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tipchain.chain.build import build_spec, legacy_spec  # noqa: E402
from tipchain.chain.expand import expand  # noqa: E402
from tipchain.chain.lint import lint_file  # noqa: E402
from tipchain.chain.load import checkout, detect_suite, load_plan  # noqa: E402
from tipchain.chain.params import parse_params, read_text, split_lines  # noqa: E402
from tipchain.chain.plan import Command, Options, Plan  # noqa: E402
from tipchain.chain.slots import read_slots  # noqa: E402
from tipchain.chain.suites import ALL, Suite  # noqa: E402
from tipchain.errors import ParamsError  # noqa: E402
from tipchain.modes import CHAIN_MODES, Mode  # noqa: E402

PATTERN = "*train*infer_python*.txt"
PLACE = re.compile(r"missing (?:between lines (\d+) and (\d+)|after line (\d+))")
WHERE = Options(root="/checkout")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A parameter file with its suite."""

    path: Path
    name: str
    text: str
    suite: Suite


def main() -> int:
    """Read, plan and compare; print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--lost-lines", action="store_true")
    args = parser.parse_args()
    paths = sorted(args.checkouts.resolve().rglob(PATTERN))
    files, refused = [], []
    for path in paths:
        name = str(path.relative_to(args.checkouts.resolve()))
        try:
            files.append(_read(path, name))
        except ParamsError as error:
            refused.append((name, " ".join(str(error).replace(str(path), "").split()).lstrip(": ")))
    print(f"{len(paths)} files, {len(files)} read, {len(refused)} refused.\n")
    _print_table(("refused", "why"), refused)
    _print_lint(files)
    _print_differences(files)
    if args.lost_lines:
        _print_lost(files)
    return 0


def _read(path: Path, name: str) -> File:
    text = read_text(path)
    file = parse_params(text, str(path))
    suite = detect_suite(file, root=checkout(path))
    load_plan(path, Mode.LITE_TRAIN_LITE_INFER)
    return File(path=path, name=name, text=text, suite=suite)


def _print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(one).replace('|', chr(92) + '|') for one in row)} |")
    print()


# Lint


def _print_lint(files: Sequence[File]) -> None:
    errors: Counter[tuple[str, str, str]] = Counter()
    example: dict[tuple[str, str, str], str] = {}
    with_errors: Counter[str] = Counter()
    for file in files:
        found = [one.finding for one in lint_file(file.path).found if one.finding.severity == "error"]
        with_errors[file.suite.name] += bool(found)
        for finding in found:
            key = (file.suite.name, finding.code, f"{finding.key}: {finding.message}")
            errors[key] += 1
            example.setdefault(key, f"{file.name}:{finding.line}")
    print(f"Lint: {sum(with_errors.values())} files with errors.\n")
    _print_table(
        ("suite", "kind", "error", "files", "first"),
        [(*key, count, example[key]) for key, count in sorted(errors.items())],
    )


# Default against legacy


def _plan(file: File, mode: Mode, fixes: frozenset[str] = ALL) -> Plan | None:
    try:
        parsed = parse_params(file.text, file.name)
        spec = build_spec(parsed, file.suite, mode, lenient=True, text=file.text, fixes=fixes)
        return expand(spec, file.name, WHERE)
    except ParamsError:
        return None


def _keys(commands: Sequence[Command]) -> Counter[tuple[str, str]]:
    """Return the names of arguments by step, each counted once for a command that has it."""
    return Counter((command.step, key) for command in commands for key in set(_names(command.argv)))


def _names(argv: Sequence[str]) -> Iterator[str]:
    for word in argv[1:]:
        key, equals, _ = word.partition("=")
        if equals or word.startswith("-"):
            yield key


def _print_differences(files: Sequence[File]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    added: Counter[tuple[str, str, str, str]] = Counter()
    lost: Counter[tuple[str, str, str, str]] = Counter()
    modes = [mode for mode in CHAIN_MODES if mode is not Mode.KLQUANT_WHOLE_INFER]
    for file in files:
        for mode in modes:
            default = _plan(file, mode)
            original = expand(legacy_spec(file.text, file.name, file.suite, mode), file.name, WHERE)
            if default is None:
                counts[file.suite.name]["refused"] += 1
                continue
            count = counts[file.suite.name]
            count["plans"] += 1
            count["legacy"] += len(original.commands)
            count["default"] += len(default.commands)
            ours, theirs = _keys(default.commands), _keys(original.commands)
            count["equal"] += ours == theirs
            for (step, key), table in (
                (one, table)
                for table, more, less in ((added, ours, theirs), (lost, theirs, ours))
                for one in more
                if one not in less
            ):
                table[file.suite.name, step, key, _why(file, mode, (step, key), default)] += 1
    print("Names of arguments, by step, in default plans against legacy ones:\n")
    _print_table(
        ("suite", "plans", "commands, legacy", "commands, default", "same arguments in each"),
        [(suite, one["plans"], one["legacy"], one["default"], one["equal"]) for suite, one in sorted(counts.items())],
    )
    for title, table in (("only in default plans", added), ("only in legacy plans", lost)):
        print(f"Arguments that are {title}:\n")
        _print_table(("suite", "step", "argument", "fix", "plans"), [(*key, table[key]) for key in sorted(table)])


def _why(file: File, mode: Mode, key: tuple[str, str], default: Plan) -> str:
    """Return the fixes without each of which the plan would not differ there."""
    there = key in _keys(default.commands)
    found = []
    for fix in sorted({finding.code for finding in default.findings} & ALL):
        plan = _plan(file, mode, ALL - {fix})
        if plan is not None and (key in _keys(plan.commands)) != there:
            found.append(fix)
    return ", ".join(found) or "several together"


# Lost lines


def _print_lost(files: Sequence[File]) -> None:
    layouts: Mapping[tuple[str, ...], File] = {
        tuple(line.partition(":")[0] for line in split_lines(file.text)): file for file in files
    }
    counts: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for file in layouts.values():
        slots = read_slots(parse_params(file.text, file.name), file.suite)
        lines = split_lines(file.text)
        for slot in slots.values():
            word = _lost(file, lines, slot.line)
            counts[word] += 1
            accepted[slot.role] += word == "accepted"
    print(f"Each line taken out of {len(layouts)} files that differ in their keys:\n")
    _print_table(("what tipchain does", "lines"), counts.most_common())
    roles = ", ".join(f"{role} ({count})" for role, count in accepted.most_common() if count)
    print(f"Accepted without: {roles}\n")


def _lost(file: File, lines: Sequence[str], number: int) -> str:
    """Return what becomes of the file without a line."""
    text = "\n".join([*lines[: number - 1], *lines[number:]])
    try:
        parsed = parse_params(text, file.name)
        read_slots(parsed, detect_suite(parsed, root=checkout(file.path)))
    except ParamsError as error:
        found = PLACE.search(str(error))
        if not found:
            return "refused, the next line is named"
        before = int(found[1] or found[3])
        after = int(found[2]) if found[2] else before + 1
        right = before <= number - 1 and after >= number
        exact = "the place" if after - before == 1 else "a few lines, it is among them"
        return f"refused, names {exact}" if right else "refused, names a wrong place"
    return "accepted"


if __name__ == "__main__":
    sys.exit(main())
