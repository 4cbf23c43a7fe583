"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

import glob
import posixpath
import re
from itertools import groupby, product
from typing import TYPE_CHECKING, NamedTuple

from tipchain.chain.build import AMP, AMP_ON_CPU, ChainSpec, InferModel, Leg, TrainerSpec
from tipchain.chain.emitter import VISIBLE, Expansion, Facts, Source
from tipchain.chain.params import NOTHING, Words, flag
from tipchain.chain.plan import SUFFIXES, Artifact, Command, Find, Options, Plan
from tipchain.chain.suites import Step
from tipchain.modes import INFO, SCRIPTS, Mode, parse_device

if TYPE_CHECKING:
    from tipchain.core.json_text import Json


class TrainingRun(NamedTuple):
    """One training and its successors: its name in ids, its folder as commands name it, templates' facts."""

    leg: Leg
    trainer: TrainerSpec
    autocast: str
    label: str
    save: str
    facts: Facts


class _Trainings(Expansion):
    def __init__(self, spec: ChainSpec, params: str, options: Options) -> None:
        super().__init__(spec, params, options)
        # The device that the leg's last inference was on, as the file has it.
        self.inferred_on: str | None = None
        # The name of the model file: an original changes it on the way.
        self.name = spec.name
        # What the norm trainer left: (weights, id of its command).
        self.norm: tuple[str, str] | None = None

    def iteration(self, leg: Leg, autocast: str, trainer: TrainerSpec) -> None:
        if self.legacy and self.suite.devices.overwritten and self.inferred_on is not None:
            leg = leg._replace(use_gpu=flag(self.spec.slots["use_gpu"], self.inferred_on, legacy=True))
        run = self.begin(leg, autocast, trainer)
        before = self.suite.devices.before_training
        if before == "unset":
            self.exported = None
        elif before == "export" and not leg.launched and leg.remembered is not None:
            self.exported = leg.remembered
        trained = self.train(run)
        suite = self.suite
        renames = suite.weights_else and suite.weights_there and self.legacy
        if renames and not self.filler.holds(suite.weights_there, {**run.facts, "name": self.name}):
            self.name = self.filler.fill(suite.weights_else[0], run.facts)
        run = run._replace(facts={**run.facts, **self.names(run.save, run.facts)})
        weights = run.facts["weights"]
        by_name = trainer.name == self.spec.slots["train_norm"].key or not self.legacy
        if trainer.kind == "norm" and by_name and leg.nodes == 1 and trained:
            self.norm = (weights, trained[-1])
        extracted = trained
        for one, program in zip(self.suite.after, self.spec.after, strict=True):
            if program is not None:
                step = Step(arguments=one.arguments, log=one.log)
                extracted = (self.follow("other", step, program, run, extracted),)
        exported = trained
        if self.suite.devices.before_eval and leg.remembered is not None and self.spec.eval is not None:
            self.exported = leg.remembered
        if self.spec.eval is not None:
            evaluated = self.follow("eval", self.suite.eval, self.spec.eval, run, extracted)
            exported = (evaluated,) if self.suite.export_from == "eval" else trained
        if trainer.export is None:
            rule = next(rule for rule in self.suite.trainers if rule.kind == trainer.kind)
            message = f"{trainer.name} has no export program, so its model is neither exported nor inferred"
            self.tell("default", message, self.spec.slots.get(rule.export))
        else:
            self.export_and_infer(run, trainer.export, exported)
        if self.suite.devices.unset_after == "iteration":
            self.exported = None

    def begin(self, leg: Leg, autocast: str, trainer: TrainerSpec) -> TrainingRun:
        suite = self.suite
        facts = {
            **self.facts,
            "trainer": trainer.name,
            "kind": trainer.kind,
            "gpus": leg.text,
            "autocast": str(trainer.name == suite.amp_trainer) if suite.amp_trainer else autocast,
            "nodes": str(leg.nodes),
            # The originals tell the number of hosts of one with a long address, too.
            "nodes_n": f"_nodes_{leg.nodes}" if leg.nodes > 1 or (leg.hosts and self.legacy) else "",
            "launched": str(leg.launched),
            "multi_host": str(leg.multi_host),
            "train": " ".join(trainer.train),
        }
        facts["save_name"] = self.filler.fill(suite.save, facts)
        folder = facts["save_name"]
        if not self.legacy:
            folder = self.unused(folder)
            self.latest[facts["save_name"]] = folder
        save = f"{self.base}/{folder}"
        facts |= {"save": save, "inference_dir": self.inference_dir()}
        facts |= self.names(save, facts)
        parts = [trainer.name, f"gpus={leg.text}"]
        parts += [f"hosts={leg.nodes}"] if leg.nodes > 1 else []
        parts += [autocast] if autocast not in NOTHING else []
        return TrainingRun(leg=leg, trainer=trainer, autocast=autocast, label=";".join(parts), save=save, facts=facts)

    def names(self, save: str, facts: Facts) -> dict[str, str]:
        found = {"name": self.name}
        return found | {"weights": self.filler.fill(self.suite.weights, {**facts, **found, "save": save})}

    def train(self, run: TrainingRun) -> tuple[str, ...]:
        leg, trainer, suite = run.leg, run.trainer, self.suite
        if leg.launched and not leg.multi_host and not suite.devices.launches_one_host and self.legacy:
            return ()
        before = self.before(run)
        needs, pretrained = self.finetune(run)
        roles = {
            "use_gpu": leg.use_gpu,
            "save": flag(self.spec.slots["save"], run.save, literal=True, legacy=self.legacy),
            "autocast": (),
            **self.spec.flags,
        }
        if "autocast" in self.spec.slots:
            roles["autocast"] = flag(self.spec.slots["autocast"], run.autocast, legacy=self.legacy)
        if pretrained is not None:
            roles["pretrained"] = pretrained
        program, launcher = trainer.train, Words()
        if leg.launched:
            launcher = self.filler.words(suite.launcher, {**run.facts, "ips": ",".join(leg.hosts)}, {})
            # Paddle's launcher knows no ``-m``: of ``-m tipchain case train`` it starts the command of that name.
            program = program[1:] if program[:1] == ("-m",) else program
        argv = (*self.python, *launcher, *program)
        argv += self.filler.words(suite.train.arguments, run.facts, roles)
        amp = run.autocast in AMP or trainer.name == suite.amp_trainer
        skip = "" if leg.gpus or not amp or self.legacy else AMP_ON_CPU
        command = Command(
            id=run.label,
            step="train",
            argv=argv,
            env=self.visible(",".join(leg.gpus) if leg.gpus else None),
            needs=(*before, *needs),
            on_gpu=bool(leg.gpus),
            skip=skip,
            leg=run.label,
            gpus=leg.gpus,
            launched=leg.launched,
            leaves=self.checkpoint(run, argv),
            finds=self.finds(self.norm[0]) if needs and self.norm else (),
            wrapper=tuple(suite.train.wrapper.split()) if self.legacy else (),
        )
        log, usual = (self.filler.choose(one, run.facts) for one in (suite.train.log, suite.train.usual))
        return (self.add(command, log=log, usual=usual),)

    def before(self, run: TrainingRun) -> tuple[str, ...]:
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
                    on_gpu=bool(run.leg.gpus),
                    gpus=run.leg.gpus,
                )
                ids.append(self.add(command))
        return tuple(ids)

    def finetune(self, run: TrainingRun) -> tuple[tuple[str, ...], Words | None]:
        """Return the needs and the starting weights of a pruning or quantizing training; None for the file's own."""
        kind = self.suite.finetune
        if run.trainer.kind not in ("pact", "fpgm") or run.leg.nodes > 1 or kind == "slot":
            return (), None
        if kind == "none" or self.norm is None:
            return (), ()
        return (self.norm[1],), flag(self.spec.slots["pretrained"], self.norm[0], literal=True, legacy=self.legacy)

    def follow(self, step: str, rule: Step, program: Words, run: TrainingRun, needs: tuple[str, ...]) -> str:
        roles = {"use_gpu": run.leg.use_gpu, **self.spec.flags}
        argv = (*self.python, *program, *self.filler.words(rule.arguments, run.facts, roles))
        log, usual = (self.filler.choose(one, run.facts) for one in (rule.log, rule.usual))
        more: dict[str, Json] = {
            "env": self.visible(next(iter(run.leg.gpus), None)),
            "needs": needs,
            "on_gpu": bool(run.leg.gpus),
            "leg": run.label,
            "gpus": run.leg.gpus[:1],
            "finds": self.finds(run.facts["weights"]),
        }
        if step == "export":
            folder = run.save if self.is_told(argv, run.save, "export_save", run.facts["weights"]) else ""
            return self.export(run.label, argv, folder, log=log, usual=usual, **more)
        leaves = (Artifact(what="result line", in_log=True),) if step == "eval" else ()
        command = Command(id=run.label, step=step, argv=argv, leaves=leaves, **more)
        return self.add(command, log=log, usual=usual)

    def export_and_infer(self, run: TrainingRun, program: Words, trained: tuple[str, ...]) -> None:
        exports = tuple(
            self.follow("export", rule, program, run, trained)
            for rule in self.suite.export
            if self.filler.holds(rule.when, run.facts)
        )
        if run.leg.remembered is not None:
            self.exported = run.leg.remembered
        spec = self.spec
        several = len(spec.legs) * len(spec.autocasts) * len(spec.trainers) > 1
        source = Source(
            label=run.label if several else "",
            leg=run.label,
            cwd=self.suite.infer.cwd,
            folder=self.from_inference(self.filler.fill(self.suite.infer.folder, run.facts)),
            quant=str(run.trainer.quant),
            data=self.spec.data_after_training,
            needs=exports,
            gpu=next(iter(run.leg.gpus), None),
            facts=run.facts,
        )
        self.infer(source)
        self.inferred_on = next(reversed(self.spec.axes["device"].values), self.inferred_on)
        if self.suite.devices.unset_after == "inference":
            self.exported = None

    def candidates(self, weights: str) -> tuple[str, ...]:
        below = [name for name in self.taken if weights.startswith(f"{self.base}/{name}/")]
        folder = f"{self.base}/{max(below, key=len)}" if below else self.base
        head = glob.escape(folder)
        own = f"{head}/{weights.removeprefix(folder + '/')}"
        facts = {**self.facts, "name": self.name}
        others = [f"{head}/{self.filler.fill(one, facts)}" for one in self.suite.weights_else]
        # Where the original has one name for what may have several, that name is no better than the others.
        if self.legacy or not others:
            return (own,)
        return tuple(dict.fromkeys((own, *others) if self.suite.weights_there else others))

    def finds(self, weights: str) -> tuple[Find, ...]:
        """Return the finds settled when a command starts that names ``weights``."""
        files = self.candidates(weights)
        if self.legacy or files == (glob.escape(weights),):
            return ()
        # Without an ending it is a prefix, as paddle.load's callers like it.
        if self.suite.weights_else and not weights.endswith(SUFFIXES):
            files = tuple(
                f"{one}{more}" for one in files for more in (("",) if one.endswith(SUFFIXES) else (".pdparams", ""))
            )
        return (Find(text=weights, files=files),)

    def checkpoint(self, run: TrainingRun, argv: Words) -> tuple[Artifact, ...]:
        if self.legacy:
            return ()
        followed = any((self.spec.eval, run.trainer.export, *self.spec.after))
        name, folder = (self.spec.slots[role] for role in ("train_model_name", "save"))
        if name.absent and folder.key in NOTHING and not followed:
            message = "names no model, no line names its folder, and nothing needs it: the training is judged by its exit code"
            self.tell("default", message, name)
            return ()
        weights = run.facts["weights"]
        if not self.is_told(argv, run.save, "save"):
            files = ["**/*.pdparams"]
        elif weights.endswith("/") or not followed:
            # Nothing needs the one file of that name; some programs have an ending of their own, as .pd.
            endings = (".pdparams", *re.findall(r"\.[a-z]+$", weights))
            files = [f"{glob.escape(run.save)}/**/*{ending}" for ending in endings]
        else:
            files = [
                one if one.endswith(".pdparams") else f"{one}{more}"
                for one in self.candidates(weights)
                for more in ("", ".pdparams", "/*.pdparams")
            ]
        return (Artifact(what="checkpoint", files=tuple(dict.fromkeys(files))),)


def _infer_given(plan: Expansion, index: int, model: InferModel) -> None:
    whole, spec, fill = plan.suite.whole, plan.spec, plan.filler.fill
    label = (model.path if whole.style == "kinds" else f"model={index}") if len(spec.models) > 1 else ""
    facts = {
        **plan.facts,
        "number": str(index),
        "gpus": whole.gpus,
        "model_file": model.path,
        "inference_dir": plan.inference_dir(),
        "kind": model.path,
    }
    folder, needs = model.path, tuple[str, ...]()
    if model.export is not None or whole.style == "kinds":
        # The originals write beside the weights.
        if not plan.legacy and whole.style != "quantize":
            name = f"whole_infer_export_{index}"
            plan.latest[name], folder = name, f"{plan.base}/{name}"
        elif whole.folder:
            folder = fill(whole.folder, facts)
        else:
            parent = model.path.rstrip("/").rpartition("/")[0]
            folder = parent or ("/" if model.path.startswith("/") else ".")
    facts["folder"] = folder
    if model.export is not None:
        needs = (_export_given(plan, model.export, label, facts),)
        folder = plan.from_inference(folder) if whole.style == "models" else folder
    if spec.mode is Mode.KLQUANT_WHOLE_INFER and not plan.suite.klquant:
        return
    cwd = plan.suite.infer.cwd
    source = Source(
        label=label,
        leg=label or "whole_infer",
        # An original may be somewhere else by then.
        cwd=posixpath.normpath(plan.filler.choose(whole.cwd, facts) or cwd) if plan.legacy else cwd,
        folder=fill(whole.infer_folder, facts) if whole.infer_folder else folder,
        quant=model.quant,
        data=flag(spec.slots["infer_data"], legacy=spec.legacy),
        needs=needs,
        gpu=plan.options.gpu_id,
        facts=facts,
    )
    plan.infer(source)


def _export_given(plan: Expansion, program: Words, label: str, facts: Facts) -> str:
    whole, spec = plan.suite.whole, plan.spec
    if whole.unset and plan.legacy:
        program, facts = (), {**facts, "model_file": f"/{spec.name}/model.pdparams", "folder": "/static"}
    for slot in (spec.slots[item.flag] for item in whole.export if item.keyed_by == "value"):
        if not slot.value:
            plan.tell("null", "names no option, so the export gets no weights", slot)
    folder = facts["folder"]
    if whole.style == "quantize":  # named from where inference runs
        folder = posixpath.normpath(f"{plan.suite.infer.cwd}/{folder}")
    argv = (*plan.python, *program, *plan.filler.words(whole.export, facts, dict(spec.flags)))
    return plan.export(
        label or spec.mode.value,
        argv,
        folder if whole.style == "quantize" or plan.is_told(argv, folder, "export_save") else "",
        log=plan.filler.fill(whole.log, facts),
        env={} if plan.options.gpu_id is None else {VISIBLE: plan.options.gpu_id},
        leg=label or "whole_infer",
    )


LONGEST_ID = 40
"""Letters of an alignment command's id."""


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    plan = _Trainings(spec, params, options or Options())
    _align(plan)
    if spec.trains:
        for leg in spec.legs:
            if leg.at_once is not None:
                plan.exported = leg.at_once
            plan.inferred_on = None
            for autocast, trainer in product(spec.autocasts, spec.trainers):
                plan.iteration(leg, autocast, trainer)
    else:
        plan.exported = plan.options.gpu_id
        for index, model in enumerate(spec.models):
            _infer_given(plan, index, model)
    return plan.finished()


def _align(plan: Expansion) -> None:
    spec, alignment = plan.spec, plan.spec.alignment
    if alignment is None or spec.legacy:
        return
    # The option's device, else the first gpu_list entry's.
    first = spec.legs[0].gpus if spec.legs else ()
    device = f"gpu:{int(first[0])}" if first else "cpu"
    device = str(parse_device(plan.options.device)) if plan.options.device else device
    steps = alignment.steps
    if not spec.trains:
        steps = tuple(
            one for one in steps if not all(INFO[stage].trains for stage in SCRIPTS.get(one, ("", (one,)))[1])
        )
    if not steps:
        plan.tell("default", f"nothing is aligned: {spec.mode.value} has none of the file's steps")
    for together in groupby(steps, key=lambda step: SCRIPTS.get(step, ("", ()))[0]):
        program, names = together[0], tuple(together[1])
        name = "+".join(names)
        where = ("--mode", spec.mode.value, "--device", device)
        argv = (*plan.python, f"test_tipc/{program}", "--case", alignment.case, *where)
        if not program:
            # Stages that have no script run in one command, which imports each framework once.
            argv = (*plan.python, "-m", "tipchain", "align", alignment.case)
            argv += ("--only", ",".join(names), *where)
        gpus = (device.partition(":")[2],) if device != "cpu" else ()
        plan.add(
            Command(
                id=name if len(name) <= LONGEST_ID else f"{names[0]}+{len(names) - 1}",
                step="align",
                argv=argv,
                on_gpu=device != "cpu",
                leg="align",
                gpus=gpus,
            )
        )
