"""`tipchain.align(..., step=...)`: training loops of the user's, and what makes them part."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.cli import main  # noqa: E402
from tipchain.errors import Outcome, UsageError  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::UserWarning")]
RANDOM = np.random.default_rng(0)
INPUTS = {"args": RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}
CE, PE = torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy
OPTIMIZERS = (
    lambda parameters: torch.optim.SGD(parameters, 0.2, momentum=0.9),
    lambda parameters: paddle.optimizer.Momentum(0.2, 0.9, parameters),
)


class TorchLoop:
    """Accumulates gradients over two batches, clips them, scales the loss, and keeps an average of the model."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0
        self.ema = copy.deepcopy(model)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def __call__(self, batch):
        loss = CE(self.model(batch["args"]), batch["labels"])
        self.scaler.scale(loss / 2).backward()
        self.count += 1
        if self.count % 2 == 0:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            with torch.no_grad():
                for one, other in zip(self.ema.parameters(), self.model.parameters(), strict=True):
                    one.mul_(0.9).add_(other, alpha=0.1)
        return loss


class PaddleLoop:
    """The same, with one thing wrong."""

    def __init__(self, model, optimizer, fault=""):
        self.model, self.optimizer, self.count, self.fault = model, optimizer, 0, fault
        self.ema = copy.deepcopy(model)
        self.scale = 1.0 if fault == "uncleared" else 1024.0

    def __call__(self, batch):
        loss = PE(self.model(batch["args"]), batch["labels"])
        share = 1 if self.fault == "undivided" else 2
        (loss / share * self.scale).backward()
        self.count += 1
        if self.count % (3 if self.fault == "every-third" else 2) == 0:
            if self.fault == "early-average":
                self.average()
            if self.fault != "clipped-before":
                self.unscale()
            if self.fault != "unclipped":
                paddle.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            if self.fault == "clipped-before":
                self.unscale()
            self.optimizer.step()
            if self.fault != "uncleared":
                self.optimizer.clear_grad()
            if self.fault != "early-average":
                self.average()
        return loss

    def unscale(self):
        for one in self.model.parameters():
            one.grad = one.grad / self.scale

    @paddle.no_grad()
    def average(self):
        decay = 0.99 if self.fault == "decay" else 0.9
        for one, other in zip(self.ema.parameters(), self.model.parameters(), strict=True):
            one.set_value(decay * one + (1 - decay) * other)


def align(steps, **options):
    reference = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    port = paddle.nn.Sequential(paddle.nn.Linear(5, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 4))
    tipchain.copy_weights(reference, port)
    return tipchain.align(reference, port, INPUTS, optimizers=OPTIMIZERS, step=steps, **{"iterations": 6, **options})


def test_equal_loops_with_accumulation_scaling_clipping_and_an_average_pass():
    report = align((TorchLoop, PaddleLoop))
    assert report.passed, str(report)
    assert "ema" in report.reasons["step"]
    assert len(report.curves["step/port"]) == 6


@pytest.mark.parametrize(
    ("fault", "code", "where"),
    [
        ("uncleared", "zero-grad", "after step 3"),
        ("every-third", "accumulation-steps", "after step 1"),
        ("early-average", "ema-order", "after step 1"),
        ("decay", "ema-decay", "after step 1"),
        ("unclipped", "gradient-clipping", "after step 1"),
        ("clipped-before", "gradient-scale", "after step 1"),
    ],
)
def test_a_fault_is_caught_at_its_step_and_named(fault, code, where):
    report = align((TorchLoop, lambda model, optimizer: PaddleLoop(model, optimizer, fault)))
    assert report.stages["step"] is Outcome.FAIL
    assert report.stages["optimizer"] is Outcome.PASS
    assert where in report.reasons["step"]
    first = report.diagnoses[0]
    assert (first.port_path, first.code) == ("step", code), first
    assert first.explained is None or first.explained >= 0.99
    if code.startswith("ema"):
        assert "in ema" in report.reasons["step"]
        assert "0.9" in first.message or "before the update" in first.message


def simple(model, optimizer, batch):
    """Return the loss of one plain step of torch's."""
    loss = CE(model(batch["args"]), batch["labels"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def test_a_plain_function_is_a_step_too():
    def port(model, optimizer, batch, share=1.0):
        loss = PE(model(batch["args"]), batch["labels"])
        (loss * share).backward()
        optimizer.step()
        optimizer.clear_grad()
        return {"loss": loss}

    assert align((simple, port)).passed
    report = align((simple, lambda model, optimizer, batch: port(model, optimizer, batch, 3.0)))
    assert report.diagnoses[0].code == "gradient-scale"
    assert "0.333333" in report.diagnoses[0].fix


@pytest.mark.parametrize("returned", [False, True], ids=["loss", "divided-loss-returned"])
def test_gradients_that_are_not_divided_are_named_by_the_batches_of_an_update(returned):
    def make(framework, share):
        def loop(model, optimizer):
            count = 0

            def step(batch):
                nonlocal count
                loss = (CE if framework == "torch" else PE)(model(batch["args"]), batch["labels"])
                loss = loss / share if returned else loss
                (loss if returned else loss / share).backward()
                count += 1
                if count % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad() if framework == "torch" else optimizer.clear_grad()
                return loss

            return step

        return loop

    assert align((make("torch", 4), make("paddle", 4)), iterations=8).passed
    report = align((make("torch", 4), make("paddle", 1)), iterations=8)
    assert report.diagnoses[0].code == "accumulation-scale"
    assert report.diagnoses[0].fix == "divide the port's loss by 4 before backward()"


def test_an_average_that_one_side_alone_keeps_is_a_difference():
    def port(model, optimizer):
        loop = PaddleLoop(model, optimizer)
        return lambda batch: {"loss": loop(batch)}

    assert align((TorchLoop, port)).passed, "what a closure holds is looked into"

    def without(model, optimizer):
        loop = PaddleLoop(model, optimizer)
        loop.average = lambda: None
        del loop.ema
        return loop

    report = align((TorchLoop, without))
    assert report.stages["step"] is Outcome.FAIL
    assert "the reference's step keeps ema beside the model" in report.reasons["step"]


def test_steps_that_move_nothing_prove_nothing_and_wrong_use_is_refused():
    report = align((lambda model, optimizer, batch: None,) * 2)
    assert report.stages["step"] is Outcome.ERROR
    assert "no tensor moved" in report.reasons["step"]
    with pytest.raises(UsageError, match=r"expected `\(model, optimizer, batch\)`"):
        align((lambda one, two, three, four: None, simple))
    with pytest.raises(UsageError, match="step was given without optimizers"):
        tipchain.align(torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4), INPUTS, step=(simple, simple))


def test_the_command_line_names_both_steps(tmp_path, monkeypatch, forked, capsys):
    (tmp_path / "stepping.py").write_text(
        "import torch, paddle\n"
        "def ours():\n    torch.manual_seed(0)\n    return torch.nn.Linear(3, 3)\n"
        "def theirs():\n"
        "    made, source = paddle.nn.Linear(3, 3), ours()\n"
        "    made.weight.set_value(source.weight.detach().numpy().T)\n"
        "    made.bias.set_value(source.bias.detach().numpy())\n    return made\n"
        "def sgd(parameters):\n    return torch.optim.SGD(parameters, 0.1)\n"
        "def other(parameters):\n    return paddle.optimizer.SGD(0.1, parameters)\n"
        "def step(model, optimizer, batch):\n"
        "    loss = model(batch['args']).square().mean()\n    loss.backward()\n    optimizer.step()\n"
        "    optimizer.zero_grad()\n    return loss\n"
        "def twice(model, optimizer, batch):\n"
        "    loss = 2 * model(batch['args']).square().mean()\n    loss.backward()\n    optimizer.step()\n"
        "    optimizer.clear_grad()\n    return loss\n"
    )
    monkeypatch.chdir(tmp_path)
    np.savez("inputs.npz", args=RANDOM.standard_normal((4, 3)).astype(np.float32))
    words = ["--reference", "stepping:ours", "--port", "stepping:theirs", "--inputs", "inputs.npz"]
    words += ["--optimizers", "stepping:sgd", "stepping:other", "--step", "stepping:step", "stepping:twice"]
    assert main(["locate", *words]) == 1
    shown = capsys.readouterr().out
    assert "FAIL  step: after step 0 the loss" in shown


class Turned(torch.nn.Module):
    """Two matrices of its own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.linspace(-1, 1, 25).reshape(5, 5).sin())
        self.second = torch.nn.Parameter(torch.linspace(-1, 1, 20).reshape(4, 5).cos())

    def forward(self, x):
        return torch.tanh(x @ self.first.T) @ self.second.T


class TurnedPort(paddle.nn.Layer):
    """The same, kept as Paddle's Linear keeps it."""

    def __init__(self):
        super().__init__()
        for name, one in Turned().named_parameters():
            value = paddle.nn.initializer.Assign(one.detach().numpy().T)
            self.add_parameter(name, self.create_parameter(one.shape[::-1], default_initializer=value))

    def forward(self, x):
        return paddle.tanh(x @ self.first) @ self.second


class Slow:
    """A loop with an average of the parameters by their names."""

    def __init__(self, model, optimizer, decay=0.8):
        self.model, self.optimizer, self.decay = model, optimizer, decay
        self.slow = {name: one.detach().clone() for name, one in model.named_parameters()}

    def __call__(self, batch):
        loss = (CE if isinstance(self.model, Turned) else PE)(self.model(batch["args"]), batch["labels"])
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad() if hasattr(self.optimizer, "clear_grad") else self.optimizer.zero_grad()
        self.slow = {
            name: self.decay * self.slow[name] + (1 - self.decay) * one.detach()
            for name, one in self.model.named_parameters()
        }
        return loss


@pytest.mark.parametrize(("decay", "outcome"), [(0.8, Outcome.PASS), (0.81, Outcome.FAIL)])
def test_matrices_of_a_models_own_are_compared_as_the_port_keeps_them(decay, outcome):
    report = tipchain.align(
        Turned(),
        TurnedPort(),
        INPUTS,
        loss=(CE, PE),
        optimizers=OPTIMIZERS,
        step=(Slow, lambda model, optimizer: Slow(model, optimizer, decay)),
    )
    assert (report.stages["train"], report.stages["step"]) == (Outcome.PASS, outcome), str(report)
    assert "2 tensors after them" in report.reasons["train"]
    assert "slow" in report.reasons["step"]
