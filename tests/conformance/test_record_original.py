"""The recorder on a driver of our own, which does what the public ones do to a command, and the comparison of what it wrote."""

import pytest
import record_original
from chain_samples import TEMPLATE
from command_lists import difference, read_recorded
from record_original import render

from tipchain.chain.load import fingerprint

COMMON = """
function run_command() {
  eval ${1} 2>&1 | tee "$2"
  test ${PIPESTATUS[0]} -eq 0
}
function func_inference() {
  command="$1 infer.py --model=$2 > $3 2>&1"
  eval $command
  echo done | tee -a $LOG_PATH/results.log
}
"""
DRIVER = """
source test_tipc/common_func.sh
pip install -r requirements.txt
IFS=$'\\n'
lines=($(cat $1))
python=${lines[1]#*:}
LOG_PATH=./test_tipc/output/$2
mkdir -p $LOG_PATH
IFS="|"
for gpu in ${lines[2]#*:}; do
  export CUDA_VISIBLE_DEVICES=$gpu
  sleep 5
  cmd="$python train.py --do_eval --save_dir=$LOG_PATH/$gpu 'two words'"
  run_command "$cmd" $LOG_PATH/train.log
  eval "timeout 5m $cmd --again > $LOG_PATH/again.log 2>&1"
  eval_cmd="$python eval.py"
  if [ -f $LOG_PATH/$gpu/best_model/model.pdparams ]; then eval $eval_cmd; fi
  export_cmd="$python export.py $(pwd)"
  eval $export_cmd
  cd deploy
  func_inference $python .. $OLDPWD/$LOG_PATH/infer.log
  cd ..
  unset CUDA_VISIBLE_DEVICES
done
(cd src; $python setup.py)
"""
PARAMS = "===params===\npython:{python}\ngpu_list:0|1\n"


@pytest.fixture
def start(tmp_path):
    """Return a checkout with the driver and a program that must not be started."""
    for name in ("deploy", "src", "test_tipc/configs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file.py").write_text("text")
    (tmp_path / "test_tipc/common_func.sh").write_text(COMMON)
    (tmp_path / record_original.DRIVER).write_text(DRIVER)
    (tmp_path / "test_tipc/configs/train_infer_python.txt").write_text(PARAMS.format(python="python3.7"))
    return tmp_path


def listed(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_what_a_driver_starts_is_noted(start, tmp_path_factory):
    before = listed(start)
    copy = tmp_path_factory.mktemp("copy")
    original = record_original.Original(start, record_original.DRIVER, copy)
    params = start / "test_tipc/configs/train_infer_python.txt"
    (first, again, evaluation, export, infer, *second, setup) = original.record(params, "whole_infer")
    out = "test_tipc/output/whole_infer"
    train = ["python3.7", "train.py", "--do_eval", f"--save_dir=./{out}/0", "two words"]
    on = {"cwd": ".", "cuda_visible_devices": "0", "log": None}
    assert first == {"step": "train", **on, "log": f"{out}/train.log", "argv": train}
    assert again == {"step": "train", **on, "log": f"{out}/again.log", "argv": [*train, "--again"]}
    assert evaluation == {"step": "eval", **on, "argv": ["python3.7", "eval.py"]}
    assert export == {"step": "export", **on, "argv": ["python3.7", "export.py", "{ROOT}"]}
    argv = ["python3.7", "infer.py", "--model=.."]
    assert infer == {"step": "infer", **on, "cwd": "deploy", "log": f"{out}/infer.log", "argv": argv}
    assert [one["cuda_visible_devices"] for one in second] == ["1"] * 5
    off = {"cwd": "src", "cuda_visible_devices": None, "log": None}
    assert setup == {"step": "other", **off, "argv": ["python3.7", "setup.py"]}
    assert listed(start) == before
    assert original.record(params, "whole_infer")[0] == first


def test_an_interpreter_with_a_path_is_refused(start):
    params = start / "test_tipc/configs/train_infer_python.txt"
    params.write_text(PARAMS.format(python="/usr/bin/python3"))
    with pytest.raises(SystemExit, match="/usr/bin/python3"):
        record_original.main([str(start), "--mode", "whole_infer"])


def test_differences_are_counted_and_lists_written(start, capsys):
    params = start / "test_tipc/configs/train_infer_python.txt"
    params.write_text(TEMPLATE)  # of which the made-up driver makes something else than the templates' driver
    arguments = [str(start), "--mode", "whole_infer", "--suite", "template", "--write"]
    assert record_original.main(arguments) == 1
    shown = capsys.readouterr().out
    assert "test_tipc/configs/train_infer_python.txt whole_infer: command 1" in shown
    assert shown.endswith("1 files, 1 lists, 0 equal, 1 differ\n")
    written = read_recorded(params.with_suffix(".jsonl"))["whole_infer"]
    assert [command["step"] for command in written][:3] == ["train", "train", "eval"]


def test_a_driver_that_starts_what_the_plan_has_differs_in_nothing(start, capsys, monkeypatch):
    monkeypatch.setattr(record_original, "planned", lambda *_: [])
    (start / record_original.DRIVER).write_text("exit 1\n")
    assert record_original.main([str(start)]) == 0
    scripts = f"test_train_inference_python.sh {fingerprint('exit 1')}, common_func.sh {fingerprint(COMMON)}"
    assert capsys.readouterr().out == f"{scripts}\n1 files, 5 lists, 5 equal, 0 differ\n"


def test_a_file_after_write_is_no_versions_name(start, capsys):
    with pytest.raises(SystemExit):
        record_original.main([str(start), "--write", "train_infer_python.txt"])
    assert "files come before --write" in capsys.readouterr().err


ONE = {"step": "train", "cwd": ".", "cuda_visible_devices": "0", "log": "a.log", "argv": ["python", "a b"]}
TWO = ONE | {"step": "eval", "argv": ["python", "eval.py"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "infer"),
        ("cwd", "deploy"),
        ("cuda_visible_devices", None),
        ("log", None),
        ("argv", ["python", "a", "b"]),
    ],
)
def test_each_fact_of_a_command_counts(field, value):
    found = difference([TWO, ONE], [TWO, ONE | {field: value}])
    assert found.startswith(f"command 2 of 2, {field}:")


LISTS = {
    "lite_train_lite_infer": [ONE | {"argv": ["python", "--epochs=1", "a b"]}, TWO | {"cwd": "deploy"}],
    "whole_train_whole_infer": [ONE | {"argv": ["python", "a b"]}, TWO | {"cwd": "deploy"}, TWO | {"log": None}],
    "whole_infer": [],
}


def test_what_is_written_is_read_back(tmp_path):
    (tmp_path / "a.jsonl").write_text(render("suite@1", LISTS))
    assert read_recorded(tmp_path / "a.jsonl") == LISTS
    assert list(read_recorded(tmp_path / "a.jsonl")) == list(LISTS)
