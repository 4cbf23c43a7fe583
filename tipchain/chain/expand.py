"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.slots import SCRIPTS
from tipchain.chain.spec import ChainSpec
from tipchain.chain.training import Training
from tipchain.chain.untrained import Untrained
from tipchain.devices import parse_device

ALIGNED_WITHOUT_TRAINING = ("01", "02", "03")


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    return _Expander(spec, options or Options()).plan(params)


class _Expander(Training, Untrained):
    """Expands one spec whole."""

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
