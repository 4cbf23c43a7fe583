"""PanopticSeg (PaddleSeg/contrib): Panoptic-DeepLab and Mask2Former on generated scenes with a few segments."""

from __future__ import annotations

import json
import random
from pathlib import Path

from suite_recipes import ONE_ZLIB, Model, Recipe
from suite_recipes.paddleseg import OLDER, PACKAGES

SIDE = 64
DATA = "test_tipc/data"
THING, STUFF = 1, 149
"""Categories of COCO's: a person, and the sky."""


def make_data(root: Path) -> None:
    """Write COCO panoptic data of boxes before a sky, and the suite's configurations at that size."""
    from PIL import Image, ImageDraw

    folder = root / DATA / "coco"
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    chance = random.Random(11)
    for part, count in (("train", 4), ("val", 2)):
        images, notes, lines = [], [], []
        for number in range(1, count + 1):
            name = f"{number:012d}"
            picture, truth = (Image.new("RGB", (SIDE, SIDE), color) for color in ((90, 130, 220), (1, 0, 0)))
            segments = [{"id": 1, "category_id": STUFF, "iscrowd": 0, "area": SIDE * SIDE, "bbox": [0, 0, SIDE, SIDE]}]
            for segment in (2, 3):
                left, top = chance.randrange(SIDE - 24), chance.randrange(SIDE - 24)
                box = (left, top, left + 19, top + 19)
                ImageDraw.Draw(picture).rectangle(box, fill=(255, 100 * segment % 256, 0))
                ImageDraw.Draw(truth).rectangle(box, fill=(segment, 0, 0))
                segments.append(
                    {"id": segment, "category_id": THING, "iscrowd": 0, "area": 400, "bbox": [left, top, 20, 20]}
                )
            shown = {one[0] for _, one in truth.getcolors()}
            places = f"{part}2017/{name}.jpg", f"panoptic_{part}2017/{name}.png"
            for place, image in zip(places, (picture, truth), strict=True):
                (folder / place).parent.mkdir(exist_ok=True)
                image.save(folder / place)
            images.append({"id": number, "file_name": f"{name}.jpg", "width": SIDE, "height": SIDE})
            segments = [one for one in segments if one["id"] in shown]
            notes.append({"image_id": number, "file_name": f"{name}.png", "segments_info": segments})
            lines.append(" ".join(places))
        (folder / f"{part}_list.txt").write_text("\n".join(lines) + "\n")
        whole = {"images": images, "annotations": notes, "categories": []}
        (folder / "annotations" / f"panoptic_{part}2017.json").write_text(json.dumps(whole))
    for name, backbone in (("panoptic_deeplab", "{pretrained: null}"), ("mask2former", "{pretrained: null}")):
        text = (root / f"test_tipc/configs/{name}/{name}_coco.yml").read_text()
        # The sizes stand in lists of transforms, which no option and no derived configuration reaches.
        text = text.replace("[1024, 1024]", f"[{SIDE}, {SIDE}]")
        (root / DATA / f"tiny_base_{name}.yml").write_text(text)
        more = f"_base_: 'tiny_base_{name}.yml'\nmodel: {{backbone: {backbone}}}\n"
        (root / DATA / f"tiny_{name}.yml").write_text(more)


def _model(name: str, shape_key: str = "--input_shape") -> Model:
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            "--iters=lite_train_lite_infer=2",
            f"train_params:--config=lite_train_lite_infer={DATA}/tiny_{name}.yml",
            "norm_train=tools/train.py --do_eval --log_iters 1",
            f"{shape_key}=-1 3 {SIDE} {SIDE}",
            "--cpu_threads=2",
            "--benchmark=False",
        ),
    )


RECIPE = Recipe(
    suite="panopticseg",
    repository="PaddlePaddle/PaddleSeg",
    models=(_model("panoptic_deeplab"), _model("mask2former")),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), (*PACKAGES, *OLDER, "pycocotools<2.0.9", "tabulate")),
    make_data=make_data,
    data=(f"{DATA}/coco/train2017",),
    start="contrib/PanopticSeg",
    env={"PYTHONPATH": ".:../..", **ONE_ZLIB},
)
