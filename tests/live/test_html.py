"""The report as a page: what is in it, that nothing can break out of it, and its size; no browser is needed here."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from alignment_samples import FAULT, NASTY, failing, passing, verdict

from tipchain.errors import Outcome
from tipchain.explain.locate.verdicts import Closeness
from tipchain.live.html import render
from tipchain.live.report import AlignmentReport
from tipchain.report.page import path, prose

VOID = {"meta", "link", "input", "wbr", "br"}


class Reader(HTMLParser):
    """Reads a page: elements by name, ids, text by id, and whether everything that begins ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()
        self.texts = {name: " ".join(text.split()) for name, text in self.texts.items()}
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), "an attribute twice"
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, attributes in self.open:
            if attributes.get("id"):
                self.texts[attributes["id"]] = self.texts.get(attributes["id"], "") + data

    def all(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        return [
            given
            for name, given in self.found
            if name == tag and set(class_.split()) <= set((given.get("class") or "").split())
        ]


def read(report: AlignmentReport) -> Reader:
    return Reader(render(report))


@pytest.fixture(scope="module")
def page() -> Reader:
    return read(failing())


def test_the_verdict_comes_first_with_the_layer_its_cause_and_what_to_change(page):
    told = page.texts["verdict"]
    assert told.startswith("FAIL the port is not the reference")
    assert "reference nets.torch.Net · port nets.port.Net · date 2026-11-01 22:00+08:00 · commit 1a2b3c4" in told
    assert "First divergence: body.1.bn (BatchNorm2D), forward; reference layers.1.bn" in told
    assert "Cause: its epsilon is 0.001" in told  # that of the layer, though another is listed before
    assert "Fix: pass epsilon=1e-05 to body.1.bn" in told
    assert page.all("header", "verdict fail")
    assert [name for name, _ in page.found].index("header") < [name for name, _ in page.found].index("nav")


def test_a_port_that_passes_says_so():
    page = read(passing())
    assert page.texts["verdict"].startswith("PASS the port is the reference")
    assert page.all("header", "verdict pass")
    assert not page.all("details", "fault")
    assert "causes" not in page.texts


@pytest.mark.parametrize(
    ("outcome", "words"),
    [(Outcome.ERROR, "ERROR no verdict on forward"), (Outcome.SKIP, "INCONCLUSIVE nothing was compared")],
)
def test_what_is_not_known_is_neither_green_nor_called_a_difference(outcome, words):
    page = read(AlignmentReport(stages={"forward": outcome}, reasons={"forward": "RuntimeError: boom"}))
    assert words in page.texts["verdict"]
    assert page.all("header", "verdict unknown")
    if outcome is Outcome.ERROR:
        assert "RuntimeError: boom" in page.texts["verdict"]


def test_every_part_is_there(page):
    told = page.texts
    assert "FAIL forward body.1.bn: output 0 differs" in told["stages"]
    assert "ERROR loss ValueError: odd" in told["stages"]
    assert "explains more than 99.99 % of the error" in told["verdict"]
    assert "tried 7 values" in told["verdict"]
    assert "its epsilon is 0.001" not in told["causes"]
    assert "explains 25 % of the error" in told["causes"]
    assert "6 places: body.0 has epsilon=0.001, and 5 others" in told["findings"]
    assert "all 6 of them" in told["findings"]
    assert "body.5" in told["findings"]
    assert "1 difference that changes no result" in told["findings"]
    assert "of the reference: 1" in told["unmatched"]
    assert "of the port" not in told["unmatched"]
    assert "output 0 of the model, relative RMS differenceundefined" in told["figures"]
    assert "torch 2.13" in told["origin"]
    assert "tipchain locate case.yaml" in told["origin"]
    titles = [one["aria-label"] for one in page.all("svg", "chart")]
    assert titles == [
        "own and inherited error, forward",
        "own and inherited error, backward",
        "Loss in training",
        "Loss in training, difference",
        "Learning rate in training",
        "odd",
        "differences of output 0 of body.1.bn",
    ]


def test_links_lead_to_parts(page):
    ids = {given["id"] for _, given in page.found if given.get("id")}
    assert {one["href"][1:] for one in page.all("a")} <= ids
    labels = {given["aria-labelledby"] for _, given in page.found if given.get("aria-labelledby")}
    assert labels <= ids


def test_the_tree_has_every_layer_once_with_both_errors_and_both_directions(page):
    rows = page.all("details")
    paths = [one["data-find"].split(" ")[0] for one in rows if one.get("data-find")]
    assert len(paths) == len(set(paths)) == 18 + 1  # the model itself has a verdict too
    told = page.texts["layers"]
    assert "19 layers compared, 2 at fault" in told
    assert "own 3.0e-03 (4e+04 times the reference's own float32 error), inherited 1.0e-09" in told
    assert "forward, call 1: ? not comparable" in told
    assert len(page.all("span", "errors differs")) == 2 * 3  # the layer, and the two around it
    assert len(page.all("span", "errors bitwise")) > 10


def test_layers_at_fault_are_open_and_others_of_a_large_model_are_not():
    rows = {(one.get("data-find") or "").split(" ")[0]: one for one in read(failing(20)).all("details")}
    assert "open" in rows[FAULT]
    assert "fault" in rows[FAULT]["class"]
    assert "open" not in rows["body.1.conv"]
    assert "open" not in rows["head.7.bn"]
    assert "open" in Reader(render(passing(1))).all("details")[1]


def test_a_loss_that_leaves_what_is_allowed_is_told(page):
    told = page.texts["curves"]
    assert "the port's is not finite at 4" in told
    assert "outside at 3 updates, first at 2" in told
    assert "22.12.21.0e-011.0e-09" in told  # update 2: reference, port, difference, allowed


def test_every_text_of_a_user_is_escaped():
    report = failing(nasty=NASTY)
    text = render(report)
    page = Reader(text)
    assert len(page.all("script")) == 1
    assert 'alert("1")' not in text
    assert "alert(&#34;1&#34;)" in text
    for part in ("verdict", "stages", "causes", "findings", "layers", "unmatched", "histograms", "figures", "origin"):
        assert NASTY.replace("`", "") in page.texts[part].replace("`", ""), part
    assert any(NASTY in (one.get("data-copy") or "") for one in page.all("button"))
    assert any(NASTY.lower() in (one.get("data-find") or "") for one in page.all("details"))


def test_text_that_is_no_unicode_can_be_written(tmp_path):
    report = replace(passing(), command="tipchain locate case\udcff.yaml")
    report.to_html(tmp_path / "report.html")
    assert "case\\udcff.yaml" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_may_load_nothing_and_names_no_address():
    text = render(failing())
    policy = next(
        one["content"] for one in Reader(text).all("meta") if one.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert not re.search(r"https?://|url\(|@import|\bsrc=|//[a-z]", re.sub(r"(?m)^\s*// .*$", "", text))
    assert [one["href"] for one in Reader(text).all("link")] == ["data:,"]


def test_controls_that_need_javascript_are_hidden_without(page):
    assert all("hidden" in one for one in page.all("button") if one.get("data-copy"))
    assert all("hidden" in one for one in page.all("div", "controls"))
    assert not any("onclick" in given for _, given in page.found)


def test_a_copied_fix_is_the_code_in_it_and_there_is_none_where_no_cause_is_known(page):
    copied = [one["data-copy"] for one in page.all("button") if one.get("data-copy")]
    assert copied[0] == "epsilon=1e-05"
    assert "compare" not in copied


def test_two_thousand_verdicts_fit_into_five_megabytes():
    report = failing(112, nasty=" of a class whose name is long")
    assert len(report.layers) > 2000
    assert len(render(report).encode()) < 5_000_000


def test_code_in_a_sentence_and_paths():
    assert prose("pass `a<b` to `c`") == "pass <code>a&lt;b</code> to <code>c</code>"
    assert prose("one ` alone") == "one ` alone"
    assert path("a.b") == "a.<wbr>b"
    assert path("x[a;b<c]") == "x[<wbr>a;<wbr>b&lt;c]"


def test_classes_are_told_by_a_sign_too_not_by_colour_alone():
    signs = {}
    for one in Closeness:
        page = read(replace(passing(1), layers=[verdict("a", closeness=one)]))
        signs[one] = next(given["aria-label"] for given in page.all("span", "sign"))
    assert signs == {one: one.value for one in Closeness}
