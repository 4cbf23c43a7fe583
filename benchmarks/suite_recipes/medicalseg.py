"""MedicalSeg (PaddleSeg/contrib): VNet on generated volumes of 16 x 16 x 16 voxels."""

from __future__ import annotations

from pathlib import Path

from suite_recipes import ONE_ZLIB, Model, Recipe
from suite_recipes.paddleseg import OLDER, PACKAGES

SIDE = 16
DATA = "test_tipc/data"
NAME = "mini_lung_coronavirus"
CONFIG = f"""\
_base_: '../configs/vnet/lung_coronavirus_test.yml'
train_dataset:
  transforms: [{{type: RandomResizedCrop3D, size: {SIDE}, scale: [0.8, 1.2]}}, {{type: RandomFlip3D}}]
val_dataset: {{num_classes: 3}}
test_dataset: {{num_classes: 3}}
"""


def make_data(root: Path) -> None:
    """Write volumes with a bright box each as the data of lungs, and VNet's configuration at that size."""
    import numpy as np

    folder = root / DATA / NAME
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(3)
    for part, count in (("train", 1), ("val", 1), ("test", 1)):
        lines = []
        for number in range(count):
            names = [f"{kind}/{part}{number}.npy" for kind in ("images", "labels")]
            image, label = np.zeros((SIDE,) * 3, "float32"), np.zeros((SIDE,) * 3, "int64")
            start = chance.integers(2, SIDE // 2, 3)
            box = tuple(slice(one, one + SIDE // 3) for one in start)
            image += chance.normal(0, 0.1, image.shape).astype("float32")
            image[box] += 1
            label[box] = 1 + number % 2
            np.save(folder / names[0], image)
            np.save(folder / names[1], label)
            lines.append(" ".join(names))
        (folder / f"{part}_list.txt").write_text("\n".join(lines) + "\n")
    (root / DATA / "tiny_vnet.yml").write_text(CONFIG)


CONFIG_WORDS = f"--config {DATA}/tiny_vnet.yml"
DATA_WORDS = "--is_save_data False --has_dataset_json False"
EXPORT = f"./export.py {CONFIG_WORDS} --without_argmax --input_shape 1 1 {SIDE} {SIDE} {SIDE}"


def _model(name: str, more: str, *settings: str) -> Model:
    train = f"./train.py {CONFIG_WORDS} --save_interval 2 --log_iters 1{more} --keep_checkpoint_max 1 --seed 0"
    return Model(
        name=name,
        file="test_tipc/configs/vnet/train_infer_python.txt",
        settings=(
            "python=python",
            "--iters=lite_train_lite_infer=2",
            "train_params:--batch_size=lite_train_lite_infer=5",
            f"norm_train={train} {DATA_WORDS}",
            f"norm_export={EXPORT}",
            "--benchmark=False",
            *settings,
        ),
    )


RECIPE = Recipe(
    suite="medicalseg",
    repository="PaddlePaddle/PaddleSeg",
    models=(
        _model("vnet", " --do_eval", f"eval=./test.py {CONFIG_WORDS} {DATA_WORDS}"),
        # Its evaluation fails on Paddle 2.6 and later: a loss is no array of one element there.
        _model("vnet_unevaluated", "", "eval=null", "train_model_name=iter_2/model.pdparams"),
    ),
    packages=dict.fromkeys(
        ("2.6.2", "3.3.1"), (*PACKAGES, *OLDER, "SimpleITK", "nibabel", "pydicom", "pynrrd", "medpy")
    ),
    make_data=make_data,
    data=(f"{DATA}/{NAME}/images",),
    start="contrib/MedicalSeg",
    env={"PYTHONPATH": ".", **ONE_ZLIB},
)
