"""Legacy plans of real parameter files against the command lists recorded from the original drivers."""

import gzip
import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from command_lists import difference, facts, placed

from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options, plan_json
from tipchain.modes import Mode

CORPUS = Path(__file__).resolve().parents[2] / "../shared/tipc_corpus"
MODES = ("lite_train_lite_infer", "lite_train_whole_infer", "whole_train_whole_infer", "whole_infer")
# How many lists a suite has in each mode: a corpus that lost some must not pass for the whole.
FILES = {
    "paddleclas": 205,
    "paddledetection": 31,
    "paddleseg": 22,
    "medicalseg": 5,
    "tutorial": 2,
    "template": 2,
    "alexnet": 1,
}
# Folder of the checkout that the driver was started in, and what tells that checkout apart.
MARKERS = {
    "paddleclas": ("", "ppcls"),
    "paddledetection": ("", "ppdet"),
    "paddleseg": ("", "paddleseg"),
    "medicalseg": ("contrib/MedicalSeg", "medicalseg"),
    "tutorial": ("tutorials/mobilenetv3_prod/Step6", "paddlevision"),
    "template": ("", "tutorials"),
    "alexnet": ("pipeline/Step5/AlexNet_paddle", "paddlevision"),
}


@cache
def records():
    """Return the recorded lists by suite and mode; skips where there are none."""
    path = CORPUS / "expected.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"the recorded command lists are not here: {path}")
    lists: dict[tuple[str, str], list] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            lists.setdefault((record["suite"], record["mode"]), []).append(record)
    return lists


def test_the_corpus_is_whole():
    assert {key: len(found) for key, found in records().items()} == {
        (suite, mode): count for suite, count in FILES.items() for mode in MODES
    }


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory):
    """Return a function that lays a suite's files in folders like its checkout's and returns where."""
    top = tmp_path_factory.mktemp("checkouts")

    @cache
    def lay(suite: str) -> Path:
        for record in records()[suite, MODES[0]]:
            checkout = top / suite / record["repo"].split("/")[0]
            start, marker = MARKERS[suite]
            (checkout / start / marker).mkdir(parents=True, exist_ok=True)
            file = checkout / record["config"]
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CORPUS / "configs" / record["repo"] / record["config"], file)
        return top / suite

    return lay


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suite", FILES)
def test_the_recorded_commands_with_the_suite_told_from_the_file(suite, mode, checkouts):
    lists = records()[suite, mode]
    top = checkouts(suite)
    found = []
    for record in lists:
        checkout = top / record["repo"].split("/")[0]
        root = checkout / MARKERS[suite][0]
        plan = load_plan(checkout / record["config"], Mode(mode), legacy=True, options=Options(root=str(root)))
        actual = [facts(command) for command in plan_json(plan)["commands"]]
        told = "" if plan.suite == suite else f"taken for a file of {plan.suite}"
        if told := told or difference(placed(record["commands"], root), actual):
            found.append(f"{suite} {record['config']} {mode}: {told}")
    assert not found, f"{len(found)} of {len(lists)} lists differ, the first:\n{found[0]}"
