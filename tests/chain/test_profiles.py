"""Suites of users' own: the example of docs/reference/suites.md plans and runs, and what is wrong with a profile is named."""

import json
import re
import shlex
from pathlib import Path

import pytest
import reference_pages
from chain_samples import ROOT, TEMPLATE

from tipchain.chain.profiles import SHIPPED, all_suites, get_suite, read_profile, read_versions, suite_names
from tipchain.cli import main
from tipchain.errors import InputError

DOCS = ROOT / "docs" / "reference" / "suites.md"
MODE = "lite_train_lite_infer"
RUN = f"./test_tipc/output/conformer/{MODE}/runs/RUN"


def fenced(language):
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture
def speechlite(tmp_path, monkeypatch):
    """Lay the example of the docs out as files in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("speechlite.yaml").write_text(fenced("yaml"))
    Path("f.txt").write_text(fenced("text"))
    return tmp_path


def planned(capsys, *options):
    assert main(["plan", "f.txt", MODE, "--json", "-", *options]) == 0
    return json.loads(capsys.readouterr().out)["commands"]


def test_the_example_of_the_docs_plans_as_the_docs_say(speechlite, capsys):
    commands = planned(capsys, "--suite", "speechlite.yaml")
    leg = [command for command in commands if command["leg"] == "norm_train;gpus=0,1"]
    expected = fenced("console").replace("RUN/", f"{RUN}/").splitlines()
    shown = [
        f"CUDA_VISIBLE_DEVICES={command['env']['CUDA_VISIBLE_DEVICES']} {shlex.join(command['argv'])}"
        for command in leg
    ]
    assert shown[: len(expected)] == expected
    # Neither fp16 on a CPU nor int8 of a model that is not quantized.
    assert [command["id"].partition(";gpus=0,1;")[2] for command in leg[3:]] == [
        "cpu;threads=1;bs=1;precision=fp32]",
        "cpu;threads=2;bs=1;precision=fp32]",
        "gpu;precision=fp32;bs=1]",
        "gpu;precision=fp16;bs=1]",
    ]


def test_its_legacy_commands_have_the_drivers_folders_and_logs(speechlite, capsys):
    commands = planned(capsys, "--suite", "speechlite.yaml", "--legacy")
    out = f"test_tipc/output/conformer_{MODE}"
    assert [command["log"] for command in commands[:4]] == [
        f"{out}/norm_train.0.train.log",
        f"{out}/norm_train.0.eval.log",
        None,
        f"{out}/cpu.t1.b1.fp32.log",
    ]
    assert f"--ckpt-dir=./{out}/norm_train.0" in commands[0]["argv"]


def test_a_profile_in_the_checkout_needs_no_name(speechlite, capsys):
    named = planned(capsys, "--suite", "speechlite.yaml")
    Path("test_tipc").mkdir()
    Path("speechlite.yaml").rename("test_tipc/tipchain_suite.yaml")
    assert planned(capsys) == named


# What is shipped


def test_every_shipped_profile_is_read_and_named_as_its_file():
    assert [suite.name for suite in all_suites()] == list(suite_names())


def test_extending_merges_mappings_and_replaces_lists(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "suite: own\nextends: paddleseg\ntitle: Own\ninfer: {cwd: deploy, raw: []}\ntrainers: {to_static: null}\n"
    )
    own, seg = read_profile(path), read_profile(SHIPPED / "paddleseg.yaml")
    assert (own.infer.cwd, own.infer.raw, own.infer.model) == ("deploy", frozenset(), seg.infer.model)
    assert own.marks.folders == ()
    assert [rule.kind for rule in own.trainers] == [rule.kind for rule in seg.trainers if rule.kind != "to_static"]


def test_the_text_of_a_driver_tells_the_version(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("""
suite: own
extends: template
title: Own
versions:
  - title: older
    has: ["one two", three]
    lacks: [four]
    changes: {out: older, eval: {log: a.log}, trainers: {x1: null}}
  - {title: oldest, has: five, changes: {out: oldest}}
""")
    newest, older, oldest = (read_profile(path, text) for text in ("three", "one\n\ttwo\nthree", "one two five three"))
    assert (newest.out, newest.version, read_profile(path)) == ("./test_tipc/output", (), newest)
    assert (older.out, older.version, older.eval.log[0].value) == ("older", ("older",), "a.log")
    assert {rule.kind for rule in newest.trainers} - {rule.kind for rule in older.trainers} == {"x1"}
    assert (oldest.out, oldest.version, oldest.eval) == ("oldest", ("older", "oldest"), older.eval)
    assert read_profile(path, "one two three four").version == ()
    heir = tmp_path / "heir.yaml"
    heir.write_text("suite: heir\nextends: paddleocr\ntitle: Heir\n")
    assert read_profile(heir).versions == ()


@pytest.mark.parametrize(
    ("entry", "driver", "message"),
    [
        ("{title: a, has: [], changes: {}}", "", "versions.0.has: names no text of the driver"),
        ("{title: a, has: b, changes: {title: c}}", "", "versions.0.changes.title: is of the whole profile"),
        ("{title: a, has: b}", "", "versions.0.changes"),
        ("{title: a, has: b, changes: {eval: {logs: c}}}", "b", "bad.yaml:4: eval.logs: "),
        ("{title: a, has: b, changes: {eval: {logs: c}}}", "another", "expected: arguments, log, usual, wrapper, when"),
    ],
)
def test_a_version_that_is_wrong_is_refused(tmp_path, entry, driver, message):
    path = tmp_path / "bad.yaml"
    path.write_text(f"{BASE}versions: [{entry}]\n")
    with pytest.raises(InputError) as error:
        read_profile(path, driver)
    assert message in str(error.value)


def test_every_version_of_a_shipped_profile_can_be_read():
    for suite in all_suites():
        for index, one in enumerate(suite.versions):
            assert read_versions(Path(suite.file), (index,)).version == (one.title,)


def test_a_suite_whose_driver_has_versions_knows_its_drivers(tmp_path):
    shipped = {suite.name: suite.drivers for suite in all_suites() if Path(suite.file).parent == SHIPPED}
    for name, drivers in shipped.items():
        assert all(re.fullmatch("[0-9a-f]{8}", one) for one in drivers)
        assert len(drivers) > len(get_suite(name).versions) or not get_suite(name).versions
    assert shipped["tipchain"] == shipped["template"]  # one driver's files, in default and in legacy plans
    heir = tmp_path / "heir.yaml"
    heir.write_text("suite: heir\nextends: paddleocr\ntitle: Heir\n")
    assert shipped["paddleocr"]
    assert not read_profile(heir).drivers


def test_a_line_of_comment_tells_no_version(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(f"{BASE}versions: [{{title: older, has: a b, changes: {{out: older}}}}]\n")
    assert [read_profile(path, text).version for text in ("a\n# c\nb", "a\n  # b", "# a b")] == [("older",), (), ()]


# Bad profiles


def refusal(tmp_path, text):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"  # a file is read once in a process
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_profile(path)
    return str(error.value).replace(f"{path}", "bad.yaml")


BASE = "suite: bad\nextends: template\ntitle: Bad\n"


@pytest.mark.parametrize(
    ("text", "place", "more"),
    [
        ("lunacher: []", "4: lunacher: is not a known key", "did you mean 'launcher'"),
        ("devices: {parametr: each}", "4: devices.parametr: is not a known key", "did you mean 'parameter'"),
        ("train: {wrapper: [timeout, 5m]}", "4: train.wrapper: has the wrong kind of value", "expected: a text"),
        ("train: {arguments: [3]}", "4: train.arguments.0: has the wrong kind of value", "found: 3"),
        ("eval: {arguments: [{flag: wieghts}]}", "4: eval.arguments.0.flag: unknown role", "found: wieghts"),
        ("whole: {style: kinds, kinds: {norm: export_x}}", "4: whole.kinds.norm: unknown role", "found: export_x"),
        ("train: {arguments: [{add: save, when: {key sav: x}}]}", "4: train.arguments.0.when.key sav: unknown role",
         "did you mean 'save'"),
        ("save: '{trianer}'", "4: save: unknown variable", "did you mean 'trainer'"),
        ("status: '{v[save]}'", "4: status: is no template: {v[save]} is no variable", ""),
        ("save: '{trainer'", "4: save: is no template", "found: {trainer"),
        ("redirected: [train, exprot]", "4: redirected.1: is not known", "did you mean 'export'"),
        ("result_line: '('", "4: result_line: is no regular expression", ""),
        ("layout: =a Model", "4: layout: 'Model' is no role", ""),
        ("layout: =a one one", "4: layout: the role 'one' stands twice", ""),
        ("trainers: {norm: null}", "4: trainers: the trainer 'norm' is missing", "expected: norm: {}"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_line_and_key(tmp_path, text, place, more):
    message = refusal(tmp_path, BASE + text + "\n")
    assert message.startswith(f"bad.yaml:{place}")
    assert more in message


@pytest.mark.parametrize("text", ["out: './{base}'", "weights: '{folder}'", "vars: {one: '{two}', two: x}"])
def test_a_variable_that_is_not_known_in_its_place_is_named(tmp_path, text, capsys):
    (tmp_path / "s.yaml").write_text(BASE + text + "\n")
    (tmp_path / "f.txt").write_text(TEMPLATE)
    assert main(["plan", str(tmp_path / "f.txt"), MODE, "--suite", str(tmp_path / "s.yaml")]) == 2
    assert re.search(r"s\.yaml: \{\w+\} is not known where '.*' stands", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suite: bad\ntitle: Bad\n", "bad.yaml: layout: is missing"),
        ("title: Bad\nextends: template\n", "bad.yaml: suite: is missing"),
        ("suite: bad\nextends: tempalte\n", "bad.yaml:2: extends: extends an unknown suite"),
        ("- a\n", "bad.yaml: is not a suite's profile"),
    ],
)
def test_what_is_no_profile_at_all(tmp_path, text, message):
    assert refusal(tmp_path, text).startswith(message)


def test_a_layout_without_what_every_chain_needs(tmp_path):
    layout = (SHIPPED / "template.yaml").read_text().partition("layout: |\n")[2].partition("\nreads")[0]
    for old, new, message in (
        ("infer_data", "pictures", "the role 'infer_data' is missing; no chain can do without it"),
        ("eval:eval", "?eval:eval", "the role 'eval' may be missing; no chain can do without it"),
    ):
        text = f"{BASE}layout: |\n{layout.replace(old, new)}\n"
        assert refusal(tmp_path, text).startswith(f"bad.yaml:4: layout: {message}")


@pytest.mark.parametrize(
    "where",
    [
        "{}",
        "recognise: {{{}}}",
        "devices: {{{}}}",
        "trainers: {{norm: {{{}}}}}",
        "train: {{{}}}",
        "train: {{arguments: [{{flag: save, {}}}]}}",
        "infer: {{{}}}",
        "infer: {{cpu: {{{}}}}}",
        "whole: {{{}}}",
    ],
)
def test_every_key_is_in_the_docs(tmp_path, where):
    message = refusal(tmp_path, BASE + where.format("nonsense: 1") + "\n")
    known = message.partition("expected: ")[2].splitlines()[0].split(", ")
    text = DOCS.read_text(encoding="utf-8") + reference_pages.MAKERS["reference/profile.md"]()
    assert len(known) > 2
    assert [key for key in known if not re.search(rf"[`{{ ]{key}[`:,}}]", text)] == []


def test_a_missing_file_is_refused(tmp_path, capsys):
    (tmp_path / "f.txt").write_text(fenced("text"))
    assert main(["plan", str(tmp_path / "f.txt"), MODE, "--suite", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
