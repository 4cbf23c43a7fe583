"""PaddleRS: a classifier, a segmentation network and a detector of changes, on generated scenes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from suite_recipes import ONE_ZLIB, Model, Recipe

if TYPE_CHECKING:
    from PIL.Image import Image

DATA = "test_tipc/data"
SCENES, PARTS, CHANGES = (f"{DATA}/{name}" for name in ("ucmerced", "rsseg", "airchange"))
CLASSES = ("field", "lake", "roof", "road", "sand")
CONFIGS = {
    "clas/mobilenetv3": ("clas/_base_/ucmerced.yaml", "{type: MobileNetV3, args: {num_classes: 5}}"),
    "seg/fast_scnn": ("seg/_base_/rsseg.yaml", "{type: FastSCNN, args: {in_channels: 3, num_classes: 5}}"),
    "cd/fc_ef": ("cd/_base_/airchange.yaml", "{type: FCEarlyFusion}"),
}
"""The suite's configuration of the data by model, and its network."""
COUNTS = {"train": 4, "val": 2}
SIZE = 256
PACKAGES = (
    "chardet",
    "colorama",
    "cython",
    "easydict",
    "filelock",
    "geojson",
    "lap",
    "motmetrics",
    "munch",
    "natsort",
    "numba",
    "numpy<2",
    "opencv-python-headless<4.12",
    "openpyxl",
    "paddleslim==2.6.0",
    "pandas<2.3",
    "pillow",
    "pycocotools<2.0.9",
    "pyyaml",
    "scikit-image<0.25",
    "scikit-learn<1.6",
    "scipy<1.14",
    "shapely",
    "visualdl",
)


def make_data(root: Path) -> None:
    """Write scenes with a class each, scenes with a class for each pixel, and pairs of scenes of two times."""
    chance = random.Random(13)
    for model, (base, network) in CONFIGS.items():
        # Without the pretrained weights, which would be downloaded.
        text = f"_base_: ../configs/{base}\nmodel: !Node {network}\nsave_interval_epochs: 1\ntrain: {{pretrain_weights: null}}\n"
        (root / DATA).mkdir(parents=True, exist_ok=True)
        (root / _config(model)).write_text(text, encoding="utf-8")
    for folder in (SCENES, PARTS, CHANGES):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "labels.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    for part, count in COUNTS.items():
        lines: dict[str, list[str]] = {folder: [] for folder in (SCENES, PARTS, CHANGES)}
        for number in range(count):
            name, kind = f"{part}_{number}.png", number % len(CLASSES)
            _save(_scene(chance, [kind])[0], root / SCENES / name)
            lines[SCENES].append(f"{name} {kind}")
            (scene, label), (later, changed) = _scene(chance, range(len(CLASSES))), _scene(chance, [1])
            for image, folder, home in (
                *((scene, PARTS, "images"), (label, PARTS, "labels")),
                *((scene, CHANGES, "A"), (later, CHANGES, "B"), (changed, CHANGES, "label")),
            ):
                _save(image, root / folder / home / name)
            lines[PARTS].append(f"images/{name} labels/{name}")
            lines[CHANGES].append(f"A/{name} B/{name} label/{name}")
        for folder, names in lines.items():
            listed = "eval" if folder == CHANGES and part == "val" else part
            (root / folder / f"{listed}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def _config(model: str) -> str:
    return f"{DATA}/tiny_{model.replace('/', '_')}.yaml"


def _scene(chance: random.Random, kinds: range | list[int]) -> tuple[Image, Image]:
    """Return an image with patches of these classes, and its label."""
    from PIL import Image, ImageDraw

    picture, truth = Image.new("RGB", (SIZE, SIZE), (70, 90, 60)), Image.new("L", (SIZE, SIZE), 0)
    for kind in kinds:
        left, top = chance.randrange(SIZE - 90), chance.randrange(SIZE - 90)
        box = (left, top, left + 80, top + 80)
        ImageDraw.Draw(picture).rectangle(box, fill=(40 * kind, 250 - 50 * kind, 100 + 30 * kind))
        ImageDraw.Draw(truth).rectangle(box, fill=kind)
    return picture, truth


def _save(image: Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def _model(name: str, *settings: str) -> Model:
    """Return a model that trains two images a step."""
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            f"train_params:--config=lite_train_lite_infer={_config(name)}",
            "--num_epochs=lite_train_lite_infer=1",
            "--train_batch_size=lite_train_lite_infer=2",
            "--cpu_threads=1",
            "--benchmark=False",
            *settings,
        ),
    )


RECIPE = Recipe(
    suite="paddlers",
    repository="PaddlePaddle/PaddleRS",
    models=(_model("clas/mobilenetv3"), _model("seg/fast_scnn"), _model("cd/fc_ef")),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), PACKAGES),
    make_data=make_data,
    data=(SCENES, PARTS, CHANGES),
    env={"PYTHONPATH": ".", **ONE_ZLIB},
)
