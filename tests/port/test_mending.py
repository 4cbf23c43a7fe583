"""Mending a port: an edit is kept if it mends something, and put back if it does not."""

import os
import subprocess
import sys

import pytest
from programs import commit_all

from tipchain.errors import Outcome, UsageError
from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine
from tipchain.numbers.verdicts import Verdict
from tipchain.port.mending import Mending, _write
from tipchain.report.model import RunReport

PORT = "import paddle\nact = paddle.nn.GELU(approximate=False)\nnorm = paddle.nn.LayerNorm(8, epsilon=1e-5)\n"
FIXES = {"approximate=True": (2, "GELU"), "epsilon=1e-06": (3, "LayerNorm")}


@pytest.fixture
def port(tmp_path):
    file = tmp_path / "port.py"
    file.write_text(PORT)
    return file


def report_of(port, error=""):
    """Return the report of a port: what it does not have yet fails, in order."""
    text = port.read_text()
    if error:
        reason = f"{port}:2: {error}\n  in: the port (Paddle), building the model"
        return RunReport(verdicts=(Verdict(outcome=Outcome.ERROR, subject="forward/needs", reason=reason),))
    missing = [fix for fix in FIXES if fix not in text]
    causes = tuple(
        Diagnosis(
            code="argument",
            port_path=fix,
            message=f"{fix} is wrong",
            evidence="",
            fix=f"pass `{fix}` to `{FIXES[fix][1]}` at port.py",
            place=SourceLine(file="port.py", line=FIXES[fix][0]),
            edit=CodeEdit(kind="pass", call=FIXES[fix][1], arguments=(tuple(fix.split("=")),)),
        )
        for fix in missing
    )
    outcome = Outcome.FAIL if missing else Outcome.PASS
    verdicts = (Verdict(outcome=outcome, subject="forward/x", reason="it differs" if missing else ""),)
    return RunReport(verdicts=verdicts, diagnoses=causes)


def mending_of(port, align=None, answer=True, **more):
    return Mending(root=port.parent, align=align or (lambda: report_of(port)), ask=lambda _: answer, **more)


def test_edits_are_kept_until_the_port_is_equal(port):
    asked = []
    mending = Mending(root=port.parent, align=lambda: report_of(port), ask=lambda diff: asked.append(diff) or True)
    after = mending.mend(report_of(port))
    assert int(after.exit_code) == 0
    assert port.read_text() == PORT.replace("approximate=False", "approximate=True").replace("1e-5", "1e-06")
    assert (port.parent / "port.py.orig").read_text() == PORT
    assert len(mending.kept) == len(asked) == 2
    assert "-act = paddle.nn.GELU(approximate=False)\n+act = paddle.nn.GELU(approximate=True)" in asked[0]


def test_a_port_that_raises_in_train_mode_alone_is_mended(port):
    port.write_text(f"{PORT}noise.divide_(0.8)\n")

    def align():
        error = "'float' object has no attribute 'shape'" if "divide_(0.8)" in port.read_text() else ""
        reason = f"drop: in train mode the port raises: {port}:4: AttributeError: {error}, in the port (Paddle)"
        outcome = Outcome.FAIL if error else Outcome.PASS
        return RunReport(verdicts=(Verdict(outcome=outcome, subject="forward/layers", reason=reason if error else ""),))

    mending = mending_of(port, align)
    assert int(mending.mend(align()).exit_code) == 0
    assert "noise.divide_(paddle.to_tensor(0.8))" in port.read_text()


def test_a_port_that_raises_is_run_alone_until_it_runs(port):
    port.write_text(f"{PORT}noise.divide_(0.8)\nnoise.divide_(0.7)\n")
    aligned = []

    def error():
        line = next((at for at, one in enumerate(port.read_text().splitlines(), 1) if "divide_(0" in one), 0)
        return f"{port}:{line}: AttributeError: 'float' object has no attribute 'shape'" if line else ""

    def align():
        aligned.append(port.read_text())
        return report_of(port, error().partition(": ")[2])

    mending = Mending(root=port.parent, align=align, ask=lambda _: True, error=error)
    assert int(mending.mend(align()).exit_code) == 0
    assert len(mending.kept) == 4
    assert "noise.divide_(paddle.to_tensor(0.7))" in aligned[1]  # both lines were mended before it was aligned again


def test_no_bytecode_of_an_earlier_text_is_run(port):
    def align():
        code = "import port; print(port.act)"
        return subprocess.run(
            [sys.executable, "-c", code], cwd=port.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    port.write_text("act = 1\n")
    assert align() == "1"
    written = port.stat()
    _write(port, "act = 2\n")
    os.utime(port, ns=(written.st_atime_ns, written.st_mtime_ns))  # within the same second
    assert align() == "2"


def test_an_edit_that_mends_nothing_is_put_back(port):
    first = report_of(port)
    mending = Mending(root=port.parent, align=lambda: first, ask=lambda _: True)
    assert mending.mend(first) is first
    assert port.read_text() == PORT
    assert not mending.kept


def test_an_edit_that_makes_the_port_raise_is_put_back(port):
    mending = Mending(root=port.parent, align=lambda: report_of(port, "ValueError: no"), ask=lambda _: True)
    mending.mend(report_of(port))
    assert port.read_text() == PORT


def test_a_cause_that_nobody_names_any_more_is_no_progress(port):
    def align():
        report = report_of(port)
        return report if "approximate=False" in port.read_text() else RunReport(verdicts=report.verdicts)

    mending = mending_of(port, align)
    assert int(mending.mend(align()).exit_code) == 1
    assert "approximate=False" in port.read_text()


def test_an_error_about_what_was_written_is_no_progress(port):
    port.write_text("import paddle\nnorm = partial(paddle.nn.LayerNorm, eps=1)\n")
    told = "TypeError: LayerNorm.__init__() got an unexpected keyword argument {0!r}"

    def align():
        found = "epsilon" if "epsilon" in port.read_text() else "eps"
        return report_of(port, told.format(found))

    mending_of(port, align).mend(align())
    assert "eps=1" in port.read_text()


def test_a_port_stays_as_it_is_where_a_run_is_interrupted(port):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Mending(root=port.parent, align=interrupted, ask=lambda _: True).mend(report_of(port))
    assert port.read_text() == PORT


def test_nothing_is_written_without_a_yes(port):
    mending_of(port, answer=False).mend(report_of(port))
    assert port.read_text() == PORT
    assert not (port.parent / "port.py.orig").exists()


def test_a_file_that_imports_torch_is_the_reference_s(port):
    port.write_text("import torch\n" + PORT)
    mending_of(port).mend(report_of(port))
    assert port.read_text() == "import torch\n" + PORT


def test_changes_that_are_not_committed_are_not_touched(port):
    commit_all(port.parent)
    port.write_text(PORT + "# more\n")
    mending = mending_of(port)
    with pytest.raises(UsageError, match="not committed"):
        mending.mend(report_of(port))
    assert port.read_text() == PORT + "# more\n"
    mending_of(port, force=True).mend(report_of(port))
    assert "approximate=True" in port.read_text()
