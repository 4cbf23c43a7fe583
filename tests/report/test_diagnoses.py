"""What the live models told about a run's failed verdicts, as data of its report."""

import json
from pathlib import Path

from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.explain.findings import Diagnosis, SourceLine
from tipchain.numbers.verdicts import Verdict
from tipchain.report.model import (
    RunReport,
    diagnose_chain,
    diagnose_run,
    dump_report,
    load_report,
    parse_report,
    rediagnose,
)

FAILED = ("forward/logits", "metric/acc_top1", "backward/grad.a", "backward/grad.b", "train_data/sample_0", "init/x")


def verdicts(*failed: str) -> list[Verdict]:
    passed = Verdict(outcome=Outcome.PASS, subject="data/length", reason="equal")
    return [passed, *(Verdict(outcome=Outcome.FAIL, subject=one, reason="not close") for one in failed)]


def cause(port_path: str, stage: str, code: str = "epsilon", **more: object) -> dict[str, object]:
    given = {"evidence": "tried", "explained": 1.0, "fix": "write it at net.py:3", "message": "wrong"}
    return as_json(Diagnosis(code=code, port_path=port_path, stage=stage, **{**given, **more}))


def live(*causes: dict[str, object], reasons: dict[str, str] | None = None, **stages: str) -> dict[str, object]:
    return {"stages": stages, "reasons": reasons or {}, "diagnoses": list(causes)}


def follow(found) -> dict[str, tuple[str, ...]]:
    return {f"{one.port_path}:{one.stage}": one.explains for one in found.diagnoses}


def test_failures_follow_from_the_first_cause_that_their_stage_depends_on(tmp_path):
    found = diagnose_run(verdicts(*FAILED), live(cause("layer2.0", "forward"), forward="FAIL"), tmp_path)
    assert follow(found) == {"layer2.0:forward": FAILED[:4]}
    assert found.undiagnosed == "train_data, init: no live stage tells of it", "no layer of the model makes samples"


def test_a_stage_of_its_own_cause_follows_from_that_one(tmp_path):
    document = live(
        cause("optimizer", "optimizer"), cause("layer2.0", "forward"), cause("metric", "metric"), forward="FAIL"
    )
    found = diagnose_run(verdicts("forward/logits", "metric/acc_top1", "backward/w"), document, tmp_path)
    assert follow(found) == {
        "layer2.0:forward": ("forward/logits", "backward/w"),
        "metric:metric": ("metric/acc_top1",),
        "optimizer:backward": (),
    }
    assert found.undiagnosed == ""


def test_a_difference_of_construction_takes_the_first_stage_that_fails(tmp_path):
    document = live(cause("bn", "preflight", "momentum"), preflight="FAIL", forward="PASS")
    assert follow(diagnose_run(verdicts("train/loss"), document, tmp_path)) == {"bn:train": ("train/loss",)}


def test_a_gradients_fault_explains_no_output(tmp_path):
    document = live(cause("layer2.0", "backward"), backward="FAIL")
    found = diagnose_run(verdicts("forward/logits", "backward/w"), document, tmp_path)
    assert follow(found) == {"layer2.0:backward": ("backward/w",)}
    assert found.undiagnosed == "forward: no live stage tells of it"


def test_a_live_stage_that_fails_without_a_cause_is_an_unknown_one(tmp_path):
    document = live(reasons={"forward": "the outputs differ"}, preflight="PASS", forward="FAIL", backward="FAIL")
    found = diagnose_run(verdicts("forward/logits", "backward/w"), document, tmp_path)
    assert [(one.code, one.message, one.explains) for one in found.diagnoses] == [
        ("parting", "forward: the outputs differ", ("forward/logits", "backward/w"))
    ]


def test_what_could_not_be_found_out_is_said(tmp_path):
    document = live(reasons={"forward": "out of memory"}, forward="ERROR")
    assert diagnose_run(verdicts("forward/logits"), document, tmp_path).undiagnosed == "forward: out of memory"
    assert (
        diagnose_run(verdicts("forward/logits"), live(forward="PASS"), tmp_path).undiagnosed
        == "both models in one process show no difference in forward"
    )


def test_lines_are_told_relative_to_the_project(tmp_path):
    places = [SourceLine(file=str(tmp_path / "net.py"), line=3, code="x"), SourceLine(file="/else/net.py", line=4)]
    document = live(cause("a", "forward", place=places[0], reference_place=places[1]), forward="FAIL")
    found = diagnose_run(verdicts("forward/logits"), document, tmp_path).diagnoses[0]
    assert (str(found.place), str(found.reference_place)) == ("net.py:3", "/else/net.py:4")


def report(**more: object) -> RunReport:
    return RunReport(title="case.yaml", mode="m", run="r", started="", seconds=1.0, **more)  # type: ignore[arg-type]


def test_diagnoses_come_back_from_json_and_earlier_reports_have_none(tmp_path):
    document = live(cause("a", "forward", place=SourceLine(file="net.py", line=3)), forward="FAIL")
    found = diagnose_run(verdicts("forward/logits"), document, tmp_path)
    full = report(diagnoses=found.diagnoses, undiagnosed="lr: not known")
    assert parse_report(json.loads(dump_report(full))) == full
    plain = json.loads(dump_report(report()))
    assert not {"diagnoses", "undiagnosed"} & set(plain)
    assert parse_report(plain) == report()


def test_a_chain_takes_over_what_its_alignments_found(tmp_path: Path):
    folder = tmp_path / "log_reprod"
    folder.mkdir()
    for name, stage in (("alignment_loss.json", "loss"), ("alignment_forward.json", "forward")):
        found = diagnose_run(verdicts(f"{stage}/x"), live(cause(f"of_{stage}", stage), **{stage: "FAIL"}), tmp_path)
        (folder / name).write_text(dump_report(report(diagnoses=found.diagnoses, undiagnosed="why")))
    (folder / "alignment_data.json").write_text("{")
    found = diagnose_chain(tmp_path)
    assert [one.stage for one in found.diagnoses] == ["forward", "loss"]
    assert found.undiagnosed.count("why") == 1
    assert "alignment_data.json" in found.undiagnosed
    assert load_report(folder / "alignment_loss.json").diagnoses[0].stage == "loss"


def test_judging_again_keeps_what_was_found(tmp_path):
    folder = tmp_path / "log_reprod"
    folder.mkdir()
    first = diagnose_run(verdicts("forward/logits"), live(cause("a", "forward"), forward="FAIL"), tmp_path)
    (folder / "alignment.json").write_text(dump_report(report(diagnoses=first.diagnoses)))
    again = rediagnose(folder, verdicts("forward/logits", "loss/loss", "init/x"))
    assert follow(again) == {"a:forward": ("forward/logits", "loss/loss")}
    assert again.undiagnosed == "not looked for: judging runs nothing", "init/x follows from nothing that is known"
    assert rediagnose(folder, verdicts()).diagnoses == (), "what passes now has no cause"
    assert rediagnose(tmp_path / "dumps", verdicts("forward/logits")).undiagnosed.startswith("not looked for")
