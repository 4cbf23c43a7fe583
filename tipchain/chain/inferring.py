"""The inference product: an exported model, on each device, with each setting that can be."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tipchain.chain.arguments import Facts, Filler
from tipchain.chain.emitter import INFERENCE_FLAGS, Emitter, slug
from tipchain.chain.plan import Artifact, Command
from tipchain.chain.suites import InferRule
from tipchain.chain.words import NOTHING, Words, flag

SHORT_NAMES = {"infer_batch": "bs"}
DEVICE_KINDS = {"True": "gpu", "gpu": "gpu", "False": "cpu", "cpu": "cpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
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


class Inferring(Emitter):
    """Adds inferences."""

    def infer(self, source: Source) -> None:
        """Add the inferences with a model, on each device of the list."""
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

    def told_data(self, source: Source) -> None:
        """Tell of data that the original does not pass to inference after training."""
        role = self.suite.infer.data
        chosen = self.spec.slots.get(role)
        if self.spec.mode.trains and source.data and (chosen is None or chosen.absent):
            message = "is used after training too; the original passes no data there"
            self.tell("inference-flags", message, self.spec.slots["infer_data"], "info")

    def infer_on(self, kind: str, value: str, source: Source, seen: set[Words]) -> None:
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

    def results(self, source: Source) -> str:
        """Return where inference writes results; several models have a folder each."""
        shared = not self.on("run-id") or not source.label
        return self.base if shared else f"{self.base}/{slug(source.label)}"

    def settled_points(
        self, kind: str, rule: InferRule, source: Source
    ) -> tuple[Filler, Sequence[Mapping[str, str]]]:
        """Return the inference product of a device, and what fills in its arguments.

        Where no setting of the file can be passed on this device, the original's commands without them stay.
        """
        points = list(self.points(rule, source, self.filler))
        for axis in (self.spec.axes[role] for role in self.axes_of(rule, self.filler)):
            if axis.replaced:
                message = "has no key or no value; the original goes through what it lists all the same"
                self.tell("null", message, axis.slot, "info")
        self.tell_other_points(kind, rule, source, points)
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

    def tell_other_points(
        self, kind: str, rule: InferRule, source: Source, points: Sequence[Mapping[str, str]]
    ) -> None:
        """Tell of other fixes that a profile's ``skip`` names, where they change the product."""
        tests = [test for tests in rule.skip for test in tests if test.name in ("fixed", "unfixed")]
        for fix in sorted({value for test in tests for value in test.values} - {"inference-flags"}):
            other = replace(self.filler, fixes=self.spec.fixes - {fix})
            if self.on(fix) and list(self.points(rule, source, other)) != points:
                message = f"the original infers with other combinations of settings on the {kind.upper()}"
                self.tell(fix, message, self.spec.axes["device"].slot, "info")

    def points(self, rule: InferRule, source: Source, filler: Filler) -> Iterator[Mapping[str, str]]:
        """Yield the inference product of a device, without the points that cannot be."""
        roles = self.axes_of(rule, filler)
        for values in product(*(self.spec.axes[role].values for role in roles)):
            point = dict(zip(roles, values, strict=True))
            facts = {**source.facts, **point, "quant": source.quant}
            if not any(filler.holds(tests, facts) for tests in rule.skip):
                yield point

    def axes_of(self, rule: InferRule, filler: Filler) -> tuple[str, ...]:
        """Return the roles of a rule's product."""
        return rule.fixed_axes if "inference-flags" in filler.fixes else rule.axes

    def why_no_point(self, kind: str, rule: InferRule, quant: str) -> str:
        """Return the note on a device that has nothing to infer."""
        axes = [self.spec.axes[role].slot for role in self.axes_of(rule, self.filler)]
        settings = ", ".join(f"{slot.key}:{slot.value}" for slot in axes if slot.key not in NOTHING)
        return f"nothing is inferred on the {kind}: no combination of {settings} can be (quantized: {quant})"

    def infer_argv(self, rule: InferRule, facts: Facts, source: Source, filler: Filler) -> Words:
        """Return the words of one inference."""
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
        python = self.interpreter(infer.cwd)
        return (*python, *(spec.inference or ()), *self.words(rule.arguments, facts, roles, filler))

    def tell_inference_flags(self, rule: InferRule, facts: Facts, kind: str) -> None:
        """Tell of settings that the original drops on this device."""
        for item in rule.arguments:
            if not any(test.name == "fixed" and test.values == (INFERENCE_FLAGS,) for test in item.when):
                continue
            if not self.filler.holds(item.when, facts):
                continue
            slot = self.spec.slots.get(item.role or item.flag)
            if slot is not None and slot.key not in NOTHING and not (item.role and slot.absent):
                message = f"is passed to inference on the {kind.upper()} too; the original drops it there"
                self.tell("inference-flags", message, slot, "info")

    def add_inference(self, kind: str, rule: InferRule, facts: Facts, argv: Words, source: Source) -> None:
        """Add one inference."""
        infer, spec = self.suite.infer, self.spec
        parts = [source.label] if source.label else []
        parts.append(kind)
        parts += [
            f"{SHORT_NAMES.get(role, role)}={facts[role]}"
            for role in self.axes_of(rule, self.filler)
            if facts.get(role, "") not in NOTHING and spec.axes[role].slot.key not in NOTHING
        ]
        gpu = source.gpu if kind == "gpu" else None
        file = self.filler.choose(infer.result_file, facts)
        line = Artifact(what="result line", in_log=True, line=self.suite.result_line)
        result = Artifact(what="result", files=(file,)) if file else line
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

    def links(self, source: Source) -> tuple[tuple[str, str], ...]:
        """Return the names under which a quantized program is looked for, as the original links them."""
        if self.suite.whole.style != "quantize" or self.spec.mode.trains:
            return ()
        folder = posixpath.normpath(f"{self.suite.infer.cwd}/{source.folder}")
        # PaddleSlim's own names, since 2022 and before.
        names = {
            "inference.pdmodel": ("model.pdmodel", "__model__"),
            "inference.pdiparams": ("model.pdiparams", "__params__"),
        }
        return tuple(
            (f"{folder}/{name}", f"{folder}/{one}") for name, targets in names.items() for one in targets
        )
