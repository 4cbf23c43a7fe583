"""The modes without training: export given models, or quantize one, and infer."""

from __future__ import annotations

import posixpath

from tipchain.chain.arguments import Facts
from tipchain.chain.emitter import VISIBLE
from tipchain.chain.inferring import Inferring, Source
from tipchain.chain.plan import Command
from tipchain.chain.spec import InferModel
from tipchain.chain.words import Words, flag


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
                program, facts = (
                    (),
                    {**facts, "model_file": f"/{spec.name}/model.pdparams", "folder": "/static"},
                )
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
