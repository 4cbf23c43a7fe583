"""The bash part of the set-up, with a stub for the Python that makes environments: nothing here uses a network."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from chain_samples import DEMO_ALIGNMENT, DEMO_CASE, DEMO_HEAD, stub
from packaging.requirements import Requirement
from programs import await_

from tipchain.modes import CHAIN_MODES

PROJECT = Path(__file__).resolve().parents[1]
ENVIRONMENT = PROJECT / "tools/environment.sh"
PARAMS = "test_tipc/configs/demo/train_infer_python.txt"
LITE = "lite_train_lite_infer"
PIPS = 6
"""Calls of pip where it finds no uv: uv, pip itself, what it would fetch for torch, the frameworks beside the others, what the frameworks need."""
CPU = json.dumps({"install": [{"metadata": {"name": "torch", "version": "2.13.0", "requires_dist": ["filelock"]}}]})
CUDA = CPU.replace("filelock", "nvidia-cublas==13")

# Behaves like a base Python; environments that it makes get the stub below as their interpreter.
BASE = """
[[ $* != --version ]] || { echo "Python ${STUB_VERSION:-3.11.9}"; exit; }
[[ -z ${STUB_UNFIT:-} ]] || exit 1
if [[ $1 == -m && $2 == venv ]]; then
  echo venv >> "$STUB_LOG"
  mkdir -p "$3/bin" "$3/lib" && cp "$STUB_FOLDER/inner" "$3/bin/python"
  touch "$3/lib/module.py" && echo "no Python" > "$3/lib/template.py"
  exit
fi
exec REAL "$@"
"""
# Logs calls of pip instead of doing them; anything else runs for real.
INNER = """
if [[ $1 == -m && $2 == pip && "$*" != *"config list" ]]; then
  echo "$*" >> "$STUB_LOG"
  [[ $* != *--dry-run* ]] || { echo "User for index: "; cat "$STUB_FOLDER/report" >/dev/fd/3; exit; }
  [[ $* != *" uv" ]] || { [[ ! -e $STUB_FOLDER/uv_of_pip ]] || cp "$STUB_FOLDER/uv_of_pip" "${0%/*}/uv"; exit; }
  [[ -z ${STUB_KILL:-} || $* != *--build-constraint* ]] || kill -9 0
  sleep "${STUB_SLEEP:-0}"
  [[ -z ${STUB_HANGS:-} || $* == *"--upgrade pip" ]] || sleep 600
  [[ -z ${STUB_FAILS:-} || $* != *"$STUB_FAILS"* ]]
  exit
fi
PYTHONPATH="$STUB_FOLDER/../project" exec REAL "$@"
"""
# Logs its calls and what it is told; says what it would install for torch.
UV = """
{ echo "uv $*"; env | grep "^UV_" | sort; } >> "$STUB_LOG"
[[ $2 != compile ]] || { cat >> "$STUB_LOG"; cat "$STUB_FOLDER/compiled"; }
[[ -z ${STUB_UV_FAILS:-} || $2 != "$STUB_UV_FAILS" ]] || { echo "error: no such index" >&2; exit 2; }
"""


class Project:
    """A copy of what the set-up needs, with stubs before everything else on PATH."""

    def __init__(self, folder: Path) -> None:
        self.root, self.stubs = folder / "project", folder / "stubs"
        for name in (
            "prepare.sh",
            "test_tipc/prepare.sh",
            "tools/environment.sh",
            "tools/installers.py",
            "constraints.txt",
            "pyproject.toml",
        ):
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, target)
        (self.root / "tipchain").symlink_to(PROJECT / "tipchain")
        self.write(PARAMS, DEMO_HEAD + DEMO_ALIGNMENT)
        self.write("configs/demo.yaml", DEMO_CASE)
        self.stubs.mkdir()
        for name, text in (("python3", BASE), ("inner", INNER)):
            stub(self.stubs / name, text.replace("REAL", f'"{sys.executable}"'))
        (self.stubs / "report").write_text(CPU)
        self.path = path_without("uv", folder)
        self.log = self.stubs / "log"
        self.venv = self.root / ".venv"
        self.state = self.venv / ".tipchain-set-up"

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self, **more: str) -> dict[str, str]:
        told = ("TIPCHAIN_PYTHON", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        kept = {key: value for key, value in os.environ.items() if key not in told and key[:4] not in ("PIP_", "UV_")}
        return {
            **kept,
            "PATH": f"{self.stubs}:{self.path}",
            "PIP_CONFIG_FILE": os.devnull,
            "STUB_LOG": str(self.log),
            "STUB_FOLDER": str(self.stubs),
            **more,
        }

    def start(self, *args: str, script: str = "prepare.sh", cwd: Path | None = None, **more: str):
        return subprocess.Popen(
            ["bash", str(self.root / script), *args],
            cwd=cwd or self.root,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def prepare(self, *args: str, **more) -> subprocess.CompletedProcess[str]:
        with self.start(*args, **more) as process:
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def has_uv(self, compiled: str = "torch==2.13.0+cpu\nsympy==1.14.0\n", name: str = "uv") -> None:
        stub(self.stubs / name, UV)
        (self.stubs / "compiled").write_text(compiled)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def path_without(program: str, folder: Path) -> str:
    """Return PATH with what lies beside ``program``, but not that."""
    places = [Path(one) for one in os.environ["PATH"].split(os.pathsep)]
    for number, place in enumerate(places):
        if (place / program).exists():
            places[number] = folder / f"path{number}"
            places[number].mkdir()
            for other in place.iterdir():
                if other.name != program:
                    (places[number] / other.name).symlink_to(other)
    return os.pathsep.join(map(str, places))


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture
def ready(project):
    assert project.prepare(PARAMS, LITE, "--env-only").returncode == 0
    project.log.unlink()
    return project


@pytest.mark.parametrize("option", ["", "--dev"])
def test_the_environment_is_made_under_the_constraints(project, option):
    done = project.prepare(PARAMS, LITE, "--env-only", *filter(None, [option]))
    assert done.returncode == 0, done.stderr
    venv, uv, pip, dry, *beside, last = project.calls()
    assert venv == "venv"
    assert uv.endswith("-c constraints.txt uv")
    assert pip.endswith("-c constraints.txt --upgrade pip")
    assert "--dry-run --no-deps" in dry
    (frameworks,) = (call for call in beside if call.endswith("--no-deps torch paddlepaddle reprod-log"))
    (others,) = set(beside) - {frameworks}
    assert "-c constraints.txt" in frameworks
    assert "-c constraints.txt --no-warn-conflicts --build-constraint constraints.txt -e .[cases,onnx]" in others
    assert others.endswith("--group dev") == bool(option)
    assert last.endswith("-c constraints.txt torch paddlepaddle reprod-log"), "what the frameworks need"
    assert "CUDA" not in done.stderr
    assert not (project.root / "test_tipc/data").exists()


@pytest.mark.parametrize(("option", "fetched"), [("", True), ("--dev", False)])
def test_uv_makes_the_environment_and_pip_fetches_it_where_it_is_not_installed(project, option, fetched):
    project.has_uv(name="uv_of_pip" if fetched else "uv")
    told = {
        "PIP_FIND_LINKS": "/wheels ~/more",
        "PIP_INDEX_URL": "https://pip.test/simple",
        "UV_INDEX": "https://uv.test",
    }
    done = project.prepare(PARAMS, LITE, "--env-only", *filter(None, [option]), **told, HOME="/home/me")
    assert done.returncode == 0, done.stderr
    venv, *lines = project.calls()
    assert venv == "venv"
    assert not fetched or lines.pop(0).endswith("install -qq --no-input --no-compile -c constraints.txt uv"), "it asks"
    variables = [
        "UV_BUILD_CONSTRAINT=constraints.txt",
        "UV_CONSTRAINT=constraints.txt",
        "UV_DEFAULT_INDEX=https://pip.test/simple",
        "UV_FIND_LINKS=/wheels,/home/me/more",
        "UV_INDEX=https://uv.test",
        "UV_INDEX_STRATEGY=unsafe-best-match",
    ]
    python = f"--python {project.venv}/bin/python"
    words = f"uv pip install --quiet {python} pip torch paddlepaddle reprod-log -e .[cases,onnx]{' --group dev' if option else ''}"
    assert lines == [
        f"uv pip compile --quiet --no-header --no-annotate {python} -",
        *variables,
        "torch",
        words,
        *variables,
    ]
    assert "CUDA" not in done.stderr
    project.log.unlink()
    assert project.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert project.calls() == []


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"STUB_UV_FAILS": "compile"}, "error: no such index"),
        ({"STUB_UV_FAILS": "install"}, "error: no such index"),
        ({"PIP_NO_BINARY": "numpy"}, "error: pip's settings: uv has no variable for no-binary"),
    ],
)
def test_pip_goes_on_where_uv_cannot(project, told, reason):
    project.has_uv()
    done = project.prepare(PARAMS, LITE, "--env-only", **told)
    assert done.returncode == 0, done.stderr
    assert len([call for call in project.calls() if call.startswith("-m pip")]) == PIPS - 1, "uv is here"
    assert done.stderr.index(reason) < done.stderr.index("going on with pip") < done.stderr.index("environment ready")


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_a_second_call_installs_nothing_and_with_a_changed_lock_into_the_same_environment(ready, name):
    before = ready.state.stat().st_mtime_ns
    done = ready.prepare(PARAMS, LITE, "--env-only")
    assert (done.returncode, ready.calls(), ready.state.stat().st_mtime_ns) == (0, [], before)
    with (ready.root / name).open("a") as file:
        file.write("# changed\n")
    assert ready.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert "venv" not in ready.calls()
    assert len(ready.calls()) == PIPS


def test_the_development_tools_are_added_once_and_kept(ready):
    for count, options in ((PIPS, ["--dev"]), (0, ["--dev"]), (0, [])):
        assert ready.prepare(PARAMS, LITE, "--env-only", *options).returncode == 0
        assert len(ready.calls()) == count
        ready.log.unlink(missing_ok=True)
    with (ready.root / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    ready.prepare(PARAMS, LITE, "--env-only")
    assert any(call.endswith("--group dev") for call in ready.calls())


def test_force_makes_the_environment_anew_only_where_the_environment_was_asked_for(ready):
    assert ready.prepare(PARAMS, LITE, "--env-only", "--force").returncode == 0
    assert ready.calls()[0] == "venv"
    assert not Path(f"{ready.venv}.old").exists()
    ready.log.unlink()
    assert ready.prepare(PARAMS, LITE, "--data-only", "--force").returncode == 0
    assert ready.calls() == []


def test_a_set_up_that_was_killed_is_done_again_from_the_start(project):
    killed = project.prepare(PARAMS, LITE, "--env-only", STUB_KILL="1")
    assert killed.returncode == -signal.SIGKILL
    assert project.state.read_text() == "started"
    refused = project.prepare(PARAMS, LITE, "--data-only")
    assert refused.returncode == 2
    assert "no complete environment yet" in refused.stderr
    (project.venv / "half-installed").write_text("")
    project.log.unlink()
    assert project.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert project.calls()[0] == "venv"
    assert not (project.venv / "half-installed").exists()


def test_the_frameworks_do_not_go_on_without_the_set_up(project):
    process = project.start("--env-only", STUB_HANGS="1")
    # Both of pip: a signal that comes as bash forks the second is lost on it.
    both = ("--no-deps torch paddlepaddle", "-e .[cases")
    await_(lambda: all(any(one in call for call in project.calls()) for one in both))
    with process:
        for _ in range(20):  # one that comes as bash forks anything is lost on it, too: a user presses Ctrl-C again
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=3)  # until nobody has its output open
                break
        else:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert project.state.read_text() == "started"


def test_the_frameworks_are_those_of_the_extra():
    text = (PROJECT / "pyproject.toml").read_text()
    extra = re.search(r"^cpu = \[(.*)\]$", text, flags=re.MULTILINE)[1]
    (line,) = (line for line in ENVIRONMENT.read_text().splitlines() if line.startswith("FRAMEWORKS=("))
    assert set(re.findall(r'"([\w-]+)', extra)) == set(re.findall(r"\((.*)\)", line)[0].split())


def test_an_environment_that_lost_its_python_is_made_again(ready):
    (ready.venv / "bin/python").unlink()
    assert ready.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert ready.calls()[0] == "venv"


def test_a_moved_project_installs_again(ready):
    ready.root = ready.root.rename(ready.root.with_name("moved"))
    assert ready.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert len(ready.calls()) == PIPS


def test_an_environment_of_the_users_own_is_completed_not_replaced(project):
    (project.venv / "bin").mkdir(parents=True)
    shutil.copy(project.stubs / "inner", project.venv / "bin/python")
    (project.venv / "mine").write_text("")
    assert project.prepare(PARAMS, LITE, "--env-only").returncode == 0
    assert "venv" not in project.calls()
    assert (project.venv / "mine").exists()


def test_a_folder_that_is_no_environment_stays(project):
    (project.venv / "mine").mkdir(parents=True)
    done = project.prepare(PARAMS, LITE, "--env-only")
    assert done.returncode == 2
    assert "is in the way" in done.stderr
    assert (project.venv / "mine").is_dir()


@pytest.mark.parametrize(
    "call", ["--upgrade pip", "--no-deps torch", "-e .", "constraints.txt torch paddlepaddle reprod-log"]
)
def test_a_failing_pip_is_exit_2_and_not_taken_for_complete(project, call):
    done = project.prepare(PARAMS, LITE, "--env-only", STUB_FAILS=call)
    assert done.returncode == 2
    assert "the set-up failed in: pip install" in done.stderr
    assert project.state.read_text() == "started"


def test_two_set_ups_at_once_make_one_environment(project):
    first = project.start(PARAMS, LITE, "--env-only", STUB_SLEEP="0.5")
    await_(project.calls)
    second = project.start(PARAMS, LITE, "--env-only")
    with first, second:
        results = [process.communicate(timeout=60) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert "waiting for another set-up" in results[1][1]
    assert project.calls().count("venv") == 1
    assert len(project.calls()) == 1 + PIPS


@pytest.mark.parametrize("uv", [False, True])
def test_cuda_is_announced_before_it_is_fetched(project, uv):
    (project.stubs / "report").write_text(CUDA)
    if uv:
        project.has_uv("nvidia-cublas==13.0\ntorch==2.13.0\n")
    done = project.prepare(PARAMS, LITE, "--env-only")
    assert done.returncode == 0, done.stderr
    assert "PIP_EXTRA_INDEX_URL" in done.stderr
    assert uv or "User for index: " in done.stderr, "what pip asks is seen"
    assert done.stderr.index("PIP_EXTRA_INDEX_URL") < done.stderr.index("environment ready")


def test_without_a_fitting_python_it_says_what_it_found(project):
    for name in ("python3.10", "python3.11", "python3.12", "python3.13"):
        shutil.copy(project.stubs / "python3", project.stubs / name)
    done = project.prepare(PARAMS, LITE, "--env-only", STUB_UNFIT="1", STUB_VERSION="3.9.2")
    assert done.returncode == 2
    assert "found: python3 (Python 3.9.2), python3.13" in done.stderr
    assert "python3-venv" in done.stderr
    assert not project.venv.exists()


def test_another_python_on_the_path_is_tried(project):
    shutil.copy(project.stubs / "python3", project.stubs / "python3.13")
    (project.stubs / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert project.prepare(PARAMS, LITE, "--env-only").returncode == 0


@pytest.mark.parametrize("script", ["prepare.sh", "test_tipc/prepare.sh"])
def test_data_is_prepared_from_any_folder(ready, tmp_path, script):
    for params in (PARAMS, str(ready.root / PARAMS)):
        done = ready.prepare(params, LITE, "--data-only", cwd=tmp_path, script=script)
        assert done.returncode == 0, done.stderr
    assert (ready.root / "test_tipc/data/lite_data/manifest.json").is_file()
    assert "ready" in done.stdout
    assert not (ready.root / "test_tipc/data/weights").exists()


def test_ones_own_python_is_used_as_it_is(project, tmp_path):
    data = tmp_path / "my data"
    for split in ("train", "val"):
        (data / split / "cat").mkdir(parents=True)
        (data / split / "cat/1.png").write_bytes(b"")
    options = ("--data-only", "--data-path", str(data))
    done = project.prepare(PARAMS, LITE, *options, "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert "1 classes" in done.stdout
    assert project.prepare(PARAMS, LITE, *options, TIPCHAIN_PYTHON=sys.executable).returncode == 0
    assert (project.calls(), project.venv.exists()) == ([], False)


def test_a_python_that_lacks_something_gets_nothing_installed(project, tmp_path):
    bare = stub(tmp_path / "bare", f'exec "{sys.executable}" -S -E -I "$@"')
    done = project.prepare(PARAMS, LITE, "--python", str(bare))
    assert done.returncode == 2
    assert "nothing was installed into it" in done.stderr
    done = project.prepare(PARAMS, LITE, "--python", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "no such program" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "usage:"),
        ([PARAMS, LITE, "--nope"], "unknown option --nope"),
        ([PARAMS, LITE, "--python"], "--python needs a path"),
        ([PARAMS, LITE, "--env-only", "--data-only"], "exclude each other"),
        ([PARAMS, "lite_trian_lite_infer"], "unknown mode 'lite_trian_lite_infer'"),
        ([PARAMS, ""], "unknown mode ''"),
        (["nothing.txt", LITE], "nothing.txt: no such parameter file"),
    ],
)
def test_wrong_use_is_exit_2_before_anything_is_made(project, args, message):
    done = project.prepare(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert (project.calls(), project.venv.exists()) == ([], False)


RUN_STUB = """
[[ ! -v PYTHONDONTWRITEBYTECODE ]] || echo "$(basename "$0") keeps no bytecode" >> "$STUB_LOG"
echo "$(basename "$0") $*" | tee -a "$STUB_LOG"
[[ " $STUB_FAILING " != *" $(basename "$0")${2:-} "* ]]
"""


@pytest.mark.parametrize(
    ("failing", "code"),
    [("", 0), ("ruff--check", 1), ("shellcheck.ci/run", 1), ("pythonpytest", 1), ("mypy pythonpytest", 1)],
)
def test_the_test_script_runs_every_stage_and_fails_if_one_fails(project, failing, code):
    target = project.root / "tests/run.sh"
    target.parent.mkdir()
    shutil.copy(PROJECT / "tests/run.sh", target)
    shutil.copytree(PROJECT / ".ci", project.root / ".ci")
    (project.root / "test_tipc/configs/alexnet").mkdir(parents=True)
    project.write("test_tipc/configs/alexnet/train_infer_python.txt", "")
    subprocess.run(["git", "init", "-q", str(project.root)], check=True)
    for name in ("ruff", "mypy", "shellcheck", "python"):
        stub(project.stubs / name, RUN_STUB)
    more = {"TIPCHAIN_PYTHON": str(project.stubs / "python"), "STUB_FAILING": failing, "PYTHONDONTWRITEBYTECODE": "1"}
    done = project.prepare("-k", "some words", script=".ci/run", cwd=project.root.parent, **more)
    assert done.returncode == code, done.stderr
    prepared = "python -m tipchain prepare test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer"
    calls = [call for call in project.calls() if not call.startswith("python -c")]
    calls.remove(prepared)  # at any time
    assert calls[:3] == ["ruff check", "ruff format --check", "mypy "]
    assert calls[3].startswith("shellcheck -x .ci/run prepare.sh test_tipc/prepare.sh tests/run.sh tools/")
    assert calls[4:] == ["python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -k some words"]
    assert done.stdout.splitlines()[-1] == calls[4]
    assert done.stdout.index(prepared) < done.stdout.index("== pytest")
    assert set(calls) <= set(done.stdout.splitlines())
    if failing.startswith("mypy"):
        assert "== failed before the tests: mypy" in done.stdout


@pytest.mark.parametrize("name", ["prepare.sh", "test_train_inference_python.sh"])
def test_the_scripts_know_the_same_modes_as_the_program(name):
    line = next(line for line in (PROJECT / name).read_text().splitlines() if line.startswith("MODES="))
    assert line.removeprefix('MODES="').removesuffix('"').split() == [mode.value for mode in CHAIN_MODES]


def test_the_lock_covers_what_the_project_asks_for():
    locked = {re.split("==", line)[0] for line in lock_lines()}
    text = (PROJECT / "pyproject.toml").read_text()
    tables = re.findall(r"^(?:requires|dependencies|cpu|cases|dev) = \[(.*?)\]", text, flags=re.DOTALL | re.MULTILINE)
    assert len(tables) == 5
    wanted = [re.split(r"[<>=]", need)[0].lower() for table in tables for need in re.findall(r'"([^"]+)"', table)]
    assert set(wanted) <= locked


def test_every_python_gets_exactly_one_version_of_a_package():
    for version in ("3.10", "3.11", "3.12", "3.13"):
        found: dict[str, str] = {}
        for line in lock_lines():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"python_version": version}):
                assert need.name not in found
                assert [one.operator for one in need.specifier] == ["=="]
                found[need.name] = str(need.specifier)
        assert {"numpy", "torch", "paddlepaddle", "pytest", "pip", "hatchling"} <= set(found)


def lock_lines() -> list[str]:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]
