"""The guide in two languages: its commands are the same, its stages exist, its scripts are there; at night all are run."""

import os
import re
import sys
from pathlib import Path

import pytest
from page_blocks import blocks_of
from programs import completed

from tipchain.modes import INFO, STAGES

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("docs/how-to/guide.md", "docs/how-to/guide.zh.md")
DOCUMENTS = ROOT.parent / "shared" / "user_documents"
NOT_OURS = ("pip", "cd models", "python3 setup.py", "python3 install", "import ", "from ")


def text(name: str) -> str:
    return (ROOT / name).read_text()


def fenced(name: str) -> list[str]:
    return [line for block in blocks_of(ROOT / name) if block.language == "bash" for line in block.lines]


def table(name: str) -> list[tuple[str, str]]:
    """Return the rows of the table of the documents' commands: a document's command, and what to type here."""
    lines = text(name).partition("| HPE")[2].splitlines()
    rows = [line.strip("|").split(" | ") for line in ["HPE" + lines[0], *lines[1:]] if line.startswith(("|", "HPE"))]
    return [(row[-2], row[-1]) for row in rows]


def test_the_table_has_the_same_commands_in_both_languages():
    assert [row[0].split("`")[1::2] for row in table(GUIDES[0])] == [
        row[0].split("`")[1::2] for row in table(GUIDES[1])
    ]


def test_the_guide_has_every_stage_with_the_names_of_its_files():
    guide = text(GUIDES[0])
    run = {stage for line in fenced(GUIDES[0]) for stage in line.partition("--only ")[2].split(",") if stage}
    assert run == set(STAGES)
    for stage, info in INFO.items():
        assert f"| `{stage}` | `{info.prefix}_{{{info.reference},paddle}}.npy`" in guide
        assert f"`{info.prefix}_diff.log`" in guide


def test_scripts_that_the_table_names_are_there():
    names = set(re.findall(r"(?:alignment|test_tipc|tools)/[\w/]+\.(?:py|sh|txt)", text(GUIDES[0])))
    assert len(names) > 20
    assert [name for name in names if not (ROOT / name).is_file()] == []


@pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="the user documents are not beside this clone")
def test_every_command_of_the_documents_is_in_the_table():
    given = " ".join(row[0] for row in table(GUIDES[0])).replace("…", "")
    for path in sorted(DOCUMENTS.glob("*.md")):
        for block in re.findall(r"```(?:shell|bash)\n(.*?)```", path.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command = line.removeprefix("$ ").strip().replace("python3.7", "python")
                if not command.startswith(("python ", "bash ", "sh ", "cd ")) or command.startswith(NOT_OURS):
                    continue
                words = [word for word in command.split() if word.endswith((".py", ".sh", ".txt")) or "/" in word]
                for word in words:
                    assert word.strip("'\"") in given, f"{path.name}: {command}"


@pytest.mark.nightly
@pytest.mark.frameworks
@pytest.mark.timeout(3600)
def test_the_commands_work():
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["TIPCHAIN_PYTHON"] = sys.executable
    rows = table(GUIDES[0])
    prepare = next(given.strip("`") for given, _ in rows if "prepare.sh test_tipc/configs/mvf" in given)
    documents = [
        prepare,
        *(code for _, here in rows for code in here.split("`")[1::2] if code.startswith("python alignment/step")),
    ]
    for line in [*(line for line in fenced(GUIDES[0]) if not line.startswith("source ")), *documents]:
        done = completed(["bash", "-c", line], cwd=ROOT, env=environment, timeout=1200)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
