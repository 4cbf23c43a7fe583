"""Finding the report of a run."""

from __future__ import annotations

import json

import pytest

from tipchain.errors import RecordError
from tipchain.report.model import RunReport, dump_report, load_report, report_json


def write(file, title="a run"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump_report(RunReport(title=title, mode="", run="", started="", seconds=1.0)))


@pytest.mark.parametrize("name", ["report.json", "log_reprod/alignment.json", "log_reprod/alignment_loss.json"])
def test_a_runs_folder_serves_whatever_ran(tmp_path, name):
    write(tmp_path / "runs" / "one" / name)
    assert load_report(tmp_path / "runs" / "one").title == "a run"
    (tmp_path / "log_reprod").mkdir(exist_ok=True)
    for inside in ("log_reprod", "runs"):
        with pytest.raises(RecordError, match=r"the latest run is .*/runs/one"):
            load_report(tmp_path / inside)
    with pytest.raises(RecordError, match=r"the latest run is .*/runs/one"):
        load_report(tmp_path)


def test_a_chains_report_stands_for_its_alignments_and_several_are_named(tmp_path):
    write(tmp_path / "log_reprod" / "alignment_loss.json")
    write(tmp_path / "log_reprod" / "alignment_data.json")
    with pytest.raises(RecordError, match=r"found: alignment_data\.json, alignment_loss.json"):
        load_report(tmp_path)
    write(tmp_path / "report.json", title="the chain")
    assert load_report(tmp_path).title == "the chain"


@pytest.mark.parametrize("name", report_json(RunReport()))
def test_a_report_that_lacks_what_every_report_has_is_none(tmp_path, name):
    write(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    del document[name]
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(RecordError, match=f"is not a run's report: ValueError {name} is missing"):
        load_report(tmp_path)
