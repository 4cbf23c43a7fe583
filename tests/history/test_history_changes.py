"""Two nights side by side, which numbers count as moved, and what changed since the last comparable one: literals for each rule."""

import math

import pytest
from history_samples import ERROR, FAIL, PASS, SKIP, cause, fill, item, judged, night, trained
from programs import commit_once_more, git

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.history.changes import Changes, changes, has_moved, last_comparable
from tipchain.history.entries import find_entry
from tipchain.history.render import changes_json, changes_text, first_text
from tipchain.history.schema import CommandFacts
from tipchain.nightly.origin import commits_between


def changed(history, root, against: str = "") -> Changes | None:
    with history.reading() as connection:
        latest = find_entry(connection, "latest")
        before = find_entry(connection, against) if against else last_comparable(connection, latest)
        return changes(connection, before, latest, root=root) if before else None


def told(history, root, against: str = "") -> list[str]:
    found = changed(history, root, against)
    with history.reading() as connection:
        text = changes_text(found) if found else first_text(find_entry(connection, "latest"))
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    return lines


def test_everything_that_differs_is_found(history, tmp_path):
    broken = CommandFacts(id="train[norm]", step="train", argv=["x"], outcome=FAIL, reason="loss is NaN")
    before = [
        judged("same", {"x": PASS, "y": PASS}),
        judged("flips", {"x": PASS, "y": FAIL, "z": PASS}),
        trained("trains", {"loss": 0.5, "avg_ips": 100.0}),
        trained("breaks", {"loss": 0.5}),
        item("goes"),
    ]
    after = [
        judged("same", {"x": PASS, "y": PASS}),
        judged("flips", {"x": ERROR, "y": PASS, "new": PASS}, FAIL, reason="x is wrong"),
        trained("trains", {"loss": 0.6, "avg_ips": 101.0}, seconds=150.0),
        item("breaks", FAIL, commands=[broken], seconds=1.0),
        item("comes"),
    ]
    facts = {"environment": {"torch": "2.12", "gone": "x"}}
    fill(history, [(night(0, **facts), before), (night(1, environment={"torch": "2.13", "new": "y"}), after)])
    found = changed(history, tmp_path)
    assert [(one.item, one.before, one.after, one.reason) for one in found.flips] == [
        ("flips", PASS, FAIL, "x is wrong"),
        ("breaks", PASS, FAIL, ""),
    ]
    assert [(one.item, one.part, one.before, one.after, one.reason) for one in found.inside] == [
        ("breaks", "train[norm]", PASS, FAIL, "loss is NaN"),
        ("flips", "x", PASS, ERROR, "x is ERROR"),
        ("flips", "y", FAIL, PASS, "y is PASS"),
    ]
    assert (found.common, found.new, found.gone) == (4, ("comes",), ("goes",))
    assert (found.new_verdicts, found.gone_verdicts) == ({"flips": 1}, {"flips": 1})
    # Of what failed, times and figures mean nothing; a speed of 1 % more is no move.
    assert [(one.item, one.name, one.before, one.after) for one in found.moved] == [
        ("trains", "loss", 0.5, 0.6),
        ("trains", "seconds", 100.0, 150.0),
    ]
    assert [(one.name, one.before, one.after) for one in found.environment] == [
        ("new", "", "y"),
        ("torch", "2.12", "2.13"),
        ("gone", "x", ""),
    ]
    lines = changes_text(found, shortened=False).splitlines()
    assert "PASS -> FAIL  flips: x is wrong" in lines
    assert {"new verdicts: 1 in flips", "gone verdicts: 1 in flips", "new items: comes", "gone items: goes"} <= set(
        lines
    )


def test_nothing_changed_is_one_line(history, tmp_path):
    fill(history, [(night(number, commit=f"{number}aaaa"), [judged("a", {"x": PASS})]) for number in range(2)])
    assert told(history, tmp_path) == [
        "suite: nothing changed since suite-000, 24.0 hours before, commits 0aaaa..1aaaa"
    ]


def test_the_first_of_its_kind_is_one_line(history, tmp_path):
    fill(history, [(night(0, title="other"), [item("a")]), (night(1), [item("a")])])
    assert told(history, tmp_path) == ["suite: nothing comparable came before suite-001"]


def test_comparable_is_the_same_name_machine_class_and_some_item(history, tmp_path):
    slow = {"machine": "host", "machine_class": "2 cores"}
    fill(
        history,
        [
            (night(0), [item("a"), item("b")]),
            (night(1, title="other"), [item("a", FAIL)]),
            (night(2, **slow), [item("a", FAIL)]),
            (night(3), [item("c", FAIL)]),
            (night(4, machine="other host"), [item("a"), item("b")]),
        ],
    )
    assert told(history, tmp_path)[0].startswith("suite: nothing changed since suite-000")


def test_where_the_class_is_not_known_the_machine_must_be_the_same(history, tmp_path):
    hosts = [{"machine": name, "machine_class": ""} for name in ("one", "two", "one")]
    fill(
        history,
        [(night(at, **host), [item("a", seconds=100.0 + 400 * (at == 1), **host)]) for at, host in enumerate(hosts)],
    )
    assert told(history, tmp_path)[0].startswith("suite: nothing changed since suite-000")


def test_environment_first_then_verdicts_then_numbers(history, tmp_path):
    first = night(11, environment={"torch": "2.12"}, commit="aaaaaaa")
    last = night(12, environment={"torch": "2.13"}, commit="bbbbbbb")
    then = [judged("a", {"x": PASS}), trained("b", {"top1": 0.9}), trained("c", {"avg_ips": 100.0})]
    now = [judged("a", {"x": FAIL}, FAIL), trained("b", {"top1": 0.8}, seconds=200.0), trained("c", {"avg_ips": 50.0})]
    fill(history, [(first, then), (last, now)])
    assert told(history, tmp_path) == [
        "suite: suite-012 against suite-011, 24.0 hours before",
        "commits: aaaaaaa..bbbbbbb, not in the repository",
        "environment: torch 2.12 -> 2.13",
        "PASS -> FAIL  a: x PASS -> FAIL",
        "metric  b train[norm] top1: 0.9 -> 0.8 (-11.1 %)",
        "time  b seconds: 100 -> 200 (+100 %)",
        "speed  c train[norm] avg_ips: 100 -> 50 (-50 %)",
    ]


def test_reports_of_items_tell_of_the_environment_too(history, tmp_path):
    fill(history, [(night(number), [item("a", environment={"paddle": f"3.{number}"})]) for number in range(2)])
    assert told(history, tmp_path)[1] == "environment: paddle 3.0 -> 3.1"


def test_what_flips_inside_an_item_that_fails_as_before(history, tmp_path):
    before, after = {"x": FAIL, "y": PASS, "z": FAIL}, {"x": PASS, "y": FAIL, "z": FAIL}
    fill(history, [(night(0), [judged("a", before, FAIL)]), (night(1), [judged("a", after, FAIL)])])
    assert told(history, tmp_path)[1:] == ["in a: y PASS -> FAIL and 1 more"]


def test_what_fails_in_another_way_is_not_newly_failing(history, tmp_path):
    before = [item("a", FAIL, causes=[cause()]), item("c"), item("d", FAIL), item("e", SKIP), item("f")]
    after = [
        item("a", ERROR, causes=[cause()]),
        item("c", FAIL),
        item("d"),
        item("e", ERROR),
        item("f", SKIP, reason="no data"),
    ]
    fill(history, [(night(0), before), (night(1), after)])
    assert told(history, tmp_path)[1:] == [
        "PASS -> FAIL  c",
        "SKIP -> ERROR  e",
        "FAIL -> ERROR  a",
        "PASS -> SKIP  f: no data",
        "FAIL -> PASS  d",
    ]


def test_a_metric_that_is_no_number_any_more(history, tmp_path):
    fill(history, [(night(0), [trained("a", {"loss": 0.5})]), (night(1), [trained("a", {"loss": math.nan})])])
    assert told(history, tmp_path)[1] == "metric  a train[norm] loss: 0.5 -> NaN"


def test_the_first_of_each_kind_are_told_and_the_rest_is_counted(history, tmp_path):
    old = [item(f"item{at:02d}", seconds=100.0) for at in range(60)]
    new = [item(f"item{at:02d}", FAIL if at < 30 else PASS, reason="long " * 30, seconds=500.0) for at in range(60)]
    facts = {f"fact{at}": "x" for at in range(20)}
    fill(history, [(night(0), old), (night(1, environment=facts), new)])
    lines = told(history, tmp_path)
    assert [line for line in lines if "more" in line] == ["  and 16 more", "  and 26 more", "  and 26 more"]
    whole = changes_text(changed(history, tmp_path), shortened=False).splitlines()
    assert sum(line.startswith("PASS -> FAIL") for line in whole) == 30
    assert not [line for line in whole if "more" in line]


def test_the_commits_between(history, tmp_path):
    git(tmp_path, "init", "-q")
    hashes = [commit_once_more(tmp_path, "a", f"Step {number}\n\nmore") for number in range(4)]
    first, last = hashes[0], hashes[3]
    found = commits_between(tmp_path, first, f"{last}-dirty")
    assert (found.count, found.backwards) == (3, False)
    assert found.subjects == tuple(f"{hashes[at]} Step {at}" for at in (3, 2, 1))
    back = commits_between(tmp_path, last, first)
    assert (back.count, back.backwards) == (3, True)
    assert commits_between(tmp_path, first, first).span == ""
    assert commits_between(tmp_path, first, f"{first}-dirty").span == f"{first}..{first}-dirty"
    assert commits_between(tmp_path, first, "--output=x").count is None
    assert commits_between(tmp_path / "absent", first, last).count is None
    git(tmp_path, "tag", "-a", "v1", "-m", "v1", hashes[1])
    assert commits_between(tmp_path, "v1", f"v1-2-g{last}").count == 2

    fill(history, [(night(0, commit=first), [item("a")]), (night(1, commit=last), [item("a", FAIL)])])
    assert told(history, tmp_path)[1:] == [
        f"commits: {first}..{last}, 3 commits",
        f"  {hashes[3]} Step 3",
        f"  {hashes[2]} Step 2",
        f"  {hashes[1]} Step 1",
        "PASS -> FAIL  a",
    ]


def test_what_newly_fails_is_told_with_its_cause_and_the_commits_that_changed_that_file(history, tmp_path):
    git(tmp_path, "init", "-q")
    files = enumerate(("port.py", "other.py", "port.py"))
    hashes = [commit_once_more(tmp_path, name, f"Step {number}") for number, name in files]
    failing = item("a", FAIL, reason="exit code 1", causes=[cause(), cause("momentum")])
    first, second = (item("b", FAIL, causes=[cause("padding")]) for _ in range(2))
    fill(
        history,
        [(night(0, commit=hashes[0]), [item("a"), first]), (night(1, commit=f"{hashes[2]}-dirty"), [failing, second])],
    )
    assert told(history, tmp_path)[-5:] == [
        "PASS -> FAIL  a",
        "  cause: `epsilon` is wrong (port.py:3)",
        "  fix: pass `epsilon=1`",
        f"  suspect: {hashes[2]} Step 2",  # neither the one that changed another file, nor the first's own
        "  suspect: changes that are not committed",
    ]
    document = changes_json(changed(history, tmp_path))["explanations"]
    assert [(one["item"], one["cause"]["code"]) for one in document] == [("a", "epsilon")]
    assert document[0]["suspects"] == [f"{hashes[2]} Step 2", "changes that are not committed"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("total_s", FigureKind.TIME),
        ("qps", FigureKind.SPEED),
        ("gpu_util", FigureKind.SPEED),
        ("cpu_rss_mb", FigureKind.MEMORY),
        ("loss", FigureKind.METRIC),
        ("max_abs", FigureKind.METRIC),
    ],
)
def test_figures_are_of_a_kind(name, kind):
    assert figure_kind(name) is kind


@pytest.mark.parametrize(
    ("name", "before", "after", "moved"),
    [
        ("seconds", 100.0, 126.0, True),
        ("seconds", 100.0, 124.0, False),
        ("seconds", 1.0, 2.5, False),  # 1.5 s more, not 2
        ("inference_ms", 1.0, 2.5, True),
        ("avg_ips[images/s]", 100.0, 70.0, True),
        ("gpu_util", 10.0, 25.0, False),
        ("cpu_rss_mb", 100.0, 150.0, False),
        ("top1", 0.9, 0.895, False),
        ("top1", 0.9, 0.89, True),
        ("top1", 0.5, math.nan, True),
        ("top1", math.nan, math.nan, False),
        ("top1", 1.0, math.inf, True),
    ],
)
def test_a_number_moves_by_more_than_it_may(name, before, after, moved):
    assert has_moved(name, before, after) is moved
