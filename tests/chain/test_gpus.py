"""Which GPUs there are, plans on leased ones, and that two running commands never share one."""

import os
import subprocess
import sys

import pytest
from chain_samples import TEMPLATE, lay_programs, stub

from tipchain.chain import gpus
from tipchain.chain.gpus import Gpus, Leases, find_gpus, lease_folder, leased_gpus, on_gpus, parse_listing
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Command
from tipchain.modes import Mode

LISTING = """\
GPU 0: NVIDIA A100 (UUID: GPU-aaaa-1)
  MIG 1g.5gb Device 0: (UUID: MIG-cccc-3)
GPU 1: NVIDIA A100 (UUID: GPU-bbbb-2)
"""


def command(*gpus, on_gpu=True):
    return Command(id="x", step="train", argv=("x",), gpus=gpus, on_gpu=on_gpu)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return what makes a machine with device files and an nvidia-smi."""
    monkeypatch.setattr(gpus, "DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(*numbers, smi=None):
        for number in numbers:
            (tmp_path / f"nvidia{number}").touch()
        (tmp_path / "nvidiactl").touch()
        program = str(stub(tmp_path / "nvidia-smi", smi)) if smi else None
        monkeypatch.setattr(gpus.shutil, "which", lambda name: program)
        return find_gpus()

    return make


def test_no_device_file_is_no_gpu(machine):
    assert machine(smi=f"echo '{LISTING}'").trouble.startswith("no usable GPU on this machine (no ")


def test_nvidia_smi_counts_where_it_is(machine):
    found = machine(5, smi=f"echo '{LISTING}'")
    assert found == parse_listing(LISTING)
    assert found.numbers == ("0", "1")


def test_device_files_count_otherwise(machine):
    assert machine(0, 10, 2) == Gpus(numbers=("0", "2", "10"))


@pytest.mark.parametrize("smi", ["exit 9", "echo No devices were found"])
def test_an_nvidia_smi_that_finds_nothing(machine, smi):
    assert machine(0, smi=smi).trouble.startswith("no usable GPU on this machine (nvidia-smi exits ")


@pytest.mark.parametrize(("value", "shown"), [("", "empty"), ("-1", "-1")])
def test_gpus_that_the_user_hid(machine, monkeypatch, value, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert machine(0).trouble == f"no usable GPU here (CUDA_VISIBLE_DEVICES is {shown})"


def test_a_gpu_that_the_machine_lacks_is_named():
    gpus = parse_listing(LISTING)
    assert gpus.why_not(command("0", "1")) == ""
    assert gpus.why_not(command("0", "2", "7")) == "no GPU 2, 7 on this machine, which has 2 GPUs: 0, 1"
    assert Gpus(numbers=("0",)).why_not(command("1")) == "no GPU 1 on this machine, which has 1 GPU: 0"
    assert gpus.why_not(command("9", on_gpu=False)) == ""
    assert Gpus(trouble="none").why_not(command()) == "none"
    assert gpus.why_not(command("GPU-bbbb")) == ""
    assert gpus.why_not(command("MIG-cccc-3")) == ""


def test_what_a_command_takes():
    gpus = parse_listing(LISTING)
    assert gpus.taken_by(command("1", "1")) == ("1",)
    assert gpus.taken_by(command("GPU-bbbb-2", "GPU-aaaa")) == ("1", "0")
    assert gpus.taken_by(command()) == ("0", "1")
    assert Gpus().taken_by(command()) == ("all",)
    assert gpus.taken_by(command(on_gpu=False)) == ()


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


def test_the_command_line_heeds_them(tmp_path, monkeypatch):
    from tipchain.cli import parser_of
    from tipchain.commands.run import _plan

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIPCHAIN_GPUS", "3")
    plan_of(tmp_path, "0,1")
    lay_programs(tmp_path)
    plan = _plan(parser_of("run").parse_args(["t.txt", "lite_train_lite_infer", "--suite", "template"]), "run")
    assert {one.gpus for one in plan.commands if one.step == "train"} == {("3", "1 (of 1 leased)")}


HOLD = (
    "import sys; from pathlib import Path; from tipchain.chain.gpus import Leases\n"
    "print(Leases(Path(sys.argv[1])).take(('0', '2'), 'x'), flush=True); sys.stdin.read()"
)


def test_leases_hold_between_processes_and_end_with_their_holder(tmp_path):
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    leases = Leases(tmp_path)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "\n"
        assert leases.take(("1", "2"), "train[a]") == f"GPU 2, held by process {process.pid}"
        assert leases.take(("1",), "train[a]") == "", "what could not have all has taken none"
        process.kill()
        process.wait(60)
    assert leases.take(("2",), "train[b]") == ""


def test_a_child_that_has_not_become_its_program_yet_does_not_keep_a_lease(tmp_path):
    leases = Leases(tmp_path)
    leases.take(("0",), "a")
    ((_, handle),) = leases._held.values()
    childs = os.dup(handle)
    leases.give_back(("0",))
    assert Leases(tmp_path).take(("0",), "b") == ""
    os.close(childs)


def test_names_of_gpus_become_file_names(tmp_path):
    leases = Leases(tmp_path)
    assert leases.take(("MIG-a/b/../c",), "a") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["MIG-a-b----c.lock"]


def test_a_folder_that_cannot_be_had_leaves_leases_within_the_run(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path / "file", tmp_path / "link", tmp_path / "file/below"):
        leases = Leases(folder)
        assert leases.take(("0",), "a") == ""
        assert str(folder) in leases.trouble
        assert leases.take(("0",), "b") == "GPU 0, held by a"
        leases.give_back(("0",))
        assert leases.take(("0",), "b") == ""


def test_each_user_has_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lease_folder() == tmp_path / f"tipchain-gpus-{os.getuid()}"
    Leases().take(("0",), "a")
    assert lease_folder().stat().st_mode & 0o777 == 0o700
