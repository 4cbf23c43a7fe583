"""The dashboard's text: grid, curves, links, changes, size; its behaviour is tested in a browser."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from dashboard_samples import CASE, FLAKY, GOOD, NIGHTS, case_report, chain_report, make_nights, many_nights, page_of
from night_samples import ENVIRONMENT, NightSample, ended_night
from programs import commit_once_more, git
from run_samples import CAUSE

from tipchain.cli import main
from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.explain.findings import SourceLine
from tipchain.nightly.dashboard import FIGURES
from tipchain.nightly.nights import find_nights, read_results, report_of
from tipchain.nightly.timeline import figures_of, read_timelines


class Text(HTMLParser):
    """Collects links, ids, tables' cells and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.hrefs, self.ids, self.rows, self.open = [], [], [], []
        self.images = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.hrefs += [given["href"]] if "href" in given else []
        self.ids += [given["id"]] if "id" in given else []
        self.images += tag in ("img", "iframe")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self.open = [tag]

    def handle_endtag(self, tag):
        if tag in ("td", "th", "tr"):  # a cell's own end may be left out
            self.open = []

    def handle_data(self, data):
        if self.open:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Path:
    return make_nights(tmp_path_factory.mktemp("project") / "tipchain-nights")


@pytest.fixture(scope="module")
def text(nights) -> str:
    return page_of(nights, nights.parent)


def top_of(page: str) -> str:
    """Return what the head of a page says, without markup."""
    return " ".join(re.sub("<[^>]*>", "", page.partition("</header>")[0].partition('id="verdict">')[2]).split())


def test_the_grid_has_a_sign_for_each_item_and_night_the_latest_first(text):
    rows = {row[0]: row[1:] for row in Text(text).rows if len(row) == 1 + NIGHTS and row[0] != "item"}
    assert rows == {
        "resnet[whole_infer;gpu]": ["✗", "✓", "✓", "✗", "✓", "✓"],
        "mvf<b>[whole_infer;cpu]": ["!"] * NIGHTS,
        "alexnet[lite_train_lite_infer;cpu]": ["✓"] * NIGHTS,
        "vgg:align[whole_infer;cpu]": ["✓"] * NIGHTS,
        "old[whole_infer;cpu]": ["", "–", "–", "–", "–", "–"],
        "new[whole_infer;cpu]": ["–", "", "", "", "", ""],
    }
    assert list(rows)[:2] == [
        "resnet[whole_infer;gpu]",
        "mvf<b>[whole_infer;cpu]",
    ]  # what has just failed, then what fails for longer
    assert text.index(">suite</h2>") < text.index(">suite: items</h2>") < text.index(">other</h2>")


def test_nights_of_one_day_have_their_time(tmp_path):
    for day, hours in ((0, 0.0), (1, 0.0), (1, 1.5)):
        ended_night(tmp_path / "suite", day, [GOOD], hours=hours)
    assert Text(page_of(tmp_path, tmp_path)).rows[0] == ["item", "Nov0223:30", "Nov0222:00", "Nov01"]


def test_every_link_leads_to_what_is_there(text, nights):
    found = Text(text)
    assert len(found.ids) == len(set(found.ids))
    files = 0
    for href in found.hrefs:
        if href.startswith("#"):
            assert href[1:] in found.ids
        elif href != "data:,":
            assert (nights.parent / unquote(href)).exists(), href
            files += 1
    assert files > 20


def test_links_are_relative_to_the_page_wherever_it_goes(nights, tmp_path):
    folder = tmp_path / "a b" / "c"
    folder.mkdir(parents=True)
    for href in Text(page_of(nights, folder)).hrefs:
        if not href.startswith(("#", "data:")):
            assert href.startswith("../")
            assert (folder / unquote(href)).exists(), href


def test_what_changed_stands_at_the_top(text):
    assert "<title>2 failed, Nightly: suite, other</title>" in text
    plain = top_of(text)
    assert "FAIL" in plain
    assert "2 of 5 items did not pass" in plain
    assert "so far: the night is not finished" in plain
    order = [
        plain.index(one)
        for one in ("Newly failing:", "PASS -&gt; FAIL resnet", "Still failing:", "ERROR mvf", "gone old", "new new")
    ]
    assert order == sorted(order)
    assert "top1 is 0.1" in plain


def test_another_environment_is_marked(text):
    assert text.count("versions.torch 2.12.0 -&gt; 2.13.0") == 2  # the column's head, and the night's row
    assert "commit: c4" not in text


def test_times_and_metrics_are_plotted(text):
    labels = re.findall(r"<li>([^<]* in \d+ nights, latest [^<]*)<svg", text)
    for label in (
        "seconds: 10 to 15 in 6 nights, latest 15",
        "top1 of eval[x]: 0.5 to 0.55 in 6 nights, latest 0.55",
        "avg_ms of infer[x]: 20 to 20 in 6 nights, latest 20",
        "largest mean difference in forward: 1e-06 to 6e-06 in 6 nights, latest 6e-06",
    ):
        assert label in labels
    assert not any("batch_size" in label or "loss" in label for label in labels)


def test_nothing_of_a_reason_is_html_or_script_and_the_same_nights_give_the_same_text(text, nights):
    found = Text(text)
    assert found.images == 0
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "192.0.2.1" in text
    assert not re.search(r"[\x00-\x08\x1b]|\\u001b|\\u0000", text)
    assert page_of(nights, nights.parent) == text


def test_an_unfinished_night_has_what_ended(tmp_path):
    night = NightSample(tmp_path / "suite", 0, [GOOD, FLAKY])
    night.end(GOOD)
    (line,), problems = read_timelines(find_nights(tmp_path), 5, tmp_path)
    assert problems == []
    assert [row.cells[0] is None for row in line.rows] == [False, True]
    assert dict(line.columns[0].results.counts) == {Outcome.PASS: 1}
    text = page_of(tmp_path, tmp_path)
    assert "<title>not finished, Nightly: suite</title>" in text
    assert ">PASS</strong>" not in text


def test_what_a_part_of_a_manifest_left_out_is_not_gone(tmp_path):
    for day, (plan, options) in enumerate((([GOOD, FLAKY], {}), ([GOOD], {"shard": "1/2"}))):
        ended_night(tmp_path / "suite", day, plan, options=options)
    (line,), _ = read_timelines(find_nights(tmp_path), 5, tmp_path)
    assert [row.changed for row in line.rows] == ["", ""]


def test_a_page_that_an_item_leaves_is_its_report(tmp_path):
    night = NightSample(tmp_path / "suite", 0, [GOOD])
    record = night.end(GOOD, Outcome.FAIL, "exit code 1", report=chain_report(1.0, 1.0))
    (night.finish() / record.log).with_name("report.html").write_text("<p>")
    text = page_of(tmp_path, tmp_path)
    links = [href for href in Text(text).hrefs if href.endswith("/attempt-1/report.html")]
    assert len(links) == 3  # on top, in the grid, in the item's part
    assert (tmp_path / links[0]).is_file()
    assert "attempt-1/report.json" not in text


def test_nights_that_cannot_be_read_are_told(tmp_path, capsys):
    NightSample(tmp_path / "suite", 0, [GOOD]).finish()
    (NightSample(tmp_path / "suite", 1, [GOOD]).finish() / "night.json").write_text("{}")
    assert main(["nightly", "dashboard", str(tmp_path), "--html", str(tmp_path / "d.html")]) == 0
    assert "left out: " in capsys.readouterr().err
    assert "is not a night" in (tmp_path / "d.html").read_text()


def test_the_command(nights, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(nights.parent)
    assert main(["nightly", "dashboard", "--html", "page.html", "--nights", "3"]) == 0
    assert capsys.readouterr().out == "page.html: 7 items, 4 nights\n"
    for words, said in (
        (["--html", "none/"], "cannot be written"),
        ([str(tmp_path), "--html", "x"], "no night is there"),
        (["nowhere", "--html", "x"], "is no folder of nights"),
        (["--html", "x", "--nights", "0"], "is not a number of nights"),
        ([], "--html"),
    ):
        if words[-1:] == ["none/"]:
            (nights.parent / "none").mkdir()
        assert main(["nightly", "dashboard", *words]) == 2, words
        assert said in capsys.readouterr().err, words


def test_a_manifest_means_its_nights(nights, tmp_path, capsys):
    manifest = nights.parent / "suite.yaml"
    manifest.write_text("root: .\ncommands:\n  - {id: one, argv: [ls]}\n")
    assert main(["nightly", "dashboard", str(manifest), "--html", str(tmp_path / "page.html"), "--nights", "3"]) == 0
    assert (
        main(["nightly", "dashboard", str(nights / "suite"), "--html", str(tmp_path / "same.html"), "--nights", "3"])
        == 0
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first.partition(": ")[2] == second.partition(": ")[2] != ""


def test_figures_of_reports(tmp_path):
    night = NightSample(tmp_path / "suite", 0, [GOOD])
    record = night.end(GOOD, report={})
    results, file = read_results(night.finish()), night.folder / record.report
    file.unlink()
    assert report_of(results, record) is None
    for bad in ("{", "[]", '{"results": [{}]}', '{"results": 3}', '{"results": [], "verdicts": [{"diff": 3}]}'):
        file.write_text(bad)
        assert report_of(results, record) is None
    file.write_text(json.dumps(chain_report(0.5, 3.0)))
    found = figures_of(report_of(results, record))
    assert list(found.items()) == [("top1 of eval[x]", 0.5), ("avg_ms of infer[x]", 3.0)]


def test_a_curve_goes_from_its_least_to_its_largest_value_and_stops_where_nothing_ran(tmp_path):
    for day, seconds in enumerate((10.0, None, 30.0, 20.0)):
        night = NightSample(tmp_path / "suite", day, [GOOD])
        if seconds:
            night.end(GOOD, seconds=seconds)
        night.finish()
    (curve,) = re.findall(r'<path d="([^"]*)"', page_of(tmp_path, tmp_path))
    assert curve == "M4 36h0M20 4h0l8 16"


def test_figures_that_have_no_room_are_counted(tmp_path):
    night = NightSample(tmp_path / "suite", 0, [CASE])
    night.end(CASE, report=case_report(**{f"s{one}": 1.0 for one in range(9)}))
    night.finish()
    text = page_of(tmp_path, tmp_path)
    assert text.count("largest mean difference in") == FIGURES
    assert f"{9 - FIGURES} more figures are in the reports" in text


def test_500_items_and_30_nights_take_less_than_1_5_mb(tmp_path):
    # A part of the items and nights, and what each more of them takes: the full size takes ten seconds to make.
    sizes = {}
    for items in (40, 60):
        for nights in (2, 4):
            made = many_nights(tmp_path / f"{items} {nights}", items, nights)
            sizes[items, nights] = len(page_of(made, tmp_path).encode())
    by_night = {items: (sizes[items, 4] - sizes[items, 2]) / 2 for items in (40, 60)}
    whole = {items: sizes[items, 4] + by_night[items] * 26 for items in (40, 60)}
    assert whole[40] + (whole[60] - whole[40]) / 20 * 460 < 1.5e6


def test_an_item_that_is_new_and_fails_is_newly_failing(tmp_path):
    for day, plan in enumerate(([CASE], [CASE, GOOD])):
        environment = {**ENVIRONMENT, "commit": f"c{day}"}
        ended_night(tmp_path / "suite", day, plan, {GOOD.id: Outcome.FAIL}, environment=environment)
    top = top_of(page_of(tmp_path, tmp_path))
    assert f"Newly failing: new {GOOD.id}" in top


def test_an_item_that_errors_where_it_failed_before_still_fails(tmp_path):
    for day, ended in enumerate((Outcome.PASS, Outcome.FAIL, Outcome.ERROR)):
        environment = {**ENVIRONMENT, "commit": f"c{day}"}
        ended_night(tmp_path / "suite", day, [GOOD], {GOOD.id: ended}, environment=environment)
    top = top_of(page_of(tmp_path, tmp_path))
    assert "Newly failing" not in top
    assert f"Still failing: FAIL -&gt; ERROR {GOOD.id} since " in top


def test_what_has_just_failed_is_told_with_the_commits_that_changed_the_file_at_fault(tmp_path):
    git(tmp_path, "init", "-q")
    cause = as_json(replace(CAUSE, place=SourceLine(file="port.py", line=7)))
    files = enumerate(("port.py", "other.py", "port.py"))
    hashes = [commit_once_more(tmp_path, changed, f"Step <{day}>") for day, changed in files]
    for day, commit in enumerate((hashes[0], f"{hashes[2]}-dirty")):
        night = NightSample(
            tmp_path / "suite", day, [GOOD], root=tmp_path, environment={**ENVIRONMENT, "commit": commit}
        )
        night.end(
            GOOD,
            Outcome.FAIL if day else Outcome.PASS,
            "exit code 1" if day else "",
            report={**case_report(), "diagnoses": [cause]},
        )
        night.finish()
    text = page_of(tmp_path / "suite", tmp_path)
    assert f"commits {hashes[0]}..{hashes[2]}-dirty" in text
    assert f"suspect: {hashes[2]} Step &lt;2&gt;" in text
    assert "suspect: changes that are not committed" in text
    assert text.count("suspect: ") == 2
