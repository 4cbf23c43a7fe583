"""``--junit`` and ``--github`` of ``tipchain nightly run`` and ``resume``; a night's way through them all."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from stub_nights import write_manifest

from tipchain.cli import main
from tipchain.nightly.nights import find_nights

GOOD = {"id": "good", "argv": ["/bin/sh", "-c", "echo fine"]}
BAD = {"id": "bad", "argv": ["/bin/sh", "-c", "[ -e mended ] || { echo oh no; exit 1; }"]}


@pytest.fixture
def inside(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIPCHAIN_DATABASE", raising=False)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    write_manifest(tmp_path, commands=[GOOD, BAD])
    return tmp_path


def cases(file: Path) -> dict[str, str]:
    return {one.get("name"): one[0].tag if len(one) else "passed" for one in ET.parse(file).iter("testcase")}


def test_a_night_with_reports_and_the_next(inside, capsys):
    assert main(["nightly", "run", "suite.yaml", "--junit", "out.xml", "--html", "night.html", "--github"]) == 1
    assert "bad[cpu]" in (inside / "night.html").read_text()
    assert cases(inside / "out.xml") == {"good[cpu]": "passed", "bad[cpu]": "failure"}
    out = capsys.readouterr().out
    annotated = [line for line in out.splitlines() if line.startswith("::")]
    assert len(annotated) == 1
    assert annotated[0].startswith("::error title=suite%3A bad[cpu]::exit 1: ")
    first = (inside / "summary.md").read_text()
    assert "❌ 1 of 2 items did not pass" in first
    assert "<pre>oh no</pre>" in first
    (inside / "mended").touch()
    (inside / "summary.md").unlink()
    assert main(["nightly", "run", "suite.yaml", "--github"]) == 0
    assert "::error" not in capsys.readouterr().out
    second = (inside / "summary.md").read_text()
    assert "✅ 2 of 2 items passed" in second
    assert "FAIL -&gt; PASS" in second
    assert "bad[cpu]" in second
    assert main(["nightly", "dashboard", "--html", "page.html"]) == 0
    assert main(["nightly", "gc", "--keep", "1"]) == 0
    assert len(find_nights(inside / "tipchain-nights")) == 1


def test_reports_of_a_night_that_was_killed_and_goes_on(inside):
    assert main(["nightly", "run", "suite.yaml"]) == 1
    (night,) = find_nights(inside / "tipchain-nights")
    (night / "finished.json").unlink()
    for ended in night.glob("items/good*/ended.json"):
        ended.unlink()
    assert main(["nightly", "resume", "suite.yaml", "--junit", "whole.xml"]) == 1
    assert cases(inside / "whole.xml") == {"good[cpu]": "passed", "bad[cpu]": "failure"}


def test_reports_that_cannot_be_written_are_refused_before_the_night(inside, monkeypatch, capsys):
    assert main(["nightly", "run", "suite.yaml", "--junit", "test_tipc"]) == 2
    assert "--junit test_tipc: cannot be written: Is a directory" in capsys.readouterr().err
    assert main(["nightly", "run", "suite.yaml", "--junit", "-", "--json", "-"]) == 2
    assert "cannot both go to standard output" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(inside / "test_tipc"))
    assert main(["nightly", "run", "suite.yaml", "--github"]) == 2
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err
    assert not (inside / "tipchain-nights").exists()


def test_reports_that_cannot_be_written_in_the_end_are_told(inside, monkeypatch, capsys):
    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("tipchain.report.write.atomic_write", full)
    assert main(["nightly", "run", "suite.yaml", "--junit", "x.xml"]) == 1
    assert "x.xml: cannot be written: No space left on device" in capsys.readouterr().err
    (night,) = find_nights(inside / "tipchain-nights")
    assert json.loads((night / "finished.json").read_text())["counts"]["FAIL"] == 1


def test_trouble_with_the_history_changes_no_exit_code(inside, capsys):
    (inside / "mended").touch()
    url = "postgresql://me:s3cret@127.0.0.1:1/none?sslpassword=s3cret2"
    assert main(["nightly", "run", "suite.yaml", "--database", url]) == 0
    told = capsys.readouterr()
    assert "the next night of its manifest hands it on" in told.err
    kept = [one.read_text() for one in inside.rglob("*.json")]
    assert kept
    assert "s3cret" not in told.out + told.err + "".join(kept)
    assert main(["nightly", "run", "suite.yaml", "--database", "mysql://x/y"]) == 2
    assert len(find_nights(inside / "tipchain-nights")) == 1
