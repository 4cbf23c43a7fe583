"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

from itertools import groupby

from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.spec import ChainSpec
from tipchain.chain.training import Training
from tipchain.chain.untrained import Untrained
from tipchain.devices import parse_device
from tipchain.stage_table import INFO, SCRIPTS

LONGEST_ID = 40
"""Letters of an alignment command's id."""


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    return _Expander(spec, options or Options()).plan(params)


class _Expander(Training, Untrained):
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
