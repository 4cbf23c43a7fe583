"""Default plans against the originals' commands: every difference is a named fix that the plan reports.

A plan is made with a set of fixes. For each file and mode, with D the default plan (all fixes) and S the fixes that
D's findings name: without any fix the commands are the original's (whose own are compared with the recordings by
``test_corpus``); with S alone they are D's, so nothing differs unreported; without one of S they are others, so
nothing is reported for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from test_corpus import CORPUS, FILES, MODES, records

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.params import parse_params, read_text
from tipchain.chain.plan import Options, Plan
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import checked_slots, legacy_slots
from tipchain.chain.suites import ALL, FIXES, NONE
from tipchain.errors import ParamsError
from tipchain.modes import CHAIN_MODES, Mode

SAMPLES = Path(__file__).parent / "samples"
# Fixes that change every plan, so that no file needs to be told of them.
EVERYWHERE = frozenset({"run-id"})
# Fixes of what happens while commands run and when they end; none of them shows in a plan's commands.
RUNNING = frozenset({"true-exit", "nothing-planned", "cwd", "no-sleep", "timeouts"})
# Fixes that refuse a file; with --lenient the commands are the same.
REFUSING = frozenset({"typos", "closed-modes"})
# Fixes of how lines are read; they are reported for a line that this mode may not need.
READING = frozenset({"sections", "whole-value"})
# Samples that only the original takes, and why the default refuses them.
REFUSED = {"template/edges.txt": "would be acted on by a shell"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file in a mode."""

    suite: str
    path: Path
    mode: Mode
    text: str

    def __str__(self) -> str:
        return f"{self.suite} {self.path} {self.mode.value}"

    def plan(self, fixes: frozenset[str] = ALL, *, lenient: bool = True) -> Plan:
        file, suite = parsed(self.text, str(self.path)), get_suite(self.suite)
        spec = build_spec(file, suite, self.mode, lenient=lenient, text=self.text, fixes=fixes)
        return expand(spec, str(self.path), Options(root="/w"))

    def original(self) -> Plan:
        spec = legacy_spec(self.text, str(self.path), get_suite(self.suite), self.mode)
        return expand(spec, str(self.path), Options(root="/w"))


parsed = cache(parse_params)


def case(suite: str, path: Path, mode: Mode) -> Case:
    return Case(suite=suite, path=path, mode=mode, text=read_text(path))


def corpus_cases(suite: str, mode: str) -> Iterator[Case]:
    for record in records()[suite, mode]:
        yield case(suite, CORPUS / "configs" / record["repo"] / record["config"], Mode(mode))


def sample_cases(suite: str, mode: str) -> Iterator[Case]:
    for path in sorted((SAMPLES / suite).glob("*.txt")):
        if f"{suite}/{path.name}" not in REFUSED:
            yield case(suite, path, Mode(mode))


def contents(plan: Plan):
    return (plan.commands, plan.latest, plan.results_log, plan.results_head, plan.redirected)


def reported(plan: Plan) -> frozenset[str]:
    return frozenset(finding.code for finding in plan.findings) & ALL


def problems(one: Case) -> Iterator[str]:
    default, original = one.plan(), one.original()
    if contents(one.plan(NONE)) != contents(original):
        yield f"{one}: without any fix the commands are not the original's"
    codes = reported(default)
    if contents(one.plan(codes | EVERYWHERE)) != contents(default):
        yield f"{one}: with the reported fixes alone, {sorted(codes)}, the plan is another"
    for code in sorted(codes - RUNNING - REFUSING - READING):
        with suppress(ParamsError):  # the original's own words may be refused by another fix
            if contents(one.plan(ALL - {code})) == contents(default):
                yield f"{one}: {code} is reported, and changes nothing"
    yield from refusals(one, default)
    yield from readings(one, default)


def refusals(one: Case, default: Plan) -> Iterator[str]:
    """A typo is an error without --lenient, unless nothing reads the value."""
    warned = [found for found in default.findings if found.code in REFUSING and found.severity != "info"]
    try:
        strict = one.plan(lenient=False)
    except ParamsError as error:
        if not any(found.line == error.line for found in warned):
            yield f"{one}: refused for what no finding names: {error}"
        return
    if warned:
        yield f"{one}: not refused for {warned[0]}"
    if contents(strict) != contents(default):
        yield f"{one}: --lenient changes a plan without typos"


def readings(one: Case, default: Plan) -> Iterator[str]:
    """Where the original is said to read a line otherwise, it does."""
    suite = get_suite(one.suite)
    ours = checked_slots(parsed(one.text, str(one.path)), suite)
    theirs = legacy_slots(one.text, str(one.path), suite)
    lines = {slot.line for role, slot in ours.items() if role in theirs and theirs[role] != slot}
    entries = {slot.line for role, slot in ours.items() if role in suite.mode_lists and "=" in slot.value}
    for found in default.findings:
        if found.code in READING and found.line not in lines | entries:
            yield f"{one}: {found}, yet the original reads the same"


def test_the_kinds_of_fixes_are_all_fixes():
    assert set(FIXES) > EVERYWHERE | RUNNING | REFUSING | READING


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suite", FILES)
def test_every_difference_in_the_corpus_is_a_reported_fix(suite, mode):
    found = [problem for one in corpus_cases(suite, mode) for problem in problems(one)]
    assert not found, f"{len(found)} problems, the first:\n{found[0]}"


@pytest.mark.parametrize("mode", [mode.value for mode in CHAIN_MODES])
@pytest.mark.parametrize("suite", sorted(path.name for path in SAMPLES.iterdir()))
def test_every_difference_in_our_samples_is_a_reported_fix(suite, mode):
    found = [problem for one in sample_cases(suite, mode) for problem in problems(one)]
    assert not found, f"{len(found)} problems, the first:\n{found[0]}"


@pytest.mark.parametrize("name", REFUSED)
def test_samples_that_only_the_original_takes(name):
    suite, _, file = name.partition("/")
    with pytest.raises(ParamsError, match=REFUSED[name]):
        case(suite, SAMPLES / suite / file, Mode.LITE_TRAIN_LITE_INFER).plan()


def test_the_samples_show_every_fix_that_a_file_can_show():
    codes: set[str] = set()
    for folder in SAMPLES.iterdir():
        for mode in CHAIN_MODES:
            for one in sample_cases(folder.name, mode.value):
                codes |= reported(one.plan())
    # PanopticSeg's samples name no model for whole_infer, as its real files don't; tests/chain/test_suites.py has one.
    of_other_kinds = {"onnx-flags", "no-installs", "program-file", "quantize-flags", "to-static"}
    assert codes == set(FIXES) - of_other_kinds - EVERYWHERE - (RUNNING - {"nothing-planned", "cwd"}) - {
        "panoptic-vars"
    }


# Over the corpus

# Files that a fix is reported for, by suite, in each of MODES.
COUNTS = {
    "clas-epochs": {"paddleclas": (5, 5, 205, 0)},
    "clas-weights": {"paddleclas": (4, 4, 4, 0)},
    "device-per-leg": {"paddleseg": (20, 20, 20, 0)},
    "devices": {
        "paddleclas": (204, 204, 204, 0),
        "paddledetection": (30, 30, 30, 0),
        "paddleseg": (22, 22, 22, 0),
        "tutorial": (2, 2, 2, 0),
        "template": (2, 2, 2, 0),
        "alexnet": (1, 1, 1, 0),
    },
    "inference-flags": {
        "paddleclas": (1, 1, 1, 0),
        "paddleseg": (22, 22, 22, 22),
        "medicalseg": (5, 5, 5, 0),
        "tutorial": (2, 2, 2, 0),
    },
    "mode-fallback": {
        "paddleclas": (0, 205, 0, 0),
        "medicalseg": (0, 5, 0, 0),
        "tutorial": (0, 2, 0, 0),
        "template": (0, 2, 0, 0),
        "alexnet": (0, 1, 0, 0),
    },
    "nothing-planned": {
        "paddleclas": (0, 0, 0, 205),
        "paddledetection": (1, 1, 1, 1),
        "medicalseg": (0, 0, 0, 5),
        "template": (0, 0, 0, 2),
        "alexnet": (0, 0, 0, 1),
    },
    "null": {"template": (0, 0, 0, 2), "alexnet": (0, 0, 0, 1)},
    "checkpoint": {
        "paddleclas": (205, 205, 205, 0),
        "paddledetection": (30, 30, 30, 0),
        "paddleseg": (22, 22, 22, 0),
        "medicalseg": (5, 5, 5, 0),
    },
    "typos": {"paddleclas": (202, 202, 202, 202)},
}


@cache
def corpus_plans() -> tuple[tuple[Case, Plan, tuple], ...]:
    """Return each case of the corpus, its default plan and the recorded commands."""
    return tuple(
        (one, one.plan(), tuple(record["commands"]))
        for suite in FILES
        for mode in MODES
        for one, record in zip(corpus_cases(suite, mode), records()[suite, mode], strict=True)
    )


def test_the_fixes_over_the_corpus_are_counted():
    counts = Counter((code, one.suite, one.mode.value) for one, plan, _ in corpus_plans() for code in reported(plan))
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for code, suite, _ in counts:
        found.setdefault(code, {})[suite] = tuple(counts[code, suite, mode] for mode in MODES)
    assert found == COUNTS


def words(commands, step: str) -> list[list[str]]:
    return [command["argv"] for command in commands if command["step"] == step]


def test_the_counts_are_those_of_the_specification_where_it_has_them():
    plans = [(one, plan, old) for one, plan, old in corpus_plans() if one.suite == "paddleclas"]
    # 8: "all 1,653 train commands get 2 epochs", "275+1 configs run whole_train at 2 instead of 100-348; 5 configs
    # lose lite=5". 205 of the 276 files are here, with all of the five.
    assert all("Global.epochs=2" in argv for _, _, old in plans for argv in words(old, "train"))
    assert COUNTS["clas-epochs"]["paddleclas"] == (5, 5, 205, 0)
    # 16: "export runs without its weights argument: 4 configs, 21 commands": all of them are here.
    bare = [
        argv for _, _, old in plans for argv in words(old, "export") if "Global.pretrained_model" not in " ".join(argv)
    ]
    assert (len(bare), COUNTS["clas-weights"]["paddleclas"][0]) == (21, 4)
    exports = [c.argv for _, plan, _ in plans for c in plan.commands if c.step == "export"]
    assert all("Global.pretrained_model" in " ".join(argv) for argv in exports)
    # 17: "`infer_quant:Fasle` in 273 of 276 Clas configs": 202 of the 205 here.
    assert {one.path for one, _, _ in plans if "infer_quant:Fasle" in one.text} == {
        one.path for one, plan, _ in plans if "typos" in reported(plan)
    }
    # 4: "Clas whole_infer runs nothing for 276 of 276 configs", and 5 of MedicalSeg.
    for suite in ("paddleclas", "medicalseg"):
        empty = [plan for one, plan, old in corpus_plans() if one.suite == suite and not plan.commands and not old]
        assert len(empty) == FILES[suite]
    # 13: "Step6, AlexNet, templates lose the image path after training (5)": all five are here. Only Step6's program was
    # seen to take it: its two get it.
    lost = {
        one.path
        for one, plan, _ in corpus_plans()
        for found in plan.findings
        if found.message.startswith("is used after training too")
    }
    assert len(lost) == 2


def test_default_plans_of_the_corpus_hold_together():
    for one, plan, old in corpus_plans():
        ids = [command.id for command in plan.commands]
        assert len(set(ids)) == len(ids), str(one)
        assert len({command.log for command in plan.commands}) == len(ids), str(one)
        if one.mode.trains:
            steps = [Counter(command["step"] for command in old), Counter(one.step for one in plan.commands)]
            assert all(steps[0][step] == steps[1][step] for step in ("train", "eval", "export")), str(one)
        for number, command in enumerate(plan.commands):
            assert set(command.needs) <= set(ids[:number]), f"{one}: {command.id}"
            assert command.needs or command.step not in ("eval", "infer"), f"{one}: {command.id} needs nothing"
            check_paths(one, plan, command)
            check_devices(one, command)


def check_paths(one: Case, plan: Plan, command) -> None:
    """What a run makes stands in its folder, and is named so that it is found from where the command runs."""
    for word in command.argv:
        value = word.partition("=")[2] or word
        if "test_tipc/output" in word and value not in one.text:  # what the file itself names is none of ours
            assert plan.run in word, f"{one}: {command.id}: {word}"
        if plan.run in word and command.cwd != ".":
            assert f"=/w/{plan.run}" in word, f"{one}: {command.id}: {word} is looked for in {command.cwd}"
    assert command.log is not None
    assert command.log.startswith(f"{plan.run}/"), f"{one}: {command.id}: {command.log}"


def check_devices(one: Case, command) -> None:
    """Training sees all GPUs of its leg, what follows the first; without training nobody named one."""
    gpus = command.gpus if command.step in ("train", "other") else command.gpus[:1]
    visible = command.env.get("CUDA_VISIBLE_DEVICES")
    if not one.mode.trains:
        assert visible is None, f"{one}: {command.id}"
    elif command.on_gpu:
        assert visible == ",".join(gpus), f"{one}: {command.id}: {visible}"
    if command.launched:
        text = ",".join(command.gpus)
        assert any(word in (f"--devices={text}", f"--gpus={text}") for word in command.argv), f"{one}: {command.id}"
    else:
        assert "paddle.distributed.launch" not in command.argv, f"{one}: {command.id}"
