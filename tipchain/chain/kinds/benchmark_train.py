"""benchmark_train chains: train as the section ``train_benchmark_params`` says, and read the speed from the log.

The original drivers copy the parameter file, rewrite lines of the copy, and start the training driver on it, once for
each batch size, precision and number of GPUs, with one GPU once more under the profiler. A script that is not public
then takes the mean of the log's ``ips`` without the first lines. Here the same lines are rewritten, found by their
place in the suite's layout, and the mean is a figure of the training with its unit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import PurePath

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.kinds.base import Chain, Layout, Request, only_section, suite_data
from tipchain.chain.load import changed_text, device_changes, suite_of
from tipchain.chain.params import Slot, parse_params, plain_list, shell_operator, split_lines
from tipchain.chain.plan import Command, Plan, Speed
from tipchain.chain.slots import Slots, checked_slots, has_word, legacy_slots, read_slots
from tipchain.chain.suites import Suite
from tipchain.errors import ParamsError, UsageError
from tipchain.modes import parse_device

SECTION = "train_benchmark_params"
TO_STATIC = "dynamicTostatic"
ITEM = re.compile(
    r"(?P<kind>dynamic|dynamicTostatic)_bs(?P<batch>\d+)_(?P<precision>[a-z]+\d*)_(?P<mode>[A-Z]\w*)_(?P<devices>N\d+C\d+)"
)
DEVICES = re.compile(r"N(\d+)C(\d+)")
WHOLE = ("hrnet", "tinypose", "ppyoloe_r_crn_s_3x_spine_coco")
"""PaddleDetection's models, by a part of the name, that train longer on more GPUs; the others repeat their data."""
REPEATED = ("coco_detection", "coco_instance")
"""Its configurations of data sets whose ``TrainDataset`` takes ``repeat`` from the command line."""
FLAG = re.compile(r"[A-Za-z_]\w*=[^\s;]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A suite's own part of its benchmark_train.sh.

    Attributes:
        layout: the lines of the section.
        devices: numbers of hosts and GPUs, where none is asked for.
        skip: lines of speed that the script leaves out.
        units: of the speed on one GPU and on several.
        nothing: roles that are set to null.
        profile: role of the line that becomes the profiler's.
        lists: whether epoch and batch are lists of ``mode=value``.
        limits: the driver's own limit with the profiler, without, and on several GPUs; "" for none.
        quotes: whether the profiler's options are written in quotes; else the command ends at their first ``;``.
    """

    layout: Layout
    devices: Sequence[str] = ("N1C4",)
    skip: int
    units: Sequence[str]
    nothing: Sequence[str] = ("eval", "export_norm")
    profile: str = "extra_train"
    lists: bool = False
    limits: Sequence[str] = ("5m", "", "")
    quotes: bool = True


DRIVERS: Mapping[str, Driver] = {suite: Driver(**data) for suite, data in suite_data("benchmark_train").items()}
LAYOUTS: Sequence[Layout] = tuple(driver.layout for driver in DRIVERS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """One training that is measured, on ``N1C4``: hosts and GPUs of them all; the trainer "" is the file's own."""

    batch: str
    precision: str
    devices: str
    trainer: str
    mode: str = "DP"

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of each host: the original counts them so."""
        hosts, cards = hosts_and_cards(self.devices)
        return tuple(str(number) for number in range((cards - 1) // max(hosts, 1) + 1))

    def label(self, devices: str) -> str:
        """Return how ids and logs name it."""
        return f"bs{self.batch}_{self.precision}_{self.mode}_{devices}"


def hosts_and_cards(devices: str) -> tuple[int, int]:
    """Return the numbers in ``N1C4``: of hosts, and of GPUs of them all."""
    found = DEVICES.match(devices)
    return (int(found[1]), int(found[2])) if found else (1, 1)


def plan(request: Request) -> Plan:
    """Return the plan.

    Raises:
        ParamsError: the file has no section for it, or a line is missing, added or out of place, or a value is impossible.
        UsageError: the suite has no such chains, or the item asked for is none.
    """
    suite = suite_of(request.file, request.suite, root=request.root, legacy=request.legacy)
    if suite.name not in DRIVERS:
        raise UsageError(
            f"{request.file.path}: {suite.name} has no benchmark_train.sh\n  suites that have: {', '.join(DRIVERS)}"
        )
    return (_Original if request.legacy else _SectionPlan)(request, suite).plan()


class _TrainingPlan:
    """Rewrites the file for each training, and plans it; ``lists`` are roles whose values become ones of ``mode=value``."""

    model: str

    def __init__(
        self, request: Request, suite: Suite, places: Mapping[str, int], section: Slots, lists: Collection[str]
    ) -> None:
        self.request, self.suite, self.driver = request, suite, DRIVERS[suite.name]
        self.lines = list(split_lines(request.text))
        self.places, self.section, self.lists = places, section, lists

    def set(self, role: str, value: str) -> None:
        self.change(role, lambda line: f"{line.partition(':')[0]}:{value}")

    def change(self, role: str, change: Callable[[str], str]) -> None:
        number = self.places.get(role, 0)
        if 0 < number <= len(self.lines):
            self.lines[number - 1] = change(self.lines[number - 1])

    def replace_all(self, old: str, new: str) -> None:
        self.lines = [line.replace(old, new) for line in self.lines]

    def value(self, role: str) -> str:
        return self.section[role].value if role in self.section else ""

    def begin(self, *, to_static: bool) -> None:
        if self.suite.name == "paddleclas":
            self.replace_all(" -o DataLoader.Train.sampler.shuffle=False", " -o Global.print_batch_step=1")
            self.replace_all("-o DataLoader.Train.loader.use_shared_memory=False", " -o Global.eval_during_train=False")
        for role in self.driver.nothing:
            self.set(role, "null")
        if self.suite.name == "paddleclas" and (self.value("num_workers") or self.request.legacy):
            old = " -o DataLoader.Train.loader.num_workers="
            self.replace_all(f"{old}0", f"{old}{self.value('num_workers')}")
        if self.suite.name == "paddlevideo":
            more = f" --max_iters={self.value('max_iters')} -o log_interval=1"
            self.change("train_norm", lambda line: (line + more).replace("--validate", "", 1))
        if to_static and self.suite.name != "paddleclas":
            self.replace_all("trainer:norm_train", "trainer:to_static_train")
        if self.suite.name == "paddleseg":
            self.change("autocast", lambda line: re.sub("^Global.auto_cast:", "--precision:", line))

    def settle(self, run: BenchmarkRun, epoch: str) -> None:
        self.set("autocast", run.precision)
        for role, value in (("batch", run.batch), ("epoch", epoch)):
            self.set(role, f"{self.request.mode.value}={value}" if role in self.lists else value)
        if run.trainer:
            self.set("trainer", run.trainer)

    def on_whole_data(self) -> bool:
        return any(name in self.model for name in WHOLE)

    def pairs(self) -> Mapping[str, str]:
        if self.suite.name != "paddleseg":
            return {}
        last = next((line for line in reversed(self.lines) if line), "")
        return dict(pair.split(":")[:2] for pair in last.split(";") if ":" in pair)

    def extra(self) -> tuple[str, ...]:
        pairs, names = self.pairs(), ("log_iters", "repeats")
        return tuple(word for name in names if pairs.get(name) for word in (f"--{name}", pairs[name]))

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class _SectionPlan(_TrainingPlan):
    """The default mode: lines are found by their section and key, and each training is a command of its own."""

    def __init__(self, request: Request, suite: Suite) -> None:
        self.slots = read_slots(request.file, suite)
        own = only_section(request.file, SECTION)
        if not own.headers:
            raise ParamsError(
                f"the file has no section [{SECTION}], which benchmark_train reads",
                file=request.file.path,
                expected=", ".join("|".join(rule.keys) for rule in DRIVERS[suite.name].layout.layout if rule.role),
            )
        section = checked_slots(own, DRIVERS[suite.name].layout)
        places = {role: slot.line for role, slot in self.slots.items()}
        super().__init__(request, suite, places, section, suite.mode_lists)
        self.chain = Chain(request, kind="benchmark_train", suite=suite.name, slots=self.slots)
        self.model = self.chain.model

    def plan(self) -> Plan:
        runs = tuple(self.runs())
        self.begin(to_static=any(run.trainer == "to_static_train" for run in runs))
        env = dict(self.flags())
        epoch = self.section["bench_epoch"]
        if not re.fullmatch(r"[1-9]\d*", epoch.value):
            raise epoch.error("is no number of epochs", expected=f"{epoch.key}:1")
        clean = list(self.lines)
        for run in runs:
            devices = self.devices(run)
            twice = len(run.gpus) == 1 and devices != "cpu" and not self.section["profiler"].absent
            for profiled in (True, False) if twice else (False,):
                self.lines = list(clean)
                self.add(run, devices, self.repeated(run, epoch.value), env, profiled=profiled)
        return self.chain.made(results_log="results.log", status=self.suite.status, redirected=self.suite.redirected)

    def repeated(self, run: BenchmarkRun, epoch: str) -> str:
        """Have a training of PaddleDetection repeat its data as often as it has GPUs; return its epochs.

        The original writes the number into the checkout's configurations of two data sets; here the training gets it.
        """
        slot, (_, cards) = self.section.get("repeat"), hosts_and_cards(run.devices)
        if slot is None:
            return epoch
        if self.on_whole_data():
            return str(int(epoch) * cards)
        if not re.fullmatch(r"[1-9]\d*", slot.value):
            raise slot.error("is no number of repetitions", expected="repeat:1")
        if (count := int(slot.value) * cards) > 1:
            named = re.search(r"\s-c\s+(\S+)(?:\s.*)?\s-o\b", self.lines[self.places["train_norm"] - 1])
            path = named and self.request.root and self.request.root / named[1]
            config = path.read_text(encoding="utf-8", errors="replace") if path and path.is_file() else ""
            if any(f"datasets/{name}.yml" in config for name in REPEATED):
                self.change("train_norm", lambda line: f"{line} TrainDataset.repeat={count}")
            else:
                message = (
                    "is left to the data set's own settings: the training's configuration names none that takes it"
                )
                self.chain.tell("default", message, slot)
        return epoch

    def runs(self) -> Iterator[BenchmarkRun]:
        asked = self.request.options.argument
        if asked and asked != TO_STATIC:
            if not (item := ITEM.fullmatch(asked)):
                raise UsageError(
                    f"{asked!r} is no item of a benchmark\n  expected dynamic_bs8_fp32_DP_N1C1 or"
                    f" dynamicTostatic_bs8_fp32_DP_N1C1: kind, batch size, precision, run mode, hosts and GPUs; or {TO_STATIC}"
                )
            precision = "fp32" if item["precision"] == "null" else item["precision"]
            yield BenchmarkRun(
                batch=item["batch"],
                precision=precision,
                devices=item["devices"],
                mode=item["mode"],
                trainer=self.trainer(to_static=item["kind"] == TO_STATIC),
            )
            return
        trainers: tuple[str, ...] = (self.trainer(to_static=bool(asked)),)
        if "model_type" in self.section and not asked:
            trainers = self.listed("model_type", r"\w+")
        # One device that the user names stands for all numbers of GPUs.
        devices = self.driver.devices if self.request.options.device in (None, "gpu") else ("N1C1",)
        batches, precisions = self.listed("bench_batch", r"[1-9]\d*"), self.listed("fp_items", r"[a-z]+\d*")
        for batch, precision, count, trainer in product(batches, precisions, devices, trainers):
            yield BenchmarkRun(batch=batch, precision=precision, devices=count, trainer=trainer)

    def trainer(self, *, to_static: bool) -> str:
        norm = "norm_train" if self.suite.name == "paddleclas" else ""
        return "to_static_train" if to_static else norm

    def listed(self, role: str, pattern: str) -> tuple[str, ...]:
        slot = self.section[role]
        values = tuple(dict.fromkeys(slot.values))
        if not values or not all(re.fullmatch(pattern, value) for value in values):
            raise slot.error("is no list of them", expected=f"{slot.key}:A|B")
        return values

    def flags(self) -> Iterator[tuple[str, str]]:
        slot = self.section["flags"]
        for flag in () if slot.absent else filter(None, slot.value.split(";")):
            if not FLAG.fullmatch(flag):
                raise slot.error(f"{flag!r} is no environment variable", expected="NAME=value;NAME=value")
            name, _, value = flag.partition("=")
            yield name, value

    def devices(self, run: BenchmarkRun) -> str:
        device = self.request.options.device
        if device is None or device == "gpu":
            return run.devices
        return "N1C1" if parse_device(device).is_gpu else "cpu"

    def add(self, run: BenchmarkRun, devices: str, epoch: str, env: Mapping[str, str], *, profiled: bool) -> None:
        self.settle(run, epoch)
        self.set("gpu_list", ",".join(run.gpus))
        slot = self.section["profiler"]
        # Its options are separated by what ends a command for a shell.
        value = shlex.quote(slot.value) if shell_operator(slot.value) else slot.value
        self.change(self.driver.profile, lambda _: f"{slot.key}:{value}" if profiled else "null:null")
        text, path = self.text, self.request.file.path
        if self.request.options.device not in (None, "gpu"):
            slots = read_slots(parse_params(text, path), self.suite)
            text, _ = changed_text(text, tuple(device_changes(slots, str(self.request.options.device))))
        label = run.label(devices)
        if run.trainer == "to_static_train":
            label += "_d2sT"
        options = self.request.options._replace(
            run=f"{self.request.options.run}/{label}{'_profiling' if profiled else ''}", device=None
        )
        file = parse_params(text, path)
        spec = build_spec(file, self.suite, self.request.mode, lenient=self.request.lenient)
        inner = expand(spec._replace(alignment=None), path, options)
        edited = {self.places.get(role, 0) for role in (*self.driver.nothing, self.driver.profile)}
        for one in inner.findings:
            if one.severity == "error" and one.line not in edited:
                self.chain.findings.append(one)
        warm_up, several = self.request.options.warm_up, len(run.gpus) > 1
        skipped = "0" if several else self.pairs().get("skip_iters", "0").strip()
        if not re.fullmatch(r"\d+", skipped):
            raise ParamsError(f"skip_iters: {skipped!r} is no number of lines", file=path)
        speed = Speed(
            warm_up=self.driver.skip if warm_up is None else warm_up,
            unit=self.driver.units[several],
            each_epoch=int(skipped),
        )
        trainings = [command for command in inner.commands if command.step == "train"]
        if not trainings:
            self.chain.tell("default", f"{label}: the file has no program for it", self.slots["trainer"])
        for command in trainings:
            self.chain.add(
                command._replace(
                    id=f"{label};profiled" if profiled else label,
                    argv=(*command.argv, *self.extra()),
                    env={**env, **command.env},
                    leg=label,
                    leaves=(),
                    needs=(),
                    speed=None if profiled else speed,
                )
            )


class _Original(_TrainingPlan):
    """The original's commands: lines are counted, rewritten lines stay so, and all of them write where it is started."""

    def __init__(self, request: Request, suite: Suite) -> None:
        driver, lines = DRIVERS[suite.name], split_lines(request.text)
        numbered = [line for line in lines if line]
        header = next((n for n, line in enumerate(lines, 1) if has_word(line, SECTION)), 0)
        slots = {}
        for index, role in enumerate((rule.role for rule in driver.layout.layout if rule.role), header):
            key, _, rest = (numbered[index] if index < len(numbered) else "").partition(":")
            value = rest if suite.rest else rest.partition(":")[0]
            slots[role] = Slot(role=role, key=key, value=value, file=request.file.path, line=index + 1)
        places = {rule.role: number for number, rule in enumerate(suite.layout, 1)}
        super().__init__(request, suite, places, slots, ("batch", "epoch") if driver.lists else ())

    def plan(self) -> Plan:
        slots = legacy_slots(self.request.text, self.request.file.path, self.suite)
        self.model = slots["model_name"].value
        self.commands: list[Command] = [
            Command(id="version", step="other", argv=("python", "-c", "import paddle;print(paddle.version.commit)"))
        ]
        self.set("python", "python")
        batches, precisions, devices, trainers, mode, to_static = self.asked()
        self.begin(to_static=to_static)
        epoch = self.epoch(devices)
        for batch, precision, count, trainer in product(batches, precisions, devices, trainers):
            self.add(
                BenchmarkRun(batch=batch, precision=precision, devices=count, trainer=trainer, mode=mode),
                epoch,
                to_static=to_static,
            )
        folder = f"test_tipc/output/{self.model}/{self.request.mode.value}"
        return Plan(
            params=self.request.file.path,
            mode=self.request.mode,
            suite=self.suite.name,
            chain="benchmark_train",
            model=self.model,
            status=self.suite.status,
            out=folder,
            run=folder,
            commands=tuple(one._replace(id=f"{one.step}[{n}]") for n, one in enumerate(self.commands, 1)),
        )

    def asked(self) -> tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str], str, bool]:
        """Return batch sizes, precisions, devices, trainers, the run mode, and whether a static graph is asked for."""
        asked, clas = self.request.options.argument, self.suite.name == "paddleclas"
        if not asked or asked == TO_STATIC:
            trainers: Sequence[str] = ("",)
            if clas:  # asked for a static graph, it goes through an empty list
                trainers = () if asked else plain_list(self.value("model_type"))
            lists = (plain_list(self.value("bench_batch")), plain_list(self.value("fp_items")))
            return *lists, self.driver.devices, trainers, "DP", bool(asked)
        kind, batch, precision, mode, count, *_ = (*asked.split("_"), "", "", "", "", "")
        batch = re.sub(r"\D", "", batch)
        precision = "fp32" if precision == "null" else precision
        trainer = ("to_static_train" if kind == TO_STATIC else "norm_train") if clas else ""
        to_static = TO_STATIC in asked if self.suite.name in ("paddlevideo", "paddle3d") else kind == TO_STATIC
        one = ((batch,) if batch else (), (precision,) if precision else (), (count,) if count else ())
        return *one, (trainer,), mode, to_static

    def epoch(self, devices: Sequence[str]) -> str:
        """Return the epochs that are written; PaddleDetection repeats its data instead, or trains longer on more GPUs."""
        if self.suite.name != "paddledetection":
            return self.value("bench_epoch")
        if not self.on_whole_data():
            return "1"
        epoch = self.section["bench_epoch"]
        if not epoch.value.isdecimal():
            raise epoch.error("is no number of epochs", expected=f"{epoch.key}:1")
        return str(int(epoch.value) * hosts_and_cards(devices[0] if devices else "N1C4")[1])

    def add(self, run: BenchmarkRun, epoch: str, *, to_static: bool) -> None:
        self.settle(run, epoch)
        static = run.trainer == "to_static_train" if run.trainer else to_static
        name = f"{PurePath(self.request.options.root).name}_{self.model}_{run.label(run.devices)}_{'d2sT_' if static else ''}"
        gpus = ",".join(run.gpus)
        single = len(gpus) <= 1
        self.set("gpu_list", "0" if single else gpus)
        if single:
            slot = self.section["profiler"]
            options = f"{slot.key}:{slot.value}"
            text = f'"{options}"' if self.driver.quotes else options.partition(";")[0]
            self.change(self.driver.profile, lambda _: text)
            self.accumulate(run)
            self.train(f"profiling_log/{name}profiling", self.driver.limits[0])
        self.set(self.driver.profile, "null")
        if not single:
            self.accumulate(run)
        self.train(f"train_log/{name}log", self.driver.limits[1 if single else 2])
        root, unit = self.request.options.root, self.driver.units[not single]
        log = f"{root}/train_log/{name}log"
        if single and (skipped := self.pairs().get("skip_iters")):
            words: tuple[str, ...] = ("python", "test_tipc/filter_log.py", "--in_log_path", log)
            words = (*words, "--out_log_path", f"{log}_filtered", "--skip_iters", skipped)
            self.commands.append(Command(id="filter", step="other", argv=words))
            log += "_filtered"
        argv: tuple[str, ...] = ("python", "/scripts/analysis.py", "--filename", log)
        argv += ("--speed_log_file", f"{root}/index/{name}speed")
        argv += ("--model_name", f"{self.model}_bs{run.batch}_{run.precision}_{run.mode}")
        argv += ("--base_batch_size", run.batch, "--run_mode", run.mode, "--fp_item", run.precision)
        argv += ("--keyword", "ips:", "--skip_steps", str(self.driver.skip), "--device_num", run.devices)
        argv += ("--speed_unit", unit if unit != "instance/s" else "instance/sec", "--convergence_key", "loss:")
        self.commands.append(Command(id="speed", step="other", argv=argv))

    def accumulate(self, run: BenchmarkRun) -> None:
        if self.suite.name == "paddlevideo" and "TimeSformer" in self.model:
            size = int(run.batch) * int(run.devices[3:7] or 0) * 8
            self.change("train_norm", lambda line: f"{line} -o GRADIENT_ACCUMULATION.global_batch_size={size}")

    def train(self, log: str, limit: str) -> None:
        suite = self.suite._replace(fixed_epoch="1") if self.suite.fixed_epoch else self.suite
        spec = legacy_spec(self.text, self.request.file.path, suite, self.request.mode)
        for command in expand(spec, self.request.file.path, self.request.options).commands:
            words = self.extra() if command.step == "train" else ()
            wrapper = ("timeout", limit, *command.wrapper) if limit else command.wrapper
            self.commands.append(
                command._replace(argv=(*command.argv, *words), log=command.log or log, wrapper=wrapper)
            )
