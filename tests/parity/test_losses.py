import numpy as np
import pytest

pytestmark = pytest.mark.frameworks

RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.standard_normal((6, 5)).astype(np.float32)
MAPS = RANDOM.standard_normal((2, 5, 3, 4)).astype(np.float32)
CLASSES = np.array([0, 3, 4, 3, 1, 2])
MAP_CLASSES = RANDOM.integers(0, 5, (2, 3, 4))
IGNORED = np.array([0, -100, 4, 3, -100, 2])
WEIGHT = [0.5, 2.0, 1.0, 3.0, 0.25]
SOFT = RANDOM.dirichlet(np.ones(5), 6).astype(np.float32)
SOFT_MAPS = np.moveaxis(RANDOM.dirichlet(np.ones(5), (2, 3, 4)), -1, 1).astype(np.float32)
MASKED = np.where(np.arange(5) == np.array([[1], [2], [2], [1], [3], [4]]), -np.inf, LOGITS).astype(np.float32)

CASES = {
    "weighted smoothed": ("build_loss", {"weight": WEIGHT, "label_smoothing": 0.1}, LOGITS, CLASSES),
    "ignored weighted": ("build_loss", {"ignore_index": 3, "weight": WEIGHT}, LOGITS, CLASSES),
    "ignored smoothed": ("build_loss", {"label_smoothing": 0.2, "weight": WEIGHT}, LOGITS, IGNORED),
    "soft weighted": ("build_loss", {"soft_label": True, "weight": WEIGHT}, LOGITS, SOFT),
    "large logits": ("build_loss", {}, 200 * LOGITS, CLASSES),
    "masked logits": ("build_loss", {}, MASKED, CLASSES),
    "maps": ("build_loss", {"weight": WEIGHT, "ignore_index": 2, "label_smoothing": 0.1}, MAPS, MAP_CLASSES),
    "soft maps": ("build_loss", {"soft_label": True}, MAPS, SOFT_MAPS),
    "likelihood": ("build_nll_loss", {"weight": WEIGHT}, np.log(SOFT), IGNORED),
    "binary": ("build_bce_loss", {"pos_weight": WEIGHT}, 30 * LOGITS, SOFT),
    "divergence": ("build_kl_loss", {}, 50 * LOGITS, SOFT),
    "squared": ("build_mse_loss", {}, LOGITS, SOFT),
    "smooth l1": ("build_smooth_l1_loss", {"beta": 0.5}, LOGITS, SOFT),
}


@pytest.fixture(scope="module")
def sides():
    """Both frameworks, torch imported first, and both modules of losses."""
    torch = pytest.importorskip("torch")
    paddle = pytest.importorskip("paddle")
    from tipchain.pairs import paddle_losses, torch_losses

    return torch, paddle, torch_losses, paddle_losses


def run_torch(sides, name, args, output, label):
    leaf = sides[0].from_numpy(output.copy()).requires_grad_()
    loss = getattr(sides[2], name)(**args)(leaf, sides[0].from_numpy(label.copy()))
    loss.backward()
    return loss.item(), leaf.grad.numpy()


def run_paddle(sides, name, args, output, label):
    leaf = sides[1].to_tensor(output, stop_gradient=False)
    loss = getattr(sides[3], name)(**args)(leaf, sides[1].to_tensor(label))
    loss.backward()
    return loss.item(), leaf.grad.numpy()


@pytest.mark.parametrize("case", CASES)
def test_both_frameworks_agree(sides, case):
    (expected, gradient), (actual, other) = (run(sides, *CASES[case]) for run in (run_torch, run_paddle))
    assert np.isfinite(expected)
    assert actual == pytest.approx(expected, rel=2e-6)
    np.testing.assert_allclose(other, gradient, atol=1e-6 * np.abs(gradient).max())
    assert np.abs(gradient).max() > 1e-3, "a gradient of zero would prove nothing"


def test_samples_that_are_all_ignored_give_no_number(sides):
    arguments = ("build_loss", {}, LOGITS, np.full(6, -100))
    assert np.isnan(run_torch(sides, *arguments)[0])
    assert np.isnan(run_paddle(sides, *arguments)[0])


def test_a_reduction_that_leaves_no_number_is_refused(sides):
    with pytest.raises(ValueError, match="expected 'mean' or 'sum'"):
        run_paddle(sides, "build_loss", {"reduction": "none"}, LOGITS, CLASSES)
