"""What lets both frameworks train alike: equal masks, running variances of one definition, a perturbation that repeats."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

from tipchain.frameworks.paddle_ import PaddleFramework  # noqa: E402
from tipchain.frameworks.randomness import Draws  # noqa: E402
from tipchain.frameworks.torch_ import TorchFramework, perturb  # noqa: E402

pytestmark = pytest.mark.frameworks
SIDES = TorchFramework(), PaddleFramework()
IMAGES = np.random.default_rng(0).standard_normal((4, 6, 5, 3)).astype(np.float32)
LAYERS = {
    "Dropout": (torch.nn.Dropout, paddle.nn.Dropout, IMAGES),
    "Dropout2D": (torch.nn.Dropout2d, paddle.nn.Dropout2D, IMAGES),
    "FeatureAlphaDropout": (torch.nn.FeatureAlphaDropout, paddle.nn.FeatureAlphaDropout, IMAGES),
}


def through(side, layer, values, draws):
    with side.randomness(draws):
        return side.array(layer(side.tensor(values)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_equal_masks_make_equal_values(kind, probability):
    *builders, values = LAYERS[kind]
    layers = [builder(probability) for builder in builders]
    expected, actual = (through(side, layer, values, Draws(3)) for side, layer in zip(SIDES, layers, strict=True))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    assert np.array_equal(expected, values) is (probability == 0)
    if probability == 0.3:
        assert not np.array_equal(expected, through(SIDES[0], layers[0], values, Draws(4)))


def test_paddles_own_options_keep_their_meaning():
    layer = paddle.nn.Dropout(0.5, mode="downscale_in_infer")
    kept = through(SIDES[1], layer, IMAGES, Draws(3))
    assert set(np.unique(kept[kept != 0] / IMAGES[kept != 0])) == {1.0}, "nothing is scaled up in training"
    rows = through(SIDES[1], paddle.nn.Dropout(0.5, axis=0), IMAGES, Draws(1))
    assert all((row == 0).all() or (row != 0).all() for row in rows)
    last = paddle.nn.Dropout2D(0.5, data_format="NHWC")
    gone = through(SIDES[1], last, IMAGES, Draws(1)) == 0
    assert np.array_equal(gone.all(axis=(1, 2)), gone.any(axis=(1, 2)))
    with SIDES[1].randomness(Draws(3)):
        assert paddle.nn.functional.dropout(input=SIDES[1].tensor(IMAGES), p=0.5).shape == list(IMAGES.shape)


@pytest.mark.parametrize("side", [0, 1])
def test_no_masks_switch_dropout_off_and_the_functions_come_back(side):
    functional = (torch.nn.functional, paddle.nn.functional)[side]
    before = functional.dropout
    layer = (torch.nn.Dropout, paddle.nn.Dropout)[side](0.5)
    assert np.array_equal(through(SIDES[side], layer, IMAGES, None), IMAGES)
    with pytest.raises(KeyError), SIDES[side].randomness(Draws(0)):
        raise KeyError
    assert functional.dropout is before


@pytest.mark.parametrize("side", [0, 1])
def test_waking_reaches_dropout_and_nothing_else(side):
    nn = (torch.nn, paddle.nn)[side]

    class DropPath((torch.nn.Module, paddle.nn.Layer)[side]):
        pass

    model = nn.Sequential(nn.Dropout(0.5), DropPath(), nn.ReLU())
    SIDES[side].set_training(model, training=True)
    assert [layer.training for layer in model] == [False, False, True]
    SIDES[side].wake_dropout(model)
    assert [layer.training for layer in model] == [True, False, True]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_variances_follow_the_biased_definition(momentum):
    framework, generator = TorchFramework(), np.random.default_rng(1)
    layer = torch.nn.BatchNorm2d(3, momentum=momentum)
    batches = [generator.standard_normal((size, 3, 2, 2)).astype(np.float32) for size in (2, 5, 3)]
    framework.watch_variances(layer)
    expected, layer = np.ones(3), layer.train()
    for number, batch in enumerate(batches, start=1):
        layer(torch.from_numpy(batch))
        share = 1 / number if momentum is None else momentum
        expected = (1 - share) * expected + share * batch.astype(np.float64).var(axis=(0, 2, 3))
    layer.eval()
    layer(torch.from_numpy(batches[0]))  # counts for nothing
    own = layer.running_var.numpy().copy()
    found = dict(framework.buffers(layer, {}))["running_var"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not np.allclose(own, expected, rtol=1e-2)
    with framework.shared_statistics(layer):
        np.testing.assert_allclose(layer.running_var.numpy(), expected, rtol=1e-6)
    assert np.array_equal(layer.running_var.numpy(), own)


def test_a_perturbation_moves_everything_by_the_same_distance_and_has_a_mirror_image():
    def moved(number, ulps=16):
        torch.manual_seed(0)
        layer = torch.nn.Linear(30, 20)
        before = layer.weight.detach().numpy().copy()
        perturb(layer, ulps, number)
        return before, layer.weight.detach().numpy()

    before, after = moved(0)
    assert set(np.unique(np.abs(after - before) / np.spacing(np.abs(before)))) <= {8.0, 16.0, 32.0}
    mirrored = moved(1)[1]
    np.testing.assert_array_equal(np.sign(after - before), -np.sign(mirrored - before))
    assert 0.4 < np.mean(after > before) < 0.6
    assert not np.array_equal(np.sign(moved(2)[1] - before), np.sign(after - before))
    assert np.array_equal(moved(0)[1], after)


@pytest.mark.parametrize("side", [0, 1])
def test_float64_reaches_models_inputs_and_what_is_made_meanwhile(side):
    framework, library = SIDES[side], (torch, paddle)[side]
    layer = framework.widened(library.nn.Linear(6, 2))
    labels = framework.tensor(np.array([1, 2]))
    assert framework.widened(labels).dtype == labels.dtype
    with framework.double_precision():
        assert framework.array(library.ones([2])).dtype == np.float64
        output = layer(framework.widened(framework.tensor(IMAGES[0, :, :, 0].T)))
    assert framework.array(output).dtype == np.float64
    assert framework.array(library.ones([2])).dtype == np.float32
    assert framework.widened(len) is len


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_run_backward_in_eval_mode_and_in_float64(kind):
    side = SIDES[1]
    side.seed(0)
    layer = getattr(paddle.nn, kind)(6, 5, num_layers=2, dropout=0.5)
    side.set_training(layer, training=False)
    wanted = side.array(layer(paddle.ones([2, 3, 6]))[0])
    layer = side.widened(getattr(paddle.nn, kind)(6, 5, num_layers=2, dropout=0.5))  # one that never ran
    side.seed(0)
    layer.set_state_dict(side.widened(getattr(paddle.nn, kind)(6, 5, num_layers=2)).state_dict())
    side.set_training(layer, training=False)
    side.let_backward(layer)
    output = layer(paddle.ones([2, 3, 6], dtype="float64"))[0]
    output.sum().backward()
    assert output.dtype == paddle.float64
    np.testing.assert_allclose(side.array(output), wanted, rtol=1e-5)
    assert all(np.abs(side.array(one.grad)).max() > 0 for one in layer.parameters() if "bias" not in one.name)
