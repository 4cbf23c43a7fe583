"""MobileNetV3-small's two sides do the same: names, shapes, training settings."""

import pytest
from chain_samples import ROOT

pytestmark = pytest.mark.frameworks
PACKAGE = "alignment.mobilenet_v3"


@pytest.fixture(scope="module")
def models(sides):
    return [side.build_model(num_classes=10) for side in sides[2:]]


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


@pytest.mark.parametrize("warmup", [1, 5])
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


def test_shipped_case_loads():
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/mobilenet_v3.yaml")
    assert case.model_args == {"num_classes": 10}
    assert case.train.schedule_per["paddle"] == "iteration"
    assert case.scheduler_args["warmup_steps"] < case.backward.iterations - 1, "the fall is seen too"
    alexnet = load_case(ROOT / "configs/alexnet.yaml")
    assert alexnet.scheduler_args["step_size"] < alexnet.backward.iterations
