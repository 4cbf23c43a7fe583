"""Case files: what is read, and how every mistake is named; how users name stages."""

import re
from pathlib import Path

import pytest

from tipchain.cli import main
from tipchain.core.blame import UsersError, tell
from tipchain.core.files import find_root
from tipchain.errors import InputError, UsageError
from tipchain.frameworks.base import resolve
from tipchain.modes import STAGES, Mode, parse_stages
from tipchain.parity.case import load_case
from tipchain.parity.settings import BackwardSettings, EnvelopeSettings

GOOD = """\
id: tiny
sides:
  torch: {model: "m:build", loss: "m:loss", optimizer: "m:opt", dataset: "m:data", metric: "m:metric"}
  paddle: {model: "m:build", loss: "m:loss", optimizer: "m:opt", dataset: "m:data", metric: "m:metric"}
inputs:
  image: {shape: [2, 3], dtype: float32}
  label: {shape: [2], dtype: int64, high: 10}
backward:
  iterations: 3
  learning_rate: 1e-4
"""


def write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").touch()
    path = folder / "configs" / "case.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_good_case_is_read(tmp_path):
    case = load_case(write(tmp_path, GOOD))
    assert case.id == "tiny"
    assert case.root == tmp_path
    assert case.inputs["label"].high == 10
    assert case.backward.learning_rate == pytest.approx(1e-4), "1e-4 without a dot is a number"
    assert case.stages == tuple(name for name in STAGES if name != "lr"), "no side has a scheduler"


def test_stages_run_in_order_whatever_their_order_in_the_file(tmp_path):
    case = load_case(write(tmp_path, GOOD + "stages: [loss, forward]\n"))
    assert case.stages == ("forward", "loss")


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("id: tiny\n", ""), None, ["id", "is missing"]),
        (("id: tiny", "id: ../up"), 1, ["cannot be a folder's name"]),
        (("id: tiny", "id: 7"), 1, ["found: 7", "expected: a text"]),
        (("backward:", "backwards:"), 8, ["backwards", "not a known key", "did you mean 'backward'"]),
        (("iterations: 3", "iteration: 3"), 9, ["backward.iteration", "did you mean 'iterations'"]),
        (("iterations: 3", "iterations: 1"), 9, ["backward.iterations", "found: 1", ">= 2"]),
        (("iterations: 3", "iterations: three"), 9, ["'three'", "whole number"]),
        (("{shape: [2], dtype: int64", "{shape: [-2], dtype: int64"), 7, ["label.shape.0: is too small", "found: -2"]),
        (("dtype: float32", "dtype: flaot32"), 6, ["did you mean 'float32'"]),
        (
            ('model: "m:build", loss: "m:loss", optimizer', 'model: "mbuild", loss: "m:loss", optimizer'),
            3,
            ["'module:callable'"],
        ),
        (("  label: {shape: [2], dtype: int64, high: 10}\n", ""), 5, ["no 'label'"]),
    ],
)
def test_mistakes_are_named(tmp_path, change, line, words):
    assert change[0] in GOOD
    path = write(tmp_path, GOOD.replace(*change, 1))
    with pytest.raises(InputError) as caught:
        load_case(path)
    message = str(caught.value)
    assert str(path) in message
    if line is not None:
        assert f"{path}:{line}:" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("stages: [forward, lose]\n", ["lose", "did you mean 'loss'"]),
        ("stages: []\n", ["is empty"]),
        ("tolerances: {loss: {loss: {threshold: 1.0e-3}}}\n", ["looser than the default", "reason"]),
        ("tolerances: {loss: {loss: {rtol: 1.0e-3}}}\n", ["rtol and atol must be given together"]),
        ("modes: {lite_train_lite_infr: {}}\n", ["did you mean 'lite_train_lite_infer'"]),
        ("modes: {whole_infer: {data: hole}}\n", ["modes.whole_infer.data", "found: hole", "did you mean 'whole'"]),
        ("known_deviations: [{subject: forward/logits, reason: ' '}]\n", ["why this deviation"]),
        ("weights: {init: kaiming, torch: a.pth}\n", ["either init or torch"]),
        ("weights: {paddle: a.pdparams}\n", ["weights.paddle: stands without 'torch'"]),
        ("known_deviations: [{subject: logits, reason: measured}]\n", ["STAGE/KEY"]),
        ("known_deviations: [{subject: forwrd/logits, reason: x}]\n", ["did you mean 'forward'"]),
        ("outputs: [a, a]\n", ["different names"]),
        ("init: {seeds: 1}\n", ["init.seeds", "is too small"]),
        ("init: {alpha: 0.5}\n", ["init.alpha", "is too large"]),
        ("distributed: {batch_size: 5}\n", ["distributed.batch_size: cannot be shared equally"]),
        ("inference: {batch_sizes: [4]}\n", ["inference.batch_sizes: are not two or more different sizes"]),
        ("inference: {batch_sizes: [1, true]}\n", ["inference.batch_sizes.1", "found: True", "e.g. [1, 4]"]),
        ("loss: {variants: {a/b: {x: 1}}}\n", ["loss.variants.a/b", "cannot name a variant"]),
        ("updates: {iterations: 2}\n", ["updates.iterations: is too small"]),
        ("backward: {mode: evl}\n", ["backward.mode", "found: evl", "did you mean 'eval'"]),
        ("train: {dropout: true}\n", ["train.dropout", "found: True", "off, equal"]),
        ("train: {margin: 0}\n", ["train.margin", "> 0"]),
        ("train: {envelope: {iterations: 1}}\n", ["train.envelope.iterations", ">= 2"]),
        ("train: {envelope: {factor: 20}}\n", ["train.envelope.factor", "gives no reason"]),
    ],
)
def test_mistakes_in_optional_keys_are_named(tmp_path, extra, words):
    text = GOOD[: GOOD.index("backward:")] if extra.startswith("backward") else GOOD
    with pytest.raises(InputError) as caught:
        load_case(write(tmp_path, text + extra))
    for word in words:
        assert word in str(caught.value)


def test_a_tighter_tolerance_needs_no_reason(tmp_path):
    case = load_case(write(tmp_path, GOOD + "tolerances: {loss: {loss: {threshold: 1.0e-7}}}\n"))
    assert case.tolerances["loss"]["loss"].threshold == pytest.approx(1e-7)


def test_a_stage_needs_its_builders(tmp_path):
    text = GOOD.replace(', metric: "m:metric"', "", 1)
    with pytest.raises(InputError, match=r"sides\.torch\.metric: is missing; the metric stage needs it"):
        load_case(write(tmp_path, text))
    assert load_case(write(tmp_path, text + "stages: [forward]\n")).stages == ("forward",)


def test_a_misspelled_key_is_named_where_another_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"inputs: has no model input[^$]*hint: line \d+ has 'inptus'"):
        load_case(write(tmp_path, GOOD.replace("inputs:", "inptus:")))
    with pytest.raises(InputError, match=r"sides: is missing[^$]*hint: line \d+ has 'side'") as raised:
        load_case(write(tmp_path, GOOD.replace("sides:", "side:")))
    assert raised.value.found is None  # the key that may be meant is a hint, and is not what stands there


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="no such case file"):
        load_case(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="no such case file\n  found: a folder"):
        load_case(tmp_path)
    binary = tmp_path / "case.yaml"
    binary.write_bytes(b"\xff\xfe\x00id")
    with pytest.raises(InputError, match="cannot be read"):
        load_case(binary)
    binary.write_text("- a\n- b\n")
    with pytest.raises(InputError, match="a mapping"):
        load_case(binary)


def test_modes_choose_data_and_epochs(tmp_path):
    case = load_case(write(tmp_path, GOOD + "modes: {whole_train_whole_infer: {epochs: 3}}\n"))
    assert case.epochs(Mode.WHOLE_TRAIN_WHOLE_INFER) == 3
    assert case.epochs(Mode.LITE_TRAIN_LITE_INFER) == 1
    case = load_case(write(tmp_path, GOOD + "modes: {whole_train_whole_infer: {seeds: 8}}\n"))
    assert (case.seeds(Mode.WHOLE_TRAIN_WHOLE_INFER), case.seeds(Mode.LITE_TRAIN_LITE_INFER)) == (8, 1)
    assert (case.train_data(Mode.LITE_TRAIN_WHOLE_INFER), case.eval_data(Mode.LITE_TRAIN_WHOLE_INFER)) == (
        "lite",
        "whole",
    )


def test_root_is_the_nearest_folder_with_a_mark(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    assert find_root(inner / "c.yaml") == tmp_path
    (tmp_path / "a" / "test_tipc").mkdir()
    assert find_root(inner / "c.yaml") == tmp_path / "a"


def test_builders_are_resolved_from_the_root(tmp_path):
    (tmp_path / "some_builders_here.py").write_text("def build(): return 5\nnumber = 3\n")
    assert resolve("some_builders_here:build", tmp_path)() == 5
    with pytest.raises(InputError, match="did you mean some_builders_here:build"):
        resolve("some_builders_here:biuld", tmp_path)
    with pytest.raises(InputError, match="not callable"):
        resolve("some_builders_here:number", tmp_path)
    with pytest.raises(InputError, match="no_such_module_here does not exist"):
        resolve("no_such_module_here:build", tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:", "users_1.py:1: SyntaxError: .*\n  in: importing users_1"),
        ("import no_such_thing", "users_2.py:1: ModuleNotFoundError: .*no_such_thing.*\n  in: importing users_2"),
        ("raise SystemExit(0)", "users_3.py:1: SystemExit: it ends the program here, with exit code 0"),
    ],
)
def test_what_a_users_module_raises_while_it_is_imported_has_its_place(tmp_path, text, words, request):
    name = f"users_{request.node.callspec.indices['text'] + 1}"
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(UsersError) as raised:
        resolve(f"{name}:build", tmp_path)
    assert re.search(words, tell(raised.value))


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("01|02", ("forward", "data")),
        ("5", ("backward", "train")),
        ("loss, 01", ("forward", "loss")),
        ("train,backward", ("backward", "train")),
    ],
)
def test_stages_by_name_or_number(text, stages):
    assert parse_stages(text) == stages


@pytest.mark.parametrize("text", ["", "06", "forwrad", "01,,02"])
def test_unknown_stages_are_refused(text):
    with pytest.raises(UsageError, match="unknown stage"):
        parse_stages(text)


# What a case says about backward and train, and running it with other seeds.

OVERRIDES = """\
weights: {seed: 3}
overrides: {forward: {weights: {seed: 5}, inputs: {image: {shape: [1, 3], seed: 2}}}}
stages: [forward, backward, train]
seed: 7
"""
SEEDED = GOOD.partition("backward:")[0].replace("dtype: float32", "seed: 1") + OVERRIDES


@pytest.fixture
def load(tmp_path):
    return lambda more="", **kwargs: load_case(write(tmp_path, SEEDED + more), **kwargs)


def test_the_defaults(load):
    case = load()
    assert case.backward == BackwardSettings(iterations=5, learning_rate=1e-4, mode="eval", inputs="fake")
    assert case.backward.dtype == "float32"
    assert case.train.envelope == EnvelopeSettings(runs=3, iterations=10, ulps=16, factor=10)
    assert (case.train.dropout, case.train.seeds, case.train.margin) == ("off", 1, 0.15)


def test_a_larger_factor_needs_a_reason_and_a_smaller_one_none(load):
    assert load("train: {envelope: {factor: 20, reason: measured}}\n").train.envelope.factor == 20
    assert load("train: {envelope: {factor: 2}}\n").train.envelope.factor == 2


def test_what_judging_alone_needs_does_not_make_dumps_incomparable(load):
    plain, other = load(), load("train: {margin: 1.0, envelope: {factor: 2}}\n")
    assert repr(plain.train) == repr(other.train)
    assert repr(plain.train) != repr(load("train: {seeds: 2}\n").train)


def test_other_seeds_reach_all_that_a_seed_decides(load):
    case = load(reseed=10)
    assert (case.seed, case.weights.seed, case.reseed) == (17, 13, 10)
    assert {name: spec.seed for name, spec in case.inputs.items()} == {"image": 11, "label": 11}
    forward = case.for_stage("forward")
    assert (forward.weights.seed, forward.inputs["image"].seed) == (15, 12)
    assert load(reseed=0) == load()


def test_a_seed_below_zero_is_wrong_use(tmp_path, capsys):
    assert main(["align", str(write(tmp_path, SEEDED)), "--seed", "-1"]) == 2
    assert "argument --seed: '-1' is not a whole number, 0 or more" in capsys.readouterr().err
