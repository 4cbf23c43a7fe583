"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

import glob
import posixpath
from itertools import groupby, product
from typing import NamedTuple

from tipchain.chain.build import AMP, ChainSpec, InferModel, Leg, TrainerSpec
from tipchain.chain.emitter import VISIBLE, Facts, Inferring, Source
from tipchain.chain.params import NOTHING, Words, flag
from tipchain.chain.plan import SUFFIXES, Artifact, Command, Find, Options, Plan
from tipchain.chain.suites import Step
from tipchain.modes import INFO, SCRIPTS, parse_device


class TrainingRun(NamedTuple):
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
    trainer: TrainerSpec
    autocast: str
    label: str
    save: str
    facts: Facts

    @property
    def first_gpu(self) -> str | None:
        """The GPU of what runs in one process."""
        return self.leg.gpus[0] if self.leg.gpus else None


class TrainingExpansion(Inferring):
    """Adds trainings and what follows them."""

    def train_all(self) -> None:
        """Add each leg with each precision and trainer, as the originals' loops go."""
        for leg in self.spec.legs:
            if leg.at_once is not None:
                self.exported = leg.at_once
            self.inferred_on = None
            for autocast, trainer in product(self.spec.autocasts, self.spec.trainers):
                self.iteration(self.overwritten(leg), autocast, trainer)

    def overwritten(self, leg: Leg) -> Leg:
        """Return the leg with the device argument that an inference before has left."""
        if not self.suite.devices.overwritten or self.inferred_on is None:
            return leg
        slot = self.spec.slots["use_gpu"]
        left = flag(slot, self.inferred_on, fixes=self.spec.fixes)
        if left == leg.use_gpu or not self.on("device-per-leg"):
            return leg._replace(use_gpu=left)
        message = f"an inference before makes {self.inferred_on!r} of it in the original"
        self.tell("device-per-leg", message, slot, "info")
        return leg

    def iteration(self, leg: Leg, autocast: str, trainer: TrainerSpec) -> None:
        """Add one training, its evaluation, its export and the inferences with what it left."""
        run = self.begin(leg, autocast, trainer)
        if self.suite.devices.before_training == "unset":
            self.exported = None
        trained = self.train(run)
        self.rename(run)
        run = run._replace(facts={**run.facts, **self.names(run.save, run.facts)})
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

    def begin(self, leg: Leg, autocast: str, trainer: TrainerSpec) -> TrainingRun:
        """Return the facts of an iteration."""
        suite = self.suite
        facts = {
            **self.facts,
            "trainer": trainer.name,
            "kind": trainer.kind,
            "gpus": leg.text,
            "autocast": str(trainer.name == suite.amp_trainer) if suite.amp_trainer else autocast,
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
        return TrainingRun(leg=leg, trainer=trainer, autocast=autocast, label=label, save=save, facts=facts)

    def named_by_nodes(self, leg: Leg) -> bool:
        """Return whether names tell the number of hosts; the originals tell it of one with a long address, too."""
        return leg.nodes > 1 or (bool(leg.hosts) and not self.on("devices"))

    def names(self, save: str, facts: Facts) -> dict[str, str]:
        """Return the facts about what training leaves."""
        found = {"name": self.name}
        return found | {"weights": self.filler.fill(self.suite.weights, {**facts, **found, "save": save})}

    def rename(self, run: TrainingRun) -> None:
        """Rename the model file as one original does, for the rest of the plan."""
        suite = self.suite
        if not suite.weights_else or not suite.weights_there or self.on("checkpoint"):
            return
        if not self.filler.holds(suite.weights_there, {**run.facts, "name": self.name}):
            self.name = self.filler.fill(suite.weights_else[0], run.facts)

    def leg_label(self, leg: Leg, autocast: str, trainer: TrainerSpec) -> str:
        """Return how ids name an iteration."""
        parts = [trainer.name, f"gpus={leg.text}"]
        parts += [f"hosts={leg.nodes}"] if leg.nodes > 1 else []
        parts += [autocast] if autocast not in NOTHING else []
        return ";".join(parts)

    def train(self, run: TrainingRun) -> tuple[str, ...]:
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
        argv = (*self.python, *self.launched_program(run, trainer.train))
        argv += self.words(suite.train.arguments, run.facts, roles)
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

    def before(self, run: TrainingRun) -> tuple[str, ...]:
        """Add the commands in front of a training."""
        ids = []
        for one in self.suite.before:
            if self.filler.holds(one.when, run.facts):
                command = Command(
                    id=run.label,
                    step="other",
                    argv=(*self.interpreter(one.cwd), *one.words.split()),
                    cwd=one.cwd,
                    env=self.visible(",".join(run.leg.gpus) if run.leg.gpus else None),
                    leg=run.label,
                    on_gpu=run.leg.on_gpu,
                    gpus=run.leg.gpus,
                )
                ids.append(self.add(command))
        return tuple(ids)

    def launched_program(self, run: TrainingRun, program: Words) -> Words:
        """Return a program's words, behind the launcher's where there is a process for each GPU.

        Paddle's launcher knows no ``-m``: of ``-m tipchain train`` it starts the command of that name.
        """
        launcher = self.launcher(run)
        return (*launcher, *(program[1:] if launcher and program[:1] == ("-m",) else program))

    def launcher(self, run: TrainingRun) -> Words:
        """Return the words that start a process for each GPU; none where one does."""
        if not run.leg.launched:
            return ()
        return self.words(self.suite.launcher, {**run.facts, "ips": ",".join(run.leg.hosts)}, {})

    def autocast_words(self, autocast: str) -> Words:
        """Return the argument with the precision."""
        slot = self.spec.slots.get("autocast")
        return flag(slot, autocast, fixes=self.spec.fixes) if slot else ()

    def finetune(self, run: TrainingRun) -> tuple[tuple[str, ...], Words | None]:
        """Return what a pruning or quantizing training needs and starts from; None for the file's own."""
        kind = self.suite.finetune
        if run.trainer.kind not in ("pact", "fpgm") or run.leg.nodes > 1 or kind == "slot":
            return (), None
        if kind == "none" or self.norm is None:
            return (), ()
        return (self.norm[1],), flag(self.spec.slots["pretrained"], self.norm[0], literal=True, fixes=self.spec.fixes)

    def follow(self, step: str, rule: Step, program: Words, run: TrainingRun, needs: tuple[str, ...]) -> str:
        """Add an evaluation or an export of what a training left."""
        roles = {"use_gpu": run.leg.use_gpu, **self.spec.flags}
        command = Command(
            id=run.label,
            step=step,
            argv=(*self.python, *program, *self.words(rule.arguments, run.facts, roles)),
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

    def export_and_infer(self, run: TrainingRun, program: Words, trained: tuple[str, ...]) -> None:
        """Add the exports of what a training left and the inferences with it."""
        exports = tuple(
            self.follow("export", rule, program, run, trained)
            for rule in self.suite.export
            if self.filler.holds(rule.when, run.facts)
        )
        if run.leg.remembered is not None:
            self.exported = run.leg.remembered
        source = Source(
            label=run.label if self.several_legs() else "",
            leg=run.label,
            cwd=self.suite.infer.cwd,
            folder=self.filler.fill(self.suite.infer.folder, run.facts),
            quant=str(run.trainer.quant),
            data=self.spec.data_after_training,
            needs=exports,
            gpu=run.first_gpu,
            facts=run.facts,
        )
        self.infer(source)
        self.inferred_on = next(reversed(self.spec.axes["device"].values), self.inferred_on)
        if self.suite.devices.unset_after == "inference":
            self.exported = None

    def several_legs(self) -> bool:
        """Return whether ids must name the iteration."""
        return len(self.spec.legs) * len(self.spec.autocasts) * len(self.spec.trainers) > 1

    def candidates(self, weights: str) -> tuple[str, ...]:
        """Return the files that may stand for a training's ``weights``, as patterns."""
        folder = next(
            (
                f"{self.base}/{name}"
                for name in sorted(self.taken, key=len, reverse=True)
                if weights.startswith(f"{self.base}/{name}/")
            ),
            self.base,
        )
        head = glob.escape(folder)
        own = f"{head}/{weights.removeprefix(folder + '/')}"
        facts = {**self.facts, "name": self.name}
        others = [f"{head}/{self.filler.fill(one, facts)}" for one in self.suite.weights_else]
        # Where the original has one name for what may have several, that name is no better than the others.
        if not self.on("checkpoint") or not others:
            return (own,)
        return tuple(dict.fromkeys((own, *others) if self.suite.weights_there else others))

    def finds(self, weights: str) -> tuple[Find, ...]:
        """Return what is settled when a command starts that names ``weights``."""
        files = self.candidates(weights)
        code = "checkpoint" if self.suite.weights_else and self.on("checkpoint") else "no-shell"
        if not self.on(code) or files == (glob.escape(weights),):
            return ()
        # Without an ending it is a prefix, as paddle.load's callers like it.
        if self.suite.weights_else and not weights.endswith(SUFFIXES):
            files = tuple(
                f"{one}{more}" for one in files for more in (("",) if one.endswith(SUFFIXES) else (".pdparams", ""))
            )
        slot = self.spec.slots["train_model_name"]
        self.tell(code, "which file is evaluated and exported is settled after training", slot, "info")
        return (Find(text=weights, files=files),)

    def checkpoint(self, run: TrainingRun) -> tuple[Artifact, ...]:
        """Return what a training must leave."""
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


class Untrained(Inferring):
    """Adds what is done with given models."""

    def whole(self, index: int, model: InferModel) -> None:
        """Add the export of a given model and the inferences with it."""
        whole, spec = self.suite.whole, self.spec
        several = len(spec.models) > 1
        label = (model.path if whole.style == "kinds" else f"model={index}") if several else ""
        facts = {
            **self.facts,
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
        source = Source(
            label=label,
            leg=label or "whole_infer",
            cwd=self.whole_cwd(facts),
            folder=folder,
            quant=model.quant,
            data=flag(spec.slots["infer_data"], fixes=spec.fixes),
            needs=needs,
            gpu=self.options.gpu_id,
            facts=facts,
        )
        self.infer(source)

    def whole_cwd(self, facts: Facts) -> str:
        """Return where to infer; an original may be somewhere else by then."""
        right = self.suite.infer.cwd
        other = posixpath.normpath(self.filler.choose(self.suite.whole.cwd, facts) or right)
        if other == right or not self.on("cwd"):
            return other
        message = f"is inferred with in {right}; the original goes into the model's folder first and ends in {other}"
        self.tell("cwd", message, self.spec.slots["infer_model"], "info")
        return right

    def whole_export(self, program: Words, label: str, facts: Facts) -> str:
        """Add an export, or a quantization; return its id."""
        whole, spec = self.suite.whole, self.spec
        roles = dict(spec.flags)
        if whole.unset:
            slot = spec.slots["infer_export"]
            self.tell(whole.unset, "the original exports with variables that it never sets", slot, "info")
            if not self.on(whole.unset):
                program, facts = ((), {**facts, "model_file": f"/{spec.name}/model.pdparams", "folder": "/static"})
        for slot in (spec.slots[item.flag] for item in whole.export if item.keyed_by == "value"):
            if not slot.value:
                self.tell("null", "names no option, so the export gets no weights", slot)
        folder = facts["folder"]
        if whole.style == "quantize":  # named from where inference runs
            folder = posixpath.normpath(f"{self.suite.infer.cwd}/{folder}")
        command = Command(
            id=label or spec.mode.value,
            step="export",
            argv=(*self.python, *program, *self.words(whole.export, facts, roles)),
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


LONGEST_ID = 40
"""Letters of an alignment command's id."""


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    return _Expander(spec, options or Options()).plan(params)


class _Expander(TrainingExpansion, Untrained):
    """Expands one spec whole."""

    def plan(self, params: str) -> Plan:
        spec = self.spec
        self.align()
        if spec.trains:
            self.train_all()
        else:
            self.exported = self.options.gpu_id
            for index, model in enumerate(spec.models):
                self.whole(index, model)
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
            results_head=self.filler.fill(self.suite.results_head, self.facts),
            redirected=self.suite.redirected,
            data=self.options.data,
        )

    def align(self) -> None:
        alignment = self.spec.alignment
        if alignment is None or not self.spec.fixes:
            return
        device = self.device()
        steps = alignment.steps
        if not self.spec.trains:
            steps = tuple(step for step in steps if not needs_training(step))
        if not steps:
            self.tell("default", f"nothing is aligned: {self.spec.mode.value} has none of the file's steps")
        for together in groupby(steps, key=lambda step: SCRIPTS.get(step, ("", ()))[0]):
            program, names = together[0], tuple(together[1])
            where = ("--mode", self.spec.mode.value, "--device", device)
            argv = (*self.python, f"test_tipc/{program}", "--case", alignment.case, *where)
            if not program:
                # Stages that have no script run in one command, which imports each framework once.
                argv = (*self.python, "-m", "tipchain", "align", alignment.case)
                argv += ("--only", ",".join(names), *where)
            gpus = (device.partition(":")[2],) if device != "cpu" else ()
            self.add(
                Command(
                    id=_short("+".join(names), names),
                    step="align",
                    argv=argv,
                    on_gpu=device != "cpu",
                    leg="align",
                    gpus=gpus,
                )
            )

    def device(self) -> str:
        """Return the alignment's device: the option's, else the first gpu_list entry's."""
        if self.options.device:
            return str(parse_device(self.options.device))
        gpus = self.spec.legs[0].gpus if self.spec.legs else ()
        return f"gpu:{int(gpus[0])}" if gpus else "cpu"


def needs_training(step: str) -> bool:
    """Tell whether a step, a script's number or a stage's name, makes sense only in modes that train."""
    _, stages = SCRIPTS.get(step, ("", (step,)))
    return all(INFO[stage].trains for stage in stages)


def _short(text: str, names: tuple[str, ...]) -> str:
    """Return ``text``, all names, where it fits into a line of a table, else the first and how many more."""
    return text if len(text) <= LONGEST_ID else f"{names[0]}+{len(names) - 1}"
