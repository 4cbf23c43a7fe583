"""The pages of docs: every call of tipchain in them could be made, their Python runs, and the tutorial is followed."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import reference_pages
from page_blocks import ROOT, blocks_of, follow, run_line
from programs import completed

from tipchain.cli import COMMANDS, parser_of

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if not path.name.endswith(".zh.md"))
SAMPLES = ROOT / "tests" / "page_samples.py"
"""What the Python of pages that show lines out of a program has around it: models, inputs, builders."""
CALL = re.compile(r"^(?:[$>] |- run: )?(?:flock -n \S+ )?(tipchain (?!COMMAND|\$).*)$")
HAS_PYTHON = [
    page for page in PAGES if any(block.language == "python" and not block.title for block in blocks_of(page))
]


def calls(page: Path) -> Iterator[str]:
    """Yield the calls of tipchain in a page's blocks, without what is said about them to their right."""
    for block in blocks_of(page):
        if block.language not in ("bash", "text", "console"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            found = CALL.match(line.strip())
            if found:
                yield re.split(r"\s{3,}|\s+# | >> ", re.sub(r"\[(-.*?|GPU_ID)\]", "", found[1]).replace("~", ""))[0]


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def test_every_link_to_a_file_works_in_a_plain_clone():
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = completed(words, cwd=ROOT, check=True).stdout.splitlines()
    files = {Path(name) for name in listed if (ROOT / name).exists()}
    places = files | {folder for file in files for folder in file.parents}
    for page in sorted(file for file in files if file.suffix == ".md"):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            assert "://" in target or Path(os.path.normpath(page.parent / target)) in places, f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_call_of_tipchain_could_be_made(page):
    for line in calls(page):
        words = [word for word in shlex.split(line) if word not in ("…", "...")]
        assert words[1] in COMMANDS or words[1].startswith("-") or "|" in words[1], line
        if words[1] in COMMANDS and "|" not in line and "[" not in line:
            try:
                parser_of(words[1]).parse_args(words[2:])
            except SystemExit:
                assert "--help" in words, line


@pytest.mark.frameworks
@pytest.mark.parametrize("page", HAS_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page, tmp_path):
    blocks = [block.text for block in blocks_of(page) if block.language == "python" and not block.title]
    (tmp_path / "page.py").write_text(SAMPLES.read_text() + "\n\n" + "\n\n".join(blocks))
    run_line("python page.py", tmp_path)


@pytest.mark.frameworks
def test_the_lines_of_the_readme_for_a_port_of_ones_own_work():
    import torch
    from paddle import nn

    torch.manual_seed(0)
    lines = "\n".join(block.text for block in blocks_of(ROOT / "README.md") if block.language == "python")
    images = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    for more, passed in (([], True), ([nn.ReLU()], False)):
        reference, port = torch.nn.Sequential(torch.nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3), *more)
        names = {"reference": reference, "port": port, "images": images}
        exec(lines, names)
        assert names["report"].passed is passed
        assert bool(names["report"].diagnoses) is not passed


@pytest.mark.frameworks
def test_the_tutorial_can_be_followed(tmp_path):
    follow(DOCS / "tutorial.md", tmp_path)
    assert (tmp_path / "right.html").is_file()
    assert "norm1" in (tmp_path / "wrong.html").read_text()


def test_the_tutorials_pictures_are_of_its_pages():
    shown = set(re.findall(r"pictures/(\w+)\.png", (DOCS / "tutorial.md").read_text()))
    assert shown == {path.stem for path in (DOCS / "pictures").iterdir()}
    assert all(f"--html {name}.html" in (DOCS / "tutorial.md").read_text() for name in shown)


def test_every_builder_stands_in_the_table():
    from tipchain.parity.case import BUILDERS

    rows = re.findall(r"(?m)^\| `(\w+)` \| ", (DOCS / "own-port.md").read_text())
    assert sorted(rows) == sorted(BUILDERS)


def test_the_tolerances_of_the_page_are_taken(tmp_path):
    import yaml

    from tipchain.parity.case import load_case

    shown = [
        yaml.safe_load(block.text) for block in blocks_of(DOCS / "how-to/tolerances.md") if block.language == "yaml"
    ]
    case = yaml.safe_load(
        reference_pages.CASE.replace(
            "SIDE",
            ", ".join(f"{one}: 'm:{one}'" for one in ("model", "loss", "optimizer", "dataset", "metric", "scheduler")),
        )
    )
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({**case, **shown[0], **shown[1]}))
    read = load_case(file)
    assert read.tolerances["forward"]["logits"].method == "max"
    assert [one.subject for one in read.known_deviations] == ["forward/aux_logits"]
