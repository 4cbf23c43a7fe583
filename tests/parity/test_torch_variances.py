"""torch's running variances by Paddle's definition belong to the model that was watched, to no other."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks


def test_another_models_buffers_stay_as_they_are():
    import torch

    from tipchain.frameworks import load_framework

    framework = load_framework("torch")
    watched = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    framework.watch_variances(watched)
    watched(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) * 5)
    other = dict(framework.buffers(torch.nn.Sequential(torch.nn.BatchNorm1d(3)), {}))
    np.testing.assert_array_equal(other["0.running_var"], np.ones(3, dtype=np.float32))
    own = dict(framework.buffers(watched, {}))["0.running_var"]
    unbiased = watched[0].running_var.numpy()
    np.testing.assert_allclose(own - 0.9, (unbiased - 0.9) * 7 / 8, rtol=1e-5)
