"""``tipchain run`` and ``tipchain report`` as users call them, with stub interpreters."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from chain_samples import ALIGNMENT, LEAVES, TEMPLATE, edit, living, stub
from programs import await_

from tipchain.chain.gpus import Gpus
from tipchain.cli import main
from tipchain.nightly.origin import origin

MODE = "lite_train_lite_infer"
OUT = Path("test_tipc/output/net") / MODE


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text(TEMPLATE + ALIGNMENT)
    return tmp_path


def go(body, *options, text=None):
    if text:
        Path("p.txt").write_text(text)
    return main(["run", "p.txt", MODE, "--python", str(stub(Path.cwd() / "py", body)), *options])


def test_a_good_run(capsys):
    assert go(LEAVES, "--json", "r.json", "--junit", "r.xml") == 0
    text = capsys.readouterr().out
    assert "the chain passed: 12 commands; the port equals its reference\n" in text
    assert "12 passed in" in text
    assert "exit code 0" in text
    assert "page" not in text
    (run,) = (OUT / "runs").iterdir()
    assert not (run / "report.html").exists()
    assert json.loads(Path("r.json").read_text()) == json.loads((run / "report.json").read_text())
    assert ET.parse("r.xml").getroot().get("tests") == "12"
    assert (OUT / "norm_train_gpus_-1_autocast_null/best.pdparams").read_text() == "1\n"
    infer = OUT / "python_infer_cpu_usemkldnn_True_threads_2_precision_fp32_batchsize_4.log"
    assert infer.read_text() == "class 1, score 0.9\n"
    assert json.loads((run / "report.json").read_text())["chain"] == "train_infer_python"
    where = json.loads((run / "report.json").read_text())["where"]
    assert where == json.loads(json.dumps(origin(Path.cwd())))
    assert where["machine"] == socket.gethostname()
    record = json.loads((run / "report.json").read_text())["results"][5]
    assert record["command"]["env"]["TIPCHAIN_MODE"] == MODE
    assert record["exit_code"] == 0
    assert {"argv", "log"} <= set(record["command"])
    assert {"started", "seconds", "peak_memory_mb", "signal", "tail"} <= set(record)


def test_a_failed_run_leaves_a_page_says_where_and_is_rendered_again(capsys):
    assert go(f"case $1 in *eval*) echo 'boom <b>'; exit 3;; esac; {LEAVES}") == 1
    (run,) = (OUT / "runs").iterdir()
    page = json.loads((run / "report.json").read_text())["page"]
    assert page == str(OUT / "runs" / run.name / "report.html")
    shown = capsys.readouterr().out
    assert f"page\n{page}\n" in shown, "too long for a line with a word before it"
    text = Path(page).read_text()
    assert "boom &lt;b&gt;" in text
    assert "model <code>net</code>" in text
    assert main(["report", str(run), "--html", "again.html"]) == 1
    assert "page  again.html" in capsys.readouterr().out
    assert "boom &lt;b&gt;" in Path("again.html").read_text()
    assert main(["report", str(run), "--junit", "again.xml"]) == 1
    again = capsys.readouterr().out
    assert again.startswith("the chain FAILED at eval[")
    assert shown.endswith(again)
    assert main(["report", str(run / "report.json"), "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1
    assert ET.parse("again.xml").getroot().get("failures") == "1"
    assert main(["report", "nowhere"]) == 2


def test_a_good_run_has_a_page_where_it_is_asked_for():
    assert go(LEAVES, "--html", "page.html") == 0
    assert "the chain passed</h1>" in Path("page.html").read_text()
    assert go(LEAVES, "--html", "p.txt/page.html") == 2


def test_a_failed_run_is_annotated_on_github(capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert go("echo 'boom <b>'; exit 3", "--github") == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert lines[0].startswith("::error file=p.txt,title=p.txt%3A align[01]::exit 3: boom <b>")
    assert len(lines) <= 10
    assert Path("summary.md").read_text().startswith("## ❌ the chain FAILED at align")
    assert "<b>" not in Path("summary.md").read_text()


def test_the_results_log_is_appended_under_headers():
    go(LEAVES)
    go('case "$1" in train.py) echo "Run successfully"; exit 3;; esac' + LEAVES)
    lines = (OUT / "results_python.log").read_text().splitlines()
    heads = [index for index, line in enumerate(lines) if line.startswith("# ==== run ")]
    assert len(heads) == 2
    first, second = lines[: heads[1]], lines[heads[1] :]
    status = [line for line in first if line.startswith("\x1b[33m Run successfully with command - ")]
    assert len(status) == 12
    assert all(line.endswith("!  \x1b[0m") for line in status)
    assert "device=cpu" in first[1]
    (failed,) = [line for line in second if "Run failed with command" in line]
    assert "train.py --case a.yaml" in failed
    assert "successfully" not in failed
    run = second[0].split()[3]
    assert f"# {run} train[norm_train;gpus=-1] FAIL" in "\n".join(second)
    assert "reason=not run: train[norm_train;gpus=-1] failed" in "\n".join(second)
    assert len([line for line in second if "successfully" in line]) == 5


def test_nothing_planned_is_4_and_makes_nothing(capsys):
    assert go("true", text=edit(TEMPLATE, ("norm_train", "norm_train:null"))) == 4
    assert "the trainer norm_train is skipped" in capsys.readouterr().err
    assert not OUT.exists()


def test_a_program_that_is_not_in_the_checkout_is_told_before_anything_starts(capsys):
    Path("eval.py").touch()
    assert go(LEAVES, text=TEMPLATE) == 2
    assert "p.txt:16: train.py, which train[norm_train;gpus=-1] runs, is not in " in capsys.readouterr().err
    assert go(LEAVES, text=edit(TEMPLATE, ("gpu_list", "gpu_list:0,1"), ("norm_train", "norm_train:-u train.py"))) == 2
    assert "p.txt:16: train.py, which train[norm_train;gpus=0,1] runs, is not in " in capsys.readouterr().err
    assert not OUT.exists()


def test_a_file_that_is_not_there_is_told_with_one_of_its_name_further_down(capsys):
    Path("configs/net").mkdir(parents=True)
    Path("configs/net/q.txt").write_text(TEMPLATE)
    assert main(["plan", "q.txt", MODE]) == 2
    assert "hint: there is configs/net/q.txt" in capsys.readouterr().err


def test_only_skips_is_4_and_one_line_says_what_runs_here(monkeypatch, capsys):
    for room in ("chain", "commands"):
        monkeypatch.setattr(f"tipchain.{room}.run.find_gpus", lambda: Gpus(trouble="no usable GPU on this machine"))
    assert go("true", text=edit(TEMPLATE, ("gpu_list", "gpu_list:0"))) == 4
    assert "--device cpu runs the whole file here" in " ".join(capsys.readouterr().out.split())


def test_a_data_folder_of_the_users_and_json_alone_on_standard_output(capsys):
    Path("images").mkdir()
    body = '[ "$TIPCHAIN_DATA" = "$PWD/images" ] || exit 1' + LEAVES
    assert go(body, "--data-path", "images", "--json", "-") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == 0
    assert "12 passed" in captured.err
    assert main(["run", "p.txt", MODE, "--data-path", "absent"]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_the_table_is_shown_although_a_report_cannot_be_written(capsys):
    assert go(LEAVES, "--json", "/dev/full") == 2
    captured = capsys.readouterr()
    assert "12 passed" in captured.out
    assert "/dev/full: cannot be written: " in captured.err


def test_a_results_log_that_cannot_be_written_is_an_error(capsys):
    (OUT / "results_python.log").mkdir(parents=True)
    assert go(LEAVES) == 1
    assert "run/results_python.log: cannot be written: Is a directory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "jobs", "hang", "told"),
    [
        (signal.SIGINT, 1, ["train.py"], "interrupted: so far 5 of 12 commands passed"),
        (signal.SIGTERM, 4, ["train.py", "01_test_forward.py"], "2 errors, 10 skipped in"),
    ],
)
def test_an_interrupt_ends_all_children_and_shows_the_partial_table(number, jobs, hang, told):
    body = f'case "${{1##*/}}" in {"|".join(hang)}) sleep 60 & echo $! > child-"${{1##*/}}"; echo $$ > pid-"${{1##*/}}"; wait;; esac'
    program = str(stub(Path.cwd() / "py", body))
    argv = [sys.executable, "-m", "tipchain", "run", "p.txt", MODE, "--python", program, "--jobs", str(jobs)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    await_(lambda: all(Path(f"pid-{name}").exists() for name in hang))
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told in text
    assert "exit code 130" in text
    assert "Traceback" not in text
    assert not any(living(Path(f"{kind}-{name}")) for kind in ("pid", "child") for name in hang)
    (run,) = (OUT / "runs").iterdir()
    assert json.loads((run / "report.json").read_text())["interrupted"] is True
