"""What keeps alignment quick must not change what is compared."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tipchain import frameworks
from tipchain.core import machine
from tipchain.frameworks import load_framework
from tipchain.frameworks.base import Trainer
from tipchain.frameworks.paddle_ import held_parameters
from tipchain.numbers.compare import PIECE
from tipchain.paddle_tools import program
from tipchain.parity import recorder
from tipchain.parity.stages import Bench, backward
from tipchain.parity.stages.tensors import TensorFile, TensorWriter, room_for, save_tensors


class CountingFramework:
    name = "torch"

    def __init__(self) -> None:
        self.calls: list[str] = []

    @contextmanager
    def undrawn(self):
        self.calls.append("undrawn")
        yield
        self.calls.append("drawn")

    @contextmanager
    def inference(self):
        yield

    @contextmanager
    def randomness(self, draws):
        yield

    def build(self, builder, args):
        self.calls.append("build")
        return Layer()

    def tensor(self, array):
        return array

    def load_weights(self, model, path):
        self.calls.append("load")
        model.weight = path.name

    def set_training(self, model, training):
        model.training = training


class Layer:
    weight, training, runs = None, None, 0

    def __call__(self, image):
        self.runs += 1
        return self.runs, image


def make_bench() -> Bench:
    side = SimpleNamespace(model="json:loads")
    case = SimpleNamespace(sides={"torch": side}, root=Path(), model_args={}, seed=0)
    return Bench(
        framework=CountingFramework(),
        case=case,
        weights=Path(__file__),
        inputs={},
        train_data=Path(),
        eval_data=Path(),
        epochs=1,
        folder=Path(),
    )


def test_eval_model_is_built_once_and_always_has_the_weights():
    bench = make_bench()
    first = bench.eval_model()
    first.weight, first.training = "changed by the model itself", True
    again = bench.eval_model()
    assert again is first
    assert (again.weight, again.training) == (Path(__file__).name, False)
    assert bench.framework.calls == ["undrawn", "build", "drawn", "load", "load"]


def test_what_the_model_gives_for_the_fake_inputs_is_computed_once():
    bench = replace(make_bench(), inputs={"image": 3, "label": 1})
    assert bench.eval_output() == (1, 3)
    assert bench.eval_output() == (1, 3)
    assert bench.eval_model().runs == 1
    bench.model()
    assert bench.eval_output() == (1, 3), "another model"


def test_a_model_to_train_is_never_one_that_was_used():
    bench = make_bench()
    used = bench.eval_model()
    trained = bench.model(training=True)
    assert trained is not used
    again = bench.eval_model()
    assert again is not used
    assert again is not trained


def test_asking_for_a_tensor_does_not_load_it(tmp_path, monkeypatch):
    save_file({"gradient/w": np.ones(3, np.float32)}, tmp_path / "t.safetensors")

    def refuse(self, name):
        raise AssertionError(name)

    monkeypatch.setattr(TensorFile, "__getitem__", refuse)
    with TensorFile(tmp_path / "t.safetensors") as tensors:
        assert "gradient/w" in tensors
        assert "gradient/x" not in tensors


def test_tensors_of_every_shape_and_dtype_are_read_back_as_they_were(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "scalar": np.array(1.5, np.float32),
        "empty": np.zeros((0, 3), np.float16),
        "flags": np.array([True, False]),
        "odd": np.arange(3, dtype=np.int16),
        "complex": np.array([1j], np.complex64),
    }
    save_tensors(path, tensors)
    theirs = load_file(path)
    with TensorFile(path) as ours:
        assert set(theirs) == set(ours) == set(tensors)
        for name, array in tensors.items():
            for found in (theirs[name], ours[name]):
                assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
    with pytest.raises(OSError, match="wide is of dtype"):
        save_tensors(path, {"wide": np.zeros(1, np.longdouble)})
    assert set(load_file(path)) == set(tensors), "a file that was whole stays"


@pytest.mark.frameworks
@pytest.mark.parametrize("outputs", [1, 40])
def test_what_paddle_gives_away_stays_as_it_was_when_the_model_trains_on(outputs):
    import paddle

    framework, layer = load_framework("paddle"), paddle.nn.Linear(3000, outputs)
    (_, weight), (_, bias) = framework.parameters(layer, {})
    before = weight.copy(), bias.copy()
    assert weight.shape == (outputs, 3000)
    assert weight.flags.c_contiguous
    with paddle.no_grad():
        for parameter in layer.parameters():
            parameter.add_(paddle.ones_like(parameter))
    assert np.array_equal(weight, before[0])
    assert np.array_equal(bias, before[1])
    assert not np.array_equal(next(framework.parameters(layer, {}))[1], weight)


@pytest.mark.frameworks
def test_gradients_that_paddle_clears_take_no_memory_and_parameters_become_what_they_would():
    import paddle
    from paddle import nn

    framework = load_framework("paddle")

    def train(*, spared: bool) -> list[list[float]]:
        paddle.seed(0)
        model = nn.LayerList([nn.Embedding(5, 4, sparse=True), nn.Linear(4, 3), nn.Linear(3, 3)])
        decayed = {"momentum": 0.9, "parameters": [*model[1].parameters(), *model[2].parameters()], "weight_decay": 0.1}
        optimizer, sparse = paddle.optimizer.Momentum(0.1, **decayed), paddle.optimizer.SGD(0.1, model[0].parameters())
        trainers = [
            framework.trainer(model, lambda *_, made=one: made, 0.1, {}, None, {}) for one in (optimizer, sparse)
        ]
        states = []
        for number in range(3):
            values = model[1](model[0](paddle.to_tensor([number, 1])))
            (
                values if number else model[2](values)
            ).square().sum().backward()  # the last layer has no gradient after that
            for trainer, usual in zip(trainers, (optimizer, sparse), strict=True):
                if spared:
                    trainer.step()
                    assert not any(one.grad is not None for one in held_parameters(usual))
                else:
                    usual.step()
                    usual.clear_grad()
            states.append([float(value) for one in model.parameters() for value in one.flatten()])
        return states

    usual = train(spared=False)
    assert train(spared=True) == usual
    assert usual[1][-12:] != usual[2][-12:], "zeros in place of a gradient leave momentum and decay"


@pytest.mark.frameworks
def test_an_optimizer_that_clears_in_its_own_way_is_left_to_it():
    import paddle

    class Own(paddle.optimizer.SGD):
        cleared = 0

        def clear_grad(self, set_to_zero=True):
            self.cleared += 1
            super().clear_grad(set_to_zero)

    framework, layer = load_framework("paddle"), paddle.nn.Linear(2, 2)
    made = Own(0.1, layer.parameters())
    trainer = framework.trainer(layer, lambda *_: made, 0.1, {}, None, {})
    layer(paddle.ones([1, 2])).sum().backward()
    trainer.step()
    assert made.cleared == 1
    assert layer.weight.grad is not None


DRAWN = {
    "torch": "lambda nn: (nn.Linear(3, 4), nn.Conv2d(2, 2, 1), nn.Embedding(3, 2), nn.LSTM(2, 2))",
    "paddle": "lambda nn: (nn.Linear(3, 4), nn.Conv2D(2, 2, 1), nn.Embedding(3, 2), nn.LSTM(2, 2))",
}


@pytest.mark.frameworks
@pytest.mark.parametrize("side", DRAWN)
def test_only_parameters_that_are_loaded_over_are_not_drawn(side):
    framework = load_framework(side)
    nn = getattr(framework, side).nn

    def values() -> list[float]:
        return [float(abs(one.detach()).max()) for layer in eval(DRAWN[side])(nn) for one in layer.parameters()]

    with framework.undrawn():
        assert not any(values())
        loose = (
            nn.init.normal_(nn.Linear(3, 4).weight.detach()) if side == "torch" else getattr(framework, side).randn([3])
        )
        assert float(abs(loose).max()) > 0, "what is no parameter has its values"
    assert sum(one > 0 for one in values()) >= 4, "and afterwards all is as usual"


MANY = {
    "a matrix of Paddle's": np.arange(3 * 5.0).reshape(5, 3).T / 7,
    "a large one": np.random.default_rng(0).normal(size=(300, 70)).T,
    "another layout": np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    "odd": np.arange(3, dtype=np.float32),
    "none": np.zeros((0, 3)),
    "step": np.arange(5),
    "half": np.arange(3, dtype=np.float16),
    "mask": np.array([True, False, True]),
    "rms": np.array(1 / 3),
    "more, 名": np.arange(2 * PIECE + 1) / 3,
}


def open_writer(path: Path) -> TensorWriter:
    return TensorWriter(path, sum(room_for(name, array) for name, array in MANY.items()))


def is_kept(name: str, found: np.ndarray) -> bool:
    """Tell whether a tensor is what was written: floats of eight bytes in four, unless it is a single number."""
    array = MANY[name]
    wanted = array.astype(np.float32) if array.dtype == np.float64 and array.ndim else array
    return (found.dtype, found.shape, found.tolist()) == (wanted.dtype, wanted.shape, wanted.tolist())


def test_tensors_that_are_written_one_by_one_can_be_read_at_once_and_in_the_file(tmp_path):
    path = tmp_path / "t.safetensors"
    writer = open_writer(path)
    for name, array in MANY.items():
        writer[name] = array
        assert is_kept(name, writer[name])
    with pytest.raises(AssertionError, match="odd is written"):
        writer["odd"] = MANY["odd"]
    assert all(is_kept(name, writer[name]) for name in MANY)
    assert not path.exists()
    writer.finish()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    theirs = load_file(path)
    with TensorFile(path) as ours:
        assert set(ours) == set(theirs) == set(MANY)
        assert all(is_kept(name, ours[name]) and is_kept(name, theirs[name]) for name in MANY)
        assert all(ours[name].flags.aligned for name in MANY)


def test_a_file_of_tensors_that_is_never_finished_leaves_nothing(tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_bytes(b"before")
    writer = open_writer(path)
    writer["odd"] = MANY["odd"]
    del writer
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"before")]
    writer = open_writer(path)
    writer["odd"], writer["wide"] = MANY["odd"], np.zeros(1, np.longdouble)
    with pytest.raises(OSError, match="wide is of dtype"):
        writer.finish()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"before")]


@pytest.mark.frameworks
@pytest.mark.parametrize("side", DRAWN)
def test_gradients_are_written_from_the_frameworks_own_memory(side, tmp_path):
    framework = load_framework(side)
    layer = framework.widened(getattr(framework, side).nn.Linear(3, 700))
    (layer(framework.leaf(np.array([[1 / 3, 1, 2]]))) ** 2).sum().backward()
    whole = dict(framework.gradients(layer, {}))
    writer = TensorWriter(tmp_path / "t.safetensors", 1000)
    for name, value in framework.gradients(layer, {}, shared=True):
        writer[name] = value
    assert whole["weight"].shape == (700, 3)
    for name, one in whole.items():
        assert one.dtype == np.float64
        assert np.array_equal(writer[name], one.astype(np.float32))


@pytest.mark.frameworks
def test_what_the_first_gradients_took_goes_back_before_there_are_others(monkeypatch):
    framework, told = load_framework("torch"), []
    model = framework.torch.nn.Linear(3, 2)
    loaded = {name: one.detach().clone() for name, one in model.named_parameters()}

    def trainer(*_):
        optimizer = framework.torch.optim.SGD(model.parameters(), 0.1)
        return Trainer(optimizer, None, lambda: 0.1, optimizer.zero_grad)

    monkeypatch.setattr(backward, "_inputs", lambda *_: [([framework.tensor(np.ones((1, 3), np.float32))], 0.0)] * 3)
    monkeypatch.setattr(backward, "release_memory", lambda size: told.append((size, model.weight.grad)))
    settings = SimpleNamespace(iterations=3, learning_rate=0.1, modes=("eval",), dtype="float32")
    case = SimpleNamespace(backward=settings, weights=SimpleNamespace(names={}))
    bench = SimpleNamespace(
        framework=framework,
        case=case,
        trainer=trainer,
        restore=lambda one: one.load_state_dict(loaded),
        steps_schedule=lambda number: True,
    )
    losses = backward._iterate(bench, "eval", model, lambda output, _: output.sum(), {}, None)
    assert {"loss_0", "loss_1", "loss_2"} <= losses.keys()
    assert told == [(32, None)]


GROUPS = {
    "plain": {},
    "as alignment's": {"momentum": 0.9, "weight_decay": 1e-4},
    "nesterov": {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "damped": {"momentum": 0.9, "dampening": 0.3, "maximize": True},
}


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("args", GROUPS.values(), ids=GROUPS)
def test_an_sgd_that_updates_in_one_pass_gives_the_same_but_for_rounding_at_the_end(args, dtype):
    framework = load_framework("torch")
    torch = framework.torch

    def train(**way: object) -> tuple[object, list[object]]:
        torch.manual_seed(0)
        layer, build = torch.nn.Linear(37, 41).to(getattr(torch, dtype)), torch.optim.SGD
        trainer = framework.trainer(
            layer, lambda _, rate: build(layer.parameters(), rate, **args, **way), 0.1, {}, None, {}
        )
        values = []
        for number in range(5):
            for one in layer.parameters():
                one.grad = torch.randn_like(one) * 10.0 ** (number - 3)
            trainer.step()
            values += [one.detach().clone() for one in layer.parameters()]
        return trainer.optimizer.param_groups[0]["fused"], values

    fused, found = train()
    alone, wanted = train(foreach=False)
    assert (fused, alone) == (True, None), "who says how updates are made is obeyed"
    for a, b in zip(found, wanted, strict=True):
        assert int((a != b).sum()) < 16, "what does not fill one of the processor's registers"
        assert float((a - b).abs().max()) <= 2 * torch.finfo(a.dtype).eps * float(b.abs().max())


@pytest.mark.frameworks
def test_an_sgd_with_sparse_gradients_is_left_as_it_is():
    framework = load_framework("torch")
    torch = framework.torch
    layer = torch.nn.Embedding(5, 3, sparse=True)
    before = layer.weight.detach().clone()
    trainer = framework.trainer(layer, torch.optim.SGD, 0.5, {}, None, {})
    layer(torch.tensor([1, 1])).sum().backward()
    trainer.step()
    assert (before - layer.weight).detach().tolist() == [[0.0] * 3, [1.0] * 3, *[[0.0] * 3] * 3]


CPUINFO = "processor : 0\nvendor_id : {}\nflags : fpu {}\n\nprocessor : 1\n"


@pytest.mark.parametrize(
    ("vendor", "flags", "set_"),
    [("AuthenticAMD", "fma avx2", True), ("AuthenticAMD", "avx", False), ("GenuineIntel", "fma avx2", False)],
)
def test_paddles_matrix_library_takes_the_kernels_that_the_processor_has(monkeypatch, tmp_path, vendor, flags, set_):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(vendor, flags))
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE", raising=False)
    assert ("MKL_DEBUG_CPU_TYPE" in recorder._environment(SimpleNamespace(threads=1, needs={}))) == set_
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "4")
    assert recorder._environment(SimpleNamespace(threads=1, needs={}))["MKL_DEBUG_CPU_TYPE"] == "4"


@pytest.mark.parametrize(
    ("vendor", "given", "found"), [("AuthenticAMD", "", "5"), ("AuthenticAMD", "4", "4"), ("GenuineIntel", "", "")]
)
def test_the_programs_that_train_and_infer_take_these_kernels_too(monkeypatch, tmp_path, vendor, given, found):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(vendor, "fma avx2"))
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    variables = {"MKL_DEBUG_CPU_TYPE": given} if given else {}
    monkeypatch.setattr(program.os, "environ", variables)
    monkeypatch.setattr(frameworks, "load_framework", lambda name: (name, variables.get("MKL_DEBUG_CPU_TYPE", "")))
    assert program.import_paddle() == ("paddle", found)


def test_memory_is_kept_for_reuse_unless_the_user_says_otherwise(monkeypatch):
    job = SimpleNamespace(threads=1, needs={})
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    assert recorder._environment(job)["MALLOC_MMAP_MAX_"] == "0"
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")
    assert recorder._environment(job)["MALLOC_MMAP_MAX_"] == "65536"


def test_a_large_model_takes_its_memory_in_large_pages(monkeypatch, tmp_path):
    def environment(size: int) -> dict[str, str]:
        path = tmp_path / "paddle.pdparams"
        with path.open("wb") as file:
            file.truncate(size)
        needs = {"data": SimpleNamespace(weights=""), "forward": SimpleNamespace(weights=str(path))}
        return recorder._environment(SimpleNamespace(threads=1, needs=needs))

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "GLIBC_TUNABLES" not in environment(recorder.LARGE_WEIGHTS - 1)
    assert environment(recorder.LARGE_WEIGHTS)["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=0"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert environment(recorder.LARGE_WEIGHTS)["GLIBC_TUNABLES"] == "glibc.malloc.check=0"
