"""Nights for tests of the dashboard: what fails, changes, is skipped, comes and goes, and another environment."""

from math import nan
from pathlib import Path

from night_samples import ENVIRONMENT, NightSample, item
from run_samples import tensor_diff, verdict

from tipchain.chain.plan import Command, Result
from tipchain.errors import Outcome
from tipchain.nightly.dashboard import render
from tipchain.nightly.items import Item
from tipchain.nightly.nights import find_nights
from tipchain.nightly.timeline import read_timelines
from tipchain.report.model import RunReport, report_json

GOOD = item("alexnet", mode="lite_train_lite_infer")
FLAKY = item("resnet", device="gpu", tags=("lite", "heavy"), chain="train_infer_python")
BROKEN = item("mvf<b>", tags=("heavy",), chain="dy2static")
GONE, NEW, CASE = item("old"), item("new"), item("vgg", kind="align")
NASTY = 'exit 3: </script><script>alert(1)</script> "x" & <img src=http://192.0.2.1/x.png> \x1b[31m\x00 é'
NIGHTS = 6


def chain_report(top1: float, milliseconds: float) -> dict[str, object]:
    found = {"eval": {"top1": top1, "batch_size": 4}, "infer": {"avg_ms": milliseconds}, "train": {"loss": nan}}
    results = [
        Result(command=Command(id=f"{step}[x]", step=step, argv=("x",)), outcome=Outcome.PASS, figures=figures)
        for step, figures in found.items()
    ]
    return report_json(RunReport(results=tuple(results)))


def case_report(**means: float) -> dict[str, object]:
    """Return an alignment's report with the mean difference of a tensor of each stage, and a verdict without one."""
    ones = [verdict(f"{stage}/logits", diff=tensor_diff(mean_abs=mean)) for stage, mean in means.items()]
    return report_json(RunReport(verdicts=(*ones, verdict("loss/loss", diff=None))))


def make_nights(folder: Path) -> Path:
    """Make the nights of two manifests; return the folder of both."""
    for day in range(NIGHTS):
        versions = {"torch": "2.12.0" if day < 3 else "2.13.0", "paddle": "3.3.1"}
        environment = {**ENVIRONMENT, "commit": f"c{day}", "versions": versions}
        plan = [GOOD, FLAKY, BROKEN, CASE, GONE if day < NIGHTS - 1 else NEW]
        night = NightSample(folder / "suite", day, plan, environment=environment)
        night.end(GOOD, seconds=10.0 + day, report=chain_report(0.5 + day / 100, 20.0), peak_memory_mb=100.0)
        failed = day in (2, NIGHTS - 1)
        night.end(FLAKY, Outcome.FAIL if failed else Outcome.PASS, "top1 is 0.1" if failed else "", seconds=5.0)
        night.end(BROKEN, Outcome.ERROR, NASTY, seconds=3.0)
        night.end(CASE, report=case_report(forward=1e-6 * (day + 1)), attempt=2)
        night.end(plan[-1], Outcome.SKIP, "no usable GPU here", log=None)
        night.finish()
    other = NightSample(folder / "other", 0, [GOOD])
    other.end(GOOD)
    return folder


def page_of(nights: Path, page: Path, count: int = 30) -> str:
    timelines, problems = read_timelines(find_nights(nights), count, page)
    return render(timelines, problems)


def many_nights(folder: Path, items: int, nights: int) -> Path:
    """Make nights of many items, each with a report and a reason that is not short."""
    plan: list[Item] = [
        item(f"PaddleClas_MobileNetV3_large_x1_0_{one}", mode="lite_train_lite_infer") for one in range(items)
    ]
    for day in range(nights):
        night = NightSample(folder / "suite", day, plan)
        for place, one in enumerate(plan):
            bad = (place * 7 + day) % 40 == 0
            night.end(
                one,
                Outcome.FAIL if bad else Outcome.PASS,
                f"exit {place}: " + "x" * 150 if bad else "",
                seconds=100.123 + place + day,
                report=chain_report(0.5 + place / 1000, 20.0 + day),
                peak_memory_mb=900.5 + day,
            )
        night.finish()
    return folder
