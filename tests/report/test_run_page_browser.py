"""A run's page in headless Chromium: it fits a phone, can be read in both colour schemes, and opens what a link leads to.

Skipped where no Chromium is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from run_samples import NASTY, chain, misaligned

from tipchain.report.page import render_run

pytestmark = chromium.needed
LONG = "模型_对齐_视频分类_" + "features.denseblock3.denselayer24." * 6
LINES_OF_HEADLINE = """(one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))(document.querySelector("h1"))"""
PAGES = {"alignment": misaligned(), "chain": chain(), "nasty": misaligned(NASTY), "long": chain(LONG)}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, report in PAGES.items():
        words = f"NOT the same model: {LONG if name == 'long' else '`exclusive`'}"
        (folder / f"{name}.html").write_text(render_run(report, verdict=words, command=f"tipchain align {LONG}"))
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.fixture
def page(browser) -> Iterator[chromium.Page]:
    """Return the browser's page; whatever a test does, it must have nothing to complain of, and open one file."""
    yield browser
    assert browser.complaints() == []
    assert len(browser.files()) == 1


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1400, "dark")])
def test_a_page_fits_its_window_and_can_be_read(page, files, name, width, scheme):
    page.size(width, 800)
    page.open(files[name], prefers_color_scheme=scheme)
    page.run('document.querySelectorAll("details").forEach(one => { one.open = true; })')
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.run(LINES_OF_HEADLINE) <= 3.1
    found = page.run(chromium.CONTRAST)
    assert found["worst"] >= 4.5, found


def test_the_failed_steps_log_is_open_and_the_others_open_with_a_key(page, files):
    page.open(files["chain"])
    shown = '[...document.querySelectorAll(".step pre.log, .step .told")].map(one => one.checkVisibility())'
    assert page.run(shown) == [False, True, True, False, False]
    assert "label 12 is out of range" in page.run('document.querySelector("pre.log").innerText')
    page.run('document.querySelector(".step summary").focus()')
    page.press("Enter")
    assert page.run(shown)[0]


def test_a_stage_leads_to_its_cause_and_a_fix_is_copied(page, files):
    page.open(files["alignment"])
    page.run('document.querySelectorAll(".because a")[1].click()')
    assert page.run("location.hash") == "#cause-1"
    page.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.run('document.querySelector("#verdict button").click()')
    page.run("new Promise(done => setTimeout(done, 100))")
    assert page.run("navigator.clipboard.readText()") == "exclusive=False"


def test_without_scripts_cause_stages_and_logs_are_there(page, files):
    page.open(files["alignment"], scripts=False)
    told = page.run("document.body.innerText")
    assert "padding=1, exclusive=False)" in told
    assert "follows from cause 1" in told
    assert not page.run('document.querySelector("button").checkVisibility()')
