"""tipchain in the checkout of a suite whose other scripts run, edit and source the suite's own driver."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from chain_samples import ROOT, TEMPLATE, edit, lay_params, lay_programs
from programs import completed

OURS = ROOT / "test_train_inference_python.sh"
DRIVER = "test_tipc/test_train_inference_python.sh"
PARAMS = "test_tipc/configs/net/train_infer_python.txt"
MODE = "lite_train_lite_infer"

# What a suite's own scripts do with its driver, each in as few lines as may be.
SCRIPTS = {
    "test_train_inference_python.sh": """\
        file=$1 mode=$2 log=test_tipc/output/net/$2
        python=$(sed -n 's/^python://p' $file) && mkdir -p $log
        where="gpu"
        run_inference() { $python infer.py --model=$1 --device=$where > $log/infer.log 2>&1; }
        if [ $mode != whole_infer ]; then
          export CUDA_VISIBLE_DEVICES=0
          $python train.py --device=$where $(sed -n 's/^train_args://p' $file)
          sleep 5
          run_inference $log
        fi
        """,
    "benchmark_train.sh": """\
        cp $1 test_tipc/benchmark.txt && mkdir -p log
        timeout 1m bash test_tipc/test_train_inference_python.sh test_tipc/benchmark.txt benchmark_train > log/train 2>&1
        cat log/train
        python analysis.py --log log/train
        """,
    "test_train_inference_python_npu.sh": """\
        sed -i 's/--device:cpu/--device:npu/' $1
        sed -i 's/"gpu"/"npu"/g' test_tipc/test_train_inference_python.sh
        cmd="bash test_tipc/test_train_inference_python.sh $1 $2"
        eval $cmd
        """,
    "test_inference_jetson.sh": """\
        source test_tipc/test_train_inference_python.sh
        run_inference ./inference
        echo came to the end
        """,
}
CALLERS = sorted(set(SCRIPTS) - {"test_train_inference_python.sh"})


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "suite"
    lay_params(folder, edit(TEMPLATE, ("python:", "python:python3.7")))
    for name, text in SCRIPTS.items():
        (folder / "test_tipc" / name).write_text("#!/bin/bash\n" + text)
    lay_programs(folder)
    return folder


def replace(suite: Path, *, link: bool = False) -> None:
    (suite / DRIVER).unlink()
    (suite / DRIVER).symlink_to(OURS) if link else shutil.copy(OURS, suite / DRIVER)


def run(suite: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return completed(words, cwd=suite, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("mode", [MODE, "benchmark_train"])
def test_in_anothers_place_it_does_nothing_and_says_so(suite, mode, link):
    replace(suite, link=link)
    shutil.copy(OURS, suite / "test_tipc/tipchain.sh")  # no user of the driver
    done = run(suite, "bash", DRIVER, PARAMS, mode)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("error:") == 1
    assert f"where {' '.join(CALLERS)} need the suite's own" in done.stderr
    assert "beside it, as test_tipc/tipchain.sh" in done.stderr
    assert not (suite / "test_tipc/output").exists()


@pytest.mark.parametrize(
    ("script", "log"), [("benchmark_train.sh", "log/train"), ("test_train_inference_python_npu.sh", None)]
)
def test_no_script_that_runs_it_in_anothers_place_sees_a_success(suite, script, log):
    replace(suite)
    driver = suite / DRIVER
    driver.write_text(driver.read_text().replace("main() {", "trap 'echo $? > code' EXIT\nmain() {", 1))
    done = run(suite, "bash", f"test_tipc/{script}", PARAMS, MODE)
    text = (suite / log).read_text() if log else done.stderr
    assert "is tipchain's driver" in text
    assert (suite / "code").read_text() == "2\n"


def test_a_script_that_sources_it_ends_there(suite):
    replace(suite)
    for words in (("whole_infer",), ()):
        done = run(suite, "bash", "test_tipc/test_inference_jetson.sh", PARAMS, *words)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "is tipchain's driver, which is run and not sourced" in done.stderr
        assert "command not found" not in done.stderr


def test_a_shell_that_sources_it_stays_as_it_was(suite):
    replace(suite)
    done = run(suite, "bash", "--norc", "-ic", f"source {DRIVER}; echo code $?; false; echo still here $-")
    assert "code 2\nstill here" in done.stdout
    assert "u" not in done.stdout.split()[-1], "set -u does not reach it"
