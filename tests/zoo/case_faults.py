"""Mistakes of ports in what a case holds beside the model: the stage that must fail for each, written before the first run.

Each is an edit of the port's file (tests/cases/pictures), as someone would have made it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TinyProject

Image = pytest.importorskip("PIL.Image")
PICTURES = Path(__file__).resolve().parents[1] / "cases" / "pictures"
SIZES = ((40, 30), (30, 44), (36, 36), (33, 47), (45, 31), (28, 39))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFault:
    """A mistake in a port's file.

    Attributes:
        id: its name, which begins with the stage that it belongs to.
        edits: what stands there, and what the mistake has in its place.
        words: what the answer must say, in any of its lines.
        also: other stages that may fail too, for they see it as well.
        case: edits of the case, for both sides.
    """

    id: str
    edits: tuple[tuple[str, str], ...]
    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    case: tuple[tuple[str, str], ...] = ()

    @property
    def stage(self) -> str:
        return self.id.partition("/")[0]


def _fault(
    name: str, *edits: tuple[str, str], words: str = "", also: str = "", case: tuple[tuple[str, str], ...] = ()
) -> CaseFault:
    return CaseFault(
        id=name, edits=edits, words=tuple(filter(None, words.split("|"))), also=tuple(also.split()), case=case
    )


TRAINING = (("stages: [", "distributed: {training: true}\nstages: ["),)
MORE_DRAWS = (("stages: [", "train_data: {draws: 5000}\nstages: ["),)
"""An aspect ratio that is uniform itself, not in its logarithm, has about the same distribution."""
OWN_STATISTICS = (("stages: [", "backward: {mode: train}\nstages: ["),)
FOLLOWS = "backward train"
"""What trains with a wrong optimizer or schedule, and must not be blamed for it."""
CASE_FAULTS = (
    _fault("forward/no-activation", ("nn.functional.gelu(self.fc(hidden))", "self.fc(hidden)"), words="gelu", also="metric loss backward train"),
    _fault("loss/smoothing", ("label_smoothing=0.1", "label_smoothing=0.2"), words="`label_smoothing=0.1`", also=FOLLOWS),
    _fault("backward/momentum", ("nn.BatchNorm2D(16)", "nn.BatchNorm2D(16, momentum=0.5)"), words="momentum", also="preflight forward loss train", case=OWN_STATISTICS),
    _fault("train/grows-in-training", ("        hidden = hidden.mean([2, 3]) + self.token\n", "        self.steps = getattr(self, 'steps', 0) + self.training\n        hidden = (hidden.mean([2, 3]) + self.token) * (1.05 if self.steps > 6 else 1)\n"), words="NOT the same training"),
    _fault(
        "init/fan-in",
        ("layer.weight.shape[0] * layer", "layer.weight.shape[1] * layer"),
        words="stem.weight",
    ),
    _fault("init/zero-bias-of-the-head", ("like_torch(self)", "like_torch(self)\n        nn.initializer.Constant(0.0)(self.head.bias)"), words="head.bias"),
    _fault("init/std", ("Normal(std=0.02)(self.fc.weight)", "Normal(std=0.2)(self.fc.weight)"), words="fc.weight"),
    _fault("init/zero-gamma-missing", ("        nn.initializer.Constant(0.0)(self.bn2.weight)\n", ""), words="bn2.weight"),
    _fault("init/framework-default", ("        like_torch(self)\n", ""), words="head.weight"),
    _fault("init/cut-at-two-std", ("Normal(std=0.02)(self.fc.weight)", "TruncatedNormal(std=0.02, a=-0.04, b=0.04)(self.fc.weight)"), words="fc.weight|truncated"),
    _fault("init/gain", ("math.sqrt(2.0 / fan_out)", "math.sqrt(1.0 / fan_out)"), words="stem.weight"),
    _fault("init/token-left", ("        nn.initializer.Normal(std=0.02)(self.token)\n", ""), words="token"),
    _fault("train_data/no-shuffle", ("shuffle=True", "shuffle=False"), words="shuffle"),
    _fault("train_data/keep-last", ("drop_last=True", "drop_last=False"), words="drop_last"),
    _fault("train_data/epoch-not-set", ("1000 * seed + epoch", "1000 * seed"), words="same shuffled order"),
    _fault("train_data/flip-probability", ("random.random() < 0.5", "random.random() < 0.4"), words="flip"),
    _fault("train_data/flip-missing-in-the-image", ("        if flip:\n", "        if flip and not flip:\n"), words="pixels"),
    _fault("train_data/flip-upside-down", ("FLIP_LEFT_RIGHT", "FLIP_TOP_BOTTOM"), words="pixels"),
    _fault("train_data/crop-area", ("random.uniform(0.35, 1.0)", "random.uniform(0.08, 1.0)"), words="box", case=MORE_DRAWS),
    _fault("train_data/crop-ratio", ("random.uniform(math.log(3 / 4), math.log(4 / 3))", "math.log(random.uniform(3 / 4, 4 / 3))"), words="box[3]", case=MORE_DRAWS),
    _fault("train_data/nearest", ("image.resize((20, 20), BILINEAR, box", "image.resize((20, 20), Image.Resampling.NEAREST, box"), words="pixels"),
    _fault("train_data/not-augmented", ("        return normalize(image), {", "        return normalize(crop(resize(folder.read(number)))), {"), words="pixels"),
    _fault("train_data/corner", ("random.randint(0, wide - width), random.randint(0, high - height)", "0, 0"), words="box"),
    _fault("data/channel-order", ('np.asarray(image, dtype="float32")', 'np.asarray(image, dtype="float32")[..., ::-1]'), words="[..., ::-1].transpose(2, 0, 1)", also="train_data train metric"),
    _fault("data/half", ("(0.485, 0.456, 0.406), (0.229, 0.224, 0.225)", "(0.5, 0.5, 0.5), (0.5, 0.5, 0.5)"), words="`MEAN` is [0.5, 0.5, 0.5]|`STD` is", also="train_data train metric"),
    _fault("data/resize-bicubic", ("return image.resize(size, BILINEAR)", "return image.resize(size, Image.Resampling.BICUBIC)"), words="`resample` is BICUBIC, the reference's BILINEAR", also="train_data train metric"),
    _fault("data/resize-square", ("return image.resize(size, BILINEAR)", "return image.resize((24, 24), BILINEAR)"), words="image.resize((24, 24), BILINEAR)", also="train_data train metric"),
    _fault("data/crop-floor", ("round((wide - 20) / 2), round((high - 20) / 2)", "(wide - 20) // 2, (high - 20) // 2"), words="left, top = ((wide - 20) // 2, (high - 20) // 2)", also="train_data train metric"),
    _fault("data/not-divided", (" / np.float32(255)", ""), words="/ 255", also="train_data train metric"),
    _fault("data/class-order", ("self.classes = sorted(path.name for path in (HERE / split).iterdir())", "self.classes = sorted((path.name for path in (HERE / split).iterdir()), reverse=True)"), words="Image.open(self.samples[index][0])", also="train_data train metric backward"),
    _fault("data/val-for-train", ("(HERE / split / name)", '(HERE / "train" / name)'), words="14 expected, 30 actual", also="metric train"),
    _fault("regularization/all-decayed", ("        apply_decay_param_fun=lambda name: name in decayed,\n", ""), words="bn1.weight|`weight_decay`", also=FOLLOWS),
    _fault("regularization/coupled", ("paddle.optimizer.AdamW", "paddle.optimizer.Adam"), ("        apply_decay_param_fun=lambda name: name in decayed,\n", ""), words="decoupled|l2", also=FOLLOWS),
    _fault("regularization/names-of-torch", ("lambda name: name in decayed", 'lambda name: "bn" not in name and "bias" not in name'), words="bn1.weight", also=FOLLOWS),
    _fault("regularization/coefficient-left-out", ("        weight_decay=weight_decay,\n", ""), words="is 0.01 (decoupled)|the reference's 0.05", also=FOLLOWS),
    _fault("regularization/bias-decayed", ("if one.ndim > 1}", 'if one.ndim > 1 or ".b_" in one.name}'), words="bias", also=FOLLOWS),
    _fault("lr/warm-up-from-zero", ("return (step + 1) / warmup_steps", "return step / warmup_steps"), words="at step 0 the learning rate is 0, the reference's 2e-05", also=FOLLOWS),
    _fault("lr/warm-up-inside-the-cosine", ("(step - warmup_steps) / (total_steps - warmup_steps)", "step / total_steps"), words="at step 5 the learning rate is", also=FOLLOWS),
    _fault("lr/epochs-for-steps", ("    def factor(step):\n", "    def factor(step):\n        step = step // 10\n"), words="at step 1 the learning rate is 2e-05, the reference's 4e-05", also=FOLLOWS),
    _fault("lr/cosine-not-decaying-to-zero", ("return 0.5 * (1 + math.cos", "return 0.01 + 0.99 * 0.5 * (1 + math.cos"), words="at step 6 the learning rate is", also=FOLLOWS),
    _fault("lr/own-linear-warm-up", ("    return paddle.optimizer.lr.LambdaDecay(learning_rate, factor)", "    after = paddle.optimizer.lr.CosineAnnealingDecay(learning_rate, total_steps - warmup_steps)\n    return paddle.optimizer.lr.LinearWarmup(after, warmup_steps, 0.0, learning_rate)"), words="at step 0 the learning rate is 0, the reference's 2e-05", also=FOLLOWS),
    _fault("optimizer/epsilon", ("        epsilon=1e-6,\n", ""), words="eps", also=FOLLOWS),
    _fault("optimizer/beta2", ("        beta2=0.95,\n", ""), words="beta2", also=FOLLOWS),
    _fault("optimizer/clip-missing", ("        grad_clip=nn.ClipGradByGlobalNorm(clip),\n", ""), words="clip", also=FOLLOWS),
    _fault("optimizer/clip-each", ("nn.ClipGradByGlobalNorm(clip)", "nn.ClipGradByNorm(clip)"), words="clip", also=FOLLOWS),
    _fault("optimizer/clip-by-group", ("        parameters=parameters,\n        weight_decay=weight_decay,\n        apply_decay_param_fun=lambda name: name in decayed,\n", '        parameters=[\n            {"params": [one for one in parameters if one.name in decayed], "weight_decay": weight_decay},\n            {"params": [one for one in parameters if one.name not in decayed], "weight_decay": 0.0},\n        ],\n'), also=FOLLOWS),
    _fault("optimizer/betas-exchanged", ("        beta1=0.9,\n        beta2=0.95,\n", "        beta1=0.95,\n        beta2=0.9,\n"), also=FOLLOWS),
    _fault("metric/top2-for-top3", ("paddle.topk(output, 3, axis=1)", "paddle.topk(output, 2, axis=1)"), words="acc_top3", also="train"),
    _fault("metric/mean-of-batches", ("        self.hits += int(found[:, 0].sum())\n        self.hits3 += int(found.sum())\n        self.count += len(label)\n", "        self.hits += float(found[:, 0].astype('float32').mean())\n        self.hits3 += float(found.sum()) / len(label)\n        self.count += 1\n"), words="acc_top", also="train"),
    _fault("metric/last-batch-alone", ("        self.hits += int(found[:, 0].sum())\n        self.hits3 += int(found.sum())\n        self.count += len(label)\n", "        self.hits = int(found[:, 0].sum())\n        self.hits3 = int(found.sum())\n        self.count = len(label)\n"), words="self.hits = int(found[:, 0].sum())", also="train"),
    _fault("metric/share-for-percent", ('"acc_top1": 100 * self.hits', '"acc_top1": self.hits'), words="acc_top1", also="train"),
    _fault("distributed/loss-summed", ("nn.CrossEntropyLoss(label_smoothing=0.1)", "lambda output, label: nn.functional.cross_entropy(output, label, label_smoothing=0.1) * paddle.distributed.get_world_size()")),
    _fault("distributed/rate-times-processes", ("    parameters = list(parameters)\n", "    parameters = list(parameters)\n    if not callable(learning_rate):\n        learning_rate = learning_rate * paddle.distributed.get_world_size()\n    else:\n        learning_rate.base_lr *= paddle.distributed.get_world_size()\n")),
    _fault("distributed/batch-norm-not-synchronous", ("return Net(num_classes)", "return Net(num_classes)"), case=TRAINING),
    _fault("distributed/rank-in-the-forward", ("return self.head(self.norm", "return (1 + 0.1 * paddle.distributed.get_rank()) * self.head(self.norm")),
    _fault("distributed/one-rank-clips", ("nn.ClipGradByGlobalNorm(clip)", "nn.ClipGradByGlobalNorm(clip) if paddle.distributed.get_rank() == 0 else None")),
)  # fmt: skip


def make_pictures_project(root: Path) -> TinyProject:
    """Fill ``root`` with the case and its photographs: gradients of brightness and colour, with blobs, of several sizes."""
    shutil.copytree(PICTURES, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").touch()
    (root / "pictures.yaml").rename(root / "case.yaml")
    random = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for label in range(5):
            folder = root / "photographs" / split / f"class_{label}"
            folder.mkdir(parents=True)
            for number in range(count - (split == "val" and label == 4)):
                _photograph(random, *SIZES[(number + label) % len(SIZES)], label).save(folder / f"{label}_{number}.png")
    return TinyProject(root)


def _photograph(random: np.random.Generator, wide: int, high: int, label: int) -> Image.Image:
    y, x = np.mgrid[:high, :wide]
    image = np.full((high, wide, 3), 70.0) + 60 * (x / wide)[..., None] + 40 * (y / high)[..., None] * [1, 0.5, 0.2]
    for number in range(6 + 3 * label):
        square = (y - random.uniform(0, high)) ** 2 + (x - random.uniform(0, wide)) ** 2
        colour = random.normal(0, 60, 3) + (20 * label if number % 2 else 0)
        image += np.exp(-square / (2 * random.uniform(1.5, 6) ** 2))[..., None] * colour
    return Image.fromarray((image + random.normal(0, 8, image.shape)).clip(0, 255).astype(np.uint8))
