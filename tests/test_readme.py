"""README and its Chinese twin keep in step; the commands of README and of the page of steps are run, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import forking
import numpy as np
import pytest
from page_blocks import ROOT, blocks_of

READMES = ("README.md", "README_cn.md")
RUN = ("README.md", "docs/how-to/steps.md")
"""The pages whose lines of bash are run here."""
ELSEWHERE = {
    "bash test_train_inference_python.sh test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer": "tests/test_main_job.py",
    "bash tests/run.sh": "it runs this test",
    "source .venv/bin/activate": "the environment that this test runs in",
}
BY_DAY = {"tipchain align configs/alexnet.yaml": "--only forward,data"}
"""What a command has besides by day, where tests/test_main_job.py runs the other stages of the same case anyway."""


def fenced(name: str, language: str) -> list[str]:
    """Return the lines of all blocks of a language in a file."""
    return [line for block in blocks_of(ROOT / name) if block.language == language for line in block.lines]


def commands() -> list[str]:
    return [line for name in RUN for line in fenced(name, "bash") if line not in ELSEWHERE]


def headings(name: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+) ", text, re.MULTILINE)


def test_the_two_commands_stand_at_the_top():
    for name in READMES:
        first, second = fenced(name, "bash")[:2]
        assert first.startswith("bash test_train_inference_python.sh ")
        assert second == "bash tests/run.sh"


def test_what_runs_elsewhere_is_still_in_the_pages():
    assert set(ELSEWHERE) <= {line for name in RUN for line in fenced(name, "bash")}


def test_the_chinese_readme_has_the_same_headings_blocks_and_pages():
    assert headings("README.md") == headings("README_cn.md")
    english, chinese = (list(blocks_of(ROOT / name)) for name in READMES)
    assert english == chinese
    pages = [re.findall(r"\]\((docs/[^)#]+)", (ROOT / name).read_text()) for name in READMES]
    assert pages[0] == [page.replace(".zh.md", ".md") for page in pages[1]]


@pytest.mark.frameworks
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("added", [BY_DAY, pytest.param({}, marks=pytest.mark.nightly)], ids=["day", "night"])
def test_the_commands_work(added):
    assert set(added) <= set(commands())
    (ROOT / "output" / "my_net.yaml").unlink(missing_ok=True)
    environment = {**forking.environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["TIPCHAIN_PYTHON"] = sys.executable
    for line in commands():
        done = subprocess.run(
            ["bash", "-c", f"{line} {added.get(line, '')}"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.frameworks
def test_the_lines_for_a_port_of_ones_own_work():
    import torch
    from paddle import nn

    names: dict = {}
    exec("\n".join(fenced("README.md", "python")), names)
    images = np.ones((2, 4), np.float32)
    passed, causes = names["compare_models"](torch.nn.Linear(4, 3), nn.Linear(4, 3), images)
    assert passed
    assert not causes
    wrong = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    passed, causes = names["compare_models"](torch.nn.Sequential(torch.nn.Linear(4, 3)), wrong, images)
    assert not passed
    assert causes
