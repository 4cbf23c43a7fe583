"""How an optimizer's builder is called: alike in alignment and in training."""

from types import SimpleNamespace

from tipchain.frameworks.base import make_optimizer

MODEL = SimpleNamespace(parameters=lambda: ["weight", "bias"])


def asks(parameters, learning_rate, *, decay, model=None):
    return parameters, learning_rate, decay, model


def asks_not(parameters, learning_rate, **args):
    return parameters, learning_rate, args


def test_a_builder_gets_the_model_if_it_has_a_parameter_called_so():
    assert make_optimizer(asks, MODEL, 0.1, {"decay": 2}) == (["weight", "bias"], 0.1, 2, MODEL)
    assert make_optimizer(asks_not, MODEL, 0.1, {"decay": 2}) == (["weight", "bias"], 0.1, {"decay": 2})
