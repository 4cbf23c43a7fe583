"""The options that several commands have: each is declared here once, so that one name means one thing everywhere."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tipchain.chain.kinds import KINDS
from tipchain.core.files import MODE_VARIABLE, ROOT_VARIABLE, atomic_write, check_writable, writing
from tipchain.core.language import HAN, LANGUAGES, MARKS, columns, in_rows, say, terminal_width
from tipchain.errors import UsageError, closest
from tipchain.framework_types import Setting
from tipchain.modes import CHAIN_MODES, Mode, parse_mode

if TYPE_CHECKING:
    from tipchain.numbers.tolerance import Tolerance

STDOUT = "-"
METHODS = ("mean", "min", "max", "all")


class _Help(argparse.HelpFormatter):
    def start_section(self, heading: str | None) -> None:
        super().start_section(say(heading or ""))

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        super().add_usage(usage, actions, groups, say("usage: ") if prefix is None else prefix)

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None
    ) -> str:
        # argparse indents what follows by letters; Chinese ones take two columns.
        said = prefix or ""
        stand_in = "_" * columns(said)
        return said + super()._format_usage(usage, actions, groups, stand_in).removeprefix(stand_in)

    def format_help(self) -> str:
        return re.sub(f"(?m)(?<={HAN}):$", MARKS[": "], super().format_help())

    def _expand_help(self, action: argparse.Action) -> str:
        return say(super()._expand_help(action))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return in_rows(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = say(text).splitlines()
        return "\n".join(lines if len(lines) > 1 else in_rows(lines[0], width, indent))


class _Short(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it."""
        assert isinstance(parser, Parser)
        print(parser.format_short(), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UsageErrors, and whose help is in the reader's language.

    Attributes:
        first: the option that the first word is the value of, if it stands there alone.
    """

    first: str | None = None

    def __init__(self, **settings: Setting) -> None:
        super().__init__(**settings, add_help=False)
        self.add_argument("-h", action=_Short, nargs=0, dest=argparse.SUPPRESS, help="show what it takes, in short")
        self.add_argument("--help", action="help", help="show this help message and exit")

    def format_short(self) -> str:
        """Return the help without the meaning of each option."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section(self._positionals.title)
        formatter.add_arguments(self._positionals._group_actions)  # noqa: SLF001
        formatter.end_section()
        formatter.add_text(f"{self.prog} --help says what each option does.")
        return formatter.format_help()

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _Help(prog=self.prog, width=terminal_width() - 2)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error, with the option that is meant where one is close."""
        unknown = re.match("unrecognized arguments: --([^ =]+)", message)
        known = [name[2:] for leaf in leaves(self) for name in leaf._option_string_actions if name.startswith("--")]  # noqa: SLF001
        meant = closest(unknown[1], tuple(known)) if unknown else None
        hint = f", did you mean '--{meant}'?" if meant else ""
        raise UsageError(f"{self.prog}: {message}{hint}\n  see {self.prog} --help")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does, words that begin with dashes as the value of ``--set`` too."""
        words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(list(self._reread(words)), namespace)

    def _reread(self, words: Sequence[str]) -> Iterator[str]:
        """Yield ``words``; those are joined of which argparse would not see that they belong together."""
        sets = "--set" in self._option_string_actions
        if self.first and words and not words[0].startswith("-") and "=" not in words[0]:
            yield self.first
        rest = iter(range(len(words)))
        for index in rest:
            word, following = words[index], words[index + 1 : index + 2]
            if word == "--":
                yield from words[index:]
                return
            if word == "--set" and sets and following:
                # The keys of a parameter file begin with dashes, too.
                yield f"--set={words[next(rest)]}"
            else:
                yield word


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of a command's actions; the command's own where it has none."""
    actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
    if not actions:
        yield parser
    for action in actions:
        for child in action.choices.values():
            yield from leaves(child)


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    act: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Return the parser of one of a command's actions, whose own help begins with the command's line on it."""
    parser = actions.add_parser(name, help=text, description=sentence(text), allow_abbrev=False)
    parser.set_defaults(act=act)
    return parser


def run_action(args: argparse.Namespace) -> int:
    """Do the action that is asked for; return the exit code."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def sentence(text: str) -> str:
    """Return the purpose of a command as a sentence of its own."""
    return f"{text[0].upper()}{text[1:]}."


# Kinds of values.


def seconds(text: str) -> float:
    """Return a time: ``90`` (seconds), ``90s``, ``5m``, ``2h``, ``1h 30m``."""
    from tipchain.core.quantities import TIME_EXPECTED, parse_seconds

    value: float | str = text
    with suppress(ValueError):
        value = float(text)
    try:
        return parse_seconds(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {TIME_EXPECTED}") from None


def seconds_or_none(text: str) -> float:
    """Return a time as `seconds` does; ``none`` is without end."""
    return float("inf") if text == "none" else seconds(text)


def count(noun: str) -> Callable[[str], int]:
    """Return a reader of a whole number above 0 of something."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {noun}, 1 or more")
        return int(text)

    return read


def whole(text: str) -> int:
    """Return a whole number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


# How much is shown.


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Declare ``-q`` and ``-v``: `args.quiet`, `args.verbose`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help="show the verdict alone, and no progress")
    group.add_argument("-v", "--verbose", action="store_true", help="show every check, as the log has them")


# Where reports go.


def add_json(parser: argparse._ActionsContainer, what: str) -> None:
    """Declare ``--json FILE|-``."""
    parser.add_argument("--json", metavar="FILE|-", help=f"write {what} as JSON; - is standard output")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the report of a run goes, and how much of it is shown."""
    add_json(parser, "the report")
    parser.add_argument("--junit", metavar="FILE|-", help="write the report as JUnit XML; - is standard output")
    add_options(parser, html="write the report (of a failed run: always, into its folder) as one HTML file")
    parser.add_argument(
        "--github",
        action="store_true",
        help="print GitHub's annotations of the lines at fault, and write the summary of the step (GITHUB_STEP_SUMMARY)",
    )
    add_verbosity(parser)


def check_targets(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, reports that cannot be written.

    Raises:
        UsageError: both formats want standard output, or a file cannot be written.
    """
    if args.json == args.junit == STDOUT:
        raise UsageError("--json and --junit cannot both go to standard output")
    check_writable({"--json": args.json, "--junit": args.junit, "--html": args.html})
    if args.github:
        from tipchain.report.ci import SUMMARY_VARIABLE

        check_writable({SUMMARY_VARIABLE: os.environ.get(SUMMARY_VARIABLE)})


def text_stream(args: argparse.Namespace) -> TextIO:
    """Return where text goes: standard output, unless a report must stand there alone."""
    return sys.stderr if STDOUT in (args.json, args.junit) else sys.stdout


def write_document(target: str, document: object) -> None:
    """Write a document as JSON to a file, or to standard output for ``-``.

    Raises:
        OutputError: the file cannot be written.
    """
    import json

    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
        return
    with writing(target):
        atomic_write(Path(target), text)


def show(target: str | None, document: Callable[[], object], text: Callable[[], str]) -> None:
    """Print a text, and write the document of the same where ``--json`` says; on standard output one of them stands alone."""
    if target is not None:
        write_document(target, document())
    if target != STDOUT:
        print(text())


# What is run, where, how long.


def add_mode(parser: argparse._ActionsContainer, what: str = "TIPC mode") -> None:
    """Declare ``--mode``; the chain's variable is the default."""
    mode = os.environ.get(MODE_VARIABLE) or Mode.LITE_TRAIN_LITE_INFER.value
    parser.add_argument("--mode", default=mode, metavar="MODE", help=f"{what} (default {mode})")


def add_chain_mode(parser: argparse.ArgumentParser) -> None:
    """Declare the mode of a chain, as the drivers take it or as ``--mode``; `chain_mode` reads it."""
    names, more = (", ".join(mode.value for mode in Mode if (mode in CHAIN_MODES) is usual) for usual in (True, False))
    parser.add_argument(
        "mode",
        nargs="?",
        metavar="MODE",
        help=f"TIPC mode: {names}; of other kinds of chains {more}, which need not be named where the kind has one",
    )
    parser.add_argument("--mode", dest="mode_by_name", metavar="MODE", help="the same as MODE")
    parser.add_argument(
        "--chain", metavar="KIND", help=f"the kind of chain, told from the file if left out: {', '.join(KINDS)}"
    )


def chain_mode(args: argparse.Namespace) -> Mode:
    """Return the mode of a chain: the one asked for, or the only one of the file's kind.

    Raises:
        UsageError: there is none, two, or one that is unknown or that the kind does not have.
        ParamsError: the file cannot be read.
    """
    if args.mode_by_name is not None and args.mode not in (None, args.mode_by_name):
        raise UsageError(f"MODE is {args.mode}, but --mode {args.mode_by_name}: give one of them")
    mode = args.mode_by_name or args.mode
    known = parse_mode(mode, tuple(Mode)) if mode else None
    from tipchain.chain.load import file_kind

    return file_kind(args.params, known, args.chain).mode(known, str(args.params))


class _Root(argparse.Action):
    """Keeps the project's root for this process and all that it starts."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: object, _option: str | None = None
    ) -> None:
        """Keep the folder, which must be there."""
        if not Path(str(values)).is_dir():
            raise UsageError(f"--root: no such folder: {values}")
        os.environ[ROOT_VARIABLE] = str(Path(str(values)).resolve())
        setattr(namespace, self.dest, Path(str(values)))


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "color": {"choices": ("auto", "always", "never"), "help": "color the text (default auto: on a terminal)"},
    "data_path": {"type": Path, "metavar": "DIR", "help": "data folder with train/ and val/ class folders"},
    "database": {
        "metavar": "URL",
        "help": "the history: postgresql://user:password@host/name, or an SQLite file "
        "(default: $TIPCHAIN_DATABASE, else .tipchain/history.sqlite in the project)",
    },
    "device": {"default": "cpu", "metavar": "DEVICE", "help": "cpu, gpu or gpu:N (default cpu)"},
    "html": {"type": Path, "metavar": "FILE"},
    "lang": {"choices": LANGUAGES, "help": "language of what is shown (default: that of the locale)"},
    "names": {
        "type": Path,
        "metavar": "FILE",
        "help": "YAML: the port's name by the reference's, of layers or tensors, where they differ; ignore: what one of "
        "them lacks",
    },
    "only": {"dest": "stages", "metavar": "LIST"},
    "out": {"type": Path, "metavar": "DIR"},
    "prepare": {"action": "store_true", "help": "first prepare the data and weights of the mode, as `prepare` does"},
    "root": {
        "action": _Root,
        "metavar": "DIR",
        "help": "where imports and paths of the case start (default: root: in the case, else the nearest folder above "
        "it with a pyproject.toml or a test_tipc, else its own)",
    },
    "seed": {"type": whole, "default": 0, "metavar": "N"},
    "strict": {"action": "store_true", "help": "forward within 1e-6, the reproduction guide's threshold"},
    "threads": {"type": whole, "default": 0, "metavar": "N"},
    "within": {"type": seconds, "metavar": "TIME"},
}
"""The options that several commands have."""


def add_options(parser: argparse._ActionsContainer, *names: str, **told: str) -> None:
    """Declare some of `OPTIONS`: by name, with their help texts here."""
    for name in (*names, *told):
        own = {"help": told[name]} if name in told else {}
        parser.add_argument(f"--{name.replace('_', '-')}", **{**OPTIONS[name], **own})


def add_timeout(
    parser: argparse._ActionsContainer, what: str, *, default: float | None = None, endless: bool = False
) -> None:
    """Declare ``--timeout``, in seconds or with a unit.

    Args:
        parser: of the command.
        what: what ends after it.
        default: seconds.
        endless: whether ``none`` is possible.
    """
    parser.add_argument(
        "--timeout",
        type=seconds_or_none if endless else seconds,
        default=default,
        metavar="TIME|none" if endless else "TIME",
        help=f"{what}, as 90s, 5m or 2h" + (f" (default {default:g}s)" if default is not None else ""),
    )


def check_data_path(args: argparse.Namespace) -> None:
    """Refuse a ``--data-path`` that is not there: it may be read in another process."""
    if args.data_path is not None and not args.data_path.is_dir():
        raise UsageError(f"--data-path: no such folder: {args.data_path}")


def add_tolerance(parser: argparse._ActionsContainer, *, threshold: str) -> None:
    """Declare the tolerance of every tensor."""
    parser.add_argument("--method", choices=METHODS, help="statistic to judge by (default mean)")
    parser.add_argument("--threshold", type=float, metavar="T", help=threshold)
    parser.add_argument("--rtol", type=float, metavar="R", help="judge every element, together with --atol")
    parser.add_argument("--atol", type=float, metavar="A", help="|reference - port| <= A + R * |reference|")


def chosen_tolerance(args: argparse.Namespace, **more: Setting) -> Tolerance | None:
    """Return the tolerance that a command line gives, None without one.

    Raises:
        UsageError: its options do not fit together.
    """
    from tipchain.numbers.tolerance import Tolerance

    given = {name: getattr(args, name) for name in ("method", "threshold", "rtol", "atol")}
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.keys() == {"method"}:
        raise UsageError("--method needs --threshold")
    if {"method", "rtol"} <= chosen.keys():
        raise UsageError("give either --method and --threshold or --rtol and --atol")
    return Tolerance(**chosen, **more) if chosen else None
