import json
import os
import sys

import numpy as np
import pytest
from programs import completed

from tipchain.cli import main
from tipchain.core.json_text import parse_as
from tipchain.errors import Outcome
from tipchain.numbers.dumps import save_record
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict, compare, render_verdicts


@pytest.fixture
def dumps(tmp_path):
    values = np.random.default_rng(0).standard_normal((4, 1000), dtype=np.float32)
    wrong = values.copy()
    wrong[1, 437] += 9

    def make(port=None, reference=None):
        paths = [str(tmp_path / name) for name in ("torch.npy", "paddle.npy")]
        save_record(paths[0], {"logits": values} if reference is None else reference)
        save_record(paths[1], {"logits": wrong if port == "wrong" else values} if port in (None, "wrong") else port)
        return paths

    return make


def test_equal_dumps_pass(dumps, capsys):
    assert main(["diff", *dumps()]) == 0
    assert capsys.readouterr().out == "PASS   logits  mean 0\n\n1 compared: 1 PASS  (mean <= 1e-06)\n"


@pytest.mark.parametrize(
    "options",
    [[], ["--method", "max"], ["--method", "all", "--threshold", "0.1"], ["--rtol", "1e-5", "--atol", "1e-6"]],
)
def test_a_wrong_element_fails_with_place_values_and_way_out(dumps, capsys, options):
    assert main(["diff", *dumps("wrong"), *options]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL   logits  not close\n")
    assert "worst at (1, 437): expected " in out
    assert "would pass with" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_looser_tolerance_passes(dumps):
    assert main(["diff", *dumps("wrong"), "--threshold", "0.1"]) == 0
    assert main(["diff", *dumps("wrong"), "--rtol", "0", "--atol", "10"]) == 0
    assert main(["diff", *dumps("wrong"), "--method", "min"]) == 0


def test_a_vacuous_check_is_a_warning(dumps, capsys):
    tiny = {"loss": np.full(3, 1e-9, np.float32), "label": np.zeros(3, np.int64)}
    assert main(["diff", *dumps(tiny, tiny)]) == 0
    assert capsys.readouterr().out.count("warning: proves nothing") == 1


def test_two_empty_dumps_are_nothing_checked(dumps, capsys):
    assert main(["diff", *dumps({}, {})]) == 4
    assert "nothing was compared" in capsys.readouterr().out


def test_equal_nan(dumps):
    values = {"a": np.array([1.0, np.nan])}
    assert main(["diff", *dumps(values, values)]) == 1
    assert main(["diff", *dumps(values, values), "--equal-nan"]) == 0


def test_the_log_holds_reprod_logs_lines(dumps, tmp_path):
    log = tmp_path / "logs" / "diff.log"
    assert main(["diff", *dumps("wrong"), "--log", str(log)]) == 1
    assert log.read_text().splitlines()[-1].endswith("root INFO: diff check failed")
    assert main(["diff", *dumps(), "--log", str(log)]) == 0
    assert "mean diff: check passed: True, value: 0.0" in log.read_text()
    assert "failed" not in log.read_text()


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_valid_with_nan_and_holds_the_verdicts(dumps, tmp_path, capsys):
    paths = dumps(
        {"a": np.array([np.nan, 1]), "b": np.array([np.inf])}, {"a": np.array([1, 1.0]), "b": np.array([1.0])}
    )
    assert main(["diff", *paths, "--json", "-"]) == 1
    document = strict(capsys.readouterr().out)
    assert document["exit_code"] == 1
    assert [item["outcome"] for item in document["verdicts"]] == ["FAIL", "FAIL"]
    assert document["verdicts"][0]["diff"]["mean_abs"] == "NaN"
    assert document["verdicts"][1]["diff"]["max_abs"] == "Infinity"
    assert main(["diff", *paths, "--json", str(tmp_path / "x.json")]) == 1
    assert strict((tmp_path / "x.json").read_text()) == document
    assert "FAIL" in capsys.readouterr().out


def test_verdicts_come_back_from_json():
    reference = {"a": np.ones((2, 3)), "b": np.array([np.inf]), "c": np.array([1 + 2j]), "d": np.arange(3), "e": 1.0}
    port = {"a": np.zeros((2, 3)), "b": np.array([1.0]), "c": np.array([2j]), "d": np.arange(3), "f": 1.0}
    verdicts = compare(reference, port, Tolerance(threshold=1e-6))
    assert {verdict.outcome for verdict in verdicts} == {Outcome.PASS, Outcome.FAIL}
    assert parse_as(list[Verdict], strict(json.dumps(render_verdicts(verdicts))), lenient=True) == verdicts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rtol", "1"], "rtol and atol must be given together"),
        (["--rtol", "1", "--atol", "1", "--method", "max"], "either --method and --threshold or --rtol and --atol"),
        (["--method", "median"], "invalid choice"),
    ],
)
def test_wrong_use_is_exit_2(dumps, capsys, options, message):
    assert main(["diff", *dumps(), *options]) == 2
    assert message in capsys.readouterr().err


def test_unreadable_input_is_exit_2_and_one_message(dumps, tmp_path, capsys):
    reference, port = dumps()
    (tmp_path / "bad.npy").write_text("no dump")
    for path in (tmp_path / "nope.npy", tmp_path / "bad.npy", tmp_path):
        assert main(["diff", reference, str(path)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {path}: ")
        assert "Traceback" not in err
    assert main(["diff", reference, port, "--log", str(tmp_path / "bad.npy" / "x.log")]) == 2
    assert "x.log: cannot be written" in capsys.readouterr().err


SHARED = """
import os, signal, sys
import numpy as np
from tipchain.core import machine
from tipchain.commands import diff
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import compare

machine.core_count = lambda: 3
forks, fork = [], os.fork
os.fork = lambda: forks.append(1) or fork()
generator = np.random.default_rng(0)
reference = {f"{n}": generator.normal(size=(n % 5 + 1) * 50).astype("f4") for n in range(40)}
port = {name: array + np.float32(1e-6) for name, array in reversed(reference.items())}
port["7"][3], port["8"] = np.nan, port["8"][:5]
port["more"], port["extra"] = port.pop("11"), np.ones(3)
rule = Tolerance(threshold=1e-6)
alone = repr(compare(reference, port, rule))
assert repr(diff.compare_on_cores(reference, port, rule)) == alone and not forks  # too small
assert repr(diff.compare_on_cores(reference, port, rule, share=1000)) == alone and len(forks) == 2
_exit = os._exit
os._exit = lambda code: os.kill(os.getpid(), signal.SIGKILL)
assert repr(diff.compare_on_cores(reference, port, rule, share=1000)) == alone and len(forks) == 4
os._exit = _exit
try:
    diff.compare_on_cores(reference, port, {"*": "no tolerance"}, share=1000)
except AttributeError:
    print("raised here")
"""


def test_large_dumps_are_shared_between_processes_and_no_fact_changes():
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = completed([sys.executable, "-c", SHARED], env=env)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["raised here"]), done.stderr


def test_diff_itself_starts_no_threads_that_keep_it_on_one_core(dumps):
    script = (
        "import os, sys; from tipchain.cli import main; main(sys.argv[1:]); print(len(os.listdir('/proc/self/task')))"
    )
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = completed([sys.executable, "-c", script, "diff", *dumps()], env=env, check=True)
    assert done.stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize("case", ["gone.yaml", None])
def test_default_tolerances_are_remarked_where_the_case_is_not_here(tmp_path, capsys, case):
    for side in ("torch", "paddle"):
        meta = {"side": side, "stage": "forward", **({"case": str(tmp_path / case)} if case else {})}
        save_record(tmp_path / f"forward_{side}", {"logits": np.ones(3)}, meta=meta)
    assert main(["report", str(tmp_path)]) == 0
    assert "the case that was run is not here: default tolerances" in " ".join(capsys.readouterr().out.split())


def test_a_run_without_a_report_is_not_shown_by_its_dumps_unless_they_are_asked_for(tmp_path, capsys):
    (tmp_path / "log_reprod").mkdir()
    for side in ("torch", "paddle"):
        save_record(tmp_path / "log_reprod" / f"forward_{side}", {"logits": np.ones(3)})
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no report" in capsys.readouterr().err
    for words in (["--only", "forward"], ["--strict"], ["--threshold", "0"]):
        assert main(["report", str(tmp_path), *words]) == 0
    assert main(["report", str(tmp_path / "gone"), "--strict"]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_lines_of_a_reason_stay_lines(tmp_path, capsys):
    save_record(tmp_path / "forward_torch", {"logits": np.ones(3)})
    (tmp_path / "forward_paddle.npy").write_bytes(b"no dump")
    assert main(["report", str(tmp_path), "-v"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "found: a file that starts with b'no dum', not with b'\\x93NUMPY'" in lines
