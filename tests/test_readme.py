"""Every fenced command of the README files is run, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "bash test_train_inference_python.sh test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer":
        "tests/test_main_job.py",
    "bash tests/run.sh": "it runs this test",
    "source .venv/bin/activate": "the environment that this test runs in",
}  # fmt: skip
BY_DAY = {"tipchain align configs/alexnet.yaml": "--only forward,data"}
"""What a command has besides by day, where tests/test_main_job.py runs the other stages of the same case anyway."""


def fenced(name: str, language: str) -> list[str]:
    """Return the lines of all blocks of a language in a file."""
    text = (ROOT / name).read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def commands(name: str) -> list[str]:
    return [line for line in fenced(name, "bash") if line not in ELSEWHERE]


def test_the_two_commands_stand_at_the_top():
    for name in ("README.md", "README_cn.md"):
        first, second = fenced(name, "bash")[:2]
        assert first.startswith("bash test_train_inference_python.sh ")
        assert second == "bash tests/run.sh"


def test_what_runs_elsewhere_is_still_in_the_readme():
    assert set(ELSEWHERE) <= set(fenced("README.md", "bash"))


@pytest.mark.frameworks
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("added", [BY_DAY, pytest.param({}, marks=pytest.mark.nightly)], ids=["day", "night"])
def test_the_readmes_commands_work(added):
    assert set(added) <= set(commands("README.md"))
    (ROOT / "output" / "my_net.yaml").unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["TIPCHAIN_PYTHON"] = sys.executable
    for line in commands("README.md"):
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


def test_the_chinese_quick_start_has_no_command_of_its_own():
    assert set(commands("README_cn.md")) <= set(commands("README.md"))


@pytest.mark.parametrize("name", ["README.md", "README_cn.md", "docs/reference/reprod_log.md"])
def test_python_blocks_run(name):
    program = "\n".join(fenced(name, "python"))
    assert program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "README_cn.md",
        "test_tipc/README.md",
        "docs/reference/reprod_log.md",
        "docs/how-to/nightly.md",
        "docs/how-to/ci.md",
        "docs/how-to/history.md",
        "docs/how-to/bundles.md",
        "CONTRIBUTING.md",
    ],
)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        if "://" not in target:
            assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"
