"""What of a checkout's TIPC is covered."""

from __future__ import annotations

import pytest
from chain_samples import TEMPLATE
from test_kind_dy2static import BASE
from test_kind_ptq import SEG

from tipchain.chain import gpus
from tipchain.chain.gpus import Gpus
from tipchain.chain.lint import is_checkout, survey
from tipchain.cli import main

DRIVERS = (
    "test_train_inference_python.sh",
    "test_train_inference_python_npu.sh",
    "test_ptq_inference_python.sh",
    "test_serving_infer_python.sh",
    "test_infer_js.sh",
    "prepare.sh",
    "common_func.sh",
)
FILES = {
    "a/train_ptq_infer_python.txt": SEG,
    "b/train_ptq_infer_python.txt": SEG.replace("--batch_num:1\n", ""),
    "a/Net_dy2static.txt": BASE,
    "a/Net_linux_serving_python.txt": "===serving_params===\nmodel_name:Net\n",
    "a/Net_lite_arm_cpu_cpp.txt": "===lite_params===\nruntime_device:ARM_CPU\n",
    "a/notes.txt": "nothing\n",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "find_gpus", lambda: Gpus(numbers=("0",)))
    for name in DRIVERS:
        (tmp_path / "test_tipc").mkdir(exist_ok=True)
        (tmp_path / "test_tipc" / name).write_text("")
    for name, text in FILES.items():
        path = tmp_path / "test_tipc/configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_drivers_and_files_of_each_kind(checkout):
    found = {one.kind: one for one in survey(checkout).kinds}
    assert list(found) == ["train_infer_python", "ptq_infer_python", "dy2static", "serving_python", "lite"]
    assert found["train_infer_python"].drivers == tuple(f"test_tipc/{name}" for name in DRIVERS[:2])
    assert (found["train_infer_python"].files, found["dy2static"].files) == (0, 1)
    assert not found["dy2static"].drivers
    ptq = found["ptq_infer_python"]
    assert (ptq.files, ptq.run, sum(ptq.refused.values())) == (2, 1, 1)
    assert "batch_num" in next(iter(ptq.refused))
    assert (found["lite"].run, next(iter(found["lite"].skipped)).partition(":")[0]) == (
        0,
        "tipchain does not run test_lite_arm_cpu_cpp.sh",
    )
    assert survey(checkout).others == ("test_tipc/test_infer_js.sh",)


def test_without_a_gpu_what_needs_one_cannot_be_run_nor_what_needs_that(checkout, monkeypatch):
    monkeypatch.setattr(gpus, "find_gpus", lambda: Gpus(trouble="no GPU here"))
    found = {one.kind: one for one in survey(checkout).kinds}
    assert (found["ptq_infer_python"].run, found["ptq_infer_python"].skipped) == (0, {"no GPU here": 1})
    assert found["dy2static"].run == 1, "it trains on the CPU"


def test_lint_of_a_checkout_ends_with_what_is_covered(checkout, capsys):
    main(["lint", str(checkout), "-q"])
    table = capsys.readouterr().out
    assert "5 parameter files of 5 kinds of chains, 2 can be run here" in table.replace("\n    ", " ")
    assert "drivers of no kind: test_tipc/test_infer_js.sh" in table


def test_a_checkout_has_a_script(tmp_path):
    (tmp_path / "test_tipc").mkdir()
    assert not is_checkout(tmp_path)
    (tmp_path / "test_tipc" / "prepare.sh").write_text("")
    assert is_checkout(tmp_path)


def test_a_training_file_with_a_benchmarks_section_counts_for_both(checkout):
    path = checkout / "test_tipc/configs/a/train_infer_python.txt"
    path.write_text(TEMPLATE + "===train_benchmark_params===\nbatch_size:8\nfp_items:fp32\nepoch:1\n")
    (checkout / "test_tipc/benchmark_train.sh").write_text("")
    found = {one.kind: one for one in survey(checkout).kinds}
    assert (found["train_infer_python"].files, found["benchmark_train"].files) == (1, 1)
    assert found["benchmark_train"].drivers == ("test_tipc/benchmark_train.sh",)
