"""Where live models, their weights, data and metrics come from: a case, or callables and files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from tipchain.core.blame import serving
from tipchain.core.files import root_of_callables
from tipchain.core.json_text import JsonObject
from tipchain.errors import InputError, UsageError, WeightsError
from tipchain.explain.causes.metrics import OfTensors
from tipchain.explain.findings import PIECES
from tipchain.explain.locate.by_gradients import roles
from tipchain.explain.locate.matching import pair_layers
from tipchain.explain.locate.runs import read_inputs
from tipchain.explain.preflight.parameters import Tensors, two_initializations
from tipchain.framework_types import Array, Function, Model, Nested, Setting, Tensor
from tipchain.frameworks import Framework
from tipchain.frameworks.base import checking, make_optimizer, resolve
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from tipchain.frameworks.paddle_ import PaddleFramework
from tipchain.frameworks.torch_ import TorchFramework
from tipchain.live.request import DATA_STAGES, METRIC_STAGE, as_inputs, read_arrays
from tipchain.modes import parse_mode
from tipchain.numbers.dumps import read_npz
from tipchain.parity.case import LABEL, SIDES, Case, load_case, open_builder
from tipchain.parity.inputs import make_all_inputs, make_inputs
from tipchain.parity.weights import WeightFiles, data_roots, prepare_weights
from tipchain.weights.convert import to_paddle
from tipchain.weights.given_names import NameMap, with_ignored
from tipchain.weights.matching import Match, match_models
from tipchain.weights.sides import divide

_log = logging.getLogger(__name__)


def copy_weights(
    reference: Model,
    port: Model,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    *,
    inputs: object = None,
) -> Match:
    """Give the port the reference's parameters and buffers, matched by name, then by gradients, then by structure.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``. All of its parameters and buffers are set, or none.
        names: torch's names of tensors or layers, and Paddle's, where names and structure do not decide; see
            ``docs/how-to/weights.md``.
        ignore: layers or tensors of one model that do not exist in the other. Those of the port keep their values.
        inputs: the arguments of forward, as `tipchain.align` takes them. With them, tensors of other names are told by the
            gradients that they get.

    Returns:
        The match of the two models. Its text lists the layers that were matched without names, and the tensors that were
        not touched. A warning is logged if the order of declaration alone decided.

    Raises:
        WeightsError: tensors without a counterpart, or of a different shape. The error lists all of them.
    """
    names, ran = names or {}, None
    if inputs is not None:
        known = with_ignored(names, tuple(ignore), reference, port)
        told = roles(Sides(TorchSide(), PaddleSide()), (reference, port), read_inputs(as_inputs(inputs)), known)
        ran = match_models(reference, port, {**told.names, **names}, ignore, told.calls)
        names, ignore = ran.names, ()
    converted = to_paddle(reference, reference.state_dict(), port, names, ignore)
    port.set_state_dict(dict(converted.state))
    match = ran or converted.match
    if match.by_order or match.assumed:
        _log.warning(
            "copy_weights: %d layers were matched by the order of their declaration alone, %d layouts were assumed: "
            "print(copy_weights(...)) lists them",
            len(match.by_order),
            len(match.assumed),
        )
    return match


def give_weights(
    reference: object, port: object, names: Mapping[str, str], ignore: Iterable[str], inputs: object = None
) -> str | None:
    """Give a port that has an initialization of its own the reference's weights, as far as the two belong together.

    Weights that somebody copied, well or not, stay as they are: what is wrong with them is to be found.

    Returns:
        What was done, in a sentence; None where the port has the reference's weights already.
    """
    known = with_ignored(names, tuple(ignore), reference, port)
    tensors = Tensors(reference, port, pair_layers(reference, port, known), known)
    strange = two_initializations(tensors)
    if strange is None:
        return None
    told = f"{strange.differing} of {strange.compared} parameters held other values"
    try:
        copy_weights(reference, port, names, ignore, inputs=inputs)
    except WeightsError:
        left = copy_fitting(tensors)
        return f"{told}: the reference's were copied, but for {left} that have no counterpart"
    return f"{told}: the reference's were copied (--no-copy-weights compares them as they are)"


def copy_fitting(tensors: Tensors) -> int:
    """Copy every tensor that has a counterpart of its shape; return how many of the reference's have none."""
    left = sum(len(layer.slots) for layer in tensors.unmatched[0])
    for pair in tensors.pairs:
        if pair.ours is None:
            continue
        if pair.theirs is None or pair.ours.shape != pair.theirs.shape:
            left += 1
            continue
        arrays = divide(tensors.array(pair.ours), pair.theirs)
        for part, array in zip(pair.theirs.parts, arrays, strict=True):
            part.tensor.set_value(array.astype(part.tensor.numpy().dtype))
    return left


Arguments = dict[str, Setting]


def feed_case(
    path: Path, mode: str, *, reseed: int = 0, data_path: Path | None = None, only: Collection[str] | None = None
) -> Arguments:
    """Return ``data`` and ``metrics`` of `tipchain.align` for a case: those of its stages, of ``only`` some, that both sides build.

    Raises:
        TipchainError: something is wrong with the case.
    """
    case = load_case(path, reseed)
    wanted = [one for one in (*DATA_STAGES, METRIC_STAGE) if one in case.stages and (only is None or one in only)]
    sides = [case.sides[name] for name in SIDES]
    roots = data_roots(case, parse_mode(mode), data_path)
    found: Arguments = {"data": {}}

    def dataset(side: str, root: Path, split: str) -> Nested:
        return open_builder(case, side, "dataset")(root, split, **case.data.args)

    for stage, split, root in ((DATA_STAGES[0], "val", roots[1]), (DATA_STAGES[1], "train", roots[0])):
        if stage in wanted and all(one.dataset for one in sides):
            found["data"][stage] = tuple(partial(dataset, name, root, split) for name in SIDES)
    if METRIC_STAGE in wanted and all(one.metric for one in sides):
        found["metrics"] = tuple(OfTensors(open_builder(case, name, "metric")()) for name in SIDES)
    return found


NONE = "none"
"""Name on the command line where one side has no such callable."""
STAGE_OF = {"loss": "loss", "optimizers": "optimizer", "schedulers": "schedule", "clip": "train", "step": "step"}
"""The stage that a pair of callables is for, each of which rests on those before."""

ACCEPTS = "differences that the case accepts count here; `tipchain align CASE` tells which it accepts"


def open_case(
    path: Path,
    mode: str,
    *,
    reseed: int = 0,
    data_path: Path | None = None,
    names: NameMap | None = None,
    weights: bool = True,
    trained: bool = True,
) -> Arguments:
    """Return `tipchain.align`'s arguments for a case: weighted models, and a stage's inputs.

    Args:
        path: the case's YAML file.
        mode: the TIPC mode, which says on which data the weights are made.
        reseed: added to the case's seeds.
        data_path: a data folder of the user's.
        names: replace or join the case's ``names``.
        weights: whether the models have the case's weights, which may need its data.
        trained: the inputs are those of the backward stage, which may be the case's data; else those of forward.

    Raises:
        TipchainError: something is wrong with the case, its builders, its weights, or the names.
    """
    case = load_case(path, reseed).for_stage("backward" if trained else "forward")
    accepts = bool(case.known_deviations or any(case.tolerances.values()))
    frameworks: tuple[Framework, Framework] = TorchFramework(), PaddleFramework()
    made: tuple[str, ...] = SIDES if names is None else SIDES[:1]  # what names leave out keeps what it was drawn as

    def build(framework: Framework, *, drawn: bool) -> Model:
        framework.seed(case.seed)
        with nullcontext() if drawn else framework.undrawn():
            return framework.build(_builder(case, framework, "model"), case.model_args)

    found: Arguments = {"notes": [ACCEPTS] if accepts else []}
    ready: WeightFiles | None = None
    models = [build(one, drawn=one.name not in made or not weights) for one in frameworks]
    try:
        ready = prepare_weights(case, parse_mode(mode), data_path=data_path, sides=made) if weights else None
    except WeightsError:
        if names is not None or _fits(case, models):
            raise
        models, found["unfit"] = [build(one, drawn=True) for one in frameworks], True
    if ready is None:
        reference, port = models
        found_names = with_ignored(case.weights.names, case.weights.ignore, reference, port)
        left = copy_fitting(Tensors(reference, port, pair_layers(reference, port, found_names), found_names))
        if left:
            told = f"the reference's weights do not fit the port: {left} tensors have no counterpart of their shape"
            found["notes"].append(told)
    else:
        for framework, model in zip(frameworks[: len(made)], models, strict=False):
            framework.load_weights(model, ready.paths[framework.name])
        found_names = dict(ready.names)
        if names is not None:
            names.check(*models)
            both, ignore = {**case.weights.names, **names.names}, (*case.weights.ignore, *names.ignore)
            found_names = dict(copy_weights(models[0], models[1], both, ignore).names)
    train_data = data_roots(case, parse_mode(mode), data_path)[0] if trained and weights else None
    args, labels = _inputs(case, frameworks[0], train_data)
    others = make_all_inputs(case.for_stage("forward"))
    found |= {
        "reference": models[0],
        "port": models[1],
        "inputs": {"args": args},
        "seed": case.seed,
        "names": found_names,
        "iterations": case.backward.iterations,
        "modes": (case.backward.mode,),
        "other_inputs": [{"args": tuple(arrays.values())} for shapes, arrays in others.items() if shapes],
    }
    sides = [case.sides[one.name] for one in frameworks]
    if labels is not None and all(one.loss for one in sides):
        found["inputs"]["labels"] = labels
        found["loss"] = tuple(_builder(case, one, "loss")() for one in frameworks)
    if all(one.optimizer for one in sides):
        # Builders that torch's side calls with its own rate, and Paddle's with that or a schedule.
        ours, theirs = (_builder(case, one, "optimizer") for one in frameworks)
        given = case.optimizer_args
        found["optimizers"] = (
            lambda model: make_optimizer(ours, model, case.backward.learning_rate, given),
            lambda model, learning_rate: make_optimizer(theirs, model, learning_rate, given),
        )
        if all(one.scheduler for one in sides) and len(set(case.train.schedule_per.values())) == 1:
            schedule, port_schedule = (_builder(case, one, "scheduler") for one in frameworks)
            found["schedulers"] = (
                lambda optimizer: schedule(optimizer, **case.scheduler_args),
                lambda learning_rate: port_schedule(None, learning_rate=learning_rate, **case.scheduler_args),
            )
    return found


def builders_of(path: Path) -> dict[str, tuple[Function, Function]]:
    """Return a case's builders of the models' surroundings, by their names in causes.

    A pair of which one cannot be imported is left out: it ran nothing, and is no cause.
    """
    case, found = load_case(path), {}
    for piece in PIECES:
        name = "dataset" if piece in DATA_STAGES else piece
        specs = {side: getattr(case.sides[side], name, "") for side in SIDES}
        if all(specs.values()):
            with suppress(InputError):
                compat = {side: case.sides[side].compat for side in SIDES}
                made = [resolve(spec, case.root, side, compat=compat[side]) for side, spec in specs.items()]
                found[piece] = made[0], made[1]
    return found


def _fits(case: Case, models: Sequence[Model]) -> bool:
    reference, port = models
    try:
        to_paddle(reference, reference.state_dict(), port, case.weights.names, case.weights.ignore)
    except WeightsError:
        return False
    return True


def _inputs(case: Case, framework: Framework, train_data: Path | None) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the first inputs of the case's backward stage: fake ones, or a training batch."""
    if case.backward.inputs == "fake" or train_data is None:
        inputs = make_inputs(case)
        labels = inputs.pop(LABEL, None)
        return tuple(inputs.values()), labels
    dataset = _builder(case, framework, "dataset")(train_data, "train", **case.data.args)
    wanted = [number % len(dataset) for number in range(case.train.batch_size)]
    image, label, _ = next(iter(framework.batches(dataset, [wanted])))
    return (framework.array(image),), framework.array(label)


def open_callables(
    reference: str,
    port: str,
    inputs: Path,
    asked: JsonObject = MappingProxyType({}),
    *,
    names: NameMap | None = None,
    copy_weights: bool = True,
) -> Arguments:
    """Return the arguments of `tipchain.align` for two ``module:callable`` that return the models.

    Args:
        reference: makes the torch module, without arguments.
        port: makes the Paddle layer.
        inputs: a ``.npz`` file of arrays by the name of forward's argument, ``args`` or ``args_0``, ``args_1`` for
            positional ones, and ``labels`` (``labels_0``, … for a tuple of them, ``labels.KEY`` for a mapping).
        asked: torch's and Paddle's ``module:callable`` by what `STAGE_OF` has: losses (a class is made an object first),
            builders and the like; None for no such pair, ``none`` in place of one: that side has no such thing. So are
            ``data``, ``metrics`` and ``predict``; ``samples`` is a ``.npz`` file of raw samples, with which the data's
            callables are transforms (a class is made an object first), and ``outputs`` are the words of `read_outputs`.
        names: which layers belong together.
        copy_weights: whether a port whose weights are an initialization of its own is given the reference's.

    Raises:
        UsageError: a file cannot be read, or holds no arrays.
        UsersError: a callable raised, or returned no model.
        InputError: a callable cannot be imported; of those in `STAGE_OF` ``"lacking"`` says so by their stages.
        InputError: ``names`` has what the models lack.
    """
    root = root_of_callables()
    found: Arguments = {"inputs": read_arrays(inputs)}
    for name, side, spec in zip(("reference", "port"), SIDES, (reference, port), strict=True):
        with serving(side=side):
            found[name] = checking("model", side, resolve(spec, root, side))()
    if names is not None:
        names.check(found["reference"], found["port"])
        found["names"], found["ignore"] = dict(names.names), names.ignore
    lacking: dict[str, str] = {}
    found["lacking"] = lacking
    for name, stage in STAGE_OF.items():
        if not (specs := asked.get(name)):
            continue
        if lacking:
            lacking.setdefault(stage, f"not compared: it needs {next(iter(lacking))}")
            continue
        try:
            both = zip(SIDES, specs, strict=True)
            given = tuple(None if spec == NONE else resolve(spec, root, side) for side, spec in both)
        except InputError as error:  # the layers are compared all the same
            lacking[stage] = "; ".join(line.strip() for line in str(error).splitlines())
            continue
        found[name] = tuple(one() if isinstance(one, type) else one for one in given) if name == "loss" else given
    if asked.get("samples"):
        path, raws = Path(asked["samples"]), list[Array]()
        for name, array in read_npz(path).items():  # one of four axes, or named so, holds many
            raws.extend(array if array.ndim and (array.ndim > 3 or name == "samples") else [array])
        if not raws:
            raise UsageError(f"{path}: has no arrays\n  expected: raw samples")
        found["samples"] = raws
    for name in ("data", "metrics", "predict"):
        if specs := asked.get(name):
            made = [resolve(spec, root, side) for side, spec in zip(SIDES, specs, strict=True)]
            transforms = name == "data" and "samples" in found
            found[name] = tuple(one() if transforms and isinstance(one, type) else one for one in made)
    if asked.get("outputs"):
        found["outputs"] = read_outputs(asked["outputs"])
    if copy_weights:
        models = found["reference"], found["port"]
        told = give_weights(*models, found.get("names", {}), found.get("ignore", ()), found["inputs"])
        found["notes"] = [] if told is None else [told]
    return found


def read_outputs(words: Sequence[str]) -> tuple[object, object]:
    """Return ``outputs`` of `tipchain.align` for one or two words: names, indices or ``module:callable``, with commas.

    Raises:
        InputError: a callable cannot be imported.
    """

    def read(word: str) -> object:
        if ":" in word:
            return resolve(word, root_of_callables())
        return int(word) if word.lstrip("-").isdigit() else word

    made = [[read(part) for part in word.split(",") if part] for word in words]
    chosen = [one[0] if len(one) == 1 else one for one in made]
    return chosen[0], chosen[-1]


def _builder(case: Case, framework: Framework, name: str) -> Function:
    return open_builder(case, framework.name, name, plain=True)
