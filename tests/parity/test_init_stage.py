"""The stage init: constants exactly, random values as distributions, and the words for what differs."""

import numpy as np
import pytest
from stage_records import NumpyFramework, judge_recordings, make_bench, outcomes, reasons

from tipchain.numbers.tolerance import Tolerance
from tipchain.parity.settings import InitSettings
from tipchain.parity.stages.init import record
from tipchain.parity.stages.judging import Rules


class Arrays(NumpyFramework):
    """A framework whose models are mappings of functions that draw."""

    def seed(self, seed):
        self.generator = np.random.default_rng([seed, self.salt])

    def __init__(self, salt):
        self.salt = salt

    def build(self, builder, args):
        return {name: draw(self.generator).astype(np.float32) for name, draw in builder().items()}

    def parameters(self, model, names):
        return ((name, array) for name, array in model.items() if "running" not in name)

    def buffers(self, model, names):
        return ((name, array) for name, array in model.items() if "running" in name)


def uniform(bound, *shape):
    return lambda generator: generator.uniform(-bound, bound, size=shape)


def normal(std, *shape, mean=0.0):
    return lambda generator: generator.normal(mean, std, size=shape)


def constant(value, *shape):
    return lambda generator: np.full(shape, value)


DEFAULT = 1 / 27**0.5
GOOD = {
    "conv.weight": uniform(DEFAULT, 16, 3, 3, 3),
    "conv.bias": uniform(DEFAULT, 16),
    "bn.weight": constant(1, 16),
    "bn.bias": constant(0, 16),
    "bn.running_mean": constant(0, 16),
    "fc.weight": normal(0.02, 200, 100),
}


def compare(port, reference=None, *, seed=0, rules=None, **settings):
    recorded = [
        record(make_bench(Arrays(salt), {"model": lambda one=one: one}, init=InitSettings(**settings), seed=seed))
        for salt, one in ((1, reference or GOOD), (2, port))
    ]
    return judge_recordings("init", *recorded, rules)


def fault(name, draw, **settings):
    """Return the reason why the one parameter that was spoiled fails; all others must pass."""
    judged = compare(GOOD | {name: draw}, **settings)
    found = reasons(judged, "FAIL", "ERROR", "SKIP")
    assert set(found) == {name}, found
    return found[name]


def test_equal_distributions_pass():
    judged = compare(GOOD)
    assert set(outcomes(judged).values()) == {"PASS"}
    assert set(outcomes(judged)) == set(GOOD)
    assert "1 everywhere, the same in all 5 models" in reasons(judged, "PASS")["bn.weight"]
    assert "5 models, 2160 values" in reasons(judged, "PASS")["conv.weight"]


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 105), marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_no_false_alarm_over_seeds(seeds):
    assert not [seed for seed in seeds if reasons(compare(GOOD, seed=100 * seed), "FAIL", "ERROR")]


def test_another_gain_is_told():
    reason = fault("conv.weight", uniform((6 / 27) ** 0.5, 16, 3, 3, 3))
    assert "std 0.11" in reason
    assert "ratio 2.4" in reason


def test_a_constant_is_compared_exactly():
    assert "expected 1 everywhere, actual 0 everywhere" in fault("bn.weight", constant(0, 16))
    assert "expected 0 everywhere, actual 1e-07 everywhere" in fault("bn.bias", constant(1e-7, 16))
    assert "running_mean" not in fault("bn.running_mean", constant(1, 16))


def test_constant_against_random_is_said_both_ways():
    reason = fault("conv.bias", constant(0, 16))
    assert reason.startswith("expected random values (std 0.1")
    assert reason.endswith("actual 0 everywhere in every model")
    assert fault("bn.bias", normal(0.1, 16)).startswith("expected 0 everywhere in every model, actual random")


def test_missing_extra_and_reshaped_parameters_fail():
    port = {name: draw for name, draw in GOOD.items() if name != "conv.bias"} | {"conv.offset": constant(0, 16)}
    found = reasons(compare(port), "FAIL")
    assert found["conv.bias"] == "missing in the port"
    assert found["conv.offset"].startswith("not in the reference")
    assert "shapes differ: expected (200, 100), actual (100, 200)" in fault("fc.weight", normal(0.02, 100, 200))


def test_nan_and_nothing_never_pass():
    assert "NaN or Inf" in fault("fc.weight", lambda generator: generator.normal(size=(200, 100)) * np.nan)
    assert outcomes(compare({}, {"a": constant(1, 0)})) == {"a": "FAIL"}
    assert outcomes(compare({"a": constant(1, 0)}, {"a": constant(1, 0)})) == {"a": "ERROR"}


def test_a_model_without_parameters_is_an_error():
    empty = record(make_bench(Arrays(1), {"model": dict}, init=InitSettings()))
    assert outcomes(judge_recordings("init", empty, empty)) == {"parameters": "ERROR"}


def test_a_padding_row_is_compared_exactly():
    def table(row):
        def draw(generator):
            values = generator.normal(size=(20, 50))
            if row is not None:
                values[row] = 0
            return values

        return draw

    def judge(expected, actual):
        return compare({"e": table(actual)}, {"e": table(expected)})

    assert outcomes(judge(3, 3)) == {"e": "PASS"}
    assert (
        "50 of the 1000 values kept differ in kind: expected 0 in every model, actual random values"
        in (reasons(judge(3, None), "FAIL")["e"])
    )
    assert "expected random values, actual 0 in every model" in reasons(judge(None, 3), "FAIL")["e"]


def test_zeros_that_are_a_matter_of_chance_are_no_structure():
    def sparse(share):
        return lambda generator: generator.normal(size=(50, 40)) * (generator.random((50, 40)) >= share)

    assert outcomes(compare({"w": sparse(0.8)}, {"w": sparse(0.8)})) == {"w": "PASS"}
    assert outcomes(compare({"w": sparse(0.5)}, {"w": sparse(0.8)})) == {"w": "FAIL"}


def test_what_is_the_same_in_every_model_is_compared_value_by_value():
    def sines(phase):
        return lambda generator: np.sin(np.arange(9000.0) / 7 + phase)

    assert outcomes(compare({"p": sines(1e-8)}, {"p": sines(0)})) == {"p": "PASS"}
    found = reasons(compare({"p": sines(1e-2)}, {"p": sines(0)}), "FAIL")["p"]
    assert "outside" in found
    rules = Rules(own={"init": {"p": Tolerance(rtol=0.0, atol=0.1, reason="measured")}})
    assert outcomes(compare({"p": sines(1e-2)}, {"p": sines(0)}, rules=rules)) == {"p": "PASS"}


def test_too_few_values_are_a_skip_that_says_how_many_seeds_would_do():
    port = {"a": uniform(1, 1)}
    reason = reasons(compare(port, {"a": uniform(1, 1)}), "SKIP")["a"]
    seeds = int(reason.split()[-3])
    assert outcomes(compare(port, {"a": uniform(1, 1)}, seeds=seeds)) == {"a": "PASS"}
    assert outcomes(compare(port, {"a": uniform(1, 1)}, seeds=seeds - 1)) == {"a": "SKIP"}


def test_the_recording_is_small_and_leaves_the_seed_as_it_was():
    framework = Arrays(1)
    framework.seeds = []
    framework.seed = lambda seed: (framework.seeds.append(seed), Arrays.seed(framework, seed))
    found = record(make_bench(framework, {"model": lambda: GOOD}, init=InitSettings(seeds=3, values=150), seed=7))
    assert found.arrays["value/fc.weight"].shape == (3, 150)
    assert found.arrays["range/fc.weight"].shape == (3, 4)
    assert found.details["shapes"]["fc.weight"] == [200, 100]
    assert framework.seeds == [7, 8, 9, 7]
