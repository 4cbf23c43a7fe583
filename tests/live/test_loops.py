"""`tipchain.align(..., step=...)`: training loops of the user's, and what makes them part."""

import copy
import re
from functools import partial

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain
from tipchain.cli import main
from tipchain.errors import Outcome, UsageError

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::UserWarning")]
RANDOM = np.random.default_rng(0)
INPUTS = {"args": RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}
CE, PE = torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy
OPTIMIZERS = (
    lambda parameters: torch.optim.SGD(parameters, 0.2, momentum=0.9),
    lambda parameters: paddle.optimizer.Momentum(0.2, 0.9, parameters),
)
SCALE = 1024.0


class TorchLoop:
    """Accumulates gradients over two batches, clips them, scales the loss, and keeps an average of the model."""

    def __init__(self, model, optimizer, limit=0.1):
        self.model, self.optimizer, self.count, self.limit = model, optimizer, 0, limit
        self.ema = copy.deepcopy(model)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)

    def __call__(self, batch):
        loss = CE(self.model(batch["args"]), batch["labels"])
        self.scaler.scale(loss / 2).backward()
        self.count += 1
        if self.count % 2 == 0:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            with torch.no_grad():
                for one, other in zip(self.ema.parameters(), self.model.parameters(), strict=True):
                    one.mul_(0.9).add_(other, alpha=0.1)
        return loss


class PaddleLoop:
    """The same, with one thing wrong."""

    def __init__(self, model, optimizer, fault="", limit=0.1):
        self.model, self.optimizer, self.count, self.fault, self.limit = model, optimizer, 0, fault, limit
        self.ema = copy.deepcopy(model)

    def __call__(self, batch):
        loss = PE(self.model(batch["args"]), batch["labels"])
        share = 1 if self.fault == "undivided" else 2
        (loss / share * SCALE).backward()
        self.count += 1
        if self.count % 2 == 0:
            self.unscale()
            if self.fault != "unclipped":
                paddle.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            self.optimizer.step()
            self.optimizer.clear_grad()
            self.average()
        return loss

    def unscale(self):
        for one in self.model.parameters():
            one.grad = one.grad / SCALE

    @paddle.no_grad()
    def average(self):
        decay = 0.99 if self.fault == "decay" else 0.9
        for one, other in zip(self.ema.parameters(), self.model.parameters(), strict=True):
            one.set_value(decay * one + (1 - decay) * other)


def align(steps, *, norm=False, **options):
    between = (torch.nn.BatchNorm1d(8), paddle.nn.BatchNorm1D(8)) if norm else (torch.nn.Tanh(), paddle.nn.Tanh())
    reference = torch.nn.Sequential(torch.nn.Linear(5, 8), between[0], torch.nn.Linear(8, 4))
    port = paddle.nn.Sequential(paddle.nn.Linear(5, 8), between[1], paddle.nn.Linear(8, 4))
    tipchain.copy_weights(reference, port)
    given = {"iterations": 6, "optimizers": OPTIMIZERS, **options}
    return tipchain.align(reference, port, INPUTS, step=steps, **given)


def test_equal_loops_with_accumulation_scaling_clipping_and_an_average_pass():
    report = align((TorchLoop, PaddleLoop))
    assert report.passed, str(report)
    assert "ema" in report.reasons["step"]
    assert len(report.curves["step/port"]) == 6


@pytest.mark.parametrize(
    ("fault", "code", "shown", "line"),
    [
        ("undivided", "loss", r"at step 0 backward starts from .* its gradients are 2 times", "backward()"),
        (
            "decay",
            "kept",
            r"after step 1 .* in ema\[.* in the port, .* though the models agree: the port's `decay = ",
            "decay = 0.99",
        ),
        ("unclipped", "clipping", r"at step 1, as the optimizer gets it, .* after backward agree", "clip_grad_norm_("),
    ],
)
def test_the_first_quantity_that_parts_is_shown_with_both_lines(fault, code, shown, line):
    limit = 10 if fault == "undivided" else 0.1
    report = align((partial(TorchLoop, limit=limit), partial(PaddleLoop, fault=fault, limit=limit)))
    assert (report.stages["step"], report.stages["optimizer"]) == (Outcome.FAIL, Outcome.PASS)
    first = report.diagnoses[0]
    assert (first.port_path, first.code, first.name) == ("step", "parting", code), first
    assert re.search(shown, first.message), first.message
    assert code == "kept" or first.explained >= 0.99
    assert line in first.place.code
    assert f"test_loops.py:{first.reference_place.line}" in first.evidence + first.message


def simple(model, optimizer, batch, scheduler=None):
    loss = CE(model(batch["args"]), batch["labels"])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    if scheduler:
        scheduler.step()
    return loss


def scaled(model, optimizer, batch, scheduler=None, fault=""):
    loss = PE(model(batch["args"]), batch["labels"])
    if fault == "twice":
        model(batch["args"])
    (8 * loss).backward()
    for one in (one for one in model.parameters() if one.grad is not None):
        one.grad = one.grad / 8
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.clear_grad()
    if scheduler and fault != "epoch":
        scheduler.step()
    return loss * 3 if fault == "returned" else loss


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        ("", "", ""),
        ("epoch", "learning-rate", "scheduler.step()"),
        ("twice", "buffers", ""),
        ("returned", "loss", "return loss * 3"),
    ],
)
def test_a_scale_that_is_undone_is_no_difference_and_hides_none(fault, code, line):
    report = align(
        (simple, partial(scaled, fault=fault)),
        norm=True,
        training=True,
        optimizers=(OPTIMIZERS[0], lambda parameters, rate: paddle.optimizer.Momentum(rate, 0.9, parameters)),
        schedulers=(
            lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
            lambda: paddle.optimizer.lr.ExponentialDecay(0.2, 0.5),
        ),
    )
    assert report.passed == (not fault), report.reasons
    assert [(one.name, line in one.place.code) for one in report.diagnoses] == ([(code, True)] if fault else [])
    if fault == "epoch":
        (first,) = report.diagnoses
        assert first.message.startswith("at step 1 the learning rate is 0.2 in the port, 0.1 in the reference; ")
        assert "0 in the port, 1 in the reference" in first.message


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
        "def theirs():\n    return paddle.nn.Linear(3, 3)\n"
        "def sgd(parameters):\n    return torch.optim.SGD(parameters, 0.1)\n"
        "def other(parameters):\n    return paddle.optimizer.SGD(0.1, parameters)\n"
        "def step(model, optimizer, batch, times=1):\n"
        "    loss = times * model(batch['args']).square().mean()\n    loss.backward()\n    optimizer.step()\n"
        "    model.clear_gradients() if times == 2 else model.zero_grad()\n    return loss\n"
        "def twice(model, optimizer, batch):\n    return step(model, optimizer, batch, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    np.savez("inputs.npz", args=RANDOM.standard_normal((4, 3)).astype(np.float32))
    words = ["--reference", "stepping:ours", "--port", "stepping:theirs", "--inputs", "inputs.npz"]
    words += ["--optimizers", "stepping:sgd", "stepping:other", "--step", "stepping:step", "stepping:twice"]
    assert main(["locate", *words]) == 1
    assert "FAIL  step: after step 0 the loss is " in capsys.readouterr().out


def turned(side):
    """Return two matrices of a model's own, each kept as the framework's Linear keeps it."""
    first, second = np.sin(np.linspace(-1, 1, 25)).reshape(5, 5), np.cos(np.linspace(-1, 1, 20)).reshape(4, 5)
    values = {"first": first.astype(np.float32), "second": second.astype(np.float32)}
    if side is torch:
        made = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in values.items()}
        return model(torch, lambda _: made, lambda net, x: torch.tanh(x @ net.first.T) @ net.second.T)
    made = {name: paddle.create_parameter(value.shape[::-1], "float32") for name, value in values.items()}
    for name, value in values.items():
        made[name].set_value(value.T.copy())
    return model(paddle, lambda _: made, lambda net, x: paddle.tanh(x @ net.first) @ net.second)


class Slow:
    """A loop with an average of the parameters by their names."""

    def __init__(self, model, optimizer, decay=0.8):
        self.model, self.optimizer, self.decay = model, optimizer, decay
        self.slow = {name: one.detach().clone() for name, one in model.named_parameters()}

    def __call__(self, batch):
        loss = (CE if isinstance(self.model, torch.nn.Module) else PE)(self.model(batch["args"]), batch["labels"])
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
        turned(torch),
        turned(paddle),
        INPUTS,
        loss=(CE, PE),
        optimizers=OPTIMIZERS,
        step=(Slow, lambda model, optimizer: Slow(model, optimizer, decay)),
    )
    assert (report.stages["train"], report.stages["step"]) == (Outcome.PASS, outcome), str(report)
    assert "2 tensors after each" in report.reasons["train"]
    assert "slow" in report.reasons["step"]
