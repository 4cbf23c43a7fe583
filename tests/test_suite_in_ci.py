"""Your suite in CI, and the jobs of docs/how-to/ci.md: what they run is run in a stub of a suite; this project's own nights."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import forking
import pytest
import yaml
from chain_samples import PROGRAM, ROOT, TEMPLATE, edit, lay_programs, stub
from page_blocks import blocks_of
from programs import commit_all, completed, git

from tipchain.cli import main, parser_of

PAGE, NIGHTS = ROOT / "docs/suite-in-ci.md", ROOT / "docs/how-to/ci.md"
PARAMS = re.compile(r"test_tipc/configs/[\w/]+\.txt")
TEXT = PAGE.read_text()
WORKFLOW = (ROOT / ".github/workflows/nightly.yml").read_text()


def texts(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == language]


(GITHUB,) = texts(PAGE, "yaml")
_, NIGHT, MANIFEST, _, GITLAB = texts(NIGHTS, "yaml")


def github_jobs() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Yield name, variables and shell lines of each job, once for each file of its matrix."""
    for name, job in (yaml.safe_load(GITHUB)["jobs"] | yaml.safe_load(NIGHT)["jobs"]).items():
        lines = [step["run"] for step in job["steps"] if "run" in step]
        for file in job.get("strategy", {}).get("matrix", {}).get("file", [""]):
            variables = {key: value.replace("${{ matrix.file }}", file) for key, value in job.get("env", {}).items()}
            yield f"github {name} {Path(file).name}", variables, lines


def gitlab_jobs() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    document = yaml.safe_load(GITLAB)
    for name, job in document.items():
        if name.startswith("."):
            continue
        whole = {**document[job["extends"]], **job}
        lines = [*whole["before_script"], *whole["script"], *whole.get("after_script", ())]
        for file in whole.get("parallel", {"matrix": [{"FILE": [""]}]})["matrix"][0]["FILE"]:
            yield f"gitlab {name} {Path(file).name}", {"FILE": file}, lines


JOBS = {}
"""One file of each job's matrix; the others run at night."""
for _name, _variables, _lines in (*github_jobs(), *gitlab_jobs()):
    _marks = [pytest.mark.nightly] * any(_name.split()[:2] == other.split()[:2] for other in JOBS)
    JOBS[_name] = pytest.param(_variables, _lines, marks=_marks, id=_name)


@pytest.fixture
def suite(tmp_path):
    """A suite's checkout with the files that the page names, and the programs that its lines call."""
    folder = tmp_path / "suite"
    manifest = MANIFEST.replace("devices: [gpu]", "devices: [cpu]").replace("/opt/suite/bin/python", "python")
    for name in sorted(set(PARAMS.findall(TEXT))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        model = Path(name).name.removesuffix("_train_infer_python.txt")
        changes = (
            ("model_name:", f"model_name:{model}"),
            ("python:", "python:python3.7"),
            ("gpu_list:", "gpu_list:0|0,1"),
        )
        (folder / name).write_text(edit(TEMPLATE, *changes))
    lay_programs(folder, PROGRAM)
    (folder / "test_tipc/nightly.yaml").write_text(manifest)
    (folder / "test_tipc/prepare.sh").write_text("mkdir -p images\necho x > images/1.png\n")
    (folder / "test_tipc/test_train_inference_python.sh").write_text("echo theirs\n")
    (tmp_path / "bin").mkdir()
    forks = " ".join(f"{name}={shlex.quote(value)}" for name, value in forking.variables(ROOT).items())
    stub(tmp_path / "bin/tipchain", f'{forks} exec "{sys.executable}" -m tipchain "$@"')
    stub(tmp_path / "bin/python", f'[[ "$1 $2" == "-m pip" ]] || exec "{sys.executable}" "$@"')
    for name in ("pipx", "apt-get"):
        stub(tmp_path / "bin" / name, "exit 0")
    commit_all(folder)
    return folder


def run(suite: Path, lines: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIPCHAIN", "GITHUB"))}
    path = f"{suite.parent / 'bin'}:{kept['PATH']}"
    return completed(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=suite,
        env={**kept, "PATH": path, "HOME": str(suite.parent), "TIPCHAIN": "tipchain", **variables},
        timeout=300,
    )


@pytest.mark.parametrize(("variables", "lines"), JOBS.values())
def test_a_job_passes_where_all_is_well(suite, variables, lines):
    done = run(suite, lines, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(suite, "diff", "--stat") == ""
    if variables.get("FILE"):
        assert "exit code 0" in done.stdout, "without a GPU"
        assert (suite / "tipc.xml").exists()


def test_jobs_fail_where_something_is_wrong(suite):
    (suite / "infer.py").write_text("raise SystemExit(3)")
    file = next(iter(PARAMS.findall(GITHUB)))
    (suite / file).write_text((suite / file).read_text().replace("trainer:norm_train", "trainer:nrom_train"))
    jobs = {name.split()[1]: job for name, *job in reversed([*github_jobs()])}  # one file of each, as above
    codes = {name: run(suite, lines, variables).returncode for name, (variables, lines) in jobs.items()}
    assert all(codes.values()), codes


def test_the_commands_of_the_page_work_from_top_to_bottom(suite):
    lines = [line for block in texts(PAGE, "bash") for line in block.splitlines()]
    (suite / "test_tipc/test_train_inference_python.sh").write_text("copied over\n")
    done = run(suite, lines, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (suite / "test_tipc/test_train_inference_python.sh").read_text() == "echo theirs\n"
    assert done.stdout.count(" s, exit code 0") == 2
    assert not (suite / "tipchain-output").exists(), "the way back removes it"


def steps_of(workflow: str) -> list[dict]:
    return [step for job in yaml.safe_load(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize(
    ("text", "triggers"),
    [(GITHUB, {"pull_request"}), (NIGHT, {"schedule"}), (WORKFLOW, {"schedule", "workflow_dispatch"})],
    ids=["suite", "suite's night", "our night"],
)
def test_the_workflows_are_careful(text, triggers):
    document = yaml.safe_load(text)
    assert set(document[True]) == triggers  # YAML 1.1 reads `on` as true
    assert document["permissions"] == {"contents": "read"}
    steps = steps_of(text)
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    assert not [step for step in steps if "${{" in step.get("run", "")], "no user's text in a shell's line"


def test_our_own_nights_are_kept_whatever_happens():
    named = {one["name"]: one for one in steps_of(WORKFLOW) if "name" in one}
    for name in ("dashboard", "old nights", "nights for the next time", "results"):
        assert named[name]["if"] == "always()"
    assert "--html dashboard.html" in named["dashboard"]["run"]
    assert "--junit nightly.xml" in named["night"]["run"]
    assert {"dashboard.html", "nightly.xml", "tipchain-nights"} <= set(named["results"]["with"]["path"].split())
    assert named["earlier nights"]["with"]["key"] == named["nights for the next time"]["with"]["key"]


def test_the_calls_of_our_own_nights_and_of_the_crontab_could_be_made(capsys, monkeypatch):
    lines = [step["run"] for step in steps_of(WORKFLOW) if "run" in step] + texts(NIGHTS, "crontab")
    calls = re.findall(r"\btipchain ([^&;|>\n]+)", "\n".join(lines))
    assert len(calls) >= 6
    for command, *words in map(shlex.split, calls):
        manifest = getattr(parser_of(command).parse_args(words), "manifest", None)
        assert manifest is None or (ROOT / manifest).is_file()
    monkeypatch.chdir(ROOT)
    assert main(["nightly", "plan", "test_tipc/nightly.yaml"]) == 0
    assert "do not run here" not in capsys.readouterr().out
