"""A seeded torch model worth comparing: outputs of size 1, accuracies that differ from chance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import WeightsError
from tipchain.parity.builders import open_builder
from tipchain.parity.case_types import LABEL, Case, WeightsSpec
from tipchain.parity.fake_inputs import make_input, make_inputs

LEAST_BATCH = 4
"""Samples that norms are calibrated on at least."""
RIDGE = 1.0
"""Ridge penalty of the fitted head, as a multiple of the features' mean squared norm per sample."""


def needs_data(weights: WeightsSpec) -> bool:
    """Tell whether making these weights reads the training data."""
    return weights.init is not None and (weights.fit_head or weights.calibrate == "train_data")


def initialize(case: Case, model: Any, train_data: Path) -> None:
    """Seed a Kaiming initialization, calibrate BatchNorm and fit the head, as the case asks.

    Source: He et al. 2015, arXiv 1502.01852. Biases and BatchNorm's affine parameters are drawn too:
    zeros and ones would hide a port that drops or mixes them up.
    """
    import torch

    generator = torch.Generator().manual_seed(case.weights.seed)
    for module in model.modules():
        _initialize_module(torch, module, generator)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]  # noqa: SLF001
    if norms:
        _calibrate(torch, case, model, norms, train_data)
    if case.weights.fit_head:
        _fit_head(torch, case, model, train_data)
    model.eval()


def _initialize_module(torch: Any, module: Any, generator: Any) -> None:
    nn = torch.nn
    with torch.no_grad():
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):  # noqa: SLF001
            fan_in = module.weight[0].numel()
            module.weight.normal_(0.0, (2.0 / fan_in) ** 0.5, generator=generator)
            if module.bias is not None:
                bound = fan_in**-0.5
                module.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm | nn.LayerNorm | nn.GroupNorm):  # noqa: SLF001
            if module.weight is not None:
                module.weight.normal_(1.0, 0.1, generator=generator)
            if module.bias is not None:
                module.bias.normal_(0.0, 0.1, generator=generator)


def _train_batches(torch: Any, case: Case, train_data: Path) -> Any:
    if case.sides["torch"].dataset is None:
        raise WeightsError("needs the torch side's dataset", file=case.path, key="sides.torch.dataset",
                           hint="name one, or leave out fit_head and BatchNorm")  # fmt: skip
    dataset = open_builder(case, "torch", "dataset")(train_data, "train", **case.data.args)
    return torch.utils.data.DataLoader(dataset, batch_size=16)


def _calibrate(torch: Any, case: Case, model: Any, norms: list[Any], train_data: Path) -> None:
    """Set the running statistics to the average over the training data's batches, or to the fake inputs'."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.eval()
    for norm in norms:
        norm.train()
    with torch.no_grad():
        if case.weights.calibrate == "inputs":
            model(*(torch.from_numpy(array) for array in _calibrating_inputs(case)))
        else:
            for image, _, _ in _train_batches(torch, case, train_data):
                model(image)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _calibrating_inputs(case: Case) -> list[Any]:
    """Return the fake inputs; of a smaller batch larger ones: a norm behind a global pooling has one value a sample."""
    specs = [spec for spec in case.inputs.values() if spec.name != LABEL]
    batch = specs[0].shape[0] if specs else 0
    if batch >= LEAST_BATCH:
        return [array for name, array in make_inputs(case).items() if name != LABEL]
    larger = [
        replace(spec, shape=(LEAST_BATCH, *spec.shape[1:]), shapes=()) if spec.shape[0] == batch else spec
        for spec in specs
    ]
    return [make_input(spec) for spec in larger]


def _fit_head(torch: Any, case: Case, model: Any, train_data: Path) -> None:
    """Fit the last Linear by ridge regression on its inputs over the training data."""
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    if not linears:
        raise WeightsError(
            "fit_head needs a Linear layer, the model has none", file=case.path, key="weights.fit_head"
        )
    head, features, labels = linears[-1], [], []
    handle = head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].detach().double()))
    model.eval()
    with torch.no_grad():
        for image, label, _ in _train_batches(torch, case, train_data):
            model(image)
            labels.append(label)
    handle.remove()
    weight, bias = ridge_head(
        _per_sample(torch.cat(features).numpy(), len(torch.cat(labels)), case), torch.cat(labels).numpy(),
        int(head.out_features), penalty=RIDGE,
    )  # fmt: skip
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        if head.bias is not None:
            head.bias.copy_(torch.from_numpy(bias))


def _per_sample(features: Any, samples: int, case: Case) -> Any:
    """Return one row for each sample: the mean of its rows, where the model averages what comes after the head."""
    rows, left = divmod(len(features), samples)
    if left or features.ndim != 2:
        raise WeightsError(
            "the last Linear cannot be fitted", file=case.path, key="weights.fit_head",
            found=f"inputs of shape {features.shape} for {samples} samples",
            expected="as many rows for every sample",
        )  # fmt: skip
    return features.reshape(samples, rows, -1).mean(axis=1)


def ridge_head(features: Any, labels: Any, classes: int, *, penalty: float) -> tuple[Any, Any]:
    """Return weight ``[classes, d]`` and bias ``[classes]`` of a ridge regression onto +2/-2 targets.

    Args:
        features: float64 ``[n, d]``.
        labels: integers ``[n]``.
        classes: number of classes.
        penalty: ridge penalty, relative to the mean squared norm of the centred features.
    """
    targets = np.where(np.arange(classes) == np.asarray(labels)[:, None], 2.0, -2.0)
    centre, offset = features.mean(axis=0), targets.mean(axis=0)
    inputs, outputs = features - centre, targets - offset
    samples, width = inputs.shape
    scale = penalty * max(float((inputs**2).sum()) / samples, 1e-12)
    if samples <= width:
        solved = inputs.T @ np.linalg.solve(inputs @ inputs.T + scale * np.eye(samples), outputs)
    else:
        solved = np.linalg.solve(inputs.T @ inputs + scale * np.eye(width), inputs.T @ outputs)
    return solved.T, offset - centre @ solved
