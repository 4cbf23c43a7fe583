"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

import glob
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import PurePosixPath

from tipchain.chain.arguments import Facts, Filler
from tipchain.chain.fixes import Finding
from tipchain.chain.plan import Artifact, Command, Find, Options, Plan, default_timeout
from tipchain.chain.slots import SCRIPTS
from tipchain.chain.spec import AMP, ChainSpec, InferModel, Leg, Trainer
from tipchain.chain.suites import InferRule, Item, Step
from tipchain.chain.words import NOTHING, Slot, Words, flag, split_words
from tipchain.devices import parse_device

OUTPUT = PurePosixPath("test_tipc/output")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ALIGNED_WITHOUT_TRAINING = ("01", "02", "03")
SHORT_NAMES = {"infer_batch": "bs"}
DEVICE_KINDS = {"True": "gpu", "gpu": "gpu", "False": "cpu", "cpu": "cpu"}
PROGRAMS = ("**/*.pdmodel", "**/*.json", "**/__model__", "**/*.onnx")
WEIGHTS = ("**/*.pdiparams", "**/__params__", "**/*.onnx")
AT_INFERENCE = ("inference-flags",)


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    return _Expander(spec, options or Options()).plan(params)


def slug(text: str) -> str:
    """Return ``text`` as a file name, with nothing in it that a shell would mind."""
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip("-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A model to infer with.

    Attributes:
        label: how ids name it.
        leg: the leg of its commands.
        folder: where it is.
        quant: ``True`` if it is quantized.
        data: words of the data argument.
        needs: ids of the commands that make it.
        gpu: the GPU to infer on, None for any.
        facts: what templates may refer to.
    """

    label: str
    leg: str
    folder: str
    quant: str
    data: Words
    needs: tuple[str, ...]
    gpu: str | None
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One training and what follows it.

    Attributes:
        leg: its entry of the gpu list.
        trainer: its trainer.
        autocast: its precision.
        label: how ids name it.
        save: its folder, as commands name it.
        facts: what templates may refer to.
    """

    leg: Leg
    trainer: Trainer
    autocast: str
    label: str
    save: str
    facts: Facts

    @property
    def first_gpu(self) -> str | None:
        """The GPU of what runs in one process."""
        return self.leg.gpus[0] if self.leg.gpus else None


class _Expander:
    """Expands one spec; collects commands, links and findings."""

    def __init__(self, spec: ChainSpec, options: Options) -> None:
        self.spec, self.options, self.suite = spec, options, spec.suite
        self.filler = Filler(suite=spec.suite, slots=spec.slots, fixes=spec.fixes)
        self.python: Words = (options.python,) if options.python else spec.python
        self.commands: list[Command] = []
        self.latest: dict[str, str] = {}
        self.taken: set[str] = set()
        self.findings = list(spec.findings)
        self.timeout = default_timeout(spec.mode) if options.timeout_s is None else options.timeout_s
        self._place()
        # What the original's shell has exported at this point.
        self.exported: str | None = None
        # The name of the model file: an original changes it on the way.
        self.name = spec.name
        # What the norm trainer left: (weights, id of its command).
        self.norm: tuple[str, str] | None = None

    def on(self, fix: str) -> bool:
        return fix in self.spec.fixes

    def _place(self) -> None:
        """Set where the output goes: ``out`` and ``run`` for people, ``base`` as commands name it."""
        spec, options = self.spec, self.options
        facts = {"root": options.root, "model": spec.model, "mode": spec.mode.value}
        original = self.filler.fill(self.suite.out, facts)
        if not self.on("run-id"):
            self.base = original
            self.out = self.run = posixpath.normpath(original.removeprefix(f"{options.root}/"))
            return
        top = PurePosixPath(options.workdir) if options.workdir else OUTPUT
        self.out = str(top / spec.model / spec.mode.value)
        self.run = f"{self.out}/runs/{options.run}"
        self.base = self.run if self.run.startswith("/") else f"./{self.run}"
        if self.suite.out.startswith("{root}") and not self.run.startswith("/"):
            self.base = f"{options.root}/{self.run}"

    def plan(self, params: str) -> Plan:
        spec = self.spec
        self.align()
        if spec.mode.trains:
            self.train_all()
        else:
            self.exported = self.options.gpu_id
            for index, model in enumerate(spec.models):
                self.whole(index, model)
        facts = self.facts()
        return Plan(
            params=params,
            mode=spec.mode,
            suite=self.suite.name,
            model=spec.model,
            status=self.suite.status,
            out=self.out,
            run=self.run,
            commands=tuple(self.commands),
            latest=tuple(self.latest.items()),
            notes=tuple(dict.fromkeys(str(one) for one in self.findings if one.severity != "info")),
            findings=tuple(dict.fromkeys(self.findings)),
            results_log=self.suite.results_log,
            results_head=self.filler.fill(self.suite.results_head, facts),
            redirected=self.suite.redirected,
        )

    def facts(self) -> dict[str, str]:
        """Return what every template may refer to."""
        spec = self.spec
        facts = {
            "root": self.options.root,
            "model": spec.model,
            "mode": spec.mode.value,
            "base": self.base,
            **{role: spec.by_mode.get(role, "") for role in ("epoch", "batch", "config")},
        }
        for name, choices in self.suite.vars.items():
            facts[name] = self.filler.choose(choices, facts)
        return facts

    def tell(self, code: str, message: str, slot: Slot | None = None, severity: str = "warning") -> None:
        """Add a finding about a line, or about the file."""
        place = slot or replace(self.spec.slots["model_name"], line=0, key="")
        finding = Finding(
            code=code, severity=severity, file=place.file, line=place.line, key=place.key, message=message
        )
        if self.spec.fixes and finding not in self.findings:
            self.findings.append(finding)

    def add(self, command: Command, *, log: str = "", usual: str = "") -> str:
        """Append a command, whose id is so far a label, and return its id.

        Args:
            command: the command.
            log: name of the file that the original redirects to, "" for none.
            usual: the name under which its log is known, if that is another.
        """
        name = f"{command.step}[{command.id}]"
        count = 1 + sum(re.sub(r"#\d+$", "", one.id) == name for one in self.commands)
        name = name if count == 1 else f"{name}#{count}"
        path = None
        if self.on("run-id"):
            file = self.unused(slug(name), ".log")
            path = f"{self.run}/{file}"
            usual = usual or log
            if usual and "/" not in usual:
                self.latest[usual] = file
        elif log:
            # A blank in the name, after a list's last value say, ends it there for the original's shell.
            first, *more = split_words(f"{self.run}/{log}", self.spec.slots["model_name"])
            path = posixpath.normpath(first)
            if command.step == "infer":
                command = replace(command, argv=(*command.argv, *more))
        timeout = None if self.timeout in (None, float("inf")) else self.timeout
        self.commands.append(replace(command, id=name, log=path, timeout_s=timeout))
        return name

    def unused(self, stem: str, suffix: str = "") -> str:
        """Return a name in the run's folder that nothing else in the plan has."""
        names = (
            f"{stem}{suffix}" if count == 1 else f"{stem}-{count}{suffix}" for count in itertools.count(1)
        )
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        return name

    def visible(self, fixed: str | None, *, gpus: bool = True) -> dict[str, str]:
        """Return CUDA_VISIBLE_DEVICES for a command: what the leg has, or what the original happens to export."""
        found = fixed if self.on("devices") else self.exported
        if gpus and self.on("devices") and fixed != self.exported and self.spec.mode.trains:
            there = "leaves it unset" if self.exported is None else f"has {self.exported} there"
            here = "is not set" if fixed is None else f"is {fixed}"
            message = f"{VISIBLE} {here} for each command of a leg; for some the original {there}"
            self.tell("devices", message, self.spec.slots["gpu_list"], "info")
        return {} if found is None else {VISIBLE: found}

    # Alignment

    def align(self) -> None:
        alignment = self.spec.alignment
        if alignment is None or not self.spec.fixes:
            return
        device = self.device()
        steps = alignment.steps
        if not self.spec.mode.trains:
            steps = tuple(step for step in steps if step in ALIGNED_WITHOUT_TRAINING)
        if not steps:
            self.tell("default", f"nothing is aligned: {self.spec.mode.value} has none of the file's steps")
        for step in steps:
            argv = (*self.python, f"test_tipc/{SCRIPTS[step]}", "--case", alignment.case)
            argv += ("--mode", self.spec.mode.value, "--device", device)
            gpus = (device.partition(":")[2],) if device != "cpu" else ()
            self.add(
                Command(id=step, step="align", argv=argv, on_gpu=device != "cpu", leg="align", gpus=gpus)
            )

    def device(self) -> str:
        """Return the alignment's device: the option's, else the first gpu_list entry's."""
        if self.options.device:
            return str(parse_device(self.options.device))
        gpus = self.spec.legs[0].gpus if self.spec.legs else ()
        return f"gpu:{int(gpus[0])}" if gpus else "cpu"

    # Training, evaluation, export

    def train_all(self) -> None:
        """Add each leg with each precision and trainer, as the originals' loops go."""
        for leg in self.spec.legs:
            if leg.at_once is not None:
                self.exported = leg.at_once
            for autocast, trainer in product(self.spec.autocasts, self.spec.trainers):
                self.iteration(leg, autocast, trainer)

    def iteration(self, leg: Leg, autocast: str, trainer: Trainer) -> None:
        run = self.begin(leg, autocast, trainer)
        if self.suite.devices.before_training == "unset":
            self.exported = None
        trained = self.train(run)
        self.rename(run)
        run = replace(run, facts={**run.facts, **self.names(run.save, run.facts)})
        weights = run.facts["weights"]
        by_name = trainer.name == self.spec.slots["train_norm"].key or self.on("typos")
        if trainer.kind == "norm" and by_name and leg.nodes == 1 and trained:
            self.norm = (weights, trained[-1])
        if self.suite.devices.before_eval and leg.remembered is not None and self.spec.eval is not None:
            self.exported = leg.remembered
        if self.spec.eval is not None:
            self.follow("eval", self.suite.eval, self.spec.eval, run, trained)
        if trainer.export is None:
            rule = next(rule for rule in self.suite.trainers if rule.kind == trainer.kind)
            message = f"{trainer.name} has no export program, so its model is neither exported nor inferred"
            self.tell("default", message, self.spec.slots.get(rule.export))
        else:
            self.export_and_infer(run, trainer.export, trained)
        if self.suite.devices.unset_after == "iteration":
            self.exported = None

    def begin(self, leg: Leg, autocast: str, trainer: Trainer) -> _Run:
        """Return the facts of an iteration."""
        suite = self.suite
        shown = str(trainer.name == suite.amp_trainer) if suite.amp_trainer else autocast
        facts = self.facts() | {
            "trainer": trainer.name,
            "kind": trainer.kind,
            "gpus": leg.text,
            "autocast": shown,
            "nodes": str(leg.nodes),
            "nodes_n": f"_nodes_{leg.nodes}" if self.named_by_nodes(leg) else "",
            "launched": str(leg.launched),
            "multi_host": str(leg.multi_host),
            "train": " ".join(trainer.train),
        }
        facts["save_name"] = self.filler.fill(suite.save, facts)
        folder = self.unused(facts["save_name"]) if self.on("run-id") else facts["save_name"]
        if self.on("run-id"):
            self.latest[facts["save_name"]] = folder
        save = f"{self.base}/{folder}"
        facts |= {"save": save, "inference_dir": self.inference_dir()}
        facts |= self.names(save, facts)
        label = self.leg_label(leg, autocast, trainer)
        return _Run(leg=leg, trainer=trainer, autocast=autocast, label=label, save=save, facts=facts)

    def named_by_nodes(self, leg: Leg) -> bool:
        """Return whether names tell the number of hosts; the originals tell it of one with a long address, too."""
        return leg.nodes > 1 or (bool(leg.hosts) and not self.on("devices"))

    def names(self, save: str, facts: Facts) -> dict[str, str]:
        """Return the facts about what training leaves."""
        found = {"name": self.name}
        return found | {"weights": self.filler.fill(self.suite.weights, {**facts, **found, "save": save})}

    def inference_dir(self) -> str:
        """Return what inference_dir adds to the folder of the exported model."""
        slot = self.spec.slots.get("inference_dir")
        if slot is None or (slot.absent and self.on("null")):
            return ""
        if slot.value in ("null", "##") or (not slot.value and self.on("run-id")):
            return ""  # an empty value makes the original write a slash twice, the same path
        return f"/{slot.value}"

    def rename(self, run: _Run) -> None:
        """Rename the model file as one original does, for the rest of the plan."""
        suite = self.suite
        if not suite.weights_else or not suite.weights_there or self.on("seg-name"):
            return
        if not self.filler.holds(suite.weights_there, {**run.facts, "name": self.name}):
            self.name = self.filler.fill(suite.weights_else[0], run.facts)

    def leg_label(self, leg: Leg, autocast: str, trainer: Trainer) -> str:
        parts = [trainer.name, f"gpus={leg.text}"]
        parts += [f"hosts={leg.nodes}"] if leg.nodes > 1 else []
        parts += [autocast] if autocast not in NOTHING else []
        return ";".join(parts)

    def train(self, run: _Run) -> tuple[str, ...]:
        """Add a training; return the ids of what must have passed for what follows."""
        leg, trainer, suite = run.leg, run.trainer, self.suite
        if leg.launched and not leg.multi_host and not suite.devices.launches_one_host:
            slot = self.spec.slots["gpu_list"]
            self.tell("rec-multi-gpu", f"{leg.text}: the original trains nothing here", slot, "info")
            if not self.on("rec-multi-gpu"):
                return ()
        before = self.before(run)
        needs, pretrained = self.finetune(run)
        roles = {
            "use_gpu": leg.use_gpu,
            "save": flag(self.spec.slots["save"], run.save, literal=True, fixes=self.spec.fixes),
            "autocast": self.autocast_words(run.autocast),
            **self.spec.flags,
        }
        if pretrained is not None:
            roles["pretrained"] = pretrained
        items = suite.train.arguments
        argv = (*self.python, *self.launcher(run), *trainer.train)
        argv += self.filler.words(_swapped(items) if leg.multi_host else items, run.facts, roles)
        amp = run.autocast in AMP or trainer.name == suite.amp_trainer
        skip = "" if leg.on_gpu or not amp or not self.spec.fixes else "AMP on a CPU: Paddle ignores it there"
        command = Command(
            id=run.label,
            step="train",
            argv=argv,
            env=self.visible(",".join(leg.gpus) if leg.gpus else None),
            needs=(*before, *needs),
            on_gpu=leg.on_gpu,
            skip=skip,
            leg=run.label,
            gpus=leg.gpus if leg.on_gpu else (),
            launched=leg.launched,
            leaves=self.checkpoint(run),
            finds=self.finds(self.norm[0]) if needs and self.norm else (),
            wrapper=() if self.spec.fixes else suite.train.wrapper,
        )
        log, usual = (self.filler.choose(one, run.facts) for one in (suite.train.log, suite.train.usual))
        return (self.add(command, log=log, usual=usual),)

    def before(self, run: _Run) -> tuple[str, ...]:
        """Add the commands in front of a training."""
        ids = []
        for one in self.suite.before:
            if self.filler.holds(one.when, run.facts):
                command = Command(
                    id=run.label,
                    step="other",
                    argv=(*self.python, *one.words.split()),
                    cwd=one.cwd,
                    env=self.visible(",".join(run.leg.gpus) if run.leg.gpus else None),
                    leg=run.label,
                    on_gpu=run.leg.on_gpu,
                    gpus=run.leg.gpus,
                )
                ids.append(self.add(command))
        return tuple(ids)

    def launcher(self, run: _Run) -> Words:
        if not run.leg.launched:
            return ()
        facts = {**run.facts, "ips": ",".join(run.leg.hosts)}
        return self.filler.words(self.suite.launcher, facts, {})

    def autocast_words(self, autocast: str) -> Words:
        slot = self.spec.slots.get("autocast")
        return flag(slot, autocast, fixes=self.spec.fixes) if slot else ()

    def finetune(self, run: _Run) -> tuple[tuple[str, ...], Words | None]:
        """Return what a pruning or quantizing training needs and starts from; None for the file's own."""
        kind = self.suite.finetune
        if run.trainer.kind not in ("pact", "fpgm") or run.leg.nodes > 1 or kind == "slot":
            return (), None
        if kind == "none" or self.norm is None:
            return (), ()
        return (self.norm[1],), flag(
            self.spec.slots["pretrained"], self.norm[0], literal=True, fixes=self.spec.fixes
        )

    def follow(self, step: str, rule: Step, program: Words, run: _Run, needs: tuple[str, ...]) -> str:
        """Add an evaluation or an export of what a training left."""
        roles = {"use_gpu": run.leg.use_gpu, **self.spec.flags}
        command = Command(
            id=run.label,
            step=step,
            argv=(*self.python, *program, *self.filler.words(rule.arguments, run.facts, roles)),
            env=self.visible(run.first_gpu),
            needs=needs,
            on_gpu=run.leg.on_gpu,
            leg=run.label,
            gpus=run.leg.gpus[:1],
            leaves=self.exported_files(run.save) if step == "export" else (),
            finds=self.finds(run.facts["weights"]),
        )
        log, usual = (self.filler.choose(one, run.facts) for one in (rule.log, rule.usual))
        return self.add(command, log=log, usual=usual)

    def export_and_infer(self, run: _Run, program: Words, trained: tuple[str, ...]) -> None:
        self.told_clas_weights(run)
        exports = tuple(
            self.follow("export", rule, program, run, trained)
            for rule in self.suite.export
            if self.filler.holds(rule.when, run.facts)
        )
        if run.leg.remembered is not None:
            self.exported = run.leg.remembered
        source = _Source(
            label=run.label if self.several_legs() else "",
            leg=run.label,
            folder=self.filler.fill(self.suite.infer.folder, run.facts),
            quant=str(run.trainer.quant),
            data=self.spec.data_after_training,
            needs=exports,
            gpu=run.first_gpu,
            facts=run.facts,
        )
        self.infer(source)
        if self.suite.devices.unset_after == "inference":
            self.exported = None

    def told_clas_weights(self, run: _Run) -> None:
        """Tell of an export that the original gives no weights."""
        for item in (item for rule in self.suite.export for item in rule.arguments):
            fixed = any(test.name == "fixed" and "clas-weights" in test.values for test in item.when)
            if fixed and self.filler.holds(item.when, run.facts):
                slot = self.spec.slots["model_name"]
                self.tell("clas-weights", "the original exports this model without weights", slot, "info")

    def several_legs(self) -> bool:
        return len(self.spec.legs) * len(self.spec.autocasts) * len(self.spec.trainers) > 1

    # What commands leave and look for

    def candidates(self, weights: str) -> tuple[str, ...]:
        """Return the files that may stand for a training's ``weights``, as patterns."""
        folder = next((f"{self.base}/{name}" for name in sorted(self.taken, key=len, reverse=True)
                       if weights.startswith(f"{self.base}/{name}/")), self.base)  # fmt: skip
        head = glob.escape(folder)
        own = f"{head}/{weights.removeprefix(folder + '/')}"
        others = [f"{head}/{self.filler.fill(one, self.facts())}" for one in self.suite.weights_else]
        # Where the original has one name for what may have several, that name is no better than the others.
        if not self.on("seg-name") or not others:
            return (own,)
        return (own, *others) if self.suite.weights_there else tuple(others)

    def finds(self, weights: str) -> tuple[Find, ...]:
        """Return what is settled when a command starts that names ``weights``."""
        files = self.candidates(weights)
        code = "seg-name" if self.suite.weights_else and self.on("seg-name") else "no-shell"
        if not self.on(code) or files == (glob.escape(weights),):
            return ()
        slot = self.spec.slots["train_model_name"]
        self.tell(code, "which file is evaluated and exported is settled after training", slot, "info")
        return (Find(text=weights, files=files),)

    def checkpoint(self, run: _Run) -> tuple[Artifact, ...]:
        if not self.spec.fixes:
            return ()
        if self.spec.eval is None and run.trainer.export is None:
            return (Artifact(what="checkpoint", files=(f"{glob.escape(run.save)}/**/*.pdparams",)),)
        files = tuple(
            one if one.endswith(".pdparams") else f"{one}{more}"
            for one in self.candidates(run.facts["weights"])
            for more in ("", ".pdparams", "/*.pdparams")
        )
        files = tuple(dict.fromkeys(files))
        return (Artifact(what="checkpoint", files=files),)

    def exported_files(self, folder: str) -> tuple[Artifact, ...]:
        if not self.spec.fixes:
            return ()
        head = glob.escape(folder.rstrip("/"))
        return (
            Artifact(what="program", files=tuple(f"{head}/{one}" for one in PROGRAMS)),
            Artifact(what="weights", files=tuple(f"{head}/{one}" for one in WEIGHTS)),
        )

    # Without training

    def whole(self, index: int, model: InferModel) -> None:
        whole, spec = self.suite.whole, self.spec
        several = len(spec.models) > 1
        label = (model.path if whole.style == "kinds" else f"model={index}") if several else ""
        facts = self.facts() | {
            "number": str(index),
            "gpus": whole.gpus,
            "model_file": model.path,
            "inference_dir": self.inference_dir(),
            "kind": model.path,
        }
        folder, needs = model.path, tuple[str, ...]()
        if model.export is not None or whole.style == "kinds":
            folder = self.whole_folder(index, model.path, facts)
        facts["folder"] = folder
        if model.export is not None:
            needs = (self.whole_export(model.export, label, facts),)
        if whole.infer_folder:
            folder = self.filler.fill(whole.infer_folder, facts)
        source = _Source(
            label=label,
            leg=label or "whole_infer",
            folder=folder,
            quant=model.quant,
            data=flag(spec.slots["infer_data"], fixes=spec.fixes),
            needs=needs,
            gpu=self.options.gpu_id,
            facts=facts,
        )
        self.infer(source)

    def whole_export(self, program: Words, label: str, facts: Facts) -> str:
        whole, spec = self.suite.whole, self.spec
        roles = dict(spec.flags)
        if whole.unset:
            slot = spec.slots["infer_export"]
            self.tell(whole.unset, "the original exports with variables that it never sets", slot, "info")
            if not self.on(whole.unset):
                program, facts = (
                    (),
                    {**facts, "model_file": f"/{spec.name}/model.pdparams", "folder": "/static"},
                )
        folder = facts["folder"]
        if whole.style == "quantize":  # named from where inference runs
            folder = posixpath.normpath(f"{self.suite.infer.cwd}/{folder}")
        command = Command(
            id=label or spec.mode.value,
            step="export",
            argv=(*self.python, *program, *self.filler.words(whole.export, facts, roles)),
            env={} if self.options.gpu_id is None else {VISIBLE: self.options.gpu_id},
            leg=label or "whole_infer",
            leaves=self.exported_files(folder),
        )
        return self.add(command, log=self.filler.fill(whole.log, facts))

    def whole_folder(self, index: int, path: str, facts: Facts) -> str:
        """Return where a mode without training exports to; the originals write beside the weights."""
        template = self.suite.whole.folder
        if self.on("run-id") and self.suite.whole.style != "quantize":
            self.latest[f"whole_infer_export_{index}"] = f"whole_infer_export_{index}"
            return f"{self.base}/whole_infer_export_{index}"
        if template:
            return self.filler.fill(template, facts)
        parent = path.rstrip("/").rpartition("/")[0]
        return parent or ("/" if path.startswith("/") else ".")

    # Inference

    def infer(self, source: _Source) -> None:
        if self.spec.inference is None:
            self.tell("null", "inference is null, so nothing is inferred")
            return
        self.told_data(source)
        axis = self.spec.axes["device"]
        seen: set[Words] = set()
        for value in axis.values:
            kind = DEVICE_KINDS.get(value)
            if kind is None:
                self.tell(
                    "default",
                    f"no inference on the device {value!r}: it is neither a CPU nor a GPU",
                    axis.slot,
                )
                continue
            self.infer_on(kind, value, source, seen)

    def told_data(self, source: _Source) -> None:
        """Tell of data that the original does not pass to inference after training."""
        role = self.suite.infer.data
        chosen = self.spec.slots.get(role)
        if self.spec.mode.trains and source.data and (chosen is None or chosen.absent):
            message = "is used after training too; the original passes no data there"
            self.tell("inference-flags", message, self.spec.slots["infer_data"], "info")

    def infer_on(self, kind: str, value: str, source: _Source, seen: set[Words]) -> None:
        """Add the inferences on one device."""
        rule = self.suite.infer.rules[kind]
        filler, points = self.settled_points(kind, rule, source)
        if not points:
            self.tell("default", self.why_no_point(kind, rule, source.quant), self.spec.axes["device"].slot)
        for point in points:
            facts = {**source.facts, **point, "device": value, "quant": source.quant, "folder": source.folder}
            facts["results"] = self.results(source)
            argv = self.infer_argv(rule, facts, source, filler)
            if argv in seen and self.on("inference-flags"):
                self.tell("inference-flags", "a command that would be repeated is planned once", None, "info")
                continue
            seen.add(argv)
            if filler is self.filler:
                self.tell_inference_flags(rule, facts, kind)
            self.add_inference(kind, rule, facts, argv, source)

    def results(self, source: _Source) -> str:
        """Return where inference writes results; several models have a folder each."""
        shared = not self.on("run-id") or not source.label
        return self.base if shared else f"{self.base}/{slug(source.label)}"

    def settled_points(
        self, kind: str, rule: InferRule, source: _Source
    ) -> tuple[Filler, Sequence[Mapping[str, str]]]:
        """Return the inference product of a device, and what fills in its arguments.

        Where no setting of the file can be passed on this device, the original's commands without them stay.
        """
        points = list(self.points(rule, source, self.filler))
        for axis in (self.spec.axes[role] for role in self.axes_of(rule, self.filler)):
            if axis.replaced:
                message = "has no key or no value; the original goes through what it lists all the same"
                self.tell("null", message, axis.slot, "info")
        if not self.on("inference-flags"):
            return self.filler, points
        plain = replace(self.filler, fixes=self.spec.fixes - {"inference-flags"})
        original = list(self.points(rule, source, plain))
        if not points and original:
            return plain, original
        kept = [{role: point[role] for role in rule.axes} for point in points]
        if any(point not in kept for point in original) or any(point not in original for point in kept):
            axes = ", ".join(self.spec.axes[role].slot.key for role in rule.axes)
            quantized = "a quantized model" if source.quant == "True" else "this model"
            message = f"on the {kind.upper()} {quantized} is inferred with other combinations of {axes}"
            device = self.spec.axes["device"].slot
            self.tell("inference-flags", f"{message} than in the original", device, "info")
        return self.filler, points

    def points(self, rule: InferRule, source: _Source, filler: Filler) -> Iterator[Mapping[str, str]]:
        """Yield the inference product of a device, without the points that cannot be."""
        roles = self.axes_of(rule, filler)
        for values in product(*(self.spec.axes[role].values for role in roles)):
            point = dict(zip(roles, values, strict=True))
            facts = {**source.facts, **point, "quant": source.quant}
            if not any(filler.holds(tests, facts) for tests in rule.skip):
                yield point

    def axes_of(self, rule: InferRule, filler: Filler) -> tuple[str, ...]:
        return rule.fixed_axes if "inference-flags" in filler.fixes else rule.axes

    def why_no_point(self, kind: str, rule: InferRule, quant: str) -> str:
        """Return the note on a device that has nothing to infer."""
        axes = [self.spec.axes[role].slot for role in self.axes_of(rule, self.filler)]
        settings = ", ".join(f"{slot.key}:{slot.value}" for slot in axes if slot.key not in NOTHING)
        return f"nothing is inferred on the {kind}: no combination of {settings} can be (quantized: {quant})"

    def infer_argv(self, rule: InferRule, facts: Facts, source: _Source, filler: Filler) -> Words:
        spec, infer = self.spec, self.suite.infer
        model = filler.fill(infer.model, facts)
        roles: dict[str, Words] = {
            "model": flag(spec.slots["model_dir"], model, literal=True, fixes=spec.fixes),
            "data": source.data,
        }
        for role in ("device", *self.axes_of(rule, filler)):
            raw, slot = role in infer.raw, spec.axes[role].slot
            roles[role] = flag(slot, facts[role], raw=raw and not self.on("null"), fixes=spec.fixes)
            if raw and not roles[role]:
                message = "is null and left out; the original writes it all the same"
                self.tell("null", message, slot, "info")
        for item in rule.arguments:
            named = spec.slots.get(item.flag)
            if named and named.key not in NOTHING and item.value and filler.nothing_inside(item.value):
                self.tell("null", "is null and left out; the original makes a path of it", named, "info")
        return (*self.python, *(spec.inference or ()), *filler.words(rule.arguments, facts, roles))

    def tell_inference_flags(self, rule: InferRule, facts: Facts, kind: str) -> None:
        """Tell of settings that the original drops on this device."""
        for item in rule.arguments:
            if not any(test.name == "fixed" and test.values == AT_INFERENCE for test in item.when):
                continue
            if not self.filler.holds(item.when, facts):
                continue
            slot = self.spec.slots.get(item.role or item.flag)
            if slot is not None and slot.key not in NOTHING and not (item.role and slot.absent):
                message = f"is passed to inference on the {kind.upper()} too; the original drops it there"
                self.tell("inference-flags", message, slot, "info")

    def add_inference(self, kind: str, rule: InferRule, facts: Facts, argv: Words, source: _Source) -> None:
        infer, spec = self.suite.infer, self.spec
        parts = [source.label] if source.label else []
        parts.append(kind)
        parts += [
            f"{SHORT_NAMES.get(role, role)}={facts[role]}"
            for role in self.axes_of(rule, self.filler)
            if facts.get(role, "") not in NOTHING and spec.axes[role].slot.key not in NOTHING
        ]
        gpu = source.gpu if kind == "gpu" else None
        result = Artifact(what="result line", in_log=True, line=self.suite.result_line)
        command = Command(
            id=";".join(parts),
            step="infer",
            argv=argv,
            cwd=infer.cwd,
            env=self.visible(source.gpu, gpus=kind == "gpu"),
            needs=source.needs,
            on_gpu=kind == "gpu",
            leg=source.leg,
            gpus=() if gpu is None else (gpu,),
            leaves=(result,) if spec.fixes else (),
            links=self.links(source),
        )
        self.add(command, log=self.filler.fill(rule.log, facts))

    def links(self, source: _Source) -> tuple[tuple[str, str], ...]:
        """Return the names under which a quantized program is looked for, as the original links them."""
        if self.suite.whole.style != "quantize" or self.spec.mode.trains:
            return ()
        folder = posixpath.normpath(f"{self.suite.infer.cwd}/{source.folder}")
        pairs = (("inference.pdmodel", "__model__"), ("inference.pdiparams", "__params__"))
        return tuple((f"{folder}/{name}", f"{folder}/{target}") for name, target in pairs)


def _swapped(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return training arguments with epoch and pretrained exchanged, as for several hosts."""
    places = {item.role: index for index, item in enumerate(items) if item.role in ("epoch", "pretrained")}
    if len(places) < 2:
        return items
    swapped = list(items)
    one, other = places["epoch"], places["pretrained"]
    swapped[one], swapped[other] = swapped[other], swapped[one]
    return tuple(swapped)
