"""Where two live models come from: an alignment case, or two callables and a file of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tipchain.blame import serving
from tipchain.conversion.convert import to_paddle
from tipchain.conversion.given_names import NameMap
from tipchain.errors import CaseError
from tipchain.live.arguments import read_arrays
from tipchain.live.weights import give_weights
from tipchain.modes import parse_mode
from tipchain.parity.builders import checking, make_optimizer, open_builder, resolve
from tipchain.parity.case import SIDES, load_case
from tipchain.parity.case_types import LABEL, Case
from tipchain.parity.fake_inputs import make_inputs
from tipchain.parity.findings import PIECES
from tipchain.parity.frameworks.base import Framework
from tipchain.parity.frameworks.paddle_ import PaddleFramework
from tipchain.parity.frameworks.torch_ import TorchFramework
from tipchain.parity.weights import data_roots, prepare_weights
from tipchain.runs import root_of_callables

Arguments = dict[str, Any]
NONE = "none"
"""What stands on the command line where one side has no such callable."""
STAGE_OF = {
    "loss": "loss", "optimizers": "optimizer", "schedulers": "schedule", "clip": "train", "step": "step",
}  # fmt: skip
"""The stage that a pair of callables is for, each of which rests on those before."""


def open_case(
    path: Path, mode: str, *, reseed: int = 0, data_path: Path | None = None, names: NameMap | None = None
) -> Arguments:
    """Return what `tipchain.align` is called with for a case: its models with its weights, and its fake inputs.

    Args:
        path: the case's YAML file.
        mode: the TIPC mode, which says on which data the weights are made.
        reseed: added to the case's seeds.
        data_path: a data folder of the user's.
        names: what is to stand in the case's ``names`` besides what stands there; it replaces entries of the same key.

    Raises:
        TipchainError: something is wrong with the case, its builders, its weights, or the names.
    """
    case = load_case(path, reseed).for_stage("backward")
    frameworks: tuple[Framework, Framework] = TorchFramework(), PaddleFramework()
    models = []
    for framework in frameworks:
        framework.seed(case.seed)
        models.append(framework.build(_builder(case, framework, "model"), case.model_args))
    made: tuple[str, ...] = SIDES if names is None else SIDES[:1]
    weights = prepare_weights(case, parse_mode(mode), data_path=data_path, sides=made)
    for framework, model in zip(frameworks[: len(made)], models, strict=False):
        framework.load_weights(model, weights.paths[framework.name])
    found_names = dict(weights.names) if names is None else _convert(case, models, names)
    args, labels = _inputs(case, frameworks[0], data_roots(case, parse_mode(mode), data_path)[0])
    found: Arguments = {
        "reference": models[0], "port": models[1], "inputs": {"args": args}, "seed": case.seed,
        "names": found_names, "iterations": case.backward.iterations,
    }  # fmt: skip
    sides = [case.sides[one.name] for one in frameworks]
    if labels is not None and all(one.loss for one in sides):
        found["inputs"]["labels"] = labels
        found["loss"] = tuple(_builder(case, one, "loss")() for one in frameworks)
        if all(one.optimizer for one in sides):
            found["optimizers"] = _optimizers(case, frameworks)
            if all(one.scheduler for one in sides):
                found["schedulers"] = _schedulers(case, frameworks)
    return found


def builders_of(asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the user's own callables behind the pieces of a request (see `tipchain.live.worker`), by what causes call them.

    A pair of which one cannot be imported is left out: it ran nothing, and is no cause.
    """
    given: dict[str, Sequence[str | None]]
    if asked.get("case"):
        case = load_case(Path(asked["case"]))
        root, names = case.root, {"data": "dataset", "train_data": "dataset"}
        given = {
            piece: [getattr(case.sides[side], names.get(piece, piece), None) for side in SIDES]
            for piece in PIECES
        }
    else:
        root, names = (
            root_of_callables(),
            {"optimizer": "optimizers", "scheduler": "schedulers", "metric": "metrics"},
        )
        given = {piece: asked.get(names.get(piece, piece)) or (None, None) for piece in PIECES}
    found = {}
    for piece, (reference, port) in given.items():
        if reference and port and NONE not in (reference, port):
            with suppress(CaseError):
                found[piece] = resolve(reference, root), resolve(port, root)
    return found


def _convert(case: Case, models: Sequence[Any], given: NameMap) -> dict[str, str]:
    """Give the port the reference's weights by the case's names and those given; return all names that were found."""
    given.check(*models)
    reference, port = models
    names, ignore = {**case.weights.names, **given.names}, (*case.weights.ignore, *given.ignore)
    converted = to_paddle(reference, reference.state_dict(), port, names, ignore)
    port.set_state_dict(dict(converted.state))
    return dict(converted.match.names)


def _inputs(case: Case, framework: Framework, train_data: Path) -> tuple[tuple[Any, ...], Any]:
    """Return what the case's backward stage feeds first: fake inputs, or the first batch of the training data."""
    if case.backward.inputs == "fake":
        inputs = make_inputs(case)
        labels = inputs.pop(LABEL, None)
        return tuple(inputs.values()), labels
    dataset = _builder(case, framework, "dataset")(train_data, "train", **case.data.args)
    wanted = [number % len(dataset) for number in range(case.train.batch_size)]
    image, label, _ = next(iter(framework.batches(dataset, [wanted])))
    return (framework.array(image),), framework.array(label)


def open_callables(
    reference: str, port: str, inputs: Path, *, loss: tuple[str, str] | None = None,
    optimizers: tuple[str, str] | None = None, schedulers: tuple[str, str] | None = None,
    clip: tuple[str, str] | None = None, step: tuple[str, str] | None = None, names: NameMap | None = None,
    copy_weights: bool = True,
) -> Arguments:  # fmt: skip
    """Return what `tipchain.align` is called with for two ``module:callable`` that return the models.

    Args:
        reference: makes the torch module, without arguments.
        port: makes the Paddle layer.
        inputs: a ``.npz`` file of arrays by the name of forward's argument, ``args`` or ``args_0``, ``args_1`` for
            positional ones, and ``labels`` (``labels_0``, … for a tuple of them, ``labels.KEY`` for a mapping).
        loss: torch's and Paddle's ``module:callable``, called as ``(output, labels)``; a class is made an object first.
        optimizers: builders.
        clip: what each side's loop does to gradients before an update.
        step: each side's training step.
        schedulers: builders; ``none`` in place of one: that side has no schedule of its own.
        names: which layers belong together.
        copy_weights: whether a port whose weights are an initialization of its own is given the reference's.

    Raises:
        UsageError: the file cannot be read, or holds no arrays.
        UsersError: a callable raised, or returned no model.
        CaseError: a model's callable cannot be imported; of the other callables' stages ``"lacking"`` says so.
        InputError: ``names`` has what the models lack.
    """
    root = root_of_callables()
    found: Arguments = {
        "inputs": read_arrays(inputs),
    }  # fmt: skip
    for name, side, spec in zip(("reference", "port"), SIDES, (reference, port), strict=True):
        with serving(side=side):
            found[name] = checking("model", side, resolve(spec, root))()
    if names is not None:
        names.check(found["reference"], found["port"])
        found["names"], found["ignore"] = dict(names.names), names.ignore
    pairs = {"loss": loss, "optimizers": optimizers, "schedulers": schedulers, "clip": clip, "step": step}
    lacking: dict[str, str] = {}
    found["lacking"] = lacking
    for name, specs in pairs.items():
        if specs is None:
            continue
        if lacking:
            lacking.setdefault(STAGE_OF[name], f"not compared: it needs {next(iter(lacking))}")
            continue
        try:
            given = tuple(None if spec == NONE else resolve(spec, root) for spec in specs)
        except CaseError as error:  # the layers are compared all the same
            lacking[STAGE_OF[name]] = "; ".join(line.strip() for line in str(error).splitlines())
            continue
        found[name] = (
            tuple(one() if isinstance(one, type) else one for one in given) if name == "loss" else given
        )
    if copy_weights:
        told = give_weights(
            found["reference"], found["port"], found.get("names", {}), found.get("ignore", ())
        )
        found["notes"] = [] if told is None else [told]
    return found


def read_outputs(words: Sequence[str]) -> tuple[Any, Any]:
    """Return ``outputs`` of `tipchain.align` for one or two words: names, indices or ``module:callable``, with commas.

    Raises:
        CaseError: a callable cannot be imported.
    """

    def read(word: str) -> Any:
        if ":" in word:
            return resolve(word, root_of_callables())
        return int(word) if word.lstrip("-").isdigit() else word

    made = [[read(part) for part in word.split(",") if part] for word in words]
    chosen = [one[0] if len(one) == 1 else one for one in made]
    return chosen[0], chosen[-1]


def _builder(case: Case, framework: Framework, name: str) -> Callable[..., Any]:
    return open_builder(case, framework.name, name, plain=True)


def _optimizers(
    case: Case, frameworks: tuple[Framework, Framework]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return builders that torch's side calls with its own rate, and Paddle's with that or a schedule."""
    ours, theirs = (_builder(case, one, "optimizer") for one in frameworks)

    def build_torch(model: Any) -> Any:
        return make_optimizer(ours, model, case.backward.learning_rate, case.optimizer_args)

    def build_paddle(model: Any, learning_rate: Any) -> Any:
        return make_optimizer(theirs, model, learning_rate, case.optimizer_args)

    return build_torch, build_paddle


def _schedulers(
    case: Case, frameworks: tuple[Framework, Framework]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    ours, theirs = (_builder(case, one, "scheduler") for one in frameworks)

    def build_torch(optimizer: Any) -> Any:
        return ours(optimizer, **case.scheduler_args)

    def build_paddle(learning_rate: float) -> Any:
        return theirs(None, learning_rate=learning_rate, **case.scheduler_args)

    return build_torch, build_paddle
