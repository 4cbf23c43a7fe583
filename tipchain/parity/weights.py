"""Preparations of a recording: the weights that both sides start from, fake inputs, data folders."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np

import tipchain
from tipchain.core.blame import UsersError, serving, users_fault
from tipchain.core.files import append, made_in, replacing_path, sha256_of
from tipchain.core.guard import guarded
from tipchain.core.json_text import Json, JsonObject, as_json, parse_as, read_json
from tipchain.core.machine import end_with_parent
from tipchain.core.store import StoreEntry, digest, find_entry, mark
from tipchain.errors import DataError, ExitCode, InputError, MissingFrameworkError, TipchainError, WeightsError
from tipchain.framework_types import Loader, Model, Nested, Tensor
from tipchain.frameworks import load_framework
from tipchain.modes import INFO, Device, Mode, data_folder
from tipchain.numbers.dumps import flatten, load_record, save_record
from tipchain.numbers.tolerance import LOGIT_FLOOR
from tipchain.parity.case import LABEL, SIDES, Case, load_case, open_builder
from tipchain.parity.inputs import (
    WHERE,
    arrays_digest,
    data_digest,
    imported_sources,
    make_all_inputs,
    make_input,
    make_inputs,
)
from tipchain.parity.recorder import StageNeeds, model_environment

# A seeded torch model worth comparing: outputs of size 1, accuracies that differ from chance.


SWITCHED_OFF = 1e-3
"""Largest number that a model's own parameter may begin as to be drawn: published scales of branches begin at 1e-6 to 1e-4."""
UNINITIALIZED = 1e6
"""Numbers that no model begins with are larger: leftovers in memory."""
LARGEST = LOGIT_FLOOR / 4
"""RMS of the last layer's results from which on it is scaled down: of normal logits hardly any two are four times that apart."""
LEAST_VALUES = 4
"""Values of a channel that norms are calibrated on at least."""
RIDGE = 1.0
"""Ridge penalty of the fitted head, as a multiple of the features' mean squared norm per sample."""


def initialize(case: Case, model: Model, train_data: Path) -> None:
    """Seed a Kaiming initialization, calibrate BatchNorm and fit the head, as the case asks.

    Source: He et al. 2015, arXiv 1502.01852. Biases and BatchNorm's affine parameters are drawn too, and a model's own
    parameters that begin as zeros, ones or nearly zeros (scales of residual branches, embeddings of positions):
    they would hide a port that drops or mixes them up, or what the branches compute.
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
    _tame_head(torch, case, model)


def _initialize_module(torch: ModuleType, module: Model, generator: object) -> None:
    """Draw a layer's parameters; those of other layers where they begin as one number, or switch off a branch."""
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
        else:
            for parameter in module.parameters(recurse=False):
                if not parameter.requires_grad or not parameter.is_floating_point() or not parameter.numel():
                    continue
                number = float(parameter.reshape(-1)[0])
                telling = abs(number) <= SWITCHED_OFF or (number == 1.0 and parameter.numel() > 1)
                if not bool((parameter.abs() <= UNINITIALIZED).all()):  # as the memory was (torch.empty), NaN too
                    parameter.normal_(0.0, 0.1, generator=generator)
                elif telling and bool((parameter == number).all()):
                    parameter.normal_(round(number), 0.1, generator=generator)


def _train_batches(torch: ModuleType, case: Case, train_data: Path) -> Loader:
    if case.sides["torch"].dataset is None:
        raise WeightsError(
            "needs the torch side's dataset",
            file=case.path,
            key="sides.torch.dataset",
            hint="name one, or leave out fit_head and BatchNorm",
        )
    dataset = open_builder(case, "torch", "dataset")(train_data, "train", **case.data.args)
    return torch.utils.data.DataLoader(dataset, batch_size=16)


def _calibrate(torch: ModuleType, case: Case, model: Model, norms: list[Model], train_data: Path) -> None:
    """Set the running statistics to the average over the training data's batches, or to the fake inputs'."""
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        if case.weights.calibrate == "inputs":
            _calibrate_on_inputs(torch, case, model, norms)
        else:
            for image, _, _ in _train_batches(torch, case, train_data):
                model(image)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


class _TooFewValues(Exception):  # noqa: N818  (nothing that goes wrong)
    """A norm has fewer than `LEAST_VALUES` values of a channel in the case's own batch."""


def _calibrate_on_inputs(torch: ModuleType, case: Case, model: Model, norms: list[Model]) -> None:
    """Run the model on the fake inputs; where a norm has too few values, as behind a global pooling, on a larger batch."""

    def check(norm: Model, given: tuple[Tensor, ...]) -> None:  # noqa: ARG001
        if given and given[0].numel() < LEAST_VALUES * given[0].shape[1]:
            raise _TooFewValues

    handles = [norm.register_forward_pre_hook(check) for norm in norms]
    try:
        with suppress(_TooFewValues):
            model(*_model_inputs(torch, case))
            return
    finally:
        for handle in handles:
            handle.remove()
    for norm in norms:
        norm.reset_running_stats()
    specs = [replace(spec, shapes=()) for spec in case.inputs.values() if spec.name != LABEL]
    batch = specs[0].shape[0]
    larger = [(LEAST_VALUES, *one.shape[1:]) if one.shape[0] == batch else one.shape for one in specs]
    arrays = [make_input(replace(one, shape=shape)) for one, shape in zip(specs, larger, strict=True)]
    model(*map(torch.from_numpy, arrays))


def _fit_head(torch: ModuleType, case: Case, model: Model, train_data: Path) -> None:
    """Fit the last Linear by ridge regression on its inputs over the training data, onto +2 and -2."""
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    if not linears:
        raise WeightsError("fit_head needs a Linear layer, the model has none", file=case.path, key="weights.fit_head")
    head, given, labels = linears[-1], list[Tensor](), list[Tensor]()
    handle = head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].detach().double()))
    model.eval()
    with torch.no_grad():
        for image, label, _ in _train_batches(torch, case, train_data):
            model(image)
            labels.append(label)
    handle.remove()
    inputs, classes = torch.cat(given).numpy(), torch.cat(labels).numpy()
    rows, uneven = divmod(len(inputs), len(classes))
    if uneven or inputs.ndim != 2:
        raise WeightsError(
            "the last Linear cannot be fitted",
            file=case.path,
            key="weights.fit_head",
            found=f"inputs of shape {inputs.shape} for {len(classes)} samples",
            expected="as many rows for every sample",
        )
    # One row for each sample: the mean of its rows, where the model averages what comes after the head.
    means = inputs.reshape(len(classes), rows, -1).mean(axis=1)
    targets = np.where(np.arange(int(head.out_features)) == classes[:, None], 2.0, -2.0)
    centre, offset = means.mean(axis=0), targets.mean(axis=0)
    features, outputs = means - centre, targets - offset
    samples, width = features.shape
    scale = RIDGE * max(float((features**2).sum()) / samples, 1e-12)
    if samples <= width:
        solved = features.T @ np.linalg.solve(features @ features.T + scale * np.eye(samples), outputs)
    else:
        solved = np.linalg.solve(features.T @ features + scale * np.eye(width), features.T @ outputs)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(solved.T))
        if head.bias is not None:
            head.bias.copy_(torch.from_numpy(offset - centre @ solved))


def _model_inputs(torch: ModuleType, case: Case) -> list[Tensor]:
    return [torch.from_numpy(array) for name, array in make_inputs(case).items() if name != LABEL]


def _tame_head(torch: ModuleType, case: Case, model: Model) -> None:
    """Scale down the last layer with weights where its results are large, as behind sums and many layers without a norm.

    Of such logits Paddle's softmax and log_softmax take most for 64 below the largest, and nothing is left to compare.
    """
    called: list[tuple[Model, float]] = []

    def note(layer: Model, _: object, output: Tensor) -> None:
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            called.append((layer, float(output.square().mean().sqrt())))

    layers = torch.nn.modules.conv._ConvNd | torch.nn.Linear  # noqa: SLF001
    handles = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, layers)]
    # What a model raises, the stages tell; the last layer that was called need not be the last one then.
    with torch.no_grad(), suppress(Exception):
        model(*_model_inputs(torch, case))
        for parameter in called[-1][0].parameters(recurse=False) if LARGEST < called[-1][1] < inf else ():
            parameter.div_(called[-1][1])
    for handle in handles:
        handle.remove()


# The weights that both sides of a case start from.
#
# Made once per case and training data, kept in ``data/weights/<case>/<data>/`` of `made_in`: ``torch.pth``,
# ``paddle.pdparams`` converted from it, and an entry of the store beside each, ``torch.json`` and ``paddle.json``.
# Run as ``python -m tipchain.parity.weights JOBS.json ENDS.jsonl`` it does the work that needs the frameworks.


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """Prepared weights.

    Attributes:
        paths: weight file by side.
        sha256: checksum of each file, by side; "" where unknown.
        digest: SHA-256 of the torch file's tensors, the identity that dumps carry.
        names: Paddle's name by torch's where they differ, with those that structure told.
    """

    paths: Mapping[str, Path]
    sha256: Mapping[str, str]
    digest: str
    names: Mapping[str, str] = field(default_factory=dict)


def data_roots(case: Case, mode: Mode, data_path: Path | None) -> tuple[Path, Path]:
    """Return the folders of the training and the evaluation data."""
    if data_path is not None:
        return data_path, data_path
    kinds = case.train_data(mode), case.eval_data(mode)
    train, evaluation = (case.root / data_folder(kind, case.data.set) for kind in kinds)
    return train, evaluation


def prepare_weights(
    case: Case, mode: Mode, *, data_path: Path | None = None, sides: tuple[str, ...] = SIDES
) -> WeightFiles:
    """Return the weights of ``case`` in ``mode``, making missing or outdated ones.

    Args:
        case: the case.
        mode: it decides on which data a head is fitted.
        data_path: a data folder of the user's instead of the mode's.
        sides: the sides whose file is needed.

    Raises:
        WeightsError: they cannot be made or converted; nothing half-made stays.
        UsersError: a builder of the case raised, or made something that cannot be used.
        MissingFrameworkError: a framework that is needed to make them is absent.
    """
    (made,) = prepare_variants([case], mode, data_path=data_path, sides=sides)
    if isinstance(made, WeightFiles):
        return made
    raise made


def variants_with_weights(case: Case, stages: Iterable[str]) -> list[Case]:
    """Return the case as those stages see it that start from weights, each variant once."""
    seen = (case.for_stage(stage) for stage in stages if "weights" in INFO[stage].uses)
    return list({one.variant: one for one in seen}.values())


def prepare_variants(
    cases: Sequence[Case],
    mode: Mode,
    *,
    data_path: Path | None = None,
    force: bool = False,
    sides: tuple[str, ...] = SIDES,
) -> list[WeightFiles | InputError | UsersError]:
    """Return the weights of each variant of a case, or why it has none; those that are made are made by one process.

    Raises:
        MissingFrameworkError: as `prepare_weights`.
    """
    from filelock import FileLock

    folders = []
    for case in cases:
        kind = case.train_data(mode) if data_path is None else "custom"
        name = "_".join(filter(None, (kind, case.variant, f"seed{case.reseed}" if case.reseed else "")))
        folders.append(made_in(case.root, "data") / "weights" / case.id / name)
    found: dict[Path, WeightFiles | InputError | UsersError] = {}
    with ExitStack() as stack:
        for folder in sorted(folders):  # in one order, so that two who prepare them never wait for each other
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / ".lock"))
        jobs = []
        for folder, case in zip(folders, cases, strict=True):
            train_data, _ = data_roots(case, mode, data_path)
            try:
                keys = keys_of(case, train_data)
            except InputError as error:
                found[folder] = error
                continue
            for side in SIDES if force else ():
                (folder / f"{side}.json").unlink(missing_ok=True)
            if not all(find_entry((folder / f"{side}.json"), keys[side], case.root) for side in sides):
                jobs.append(
                    _Job(
                        case=str(case.path),
                        reseed=case.reseed,
                        variant=case.variant,
                        folder=str(folder),
                        train_data=str(train_data),
                        keys=keys,
                        sides=sides,
                    )
                )
        found |= _make(jobs)
        return [found.get(folder) or _files(folder, sides) for folder in folders]


def keys_of(case: Case, train_data: Path) -> dict[str, str]:
    """Return, by side, the key of all that the prepared weights depend on."""
    weights = case.weights
    from_data = weights.init is not None and (weights.fit_head or weights.calibrate == "train_data")
    torch_recipe: dict[str, Json] = {
        "init": weights.init,
        "seed": weights.seed,
        "fit_head": weights.fit_head,
        "torch": _identity(case, "torch"),
        "model": case.sides["torch"].model,
        "model_args": repr(dict(case.model_args)),
        "calibrate": weights.calibrate,
        "inputs": repr(dict(case.inputs)) if weights.calibrate == "inputs" else None,
        "dataset": case.sides["torch"].dataset if from_data else None,
        "maker": sha256_of(Path(__file__)),
        "dataset_args": repr(dict(case.data.args)) if from_data else None,
        "data": data_digest(train_data, case.data.set) if from_data else None,
    }
    package = Path(tipchain.__file__).parent
    converters = sorted(path for room in ("weights", "facts") for path in (package / room).glob("*.py"))
    paddle_recipe = {
        **torch_recipe,
        "paddle": _identity(case, "paddle"),
        "paddle_model": case.sides["paddle"].model,
        "names": dict(weights.names),
        "ignore": list(weights.ignore),
        "converter": [sha256_of(path) for path in converters],
    }
    return {"torch": digest(torch_recipe), "paddle": digest(paddle_recipe)}


def _identity(case: Case, side: str) -> list[Json] | None:
    path: Path | None = getattr(case.weights, side)
    try:
        return [os.path.relpath(path, case.root), sha256_of(path)] if path else None
    except OSError as error:
        found = error.strerror or error
        raise WeightsError("cannot be read", file=path, key=f"weights.{side}", found=found) from error


def _files(folder: Path, sides: Sequence[str]) -> WeightFiles:
    entries = {side: parse_as(StoreEntry, read_json(folder / f"{side}.json")) for side in sides}
    facts = {side: entry.facts for side, entry in entries.items()}
    return WeightFiles(
        paths={side: folder / next(iter(entry.files)) for side, entry in entries.items()},
        sha256={side: known["sha256"] for side, known in facts.items()},
        digest=facts[sides[0]]["digest"],
        names=facts.get("paddle", {}).get("names", {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    case: str
    reseed: int = 0
    variant: str
    folder: str
    train_data: str
    keys: Mapping[str, str]
    sides: tuple[str, ...]


def _make(jobs: Sequence[_Job]) -> dict[Path, InputError | UsersError]:
    """Make weights in a process of their own, so that the caller stays free of both frameworks; return the faults by folder."""
    if not jobs:
        return {}
    with TemporaryDirectory() as name:
        asked, ends = Path(name, "jobs.json"), Path(name, "ends.jsonl")
        asked.write_text(json.dumps([as_json(job) for job in jobs]))
        done = subprocess.run(
            [sys.executable, "-m", "tipchain.parity.weights", str(asked), str(ends)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={"OPENBLAS_NUM_THREADS": "1", **model_environment()},  # a few small products need no threads
        )
        ended = [json.loads(line) for line in ends.read_text().splitlines()] if ends.is_file() else []
    ended += [(done.returncode, done.stderr)] * (len(jobs) - len(ended))
    folders = (Path(job.folder) for job in jobs)
    return {
        folder: _failure(folder, code, said.strip())
        for folder, (code, said) in zip(folders, ended, strict=True)
        if code
    }


def _failure(folder: Path, code: int, said: str) -> InputError | UsersError:
    """Return the printed error of a process that made weights.

    Raises:
        MissingFrameworkError: it lacks a framework.
    """
    _, mark, message = f"\n{said}".rpartition("\nerror: ")
    lines = message.splitlines() if mark else message.splitlines()[-12:]
    message = "\n".join(lines) or f"exit code {code}"
    if mark and code == ExitCode.FAILED:
        return UsersError(message)
    if message.startswith(tuple(f"{side} cannot be imported" for side in SIDES)):
        raise MissingFrameworkError(message)
    return WeightsError("the weights could not be made", file=folder, found=message)


def make(job: _Job) -> None:
    """Make the files of ``job``, each with its entry."""
    from tipchain.weights.files import load_torch_weights

    case, folder = load_case(job.case, job.reseed).for_stage(job.variant), Path(job.folder)
    torch_path = case.weights.torch or folder / "torch.pth"
    framework = load_framework("torch")
    framework.configure(Device(kind="cpu"), case.weights.seed, threads=2)
    model = framework.build(open_builder(case, "torch", "model"), case.model_args)
    kept = find_entry(folder / "torch.json", job.keys["torch"], case.root)
    if kept is None:
        for side in SIDES:
            (folder / f"{side}.json").unlink(missing_ok=True)
        if case.weights.torch is None:
            initialize(case, model, Path(job.train_data))
            import torch

            with replacing_path(torch_path) as beside:
                torch.save(model.state_dict(), beside)
    state = load_torch_weights(model, torch_path)
    known = {"digest": state_digest(state)}
    if kept is None:
        _keep(job, "torch", torch_path, case.root, known)
    if "paddle" in job.sides:
        (folder / "paddle.json").unlink(missing_ok=True)  # torch's stays where the port does not take it
        names = _convert(case, model, torch_path, folder / "paddle.pdparams")
        _keep(job, "paddle", folder / "paddle.pdparams", case.root, {**known, "names": names})


def _keep(job: _Job, side: str, path: Path, root: Path, facts: JsonObject) -> None:
    sources = {file: f"content {found}" for file, found in imported_sources(root).items()}
    name = path.name if path.parent == Path(job.folder) else str(path.resolve())
    files, known = {name: mark(str(path), "size")}, {**facts, "sha256": sha256_of(path)}
    StoreEntry(key=job.keys[side], files=files, rests_on=sources, facts=known).write(Path(job.folder, f"{side}.json"))


def _convert(case: Case, torch_model: object, torch_path: Path, paddle_path: Path) -> dict[str, str]:
    """Write the Paddle file; return the names under which the port's tensors are torch's."""
    from tipchain.explain.locate.by_gradients import settled_names
    from tipchain.explain.locate.runs import ModelInputs
    from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
    from tipchain.weights.convert import convert_file
    from tipchain.weights.files import load_paddle_weights, write_weights
    from tipchain.weights.given_names import with_ignored
    from tipchain.weights.matching import UnmatchedError, match_models

    port, own = load_framework("paddle").build(open_builder(case, "paddle", "model"), case.model_args), case.weights
    if own.paddle is None:
        inputs = tuple(one for name, one in make_inputs(case).items() if name != LABEL)
        known = with_ignored(own.names, own.ignore, torch_model, port)
        sides, models = Sides(TorchSide(), PaddleSide()), (torch_model, port)
        names = settled_names(sides, models, ModelInputs(args=inputs, kwargs={}), known)
        return dict(convert_file(torch_model, torch_path, port, paddle_path, names).match.names)
    load_paddle_weights(port, own.paddle)
    write_weights("paddle", port, {name: tensor.numpy() for name, tensor in port.state_dict().items()}, paddle_path)
    try:
        return dict(match_models(torch_model, port, own.names, own.ignore).names)
    except UnmatchedError as error:
        raise error.at(own.paddle) from error


def state_digest(state: Mapping[str, object]) -> str:
    """Return a SHA-256 over names, shapes and values of a torch state dict."""
    from tipchain.weights.files import array_of

    return arrays_digest({name: array_of(state[name]) for name in sorted(state)})


def main(argv: list[str]) -> int:
    """Make the weights of the jobs in the file ``argv[0]``; how each ended is a line of ``argv[1]``: exit code and error."""
    end_with_parent()
    for asked in json.loads(Path(argv[0]).read_text()):
        with redirect_stderr(StringIO()) as printed:
            code = guarded(_make_for_reader, parse_as(_Job, asked), said=str)
        append(Path(argv[1]), json.dumps([int(code), printed.getvalue()]))
    return 0


def _make_for_reader(job: _Job) -> int:
    try:
        with serving(stage="making the weights"):
            make(job)
    except OSError as error:
        if users_fault(error) is not None:
            raise
        raise TipchainError(f"{job.folder}: {error}") from error
    return 0


# What stages need before a side can be recorded: fake inputs, data folders, weights.


NO_SETTINGS = {
    *("id", "path", "root", "digest", "sides", "stages", "modes", "variant", "overrides"),  # whose case it is
    *("tolerances", "known_deviations"),  # how it is judged
    *("weights", "inputs", "outputs"),  # known by digests of their own
}
"""The fields of a case that do not say how its stages run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The prepared files.

    Attributes:
        digests: by stage, what its result depends on, by the names in its ``uses``.
        inputs: by stage, the dump of the fake inputs, where it needs one.
        weights: by stage, the weights of the case as it sees it, where they could be had.
        failures: by stage, why it cannot run.
    """

    train_data: Path
    eval_data: Path
    digests: dict[str, Mapping[str, str]] = field(default_factory=dict)
    inputs: dict[str, Path] = field(default_factory=dict)
    weights: dict[str, WeightFiles] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def needs(self, stage: str, side: str) -> StageNeeds:
        """Return the needs of ``side`` for ``stage``."""
        inputs, weights = self.inputs.get(stage), self.weights.get(stage)
        loaded = weights if "weights" in INFO[stage].uses else None
        return StageNeeds(
            inputs=str(inputs.resolve()) if inputs else "",
            weights=str(loaded.paths[side].resolve()) if loaded else "",
            weights_sha256=loaded.sha256.get(side, "") if loaded else "",
            names=weights.names if weights else {},  # what converting them found, even if the stage loads none
            digests=self.digests[stage],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """Inputs that need not be prepared, for they come from elsewhere.

    Attributes:
        inputs: the dump of the fake inputs, by the case's variant.
        weights: the weights, likewise.
    """

    inputs: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, WeightFiles] = field(default_factory=dict)


def prepare(
    case: Case,
    mode: Mode,
    stages: Sequence[str],
    folder: Path,
    sides: tuple[str, ...],
    data_path: Path | None,
    given: GivenInputs | None = None,
) -> Prepared:
    """Prepare the needs of ``stages`` that ``given`` lacks; impossible ones are noted, so that other stages still run.

    Raises:
        MissingFrameworkError: weights must be made and a framework is absent.
    """
    given = given or GivenInputs()
    train_data, eval_data = data_roots(case, mode, data_path)
    prepared = Prepared(train_data=train_data, eval_data=eval_data)
    weights: dict[str, WeightFiles | InputError | UsersError] = {**given.weights}
    for variant, own in given.weights.items():
        seen = case.for_stage(variant) if variant else case
        if seen.weights.paddle is not None:  # the port's own file
            _identity(seen, "paddle")
            weights[variant] = replace(own, paths={**own.paths, "paddle": seen.weights.paddle}, sha256={})
    missing = [seen for seen in variants_with_weights(case, stages) if seen.variant not in given.weights]
    made = prepare_variants(missing, mode, data_path=data_path, sides=sides) if missing else []
    weights |= zip((seen.variant for seen in missing), made, strict=True)
    fakes: dict[str, tuple[str, Path]] = {}

    @cache
    def known_data(folder: Path) -> str:
        try:
            return data_digest(folder, case.data.set)
        except DataError as error:
            raise error if folder.exists() else DataError("no such data folder", file=folder, hint=WHERE) from None

    for stage in stages:
        seen, digests, reasons = case.for_stage(stage), dict[str, str](), list[str]()
        own_weights = weights.get(seen.variant)
        if isinstance(own_weights, WeightFiles):
            prepared.weights[stage] = own_weights
        for name in INFO[stage].uses:
            if name == "settings":
                digests[name] = settings_digest(seen, mode)
            elif name == "weights" and isinstance(own_weights, WeightFiles):
                digests[name] = own_weights.digest
            elif name == "weights":
                reasons.append(str(own_weights))
            elif name == "fake":
                if seen.variant not in fakes:
                    path = given.inputs.get(seen.variant)
                    if path is None:
                        path = folder / ("_".join(filter(None, ("fake_inputs", seen.variant))) + ".npy")
                        save_record(path, fake_arrays(seen))
                    fakes[seen.variant] = arrays_digest(load_record(path).arrays), path
                digests[name], prepared.inputs[stage] = fakes[seen.variant]
            else:
                try:
                    digests[name] = known_data(train_data if name == "train_data" else eval_data)
                except DataError as error:
                    reasons.append(str(error))
        prepared.digests[stage] = digests
        if reasons:
            prepared.failures[stage] = "\n".join(dict.fromkeys(reasons))
    return prepared


def fake_arrays(case: Case) -> dict[str, Nested]:
    """Return the fake inputs by name; those of further shapes are dicts of their own."""
    sets = make_all_inputs(case)
    return {**sets.pop(""), **sets}


def dated(case: Case, mode: Mode, stage: str, recorded: Mapping[str, str]) -> list[str]:
    """Return which of the digests that a dump carries the case has outgrown: ``"settings"``, ``"fake"``."""
    seen, found = case.for_stage(stage), []
    if "settings" in recorded and recorded["settings"] != settings_digest(seen, mode):
        found.append("settings")
    if "fake" in recorded and recorded["fake"] != arrays_digest(dict(flatten(fake_arrays(seen)))):
        found.append("fake")
    return found


def settings_digest(case: Case, mode: Mode) -> str:
    """Return a SHA-256 of all that the case says about how its stages run."""
    settings = {name: getattr(case, name) for name in case.__slots__ if name not in NO_SETTINGS}
    return hashlib.sha256(repr((settings, case.epochs(mode), case.seeds(mode))).encode()).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
