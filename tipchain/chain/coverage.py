"""How much of a suite's TIPC is covered: its drivers, its parameter files of each kind, and what comes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tipchain.chain.gpus import find_gpus
from tipchain.chain.kinds import KINDS, TRAIN_INFER
from tipchain.chain.kinds.benchmark_train import SECTION
from tipchain.chain.lint import named_files
from tipchain.chain.load import FOLDER, file_kind, load_plan
from tipchain.chain.params import read_params
from tipchain.chain.plan import Options, Plan
from tipchain.errors import TipchainError
from tipchain.modes import Mode

NO_DRIVERS = ("prepare", "common_func", "utils_func", "build_server", "run_")
"""How the names of scripts begin that prepare or help, and run no chain."""

BENCHMARK = "benchmark_train"
"""The kind whose files are those of training chains, with a section of their own."""
LEADS_TO_OTHERS = ("export", "configure", "push")
"""Steps after which nothing has been tried yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """One kind of chain in a checkout.

    Attributes:
        kind: its name.
        drivers: the suite's scripts for it, below the checkout.
        files: parameter files.
        run: files of which something can be run, as far as can be told without running it.
        skipped: files of which every command is skipped, by the reason.
        refused: files that cannot be planned, by the reason.
    """

    kind: str
    drivers: tuple[str, ...]
    files: int
    run: int
    skipped: Mapping[str, int]
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """A checkout's TIPC.

    Attributes:
        root: the checkout.
        kinds: each kind that it has a driver or files of.
        others: drivers that are no kind's.
    """

    root: str
    kinds: tuple[Covered, ...]
    others: tuple[str, ...]

    @property
    def files(self) -> int:
        """Parameter files, each counted for every kind that it is for."""
        return sum(one.files for one in self.kinds)

    @property
    def run(self) -> int:
        """Those of which something can be run."""
        return sum(one.run for one in self.kinds)


def is_checkout(folder: Path) -> bool:
    """Tell whether a folder is a suite's checkout: it holds a ``test_tipc`` with a script."""
    return any((folder / FOLDER).glob("*.sh"))


def survey(root: Path) -> Coverage:
    """Return the coverage of the checkout ``root``; its files are planned, none is run."""
    scripts = sorted((root / FOLDER).glob("*.sh"))
    drivers: dict[str, list[str]] = {}
    others = []
    for path in scripts:
        own = [name for name, kind in KINDS.items() if _is_driver(path.name, kind.driver)]
        if own:
            drivers.setdefault(own[0], []).append(f"{FOLDER}/{path.name}")
        elif not path.name.startswith(NO_DRIVERS):
            others.append(f"{FOLDER}/{path.name}")
    files = files_by_kind(root)
    kinds = [name for name in (TRAIN_INFER, *KINDS) if name in drivers or name in files]
    covered = (_covered(name, drivers.get(name, ()), files.get(name, ()), root) for name in dict.fromkeys(kinds))
    return Coverage(root=str(root), kinds=tuple(covered), others=tuple(others))


def files_by_kind(root: Path) -> Mapping[str, Sequence[Path]]:
    """Return the parameter files below a checkout's ``test_tipc`` by their kind of chain; none is planned."""
    files: dict[str, list[Path]] = {}
    for path in named_files([root / FOLDER]):
        for name in _kinds(path):
            files.setdefault(name, []).append(path)
    return files


def _is_driver(name: str, driver: str) -> bool:
    """Tell whether a script is a driver, or a variant of it for other hardware, as ``..._npu.sh``."""
    stem = driver.removesuffix(".sh")
    return name == driver or (name.startswith(f"{stem}_") and name.endswith(".sh")) or name == f"{stem}v2.sh"


def _kinds(path: Path) -> Iterator[str]:
    """Yield the kinds that a file is for: a training chain's may hold a benchmark's section, too."""
    try:
        yield file_kind(path).kind.name
        if any(name == SECTION for name, _ in read_params(path).headers):
            yield BENCHMARK
    except TipchainError:
        yield TRAIN_INFER


def _covered(name: str, drivers: Sequence[str], files: Sequence[Path], root: Path) -> Covered:
    run, skipped, refused = 0, Counter[str](), Counter[str]()
    no_gpu = find_gpus().trouble
    options = Options(root=str(root), device="cpu" if no_gpu else None)
    for path in files:
        try:
            plans = [load_plan(path, mode, chain=name, options=options) for mode in _modes(name)]
        except TipchainError as error:
            refused[str(getattr(error, "message", error)).partition("\n")[0]] += 1
            continue
        reasons = list(_reasons(plans, no_gpu))
        if not reasons:
            refused["nothing is planned"] += 1
        elif "" in reasons:
            run += 1
        else:
            skipped[reasons[0]] += 1
    return Covered(
        kind=name, drivers=tuple(drivers), files=len(files), run=run, skipped=dict(skipped), refused=dict(refused)
    )


def _modes(name: str) -> Sequence[Mode]:
    """Return the modes to plan a kind's files in: all that a training chain needs, else the only one."""
    if name == TRAIN_INFER:
        return (Mode.LITE_TRAIN_LITE_INFER,)
    return KINDS[name].modes[:1]


def _reasons(plans: Iterable[Plan], no_gpu: str) -> Iterator[str]:
    """Yield why each command is skipped, "" for one that is not; what only leads to others does not count.

    Args:
        plans: of a file, for the CPU where there is no GPU.
        no_gpu: why there is none.
    """
    for plan in plans:
        skipped: dict[str, str] = {}
        for command in plan.commands:
            needed = (skipped[one] for one in command.needs if skipped.get(one))
            why = command.skip or next(needed, "") or (no_gpu if command.on_gpu else "")
            skipped[command.id] = why
            if command.step not in LEADS_TO_OTHERS:
                yield why
