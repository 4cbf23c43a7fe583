"""The page of live models in headless Chromium: keys, filters, charts, no scripts, print; what all pages have is tested with reports."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import chromium
import pytest
from alignment_samples import FAULT, failing

pytestmark = chromium.needed
ROW = "document.querySelector('details[data-find^=\"{path} \"]')"
FOCUSED = 'document.activeElement.closest("details")?.dataset.find?.split(" ")[0] ?? ""'


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    failing(20).to_html(folder / "failing.html")
    return {"failing": folder / "failing.html"}


@pytest.fixture
def page(browser, files) -> Iterator[chromium.Page]:
    browser.size(1200, 900)
    browser.open(files["failing"], prefers_color_scheme="light")
    yield browser
    assert browser.complaints() == []
    assert len(browser.files()) == 1


def shown(page: chromium.Page, path: str) -> bool:
    return bool(page.run(f"{ROW.format(path=path)}.checkVisibility()"))


def rows(page: chromium.Page) -> list[str]:
    return list(
        page.run(
            '[...document.querySelectorAll("details[data-find]")].filter(one => one.checkVisibility())'
            '.map(one => one.dataset.find.split(" ")[0])'
        )
    )


def test_what_is_wrong_would_be_noticed(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://192.0.2.1/x.png"><script>console.log("x"); undefined.x</script>')
    browser.open(bad)
    told = " ".join(browser.complaints())
    assert "consoleAPICalled" in told
    assert "exceptionThrown" in told
    assert "asked for http://192.0.2.1/x.png" in told


def test_the_page_forbids_scripts_and_addresses_that_are_not_its_own(browser, files, tmp_path):
    text = files["failing"].read_text()
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("<nav", '<script>window.ran = 1</script><img src="http://192.0.2.1/x.png"><nav', 1))
    browser.open(changed)
    assert browser.run("window.ran") is None
    assert "Content Security Policy" in " ".join(browser.complaints())
    browser.open(files["failing"])


def test_the_keyboard_alone_opens_and_closes_the_tree(page):
    assert not shown(page, "head.3.conv")
    page.run('document.querySelector("#tree summary").focus()')
    for turn in count():
        if page.run('document.activeElement.innerText.trim().startsWith("head")'):
            break
        assert turn < 100
        page.press("Tab")
    page.press("Enter")  # opens head
    page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", " ")  # head.3
    assert shown(page, "head.3.conv")
    page.press("ArrowRight", "ArrowRight")
    assert page.run(FOCUSED) == "head.3.conv"
    assert page.run("document.activeElement.closest('details').open")
    assert "as close as rounding allows" in page.run("document.activeElement.nextElementSibling.innerText")
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert not shown(page, "head.3.conv")
    page.press("Home")
    assert page.run('document.activeElement === document.querySelector("#tree summary")')
    page.press("ArrowUp")
    assert page.run('document.activeElement === document.querySelector("#tree summary")')


def test_only_what_is_at_fault(page):
    before = rows(page)
    page.run('document.querySelector("[value=fault]").focus()')
    page.press(" ")
    assert rows(page) == ["", FAULT]
    assert page.run('document.querySelector("output").textContent') == "2 of 181 layers"
    page.press(" ")
    assert rows(page) == before
    assert page.run('document.querySelector("output").textContent') == ""


def test_a_filter_by_text(page):
    before = rows(page)
    page.run('document.querySelector("[type=search]").focus()')
    page.write("head.1 BN")
    found = rows(page)
    assert found
    assert {one for one in found if one} == {f"head.{one}.bn" for one in (1, *range(10, 20))}
    assert shown(page, "head.12.bn")
    page.run(
        '{ const one = document.querySelector("[type=search]"); one.value = ""; one.dispatchEvent(new Event("input", {bubbles: true})); }'
    )
    assert rows(page) == before


def test_a_fix_is_copied(page):
    page.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.run('document.querySelector("#verdict button").focus()')
    page.press("Enter")
    page.run("new Promise(done => setTimeout(done, 100))")
    assert page.run('document.querySelector("#verdict button").textContent') == "copied"
    page.run('document.querySelector("[type=search]").focus()')
    assert page.run("navigator.clipboard.readText()") == "epsilon=1e-05"


def test_a_histogram_is_chosen(page):
    page.run('document.querySelectorAll("#histograms summary")[1].focus()')
    page.press("Enter")
    assert page.run('[...document.querySelectorAll("#histograms details")].map(one => one.open)') == [False, True]


@pytest.mark.parametrize("width", [390, 1400])
def test_a_chart_fits_the_window_with_its_text_in_full_size(page, width):
    page.size(width, 800)
    assert page.run(chromium.CHARTS_THAT_DO_NOT_FIT) == []


def test_without_scripts_all_that_matters_is_there(page, files):
    page.open(files["failing"], scripts=False)
    told = page.run("document.body.innerText")
    for words in ("First divergence", "Fix: pass epsilon=1e-05", "output 0 differs: relative 0.003", "own: differs"):
        assert words in told
    assert shown(page, FAULT)
    assert not page.run('document.querySelector(".controls").checkVisibility()')
    page.run('document.querySelectorAll("#tree summary")[1].focus()')
    page.press("Enter")
    assert shown(page, "stem.0.conv") or page.run('document.querySelectorAll("#tree details")[1].open')
