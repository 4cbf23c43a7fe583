"""Pages of every kind in headless Chromium: they fit a phone, can be read in both colour schemes, and are used by keys alone.

Skipped where no Chromium is installed.
"""

from collections.abc import Iterator
from pathlib import Path

import alignment_samples
import chromium
import pytest
from dashboard_samples import make_nights, page_of
from run_samples import chain, misaligned

from tipchain.live.html import render
from tipchain.report.page import render_run

pytestmark = chromium.needed
LONG = "模型_对齐_视频分类_" + "features.denseblock3.denselayer24." * 6
LINES_OF_HEADLINE = """(one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))(document.querySelector("h1"))"""
PAGES = {
    "alignment": lambda _: render_run(misaligned(), verdict="NOT the same model: `exclusive`"),
    "chain": lambda _: render_run(chain()),
    "long": lambda _: render_run(chain(LONG), verdict=f"NOT the same model: {LONG}", command=f"tipchain align {LONG}"),
    "live": lambda _: render(alignment_samples.failing(20)),
    "live nasty": lambda _: render(alignment_samples.failing(nasty=alignment_samples.NASTY)),
    "nights": lambda folder: page_of(make_nights(folder / "tipchain-nights"), folder),
}
USABLE = "a, button, input, select, summary, .wide[tabindex], pre[tabindex]"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, page in PAGES.items():
        (folder / f"{name}.html").write_text(page(folder))
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


@pytest.mark.parametrize("name", ["alignment", "live", "nights"])
def test_everything_that_can_be_used_is_reached_by_tab_and_shows_it(page, files, name):
    page.size(1200, 900)
    page.open(files[name])
    wanted = page.run(
        f"[...document.querySelectorAll({USABLE!r})].filter(one => one.checkVisibility() && one.tabIndex >= 0)"
        ".map((one, place) => (window.ids ??= new Map()).set(one, place)).length"
    )
    page.run("document.body.focus()")
    reached = set()
    for _ in range(wanted + 20):
        page.press("Tab")
        place, outline = page.run(
            "[ids.get(document.activeElement), getComputedStyle(document.activeElement).outlineStyle]"
        )
        if place is not None:
            assert outline != "none", place
            reached.add(place)
    assert reached == set(range(wanted))


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
