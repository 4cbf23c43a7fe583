"""Several processes against one: what they share, what is said when they do not, and how they end."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from stage_records import judge_arrays, open_paddle, outcomes, reasons, tiny_bench

from tipchain.errors import UsageError
from tipchain.modes import tensors_name
from tipchain.parity.case import load_case
from tipchain.parity.stages import record
from tipchain.parity.stages.judging import Judged

TINY = Path(__file__).resolve().parents[1] / "cases/tiny/tiny.yaml"


@pytest.fixture(scope="module")
def side(tmp_path_factory):
    return open_paddle(tmp_path_factory.mktemp("side"))


@pytest.fixture(autouse=True)
def _tests_can_be_imported(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TINY.parents[3]))


def bench_of(side, tmp_path, **settings):
    path = side[1] / f"{tmp_path.name}.yaml"
    path.write_text(f"{TINY.read_text()}distributed: {json.dumps(settings)}\n")
    return tiny_bench(side, load_case(path), tmp_path)


def judge_recorded(folder, port, reference, tensors, reference_tensors, details) -> Judged:
    for name, arrays in (("paddle", tensors), ("torch", reference_tensors)):
        if arrays:
            save_file(arrays, folder / tensors_name("distributed", name))
    sides = ("single", "paddle")
    return judge_arrays("distributed", reference, port, details=(details, details), sides=sides, folder=folder)


@pytest.mark.frameworks
def test_two_processes_do_what_one_does(side, tmp_path):
    told = {"classifier.bias": "head.bias"}  # by structure, while the weights were converted; the file does not say it
    bench = bench_of(side, tmp_path, batch_size=6, iterations=2)
    bench = replace(bench, case=replace(bench.case, weights=replace(bench.case.weights, names=told)))
    made = record("distributed", bench)
    tensors = dict(made.tensors), dict(made.reference_tensors)
    judged = judge_recorded(tmp_path, made.arrays, made.reference, *tensors, dict(made.details))
    found = outcomes(judged)
    assert set(found.values()) == {"PASS"}
    parameters = {
        f"parameter/{name}" for name in ("features.0.weight", "head.weight", "square.bias", "classifier.bias")
    }
    assert {"loss_1", "lr_1", "buffer/features.1.running_var", "ranks", *parameters} <= set(found)
    assert "9 tensors equal on 2 processes" in reasons(judged)["ranks"]
    kept = {path.name for path in tmp_path.iterdir() if path.suffix != ".safetensors"}
    assert kept == {"distributed_rank0.log", "distributed_rank1.log"}


@pytest.mark.frameworks
def test_where_parameters_differ_it_is_learned_how_far_rounding_moves_gradients(side, tmp_path, monkeypatch):
    from tipchain.parity.stages.bench import fake_batch
    from tipchain.parity.stages.distributed import rounding, state, train

    bench = bench_of(side, tmp_path)
    model, batch = bench.model(), fake_batch(bench.case, 4)
    losses, _ = train(bench, model, model, batch)
    found = rounding(bench, batch, losses, state(bench, model))
    assert all(found[f"noise/loss_{number}"] < 1e-4 * loss for number, loss in enumerate(losses))
    for name in ("features.0.weight", "head.weight"):
        largest = np.abs(found[f"gradient/{name}"]).max()
        assert 0 < found[f"gradient_noise/{name}"] < 1e-3 * largest
        assert 0 < found[f"noise/parameter/{name}"] < 1e-4
    with monkeypatch.context() as patch:
        patch.setattr(type(model), "forward", drawing(type(model).forward))
        assert rounding(bench, batch, losses, state(bench, model)) == {}, "what random layers do is not rounding"


def drawing(forward):
    return lambda self, *inputs: forward(self, *inputs) * float(np.random.default_rng().normal())


@pytest.mark.frameworks
def test_processes_that_take_too_long_are_ended(side, tmp_path):
    from tipchain.parity.stages.distributed import GroupError

    with pytest.raises(
        GroupError, match=r"the 2 processes took longer than 0.5 s and were ended; unfinished: rank 0, 1"
    ):
        record("distributed", bench_of(side, tmp_path, timeout_s=0.5))
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.frameworks
def test_batch_statistics_of_shares_are_refused(side, tmp_path):
    with pytest.raises(UsageError, match=r"features.1 would take the statistics of each process's own share"):
        record("distributed", bench_of(side, tmp_path, training=True))


LOSS = {"loss_0": np.array([2.0]), "lr_0": np.array([0.1])}
BEFORE = np.array([1.0, 2.0], dtype=np.float32)
AGREE = {"processes": 2, "steps": 1, "tensors": 1, "diverged": {"start": {}, "end": {}}}


def updated(share: float) -> dict:
    """Return tensors after an update that is ``share`` of the reference's."""
    change = np.array([0.01, -0.01], dtype=np.float32) * np.float32(share)
    return {"parameter/a": BEFORE + change, "update_rms/a": np.array(abs(change[0]))}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.5, "the updates are 1/2 of one process's: DataParallel averages the processes' gradients"),
        (2.0, "the updates are 2 times one process's: gradients are summed in place of averaged"),
    ],
)
def test_updates_of_another_size_are_explained(tmp_path, share, words):
    judged = judge_recorded(tmp_path, LOSS, LOSS, updated(share), updated(1.0), AGREE)
    assert outcomes(judged) == {"loss_0": "PASS", "lr_0": "PASS", "parameter/a": "FAIL", "ranks": "PASS"}
    assert words in reasons(judged)["parameter/a"]


def test_what_adam_makes_of_a_gradient_that_is_rounding_alone_is_skipped(tmp_path):
    known = {"gradient/a": np.array([1e-9, 1.0]), "gradient_noise/a": np.array(1e-8)}
    one = updated(1.0) | known
    for off, outcome in ((np.array([0.01, 0]), "SKIP"), (np.array([0.01, 1e-3]), "FAIL"), (np.array([0.1, 0]), "FAIL")):
        port = updated(1.0)
        port["parameter/a"] = (port["parameter/a"] + off).astype(np.float32)
        judged = judge_recorded(tmp_path, LOSS, LOSS, port, one, AGREE)
        assert outcomes(judged)["parameter/a"] == outcome, off
    judged = judge_recorded(tmp_path, LOSS, LOSS, updated(1.0) | {"parameter/a": BEFORE}, updated(1.0), AGREE)
    assert outcomes(judged)["parameter/a"] == "FAIL", "nobody knows the noise"


def test_where_rounding_moves_one_process_as_far_nothing_fails(tmp_path):
    one = updated(1.0) | {"noise/loss_0": np.array(1e-2), "noise/parameter/a": np.array(4e-4)}
    for change, loss, found in ((1.05, 2.01, "PASS"), (1.5, 2.1, "FAIL")):
        judged = judge_recorded(tmp_path, LOSS | {"loss_0": np.array([loss])}, LOSS, updated(change), one, AGREE)
        assert outcomes(judged)["loss_0"] == found
    for noise, change, found in ((3e-4, 1.02, "PASS"), (1e-2, 1.5, "SKIP"), (1e-4, 1.5, "FAIL")):
        one["noise/parameter/a"] = np.array(noise)
        judged = judge_recorded(tmp_path, LOSS, LOSS, updated(change), one, AGREE)
        assert outcomes(judged)["parameter/a"] == found, noise


def test_a_loss_that_sums_and_a_rate_that_grows_with_the_processes_are_explained(tmp_path):
    port = {"loss_0": np.array([1.0]), "lr_0": np.array([0.2])}
    found = reasons(judge_recorded(tmp_path, port, LOSS, updated(1.0), updated(1.0), AGREE))
    assert "1/2 of one process's: it is a sum over the batch" in found["loss_0"]
    assert "2 times one process's: something scales it by the number of processes" in found["lr_0"]


def test_what_a_process_reports_before_it_ends_is_the_groups_error(tmp_path):
    from tipchain.parity.stages.distributed import GroupError

    group = group_that_ended(tmp_path, None, 1)
    with pytest.raises(GroupError, match=r"rank 1 of 2 ended with exit code 1, without a report\n  log: "):
        group.reports()
    (tmp_path / "distributed_rank1.log").write_text("connected\nraises a std::exception: gloo::TimeoutException\n")
    with pytest.raises(GroupError, match=r"without a report: raises a std::exception: gloo::TimeoutException\n"):
        group.reports()
    (tmp_path / "rank_1.json").write_text('{"error": "ValueError: no loss here"}')
    with pytest.raises(GroupError, match=r"rank 1 of 2: ValueError: no loss here"):
        group.reports()
    with pytest.raises(GroupError, match=r"rank 0 of 2 was killed by SIGSEGV, without a report"):
        group_that_ended(tmp_path / "other", -signal.SIGSEGV, None).reports()


def group_that_ended(folder, *codes):
    """Return a group of processes that ended with exit codes; None: it still runs."""
    from tipchain.parity.stages.distributed import WorkerGroup

    group = object.__new__(WorkerGroup)
    group.folder, group.timeout_s, group.logs = folder, 1.0, folder
    group.ranks = [SimpleNamespace(poll=lambda code=code: code) for code in codes]
    folder.mkdir(exist_ok=True)
    for rank in range(len(codes)):
        (folder / f"distributed_rank{rank}.log").touch()
    return group


def test_ranks_that_part_are_named(tmp_path):
    facts = {**AGREE, "diverged": {"start": {}, "end": {"a": [1]}}}
    judged = judge_recorded(tmp_path, LOSS, LOSS, updated(1.0), updated(1.0), facts)
    assert outcomes(judged)["ranks"] == "FAIL"
    assert "after 1 steps 1 tensors differ from rank 0's: a (rank 1)" in reasons(judged)["ranks"]


@pytest.mark.parametrize(
    ("tensors", "reference", "facts", "subject"),
    [
        ({}, {}, AGREE, "tensors"),
        (updated(0.0), updated(0.0), AGREE, "parameter"),
        (updated(np.nan), updated(np.nan), AGREE, "parameter"),
        (updated(1.0), updated(1.0), {"processes": 2}, "ranks"),
        (updated(1.0), updated(1.0), {**AGREE, "tensors": 0}, "ranks"),
    ],
)
def test_nothing_compared_is_no_pass(tmp_path, tensors, reference, facts, subject):
    assert outcomes(judge_recorded(tmp_path, LOSS, LOSS, tensors, reference, facts))[subject] == "ERROR"


def test_a_parameter_that_only_one_run_has_fails(tmp_path):
    more = {**updated(1.0), "parameter/b": BEFORE, "update_rms/b": np.array(0.0)}
    assert outcomes(judge_recorded(tmp_path, LOSS, LOSS, updated(1.0), more, AGREE))["parameter/b"] == "FAIL"


def test_too_few_gpus_are_a_skip(tmp_path):
    judged = judge_recorded(tmp_path, {}, {}, {}, {}, {"skipped": "2 processes need 2 GPUs, one each; visible: 1"})
    assert outcomes(judged) == {"processes": "SKIP"}
