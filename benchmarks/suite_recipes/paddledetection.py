"""PaddleDetection: small detectors on ten generated images."""

from __future__ import annotations

import json
import random
from pathlib import Path

from suite_recipes import ONE_ZLIB, Model, Recipe

COUNTS = {"train2017": 4, "val2017": 2, "test2017": 2}
KEYPOINTS = 17
PACKAGES = (
    "filelock",
    "imgaug",
    "matplotlib<3.9",
    "motmetrics",
    "numpy<2",
    "opencv-python<4.12",
    "opencv-python-headless<4.12",
    "pandas",
    "pillow",
    "pycocotools",
    "pyyaml",
    "requests",
    "scikit-learn",
    "scipy",
    "shapely",
    "terminaltables",
    "tqdm",
)
OLDER = ("pycocotools<2.0.9", "scikit-image<0.25", "scikit-learn<1.6", "scipy<1.14")
"""Later builds of these end the interpreter by a signal when they are imported after paddlepaddle 2.6.2."""


def make_data(root: Path) -> None:
    """Write a COCO data set of colored boxes, with boxes and keypoints, into ``dataset/coco``."""
    from PIL import Image, ImageDraw

    folder = root / "dataset/coco"
    notes = folder / "annotations"
    notes.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    for part, count in COUNTS.items():
        (folder / part).mkdir(exist_ok=True)
        images, boxes = [], []
        for number in range(1, count + 1):
            image = Image.new("RGB", (320, 240), (chance.randrange(100), 90, 120))
            draw = ImageDraw.Draw(image)
            name = f"{number:012d}.jpg"
            images.append({"id": number, "file_name": name, "width": 320, "height": 240})
            for _ in range(3):
                left, top, wide, high = (chance.randrange(10, limit) for limit in (180, 120, 120, 100))
                wide, high = wide + 20, high + 20
                box = [left, top, min(wide, 319 - left), min(high, 239 - top)]
                draw.rectangle([left, top, left + box[2], top + box[3]], fill=(250, chance.randrange(256), 0))
                points = [
                    value
                    for _ in range(KEYPOINTS)
                    for value in (left + chance.randrange(box[2]), top + chance.randrange(box[3]), 2)
                ]
                boxes.append(_note(len(boxes) + 1, number, chance.choice((1, 2, 3)), box, points))
            image.save(folder / part / name)
        for kind in ("instances", "person_keypoints"):
            person = kind != "instances"
            found = [{**one, "category_id": 1} for one in boxes] if person else boxes
            categories = [_category(number) for number in range(1, 2 if person else 81)]
            whole = {"images": images, "annotations": found, "categories": categories}
            (notes / f"{kind}_{part}.json").write_text(json.dumps(whole))


def _category(number: int) -> dict[str, object]:
    return {"id": number, "name": f"thing {number}", "supercategory": "thing"}


def _note(number: int, image: int, category: int, box: list[int], points: list[int]) -> dict[str, object]:
    left, top, wide, high = box
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": box,
        "area": wide * high,
        "iscrowd": 0,
        "segmentation": [[left, top, left + wide, top, left + wide, top + high, left, top + high]],
        "keypoints": points,
        "num_keypoints": KEYPOINTS,
    }


def _model(folder: str, name: str, config: str, *settings: str, more: str = "") -> Model:
    return Model(
        name=name,
        file=f"test_tipc/configs/{folder}/{name}_train_infer_python.txt",
        settings=(
            "python=python",
            "pretrain_weights=False",
            f"norm_train=tools/train.py -c {config} -o worker_num=0 snapshot_epoch=1{more}",
            f"eval=tools/eval.py -c {config} -o worker_num=0",
            *settings,
        ),
        original_settings=(f"norm_export=tools/export_model.py -c {config} -o use_gpu=False",),
    )


RECIPE = Recipe(
    suite="paddledetection",
    repository="PaddlePaddle/PaddleDetection",
    models=(
        _model("picodet", "picodet_s_320_coco_lcnet", "configs/picodet/picodet_s_320_coco_lcnet.yml"),
        _model("ppyolo", "ppyolo_tiny_650e_coco", "configs/ppyolo/ppyolo_tiny_650e_coco.yml"),
        _model("yolov3", "yolov3_mobilenet_v1_270e_coco", "configs/yolov3/yolov3_mobilenet_v1_270e_coco.yml"),
        _model("ssd", "ssdlite_mobilenet_v1_300_coco", "configs/ssd/ssdlite_mobilenet_v1_300_coco.yml"),
        _model("keypoint", "tinypose_128x96", "test_tipc/configs/keypoint/tinypose_128x96.yml"),
    ),
    packages={
        "2.6.2": (*PACKAGES, *OLDER),
        "3.3.1": PACKAGES,
    },
    make_data=make_data,
    env=ONE_ZLIB,
    data=("dataset/coco/train2017", "dataset/coco/val2017", "dataset/coco/test2017"),
)
