"""Which GPUs there are."""

from __future__ import annotations

import pytest
from chain_samples import stub

from tipchain.chain import gpus
from tipchain.chain.gpus import Gpus, find_gpus, parse_listing
from tipchain.chain.plan import Command

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
