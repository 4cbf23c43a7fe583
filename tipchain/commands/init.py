"""``tipchain init``: write a new, commented alignment case."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tipchain.errors import UsageError
from tipchain.outcome import ExitCode
from tipchain.runs import atomic_write

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
#   loader: "{package}.torch_side:build_loader"
#   augmentation: "{package}.torch_side:build_augmentation"
  paddle:
    model: "{package}.paddle_side:build_model"
    loss: "{package}.paddle_side:build_loss"
    optimizer: "{package}.paddle_side:build_optimizer"
    scheduler: "{package}.paddle_side:build_scheduler"
    dataset: "{package}.paddle_side:build_dataset"
    metric: "{package}.paddle_side:build_metric"
#   loader: "{package}.paddle_side:build_loader"
#   augmentation: "{package}.paddle_side:build_augmentation"

model_args: {{num_classes: 10}}

# Both sides start from equal weights: a seeded initialization, converted to Paddle ...
weights: {{init: kaiming, seed: 0, fit_head: true}}
# ... or your own torch file; names only where structure cannot tell (docs/weights.md):
# weights: {{torch: weights/{id}.pth, names: {{old.name: new.name}}}}

# Fake inputs, in the order of the model's arguments; `label` goes to the loss. `shapes: [[...], [...]]` in place of
# `shape` lets the forward stage try several; the first is used everywhere else.
inputs:
  image: {{shape: [4, 3, 224, 224], dtype: float32, seed: 0}}
  label: {{shape: [4], dtype: int64, high: 10}}
outputs: [logits]             # one name for each output of the model; a dict's tensors keep its keys

# Leave stages out where they do not apply (a forward-only paper: [forward]).
stages: [forward, data, metric, loss, optimizer, lr, regularization, backward, train_data, init, train, inference,
         distributed]

optimizer: {{momentum: 0.9, weight_decay: 1.0e-4}}      # arguments of build_optimizer
scheduler: {{step_size: 2, gamma: 0.5}}                 # arguments of build_scheduler
# Updates from equal gradients, of a few usual layers or of the model itself, with further arguments if you like;
# and how many rates of the schedule are compared.
updates: {{iterations: 5, parameters: layers}}          # or model; variants: {{name: {{momentum: 0.0}}}}
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
data: {{set: digits, args: {{}}, batch_size: 4, max_batches: 100}}
# Two epochs' order, 64 samples by value, 2000 augmented images of each side; drop_last and shuffle: true or false
# hold both loaders to it. docs/initializers.md says how to make a port start as torch does.
train_data: {{epochs: 2, samples: 64, draws: 2000, alpha: 1.0e-3}}
init: {{seeds: 5, values: 2000, alpha: 1.0e-3}}         # models on each side, values of each parameter
# The exported model in Paddle Inference and in onnxruntime, on batches of two or more sizes; training on several
# processes (each on a GPU of its own with --device gpu) against one. training: true needs SyncBatchNorm.
inference: {{batch_sizes: [1, 4], onnx: true}}
distributed: {{processes: 2, iterations: 3, batch_size: 4, learning_rate: 1.0e-4, training: false}}
# The loss: arguments of build_loss, and variants of them that the loss stage compares too, in value and gradient.
# loss: {{args: {{}}, variants: {{smoothed: {{label_smoothing: 0.1}}, soft: {{soft_label: true}}, ignoring: {{ignore_index: 255}}}}}}

# A tolerance looser than the default needs a measured reason.
# tolerances:
#   loss: {{loss: {{method: mean, threshold: 2.0e-5, reason: "what was measured"}}}}

modes:
  lite_train_lite_infer: {{data: lite}}
  whole_train_whole_infer: {{data: whole, epochs: 3}}

known_deviations: []          # - {{subject: forward/logits, reason: "..."}}; fails when it stops deviating
seed: 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("id", help="the case's name, such as mobilenet_v3_small")
    parser.add_argument("--path", type=Path, help="file to write (default configs/ID.yaml)")
    parser.add_argument("--package", help="Python package of the builders (default alignment.ID)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(args: argparse.Namespace) -> int:
    """Write the case.

    Raises:
        UsageError: the id or the package cannot be a Python name, or the file exists.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", args.id):
        raise UsageError(
            f"the id {args.id!r} cannot be a Python package's name, expected e.g. mobilenet_v3_small"
        )
    package = args.package or f"alignment.{args.id}"
    if not all(part.isidentifier() for part in package.split(".")):
        raise UsageError(f"--package: {package!r} cannot be a Python package, expected e.g. alignment.my_net")
    path = args.path or Path("configs") / f"{args.id}.yaml"
    if path.exists() and not args.force:
        raise UsageError(f"{path} exists; --force replaces it")
    try:
        atomic_write(path, CASE.format(id=args.id, path=path, package=package))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
    print(f"wrote {path}; next: write the builders it names, then  tipchain align {path}")
    return ExitCode.PASSED
