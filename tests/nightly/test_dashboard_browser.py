"""The dashboard in headless Chromium: filters, details, links, both colour schemes, a narrow window, no scripts."""

from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from dashboard_samples import BROKEN, CASE, FLAKY, GONE, GOOD, NEW, make_nights, page_of

pytestmark = chromium.needed
ALL = [FLAKY.id, BROKEN.id, GOOD.id, CASE.id, GONE.id, NEW.id, GOOD.id]
SHOWN = '[...document.querySelectorAll(".matrix tbody tr")].filter(one => one.checkVisibility()).map(one => one.querySelector("a").textContent)'
PARTS = '[...document.querySelectorAll(".item")].filter(one => one.checkVisibility()).map(one => one.querySelector("b").textContent)'


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    made = folder / "dashboard.html"
    made.write_text(page_of(make_nights(folder / "tipchain-nights"), folder))
    return made


@pytest.fixture
def page(browser, file) -> Iterator[chromium.Page]:
    """Return the page, opened anew; whatever a test does, it must have nothing to complain of."""
    browser.size(1300, 900)
    browser.open(file, prefers_color_scheme="light", prefers_reduced_motion="reduce")
    yield browser
    assert browser.complaints() == []
    assert len(browser.files()) == 1


def choose(page: chromium.Page, name: str, value: str) -> None:
    page.run(
        f'{{ const one = document.querySelector("{"[type=search]" if name == "find" else f"[name={name}]"}"); one.value = "{value}";'
        ' one.dispatchEvent(new Event("input", {bubbles: true})); }'
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("outcome", "FAIL", [FLAKY.id]),
        ("outcome", "SKIP", [GONE.id, NEW.id]),
        ("mode", "lite_train_lite_infer", [GOOD.id, GOOD.id]),
        ("device", "gpu", [FLAKY.id]),
        ("tag", "heavy", [FLAKY.id, BROKEN.id]),
        ("kind", "dy2static", [BROKEN.id]),
        ("find", "align vgg", [CASE.id]),
        ("find", "TOP1 is", [FLAKY.id]),  # in a reason
        ("find", "192.0.2.1", [BROKEN.id]),
        ("find", "no such thing", []),
    ],
)
def test_filters(page, name, value, expected):
    choose(page, name, value)
    assert page.run(SHOWN) == expected
    assert sorted(page.run(PARTS)) == sorted(expected)
    assert page.run('document.querySelector("output").textContent') == f"{len(expected)} of 7 items"
    page.run('document.querySelector(".filters button").click()')
    page.run("new Promise(done => setTimeout(done, 50))")
    assert page.run(SHOWN) == ALL
    assert page.run('document.querySelector("output").textContent') == "7 items"


def test_only_what_changed_and_filters_together(page):
    page.run('document.querySelector("[value=changed]").focus()')
    page.press(" ")
    assert page.run(SHOWN) == [FLAKY.id, GONE.id, NEW.id]
    choose(page, "device", "cpu")
    assert page.run(SHOWN) == [GONE.id, NEW.id]


def test_the_filter_is_written_by_hand(page):
    page.run('document.querySelector("[type=search]").focus()')
    page.write("resnet")
    assert page.run(SHOWN) == [FLAKY.id]
    page.press("Enter")  # sends nothing anywhere
    assert page.run(SHOWN) == [FLAKY.id]


def test_an_item_opens_by_its_name_even_if_a_filter_hides_it(page):
    page.run('document.querySelectorAll(".matrix")[0].querySelector("tbody th a").click()')
    page.run("new Promise(done => setTimeout(done, 50))")
    opened = (
        '[...document.querySelectorAll(".item")].filter(one => one.open).map(one => one.querySelector("b").textContent)'
    )
    assert page.run(opened) == [FLAKY.id]
    assert "top1 is 0.1" in page.run('document.querySelector(".item[open]").innerText')
    choose(page, "device", "cpu")
    page.run('location.hash = ""; document.querySelector("#verdict ul a[href*=resnet]").click()')
    page.run("new Promise(done => setTimeout(done, 50))")
    assert page.run('document.querySelector(".item[open]").checkVisibility()')


def test_outcomes_are_told_apart_without_colour(page):
    signs = page.run(
        'Object.fromEntries(["td:not([class])", ".cell.fail", ".cell.error", ".cell.skip"].map(one => [one, document.querySelector(`.matrix ${one}`).textContent]))'
    )
    assert len(set(signs.values())) == 4
    assert all(signs.values())


def test_without_scripts_everything_but_filters_is_there(browser, file):
    browser.open(file, scripts=False)
    assert browser.run(SHOWN) == ALL
    assert not browser.run('document.querySelector(".filters").checkVisibility()')
    assert browser.run('document.querySelectorAll("td.cell.fail a, td.cell.error a").length') == 8
    href = browser.run('document.querySelector("td.cell.fail a").href')
    assert Path(href.removeprefix("file://")).is_file()
    assert "top1 is 0.1" in browser.run('document.querySelector("td.cell.fail a").title')
    browser.run('document.querySelector(".item summary").focus()')
    browser.press("Enter")
    assert browser.run('document.querySelector(".item .trends").checkVisibility()')
    assert browser.complaints() == []


def test_a_narrow_window_scrolls_the_grid_and_not_the_page(page):
    page.size(250, 800)
    page.run('document.querySelectorAll("details").forEach(one => { one.open = true; })')
    assert page.run("document.documentElement.scrollWidth") <= 250
    grid = page.run('(one => [one.scrollWidth, one.clientWidth])(document.querySelector(".wide"))')
    assert grid[0] > grid[1]
