"""Default plans of real parameter files hold together: ids, logs, what needs what, paths and GPUs."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from test_corpus import CORPUS, FILES, MODES, records

from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options, Plan
from tipchain.errors import ParamsError
from tipchain.modes import Mode

SAMPLES = Path(__file__).parent / "samples"
# Samples that only the original takes, or that are right beside their own driver alone, and why the default refuses them.
REFUSED = {"template/edges.txt": "would be acted on by a shell", "tutorial/two_files.txt": "is too many"}


def planned(suite: str, path: Path, mode: Mode, *, legacy: bool = False) -> Plan:
    return load_plan(path, mode, suite=suite, legacy=legacy, lenient=True, options=Options(root="/w"))


@cache
def corpus_plans(suite: str, mode: str) -> tuple[tuple[Path, Plan, tuple], ...]:
    """Return each file of the corpus, its default plan and the recorded commands."""
    return tuple(
        (path, planned(suite, path, Mode(mode)), tuple(record["commands"]))
        for record in records()[suite, mode]
        for path in [CORPUS / "configs" / record["repo"] / record["config"]]
    )


def check(path: Path, plan: Plan, old) -> None:
    ids = [command.id for command in plan.commands]
    assert len(set(ids)) == len(ids), str(path)
    assert len({command.log for command in plan.commands}) == len(ids), str(path)
    if plan.mode.trains:
        steps = [Counter(command["step"] for command in old), Counter(one.step for one in plan.commands)]
        assert all(steps[0][step] == steps[1][step] for step in ("train", "eval", "export")), str(path)
    text = path.read_text("utf-8-sig")
    for number, command in enumerate(plan.commands):
        assert set(command.needs) <= set(ids[:number]), f"{path}: {command.id}"
        assert command.needs or command.step not in ("eval", "infer"), f"{path}: {command.id} needs nothing"
        check_paths(path, text, plan, command)
        check_devices(path, plan.mode, command)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suite", FILES)
def test_default_plans_of_the_corpus_hold_together(suite, mode):
    for path, plan, old in corpus_plans(suite, mode):
        check(path, plan, old)


@pytest.mark.parametrize("name", REFUSED)
def test_samples_that_only_the_original_takes(name):
    suite, _, file = name.partition("/")
    with pytest.raises(ParamsError, match=REFUSED[name]):
        planned(suite, SAMPLES / suite / file, Mode.LITE_TRAIN_LITE_INFER)


def test_defects_of_the_originals_are_not_in_default_plans():
    plans = [one for mode in MODES for one in corpus_plans("paddleclas", mode)]
    # The originals train all of them for 2 epochs.
    own = [word for _, plan, _ in plans for one in plan.commands for word in one.argv if "Global.epochs=" in word]
    assert len(set(own)) > 2
    # The originals export 21 of them without weights.
    exports = [one.argv for _, plan, _ in plans for one in plan.commands if one.step == "export"]
    assert all("Global.pretrained_model" in " ".join(argv) for argv in exports)


def check_paths(path: Path, text: str, plan: Plan, command) -> None:
    """What a run makes stands in its folder, and is named so that it is found from where the command runs."""
    for word in command.argv:
        value = word.partition("=")[2] or word
        if "test_tipc/output" in word and value not in text:  # what the file itself names is none of ours
            assert plan.run in word, f"{path}: {command.id}: {word}"
        if plan.run in word and command.cwd != ".":
            assert f"=/w/{plan.run}" in word, f"{path}: {command.id}: {word} is looked for in {command.cwd}"
    assert command.log is not None
    assert command.log.startswith(f"{plan.run}/"), f"{path}: {command.id}: {command.log}"


def check_devices(path: Path, mode: Mode, command) -> None:
    """Training sees all GPUs of its leg, what follows the first; without training nobody named one."""
    gpus = command.gpus if command.step in ("train", "other") else command.gpus[:1]
    visible = command.env.get("CUDA_VISIBLE_DEVICES")
    if not mode.trains:
        assert visible is None, f"{path}: {command.id}"
    elif command.on_gpu:
        assert visible == ",".join(gpus), f"{path}: {command.id}: {visible}"
    if command.launched:
        text = ",".join(command.gpus)
        assert any(word in (f"--devices={text}", f"--gpus={text}") for word in command.argv), f"{path}: {command.id}"
    else:
        assert "paddle.distributed.launch" not in command.argv, f"{path}: {command.id}"
