"""MobileNetV3-small's two sides are the paper's network and do the same: layers, training settings and forward."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).resolve().parents[2]
# Table 2 of arXiv 1905.02244: kernel, expansion, output, squeeze-and-excitation, nonlinearity, stride.
TABLE = [
    (3, 16, 16, True, "ReLU", 2),
    (3, 72, 24, False, "ReLU", 2),
    (3, 88, 24, False, "ReLU", 1),
    (5, 96, 40, True, "Hardswish", 2),
    (5, 240, 40, True, "Hardswish", 1),
    (5, 240, 40, True, "Hardswish", 1),
    (5, 120, 48, True, "Hardswish", 1),
    (5, 144, 48, True, "Hardswish", 1),
    (5, 288, 96, True, "Hardswish", 2),
    (5, 576, 96, True, "Hardswish", 1),
    (5, 576, 96, True, "Hardswish", 1),
]
# Channels that squeeze-and-excitation squeezes to, by expansion: as in torchvision's weight files.
SQUEEZED = {16: 8, 96: 24, 120: 32, 144: 40, 240: 64, 288: 72, 576: 144}


@pytest.fixture(scope="module")
def sides(frameworks):
    from alignment.mobilenet_v3 import paddle_side, torch_side

    return *frameworks, torch_side, paddle_side


@pytest.fixture(scope="module")
def models(sides):
    """The two models with equal weights, none of them a zero or a one, and running statistics of a batch."""
    from tipchain.weights.convert import to_paddle

    torch, _, torch_side, paddle_side = sides
    torch.manual_seed(0)
    reference, port = (side.build_model(num_classes=10) for side in (torch_side, paddle_side))
    with torch.no_grad():
        for parameter in reference.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        reference.classifier[3].weight.normal_(0, 0.05)
        for module in reference.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None
        reference.train()(torch.from_numpy(noise(32)))
        for module in reference.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 0.01
    port.set_state_dict(to_paddle(reference, reference.state_dict(), port).state)
    return reference, port


def noise(samples, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, 3, 64, 64)).astype(np.float32)


def kinds(layers):
    return [type(layer).__name__ for layer in layers]


def kernel_of(convolution):
    """Return kernel, stride, padding and groups; Paddle keeps them in private names."""
    names = ("kernel_size", "stride", "padding", "groups")
    sizes = [getattr(convolution, name, None) or getattr(convolution, f"_{name}", None) for name in names]
    return [one[0] if isinstance(one, list | tuple) else one for one in sizes]


def read_row(block):
    """Return a block's row of the table, read off its layers, and check what the table does not say."""
    depthwise, project = block[-3] if "SqueezeExcitation" in kinds(block) else block[-2], block[-1]
    convolution, activation = depthwise[0], kinds(depthwise)[2]
    kernel, stride, padding, groups = kernel_of(convolution)
    expanded, out = convolution.weight.shape[0], project[0].weight.shape[0]
    assert groups == expanded
    assert padding == (kernel - 1) // 2
    assert kernel_of(project[0]) == [1, 1, 0, 1]
    assert len(project) == 2, "the projection is linear"
    if block[0] is not depthwise:
        assert kernel_of(block[0][0]) == [1, 1, 0, 1]
        assert kinds(block[0])[2] == activation
    return kernel, expanded, out, kinds(block)[-2] == "SqueezeExcitation", activation, stride


@pytest.mark.parametrize("side", ["torch", "paddle"])
def test_the_network_is_that_of_the_paper(models, side):
    model = models[["torch", "paddle"].index(side)]
    blocks = list(model.features)[1:-1]
    assert [read_row(list(block.block)) for block in blocks] == TABLE
    inputs = [16, *(row[2] for row in TABLE[:-1])]
    for block, row, channels in zip(blocks, TABLE, inputs, strict=True):
        assert block.use_res_connect == (row[5] == 1 and row[2] == channels)
        assert len(list(block.block)) == 2 + row[3] + (row[1] != channels), "expanded only where it widens"
        if row[3]:
            squeeze = list(block.block)[-2]
            assert squeeze.fc1.weight.shape[0] == SQUEEZED[row[1]]
            assert type(squeeze.activation).__name__ == "ReLU"
            assert type(squeeze.scale_activation).__name__ == "Hardsigmoid"
    first, last = model.features[0], model.features[12]
    assert [kernel_of(one[0]) for one in (first, last)] == [[3, 2, 1, 1], [1, 1, 0, 1]]
    assert [one[0].weight.shape[0] for one in (first, last)] == [16, 576]
    assert kinds(first)[2] == kinds(last)[2] == "Hardswish"
    assert kinds(model.classifier) == ["Linear", "Hardswish", "Dropout", "Linear"]
    assert model.classifier[2].p == 0.2


def test_batch_norm_keeps_the_same_share_on_both_sides(models):
    """torch's momentum is the share that is new, Paddle's the share that stays."""
    reference, port = models
    norms = [one for one in reference.modules() if type(one).__name__ == "BatchNorm2d"]
    port_norms = [one for one in port.sublayers() if type(one).__name__ == "BatchNorm2D"]
    assert len(norms) == len(port_norms) == 34
    assert {(one.eps, one.momentum) for one in norms} == {(0.001, 0.01)}
    assert {(one._epsilon, one._momentum) for one in port_norms} == {(0.001, 0.99)}


def test_names_and_shapes_are_torchvisions_and_the_ports(sides, models):
    torch, _, torch_side, _ = sides
    reference, port = models
    with torch.device("meta"):
        full = torch_side.build_model()
    assert sum(one.numel() for one in full.parameters()) == 2_542_856, "torchvision's mobilenet_v3_small"
    shapes = {name: tuple(one.shape) for name, one in full.state_dict().items()}
    for name, shape in {
        "features.0.0.weight": (16, 3, 3, 3),
        "features.1.block.0.0.weight": (16, 1, 3, 3),
        "features.1.block.1.fc1.bias": (8,),
        "features.1.block.2.1.running_var": (16,),
        "features.4.block.2.fc2.weight": (96, 24, 1, 1),
        "features.11.block.3.0.weight": (96, 576, 1, 1),
        "features.12.1.num_batches_tracked": (),
        "classifier.0.weight": (1024, 576),
        "classifier.3.bias": (1000,),
    }.items():
        assert shapes[name] == shape
    renamed = {"_mean": "running_mean", "_variance": "running_var"}
    port_shapes = {}
    for name, tensor in port.state_dict().items():
        layer, _, leaf = name.rpartition(".")
        shape = tuple(tensor.shape)
        port_shapes[f"{layer}.{renamed.get(leaf, leaf)}"] = shape[::-1] if len(shape) == 2 else shape
    assert port_shapes == {
        name: tuple(tensor.shape)
        for name, tensor in reference.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


@pytest.mark.parametrize("size", [(64, 64), (97, 160)])
def test_models_agree_in_eval_mode(sides, models, size):
    torch, paddle, *_ = sides
    image = np.random.default_rng(1).normal(size=(2, 3, *size)).astype(np.float32)
    for model in models:
        model.eval()
    with torch.no_grad(), paddle.no_grad():
        expected = models[0](torch.from_numpy(image)).numpy()
        actual = models[1](paddle.to_tensor(image)).numpy()
    assert expected.std(axis=0).min() > 1e-3, "the image matters"
    assert np.abs(expected - actual).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.filterwarnings("ignore:When training, we now always track global mean:UserWarning")  # Paddle's own
def test_running_statistics_agree_after_a_step_in_train_mode(sides, models):
    """Up to n / (n - 1): torch keeps the unbiased variance, Paddle the biased one."""
    torch, paddle, *_ = sides
    states = [{k: v.clone() for k, v in model.state_dict().items()} for model in models]
    counts = {}
    handles = [
        module.register_forward_pre_hook(
            lambda _, inputs, name=name: counts.update({name: inputs[0].numel() // inputs[0].shape[1]})
        )
        for name, module in models[0].named_modules()
        if type(module).__name__ == "BatchNorm2d"
    ]
    for model, tensor in zip(models, (torch.from_numpy, paddle.to_tensor), strict=True):
        model.train()
        model(tensor(noise(8, seed=5) + 0.5))
    reference, port = ({k: v.numpy().copy() for k, v in model.state_dict().items()} for model in models)
    for handle in handles:
        handle.remove()
    for model, state in zip(models, states, strict=True):
        model.load_state_dict(state) if hasattr(model, "load_state_dict") else model.set_state_dict(state)
    moved = 0.0
    for name, samples in counts.items():
        before = states[0][f"{name}.running_var"].numpy()
        expected = 0.99 * before + (reference[f"{name}.running_var"] - 0.99 * before) * (samples - 1) / samples
        np.testing.assert_allclose(port[f"{name}._variance"], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(port[f"{name}._mean"], reference[f"{name}.running_mean"], rtol=1e-4, atol=1e-5)
        moved = max(moved, np.abs(reference[f"{name}.running_mean"] - states[0][f"{name}.running_mean"].numpy()).max())
    assert moved > 1e-3


def test_initial_values_have_one_distribution(sides):
    torch, paddle, torch_side, paddle_side = sides
    torch.manual_seed(1)
    paddle.seed(1)
    reference, port = (side.build_model(num_classes=10) for side in (torch_side, paddle_side))
    tensors = {name: tensor.numpy() for name, tensor in port.named_parameters()}
    for name, tensor in reference.named_parameters():
        for values in (tensor.detach().numpy(), tensors[name]):
            if values.ndim == 1:
                norm = ".1." in name and name.endswith("weight") and "fc" not in name
                assert (values == (1 if norm else 0)).all(), name
                continue
            std = 0.01 if values.ndim == 2 else math.sqrt(2 / values[0].size)
            assert abs(values.std() / std - 1) < 6 / math.sqrt(2 * values.size), name
            assert abs(values.mean()) < 6 * std / math.sqrt(values.size), name


def test_decay_spares_biases_and_batch_norm_on_both_sides(sides):
    """With gradients of zero a convolution's weights shrink, one-dimensional parameters stay."""
    torch, paddle, torch_side, paddle_side = sides
    start = {name: np.full(shape, 2.0, np.float32) for name, shape in (("w", (2, 3, 1, 1)), ("b", (2,)))}
    reference = {name: torch.nn.Parameter(torch.from_numpy(one.copy())) for name, one in start.items()}
    port = {}
    for name, one in start.items():
        port[name] = paddle.create_parameter(list(one.shape), "float32")
        port[name].set_value(one)
    optimizers = [
        side.build_optimizer(list(tensors.values()), 0.1, momentum=0.9, weight_decay=0.05)
        for side, tensors in ((torch_side, reference), (paddle_side, port))
    ]
    for tensors, optimizer in zip((reference, port), optimizers, strict=True):
        sum((one * 0.0).sum() for one in tensors.values()).backward()
        optimizer.step()
        assert float(tensors["b"].detach().numpy()[0]) == 2.0
        np.testing.assert_allclose(tensors["w"].detach().numpy(), 2.0 * (1 - 0.1 * 0.05), rtol=1e-6)


def test_optimizer_and_schedule_agree(sides):
    """Momentum, decay and the schedule together, from warm-up into the fall."""
    torch, paddle, torch_side, paddle_side = sides
    random = np.random.default_rng(2)
    start = [random.normal(size=shape).astype(np.float32) for shape in ((4, 3), (4,))]
    reference = [torch.nn.Parameter(torch.from_numpy(one.copy())) for one in start]
    port = []
    for one in start:
        port.append(paddle.create_parameter(list(one.shape), "float32"))
        port[-1].set_value(one)
    optimizer = torch_side.build_optimizer(reference, 0.1, momentum=0.9, weight_decay=0.05)
    schedule = torch_side.build_scheduler(optimizer, warmup_steps=3, gamma=0.9)
    port_schedule = paddle_side.build_scheduler(None, learning_rate=0.1, warmup_steps=3, gamma=0.9)
    port_optimizer = paddle_side.build_optimizer(port, port_schedule, momentum=0.9, weight_decay=0.05)
    rates = []
    for _ in range(6):
        sum((one**2).sum() for one in reference).backward()
        sum((one**2).sum() for one in port).backward()
        for one in (optimizer, port_optimizer):
            one.step()
        optimizer.zero_grad()
        port_optimizer.clear_grad()
        rates.append(port_optimizer.get_lr())
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([rates[-1]] * 2)
        schedule.step()
        port_schedule.step()
        for one, other in zip(reference, port, strict=True):
            np.testing.assert_allclose(other.numpy(), one.detach().numpy(), rtol=1e-5)
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.09, 0.081])


@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_schedules_agree_for_long(sides, warmup):
    torch, _, torch_side, paddle_side = sides
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.05)
    schedule = torch_side.build_scheduler(optimizer, warmup_steps=warmup, gamma=0.99)
    port = paddle_side.build_scheduler(None, learning_rate=0.05, warmup_steps=warmup, gamma=0.99)
    for _ in range(300):
        assert port() == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        schedule.step()
        port.step()
    assert port() == pytest.approx(0.05 * 0.99 ** (300 - warmup))


def test_losses_agree_and_smooth_a_tenth(sides):
    torch, paddle, torch_side, paddle_side = sides
    random = np.random.default_rng(3)
    output, label = random.normal(size=(5, 10)).astype(np.float32) * 8, random.integers(0, 10, 5)
    logs = output - np.log(np.exp(output.astype(np.float64)).sum(axis=1, keepdims=True))
    smooth = 0.9 * np.eye(10)[label] + 0.1 / 10
    wanted = -(smooth * logs).sum(axis=1).mean()
    assert torch_side.build_loss()(torch.from_numpy(output), torch.from_numpy(label)).item() == pytest.approx(
        wanted, rel=1e-6
    )
    assert float(paddle_side.build_loss()(paddle.to_tensor(output), paddle.to_tensor(label))) == pytest.approx(
        wanted, rel=1e-6
    )


def test_shipped_case_loads():
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/mobilenet_v3.yaml")
    assert case.model_args == {"num_classes": 10}
    assert case.train.schedule_per["paddle"] == "iteration"
    assert case.scheduler_args["warmup_steps"] < case.backward.iterations - 1, "the fall is seen too"
