"""The site is built without a warning, its reference is whole, and its Chinese pages keep in step with the English ones."""

import os
import re
import sys
from pathlib import Path

import pytest
import reference_pages
from page_blocks import blocks_of
from programs import completed

from tipchain import errors
from tipchain.core.language import _read
from tipchain.explain.findings import KINDS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CHINESE = [*sorted(DOCS.rglob("*.zh.md")), ROOT / "README_cn.md"]


def english_of(page: Path) -> Path:
    return page.with_name(page.name.replace(".zh.md", ".md").replace("_cn.md", ".md"))


def rows(page: Path) -> int:
    """Return how many rows a page's tables have."""
    return len(re.findall(r"(?m)^ *\|", page.read_text(encoding="utf-8")))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of each fenced block, without comments."""
    return [(block.language + block.title, re.sub(r" *#.*", "", block.text)) for block in blocks_of(page)]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = completed(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    told = [line for line in done.stderr.splitlines() if "WARNING" in line or "Aborted" in line]
    assert (done.returncode, told) == (0, []), done.stderr
    return folder


def test_the_site_has_every_page_in_both_languages(site):
    pages = {
        path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md") if not path.name.endswith(".zh.md")
    }
    assert len(pages) > 20
    for page in pages:
        assert (site / page).is_file(), page
        assert (site / "zh" / page).is_file(), page
    assert "复现指南" in (site / "zh/index.html").read_text(encoding="utf-8")
    assert "复现指南" not in (site / "index.html").read_text(encoding="utf-8")


def test_a_line_break_in_a_chinese_sentence_is_no_blank():
    text = "先对齐，\n再运行。\n\n- 一项\n  的内容 `x`\n\n## 标题\n\n```yaml\n甲\n乙\n```\n"
    assert reference_pages.joined(text) == "先对齐，再运行。\n\n- 一项的内容 `x`\n\n## 标题\n\n```yaml\n甲\n乙\n```\n"


def test_the_pages_in_git_are_those_that_the_code_makes():
    for page, text in reference_pages.made_pages().items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name} is old: python tools/reference_pages.py"


def test_every_row_of_the_page_of_commands_is_in_chinese():
    rows = re.findall("^[|] `.*", (DOCS / "reference/commands.zh.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    assert all(re.search("[\u4e00-\u9fff]", row) for row in rows)


@pytest.fixture(scope="module")
def shown_texts() -> dict[str, set[str]]:
    """What each made page shows in the reader's language: the texts in English."""
    found: dict[str, set[str]] = {}
    with pytest.MonkeyPatch.context() as patch, reference_pages.variable_set(reference_pages.VARIABLE, "zh"):
        for name in ("files", "case", "manifest", "profile", "python", "correspondence", "constants"):
            texts = found[name] = set()
            patch.setattr(reference_pages, "translated", lambda text, texts=texts: texts.add(text) or TRANSLATED(text))
            reference_pages.MAKERS[f"reference/{name}.md"]()
    return found


TRANSLATED = reference_pages.translated


@pytest.mark.parametrize("name", ["files", "case", "manifest", "profile", "python", "correspondence", "constants"])
def test_no_english_is_left_in_what_a_chinese_page_says(name, shown_texts):
    assert shown_texts[name]
    with reference_pages.variable_set(reference_pages.VARIABLE, "zh"):
        for text in shown_texts[name]:
            told = TRANSLATED(text)
            assert sorted(re.findall("`[^`]*`", text)) == sorted(re.findall("`[^`]*`", told)), text
            assert text in reference_pages.catalogue() or _read(text)[1] == 0, f"no Chinese: {text}"


def test_every_chinese_text_of_the_reference_is_shown(shown_texts):
    assert set(reference_pages.catalogue()) - set().union(*shown_texts.values()) == set()


def test_a_link_to_a_file_of_the_project_leads_to_its_copy(site):
    text = (site / "how-to/nightly.html").read_text(encoding="utf-8")
    assert 'href="../source/test_tipc/nightly_yaml.txt"' in text
    assert (site / "source/test_tipc/nightly_yaml.txt").read_text() == (ROOT / "test_tipc/nightly.yaml").read_text()


@pytest.mark.parametrize("kind", ["case", "manifest", "profile"])
def test_every_key_of_a_yaml_file_has_a_meaning(kind):
    assert reference_pages.undescribed(kind) == []


def test_the_keys_are_those_that_the_reader_asks_for():
    page = reference_pages.MAKERS["reference/case.md"]()
    assert "| `iterations` | a whole number >= 2 | `5` | the number of updates. |" in page
    assert "| `id` | a text | **required** |" in page
    assert "| `data` | `lite` or `whole` |  | the data of training and evaluation." in page
    assert "| `batch_size` | a whole number >= 1 |  | samples in the global batch" in page, "asked for only where given"


def test_every_exit_code_and_outcome_has_a_meaning():
    for owner in (errors.ExitCode, errors.Outcome):
        assert set(reference_pages.members_of(owner)) == set(owner.__members__)


@pytest.mark.parametrize("page", CHINESE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_chinese_page_has_the_english_ones_sections_code_and_tables(page):
    english, chinese = (one.read_text(encoding="utf-8") for one in (english_of(page), page))
    levels = [
        re.findall(r"^(#+) ", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
        for text in (english, chinese)
    ]
    assert levels[0] == levels[1]
    assert blocks(english_of(page)) == blocks(page)
    assert rows(english_of(page)) == rows(page)


def test_the_readmes_begin_with_the_two_commands_and_lead_to_the_same_pages():
    names = [ROOT / name for name in ("README.md", "README_cn.md")]
    first, second = [line for block in blocks_of(names[0]) if block.language == "bash" for line in block.lines][:2]
    assert first.startswith("bash test_train_inference_python.sh ")
    assert second == "bash tests/run.sh"
    pages = [re.findall(r"\]\((docs/[^)#]+)", name.read_text()) for name in names]
    assert pages[0] == [page.replace(".zh.md", ".md") for page in pages[1]]


def test_the_page_of_kinds_has_each_kind_once():
    text = (DOCS / "reference/diagnoses.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(KINDS)
