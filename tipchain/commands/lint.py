"""``tipchain lint``: look at parameter files, and print findings as text for 80 columns, JSON and GitHub's workflow commands."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

from tipchain.chain.kinds import KINDS, TRAIN_INFER
from tipchain.chain.lint import PATTERN, UNKNOWN, Found, Linted, lint_file, named_files
from tipchain.chain.slots import refusal
from tipchain.chain.suites import SEVERITIES
from tipchain.commands.options import STDOUT, add_json, add_options, show
from tipchain.core.language import clean, in_rows, many, paint, say, terminal_width, use_color
from tipchain.core.machine import core_count, on_cores
from tipchain.errors import ExitCode, InputError
from tipchain.modes import CHAIN_MODES, Mode, parse_mode

# What lint found, as text for 80 columns, as JSON, and as workflow commands for GitHub.


COLORS: Mapping[str, str] = {"error": "31", "warning": "33", "info": "36"}
WORKFLOW: Mapping[str, str] = {"error": "error", "warning": "warning", "info": "notice"}
NOUNS: Mapping[str, str] = {"error": "error", "warning": "warning", "info": "remark"}
INDENT = "    "


def file_rows(one: Linted, *, color: bool, width: int, verbose: bool) -> list[str]:
    """Return the findings of a file; with ``verbose`` its remarks and each line's meaning, too."""
    kind = "" if one.chain == TRAIN_INFER else f"{one.chain}, "
    told = f": {kind}suite {one.suite}, {one.title}: {one.reason}"
    lines = in_rows(clean(f"{one.file}{say(told)}"), width, rest=INDENT * 2) if one.lines else []
    for line in one.lines:
        head = f"{line.line:>5}  {clean(line.text)}"
        lines.append(head if len(head) <= width else f"{head[: width - 3]}...")
        use = say("; ") + say(line.use) if line.use else ""
        lines += in_rows(clean(f"{say(line.meaning)}{use}"), width, " " * 9)
    lines += [""] if one.lines else []
    found = [one for one in one.found if verbose or _is_wrong(one)]
    for each in found:
        finding = each.finding
        place = clean(f"{one.file}:{finding.line}" if finding.line else one.file)
        word = say(f"{finding.severity}: ")
        first, *rest = in_rows(f"{place}: {word}{clean(_said(one, each))} [{finding.code}]", width, rest=INDENT)
        painted = paint(word.rstrip(), COLORS[finding.severity], color)
        lines += [first.replace(f"{place}: {word.rstrip()}", f"{place}: {painted}", 1), *rest]
    return [*lines, ""] if found else lines


def _is_wrong(found: Found) -> bool:
    return found.finding.severity != "info" or found.finding.code == UNKNOWN


def summary_line(files: Sequence[Linted], *, strict: bool = False, verbose: bool = True) -> str:
    """Return ``3 errors, 2 warnings, 0 remarks in 205 files``, and how the remarks are shown."""
    counts = Counter(found.finding.severity for one in files for found in one.found)
    text = ", ".join(many(counts[name], NOUNS[name]) for name in SEVERITIES)
    tail = "; warnings count as errors" if strict else ""
    tail += "" if verbose or not counts["info"] else "; -v shows the remarks and what each line means"
    return f"{text} in {many(len(files), 'file')}{tail}"


def _said(one: Linted, found: Found) -> str:
    finding, modes = found.finding, set(found.modes)
    key = f"{finding.key}: " if finding.key else ""
    trained = {name for name in one.modes if Mode(name).trains}
    where = f" (in {', '.join(found.modes)})"
    if not modes or (len(modes) == 1 and found.modes[0] in finding.message):
        where = ""
    elif modes == trained:
        where = " (in the modes that train)"
    elif modes == set(one.modes) - trained:
        where = " (in the modes that do not train)"
    return f"{key}{say(finding.message)}{say(where)}"


def _as_json(one: Linted) -> dict[str, object]:
    data: dict[str, object] = {
        "file": one.file,
        "suite": one.suite,
        "chain": one.chain,
        "reason": one.reason,
        "modes": list(one.modes),
        "findings": [
            {name: value for name, value in found.finding._asdict().items() if name != "file"}
            | {"modes": list(found.modes or one.modes)}
            for found in one.found
        ],
    }
    return data | ({"lines": [line._asdict() for line in one.lines]} if one.lines else {})


# ``tipchain lint``: what parameter files mean, what is wrong in them and in cases, where the originals do something else.


SHARE = 20
"""Files from which on a core of its own looks at them: each takes as long as a process costs."""
CASES = (".yaml", ".yml")
"""How the names of alignment cases end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"parameter file, alignment case (.yaml), or a folder for all {PATTERN} below it",
    )
    add_json(parser, "the findings")
    parser.add_argument("--github", action="store_true", help="print GitHub's annotations instead of text")
    parser.add_argument(
        "--chain", metavar="KIND", help=f"the kind of chain, told from each file if left out: {', '.join(KINDS)}"
    )
    parser.add_argument("--suite", help="whose layout the files have; told from each file if left out")
    parser.add_argument(
        "--mode", action="append", default=[], metavar="MODE", help="look at this mode; repeatable; all if left out"
    )
    add_options(parser, strict="warnings count as errors")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("-q", "--quiet", action="store_true", help="show the counts alone")
    shown.add_argument(
        "-v", "--verbose", action="store_true", help="show where the original does otherwise, and what each line means"
    )
    add_options(parser, "root")


def run(args: argparse.Namespace) -> int:
    """Look at the files; 1 for errors, 2 for files that cannot be read, 4 where there are none."""
    modes = [parse_mode(name, tuple(Mode)) for name in dict.fromkeys(args.mode)] or list(CHAIN_MODES)
    paths = list(dict.fromkeys(named_files(args.files)))
    for empty in (one for one in args.files if not any(named_files([one]))):
        print(say(f"{'note' if paths else 'error'}: no {PATTERN} below {empty}"), file=sys.stderr)
    if not paths:
        return ExitCode.NOTHING_CHECKED
    listed = not (args.json == STDOUT or args.github or args.quiet)
    color, width = use_color(sys.stdout), terminal_width()

    def lint_some(some: Sequence[Path]) -> list[tuple[Linted, list[str]]]:
        found = (
            _lint_case(path)
            if path.suffix in CASES
            else lint_file(path, chain=args.chain, suite=args.suite, modes=modes, explained=args.verbose)
            for path in some
        )
        return [
            (one, file_rows(one, color=color, width=width, verbose=args.verbose) if listed else []) for one in found
        ]

    parts = max(min(core_count(), len(paths) // SHARE), 1)
    shares = on_cores([partial(lint_some, paths[part::parts]) for part in range(parts)])
    pairs = [pair for row in zip_longest(*shares) for pair in row if pair is not None]
    files, rows = [one for one, _ in pairs], [row for _, own in pairs for row in own]
    show(args.json, lambda: list(map(_as_json, files)), partial(_rendered, files, rows, args))
    if not all(one.readable for one in files):
        return ExitCode.USAGE
    wrong = any(one.number_of("error") or (args.strict and one.number_of("warning")) for one in files)
    return ExitCode.FAILED if wrong else ExitCode.PASSED


def _lint_case(path: Path) -> Linted:
    """Return the faults of an alignment case; nothing that it names is imported."""
    from tipchain.parity.case import load_case

    try:
        load_case(path)
    except InputError as error:
        return Linted(file=str(path), readable=False, found=(Found(finding=refusal(error, "case")),))
    return Linted(file=str(path))


def _rendered(files: Sequence[Linted], rows: list[str], args: argparse.Namespace) -> str:
    """Return the text; ``rows`` are those of the files where it lists the findings."""
    if args.github:
        from tipchain.report.ci import workflow_command

        lines = []
        for one in files:
            for found in (found for found in one.found if args.verbose or _is_wrong(found)):
                finding = found.finding
                place = {"file": one.file, "line": str(finding.line)} if finding.line else {"file": one.file}
                properties = place | {"title": finding.code}
                lines.append(workflow_command(WORKFLOW[finding.severity], _said(one, found), properties))
        return "\n".join([*lines, say(summary_line(files))])
    return "\n".join([*rows, say(summary_line(files, strict=args.strict, verbose=args.verbose))])
