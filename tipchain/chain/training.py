"""Each leg with each precision and trainer: train, evaluate, export, infer."""

from __future__ import annotations

import glob
from dataclasses import dataclass, replace
from itertools import product

from tipchain.chain.arguments import Facts
from tipchain.chain.inferring import Inferring, Source
from tipchain.chain.plan import SUFFIXES, Artifact, Command, Find
from tipchain.chain.spec import AMP, Leg, Trainer
from tipchain.chain.suites import Step
from tipchain.chain.words import NOTHING, Words, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
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


class Training(Inferring):
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
            return replace(leg, use_gpu=left)
        message = f"an inference before makes {self.inferred_on!r} of it in the original"
        self.tell("device-per-leg", message, slot, "info")
        return leg

    def iteration(self, leg: Leg, autocast: str, trainer: Trainer) -> None:
        """Add one training, its evaluation, its export and the inferences with what it left."""
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

    def begin(self, leg: Leg, autocast: str, trainer: Trainer) -> Run:
        """Return the facts of an iteration."""
        suite = self.suite
        shown = str(trainer.name == suite.amp_trainer) if suite.amp_trainer else autocast
        facts = {
            **self.facts,
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
        return Run(leg=leg, trainer=trainer, autocast=autocast, label=label, save=save, facts=facts)

    def named_by_nodes(self, leg: Leg) -> bool:
        """Return whether names tell the number of hosts; the originals tell it of one with a long address, too."""
        return leg.nodes > 1 or (bool(leg.hosts) and not self.on("devices"))

    def names(self, save: str, facts: Facts) -> dict[str, str]:
        """Return the facts about what training leaves."""
        found = {"name": self.name}
        return found | {"weights": self.filler.fill(self.suite.weights, {**facts, **found, "save": save})}

    def rename(self, run: Run) -> None:
        """Rename the model file as one original does, for the rest of the plan."""
        suite = self.suite
        if not suite.weights_else or not suite.weights_there or self.on("checkpoint"):
            return
        if not self.filler.holds(suite.weights_there, {**run.facts, "name": self.name}):
            self.name = self.filler.fill(suite.weights_else[0], run.facts)

    def leg_label(self, leg: Leg, autocast: str, trainer: Trainer) -> str:
        """Return how ids name an iteration."""
        parts = [trainer.name, f"gpus={leg.text}"]
        parts += [f"hosts={leg.nodes}"] if leg.nodes > 1 else []
        parts += [autocast] if autocast not in NOTHING else []
        return ";".join(parts)

    def train(self, run: Run) -> tuple[str, ...]:
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

    def before(self, run: Run) -> tuple[str, ...]:
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

    def launched_program(self, run: Run, program: Words) -> Words:
        """Return a program's words, behind the launcher's where there is a process for each GPU.

        Paddle's launcher knows no ``-m``: of ``-m tipchain train`` it starts the command of that name.
        """
        launcher = self.launcher(run)
        return (*launcher, *(program[1:] if launcher and program[:1] == ("-m",) else program))

    def launcher(self, run: Run) -> Words:
        """Return the words that start a process for each GPU; none where one does."""
        if not run.leg.launched:
            return ()
        facts = {**run.facts, "ips": ",".join(run.leg.hosts)}
        return self.words(self.suite.launcher, facts, {})

    def autocast_words(self, autocast: str) -> Words:
        """Return the argument with the precision."""
        slot = self.spec.slots.get("autocast")
        return flag(slot, autocast, fixes=self.spec.fixes) if slot else ()

    def finetune(self, run: Run) -> tuple[tuple[str, ...], Words | None]:
        """Return what a pruning or quantizing training needs and starts from; None for the file's own."""
        kind = self.suite.finetune
        if run.trainer.kind not in ("pact", "fpgm") or run.leg.nodes > 1 or kind == "slot":
            return (), None
        if kind == "none" or self.norm is None:
            return (), ()
        return (self.norm[1],), flag(
            self.spec.slots["pretrained"], self.norm[0], literal=True, fixes=self.spec.fixes
        )

    def follow(self, step: str, rule: Step, program: Words, run: Run, needs: tuple[str, ...]) -> str:
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

    def export_and_infer(self, run: Run, program: Words, trained: tuple[str, ...]) -> None:
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
        folder = next((f"{self.base}/{name}" for name in sorted(self.taken, key=len, reverse=True)
                       if weights.startswith(f"{self.base}/{name}/")), self.base)  # fmt: skip
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
            files = tuple(f"{one}{more}" for one in files for more in _endings(one))
        slot = self.spec.slots["train_model_name"]
        self.tell(code, "which file is evaluated and exported is settled after training", slot, "info")
        return (Find(text=weights, files=files),)

    def checkpoint(self, run: Run) -> tuple[Artifact, ...]:
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


def _endings(name: str) -> tuple[str, ...]:
    """Return what may follow a checkpoint's name in a folder: one without an ending may be a prefix."""
    return ("",) if name.endswith(SUFFIXES) else (".pdparams", "")
