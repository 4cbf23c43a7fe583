"""MVFNet's two sides are the paper's network and do the same: the module, its options, training settings, metrics."""

import numpy as np
import pytest
from chain_samples import ROOT

pytestmark = pytest.mark.frameworks
PACKAGE = "alignment.mvf"
SMALL = {"num_classes": 6, "depth": 18, "num_segments": 4}


def noise(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def twins(sides, build, *arguments, **options):
    """Return what ``build`` makes on both sides, with equal weights that are no zeros or ones, in eval mode."""
    from tipchain.weights.convert import to_paddle

    torch, _, torch_side, paddle_side = sides
    torch.manual_seed(1)
    reference, port = (getattr(side, build)(*arguments, **options) for side in (torch_side, paddle_side))
    with torch.no_grad():
        for parameter in reference.parameters():
            if parameter.ndim < 3:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for name, buffer in reference.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
    port.set_state_dict(to_paddle(reference, reference.state_dict(), port).state)
    return reference.eval(), port.eval()


def fuse_by_hand(maps, state, segments, mode):
    """The MVF module from the paper's formulas (section 3.1), entry by entry; ``maps`` is ``[n * T, c, h, w]``."""
    mixed = state["bn.weight"].size
    clips = maps[:, :mixed].reshape(-1, segments, mixed, *maps.shape[2:]).astype(np.float64)
    total = np.zeros_like(clips)
    for axis, view in zip((1, 3, 4), mode, strict=False):
        taps = state.get(f"conv_{view.lower()}.weight", state["conv_t.weight"]).reshape(mixed, 3)
        padded = np.pad(clips, [(1, 1) if one == axis else (0, 0) for one in range(5)])
        for tap in range(3):
            shifted = np.take(padded, range(tap, tap + clips.shape[axis]), axis=axis)
            total += shifted * taps[:, tap].reshape(1, 1, mixed, 1, 1)
    mean, var, weight, bias = (
        state[f"bn.{name}"].reshape(1, 1, mixed, 1, 1) for name in ("running_mean", "running_var", "weight", "bias")
    )
    total = (total - mean) / np.sqrt(var + 1e-5) * weight + bias
    total = total * np.clip(total + 3, 0, 6) / 6
    result = maps.copy()
    result[:, :mixed] = total.reshape(-1, mixed, *maps.shape[2:])
    return result


@pytest.mark.parametrize(("mode", "share", "alpha"), [("T", False, 0.25), ("TH", True, 0.25), ("THW", False, 1.0)])
def test_the_module_is_the_papers(sides, mode, share, alpha):
    torch, paddle, *_ = sides
    reference, port = twins(sides, "MultiView", 8, 3, alpha=alpha, share=share, mode=mode)
    state = {name: value.numpy() for name, value in reference.state_dict().items()}
    convolutions = {name for name in state if name.startswith("conv")}
    assert convolutions == {f"conv_{view}.weight" for view in ("t" if share else mode.lower())}
    maps = noise(6, 8, 5, 4)
    expected = fuse_by_hand(maps, state, 3, mode)
    with torch.no_grad(), paddle.no_grad():
        outputs = reference(torch.from_numpy(maps)).numpy(), port(paddle.to_tensor(maps)).numpy()
    for output in outputs:
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(output[:, int(8 * alpha) :], maps[:, int(8 * alpha) :])


@pytest.mark.parametrize("bottleneck", [False, True])
def test_the_module_stands_before_the_first_convolution_and_not_before_the_shortcut(sides, bottleneck):
    torch, paddle, torch_side, paddle_side = sides
    maps = noise(4, 64, 6, 6)
    width, last = (16, "bn3") if bottleneck else (64, "bn2")
    for side in (torch_side, paddle_side):
        mvf = side.MultiView(64, 2)
        block = side.Block(64, width, 1, bottleneck=bottleneck, mvf=mvf)
        block.eval()
        seen = []
        tensor = torch.from_numpy(maps) if side is torch_side else paddle.to_tensor(maps)
        register = "register_forward_pre_hook"
        getattr(block.conv1, register)(lambda _, inputs, seen=seen: seen.append(inputs[0].detach().numpy()))
        with torch.no_grad(), paddle.no_grad():
            getattr(block, last).weight.fill_(0.0)
            output = block(tensor).numpy()
            mixed = mvf(tensor).numpy()
        np.testing.assert_allclose(output, np.maximum(maps, 0), atol=1e-6)
        np.testing.assert_allclose(seen[0], mixed, atol=1e-6)
        assert np.abs(mixed - maps).max() > 0.1


def test_numbers_of_parameters_and_names(sides):
    _, _, torch_side, paddle_side = sides
    # ResNet without its last Linear, that Linear, and the modules: three taps in three views and BatchNorm's two.
    modules50 = 11 * (512 + 5 * 1024 + 1024 + 2 * 2048) // 8
    modules18 = 11 * (128 + 256 + 256 + 512) // 8
    for options, count in (
        ({}, 23_508_032 + 2048 * 400 + 400 + modules50),
        (SMALL, 11_176_512 + 512 * 6 + 6 + modules18),
        ({**SMALL, "mvf_freq": (0, 0, 0, 0)}, 11_176_512 + 512 * 6 + 6),
    ):
        reference, port = torch_side.build_model(**options), paddle_side.build_model(**options)
        assert sum(one.numel() for one in reference.parameters()) == count
        names = {name for name, _ in reference.named_parameters()}
        assert {name for name, one in port.named_parameters() if one.trainable} == names
        assert {"conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.bias"} <= names
        found = {name.partition(".mvf")[0] for name in names if ".mvf." in name}
        assert all(name.startswith(("layer3.", "layer4.")) for name in found)
        assert len(found) == {0: 9, 6: 4 * ("mvf_freq" not in options)}[options.get("num_classes", 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 34}, "depth is 34, expected one of: 18, 50"),
        ({"alpha": 0.001}, "leaves 0 of 128 channels"),
        ({"mvf_freq": (1, 1)}, r"mvf_freq is \[1, 1\]"),
    ],
)
def test_wrong_options_are_refused(sides, options, message):
    for side in sides[2:]:
        with pytest.raises(ValueError, match=message):
            side.build_model(**{**SMALL, **options})


def test_metrics_are_the_means_over_samples_and_over_present_classes(sides):
    torch, paddle, torch_side, paddle_side = sides
    label = np.array([0, 0, 0, 0, 1, 1, 3])
    chosen = np.array([0, 0, 0, 2, 1, 0, 2])  # class 2 never occurs, class 3 is never found
    output = np.eye(4, dtype=np.float32)[chosen] + 0.1 * noise(7, 4)
    expected = {"top1_acc": 100 * 4 / 7, "mean_class_accuracy": 100 * (3 / 4 + 1 / 2 + 0) / 3}
    measured = torch_side.build_metric()(torch.from_numpy(output), torch.from_numpy(label))
    assert list(measured) == list(expected)
    assert measured == pytest.approx(expected)
    assert paddle_side.build_metric()(paddle.to_tensor(output), paddle.to_tensor(label)) == pytest.approx(expected)


def test_the_shipped_case_loads():
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/mvf.yaml")
    assert case.data.set == "mini_ucf"
    whole = case.for_stage("forward")
    assert whole.inputs["clip"].shapes == ((1, 16, 3, 224, 224), (2, 16, 3, 48, 48))
    assert (whole.model_args["depth"], whole.model_args["num_classes"]) == (50, 400)
    assert case.inputs["clip"].shape[1] == case.model_args["num_segments"] == case.data.args["num_segments"]
    assert case.scheduler_args["milestones"][-1] < case.backward.iterations
