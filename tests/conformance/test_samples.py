"""Legacy plans of parameter files of our own against what the original drivers were seen to start for them."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from command_lists import difference, facts, placed, read_recorded

from tipchain.chain.load import DRIVER, driver_text
from tipchain.chain.profiles import get_suite, suite_names
from tipchain.cli import main
from tipchain.modes import CHAIN_MODES

SAMPLES = Path(__file__).parent / "samples"
MODES = tuple(mode.value for mode in CHAIN_MODES)
SUITES = set(suite_names()) - {"tipchain"}
FILES = sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*.txt"))
# In this mode these drivers take the first 17 lines for those of another kind of file, whatever they are.
OTHER_LAYOUT = {(suite, "klquant_whole_infer") for suite in ("template", "alexnet", "paddlenlp", "paddlespeech")}


@cache
def recorded(name: str):
    return read_recorded((SAMPLES / name).with_suffix(".jsonl"))


def test_every_suite_has_samples_and_every_sample_was_recorded_in_every_mode():
    assert {name.partition("/")[0] for name in FILES} == SUITES
    for name in FILES:
        assert tuple(recorded(name)) == MODES, name
        assert any(recorded(name).values()), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILES)
def test_the_commands_are_those_that_the_driver_starts(name, mode, tmp_path, monkeypatch, capsys):
    suite = name.partition("/")[0]
    expected = [] if (suite, mode) in OTHER_LAYOUT else recorded(name)[mode]
    monkeypatch.chdir(tmp_path)
    code = main(["plan", str(SAMPLES / name), mode, "--suite", suite, "--legacy", "--json", "-"])
    printed = capsys.readouterr()
    assert code == (0 if expected else 4), printed.err
    actual = [facts(command) for command in json.loads(printed.out)["commands"]]
    found = difference(placed(expected, tmp_path), actual)
    assert not found, f"{name}, {mode}: {found}"


VERSIONS = sorted(
    (text.relative_to(SAMPLES).as_posix(), path.name.removeprefix(f"{text.stem}.").removesuffix(".jsonl"))
    for text in SAMPLES.glob("*/*.txt")
    for path in text.parent.glob(f"{text.stem}.*.jsonl")
)


def test_what_other_versions_of_a_driver_do_was_recorded():
    assert {name.partition("/")[0] for name, _ in VERSIONS} == {name for name in SUITES if get_suite(name).versions}
    for suite in {name.partition("/")[0] for name, _ in VERSIONS}:
        texts = [path for name, label in VERSIONS if name.startswith(f"{suite}/") for path in [beside(name, label)]]
        titles = {one for path in texts for one in json.loads(path.read_text().splitlines()[0])["versions"]}
        assert titles == {one.title for one in get_suite(suite).versions}, suite


def beside(name: str, label: str) -> Path:
    return (SAMPLES / name).with_name(f"{Path(name).stem}.{label}.jsonl")


@pytest.mark.parametrize(("name", "label"), VERSIONS)
def test_the_text_of_the_checkouts_driver_tells_its_version(name, label, tmp_path, monkeypatch, capsys):
    suite, file = name.partition("/")[0], tmp_path / "test_tipc/configs/net/train_infer_python.txt"
    head = json.loads(beside(name, label).read_text().splitlines()[0])
    versions = [one for one in get_suite(suite).versions if one.title in head["versions"]]
    texts = [text for one in versions for text in one.has]
    file.parent.mkdir(parents=True)
    file.write_bytes((SAMPLES / name).read_bytes())
    (tmp_path / DRIVER).write_text(re.sub(" (?!#)", "\n    ", "\n".join(texts)))
    monkeypatch.chdir(tmp_path)
    assert get_suite(suite, driver_text(tmp_path)).version == tuple(head["versions"])
    newest = 0
    for mode, expected in read_recorded(beside(name, label)).items():
        main(["plan", str(file), mode, "--suite", suite, "--legacy", "--json", "-"])
        actual = [facts(command) for command in json.loads(capsys.readouterr().out)["commands"]]
        assert not difference(placed(expected, tmp_path), actual), f"{label}, {mode}"
        newest += actual == placed(recorded(name)[mode], tmp_path)
    assert newest < len(head["modes"])
