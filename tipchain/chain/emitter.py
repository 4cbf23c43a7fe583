"""What all parts of an expansion share: facts, names, logs, findings; commands are added here."""

from __future__ import annotations

import glob
import itertools
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from tipchain.chain.arguments import Facts, Filler
from tipchain.chain.fixes import FIXES, Finding
from tipchain.chain.plan import Artifact, Command, Options, default_timeout
from tipchain.chain.spec import ChainSpec
from tipchain.chain.suites import Item
from tipchain.chain.words import Slot, Words, split_words

OUTPUT = PurePosixPath("test_tipc/output")
FIXED = ("fixed", "unfixed")
INFERENCE_FLAGS = "inference-flags"
"""The one fix of arguments that is told for each of them, by the device."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
PROGRAMS = ("**/*.pdmodel", "**/*.json", "**/__model__", "**/*.onnx")
WEIGHTS = ("**/*.pdiparams", "**/__params__", "**/*.onnx")


def slug(text: str) -> str:
    """Return ``text`` as a file name, with nothing in it that a shell would mind."""
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip("-.")


class Emitter:
    """Expands one spec; collects commands, links and findings."""

    def __init__(self, spec: ChainSpec, options: Options) -> None:
        self.spec, self.options, self.suite = spec, options, spec.suite
        self.filler = Filler(suite=spec.suite, slots=spec.slots, fixes=spec.fixes)
        self.python: Words = (options.python,) if options.python else spec.python
        self.commands: list[Command] = []
        self.counts: Counter[str] = Counter()
        self.latest: dict[str, str] = {}
        self.taken: set[str] = set()
        self.findings = list(spec.findings)
        self.timeout = default_timeout(spec.mode) if options.timeout_s is None else options.timeout_s
        self._place()
        self.facts: Facts = self._facts()
        # What the original's shell has exported at this point.
        self.exported: str | None = None
        # The device that the leg's last inference was on, as the file has it.
        self.inferred_on: str | None = None
        # The name of the model file: an original changes it on the way.
        self.name = spec.name
        # What the norm trainer left: (weights, id of its command).
        self.norm: tuple[str, str] | None = None

    def on(self, fix: str) -> bool:
        """Return whether a fix is in force."""
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

    def _facts(self) -> Facts:
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

    def words(
        self, items: Sequence[Item], facts: Facts, roles: Mapping[str, Words], filler: Filler | None = None
    ) -> Words:
        """Return the words of an argument list, and tell of the fixes that the profile names for them."""
        filler = filler or self.filler
        found = filler.words(items, facts, roles)
        for item in items:
            for fix in (value for test in item.when if test.name in FIXED for value in test.values):
                if fix == INFERENCE_FLAGS or not self.on(fix):
                    continue
                without = replace(filler, fixes=filler.fixes - {fix})
                if without.words(items, facts, roles) != found:
                    slot = self.spec.slots.get(item.flag or item.role or item.key)
                    self.tell(fix, FIXES[fix], slot or self.spec.slots["model_name"], "info")
        return found

    def add(self, command: Command, *, log: str = "", usual: str = "") -> str:
        """Append a command, whose id is so far a label, and return its id.

        Args:
            command: the command.
            log: name of the file that the original redirects to, "" for none.
            usual: the name under which its log is known, if that is another.
        """
        name = f"{command.step}[{command.id}]"
        self.counts[name] += 1
        name = name if self.counts[name] == 1 else f"{name}#{self.counts[name]}"
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

    def interpreter(self, cwd: str) -> Words:
        """Return the interpreter's words for a command that runs in ``cwd``: a relative path is one from the root."""
        program, *options = self.python or ("",)  # an original runs the script itself where there is none
        here = posixpath.normpath(cwd) == "." or "/" not in program or program.startswith("/")
        if here or not self.on("cwd"):
            return self.python
        if self.options.python is None:
            message = f"is looked for where the chain is started; the original looks for it in {cwd}"
            self.tell("cwd", message, self.spec.slots["python"], "info")
        return (posixpath.join(self.options.root, program), *options)

    def visible(self, fixed: str | None, *, gpus: bool = True) -> dict[str, str]:
        """Return CUDA_VISIBLE_DEVICES for a command: what the leg has, or what the original happens to export."""
        found = fixed if self.on("devices") else self.exported
        if gpus and self.on("devices") and fixed != self.exported and self.spec.trains:
            there = "leaves it unset" if self.exported is None else f"has {self.exported} there"
            here = "is not set" if fixed is None else f"is {fixed}"
            message = f"{VISIBLE} {here} for each command of a leg; for some the original {there}"
            self.tell("devices", message, self.spec.slots["gpu_list"], "info")
        return {} if found is None else {VISIBLE: found}

    def inference_dir(self) -> str:
        """Return what inference_dir adds to the folder of the exported model."""
        slot = self.spec.slots.get("inference_dir")
        if slot is None or (slot.absent and self.on("null")):
            return ""
        if slot.value in ("null", "##") or (not slot.value and self.on("run-id")):
            return ""  # an empty value makes the original write a slash twice, the same path
        return f"/{slot.value}"

    def exported_files(self, folder: str) -> tuple[Artifact, ...]:
        """Return what an export into ``folder`` must leave."""
        if not self.spec.fixes:
            return ()
        head = glob.escape(folder.rstrip("/"))
        return (
            Artifact(what="program", files=tuple(f"{head}/{one}" for one in PROGRAMS)),
            Artifact(what="weights", files=tuple(f"{head}/{one}" for one in WEIGHTS)),
        )
