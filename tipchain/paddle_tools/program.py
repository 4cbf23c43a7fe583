"""Common parts of the Paddle programs: flags, errors, the case's builders, device and data folder."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tipchain.commands.options import Parser, add_options
from tipchain.core.blame import serving
from tipchain.core.files import DATA_VARIABLE
from tipchain.core.json_text import Json
from tipchain.core.machine import core_count, paddle_kernels
from tipchain.errors import TipchainError, UsageError
from tipchain.framework_types import Dataset, Function, Model
from tipchain.frameworks import Framework
from tipchain.modes import Device, data_folder, parse_device
from tipchain.parity.case import Case, load_case, open_builder

DEFAULT_CASE = Path("configs/alexnet.yaml")
"""The case of the programs in this project's ``tools/``, where none is named."""
Run = Callable[[argparse.Namespace], int]


class ProgramError(TipchainError):
    """The work went wrong, though the call was right: a NaN loss, a full disk, an unreadable image."""

    exit_code = 1


def run_program(name: str, argv: Sequence[str] | None = None) -> int:
    """Run the program ``tipchain.paddle_tools.<name>`` with command line arguments; return its exit code."""
    from tipchain.core.guard import guarded

    return guarded(_run, name, sys.argv[1:] if argv is None else argv)


def _run(name: str, argv: Sequence[str]) -> int:
    program: Json = import_module(f"tipchain.paddle_tools.{name}")
    summary = (program.__doc__ or "").strip().splitlines()[0]
    parser = Parser(prog=Path(sys.argv[0]).name, description=summary, allow_abbrev=False)
    program.add_arguments(parser)
    return int(program.run(parser.parse_args(argv)))


def quiet(stage: str) -> Callable[[Run], Run]:
    """Decorate a program's ``run``: Paddle does not talk in it, and its mistakes are told as of ``stage``."""

    def decorate(run: Run) -> Run:
        @wraps(run)
        def run_quietly(args: argparse.Namespace) -> int:
            with warnings.catch_warnings(), serving(side="paddle", stage=stage):
                # Notices to Paddle's developers and about its build; errors are raised, not warned about.
                warnings.filterwarnings("ignore", module=r"paddle(\.|$)")
                return run(args)

        return run_quietly

    return decorate


def add_case(parser: Parser) -> None:
    """Declare the case: the first word, or ``--case``, as TIPC's parameter files write it."""
    parser.first = "--case"
    parser.usage = "%(prog)s CASE [options]"
    parser.add_argument("--case", type=Path, metavar="CASE", help="the case's YAML file")


def open_case(named: Path | None) -> Case:
    """Return the case that was named.

    Raises:
        UsageError: none was.
        InputError: it cannot be used.
    """
    if named is None and not DEFAULT_CASE.is_file():
        raise UsageError("no case was named\n  expected: the case's YAML file, which tipchain init writes")
    return load_case(named or DEFAULT_CASE)


def add_case_arguments(parser: Parser, trained: str = "") -> None:
    """Declare the case, ``--root``, ``--data-path`` and, with a default, the trained weights."""
    add_case(parser)
    if trained:
        text = "Paddle weight file (default %(default)s, which `tipchain case train` leaves)"
        parser.add_argument("--pretrained", type=Path, default=Path(trained), metavar="FILE", help=text)
    add_options(parser, "root")
    parser.add_argument(
        "--data-path",
        metavar="DIR",
        type=Path,
        help=f"data folder, laid out as the case's data set is (default ${DATA_VARIABLE}, else the lite data)",
    )


def true_or_false(text: str) -> bool:
    """Return the flag that ``text`` names, as TIPC's parameter files write it."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected True or False, found {text!r}")
    return text.lower() == "true"


def positive(text: str) -> int:
    """Return ``text`` as a whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number > 0, found {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """Return ``text`` as a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number > 0, found {text!r}")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleBench:
    """A case's Paddle side on a device.

    Attributes:
        paddle: the module.
        case: the case.
        device: where models live.
        data: the data folder; it need not exist.
        data_given: whether the user or the chain named it.
    """

    paddle: ModuleType
    case: Case
    device: Device
    data: Path
    data_given: bool

    def builder(self, name: str) -> Function:
        """Return the Paddle side's builder called ``name``.

        Raises:
            InputError: the case has none, or it cannot be imported.
        """
        return open_builder(self.case, "paddle", name)

    def model(self) -> Model:
        """Build the model."""
        return self.builder("model")(**self.case.model_args)

    def dataset(self, split: str) -> Dataset:
        """Open a split of the data.

        Raises:
            DataError: the folder lacks it.
        """
        opened: Dataset = self.builder("dataset")(self.data, split, **self.case.data.args)
        return opened


def open_bench(case: Path | None, data_path: Path | None, device: str, seed: int | None = None) -> PaddleBench:
    """Load the case, import paddle quietly, choose the device and seed every generator.

    Raises:
        TipchainError: a case, device or framework that cannot be used.
    """
    loaded, chosen = open_case(case), parse_device(device)
    framework = import_paddle()
    import paddle

    framework.configure(chosen, loaded.seed if seed is None else seed, threads=1)
    data, given = find_data(loaded, data_path, os.environ)
    return PaddleBench(paddle=paddle, case=loaded, device=chosen, data=data, data_given=given)


def find_data(case: Case, data_path: Path | None, environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the data folder, and whether anybody named it: the flag, else the chain, else the lite data."""
    if data_path is not None:
        return data_path, True
    if environment.get(DATA_VARIABLE):
        return Path(environment[DATA_VARIABLE]), True
    return case.root / data_folder("lite", case.data.set), False


def import_paddle() -> Framework:
    """Import paddle with as many threads as there are processors and the kernels that these have, without its notices.

    Paddle computes with one thread where OMP_NUM_THREADS is not set.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    from tipchain.frameworks import load_framework

    if "PADDLE_TRAINERS_NUM" not in os.environ:  # processes of one launch share the processors
        os.environ.setdefault("OMP_NUM_THREADS", str(core_count()))
    for name, value in {**paddle_kernels(), "GLOG_minloglevel": "2"}.items():
        os.environ.setdefault(name, value)
    with contextlib.redirect_stderr(io.StringIO()):
        return load_framework("paddle")
