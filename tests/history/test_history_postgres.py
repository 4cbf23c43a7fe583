"""The history in PostgreSQL: a real server, started here as an ordinary user, on loopback."""

import pytest
import sqlalchemy as sa
from history_samples import FAIL, PASS, item, judged, night, night_folder, trained, write_twice_at_once
from postgres_server import PASSWORD, missing, running_server

from tipchain.errors import HistoryError
from tipchain.history.changes import changes, last_comparable
from tipchain.history.entries import find_entry, list_entries
from tipchain.history.ingest import keep_night, read_source
from tipchain.history.render import changes_text
from tipchain.history.schema import CommandFacts, Entry, ItemFacts, VerdictFacts
from tipchain.history.store import History, place_of

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")


@pytest.fixture(scope="module")
def server():
    with running_server() as one:
        yield one


@pytest.fixture
def place(server, tmp_path):
    return place_of(tmp_path, server.new_database())


def count(history: History, table: type) -> int:
    with history.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def test_several_processes_make_the_tables_and_add_at_once(place, server):
    write_twice_at_once(place)
    history = History(place)
    assert (count(history, Entry), count(history, ItemFacts)) == (2 + 2, 2 * 4 + 2)
    assert (count(history, VerdictFacts), count(history, CommandFacts)) == (2 * 4 * 9, 2)


def test_reading_answers_as_it_does_with_sqlite(place, tmp_path):
    histories = [History(place), History(place_of(tmp_path, str(tmp_path / "same.sqlite")))]
    answers = []
    for history in histories:
        first = [judged("a", {"x": PASS, "y": PASS}), trained("b", {"top1": 0.9})]
        history.add(night(11, commit="aaaa"), first)
        last = [
            judged("a", {"x": FAIL, "z": PASS}, FAIL),
            trained("b", {"top1": float("nan")}, seconds=300.0),
            item("c"),
        ]
        history.add(night(12, commit="bbbb"), last)
        with history.reading() as connection:
            entry = find_entry(connection, "latest")
            found = changes(connection, last_comparable(connection, entry), entry, root=tmp_path)
            read = [
                sorted(map(repr, connection.scalars(sa.select(table)))) for table in (Entry, CommandFacts, VerdictFacts)
            ]
        answers.append((changes_text(found), found.flips, found.inside, found.new_verdicts, repr(found.moved), read))
    assert answers[0] == answers[1]
    assert "PASS -> FAIL  a" in answers[0][0]


def test_a_server_that_goes_away_in_the_middle_and_comes_back(place, server, tmp_path):
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL, "c": PASS})
    source, history = read_source(folder), History(place)

    def items():
        for at, one in enumerate(source.items()):
            if at == 1:
                server.stop()
            yield one

    try:
        with pytest.raises(HistoryError) as caught:
            history.add(source.entry, items())
        assert PASSWORD not in str(caught.value)
        url = place.url.render_as_string(hide_password=False)
        (told,) = keep_night(folder, url)
        assert "postgresql+psycopg://tipchain:***@127.0.0.1" in told
        assert PASSWORD not in told
    finally:
        server.start()
    assert count(History(place), ItemFacts) == 1
    assert keep_night(folder, url) == []
    history = History(place)
    with history.reading() as connection:
        (entry,) = list_entries(connection)
    assert (entry.finished, entry.counts) == (True, {PASS: 2, FAIL: 1})
    assert count(history, VerdictFacts) == 6


def test_a_wrong_password_is_told_without_it(server, tmp_path):
    place = place_of(tmp_path, server.url("postgres", password="wr0ng"))
    with pytest.raises(HistoryError, match="password authentication failed") as caught:
        History(place)
    assert "wr0ng" not in str(caught.value)


def test_a_reader_sees_one_state_while_others_write(place):
    history = History(place)
    history.add(night(0), [item("a")])
    with history.reading() as connection:
        assert len(list_entries(connection)) == 1
        History(place).add(night(1), [item("a")])
        assert len(list_entries(connection)) == 1
