"""The workflow and the examples of docs/how-to/ci.md: their commands exist and take their arguments, their files are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tipchain.cli import COMMANDS, main, parser_of

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"
PAGE = ROOT / "docs" / "how-to" / "ci.md"
PLAIN = ("echo", "cd", ".", "source", "export", "python", "pipx", "apt-get")
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def steps(document: dict) -> Iterator[dict]:
    for job in document["jobs"].values():
        yield from job["steps"]


def lines_of_page() -> Iterator[str]:
    for block in blocks("yaml"):
        document = yaml.safe_load(block)
        if "jobs" in document:
            yield from (one["run"] for one in steps(document) if "run" in one)
        elif "chains" not in document:
            for job in document.values():
                yield from (line for key in ("before_script", "script", "after_script") for line in job.get(key, ()))
    for block in blocks("crontab"):
        for line in block.splitlines():
            fields = line.split(None, 5)
            assert all(re.fullmatch(r"[\d*/,-]+", field) for field in fields[:5]), line
            yield fields[5]
    yield from (line for block in blocks("bash") for line in block.splitlines())


def lines_of_workflow() -> Iterator[str]:
    for step in steps(yaml.safe_load(WORKFLOW.read_text())):
        yield from step.get("run", "").splitlines()


def calls(line: str) -> Iterator[list[str]]:
    """Yield the calls of a line of shell."""
    words = shlex.split(EXPRESSION.sub("1", line).replace("&&", " ; ").replace(">>", " >> "))
    call: list[str] = []
    for word in (*words, ";"):
        if word == ";":
            yield call
            call = []
        else:
            call.append(word)


def check(call: list[str]) -> None:
    """Fail if a call could not be made here."""
    if ">>" in call:
        call = call[: call.index(">>")]
    if call[:2] == ["flock", "-n"]:
        call = call[3:]
    if call[0] == "tipchain":
        assert call[1] in COMMANDS
        given = parser_of(call[1]).parse_args(call[2:])
        manifest = getattr(given, "manifest", None)
        assert manifest is None or (ROOT / manifest).is_file()
    elif call[0] == "bash":
        assert (ROOT / call[1]).is_file()
        assert all((ROOT / word).is_file() for word in call[2:] if word.endswith(".txt"))
    else:
        assert call[0] in PLAIN, call


@pytest.mark.parametrize("line", [*lines_of_workflow(), *lines_of_page()])
def test_every_command_could_be_run(line):
    for call in calls(line):
        check(call)


def test_a_wrong_command_would_be_noticed():
    for line in ("tipchain nightly run --jnit x", "tipchain nigthly run x", "bash nothing.sh", "curl x"):
        with pytest.raises(Exception):  # noqa: B017
            check(next(calls(line)))


def test_there_is_something_to_check():
    told = [call for line in (*lines_of_workflow(), *lines_of_page()) for call in calls(line)]
    assert sum(call[0] == "tipchain" for call in told) >= 14
    for words in ("nightly run", "nightly dashboard", "nightly resume", "nightly gc"):
        assert any(" ".join(call).startswith(f"tipchain {words}") for call in told)


def test_the_workflow():
    text = WORKFLOW.read_text()
    document = yaml.safe_load(text)
    assert set(document[True]) == {"schedule", "workflow_dispatch"}  # YAML 1.1 reads `on` as true
    assert document["permissions"] == {"contents": "read"}
    assert "://" not in text
    assert not re.search(r"run:.*\$\{\{ *(inputs|github\.event)", text)  # no user's text in a shell's line
    uses = [one["uses"] for one in steps(document) if "uses" in one]
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", one) for one in uses)
    named = {one["name"]: one for one in steps(document) if "name" in one}
    for name in ("dashboard", "old nights", "nights for the next time", "results"):
        assert named[name]["if"] == "always()"
    kept = named["results"]["with"]["path"].split()
    assert "--html dashboard.html" in named["dashboard"]["run"]
    assert "--junit nightly.xml" in named["night"]["run"]
    assert {"dashboard.html", "nightly.xml", "tipchain-nights"} <= set(kept)
    assert named["earlier nights"]["with"]["key"] == named["nights for the next time"]["with"]["key"]


def test_the_workflows_manifest_can_be_planned(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["nightly", "plan", "test_tipc/nightly.yaml"]) == 0
    out = capsys.readouterr().out
    assert "alexnet:align[lite_train_lite_infer;cpu]" in out
    assert "do not run here" not in out
