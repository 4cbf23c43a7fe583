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


def _speed(folder: str, name: str, config: str, item: str) -> Model:
    """Return a model whose training's speed is measured; the images are gone through three times."""
    return Model(
        name=f"{name}, {item.partition('_')[0]}",
        file=f"test_tipc/configs/{folder}/{name}_train_infer_python.txt",
        settings=(
            "python=python",
            "pretrain_weights=False",
            f"norm_train=tools/train.py -c {config} -o worker_num=0 snapshot_epoch=1 log_iter=1",
            "train_benchmark_params:repeat=3",
        ),
        mode="benchmark_train",
        chain="benchmark_train",
        argument=item,
    )


TRAINED = "output/tiny/model_final.pdparams"
_PICODET = "configs/picodet/picodet_s_320_coco_lcnet.yml"
# A model that was never trained finds the same boxes in every image.
_TRAIN = (
    f"tools/train.py -c {_PICODET} -o use_gpu=False worker_num=0 snapshot_epoch=40 epoch=40 TrainReader.batch_size=4"
)
_TRAIN += " pretrain_weights=False save_dir=output/tiny TrainDataset.repeat=2 LearningRate.base_lr=1.0"

RECIPE = Recipe(
    suite="paddledetection",
    repository="PaddlePaddle/PaddleDetection",
    models=(
        _model("picodet", "picodet_s_320_coco_lcnet", _PICODET),
        _model("ppyolo", "ppyolo_tiny_650e_coco", "configs/ppyolo/ppyolo_tiny_650e_coco.yml"),
        _model("yolov3", "yolov3_mobilenet_v1_270e_coco", "configs/yolov3/yolov3_mobilenet_v1_270e_coco.yml"),
        _model("ssd", "ssdlite_mobilenet_v1_300_coco", "configs/ssd/ssdlite_mobilenet_v1_300_coco.yml"),
        _model("keypoint", "tinypose_128x96", "test_tipc/configs/keypoint/tinypose_128x96.yml"),
        _speed("picodet", "picodet_s_320_coco_lcnet", _PICODET, "dynamic_bs2_fp32_DP_N1C1"),
        _speed("picodet", "picodet_s_320_coco_lcnet", _PICODET, "dynamicTostatic_bs2_fp32_DP_N1C1"),
        Model(
            name="picodet_s_320_coco_lcnet",
            file="test_tipc/configs/picodet/picodet_s_320_coco_lcnet_model_linux_gpu_normal_normal_paddle2onnx_python_linux_cpu.txt",
            settings=("python=python", f"weights={TRAINED}"),
            original_settings=(f"norm_export=tools/export_model.py -c {_PICODET} -o use_gpu=False",),
            mode="paddle2onnx_infer",
            chain="paddle2onnx",
            makes=((TRAINED, _TRAIN),),
        ),
    ),
    packages={"2.6.2": (*PACKAGES, *OLDER), "3.3.1": PACKAGES},
    make_data=make_data,
    env=ONE_ZLIB,
    data=("dataset/coco/train2017", "dataset/coco/val2017", "dataset/coco/test2017"),
)
