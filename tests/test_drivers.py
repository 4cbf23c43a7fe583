"""The bash drivers, run in a copy of the project with a stub for prepare.sh."""

import os
import shutil
import sys

import pytest
from chain_samples import ROOT, TEMPLATE, lay_programs, stub
from programs import completed

MODE = "lite_train_lite_infer"
DRIVERS = ("test_train_inference_python.sh", "test_tipc/test_train_inference_python.sh")


pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "my project"
    (folder / "test_tipc/configs").mkdir(parents=True)
    for driver in DRIVERS:
        shutil.copy(ROOT / driver, folder / driver)
    (folder / "test_tipc/configs/p.txt").write_text(TEMPLATE)
    (folder / "prepare.sh").write_text('printf "%s\\n" "$@" > prepared; exit "${PREPARE_EXIT:-0}"\n')
    (folder / "tipchain").symlink_to(ROOT / "tipchain")
    return folder


def call(project, *arguments, driver=DRIVERS[0], cwd=None, **env):
    env = {"TIPCHAIN_PYTHON": sys.executable, **env}
    return completed(
        ["bash", str(project / driver), *arguments], cwd=cwd or project, env={**os.environ, **env}, timeout=120
    )


@pytest.fixture
def recorder(tmp_path):
    """An interpreter that shows how it was started."""
    return {"TIPCHAIN_PYTHON": str(stub(tmp_path / "python", 'printf "%s\\n" "$PWD" "$PYTHONPATH" "$@"'))}


@pytest.mark.parametrize("driver", DRIVERS)
def test_prepares_and_runs_from_any_folder(project, tmp_path, driver):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lay_programs(project, "raise SystemExit(3)")
    done = call(project, "test_tipc/configs/p.txt", MODE, driver=driver, cwd=elsewhere)
    assert done.returncode == 1, done.stderr
    assert (project / "prepared").read_text().split() == ["test_tipc/configs/p.txt", MODE]
    assert "FAIL" in done.stdout
    assert "exit 3" in done.stdout
    assert (project / "test_tipc/output/net" / MODE / "results_python.log").exists()
    assert not list(elsewhere.iterdir())


def test_a_file_beside_the_caller_comes_first(project, tmp_path, recorder):
    (tmp_path / "own.txt").write_text(TEMPLATE)
    done = call(project, "own.txt", MODE, cwd=tmp_path, **recorder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[5] == str(tmp_path / "own.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage:"),
        (["test_tipc/configs/p.txt", "lite_trian_lite_infer"], "unknown mode lite_trian_lite_infer"),
        (["absent.txt", MODE], "no parameter file absent.txt"),
        (["test_tipc/configs/p.txt", MODE, "--data-path", "nowhere"], "usage:"),
    ],
)
def test_wrong_use_is_2_and_prepares_nothing(project, arguments, message):
    done = call(project, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (project / "prepared").exists()


def test_a_failed_preparation_ends_the_driver_with_its_code(project):
    done = call(project, "test_tipc/configs/p.txt", MODE, PREPARE_EXIT="7")
    assert done.returncode == 7
    assert not (project / "test_tipc/output").exists()


def test_exit_code_4_passes_through(project):
    params = project / "test_tipc/configs/p.txt"
    params.write_text(TEMPLATE.replace("infer_model:./weights/net.pdparams", "infer_model:null"))
    assert call(project, "test_tipc/configs/p.txt", "whole_infer", "1").returncode == 4


def test_the_interpreter_is_the_projects_unless_told(project, tmp_path):
    (project / ".venv/bin").mkdir(parents=True)
    stub(project / ".venv/bin/python", 'echo "venv $*"')
    done = call(project, "test_tipc/configs/p.txt", MODE, TIPCHAIN_PYTHON="")
    assert done.stdout == f"venv -m tipchain run test_tipc/configs/p.txt {MODE}\n"
    stub(tmp_path / "mine", 'echo "mine $*"')
    done = call(project, "test_tipc/configs/p.txt", MODE, cwd=tmp_path, TIPCHAIN_PYTHON="./mine")
    assert done.stdout.startswith("mine -m tipchain run")


def test_a_port_that_does_not_take_the_weights_still_runs_the_chain(project, recorder):
    done = call(project, "test_tipc/configs/p.txt", MODE, PREPARE_EXIT="1", **recorder)
    assert done.returncode == 1, "whatever the chain says"
    assert "run" in done.stdout.splitlines()


def test_options_are_handed_on_and_only_the_data_folder_to_the_preparation_too(project, tmp_path, recorder):
    (tmp_path / "my data").mkdir()
    words = ["1", "--jobs", "2", "--only", "a b", "--resume", "--data-path", "my data"]
    done = call(project, "test_tipc/configs/p.txt", MODE, *words, cwd=tmp_path, **recorder)
    shown = done.stdout.splitlines()[2:]
    assert shown[:5] == ["-m", "tipchain", "run", "test_tipc/configs/p.txt", MODE]
    assert shown[5:9] == ["--gpu-id", "1", "--python", recorder["TIPCHAIN_PYTHON"]]
    assert shown[9:] == [*words[1:-1], str(tmp_path / "my data")]
    prepared = (project / "prepared").read_text().splitlines()
    assert prepared == ["test_tipc/configs/p.txt", MODE, "--data-path", str(tmp_path / "my data")]


def test_a_dry_run_makes_the_environment_at_most(project, recorder):
    done = call(project, "test_tipc/configs/p.txt", MODE, "--dry-run", **recorder)
    assert done.stdout.splitlines()[-1] == "--dry-run"
    assert (project / "prepared").read_text().splitlines()[2:] == ["--env-only"]


def test_either_name_of_the_driver_is_the_whole_driver():
    assert (ROOT / DRIVERS[1]).resolve() == ROOT / DRIVERS[0]
