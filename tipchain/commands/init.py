"""``tipchain init``: write a new alignment case, one that works at once or one with every key explained."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tipchain.commands.options import add_root
from tipchain.core.blame import serving
from tipchain.core.files import ROOT_VARIABLE, atomic_write, find_root, root_of_callables, writing
from tipchain.core.language import say
from tipchain.errors import ExitCode, MissingFrameworkError, UsageError
from tipchain.framework_types import Array
from tipchain.frameworks import Framework
from tipchain.frameworks.base import checking, resolve

SHORT = """\
# Is the Paddle port the same model as its PyTorch reference?  tipchain align {path}
id: {id}
{root}sides:
  torch: {{model: "{torch}"}}
  paddle: {{model: "{paddle}"}}
weights: {{init: kaiming, calibrate: inputs}}      # seeded; or of a file: {{torch: weights/{id}.pth}}
inputs:
{inputs}
{outputs}backward: {{dtype: float64}}                        # of that stage, so that rounding is no difference
# A stage more is a builder more on both sides: loss (with `label: {{shape: [{batch}], dtype: int64, high: 10}}` among the
# inputs), optimizer, scheduler, dataset (`data: {{set: none}}` if it needs no folder), metric; tipchain init --full {id}
"""
CHAIN = """\
===========================train_params===========================
model_name:{id}
python:python
gpu_list:-1
--device:cpu
null:null
--epochs:lite_train_lite_infer=1|lite_train_whole_infer=1|whole_train_whole_infer=2
--output-dir:./output/
--batch-size:lite_train_lite_infer=4|lite_train_whole_infer=4|whole_train_whole_infer=16
--pretrained:null
train_model_name:best_model.pdparams
null:null
--lr:0.001
##
trainer:norm_train
norm_train:-m tipchain train {case}
pact_train:null
fpgm_train:null
distill_train:null
null:null
null:null
##
===========================eval_params===========================
eval:-m tipchain eval {case}
null:null
##
===========================infer_params===========================
--save-inference-dir:null
--pretrained:null
norm_export:-m tipchain export {case}
quant_export:null
fpgm_export:null
distill_export:null
export1:null
export2:null
##
infer_model:./test_tipc/data/weights/{id}/whole/paddle.pdparams
infer_export:-m tipchain export {case}
infer_quant:False
inference:-m tipchain infer {case}
--use-gpu:False
--enable-mkldnn:False|True
--cpu-threads:2
--batch-size:1|4
null:null
--precision:fp32
--model-dir:null
--image-dir:null
null:null
--benchmark:True
null:null
===========================alignment_params===========================
alignment:{case}
steps:{steps}
"""
TRAINS = ("loss", "optimizer", "dataset", "metric")
"""Builders that a training needs besides the model."""
SHAPE = "2,3,224,224"
"""The input that is tried where none is named."""
LINE = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:[,x]\d+)*)(?::(?P<dtype>\w+)(?::(?P<high>\d+))?)?")

CASE = """\
# Alignment case of {id}: is the Paddle port the same model as its PyTorch reference?
# Paths and imports start at the project's root. Run it:  tipchain align {path}

id: {id}                      # also the folder below test_tipc/output

# Builders, each "module:callable":
#   build_model(**model_args) -> torch.nn.Module | paddle.nn.Layer
#   build_loss(**loss args) -> callable(output, label) -> scalar; tipchain.pairs.torch_losses and paddle_losses have some
#   build_optimizer(parameters, learning_rate, **optimizer)    and model=, if it has a parameter called so
#   build_scheduler(optimizer | None, **scheduler)     Paddle's gets None and learning_rate=...
#     tipchain.pairs.torch_optimizers, paddle_optimizers, torch_schedulers and paddle_schedulers have both by name
#   build_dataset(root, split) -> Dataset of (image, label, file), split is "train" or "val"
#   build_transforms(root, split) -> (load, [(name, transform), ...]): load(index) reads a sample before any transform
#   build_metric() -> callable(output, label) -> dict of percentages, or an object with update(output, label), compute()
# Two more for the train_data stage; without them it compares what the dataset gives, and says so:
#   build_loader(dataset, batch_size, seed, epoch) -> the batches (image, label, files) of one epoch, as you train
#       on them; only their order and sizes are looked at
#   build_augmentation(root, seed) -> draw(number) -> (image, parameters): the training image of that number, augmented
#       anew, and what was drawn: {{"flip": True, "box": (left, top, width, height)}}. Global generators are seeded.
#       image may be None, or a function that makes it when asked
sides:
  torch:
    model: "{package}.torch_side:build_model"
    loss: "{package}.torch_side:build_loss"
    optimizer: "{package}.torch_side:build_optimizer"
    scheduler: "{package}.torch_side:build_scheduler"      # may be left out, the stage lr with it
    dataset: "{package}.torch_side:build_dataset"
    metric: "{package}.torch_side:build_metric"
#   transforms: "{package}.torch_side:build_transforms"
#   loader: "{package}.torch_side:build_loader"
#   augmentation: "{package}.torch_side:build_augmentation"
  paddle:
    model: "{package}.paddle_side:build_model"
    loss: "{package}.paddle_side:build_loss"
    optimizer: "{package}.paddle_side:build_optimizer"
    scheduler: "{package}.paddle_side:build_scheduler"
    dataset: "{package}.paddle_side:build_dataset"
    metric: "{package}.paddle_side:build_metric"
#   transforms: "{package}.paddle_side:build_transforms"
#   loader: "{package}.paddle_side:build_loader"
#   augmentation: "{package}.paddle_side:build_augmentation"

model_args: {{num_classes: 10}}

# Both sides start from equal weights: a seeded initialization, converted to Paddle ...
weights: {{init: kaiming, seed: 0, fit_head: true, calibrate: train_data}}   # or calibrate: inputs, the fake ones
# ... or your own torch file. `names` are needed only where structure does not decide (docs/how-to/weights.md); `ignore` lists what
# one of the models lacks:
# weights: {{torch: weights/{id}.pth, names: {{old.name: new.name}}, ignore: [pooler]}}

# Fake inputs, in the order of the model's arguments; `label` goes to the loss. `shapes: [[...], [...]]` in place of
# `shape` lets the forward stage try several; the first is used everywhere else.
inputs:
  image: {{shape: [4, 3, 224, 224], dtype: float32, seed: 0}}
  label: {{shape: [4], dtype: int64, low: 0, high: 10}}
outputs: [logits]             # one name for each output of the model; a dict's tensors keep its keys

# Leave stages out where they do not apply (a forward-only paper: [forward]).
stages: [forward, data, metric, loss, optimizer, lr, regularization, backward, train_data, init, train, inference,
         distributed]

optimizer: {{momentum: 0.9, weight_decay: 1.0e-4}}      # arguments of build_optimizer
scheduler: {{step_size: 2, gamma: 0.5}}                 # arguments of build_scheduler
# Updates from equal gradients, of a few usual layers or of the model itself, with further arguments if you like;
# and how many rates of the schedule are compared.
updates: {{iterations: 5, learning_rate: 0.1, decay_learning_rate: 100, parameters: layers}}    # or model; variants: {{name: {{momentum: 0.0}}}}
lr: {{steps: 100}}
# Some updates in eval mode, train mode (random layers off) or both; inputs: train_loader, or dtype: float64 for nets
# whose gradients in float32 are mostly rounding.
backward: {{iterations: 5, learning_rate: 1.0e-4, modes: [eval, train], inputs: fake, dtype: float32}}
# A training from equal weights on equal batches, dropout off or with equal masks. Its first losses must stay within
# `factor` times what a few runs of the reference reach that start `ulps` units in the last place apart.
train:
  epochs: 1
  batch_size: 4
  learning_rate: 1.0e-4
  schedule_per: epoch         # or iteration
  dropout: off                # or equal
  envelope: {{runs: 3, iterations: 10, ulps: 16, factor: 10}}
# seeds: 8                    as many trainings a side from other seeds, their mean metrics within `margin`; modes may say it
# margin: 0.15
# benchmark: {{acc_top1: 56.5}}  a published number instead of torch's own run
# The data set: digits (class folders), mini_ucf (videos as raw frames), or own (any layout, named by --data-path), with
# more arguments of both build_dataset, and the evaluation loader.
data: {{set: digits, args: {{}}, batch_size: 4, max_batches: 100, transform_samples: 2}}
# The order of two epochs, the values of 64 samples, 2000 augmented images of each side. `drop_last: true` and `shuffle: true`
# (or false) require it of both loaders. docs/how-to/initializers.md shows how a port starts with torch's initial values.
train_data: {{epochs: 2, samples: 64, draws: 2000, images: 4, alpha: 1.0e-3}}
init: {{seeds: 5, values: 2000, alpha: 1.0e-3}}         # models on each side, values of each parameter
# The exported model in Paddle Inference and in onnxruntime, on batches of two or more sizes; training on several
# processes (each on a GPU of its own with --device gpu) against one. training: true needs SyncBatchNorm.
inference: {{batch_sizes: [1, 4], onnx: true, opset: 17}}
distributed: {{processes: 2, iterations: 3, batch_size: 4, learning_rate: 1.0e-4, training: false, find_unused_parameters: false,
              timeout_s: 300}}
# The loss: arguments of build_loss, and variants of them that the loss stage compares too, in value and gradient.
# loss: {{args: {{}}, variants: {{smoothed: {{label_smoothing: 0.1}}, soft: {{soft_label: true}}, ignoring: {{ignore_index: 255}}}}}}

# A tolerance looser than the default needs a measured reason.
# tolerances:
#   loss: {{loss: {{method: mean, threshold: 2.0e-5, reason: "what was measured"}}}}
#   backward: {{parameter: {{rtol: 1.0e-2, atol: 1.0e-9, equal_nan: false, reason: "what was measured"}}}}

# A stage with another model, other weights or other inputs:
# overrides:
#   backward: {{model_args: {{num_classes: 2}}, weights: {{init: kaiming}}, inputs: {{image: {{shape: [2, 3, 64, 64]}}}}, outputs: [logits]}}

modes:
  lite_train_lite_infer: {{data: lite}}
  whole_train_whole_infer: {{data: whole, epochs: 3}}

known_deviations: []          # - {{subject: forward/logits, reason: "..."}}; fails when it stops deviating
seed: 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("id", nargs="?", help="the case's name, such as mobilenet_v3_small (default: torch's module)")
    parser.add_argument("--torch", "--reference", metavar="M:C", help="module:callable that returns the torch module")
    parser.add_argument("--paddle", "--port", metavar="M:C", help="module:callable that returns the Paddle layer")
    parser.add_argument(
        "--input",
        action="append",
        type=read_input,
        metavar="[NAME=]SHAPE[:DTYPE[:HIGH]]",
        help=f"an argument of forward, such as 1,3,224,224 or ids=2,16:int64:1000; repeatable (default {SHAPE})",
    )
    parser.add_argument(
        "--path", type=Path, help="file to write (default configs/ID.yaml, or ID.yaml without configs/)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--chain",
        metavar="CASE",
        type=Path,
        help="write the parameter file of a case's chain: train, evaluate, export, infer "
        "(test_tipc/configs/ID/train_infer_python.txt, or --path)",
    )
    parser.add_argument("--full", action="store_true", help="write a case with every key explained, and no builder yet")
    parser.add_argument("--package", help="with --full: Python package of the builders (default alignment.ID)")
    add_root(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input of the models.

    Attributes:
        name: of the argument; empty where forward's own is meant.
        shape: of the array.
        dtype: of the array.
        high: integers are drawn below it; 0 where none was named.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    high: int

    def __str__(self) -> str:
        """Return the line of the case."""
        more = "" if self.dtype == "float32" else f", dtype: {self.dtype}"
        more += f", high: {self.high}" if self.high else ""
        return f"  {self.name}: {{shape: {list(self.shape)}{more}}}"


def read_input(text: str) -> Input:
    """Return an input from ``[NAME=]SHAPE[:DTYPE[:HIGH]]``."""
    from tipchain.parity.case import DTYPES

    found = LINE.fullmatch(text)
    if found is None or 0 in (shape := tuple(map(int, re.split("[,x]", found["shape"])))):
        raise argparse.ArgumentTypeError(f"{text!r} is no input, expected such as 1,3,224,224 or ids=2,16:int64:1000")
    dtype = found["dtype"] or "float32"
    if dtype not in DTYPES:
        raise argparse.ArgumentTypeError(f"{dtype!r} is no dtype of an input, expected one of {', '.join(DTYPES)}")
    return Input(name=found["name"] or "", shape=shape, dtype=dtype, high=int(found["high"] or 0))


def run(args: argparse.Namespace) -> int:
    """Write the case.

    Raises:
        UsageError: the id or the package cannot be a Python name, the file exists, or only one side is named.
        UsersError: the torch model cannot be built, or does not take these inputs.
    """
    if args.chain is not None:
        return _write_chain(args)
    if args.torch is None and args.paddle is None:
        if not args.full:
            print(
                say("note: a case of builders that are there: tipchain init --torch M:C --paddle M:C"), file=sys.stderr
            )
        return _write_full(args)
    if args.torch is None or args.paddle is None or args.full:
        raise UsageError(
            "--torch and --paddle belong together, and make the short case; --full has builders to be written"
        )
    for flag, spec in (("--torch", args.torch), ("--paddle", args.paddle)):
        if not all(part.strip() for part in spec.partition(":")[::2]):
            raise UsageError(f"{flag}: {spec!r} is no builder\n  expected: module:callable, such as my_net.port:build")
    name = _checked_id(args.id or args.torch.partition(":")[0].rpartition(".")[2])
    root = root_of_callables()
    path = args.path or (root / "configs" if (root / "configs").is_dir() else root) / f"{name}.yaml"
    _check_free(path, force=args.force)
    inputs, outputs = try_inputs(args.torch, root, args.input or [read_input(SHAPE)])
    with writing(path, UsageError):
        atomic_write(path, short_case(name, path, root, (args.torch, args.paddle), inputs, outputs))
    print(say(f"wrote {_shown(path)}\nproject root: {root}\nnext:  tipchain align {_shown(path)}"))
    return ExitCode.PASSED


def short_case(
    name: str, path: Path, root: Path, specs: tuple[str, str], inputs: Sequence[Input], outputs: Sequence[str]
) -> str:
    """Return a case that works at once: the models, weights that fit the inputs, and the inputs."""
    return SHORT.format(
        id=name,
        path=_shown(path),
        torch=specs[0],
        paddle=specs[1],
        inputs="\n".join(map(str, inputs)),
        root=_root_line(path, root),
        batch=inputs[0].shape[0],
        outputs=f"outputs: [{', '.join(outputs)}]\n" if outputs else "",
    )


def _root_line(path: Path, root: Path) -> str:
    """Return the line that says where imports start, where the file's place alone would say something else."""
    given = os.environ.pop(ROOT_VARIABLE, None)
    try:
        plain = find_root(path)
    finally:
        if given is not None:
            os.environ[ROOT_VARIABLE] = given
    return "" if plain == root else f"root: {os.path.relpath(root, path.resolve().parent)}\n"


def try_inputs(spec: str, root: Path, inputs: Sequence[Input]) -> tuple[list[Input], list[str]]:
    """Run the torch model once: return the inputs under forward's names, and the outputs' names where they need some.

    Without torch nothing is tried, and inputs have names of their own.
    """
    from tipchain.frameworks import load_framework

    try:
        framework = load_framework("torch")
    except MissingFrameworkError:
        print(say("note: torch is not here, so the inputs were not tried"), file=sys.stderr)
        return [replace(one, name=one.name or f"input_{number}") for number, one in enumerate(inputs)], []
    with serving(side="torch"):
        model = checking("model", "torch", resolve(spec, root))()
        free = [one.name for one in inspect.signature(model.forward).parameters.values() if one.kind in (0, 1)]
        taken = {one.name for one in inputs}
        names = iter([one for one in free if one not in taken] + [f"input_{number}" for number in range(len(inputs))])
        named = [replace(one, name=one.name or next(names)) for one in inputs]
        shapes = " and ".join(",".join(map(str, one.shape)) for one in inputs)
        tried = f"trying an input of shape {shapes} (--input says another)"
        if all(one.dtype.startswith("float") for one in inputs):
            integers = f"{','.join(map(str, inputs[0].shape))}:int64:1000"
            tried = f"trying an input of shape {shapes} (--input says another or integers such as {integers})"
        with serving(stage=tried), framework.inference():
            output = model.eval()(*(framework.tensor(array) for array in _arrays(named)))
    return named, _names_of(framework, output)


def _arrays(inputs: Sequence[Input]) -> list[Array]:
    from tipchain.parity.case import InputSpec
    from tipchain.parity.inputs import make_input

    return [
        make_input(InputSpec(name=one.name, shape=one.shape, dtype=one.dtype, high=one.high or 2)) for one in inputs
    ]


def _names_of(framework: Framework, output: object) -> list[str]:
    """Return names for the outputs: none where there is one tensor, or where they have names of their own."""
    if isinstance(output, Mapping) or not isinstance(output, tuple | list):
        return []
    items = [one for one in output if one is not None]
    return [] if len(items) == 1 and framework.is_tensor(items[0]) else [f"output_{n}" for n in range(len(items))]


def _checked_id(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"the id {name!r} cannot be a Python package's name, expected e.g. mobilenet_v3_small")
    return name


def _check_free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"{_shown(path)} exists; --force replaces it")


def _shown(path: Path) -> str:
    """Return a path as seen from here, where it lies below."""
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown


def _write_chain(args: argparse.Namespace) -> int:
    """Write the parameter file of a case's chain, whose programs are this package's own.

    Raises:
        UsageError: other arguments stand beside it, or the file exists.
        CaseError: the case cannot be used.
    """
    from tipchain.parity.case import load_case

    if any((args.id, args.torch, args.paddle, args.input, args.full, args.package)):
        raise UsageError("--chain CASE stands alone, or with --path and --force")
    case = load_case(args.chain)
    path = args.path or case.root / "test_tipc" / "configs" / case.id / "train_infer_python.txt"
    _check_free(path, force=args.force)
    seen = os.path.relpath(args.chain.resolve(), case.root)
    with writing(path, UsageError):
        atomic_write(path, CHAIN.format(id=case.id, case=seen, steps="|".join(case.stages)))
    missing = [name for name in TRAINS if getattr(case.sides["paddle"], name) is None]
    if missing:
        print(say(f"note: to train it, the case needs {', '.join(missing)} among the builders of both sides"))
    print(
        say(
            f"wrote {_shown(path)}\nproject root: {case.root}\nnext:  tipchain run {_shown(path)} lite_train_lite_infer"
        )
    )
    return ExitCode.PASSED


def _write_full(args: argparse.Namespace) -> int:
    """Write a case with every key explained."""
    if args.id is None:
        raise UsageError("which models?\n  expected: --torch M:C and --paddle M:C, or --full and an id")
    if args.input:
        raise UsageError("--input goes with --torch and --paddle")
    name = _checked_id(args.id)
    package = args.package or f"alignment.{name}"
    if not all(part.isidentifier() for part in package.split(".")):
        raise UsageError(f"--package: {package!r} cannot be a Python package, expected e.g. alignment.my_net")
    path = args.path or Path("configs") / f"{name}.yaml"
    _check_free(path, force=args.force)
    with writing(path, UsageError):
        atomic_write(path, CASE.format(id=name, path=path, package=package))
    print(say(f"wrote {path}; next: write the builders it names, then  tipchain align {path}"))
    return ExitCode.PASSED
