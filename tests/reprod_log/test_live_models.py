import numpy as np
import pytest
from live_nets import model

from tipchain.reprod_log.compare import compare_forward, compare_loss_and_backward
from tipchain.reprod_log.utils import np2paddle, np2torch, paddle2np, torch2np

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")


def net(side, output="tensor"):
    def layers(nn):
        return {"table": nn.Embedding(10, 4), "square": nn.Linear(4, 4), "head": nn.Linear(4, 3)}

    def forward(net, ids, scale):
        hidden = net.square(net.table(ids)) * scale
        return shaped(output, net.head(side.tanh(hidden)), hidden)

    return model(side, layers, forward)


def shaped(kind, logits, hidden):
    outputs = {
        "tensor": logits,
        "tuple": (logits, hidden),
        "list": [logits, None],
        "dict": {"logits": logits, "hidden": hidden},
        "nested": (logits, {"hidden": [hidden]}),
    }
    return outputs[kind]


def pair(output="tensor", transposed=("square", "head")):
    torch.manual_seed(0)
    left, right = net(torch, output), net(paddle, output)
    state = {}
    for name, value in left.state_dict().items():
        turn = name.endswith(".weight") and name.split(".")[0] in transposed
        state[name] = value.numpy().T if turn else value.numpy()
    right.set_state_dict(state)
    return left, right


INPUTS = {"ids": np.array([[1, 2, 3]]), "scale": np.ones((1, 3, 1))}


def torch_loss(_inputs, output):
    return {"loss": (output**2).mean()}


def test_integers_stay_integers_and_floats_become_float32():
    data = {"i": np.array([1]), "b": np.array([True]), "f": np.ones(1), "h": np.ones(1, np.float16), "x": 3}
    for converted in (np2torch(data), np2paddle(data)):
        kinds = {key: str(value.dtype).rpartition(".")[2] for key, value in converted.items() if key != "x"}
        assert kinds == {"i": "int64", "b": "bool", "f": "float32", "h": "float32"}
        assert converted["x"] == 3
    with pytest.raises(AssertionError, match="inputs must be a dict, found list"):
        np2torch([1])


def test_inputs_are_copied():
    array = np.ones(2, np.float32)
    np2torch({"a": array})["a"].add_(1)
    assert array[0] == 1


@pytest.mark.parametrize("kind", ["tensor", "tuple", "list", "dict", "nested"])
def test_outputs_of_every_form(kind, capsys):
    assert compare_forward(*pair(kind), INPUTS) is True
    assert capsys.readouterr().out.endswith("diff check passed\n")


def test_names_of_outputs():
    ones = torch.ones(2)
    assert list(torch2np(ones)) == ["output"]
    assert list(torch2np((ones, None, [ones]))) == ["output_0", "output_2"]
    assert list(torch2np({"a": ones})) == ["a"]
    assert torch2np(ones.requires_grad_().bfloat16())["output"].dtype == np.float32
    assert paddle2np(paddle.ones([2]).astype("bfloat16"))["output"].tolist() == [1, 1]
    assert list(paddle2np([paddle.ones([1]), {"b": paddle.ones([1])}])["output_1"]) == ["b"]


def test_a_square_weight_left_untransposed_fails_forward(capsys):
    assert compare_forward(*pair(transposed=("head",)), INPUTS) is False
    assert capsys.readouterr().out.endswith("diff check failed\n")


def test_a_nan_fails_forward():
    left, right = pair()
    with torch.no_grad():
        left.head.bias[0] = float("nan")
    right.head.bias.set_value(np.array([float("nan"), 0, 0], np.float32))
    assert compare_forward(left, right, INPUTS) is False


def test_gradients_of_linear_layers_are_compared_by_layer_type(capsys):
    assert compare_loss_and_backward(*pair(), torch_loss, torch_loss, INPUTS, steps=3) is True
    out = capsys.readouterr().out
    assert out.count("square.weight: ") == 3
    assert out.count("head.weight: ") == 3
    assert out.endswith("diff check passed in iter 2\ndiff check passed\n")
    assert "transpose" not in out


def test_another_gradient_fails_and_ends_the_run(capsys):
    def other(inputs, output):
        return {"loss": (output**2).mean() * 1.001}

    assert compare_loss_and_backward(*pair(), torch_loss, other, INPUTS, lr=0.1, steps=3) is False
    assert capsys.readouterr().out.endswith("diff check failed in iter 0\n")


def test_a_square_gradient_of_another_layer_is_not_transposed():
    # The same square weight, used by hand: x @ w in one framework, x @ w.T in the other, is a wrong port.
    class LeftNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(9.0).reshape(3, 3) / 9)

        def forward(self, x):
            return x @ self.weight.T

    class RightNet(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = self.create_parameter([3, 3])
            self.weight.set_value(np.arange(9, dtype=np.float32).reshape(3, 3).T / 9)

        def forward(self, x):
            return x @ self.weight

    inputs = {"x": np.arange(6).reshape(2, 3) / 6}
    assert compare_forward(LeftNet(), RightNet(), inputs) is True
    assert compare_loss_and_backward(LeftNet(), RightNet(), torch_loss, torch_loss, inputs) is False


def test_a_missing_gradient_is_named():
    left, right = pair()
    right.head.bias.stop_gradient = True
    with pytest.raises(AssertionError, match=r"in data1 but not found in data2: head\.bias"):
        compare_loss_and_backward(left, right, torch_loss, torch_loss, INPUTS)


def test_no_step_is_no_pass(capsys):
    assert compare_loss_and_backward(*pair(), torch_loss, torch_loss, INPUTS, steps=0) is False
    assert capsys.readouterr().out == "diff check failed\n"
