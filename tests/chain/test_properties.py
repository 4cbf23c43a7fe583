"""What holds for every text: of the parser, of detection and of plans.

The profiles are in tests/conftest.py. A property of plans gets a share of the profile's examples: a plan takes
milliseconds, a parse a fraction of one.
"""

import posixpath
import shlex
from functools import cache
from pathlib import Path

import pytest
from chain_samples import ALIGNMENT, TEMPLATE, edit, render_params
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from suite_samples import SUITE_FILES

from tipchain.chain.build import build_spec
from tipchain.chain.expand import expand
from tipchain.chain.lint import lint_file
from tipchain.chain.load import detect_suite, load_plan
from tipchain.chain.params import parse_params
from tipchain.chain.plan import Options
from tipchain.chain.profiles import get_suite
from tipchain.errors import ParamsError, UsageError
from tipchain.modes import CHAIN_MODES, Mode

SAMPLES = Path(__file__).parents[1] / "conformance" / "samples"
NAMES = sorted(SUITE_FILES)


def examples(share=1.0):
    """Return the profile's settings with a share of its examples; there are never fewer than 20."""
    count = max(20, int(settings().max_examples * share))
    return settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])


def attempt(make):
    """Return what ``make`` returns and None, or None and the ParamsError that it raises."""
    try:
        return make(), None
    except ParamsError as error:
        return None, error


# Texts

PLAIN = st.characters(exclude_categories=("Cs", "Cc"), include_characters="\t")
LETTERS = st.text(PLAIN, max_size=12)
KEYS = LETTERS.map(str.strip).filter(lambda key: ":" not in key and not key.startswith("#"))
VALUES = st.text(st.one_of(PLAIN, st.sampled_from(":=|;$`'\"\\*?[]{}()<>&#!~ \t")), max_size=24)
BLANKS = st.text(st.sampled_from(" \t\u3000"), max_size=3)
COMMENTS = st.builds("{}#{}".format, BLANKS, VALUES)
NOTHING_SAID = st.one_of(BLANKS, COMMENTS)


@given(st.text(st.one_of(st.characters(exclude_categories=("Cs",)), st.sampled_from("=:#\n\r\t|")), max_size=200))
@examples()
def test_no_text_breaks_the_parser_otherwise_than_by_params_error(text):
    file, refusal = attempt(lambda: parse_params(text, "f.txt"))
    if refusal is None:
        assert parse_params(render_params(file), "f.txt") == file
    else:
        assert str(refusal).startswith(f"f.txt:{refusal.line}: ")


# Files


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("params") / "f.txt"


MODES = st.sampled_from(list(CHAIN_MODES))
SUITES = st.sampled_from([None, *NAMES, "tipchain"])


def load(path, mode, suite, **more):
    """Return the plan, or None where the file is refused as it should be."""
    options = Options(root="/w")
    try:
        plan, refusal = attempt(lambda: load_plan(path, mode, suite=suite, options=options, **more))
    except UsageError:
        return None
    assert refusal is None or str(refusal).startswith(f"{path}:")
    return plan


@cache
def real_files():
    """Return texts as they are found in the suites: (suite, lines)."""
    own = [(name, SUITE_FILES[name]) for name in NAMES]
    own += [("tipchain", TEMPLATE + ALIGNMENT)]
    own += [(path.parent.name, path.read_text(encoding="utf-8")) for path in sorted(SAMPLES.glob("*/*.txt"))]
    return tuple((name, tuple(text.splitlines())) for name, text in own)


@st.composite
def mutated_files(draw):
    """Return (suite, text) of a real file with lines dropped, doubled, swapped and characters changed."""
    suite, lines = draw(st.sampled_from(real_files()))
    lines = list(lines)
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, len(lines) - 1))
        line = lines[index]
        match draw(st.sampled_from(MUTATIONS)):
            case "drop" if len(lines) > 1:
                del lines[index]
            case "double":
                lines.insert(index, line)
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[index], lines[other] = lines[other], line
            case "change":
                place = draw(st.integers(0, len(line)))
                lines[index] = line[:place] + draw(VALUES)[:3] + line[place + draw(st.integers(0, 2)) :]
            case "value":
                lines[index] = f"{line.partition(':')[0]}:{draw(st.one_of(VALUES, st.sampled_from(KNOWN)))}"
            case "list":
                lines[index] = f"{line}|{draw(st.sampled_from(KNOWN))}"
            case _:
                lines[index] = f"{draw(KEYS)}:{line.partition(':')[2]}"
    return suite, "\n".join(lines)


# Most files with a line too many or too few are refused at once, so these are rarer.
MUTATIONS = ("drop", "double", "swap", "key", "change", *["value"] * 5, *["list"] * 3)
# Values with a meaning somewhere.
KNOWN = (
    *("", "null", " ", "0", "-1", "0,1", "10", "a,b;0,1", "10.0.0.1,10.0.0.2,10.0.0.3;0", "True", "False", "Fasle"),
    *("amp", "fp16", "int8", "trt_int8", "fp32", "norm_train", "pact_train", "to_static_train", "norm", "kl_quant"),
    *("x.py --a=b", "lite_train_lite_infer=1", "whole_train_whole_infer=9=8", "http://h:80/x", "x y", "a*/b.pdparams"),
    *("best_model/model.pdparams", "PP-x_PP-y", "-n", "##", "cpu", "gpu", "npu", "../x", "/x/y", "a:b:c"),
)


@given(mutated_files(), MODES, st.booleans())
@examples(0.5)
def test_no_mutated_file_breaks_detection_or_planning(file, found, mode, told):
    suite, text = found
    file.write_text(text, encoding="utf-8")
    name = None if told else suite
    load(file, mode, name)
    load(file, mode, name, legacy=True)
    plan = load(file, mode, name, lenient=True)
    if plan is not None:
        check_plan(plan)
    if told:
        assert all(one.finding.message for one in lint_file(file, explained=True).found)


def check_plan(plan):
    """What holds for every default plan."""
    ids = [command.id for command in plan.commands]
    assert len(set(ids)) == len(ids)
    logs = [command.log for command in plan.commands]
    assert len(set(logs)) == len(logs)
    for number, command in enumerate(plan.commands):
        assert set(command.needs) <= set(ids[:number])
        assert command.argv
        assert all(isinstance(word, str) and "\0" not in word and "\n" not in word for word in command.argv)
        assert inside(command.log, plan.run)
        assert posixpath.dirname(command.log) == plan.run
        if command.step in ("train", "export"):
            check_left(command, plan)
    for name, target in plan.latest:
        assert "/" not in name
        assert "/" not in target
        assert name not in ("", ".", "..")
        assert target not in ("", ".", "..")


def check_left(command, plan):
    """What is looked for after a training or an export stands in the run's folder, or the plan says that it may not."""
    quantizes = plan.suite == "paddleclas" and not plan.mode.trains
    for one in command.leaves:
        for pattern in one.files:
            if not quantizes:  # that program writes beside the model that it is given
                told = any(plan.run in word for word in command.argv)
                assert inside(pattern.removeprefix("/w/"), plan.run) or (not told and pattern[:3] == "**/"), pattern
    for one in command.finds:
        assert all(inside(pattern.removeprefix("/w/"), plan.run) for pattern in one.files)


def inside(path, folder):
    return ".." not in path.split("/") and posixpath.normpath(path).startswith(f"{folder}/")


def contents(plan):
    return (plan.commands, plan.latest)


@given(st.sampled_from(NAMES), MODES, st.integers(0, 60), NOTHING_SAID)
@examples(0.5)
def test_a_comment_or_a_blank_line_changes_nothing(name, mode, place, line):
    text = SUITE_FILES[name]
    lines = text.splitlines()
    lines.insert(place, line)
    suite = get_suite(name)
    plans = [
        expand(build_spec(parse_params(one), suite, mode), "f.txt", Options(root="/w"))
        for one in (text, "\n".join(lines))
    ]
    assert contents(plans[0]) == contents(plans[1])
    assert detect_suite(parse_params(text)) == detect_suite(parse_params("\n".join(lines)))


# Values

WORD = st.text(st.one_of(PLAIN, st.sampled_from(";$`'\"\\*?[]{}()<>&#!~|:= ")), min_size=1, max_size=12)


def plan_of(name, text):
    spec = build_spec(parse_params(text, "f.txt"), get_suite(name), Mode.LITE_TRAIN_LITE_INFER)
    return expand(spec, "f.txt", Options(root="/w"))


def train_argv(name, change):
    plan = plan_of(name, edit(SUITE_FILES[name], change))
    return next(command.argv for command in plan.commands if command.step == "train")


@given(st.sampled_from(NAMES), st.lists(WORD, max_size=3))
@example("paddleseg", ["$(touch x)", "a;b", "`id`"])
@examples(0.5)
def test_quoted_words_arrive_as_they_are(name, words):
    argv = train_argv(name, ("norm_train:", f"norm_train:train.py {shlex.join(words)} end"))
    start = argv.index("train.py") + 1
    assert list(argv[start : start + len(words) + 1]) == [*words, "end"]


BATCHES = ("-o Global.batch_size:", "--batch_size:1", "--bs:", "--batch-size:1", "-o batch_size:", "--rec_batch_num:")


@given(st.sampled_from(NAMES), WORD.filter(lambda word: "|" not in word))
@examples(0.5)
def test_a_value_of_a_list_is_one_argument_or_refused(name, text):
    """As in a shell, an unquoted blank ends the argument and quotes are taken off; nothing else happens to it."""
    line = next(one for one in SUITE_FILES[name].splitlines() if one.startswith(BATCHES))
    key = line.partition(":")[0]
    changed = edit(SUITE_FILES[name], (line, f"{key}:{text}"))
    plan, refusal = attempt(lambda: plan_of(name, changed))
    if refusal is not None:
        assert str(refusal).startswith(f"f.txt:{refusal.line}: {key}: ")
        return
    passed = [one for one in plan.commands if one.on_gpu or name != "paddlegan"]  # its program has no such argument
    infers = [command.argv for command in passed if command.step == "infer"]
    absent = text.strip() in ("", "null")
    words = [] if absent else shlex.split(f"{key}={text.strip()}")
    for argv in infers:
        places = [index for index in range(len(argv)) if list(argv[index : index + len(words)]) == words]
        assert places, argv
