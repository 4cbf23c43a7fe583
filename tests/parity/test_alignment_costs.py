"""What keeps alignment quick must not change what is compared."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tipchain.frameworks import load_framework
from tipchain.frameworks.paddle_ import held_parameters
from tipchain.parity.stages.tensors import TensorFile, as_recorded, save_tensors


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
    "more, 名": np.arange(70_001) / 3,
}


def test_tensors_are_written_as_they_are_and_floats_of_eight_bytes_are_recorded_in_four(tmp_path):
    path = tmp_path / "t.safetensors"
    for tensors in (MANY, {name: as_recorded(array) for name, array in MANY.items()}):
        save_tensors(path, tensors)
        theirs = load_file(path)
        with TensorFile(path) as ours:
            assert set(ours) == set(theirs) == set(MANY)
            for name, array in tensors.items():
                for found in (ours[name], theirs[name]):
                    assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
            assert all(ours[name].flags.aligned for name in MANY)
    assert {name for name, array in tensors.items() if array.dtype == np.float64} == {"rms"}
    before = path.read_bytes()
    with pytest.raises(OSError, match="wide is of dtype"):
        save_tensors(path, {"wide": np.zeros(1, np.longdouble)})
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, before)]


GROUPS = {
    "as alignment's": {"momentum": 0.9, "weight_decay": 1e-4},
    "damped": {"momentum": 0.9, "dampening": 0.3, "maximize": True},
}


@pytest.mark.frameworks
@pytest.mark.parametrize("args", GROUPS.values(), ids=GROUPS)
def test_an_sgd_that_updates_in_one_pass_gives_the_same_but_for_rounding_at_the_end(args):
    framework = load_framework("torch")
    torch = framework.torch

    def train(**way: object) -> tuple[object, list[object]]:
        torch.manual_seed(0)
        layer, build = torch.nn.Linear(37, 41), torch.optim.SGD
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
