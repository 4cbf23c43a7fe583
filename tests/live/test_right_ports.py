"""Ports that are right though something differs: what nobody uses, another order, another class, a setting that comes to the same."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
SEQUENCES = RANDOM.standard_normal((3, 7, 6)).astype(np.float32)
ROWS = RANDOM.standard_normal((4, 6)).astype(np.float32)
LENGTHS = np.array([4, 7, 2])
F, PF = torch.nn.functional, paddle.nn.functional
packing = torch.nn.utils.rnn


def align(reference, port, *args, **more):
    tipchain.copy_weights(reference, port)
    labels = {"labels": np.zeros(len(args[0]), np.int64)} if "loss" in more else {}
    return tipchain.align(reference, port, {"args": args, **labels}, **more)


def packed(net, x, lengths):
    rows = packing.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return net.out(packing.pad_packed_sequence(net.rnn(rows)[0], batch_first=True)[0])


@pytest.mark.parametrize("used", [False, True], ids=["state-unused", "state-used"])
def test_a_state_of_unequal_lengths_fails_where_it_is_used_alone(used):
    def ours(net, x, lengths):
        made = packed(net, x, lengths)
        rows = packing.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return (made, net.head(net.rnn(rows)[1][0][0])) if used else made

    def theirs(net, x, lengths):
        made, _ = net.rnn(x, sequence_length=lengths)
        if used:  # of the padded sequences
            return net.out(made), net.head(net.rnn(x)[1][0][0])
        return net.out(made)

    both = {"out": (10, 3), "head": (5, 2)}
    reference = model(
        torch,
        lambda nn: (
            {name: nn.Linear(*size) for name, size in both.items()}
            | {"rnn": nn.LSTM(6, 5, batch_first=True, bidirectional=True)}
        ),
        ours,
    )
    port = model(
        paddle,
        lambda nn: (
            {name: nn.Linear(*size) for name, size in both.items()} | {"rnn": nn.LSTM(6, 5, direction="bidirect")}
        ),
        theirs,
    )
    assert align(reference, port, SEQUENCES, LENGTHS).passed is not used


def two_heads(side, cut):
    def forward(net, x):
        second = net.b(x)
        return net.a(x), second.detach() if cut else second

    return model(side, lambda nn: {name: nn.Linear(6, 5) for name in "ab"}, forward)


def divergence(functions):
    def loss(outputs, _):
        first, second = outputs
        return functions.kl_div(functions.log_softmax(first, -1), functions.softmax(second, -1), reduction="batchmean")

    return loss


@pytest.mark.parametrize("cut", [True, False])
def test_the_gradient_of_a_target_counts_where_it_reaches_a_parameter(cut):
    """Paddle's ``kl_div`` gives its target none."""
    report = align(two_heads(torch, cut), two_heads(paddle, cut), ROWS, loss=(divergence(F), divergence(PF)))
    assert report.passed is cut, str(report)


@pytest.mark.parametrize("exchanged", [False, True])
def test_outputs_by_name_are_handed_to_the_loss_by_name(exchanged):
    def outputs(net, x, names):
        made = {"one": net.a(x), "two": net.b(x)}
        return {name: made[name] for name in names}

    layers = {side: lambda nn: {name: nn.Linear(6, 5) for name in "ab"} for side in (torch, paddle)}
    reference = model(torch, layers[torch], lambda net, x: outputs(net, x, ("one", "two")))
    port = model(paddle, layers[paddle], lambda net, x: outputs(net, x, ("two", "one")))

    def loss(made, _):
        return (made["one"] ** 2).mean() + made["two"].mean()

    def other(made, _):
        return (made["two"] ** 2).mean() + made["one"].mean()

    report = align(reference, port, ROWS, loss=(loss, other if exchanged else loss))
    assert report.passed is not exchanged, str(report)


class Pointwise(paddle.nn.Conv1D):
    """A Linear, as a convolution of one column."""

    def __init__(self, inputs, outputs, times=1.0):
        super().__init__(inputs, outputs, 1)
        self.times = times

    def forward(self, x):
        return super().forward(x.transpose([0, 2, 1])).transpose([0, 2, 1]) * self.times


@pytest.mark.parametrize("times", [1.0, 1.01])
def test_a_class_of_the_users_own_is_judged_by_what_it_computes(times):
    reference = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU()).eval()
    port = paddle.nn.Sequential(Pointwise(6, 5, times), paddle.nn.ReLU())
    port.eval()
    port[0].weight.set_value(reference[0].weight.detach().numpy()[:, :, None])
    port[0].bias.set_value(reference[0].bias.detach().numpy())
    assert tipchain.align(reference, port, SEQUENCES).passed is (times == 1)


@pytest.mark.parametrize("drawn", ["randn", "rand", "small"])
def test_noise_of_a_models_own_is_compared_by_its_distribution(drawn):
    """Which of the numbers are which cannot be told, but that uniform ones, or ones a third as large, are others."""

    def forward(side, noise):
        return lambda net, x: net.out(net.hidden(x) + 0.1 * noise(side, net.hidden(x)) * net.training)

    def noise(side, hidden):
        if side is torch:
            return torch.randn(hidden.shape)
        made = (paddle.rand if drawn == "rand" else paddle.randn)([*hidden.shape, 1])[..., 0]
        return made / 3 if drawn == "small" else made

    def layers(nn):
        return {"hidden": nn.Linear(6, 5), "out": nn.Linear(5, 3)}

    report = align(model(torch, layers, forward(torch, noise)), model(paddle, layers, forward(paddle, noise)), ROWS)
    assert report.passed is (drawn == "randn"), str(report)
    if drawn == "rand":
        assert "distributed otherwise" in report.reasons["forward"]
        assert [(one.code, one.name) for one in report.diagnoses] == [("function", "noise")]


class Descent:
    """A user's own optimizer: it tells nobody its parameters or its rate."""

    def __init__(self, parameters, decay):
        self.parameters, self.decay = list(parameters), decay

    def step(self):
        with paddle.no_grad():
            for one in self.parameters:
                one.set_value(one - 0.1 * (one.grad + self.decay * one))

    def clear_grad(self):
        for one in self.parameters:
            one.clear_grad()


@pytest.mark.parametrize("decay", [0.01, 0.02])
def test_an_optimizer_of_the_users_own_is_judged_by_its_updates(decay):
    def layers(nn):
        return {"hidden": nn.Linear(6, 5), "out": nn.Linear(5, 3)}

    both = [model(side, layers, lambda net, x: net.out(net.hidden(x))) for side in (torch, paddle)]
    builders = (lambda ps: torch.optim.SGD(ps, lr=0.1, weight_decay=0.01), lambda ps: Descent(ps, decay))
    report = align(*both, ROWS, loss=(F.cross_entropy, PF.cross_entropy), optimizers=builders)
    assert report.passed is (decay == 0.01), str(report)
    assert report.stages["optimizer"].value == ("PASS" if decay == 0.01 else "FAIL")


def sines(places, exact):
    """Return a table of positions: in float32 throughout, or rounded at its end alone."""
    kind = np.float64 if exact else np.float32
    angles = np.arange(places, dtype=kind)[:, None] * np.exp(np.arange(0, 6, 2, dtype=kind) * kind(-np.log(1e4) / 6))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def ramps(places, by_steps):
    """Return numbers from 0 to 1, or, by steps, to one step before it."""
    row = np.arange(places) / places if by_steps else np.linspace(0, 1, places)
    return np.tile(row[:, None], (1, 6)).astype(np.float32)


def harmonics(places, exact):
    """Return waves over some places, those of the most turns in the last columns: as `sines`."""
    kind = np.float64 if exact else np.float32
    turns = np.arange(1, 4, dtype=kind) * kind(places // 8)
    angles = kind(2 * np.pi) * turns * np.arange(places, dtype=kind)[:, None] / kind(places)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


@pytest.mark.parametrize("named", ["alike", "otherwise"])
@pytest.mark.parametrize(
    ("table", "places", "same"), [(sines, 400, True), (harmonics, 16, True), (ramps, 400, False), (ramps, 2000, False)]
)
def test_tables_that_rounding_alone_sets_apart_are_the_same(table, places, same, named):
    """A table that neither side saves; the last of both is one place off."""

    def reference_forward(net, x):
        return net.out(x + net.table[: x.shape[1]].to(x.dtype))

    def port_forward(net, x):
        return net.out(x + getattr(net, name)[: x.shape[1]].astype(x.dtype))

    name = "table" if named == "alike" else "places"
    reference, port = (
        model(side, lambda nn: {"out": nn.Linear(6, 3)}, forward)
        for side, forward in ((torch, reference_forward), (paddle, port_forward))
    )
    reference.register_buffer("table", torch.from_numpy(table(places, False)), persistent=False)
    port.register_buffer(name, paddle.to_tensor(table(places, True)), persistable=False)
    held = getattr(port, name).numpy()
    report = align(reference, port, RANDOM.standard_normal((2, places, 6)).astype(np.float32))
    assert report.passed is same, str(report)
    assert np.array_equal(getattr(port, name).numpy(), held)


@pytest.mark.parametrize("kept", [True, False])
def test_statistics_that_a_models_own_train_mode_keeps_are_a_setting_of_the_port(kept):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)

        def train(self, mode=True):
            super().train(mode)
            if kept:
                self.norm.eval()
            return self

        def forward(self, x):
            return self.out(self.norm(x))

    port = model(
        paddle,
        lambda nn: {"norm": nn.BatchNorm1D(6, use_global_stats=True), "out": nn.Linear(6, 3)},
        lambda net, x: net.out(net.norm(x)),
    )
    assert align(Net().eval(), port, ROWS).passed is kept


@pytest.mark.parametrize("factor", [1, 2])
def test_a_layer_before_a_mean_or_after_it_is_judged_by_what_the_models_compute(factor):
    """Each side calls its only layer with another shape, and one of them has a constant that Paddle keeps in float32."""
    reference = model(
        torch, lambda nn: {"out": nn.Linear(2, 3)}, lambda net, x: net.out(x.unflatten(-1, (2, 3)).mean(-1)).mean(1)
    )
    port = model(
        paddle, lambda nn: {"out": nn.Linear(2, 3)}, lambda net, x: net.out(factor * PF.avg_pool1d(x, 3, 3).mean(1))
    )
    assert align(reference, port, SEQUENCES).passed is (factor == 1)


@pytest.mark.parametrize("most", [None, 1.0], ids=["right", "clipped"])
def test_a_layer_that_is_given_less_by_the_port_at_its_first_call_has_the_same_large_values(most):
    """A prompt, then a token: the port puts the prompt's last place alone through the last layers."""
    both = {"norm": (6,), "out": (6, 3)}

    def ours(net, x):
        every, last = (net.out(torch.relu(net.norm(one)))[:, -1] for one in (x, x[:, -1:]))
        return torch.stack([every, last], 1)

    def theirs(net, x):
        made = [net.norm(one[:, -1]) for one in (x, x[:, -1:])]
        made = [PF.relu(one) if most is None else paddle.clip(one, 0, 5 * most) for one in made]
        return paddle.stack([net.out(one) for one in made], 1)

    reference, port = (
        model(side, lambda nn: {"norm": nn.LayerNorm(*both["norm"]), "out": nn.Linear(*both["out"])}, forward)
        for side, forward in ((torch, ours), (paddle, theirs))
    )
    report = align(reference, port, SEQUENCES)
    assert report.passed is (most is None), report.text
