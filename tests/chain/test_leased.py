"""Plans on leased GPUs."""

from __future__ import annotations

from chain_samples import TEMPLATE, lay_programs

from tipchain.chain.gpus import Gpus, leased_gpus, on_gpus
from tipchain.chain.load import load_plan
from tipchain.modes import Mode


def plan_of(tmp_path, gpu_list, suite="template"):
    path = tmp_path / "t.txt"
    path.write_text(TEMPLATE.replace("gpu_list:-1", f"gpu_list:{gpu_list}"))
    return load_plan(path, Mode.LITE_TRAIN_LITE_INFER, suite=suite)


def train(plan):
    return [command for command in plan.commands if command.step == "train"]


def test_numbers_count_the_leased_ones(tmp_path):
    plan = plan_of(tmp_path, "0|0,1")
    moved = on_gpus(plan, ("4", "6"))
    one, two = train(moved)
    assert [command.id for command in moved.commands] == [command.id for command in plan.commands]
    assert (one.gpus, one.env["CUDA_VISIBLE_DEVICES"]) == (("4",), "4")
    assert (two.gpus, two.env["CUDA_VISIBLE_DEVICES"]) == (("4", "6"), "4,6")
    assert "--gpus=0,1" in train(plan)[1].argv
    assert "--gpus=4,6" in two.argv


def test_a_number_that_was_not_leased_is_no_gpu(tmp_path):
    (_, two) = train(on_gpus(plan_of(tmp_path, "0|0,1"), ("GPU-aa",)))
    gpus = Gpus(numbers=("0", "1"), names={"GPU-aabb": "1"})
    assert gpus.why_not(two) == "no GPU 1 (of 1 leased) on this machine, which has 2 GPUs: 0, 1"


def test_without_leases_nothing_changes(tmp_path, monkeypatch):
    plan = plan_of(tmp_path, "0|0,1")
    monkeypatch.delenv("TIPCHAIN_GPUS", raising=False)
    assert leased_gpus() == ()
    assert on_gpus(plan, ()) is plan
    monkeypatch.setenv("TIPCHAIN_GPUS", "3,5")
    assert leased_gpus() == ("3", "5")


def test_the_command_line_heeds_them(tmp_path, monkeypatch, capsys):
    from tipchain.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIPCHAIN_GPUS", "3")
    plan_of(tmp_path, "0,1")
    lay_programs(tmp_path)
    main(["run", "t.txt", "lite_train_lite_infer", "--suite", "template", "--dry-run"])
    out = capsys.readouterr().out
    assert "1 (of 1 leased)" in out or "no usable GPU" in out
    assert "GPU 3,1 (of 1 leased)" in out
