"""Nights for the history's tests, made of facts, and as folders that a coordinator would leave."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from math import inf, nan
from pathlib import Path

from night_samples import NightSample
from night_samples import item as some_item
from run_samples import tensor_diff, verdict

from tipchain.chain.plan import Command, Result
from tipchain.errors import Outcome
from tipchain.history.schema import CauseFacts, CommandFacts, Entry, ItemFacts
from tipchain.history.store import History, HistoryPlace, place_of
from tipchain.nightly.items import NightPlan
from tipchain.report.model import RunReport, dump_report

PASS, FAIL, ERROR, SKIP = Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP
DAYS = count()
ENVIRONMENT = {
    "commit": "4b72afe",
    "machine": "host",
    "processor": "Example CPU",
    "cores": 16,
    "gpus": ["H200", "H200"],
    "versions": {"torch": "2.13.0"},
}
HERE = {"machine": "host", "machine_class": "16 cores"}
DAY = 86400.0


def night(number: int, *, title: str = "suite", **facts: object) -> Entry:
    began = 1_700_000_000 + DAY * number
    return Entry(
        key=f"{title} {number}",
        kind="night",
        name=f"{title}-{number:03d}",
        title=title,
        began=began,
        started=f"day {number}",
        **(HERE | facts),
    )


def item(name: str, outcome: Outcome = PASS, **facts: object) -> ItemFacts:
    return ItemFacts(**{"id": name, "attempt": 1, "outcome": outcome, "seconds": 100.0, **HERE, **facts})


def trained(name: str, figures: Mapping[str, float], **facts: object) -> ItemFacts:
    command = CommandFacts(id="train[norm]", step="train", argv=["python", "train.py"], outcome=PASS, figures=figures)
    return item(name, commands=[command], **facts)


def judged(name: str, outcomes: Mapping[str, Outcome], outcome: Outcome = PASS, **facts: object) -> ItemFacts:
    verdicts = [
        {"subject": subject, "outcome": one, "reason": f"{subject} is {one.value}"} for subject, one in outcomes.items()
    ]
    return item(name, outcome, judged=verdicts, **facts)


def cause(code: str = "epsilon", **facts: object) -> CauseFacts:
    given = {
        "stage": "forward",
        "code": code,
        "layer": "body.1.bn",
        "message": f"`{code}` is wrong",
        "fix": f"pass `{code}=1`",
        "file": "port.py",
        "line": 3,
        "explained": 1.0,
        "checks": 2,
    }
    return CauseFacts(**{**given, **facts})


def history_in(folder: Path) -> History:
    return History(place_of(folder, str(folder / "history.sqlite")))


def fill(history: History, nights: Iterable[tuple[Entry, Sequence[ItemFacts]]]) -> None:
    for entry, items in nights:
        history.add(entry, items)


def report(title: str = "demo.txt", *, run: str = "out/runs/20260101-000000-abcde", seconds: float = 12.5) -> dict:
    diff = tensor_diff(
        mean_abs=2e-7, min_abs=nan, worst_index=(3, 5), worst_expected=-1.5, worst_actual=-1.4, expected_max_abs=2.25,
        needed_atol=inf,
    )  # fmt: skip
    command = Command(id="train[norm]", step="train", argv=("python", "a b.py"), log="train.log")
    figures = {"loss": 0.5, "top1": nan}
    result = Result(command, PASS, seconds=9.0, peak_memory_mb=321.0, log="train.log", figures=figures)
    made = RunReport(
        title=title,
        mode="lite_train_lite_infer",
        run=run,
        started="2026-01-01T00:00:00+00:00",
        seconds=seconds,
        versions={"torch": "2.13.0", "paddle": "3.3.1"},
        results=(result,),
        verdicts=(
            verdict("forward/logits", PASS, "fine\0", diff=diff, share=None),
            verdict("forward/logits", FAIL, "again", diff=None, share=None),
        ),
    )
    return json.loads(dump_report(made))


def plan(root: Path, names: Sequence[str]) -> NightPlan:
    """Return a plan of items that are called so."""
    items = tuple(some_item(name, id=name, source="a.txt", mode="", tags=(), argv=("true",)) for name in names)
    return NightPlan(name="suite", root=str(root), manifest="suite.yaml", sha256="0" * 64, items=items)


def night_sample(root: Path, ended: Mapping[str, Outcome], *, left: Sequence[str] = (), reports: bool = True):
    """Return a night as a coordinator leaves it: items that ended, and such that have not."""
    items = plan(root, [*ended, *left]).items
    sample = NightSample(root / "nights/suite", next(DAYS), items, root=root, environment=ENVIRONMENT)
    facts = {"seconds": 12.5, "peak_memory_mb": 99.0, "exit_code": 0, "log": None}
    for one, (name, outcome) in zip(items, ended.items(), strict=False):
        made = report(name) if reports else None
        sample.end(one, outcome, "" if outcome is PASS else "went wrong", report=made, **facts)
    if not left:
        sample.finish(seconds=77.0)
    return sample


def night_folder(root: Path, ended: Mapping[str, Outcome], **more: bool) -> Path:
    return night_sample(root, ended, **more).folder


WRITER = """
import sys
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
from history_samples import judged, night, PASS, trained
from tipchain.history.store import History, place_of
history = History(place_of(Path("."), sys.argv[2]))
for number in range(2):
    names = range(4) if int(sys.argv[3]) % 2 else reversed(range(4))
    items = [judged(f"item{at}", {f"tensor{one}": PASS for one in range(9)}) for at in names]
    history.add(night(number), items)
history.add(night(9, title=f"writer{sys.argv[3]}"), [trained("own", {"loss": 0.5})])
"""


def write_twice_at_once(place: HistoryPlace) -> None:
    """Let two processes add the same two nights, in another order, and one of their own."""
    url = place.url.render_as_string(hide_password=False)
    argv = [sys.executable, "-c", WRITER, str(Path(__file__).resolve().parent), url]
    writers = [subprocess.Popen([*argv, str(number)]) for number in range(2)]
    assert [one.wait(120) for one in writers] == [0, 0]
