"""AlexNet's two sides do the same: transforms, data, metric, schedule, optimizer and forward."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tipchain.errors import DataError

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sides():
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    sys.path.insert(0, str(ROOT))
    from tipchain.parity.frameworks import load_framework

    torch, paddle = load_framework("torch").torch, load_framework("paddle").paddle
    from alignment.alexnet import paddle_side, torch_side

    return torch, paddle, torch_side, paddle_side


@pytest.mark.parametrize("size", [(8, 8), (300, 201), (200, 333), (256, 500), (257, 259), (1, 40)])
def test_transforms_agree(sides, size):
    _, _, torch_side, paddle_side = sides
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected = torch_side.transform_image(image).numpy()
    actual = paddle_side.build_transform()(image)
    assert actual.shape == expected.shape == (3, 224, 224)
    assert actual.dtype == np.float32
    assert np.abs(expected - actual).max() <= 1e-6


def test_transform_means_what_it_says(sides):
    """A white image becomes (1 - mean) / std in every channel."""
    _, _, torch_side, paddle_side = sides
    white = Image.new("RGB", (300, 260), "white")
    expected = (1 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    for array in (torch_side.transform_image(white).numpy(), paddle_side.build_transform()(white)):
        np.testing.assert_allclose(array[:, 0, 0], expected, rtol=1e-6)
        assert np.ptp(array, axis=(1, 2)).max() == 0


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(["tench", "10", "9", "Zebra"]):
        for split in ("train", "val"):
            (tmp_path / split / name / "deep").mkdir(parents=True)
            Image.new("L", (9, 9), 50 * number).save(tmp_path / split / name / "b.PNG")
            Image.new("RGBA", (9, 9), "red").save(tmp_path / split / name / "deep" / "a.png")
            (tmp_path / split / name / "notes.txt").write_text("no image")
    return tmp_path


def test_data_sets_agree(sides, folder):
    _, _, torch_side, paddle_side = sides
    reference, port = (side.build_dataset(folder, "val") for side in (torch_side, paddle_side))
    assert tuple(reference.classes) == tuple(port.classes) == ("10", "9", "Zebra", "tench")
    assert len(reference) == len(port) == 8
    assert {name for _, _, name in port} == {
        f"val/{name}/{file}" for name in reference.classes for file in ("b.PNG", "deep/a.png")
    }
    for (image, label, name), (image2, label2, name2) in zip(reference, port, strict=True):
        assert (label, name) == (label2, name2)
        np.testing.assert_allclose(image2, image.numpy(), atol=1e-6)


def test_missing_empty_and_damaged_data(sides, folder):
    _, _, *both = sides
    (folder / "empty/x").mkdir(parents=True)
    (folder / "val/9/b.PNG").write_bytes(b"no image")
    for side in both:
        with pytest.raises(DataError, match=r"test: is missing"):
            side.build_dataset(folder, "test")
        with pytest.raises(DataError, match=r"empty: has no images in class folders"):
            side.build_dataset(folder, "empty")
        with pytest.raises(DataError, match=r"b\.PNG: cannot be read as an image"):
            list(side.build_dataset(folder, "val"))


@pytest.mark.parametrize("classes", [10, 3])
def test_metrics_agree(sides, classes):
    torch, paddle, torch_side, paddle_side = sides
    random = np.random.default_rng(1)
    output = random.normal(size=(7, classes)).astype(np.float32)
    label = random.integers(0, classes, 7)
    ranks = (output > output[np.arange(7), label][:, None]).sum(axis=1)
    expected = {"acc_top1": 100 * np.mean(ranks < 1), "acc_top5": 100 * np.mean(ranks < 5)}
    assert torch_side.build_metric()(torch.from_numpy(output), torch.from_numpy(label)) == pytest.approx(
        expected
    )
    assert paddle_side.build_metric()(paddle.to_tensor(output), paddle.to_tensor(label)) == pytest.approx(
        expected
    )


def test_optimizer_and_schedule_agree(sides):
    """Momentum, weight decay and the schedule, over steps on which the rate halves twice."""
    torch, paddle, torch_side, paddle_side = sides
    start = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    port = paddle.create_parameter([4, 3], "float32")
    port.set_value(start)
    optimizer = torch_side.build_optimizer([weight], 0.1, momentum=0.9, weight_decay=0.05)
    schedule = torch_side.build_scheduler(optimizer, step_size=2, gamma=0.5)
    port_schedule = paddle_side.build_scheduler(None, learning_rate=0.1, step_size=2, gamma=0.5)
    port_optimizer = paddle_side.build_optimizer([port], port_schedule, momentum=0.9, weight_decay=0.05)
    rates = []
    for _ in range(5):
        (weight**3).sum().backward()
        (port**3).sum().backward()
        for one in (optimizer, port_optimizer):
            one.step()
        optimizer.zero_grad()
        port_optimizer.clear_grad()
        rates.append(port_optimizer.get_lr())
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rates[-1])
        schedule.step()
        port_schedule.step()
        np.testing.assert_allclose(port.numpy(), weight.detach().numpy(), rtol=1e-5)
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])


def test_losses_agree(sides):
    torch, paddle, torch_side, paddle_side = sides
    random = np.random.default_rng(3)
    output, label = random.normal(size=(5, 10)).astype(np.float32), random.integers(0, 10, 5)
    expected = torch_side.build_loss()(torch.from_numpy(output), torch.from_numpy(label)).item()
    actual = float(paddle_side.build_loss()(paddle.to_tensor(output), paddle.to_tensor(label)))
    assert actual == pytest.approx(expected, rel=1e-6)


def test_models_agree_with_converted_weights(sides):
    from tipchain.paddle_weights import convert_state

    torch, paddle, torch_side, paddle_side = sides
    torch.manual_seed(0)
    reference, port = (side.build_model(num_classes=10) for side in (torch_side, paddle_side))
    for module in reference.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight)
    state = reference.state_dict()
    assert sum(tensor.numel() for tensor in state.values()) == 57_044_810
    port.set_state_dict(convert_state(reference, state, port))
    reference.eval()
    port.eval()
    image = np.random.default_rng(0).normal(size=(2, 3, 224, 224)).astype(np.float32)
    with torch.no_grad(), paddle.no_grad():
        expected = reference(torch.from_numpy(image)).numpy()
        actual = port(paddle.to_tensor(image)).numpy()
    assert np.abs(expected).max() > 0.1
    assert np.abs(expected - actual).max() <= 1e-5 * np.abs(expected).max()


def test_shipped_case_loads():
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/alexnet.yaml")
    assert case.stages == ("forward", "data", "metric", "loss", "backward", "train")
    assert case.model_args == {"num_classes": 10}
    assert case.scheduler_args["step_size"] < case.backward.iterations
