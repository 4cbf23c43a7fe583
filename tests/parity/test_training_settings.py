"""What a case says about backward and train, and running it with other seeds."""

import pytest

from tipchain.cli import main
from tipchain.parity.case import load_case
from tipchain.parity.settings import BackwardSettings, EnvelopeSettings

SIDE = '{model: "m:build", loss: "m:loss", optimizer: "m:opt", dataset: "m:data", metric: "m:metric"}'
CASE = f"""\
id: net
sides: {{torch: {SIDE}, paddle: {SIDE}}}
weights: {{seed: 3}}
inputs:
  image: {{shape: [2, 3], seed: 1}}
  label: {{shape: [2], dtype: int64, high: 10}}
overrides: {{forward: {{weights: {{seed: 5}}, inputs: {{image: {{shape: [1, 3], seed: 2}}}}}}}}
stages: [forward, backward, train]
seed: 7
"""


@pytest.fixture
def load(tmp_path):
    (tmp_path / "pyproject.toml").touch()

    def read(more="", **kwargs):
        path = tmp_path / "case.yaml"
        path.write_text(CASE + more)
        return load_case(path, **kwargs)

    return read


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


def test_a_seed_below_zero_is_wrong_use(load, tmp_path, capsys):
    load()
    assert main(["align", str(tmp_path / "case.yaml"), "--seed", "-1"]) == 2
    assert "argument --seed: '-1' is not a whole number, 0 or more" in capsys.readouterr().err
