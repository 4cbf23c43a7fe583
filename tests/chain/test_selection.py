"""Which commands ``--only`` and ``--skip`` leave."""

from __future__ import annotations

import pytest
from chain_samples import a_plan

from tipchain.chain.plan import Command, matches, select
from tipchain.errors import UsageError
from tipchain.modes import Mode


def command(name, *needs):
    return Command(id=name, step=name.partition("[")[0], argv=("x",), needs=needs)


def plan(*commands):
    return a_plan(
        params="p.txt", mode=Mode.LITE_TRAIN_LITE_INFER, out="o", run="r", commands=commands, notes=("first",)
    )


CHAIN = plan(
    command("align[01]"),
    command("train[norm_train;gpus=-1]"),
    command("eval[norm_train;gpus=-1]", "train[norm_train;gpus=-1]"),
    command("export[norm_train;gpus=-1]", "train[norm_train;gpus=-1]"),
    command("infer[cpu;bs=1]", "export[norm_train;gpus=-1]"),
    command("infer[cpu;bs=16]", "export[norm_train;gpus=-1]"),
)


def steps(found):
    return [one.id.partition("[")[0] for one in found.commands]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("train", "train[a]", True),
        ("train[a]", "train[a]", True),
        ("train[a]", "traina", False),
        ("train[ab]", "traina", False),
        ("*bs=1]", "infer[cpu;bs=1]", True),
        ("*bs=1]", "infer[cpu;bs=11]", False),
        ("*bs=1?]", "infer[cpu;bs=11]", True),
        ("infer[*]", "infer[]", True),
        ("train[a.b]", "train[axb]", False),
        ("rain", "train[a]", False),
        ("tra", "train[a]", False),
        ("TRAIN", "train[a]", False),
    ],
)
def test_only_stars_and_question_marks_are_special(pattern, name, found):
    assert matches(pattern, command(name)) is found


def test_both_together():
    assert steps(select(CHAIN, ["infer"], ["train"])) == ["export", "infer", "infer"]
    assert select(CHAIN, ["eval"], ["eval", "train"]).commands == ()


def test_many_ids_are_shortened():
    many = plan(*(command(f"infer[{number}]") for number in range(40)))
    with pytest.raises(UsageError) as caught:
        select(many, ["eval"])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("--only 'eval' names no command of p.txt in mode lite_train_lite_infer")
    assert "    infer[3]" in lines
    assert len(lines) == 15
    assert lines[-1] == "    and 28 more; tipchain plan shows them"
