import json
import subprocess
import sys
from dataclasses import replace

import pytest
from history_samples import FAIL, PASS, cause, item, judged, night, night_folder, report, trained
from run_samples import CAUSE

from tipchain.cli import main
from tipchain.core.json_text import as_json
from tipchain.core.language import columns
from tipchain.explain.findings import SourceLine
from tipchain.history.entries import list_entries
from tipchain.history.store import History, place_of


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a history of three nights."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.delenv("TIPCHAIN_DATABASE", raising=False)
    history = History(place_of(tmp_path))
    for number in range(2):
        history.add(night(number), [judged("a", {"x": PASS}), trained("b", {"loss": 0.5})])
    history.add(night(2, environment={"torch": "2.13"}), [judged("a", {"x": FAIL}, FAIL, reason="x is off"), item("b")])
    return tmp_path


def out(capsys, *words: str, code: int = 0) -> str:
    assert main(["history", *words]) == code
    return capsys.readouterr().out


def test_list(project, capsys):
    assert out(capsys, "list", "--limit", "2").splitlines() == [
        "name       commit  items and what they are of",
        "suite-002          1 PASS, 1 FAIL: suite",
        "suite-001          2 PASS: suite",
    ]
    listed = json.loads(out(capsys, "list", "--json", "-"))
    assert (listed[0]["name"], listed[0]["counts"]) == ("suite-002", {"PASS": 1, "FAIL": 1})


def test_show(project, capsys):
    text = out(capsys, "show", "latest")
    assert "night:    suite-002 (suite)" in text
    assert "  torch: 2.13" in text
    assert "FAIL        100.0         1  a\n                           x is off" in text
    text = out(capsys, "show", "latest", "a")
    assert text.splitlines()[:2] == ["FAIL a, 100.0 s, attempt 1", "  x is off"]
    assert "FAIL     x: x is FAIL" in text
    assert "loss=0.5" in out(capsys, "show", "latest~1", "b")
    shown = json.loads(out(capsys, "show", "latest~1", "b", "--json", "-"))
    assert shown["items"][0]["commands"][0]["figures"] == {"loss": 0.5}
    found = json.loads(out(capsys, "show", "latest", "a", "--json", "-"))["verdicts"]
    assert [(one["subject"], one["outcome"], one["reason"]) for one in found] == [("x", "FAIL", "x is FAIL")]


def test_the_kind_of_chain_is_shown(project, capsys):
    History(place_of(project)).add(night(3), [item("quantized", chain="ptq_infer_python")])
    assert "  kind of chain: ptq_infer_python\n" in out(capsys, "show", "latest", "quantized")


def test_diff(project, capsys):
    lines = out(capsys, "diff").splitlines()
    assert lines[1:3] == ["environment: torch none -> 2.13", "PASS -> FAIL  a: x is off"]
    assert out(capsys, "diff", "latest~1").startswith("suite: nothing changed since suite-000")
    assert out(capsys, "diff", "--all").splitlines() == lines
    found = json.loads(out(capsys, "diff", "--json", "-"))
    assert found["flips"] == [{"item": "a", "part": "", "before": "PASS", "after": "FAIL", "reason": "x is off"}]
    assert (found["common"], found["before"]["name"]) == (2, "suite-001")
    assert "nothing changed since suite-000" in out(capsys, "diff", "suite-001", "--against", "suite-000")
    assert json.loads(out(capsys, "diff", "suite-000", "--json", "-"))["before"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "nope"], "nope: is not in the history"),
        (["show", "latest", "aa"], "did you mean 'a'"),
        (["diff", "--against", "nope"], "nope: is not in the history"),
        (["list", "--database", "mysql://me:s3cret@h/x"], "kind mysql"),
        (["list", "--database", "empty.sqlite"], "there is no history yet"),
        (["add", "absent.json"], "absent.json: cannot be read"),
        (["list", "--limit", "0"], "'0' is not a number of nights or runs, 1 or more"),
    ],
)
def test_wrong_use(project, capsys, words, said):
    assert main(["history", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "s3cret" not in error


def test_add(project, capsys):
    folder = night_folder(project, {"a": PASS})
    file = project / "report.json"
    file.write_text(json.dumps(report()))
    assert out(capsys, "add", str(folder), str(file)).splitlines() == [
        f"{folder.name}: 1 new items",
        "20260101-000000-abcde-" + _key(project) + ": 1 new items",
    ]
    assert out(capsys, "add", str(folder / "night.json")) == f"{folder.name}: nothing new\n"
    place_of(project).file.write_text("no database" * 500)
    assert main(["history", "add", str(folder)]) == 2
    assert "file is not a database" in capsys.readouterr().err


def _key(root) -> str:
    with History(place_of(root)).reading() as connection:
        return next(one.name[-4:] for one in list_entries(connection) if one.kind == "run")


def test_starting_up_loads_no_database():
    code = "import sys; from tipchain.cli import main\ntry: main(['history', '--help'])\nexcept SystemExit: pass\nsys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_the_causes_of_a_report_come_into_the_history(project, capsys):
    place = SourceLine(file="port.py", line=7, code="x")
    found = as_json(replace(CAUSE, code="epsilon", explains=("forward/logits",), place=place))
    first = {**found, "code": "momentum", "explains": []}
    (project / "report.json").write_text(json.dumps({**report(), "diagnoses": [first, found]}))
    out(capsys, "add", str(project / "report.json"))
    with History(place_of(project)).reading() as connection:
        (name,) = [one.name for one in list_entries(connection) if one.kind == "run"]
    told = json.loads(out(capsys, "show", name, "--json", "-"))["items"][0]["causes"]
    # What verdicts fail because of comes first.
    assert [(one["code"], one["file"], one["line"], one["checks"]) for one in told] == [
        ("epsilon", "port.py", 7, 1),
        ("momentum", "port.py", 7, 0),
    ]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_causes_fit_80_columns(project, capsys, monkeypatch, lang):
    monkeypatch.setenv("TIPCHAIN_LANG", lang)
    long = replace(
        cause(
            "weight-decay", layer="backbone.layer4.block.conv", fix="pass `weight_decay=0.0001` to the optimizer " * 4
        ),
        message="the port decays biases and norms, which the reference's parameter groups leave out of the decay " * 3,
    )
    failed = item("configs/resnet/train_infer_python.txt", FAIL, causes=[long], reason="the loss differs " * 9)
    History(place_of(project)).add(night(3, commit="c3"), [failed])
    shown = [out(capsys, "show", "suite-003"), out(capsys, "show", "suite-003", failed.id)]
    for text in shown:
        assert all(columns(line) <= 80 for line in text.splitlines())
        assert text.count("weight_decay=0.0001") == 4
