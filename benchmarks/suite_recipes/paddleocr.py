"""PaddleOCR: small recognizers and a detector of lines, on generated images of words."""

from __future__ import annotations

import json
import random
from pathlib import Path

from suite_recipes import ONE_ZLIB, Model, Recipe

WORDS, IMAGES = ("train_data/ic15_data", "inference/rec_inference")
LINES = "train_data/icdar2015/text_localization"
DETECTOR = "train_data/tiny_det_mv3_db.yml"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
COUNTS = {"train": 8, "test": 4}
PACKAGES = (
    "Polygon3",
    "attrdict",
    "imgaug==0.4.0",
    "lanms-neo==1.0.2",
    "lmdb",
    "lxml",
    "numpy<1.24",  # np.bool
    "opencv-python-headless<4.12",
    "pillow",
    "premailer",
    "openpyxl",
    "pyclipper",
    "pyyaml",
    "rapidfuzz",
    "requests",
    "scikit-image<0.25",
    "scipy<1.14",
    "shapely",
    "tqdm",
    "visualdl",
)


def make_data(root: Path) -> None:
    """Write words of ICDAR 2015's format and pages with four lines each."""
    from PIL import Image, ImageDraw, ImageFont

    chance = random.Random(11)
    _detector(root / "configs/det/det_mv3_db.yml", root / DETECTOR)

    def word() -> str:
        return "".join(chance.choice(LETTERS) for _ in range(chance.randrange(3, 7)))

    for part, count in COUNTS.items():
        words, pages = [], []
        for number in range(count):
            text, image = word(), Image.new("RGB", (120, 32), (230, 220, 200))
            ImageDraw.Draw(image).text((6, 2), text, fill=(20, 30, 60), font=ImageFont.load_default(22))
            name = f"{part}/word_{number}.png"
            _save(image, root / WORDS / name)
            if part == "test":
                _save(image, root / IMAGES / f"word_{number}.png")
            words.append(f"{name}\t{text}")
            page, lines = Image.new("RGB", (320, 240), (240, 240, 230)), []
            for row in range(4):
                text, left, top = word(), 10 + chance.randrange(60), 10 + row * 56
                ImageDraw.Draw(page).text((left, top), text, fill=(10, 10, 10), font=ImageFont.load_default(34))
                right, bottom = left + 22 * len(text), top + 40
                lines.append(
                    {"transcription": text, "points": [[left, top], [right, top], [right, bottom], [left, bottom]]}
                )
            folder = "icdar_c4_train_imgs" if part == "train" else "ch4_test_images"
            _save(page, root / LINES / folder / f"img_{number}.jpg")
            pages.append(f"{folder}/img_{number}.jpg\t{json.dumps(lines)}")
        (root / WORDS / f"rec_gt_{part}.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        (root / LINES / f"{part}_icdar2015_label.txt").write_text("\n".join(pages) + "\n", encoding="utf-8")


def _detector(usual: Path, path: Path) -> None:
    """Write the suite's configuration at a size for a CPU, and without weights that would be downloaded."""
    import yaml

    told = yaml.safe_load(usual.read_text(encoding="utf-8"))
    told["Global"]["pretrained_model"] = None
    for one in told["Train"]["dataset"]["transforms"]:
        if "EastRandomCropData" in one:
            one["EastRandomCropData"]["size"] = [160, 160]
    told["Train"]["loader"]["num_workers"] = told["Eval"]["loader"]["num_workers"] = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(told), encoding="utf-8")


def _save(image: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)  # type: ignore[attr-defined]


def _model(name: str, *settings: str, batch: int = 4) -> Model:
    """Return a model; AutoLog, which ``--benchmark=True`` needs, is on no index."""
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            "python=python",
            "Global.epoch_num=lite_train_lite_infer=2",
            f"Train.loader.batch_size_per_card=lite_train_lite_infer={batch}",
            "--cpu_threads=1",
            "--benchmark=False",
            *settings,
        ),
    )


RECIPE = Recipe(
    suite="paddleocr",
    repository="PaddlePaddle/PaddleOCR",
    models=(
        _model("rec_mv3_none_none_ctc_v2_0"),
        _model("ch_PP-OCRv3_rec"),
        _model(
            "det_mv3_db_v2_0",
            f"norm_train=tools/train.py -c {DETECTOR} -o",
            f"norm_export=tools/export_model.py -c {DETECTOR} -o",
            batch=2,
        ),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), PACKAGES),
    make_data=make_data,
    data=(WORDS, LINES),
    env=ONE_ZLIB,
)
