"""README and its Chinese twin keep in step; its Python is run. Its commands are run by test_main_job.py and test_page_commands.py."""

from __future__ import annotations

import re

import numpy as np
import pytest
from page_blocks import ROOT, blocks_of

READMES = ("README.md", "README_cn.md")


def fenced(name: str, language: str) -> list[str]:
    """Return the lines of all blocks of a language in a file."""
    return [line for block in blocks_of(ROOT / name) if block.language == language for line in block.lines]


def headings(name: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(#+) ", text, re.MULTILINE)


def test_the_two_commands_stand_at_the_top():
    for name in READMES:
        first, second = fenced(name, "bash")[:2]
        assert first.startswith("bash test_train_inference_python.sh ")
        assert second == "bash tests/run.sh"


def test_the_chinese_readme_has_the_same_headings_blocks_and_pages():
    assert headings("README.md") == headings("README_cn.md")
    english, chinese = (list(blocks_of(ROOT / name)) for name in READMES)
    assert english == chinese
    pages = [re.findall(r"\]\((docs/[^)#]+)", (ROOT / name).read_text()) for name in READMES]
    assert pages[0] == [page.replace(".zh.md", ".md") for page in pages[1]]


@pytest.mark.frameworks
def test_the_lines_for_a_port_of_ones_own_work():
    import torch
    from paddle import nn

    torch.manual_seed(0)
    images = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    for more, passed in (([], True), ([nn.ReLU()], False)):
        reference, port = torch.nn.Sequential(torch.nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3), *more)
        names = {"reference": reference, "port": port, "images": images}
        exec("\n".join(fenced("README.md", "python")), names)
        assert names["report"].passed is passed
        assert bool(names["report"].diagnoses) is not passed
