"""What other repositories' CI takes from here: Dockerfiles, the GitHub Action, GitLab's jobs, pre-commit's hooks."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import forking
import pytest
import yaml
from chain_samples import ROOT, stub
from programs import completed
from test_package import build, extras

from tipchain.chain.lint import PATTERN
from tipchain.cli import COMMANDS, main, parser_of

DOCKERFILES = ("Dockerfile", "Dockerfile.gpu")
PARAMS = "test_tipc/configs/alexnet/train_infer_python.txt"
CASE = """\
id: net
sides:
  torch: {model: "torch_side:Net"}
  paddle: {model: "paddle_side:Net"}
weights: {init: kaiming}
inputs: {image: {shape: [2, 4], dtype: float32}}
stages: [forward]
data: {set: none}
"""
SIDE = """\
from {package} import nn

class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        self.one, self.act, self.two = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, image):
        return self.two(self.act(self.one(image)))
"""


def document(name: str):
    return yaml.safe_load((ROOT / name).read_text())


# The Dockerfiles.


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_dockerfile_copies_what_there_is_and_what_the_context_lets_through(name):
    text = (ROOT / name).read_text()
    let_through = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "tipchain"} <= set(copied)
    for one in copied:
        assert (ROOT / one).exists()
        assert one in let_through


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_dockerfile_installs_extras_that_exist(name):
    text = (ROOT / name).read_text()
    wanted = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)[1].split(",")
    assert set(wanted) <= set(extras())
    # Paddle's CPU build must not replace the image's.
    assert ("cpu" in wanted) == (name == "Dockerfile")


@pytest.mark.nightly
def test_the_build_needs_nothing_but_what_the_dockerfiles_copy(tmp_path):
    pytest.importorskip("hatchling")
    for name in ("LICENSE", "README.md", "hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tipchain", tmp_path / "tipchain", ignore=shutil.ignore_patterns("__pycache__"))
    assert build("wheel", tmp_path, tmp_path / "dist").is_file()


# The action, and GitLab's jobs.


class Runner:
    """A machine of a CI service: runs steps, with a wheel in place of an index."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        self.outputs, self.summary = folder / "outputs", folder / "summary"
        (folder / "case.yaml").write_text(CASE)
        for package, base in (("torch", "Module"), ("paddle", "Layer")):
            (folder / f"{package}_side.py").write_text(SIDE.format(package=package, base=base))

    def bash(self, body: str, **env: str) -> subprocess.CompletedProcess[str]:
        # pip gets the wheel alone; what it needs is this environment's.
        forked = forking.environment(*(Path(one) for one in sys.path if "site-packages" in one))
        own = {
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PYTHONPATH": forked["PYTHONPATH"],
            forking.VARIABLE: forked[forking.VARIABLE],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(self.outputs),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "OMP_NUM_THREADS": "1",
        }
        return completed(["bash", "-eo", "pipefail", "-c", body], cwd=self.folder, env={**own, **env})

    def step(self, number: int, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the action as GitHub does: its inputs come through the environment."""
        action = document("action.yml")
        values = {name: str(one["default"]) for name, one in action["inputs"].items()} | inputs
        step = action["runs"]["steps"][number]
        env = {
            name: re.sub(
                r"\$\{\{ (.*?) \}\}",
                lambda match: (
                    str(ROOT) if match[1] == "github.action_path" else values[match[1].removeprefix("inputs.")]
                ),
                text,
            )
            for name, text in step["env"].items()
        }
        return self.bash(step["run"], **env)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    return build("wheel", ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture
def runner(tmp_path, wheel):
    return Runner(tmp_path, wheel)


@pytest.mark.frameworks
def test_the_action_sets_up_runs_a_case_and_leaves_report_annotations_and_exit_code(runner):
    done = runner.step(0, install=str(runner.wheel), python=sys.executable)
    assert done.returncode == 0, done.stderr
    case = "case.yaml"
    done = runner.step(1, case=case, options="--only forward --timeout '10 m'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert runner.outputs.read_text() == "exit-code=0\n"
    assert {one.name for one in (runner.folder / "tipchain-report").iterdir()} == {
        "report.json",
        "report.xml",
        "report.html",
    }
    port = runner.folder / "paddle_side.py"
    port.write_text(port.read_text().replace("nn.ReLU()", "nn.GELU()"))
    done = runner.step(1, case=case, options="--only forward")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error" in done.stdout
    assert "`act`: it is a `GELU`, the reference's a `ReLU`" in done.stdout
    assert runner.outputs.read_text().endswith("exit-code=1\n")
    assert runner.summary.read_text()


@pytest.mark.parametrize("inputs", [{}, {"params": "a.txt", "case": "b.yaml"}])
def test_the_action_wants_one_of_params_and_case(runner, inputs):
    done = runner.step(1, **inputs)
    assert done.returncode == 2
    assert "::error title=tipchain::give one of the inputs params and case" in done.stdout
    assert runner.outputs.read_text() == "exit-code=2\n"


def test_the_action_runs_a_chain_with_the_python_and_the_words_that_it_is_given(runner):
    (runner.folder / "tipchain/bin").mkdir(parents=True)
    stub(runner.folder / "tipchain/bin/tipchain", 'printf "%s\\n" "$@"\nexit 4')
    done = runner.step(1, params="a b.txt", mode="whole_infer", options="--set 'gpu_list=0 1'", python="sh")
    words = done.stdout.splitlines()
    assert words[:5] == ["run", "a b.txt", "whole_infer", "--python", shutil.which("sh")]
    assert words[-2:] == ["--set", "gpu_list=0 1"]
    assert (done.returncode, runner.outputs.read_text()) == (4, "exit-code=4\n")


def test_the_action_keeps_a_chains_logs_beside_its_report(runner):
    reports, logs = runner.folder / "tipchain-report", runner.folder / "out put/runs/1"
    (runner.folder / "tipchain/bin").mkdir(parents=True)
    told = json.dumps({"run": "out put/runs/1"})
    stub(runner.folder / "tipchain/bin/tipchain", f"echo '{told}' > '{reports}/report.json'\nexit 1")
    (logs / "train[a]-workers").mkdir(parents=True)
    for name in ("train[a].log", "train[a]-workers/workerlog.0", "latest.pdparams"):
        (logs / name).write_text(name)
    assert runner.step(1, params="a.txt", python=sys.executable).returncode == 1
    kept = {one.relative_to(reports / "logs").as_posix() for one in reports.rglob("logs/**/*") if one.is_file()}
    assert kept == {"train[a].log", "train[a]-workers/workerlog.0"}


def test_the_actions_parts_fit_together():
    action = document("action.yml")
    text = (ROOT / "action.yml").read_text()
    named = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text))
    assert named == set(action["inputs"])
    used = {match for step in action["runs"]["steps"] for match in re.findall(r"\$\{?([A-Z_]+)", step.get("run", ""))}
    given = {name for step in action["runs"]["steps"] for name in step.get("env", {})}
    assert given <= used
    # No input may become a part of a program's text.
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])
    upload = action["runs"]["steps"][2]
    assert upload["with"]["path"] == "${{ runner.temp }}/tipchain-report"
    assert "always()" in upload["if"]


def test_the_shell_of_the_action_and_of_gitlabs_jobs_is_clean():
    program = shutil.which("shellcheck") or Path(sys.executable).with_name("shellcheck")
    jobs = document("ci/gitlab.yml")
    bodies = [step["run"] for step in document("action.yml")["runs"]["steps"] if "run" in step]
    bodies += ["\n".join(one[key]) for one in jobs.values() for key in ("before_script", "script") if key in one]
    for body in bodies:
        # SC2154: variables come from the service; SC2086: lists of words in one variable, as GitLab has them.
        done = completed([program, "-s", "bash", "-e", "SC2154,SC2086", "-"], input=body)
        assert done.returncode == 0, done.stdout


def test_gitlabs_jobs_call_commands_and_options_that_exist():
    jobs = document("ci/gitlab.yml")
    values = {"TIPCHAIN_PARAMS": "a.txt", "TIPCHAIN_CASE": "a.yaml", "TIPCHAIN_OPTIONS": "", "TIPCHAIN_PATHS": "a b"}
    defaults = {name: str(value) for name, value in jobs["variables"].items()}
    names = set()
    for job in (".tipchain-lint", ".tipchain-chain", ".tipchain-align"):
        assert jobs[job]["extends"] == ".tipchain"
        line = jobs[job]["script"][-1]
        for name, value in {**defaults, **values}.items():
            line = line.replace(f"${name}", value)
        program, command, *words = shlex.split(line)
        assert program == "tipchain"
        assert command in COMMANDS
        parser_of(command).parse_args(words)
        names.add(command)
    assert names == {"lint", "run", "align"}


@pytest.mark.nightly
def test_gitlabs_set_up_installs_the_program(runner):
    jobs = document("ci/gitlab.yml")
    body = "\n".join([*jobs[".tipchain"]["before_script"], "tipchain --version", "type tipchain"])
    done = runner.bash(body, TIPCHAIN=str(runner.wheel), TIPCHAIN_EXTRAS="")
    assert done.returncode == 0, done.stderr
    assert str(runner.folder / ".tipchain-env/bin/tipchain") in done.stdout


# pre-commit.


def hooks() -> dict[str, dict[str, object]]:
    return {one["id"]: one for one in document(".pre-commit-hooks.yaml")}


@pytest.mark.parametrize(
    ("hook", "path", "taken"),
    [
        ("tipchain-lint", "test_tipc/configs/net/train_infer_python.txt", True),
        ("tipchain-lint", "test_tipc/configs/net/model_linux_gpu_infer_cpp.txt", False),
        ("tipchain-case", "configs/alexnet.yaml", True),
        ("tipchain-case", "test_tipc/nightly.yaml", False),
    ],
)
def test_a_hook_takes_the_files_that_the_command_is_for(hook, path, taken):
    assert bool(re.search(hooks()[hook]["files"], path)) == taken
    if hook == "tipchain-lint" and taken:
        assert Path(path).match(PATTERN)


@pytest.mark.parametrize(
    ("hook", "file", "spoil", "code"),
    [
        ("tipchain-lint", PARAMS, ("gpu_list", "gpu_lits"), 1),
        ("tipchain-case", "configs/alexnet.yaml", ("stages:", "stagse:"), 2),
    ],
)
def test_a_hooks_entry_passes_a_right_file_and_fails_a_wrong_one(
    tmp_path, monkeypatch, capsys, hook, file, spoil, code
):
    entry = shlex.split(hooks()[hook]["entry"])
    assert entry[0] == "tipchain"
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    for text, expected in (((ROOT / file).read_text(), 0), ((ROOT / file).read_text().replace(*spoil), code)):
        (tmp_path / Path(file).name).write_text(text)
        assert main([*entry[1:], Path(file).name]) == expected
    assert spoil[1] in capsys.readouterr().out
