"""Parameter files that the tests of chains start from, and stub interpreters."""

import gzip
import json
import re
from pathlib import Path

import psutil
import pytest

from tipchain.chain.params import ParamFile
from tipchain.chain.plan import Plan
from tipchain.modes import Mode

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "../shared/tipc_corpus"

SLIM = """\
pact_train:null
fpgm_train:null
distill_train:null
null:null
null:null
##
===========================eval_params===========================
"""
"""What stands between most files' training and evaluation."""
EXPORTS = """\
quant_export:null
fpgm_export:null
distill_export:null
export1:null
export2:null
"""

TEMPLATE = f"""\
===========================train_params===========================
model_name:net
python:python
gpu_list:-1
--device:cpu
--amp:null
--epochs:lite_train_lite_infer=1|whole_train_whole_infer=9
--output-dir:./output/
--batch-size:lite_train_lite_infer=4
--pretrained:null
train_model_name:best.pdparams
null:null
null:null
##
trainer:norm_train
norm_train:train.py --case a.yaml
{SLIM}eval:eval.py
null:null
##
===========================infer_params===========================
--save-dir:null
--weights:null
norm_export:export.py
{EXPORTS}##
infer_model:./weights/net.pdparams
infer_export:export.py
infer_quant:False
inference:infer.py
--use-gpu:False
--mkldnn:False|True
--threads:2
--bs:1|4
null:null
--precision:fp32
--model:null
--image:./images
null:null
--benchmark:True
null:null
"""

TUTORIAL = """\
===========================train_params===========================
model_name:net
python:python
gpu_list:0
use-gpu:True
--epochs:lite_train_lite_infer=5|whole_train_whole_infer=90
--output-dir:./output/
--batch-size:lite_train_lite_infer=4
--pretrained:null
train_model_name:latest.pdparams
--data-path:./lite_data
##
trainer:norm_train
norm_train:train.py
##
===========================eval_params===========================
eval:train.py --test-only
##
===========================infer_params===========================
--save-inference-dir:./output/net_infer/
--pretrained:
norm_export:export.py
##
train_model:./weights/net.pdparams
infer_export:export.py
##
inference:infer.py
--use-gpu:True|False
--batch-size:1
--model-dir:./output/net_infer/
--img-path:./images/demo.jpg
--benchmark:True
"""

PROGRAM = """\
import pathlib, sys
LEFT = {"--output-dir": ["best.pdparams"], "--save-dir": ["inference.pdmodel", "inference.pdiparams"]}
for key, _, value in (word.partition("=") for word in sys.argv[1:]):
    for name in LEFT.get(key, ()):
        pathlib.Path(value).mkdir(parents=True, exist_ok=True)
        pathlib.Path(value, name).write_text(key)
print("class 1, score 0.9")
"""
"""A program that leaves what each step of TEMPLATE must."""

LEAVES = """
for word in "$@"; do
  case "$word" in
    --output-dir=*) mkdir -p "${word#*=}"; echo 1 > "${word#*=}/best.pdparams" ;;
    --save-dir=*) mkdir -p "${word#*=}"; for kind in model iparams; do echo 1 > "${word#*=}/inference.pd$kind"; done ;;
  esac
done
echo "class 1, score 0.9"
"""
"""The same as the body of a stub interpreter."""

ALIGNMENT = """\
===========================alignment_params===========================
alignment:configs/net.yaml
steps:01|02|03|04|05
"""

DEMO_CASE = """\
id: demo
sides:
  torch: {model: "demo:model", dataset: "demo:data"}
  paddle: {model: "demo:model", dataset: "demo:data"}
stages: [data]
"""
"""A case that needs data and nothing else."""
DEMO_HEAD = "===demo_params===\nmodel_name:demo\n"
DEMO_ALIGNMENT = "===alignment_params===\nalignment:configs/demo.yaml\nsteps:02\n"


def edit(text: str, *changes: tuple[str, str]) -> str:
    """Return ``text`` with each line that starts with the first word replaced by the second."""
    lines = text.splitlines()
    for start, new in changes:
        places = [index for index, line in enumerate(lines) if line.startswith(start)]
        assert places, start
        lines[places[0] : places[0] + 1] = new.splitlines()
    return "\n".join(lines) + "\n"


def kind_sample(kind: str, suite: str) -> str:
    """Return a parameter file of another kind of chain, as a suite writes it."""
    return (ROOT / f"tests/conformance/kind_samples/{kind}/{suite}.txt").read_text(encoding="utf-8")


def corpus() -> list[dict]:
    """Return the recorded command lists, or skip where they are not."""
    file = CORPUS / "expected.jsonl.gz"
    if not file.exists():
        pytest.skip("the corpus of parameter files is not here")
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def a_plan(**more) -> Plan:
    """Return a plan of which nothing but ``more`` counts."""
    return Plan(
        **dict.fromkeys(("params", "suite", "model", "status", "out", "run"), "") | {"mode": Mode.WHOLE_INFER} | more
    )


def stub(path: Path, body: str) -> Path:
    """Write a stub interpreter: bash that sees the program's arguments."""
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return path


def lay_params(root: Path, text: str) -> Path:
    """Write a parameter file below ``root``, in the folder where suites have theirs."""
    path = root / "test_tipc/configs/net/train_infer_python.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lay_programs(root: Path, body: str = "") -> None:
    """Lay a file of this text for each program that `TEMPLATE` names."""
    for name in re.findall(r"(?<=:)[\w/]+\.py", TEMPLATE):
        (root / name).write_text(body)


def living(pid_file: Path) -> bool:
    """Return whether the process whose id stands in ``pid_file`` runs; a zombie does not."""
    try:
        return psutil.Process(int(pid_file.read_text())).status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.NoSuchProcess):
        return False


def render_params(file: ParamFile) -> str:
    """Return text that parses to ``file``, comments and blank lines included."""
    return "".join(line + "\n" for line in file.lines)
