"""PaddleGAN: models that make small images larger or take the noise from them, on random images.

Those that are judged by FID (Pix2pix, CycleGAN, StyleGANv2, SinGAN) download its network in the inference itself.
"""

from __future__ import annotations

from pathlib import Path

from suite_recipes import Model, Recipe

PACKAGES = (
    "pyyaml",
    "tqdm",
    "scipy",
    "scikit-image",
    "scikit-learn",
    "opencv-python-headless<4.12",
    "imageio",
    "easydict",
    "munch",
    "natsort",
    "matplotlib",
    "six",
    "requests",
)
FOLDERS = {
    "data/DIV2K/DIV2K_train_HR_sub": (128, 2),
    "data/DIV2K/DIV2K_train_LR_bicubic/X4_sub": (32, 2),
    "data/Set14/GTmod12": (128, 1),
    "data/Set14/LRbicx4": (32, 1),
    "data/SIDD/train/input": (256, 2),
    "data/SIDD/train/target": (256, 2),
    "data/SIDD/val/input": (256, 1),
    "data/SIDD/val/target": (256, 1),
    "data/trainsets/trainH": (128, 2),
    "data/trainsets/CBSD68": (128, 1),
}
"""Folders of images: their size and number."""


def make_data(root: Path) -> None:
    """Write random images."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for folder, (size, count) in FOLDERS.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            image = Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8))
            image.save(root / folder / f"{number}.png")


def _model(name: str, config: str, small: str, size: str, *settings: str) -> Model:
    """Return a model made ``small`` by the words of the configuration, exported for images of ``size``."""
    train = f"-o {small} log_config.interval=1 snapshot_config.interval=2 dataset.train.num_workers=0"
    export = f"tools/export_model.py -c configs/{config}.yaml"
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            "7:total_iters=lite_train_lite_infer=2",
            f"norm_train=tools/main.py -c configs/{config}.yaml --seed 123 {train} dataset.train.batch_size=1",
            f"norm_export={export} -o {small} --inputs_size={size} --model_name inference --load",
            *settings,
        ),
    )


SNAPSHOT = "snapshot_config.interval=lite_train_lite_infer=2"
RECIPE = Recipe(
    suite="paddlegan",
    repository="PaddlePaddle/PaddleGAN",
    models=(
        _model(
            "esrgan",
            "esrgan_psnr_x4_div2k",
            "model.generator.nb=1 model.generator.nf=8",
            "1,3,32,32",
            "dataset.train.batch_size=lite_train_lite_infer=1",
        ),
        _model("nafnet", "nafnet_denoising", "model.generator.width=4", "1,3,256,256", SNAPSHOT),
        _model(
            "swinir",
            "swinir_denoising",
            "model.generator.embed_dim=12 model.generator.depths=[2,2] model.generator.num_heads=[2,2]",
            "1,3,128,128",
            SNAPSHOT,
        ),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), PACKAGES),
    make_data=make_data,
    data=("data/DIV2K", "data/Set14", "data/SIDD", "data/trainsets"),
)
