"""The bash drivers, run in a copy of the project with a stub for prepare.sh."""

import os
import shutil
import sys

import pytest
from chain_samples import PROGRAM, ROOT, TEMPLATE, lay_programs, stub
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


def test_a_file_beside_the_caller_comes_first(project, tmp_path):
    (tmp_path / "own.txt").write_text(TEMPLATE.replace("model_name:net", "model_name:own"))
    lay_programs(project, PROGRAM)
    done = call(project, "own.txt", MODE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit code 0" in done.stdout
    assert (project / "test_tipc/output/own").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage:"),
        (["a", "b", "c", "d"], "usage:"),
        (["--help"], "usage:"),
        (["test_tipc/configs/p.txt", "lite_trian_lite_infer"], "unknown mode lite_trian_lite_infer"),
        (["absent.txt", MODE], "no parameter file absent.txt"),
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


def test_exit_code_4_and_the_gpu_id_pass_through(project):
    params = project / "test_tipc/configs/p.txt"
    params.write_text(TEMPLATE.replace("infer_model:./weights/net.pdparams", "infer_model:null"))
    assert call(project, "test_tipc/configs/p.txt", "whole_infer", "1").returncode == 4
    params.write_text(TEMPLATE.replace("infer_export:export.py", "infer_export:null"))
    (project / "infer.py").write_text("import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])")
    assert call(project, "test_tipc/configs/p.txt", "whole_infer", "1").returncode == 0
    logs = list(project.glob("test_tipc/output/net/whole_infer/runs/*/infer*.log"))
    assert {log.read_text() for log in logs} == {"sees 1\n"}


def test_the_interpreter_is_the_projects_unless_told(project, tmp_path):
    (project / ".venv/bin").mkdir(parents=True)
    stub(project / ".venv/bin/python", 'echo "venv $*"')
    done = call(project, "test_tipc/configs/p.txt", MODE, TIPCHAIN_PYTHON="")
    assert done.stdout == f"venv -m tipchain run test_tipc/configs/p.txt {MODE}\n"
    stub(tmp_path / "mine", 'echo "mine $*"')
    done = call(project, "test_tipc/configs/p.txt", MODE, cwd=tmp_path, TIPCHAIN_PYTHON="./mine")
    assert done.stdout.startswith("mine -m tipchain run")


def test_a_data_folder_of_ones_own_reaches_preparation_and_every_command(project, tmp_path):
    (tmp_path / "my data").mkdir()
    program = f"import os; print('data is', os.environ['TIPCHAIN_DATA'])\n{PROGRAM}"
    lay_programs(project, program)
    done = call(project, "test_tipc/configs/p.txt", MODE, "--data-path", "my data", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "prepared").read_text().splitlines()[-1] == str(tmp_path / "my data")
    logs = [log for log in (project / "test_tipc/output/net" / MODE / "runs").rglob("*.log") if log.is_file()]
    assert logs
    assert all(f"data is {tmp_path / 'my data'}" in log.read_text() for log in logs)
    done = call(project, "test_tipc/configs/p.txt", MODE, "--data-path", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_a_port_that_does_not_take_the_weights_still_runs_the_chain(project):
    lay_programs(project, PROGRAM)
    done = call(project, "test_tipc/configs/p.txt", MODE, PREPARE_EXIT="1")
    assert done.returncode == 1, "whatever the chain says"
    assert "exit code 0" in done.stdout


def test_options_are_handed_on_and_only_the_data_folder_to_the_preparation_too(project, tmp_path):
    (tmp_path / "data").mkdir()
    stub(tmp_path / "python", 'printf "%s\\n" "$@"')
    words = ["1", "--jobs", "2", "--only", "a b", "--data-path", str(tmp_path / "data"), "--resume"]
    done = call(project, "test_tipc/configs/p.txt", MODE, *words, TIPCHAIN_PYTHON=str(tmp_path / "python"))
    shown = done.stdout.splitlines()
    assert shown[:5] == ["-m", "tipchain", "run", "test_tipc/configs/p.txt", MODE]
    assert shown[5:9] == ["--gpu-id", "1", "--python", str(tmp_path / "python")]
    assert shown[9:] == words[1:]
    prepared = (project / "prepared").read_text().splitlines()
    assert prepared == ["test_tipc/configs/p.txt", MODE, "--data-path", str(tmp_path / "data")]


def test_a_dry_run_makes_the_environment_at_most(project, tmp_path):
    stub(tmp_path / "python", 'printf "%s\\n" "$@"')
    done = call(project, "test_tipc/configs/p.txt", MODE, "--dry-run", TIPCHAIN_PYTHON=str(tmp_path / "python"))
    assert done.stdout.splitlines()[-1] == "--dry-run"
    assert (project / "prepared").read_text().splitlines()[2:] == ["--env-only"]


def test_called_through_a_link_it_is_still_our_project(project, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tipc").symlink_to(project / DRIVERS[0])
    stub(tmp_path / "python", 'printf "%s\\n" "$PWD" "$PYTHONPATH" "$@"')
    environment = {"TIPCHAIN_PYTHON": str(tmp_path / "python"), "PYTHONPATH": "mine"}
    done = call(project, "test_tipc/configs/p.txt", MODE, driver=tmp_path / "bin/tipc", cwd=tmp_path, **environment)
    assert done.stdout.splitlines()[:2] == [str(project), f"{project}:mine"], done.stderr
    assert (project / "prepared").exists()


def test_either_name_of_the_driver_is_the_whole_driver():
    assert (ROOT / DRIVERS[1]).resolve() == ROOT / DRIVERS[0]
