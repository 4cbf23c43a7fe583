"""Parts shared by all of an expansion: templates filled in, commands with names and logs, the inference product."""

from __future__ import annotations

import glob
import itertools
import math
import posixpath
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from tipchain.chain.build import ChainSpec
from tipchain.chain.params import NOTHING, Slot, Words, flag, split_words
from tipchain.chain.plan import Artifact, Command, Options, Plan, default_timeout
from tipchain.chain.slots import Slots
from tipchain.chain.suites import ArgumentItem, Choice, Conditions, InferRule, LintFinding, Suite, condition
from tipchain.errors import InputError, ParamsError
from tipchain.modes import Mode

if TYPE_CHECKING:
    from tipchain.core.json_text import Json

Facts = Mapping[str, str]
template_words = lru_cache(maxsize=4096)(shlex.split)


class Filler(NamedTuple):
    """The names that templates and conditions of one plan may use besides the facts of a command."""

    suite: Suite
    slots: Slots
    legacy: bool

    def holds(self, conditions: Conditions, facts: Facts) -> bool:
        """Return whether all ``conditions`` hold."""
        for text, values in conditions.items():
            name, operation = condition(text)
            what, _, role = name.partition(" ")
            slot = self.slots.get(role)
            found = facts.get(name) if not role else None if slot is None else slot.key if what == "key" else slot.value
            fits = found in values if operation in ("", "not") else found and any(value in found for value in values)
            if bool(fits) == (operation in ("not", "lacks")):
                return False
        return True

    def points(
        self, rule: InferRule, lists: Mapping[str, tuple[Slot, Sequence[str]]], facts: Facts
    ) -> Iterator[Mapping[str, str]]:
        """Yield the inference product of a device, without the points that cannot be; ``lists`` are those of the axes.

        Raises:
            ParamsError: there are more than any plan may have.
        """
        axes = {role: lists[role] for role in rule.axes}
        count = math.prod(len(values) for _, values in axes.values())
        if count > MAX_COMMANDS:
            slot, _ = max(axes.values(), key=lambda one: len(one[1]))
            expected = f"at most {MAX_COMMANDS:,}"
            message = f"this list and others make {count:,} inferences with each model"
            raise ParamsError(message, file=slot.file, line=slot.line, key=slot.key, expected=expected)
        for values in product(*(values for _, values in axes.values())):
            point = dict(zip(axes, values, strict=True))
            if not any(self.holds(tests, {**facts, **point}) for tests in rule.skip):
                yield point

    def fill(self, template: str, facts: Facts) -> str:
        """Return ``template`` with its variables replaced; inserted text is not looked at again."""
        if "{" not in template:
            return template
        try:
            return template.format_map({**facts, "v": self.values} if "v[" in template else facts)
        except KeyError as error:
            message = f"{{{error.args[0]}}} is not known where {template!r} stands"
            raise InputError(message, file=self.suite.file) from error

    @property
    def values(self) -> Mapping[str, str]:
        """The values of the file's lines, by role; a slot that the file lacks is empty."""
        return defaultdict(str, {role: slot.value for role, slot in self.slots.items()})

    def choose(self, choices: Sequence[Choice], facts: Facts) -> str:
        """Return the first of ``choices`` whose conditions hold, filled in; "" if none does."""
        for choice in choices:
            if self.holds(choice.when, facts):
                return self.fill(choice.value, facts)
        return ""

    def words(self, items: Iterable[ArgumentItem], facts: Facts, roles: Mapping[str, Words]) -> Words:
        """Return the words of an argument list; ``roles`` are those that the engine makes."""
        found: list[str] = []
        for item in items:
            if self.holds(item.when, facts):
                found += self._item(item, facts, roles)
        return tuple(found)

    def _item(self, item: ArgumentItem, facts: Facts, roles: Mapping[str, Words]) -> Words:
        slot = self.slots.get(item.role)
        if item.add and not item.role:
            return tuple(found for word in template_words(item.add) for found in self._text(word, facts))
        if item.add and item.role in roles:
            return roles[item.role]
        if slot is None:
            return ()
        if item.key:
            return split_words(slot.key, slot) if slot.key not in NOTHING else ()
        if item.add:
            return flag(slot, pipes=self.pipes, legacy=self.legacy)
        value = None if item.value is None else self.fill(item.value, facts)
        role = (item.value or "").partition("v[")[2].partition("]")[0]
        if role and not self.legacy and (role not in self.slots or self.slots[role].absent):
            return ()  # a path made of null is no path
        named = slot if item.keyed_by == "key" else slot._replace(key=slot.value)
        return flag(
            named, value, raw=item.raw, literal=value is not None, join=item.join, pipes=self.pipes, legacy=self.legacy
        )

    def _text(self, word: str, facts: Facts) -> Words:
        # A slot's value alone may be several words.
        if word.startswith("{v[") and word.endswith("]}"):
            slot = self.slots.get(word[3:-2])
            return () if slot is None or slot.absent else split_words(slot.value, slot, pipes=self.pipes)
        text = self.fill(word, facts)
        split = self.legacy and text != word
        return split_words(text, self.slots["model_name"], pipes=self.pipes) if split else (text,)

    @property
    def pipes(self) -> bool:
        """Whether a ``|`` is taken for a blank, as in the original."""
        return self.suite.pipes and self.legacy


OUTPUT = PurePosixPath("test_tipc/output")
VISIBLE = "CUDA_VISIBLE_DEVICES"
MAX_COMMANDS = 10_000
"""Commands of a plan: at a second each it runs for three hours. The largest of a public file has some hundreds."""
PROGRAMS = ("**/*.pdmodel", "**/*.json", "**/__model__", "**/*.onnx")
WEIGHTS = ("**/*.pdiparams", "**/__params__", "**/*.onnx")


@lru_cache(maxsize=4096)
def slug(text: str) -> str:
    """Return ``text`` as a file name, with nothing in it that a shell would mind."""
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip("-.")


def folders(options: Options, model: str, mode: Mode) -> tuple[str, str]:
    """Return the folder of a mode's output, and that of the run below it."""
    top = PurePosixPath(options.workdir) if options.workdir else OUTPUT
    out = str(top / model / mode.value)
    return out, f"{out}/runs/{options.run}"


def exported_files(folder: str) -> tuple[Artifact, ...]:
    """Return the files of an exported model in ``folder``: a program and its weights; "" is any folder."""
    head = f"{glob.escape(folder.rstrip('/'))}/" if folder else ""
    return (
        Artifact(what="program", files=tuple(f"{head}{one}" for one in PROGRAMS)),
        Artifact(what="weights", files=tuple(f"{head}{one}" for one in WEIGHTS)),
    )


def slim_links(folder: str) -> tuple[tuple[str, str], ...]:
    """Return links from inference's names in a folder to PaddleSlim's own names of it, since 2022 and before."""
    names = {"pdmodel": ("model.pdmodel", "__model__"), "pdiparams": ("model.pdiparams", "__params__")}
    return tuple((f"{folder}/inference.{end}", f"{folder}/{one}") for end, ones in names.items() for one in ones)


SHORT_NAMES = {"infer_batch": "bs"}
DEVICE_KINDS = {"True": "gpu", "gpu": "gpu", "False": "cpu", "cpu": "cpu"}


class Source(NamedTuple):
    """A model to infer with: its name in ids, its folder, the words of the data, a GPU (None: any), templates' facts."""

    label: str
    leg: str
    cwd: str
    folder: str
    quant: str
    data: Words
    needs: tuple[str, ...]
    gpu: str | None
    facts: Facts


class PlanDraft:
    """A plan as it is built: commands with ids, logs and limits, the names that lead to their logs, and findings.

    A legacy plan's commands are named as the original's, and asked for nothing but an exit code.
    """

    def __init__(
        self, head: Plan, place: Slot, options: Options, *, legacy: bool, python: Words, result_line: str = ""
    ) -> None:
        self.head, self.out, self.run, self.options = head, head.out, head.run, options
        self.place, self.legacy, self.result_line = place._replace(line=0, key=""), legacy, result_line
        self.python: Words = (options.python,) if options.python else python
        self.commands: list[Command] = []
        self.counts: Counter[str] = Counter()
        self.latest: dict[str, str] = {}
        self.taken: set[str] = set()
        self.findings: list[LintFinding] = list(head.findings)
        limit_s = default_timeout(head.mode) if options.timeout_s is None else options.timeout_s
        self.limit_s = None if limit_s == float("inf") else limit_s

    def tell(self, code: str, message: str, slot: Slot | None = None, severity: str = "warning") -> None:
        """Add a finding about a line, or about the file, once."""
        finding = LintFinding.at(slot or self.place, code, message, severity)
        if not self.legacy and finding not in self.findings:
            self.findings.append(finding)

    def add(self, command: Command, *, log: str = "", usual: str = "") -> str:
        """Append a command, whose id is so far a label, and return its id.

        ``log`` is the original's name of its log, from the run's folder; ``usual`` the one under which it is known.
        """
        if len(self.commands) == MAX_COMMANDS:
            raise ParamsError(f"the lists of the file make more than {MAX_COMMANDS:,} commands", file=self.place.file)
        name = f"{command.step}[{command.id}]" if command.id else command.step
        self.counts[name] += 1
        name = name if self.counts[name] == 1 else f"{name}#{self.counts[name]}"
        path = None
        if self.legacy:
            command = command._replace(leaves=(), finds=())
            if log:
                command, path = self.redirected(command, f"{self.run}/{log}")
        else:
            file = self.unused(slug(name), ".log")
            path = f"{self.run}/{file}"
            usual = usual or log
            if usual and "/" not in usual:
                self.latest[usual] = file
        self.commands.append(command._replace(id=name, log=path, timeout_s=self.limit_s))
        return name

    def export(self, label: str, argv: Words, folder: str, *, log: str, usual: str = "", **more: Json) -> str:
        """Append an export into ``folder``, "" for one that is not known; return its id."""
        command = Command(id=label, step="export", argv=argv, leaves=exported_files(folder), **more)
        return self.add(command, log=log, usual=usual)

    def inference(
        self, label: str, kind: str, argv: Words, *, log: str, result: str = "", given: str = "", **more: Json
    ) -> Command:
        """Append an inference and return it.

        It must write a file of the pattern ``result``, or tell a result of the data that it is ``given``.
        """
        line = Artifact(what="result line", in_log=True, line=self.result_line, reads=True, given=given)
        leaves = (Artifact(what="result", files=(result,)) if result else line,)
        command = Command(id=label, step="infer", argv=argv, on_gpu=kind == "gpu", leaves=leaves, **more)
        self.add(command, log=log)
        return command

    def redirected(self, command: Command, log: str) -> tuple[Command, str]:
        """Return a command of the original's and the path of its log."""
        return command, posixpath.normpath(log)

    def unused(self, stem: str, suffix: str = "") -> str:
        """Return a name in the run's folder that nothing else in the plan has."""
        names = (f"{stem}{suffix}" if count == 1 else f"{stem}-{count}{suffix}" for count in itertools.count(1))
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        return name

    def interpreter(self, cwd: str) -> Words:
        """Return the interpreter's words in ``cwd``: a relative path is one from the root; the original looks for it there."""
        program, *more = self.python or ("",)  # an original runs the script itself where there is none
        here = posixpath.normpath(cwd) == "." or "/" not in program or program.startswith("/")
        return self.python if here or self.legacy else (posixpath.join(self.options.root, program), *more)

    def finished(self) -> Plan:
        """Return the plan."""
        findings = tuple(dict.fromkeys(self.findings))
        return self.head._replace(
            commands=tuple(self.commands),
            latest=tuple(self.latest.items()),
            notes=tuple(dict.fromkeys(str(one) for one in findings if one.severity != "info")),
            findings=findings,
        )


class Expansion(PlanDraft):
    """The plan of a spec as it is built: templates filled in, arguments, the inferences with a model."""

    def __init__(self, spec: ChainSpec, params: str, options: Options) -> None:
        self.spec, self.options, self.suite, self.legacy = spec, options, spec.suite, spec.legacy
        self.filler = Filler(suite=spec.suite, slots=spec.slots, legacy=spec.legacy)
        self.above_inference = posixpath.relpath(".", self.suite.infer.cwd)
        facts = {"root": options.root, "model": spec.model, "mode": spec.mode.value}
        self.base = self.filler.fill(self.suite.out, facts)
        if self.legacy:
            out = run = posixpath.normpath(self.base.removeprefix(f"{options.root}/"))
        else:
            out, run = folders(options, spec.model, spec.mode)
            below = options.root if self.suite.out.startswith("{root}") else "."
            self.base = run if run.startswith("/") else f"{below}/{run}"
        values = self.filler.values
        facts |= {
            "model_pp": spec.model.replace("PP-", "pp", 1),
            "model_folders": str(len([name for name in values["infer_model"].split("/") if name not in ("", ".")])),
            "model_below": values["infer_model"].replace("../", "", 1),
            "config_name": re.sub(r".*configs/\S*/(\S*)\.yaml.*", r"\1", values["export_norm"], count=1),
            "config_rest": re.sub(r".*configs/.*/(.*).yaml", r"\1", values["export_norm"], count=1),
            "legacy": str(self.legacy),
            "base": self.base,
            **{role: spec.by_mode.get(role, "") for role in ("epoch", "batch", "config")},
        }
        for name, choices in self.suite.vars.items():
            facts[name] = self.filler.choose(choices, facts)
        self.facts: Facts = facts
        # What the original's shell has exported at this point.
        self.exported: str | None = None
        head = Plan(
            params=params,
            mode=spec.mode,
            suite=spec.suite.name,
            model=spec.model,
            status=spec.suite.status,
            out=out,
            run=run,
            findings=spec.findings,
            results_log=spec.suite.results_log,
            results_head=self.filler.fill(spec.suite.results_head, self.facts),
            redirected=spec.suite.redirected,
            data=options.data,
        )
        place, line = spec.slots["model_name"], spec.suite.result_line
        super().__init__(head, place, options, legacy=spec.legacy, python=spec.python, result_line=line)

    def redirected(self, command: Command, log: str) -> tuple[Command, str]:
        """Return a command and its log: a blank in the name, after a list's last value say, ends it for the original's shell."""
        first, *more = split_words(log, self.spec.slots["model_name"])
        command = command._replace(argv=(*command.argv, *more)) if command.step == "infer" else command
        return command, posixpath.normpath(first)

    def visible(self, fixed: str | None) -> dict[str, str]:
        """Return CUDA_VISIBLE_DEVICES for a command: the leg's GPUs, or the value that the original happens to export."""
        found = self.exported if self.legacy else fixed
        return {} if found is None else {VISIBLE: found}

    def inference_dir(self) -> str:
        """Return the part of the path that inference_dir adds to the folder of the exported model."""
        slot = self.spec.slots.get("inference_dir")
        if slot is None or slot.value in ("null", "##") or (not slot.value and not self.legacy):
            return ""  # an empty value makes the original write a slash twice, the same path
        return f"/{slot.value}"

    def from_inference(self, folder: str) -> str:
        """Return a folder that is named from where the plan runs, as the inference names it in its own."""
        if self.above_inference == ".":
            return folder
        seen = posixpath.join(self.above_inference, folder)
        return seen if self.legacy else posixpath.normpath(seen)

    def is_told(self, argv: Words, folder: str, role: str, weights: str = "\0") -> bool:
        """Return whether a command gets its folder, and not only ``weights`` in it; if not, where it writes is not known, which is told."""
        if any(folder in word and weights not in word for word in argv):
            return True
        slot = self.spec.slots.get(role)
        if slot is not None and slot.line:
            message = "names no argument for the folder, so what the program writes is looked for in the whole checkout"
            if slot.key not in NOTHING:
                message = "is handed to no program, so what the program writes is looked for in the whole checkout"
            self.tell("default", message, slot)
        return False

    def infer(self, source: Source) -> None:
        """Add the inferences with a model, on each device of the list."""
        if self.spec.inference is None:
            self.tell("null", "inference is null, so nothing is inferred")
            return
        axis = self.spec.axes["device"]
        seen: set[Words] = set()
        # Without a line for it, inference runs where training did.
        leg = ("cpu",) if source.gpu is None else ("gpu",)
        for value in leg if "device" in self.suite.lacks else axis.values:
            kind = DEVICE_KINDS.get(value)
            if kind is None:
                self.tell("default", f"no inference on the device {value!r}: it is neither a CPU nor a GPU", axis.slot)
                continue
            rule = self.suite.infer.cpu if kind == "cpu" else self.suite.infer.gpu
            # Where no setting of the file can be passed on this device, the original's commands without them stay.
            original, points = self.legacy, self.points(rule, source, legacy=self.legacy)
            if not points and not self.legacy:
                points = self.points(rule, source, legacy=True)
                original = bool(points)
            if not points:
                axes = [self.spec.axes[role].slot for role in rule.axes]
                settings = ", ".join(f"{slot.key}:{slot.value}" for slot in axes if slot.key not in NOTHING)
                why = f"nothing is inferred on the {kind}: no combination of {settings} can be (quantized: {source.quant})"
                self.tell("default", why, self.spec.axes["device"].slot)
            for point in points:
                facts = {**source.facts, **point, "device": value, "quant": source.quant, "folder": source.folder}
                facts["legacy"] = str(original)
                # Where inference writes results; several models have a folder each.
                facts["results"] = self.base if self.legacy or not source.label else f"{self.base}/{slug(source.label)}"
                self.add_inference(kind, rule, facts, source, seen)

    def points(self, rule: InferRule, source: Source, *, legacy: bool) -> Sequence[Mapping[str, str]]:
        """Return the inference product of a device."""
        facts = {**source.facts, "quant": source.quant, "legacy": str(legacy)}
        lists = {role: (axis.slot, axis.values) for role, axis in self.spec.axes.items()}
        return list(self.filler.points(rule, lists, facts))

    def add_inference(self, kind: str, rule: InferRule, facts: Facts, source: Source, seen: set[Words]) -> None:
        """Add one inference, unless its command would be repeated."""
        spec, infer = self.spec, self.suite.infer
        model = self.filler.fill(infer.model, facts)
        roles: dict[str, Words] = {
            "model": flag(spec.slots["model_dir"], model, literal=True, legacy=self.legacy),
            "data": source.data,
        }
        for role in ("device", *rule.axes):
            raw = role in infer.raw and self.legacy
            roles[role] = flag(spec.axes[role].slot, facts[role], raw=raw, legacy=self.legacy)
        arguments = self.filler.words(rule.arguments, facts, roles)
        argv = (*self.interpreter(source.cwd), *(spec.inference or ()), *arguments)
        if argv in seen and not self.legacy:
            return
        seen.add(argv)
        parts = [source.label] if source.label else []
        parts.append(kind)
        parts += [
            f"{SHORT_NAMES.get(role, role)}={facts[role]}"
            for role in rule.axes
            if facts.get(role, "") not in NOTHING and spec.axes[role].slot.key not in NOTHING
        ]
        gpu = source.gpu if kind == "gpu" else None
        self.inference(
            ";".join(parts),
            kind,
            argv,
            log=self.filler.fill(rule.log, facts),
            result=self.filler.choose(self.suite.infer.result_file, facts),
            given=source.data[-1].rpartition("=")[2] if source.data else "",
            cwd=source.cwd,
            env=self.visible(source.gpu),
            needs=source.needs,
            leg=source.leg,
            gpus=() if gpu is None else (gpu,),
            # The names under which a quantized program is looked for, as the original links them.
            links=slim_links(posixpath.normpath(f"{self.suite.infer.cwd}/{source.folder}"))
            if self.suite.whole.style == "quantize" and not self.spec.trains
            else (),
        )
