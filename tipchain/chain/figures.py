"""Numbers of a command's log: losses, accuracies, speeds, milliseconds, memory.

The suites print ``name: value`` pairs, each in its own words. The names given here, and what they are read from:

===================  =====================================================================================
name                 in the log (upper and lower case alike; ``x(...)`` is ``x`` where not named so)
===================  =====================================================================================
``loss``             ``loss``, ``total_loss``, ``loss_avg``, ``avg_loss``
``lr``               ``lr``, ``learning_rate`` (training only)
``top1``, ``top5``   ``top1``, ``acc1``, ``acc_top1``, ``top1_acc``, ``top1_avg``, ``avg_acc1``, ``Acc@1``; 5 alike
``acc``              ``acc``, ``accuracy``
``miou``, ``dice``,  the same; ``mDice`` is ``dice``
``kappa``, ``auc``,
``psnr``, ``ssim``,
``fid``
``map``              ``mAP``, ``Average Precision (AP) @[ IoU=0.50:0.95 | area=   all | ... ] =``
``map50``, ``map75`` the latter with ``IoU=0.50`` and ``IoU=0.75`` alone
``ips``              ``ips``, ``img/s``: samples a second, the last
``avg_ips``          mean of the log's ``avg_ips``, or else of ``ips``, without the first, which warms up
``avg_ips[...]``     the same of a benchmark, in the unit that stands in brackets, without the lines that its driver
                     leaves out; evaluations do not count
``batch_cost_s``     ``batch_cost``, ``avg_batch_cost``
``reader_cost_s``    ``reader_cost``, ``avg_reader_cost``, ``data_cost``
``preprocess_ms``,   ``preprocess_time(ms)``, ``inference_time(ms)``, ``postprocess_time(ms)``
``inference_ms``,
``postprocess_ms``
``total_ms``         ``total_time(ms)``
``total_s``          ``total time(s)``, ``total time spent(s)``
``avg_ms``           ``avg_time_cost(ms)``, ``average latency time(ms)``
``qps``              ``QPS``
``cpu_rss_mb``,      ``cpu_rss(MB)``, ``gpu_rss(MB)``, or without the unit
``gpu_rss_mb``
``gpu_util``         ``gpu_util``, percent
``difference_ratio`` the same, of what rounding explains: above 1 a comparison fails
``disagreement``,    the same, of a quantized model against the unquantized one, whose own metric does not count
``relative_error``,
``metric_drop``
``batch_size``       ``batch_size`` (inference only)
``data_num``         ``data_num``, ``img_num``, ``total number of samples`` (inference only)
===================  =====================================================================================

The last value of a name counts. In a training's log the lines of evaluations (``[Eval]``, ``[EVAL]``, ``val step``)
give metrics only, and these count more than the training's own. Metrics stand as printed: some suites print
percent, some fractions. ``nan`` and ``inf`` are figures too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tipchain.chain.plan import Speed

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan\b|inf(?:inity)?\b)"
_PAIR = re.compile(rf"(?<![\w/.@-])([a-z][\w/]*)(\([^()]*\))?(?:[:=]|\s=)\s*\[?({_NUMBER})")
_IPS = re.compile(rf"(?:^|\s)ips[:=]\s*(?P<value>{_NUMBER})(?:\s*(?P<unit>[a-z]+/s(?:ec)?)\b)?")
_EPOCH = re.compile(r"\bepoch[:=]\s*\d+")
_SENTENCES = (
    ("top{}", re.compile(rf"\bacc@(?P<which>[15])[: ]\s*(?P<value>{_NUMBER})")),
    (
        "map{}",
        re.compile(
            r"average precision\s+\(ap\) @\[ iou=0\.(?P<which>50:0\.95|50|75)\s*\| area=\s*all .*\] = "
            rf"(?P<value>{_NUMBER})"
        ),
    ),
    ("total_s", re.compile(rf"\btotal time(?: spent)?\(s\):\s*(?P<value>{_NUMBER})")),
    ("avg_ms", re.compile(rf"\baverage latency time\(ms\):\s*(?P<value>{_NUMBER})")),
    ("data_num", re.compile(rf"\btotal number of samples:\s*(?P<value>{_NUMBER})")),
)
_HINTS = ("acc@", "average", "total ")
_EVALUATION = re.compile(r"\[eval|\[val\b|\bval +(?:step|epoch|loss)|\btest:|\beval iter")


def _table(**names: str) -> dict[str, str]:
    """Return the figure for each of the names in a log, given the other way round."""
    return {name: figure for figure, text in names.items() for name in text.split()}


_METRICS = _table(
    top1="top1 acc1 acc_top1 top1_acc top1_avg avg_acc1",
    top5="top5 acc5 acc_top5 top5_acc top5_avg avg_acc5",
    acc="acc accuracy",
    miou="miou",
    dice="dice mdice",
    kappa="kappa",
    auc="auc",
    psnr="psnr",
    ssim="ssim",
    fid="fid",
    map="map",
)
_SPEED = _table(
    loss="loss total_loss loss_avg avg_loss",
    ips="ips img/s",
    avg_ips="avg_ips",
    batch_cost_s="batch_cost avg_batch_cost",
    reader_cost_s="reader_cost avg_reader_cost data_cost",
)
_TRAINING = _table(lr="lr learning_rate")
_INFERENCE = _table(
    preprocess_ms="preprocess_time(ms)",
    inference_ms="inference_time(ms)",
    postprocess_ms="postprocess_time(ms)",
    total_ms="total_time(ms)",
    avg_ms="avg_time_cost(ms)",
    qps="qps",
    cpu_rss_mb="cpu_rss(mb) cpu_rss",
    gpu_rss_mb="gpu_rss(mb) gpu_rss",
    gpu_util="gpu_util",
    batch_size="batch_size",
    data_num="data_num img_num",
    ips="ips",
)
_COMPARISON = _table(
    difference_ratio="difference_ratio",
    disagreement="disagreement",
    relative_error="relative_error",
    metric_drop="metric_drop",
    top1="top1",
    miou="miou",
)
_OF_STEP: Mapping[str, Mapping[str, str]] = {
    "train": _METRICS | _SPEED | _TRAINING,
    "eval": _METRICS | _SPEED,
    "infer": _METRICS | _INFERENCE,
    "compare": _COMPARISON,
}
_METRIC_FIGURES = frozenset({*_METRICS.values(), "map50", "map75"})


def figures(step: str, lines: Iterable[str]) -> Mapping[str, float]:
    """Return the figures in the lines of a log of a command of kind ``step``."""
    reader = FigureReader(step)
    for line in lines:
        reader.read(line)
    return reader.figures()


class FigureReader:
    """Collects the figures of a log, line by line; steps other than train, eval, infer and compare have none.

    Args:
        step: the command's.
        speed: how its speed is measured, where it is run for that.
    """

    def __init__(self, step: str, speed: Speed | None = None) -> None:
        self.speed, self.unit, self.speeds = speed, "", list[float]()
        self.epoch, self.in_epoch, self.begun = "", 0, 0
        self.trains = step == "train"
        self.names = _OF_STEP.get(step, {})
        self.wanted = {*self.names.values(), *_METRIC_FIGURES}
        self.wanted |= {"total_s", "avg_ms", "data_num"} if step == "infer" else set()
        self.last: dict[str, float] = {}
        self.evaluated: dict[str, float] = {}
        self.means = {"ips": _MeanAfterFirst(), "avg_ips": _MeanAfterFirst()}

    def read(self, line: str) -> None:
        """Take note of a line."""
        if not self.names:
            return
        text = line.lower()
        is_evaluation = self.trains and ("val" in text or "test:" in text) and bool(_EVALUATION.search(text))
        if self.speed and not is_evaluation and (told := _IPS.search(text)):
            self.unit = self.unit or (told["unit"] or "")
            if self._begins_epoch(text, self.speed.each_epoch):
                self.begun += 1
            else:
                self.speeds.append(float(told["value"]))
        for name, unit, value in _PAIR.findall(text):
            if figure := self.names.get(name + unit) or self.names.get(name):
                self._note(figure, float(value), is_evaluation=is_evaluation)
        if any(hint in text for hint in _HINTS):
            self._read_sentences(text, is_evaluation=is_evaluation)

    def _begins_epoch(self, text: str, count: int) -> bool:
        """Tell whether a line is one of the first ``count`` of its epoch."""
        if not (found := _EPOCH.search(text)):
            return False
        self.epoch, self.in_epoch = found[0], self.in_epoch + 1 if found[0] == self.epoch else 1
        return self.in_epoch <= count

    def _read_sentences(self, line: str, *, is_evaluation: bool) -> None:
        for figure, pattern in _SENTENCES:
            for found in pattern.finditer(line):
                which = found.groupdict().get("which", "")
                name = figure.format("" if ":" in which else which)
                if name in self.wanted:
                    self._note(name, float(found["value"]), is_evaluation=is_evaluation)

    def _note(self, figure: str, value: float, *, is_evaluation: bool) -> None:
        if is_evaluation:
            if figure in _METRIC_FIGURES:
                self.evaluated[figure] = value
            return
        self.last[figure] = value
        if figure in self.means:
            self.means[figure].add(value)

    def figures(self) -> dict[str, float]:
        """Return what has been found so far."""
        found = self.last | self.evaluated
        own, single = self.means["avg_ips"], self.means["ips"]
        mean = own if own.count else single
        if mean.count and self.names.get("avg_ips"):
            found["avg_ips"] = mean.value()
            found.setdefault("ips", own.last)
        if self.speed:
            found.pop("avg_ips", None)
            if measured := self.speeds[self.speed.warm_up :]:
                unit = self.unit.replace("/sec", "/s") or self.speed.unit
                found[f"avg_ips[{unit}]"] = sum(measured) / len(measured)
        return found

    def unmeasured(self) -> str:
        """Return why no speed was measured where one should have been; "" for nothing."""
        if not self.speed or len(self.speeds) > self.speed.warm_up:
            return ""
        count = len(self.speeds) + self.begun
        more = f", as are the first {self.speed.each_epoch} of each epoch" if self.begun else ""
        return f"{count} lines tell a speed, and the first {self.speed.warm_up} are warm-up{more}"


class _MeanAfterFirst:
    """The mean of numbers without the first, which stands only where it is alone."""

    def __init__(self) -> None:
        self.count, self.total, self.first, self.last = 0, 0.0, 0.0, 0.0

    def add(self, value: float) -> None:
        if self.count:
            self.total += value
        else:
            self.first = value
        self.count, self.last = self.count + 1, value

    def value(self) -> float:
        return self.total / (self.count - 1) if self.count > 1 else self.first
