"""PaddleClas: eight images of two classes, and a checkout that is importable as ``paddleclas``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from suite_recipes import ONE_ZLIB, Model, Recipe

IMAGES, CLASSES, SIDE = 8, 2, 256
CONFIGS = "ppcls/configs"
ON_CPU = "-o Global.device=cpu"
NO_WORKERS = "-o DataLoader.Eval.loader.num_workers=0"
# The recognition's backbone would be downloaded, and its head has 185,341 classes.
SMALL = "-o Arch.Backbone.pretrained=False -o Arch.Head.class_num=2"
UNEVALUATED = "-o DataLoader.Train.loader.num_workers=0 -o Global.eval_during_train=False"
SERIAL = " ".join(f"-o DataLoader.Eval.{part}.loader.num_workers=0" for part in ("Query", "Gallery"))


def make_data(root: Path) -> None:
    """Write ImageNet's and the recognition's layouts with a few random images, and a link for the installed suite."""
    images = root / "dataset" / "ILSVRC2012"
    for part in ("train", "val"):
        names = [f"{part}/ILSVRC2012_{part}_{index:08d}.JPEG" for index in range(1, IMAGES + 1)]
        write_images(images, names)
        write_list(images / f"{part}_list.txt", names)
    products = root / "dataset" / "Aliproduct"
    names = [f"demo_test/{index}.jpg" for index in range(1, IMAGES + 1)]
    write_images(products, names)
    write_list(products / "val_list.txt", names)
    write_list(root / "dataset" / "train_reg_all_data.txt", [f"Aliproduct/{name}" for name in names])
    link = root / ".installed" / "paddleclas"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(root.resolve())


def write_images(folder: Path, names: Sequence[str]) -> None:
    """Write random images."""
    draw = np.random.default_rng(0)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(folder / name, "JPEG")


def write_list(path: Path, names: Sequence[str]) -> None:
    """Write a list of images with their classes."""
    path.write_text("".join(f"{name} {index % CLASSES}\n" for index, name in enumerate(names)))


def classifier(name: str, family: str, folder: str) -> Model:
    """Return a classifier of ImageNet."""
    config = f"{CONFIGS}/ImageNet/{family}/{name}.yaml"
    return Model(
        name=name,
        file=f"test_tipc/configs/{folder}/{name}_train_infer_python.txt",
        settings=(f"eval=tools/eval.py -c {config} {NO_WORKERS}",),
        original_settings=(f"norm_export=tools/export_model.py -c {config} {ON_CPU}",),
    )


def speed(name: str, family: str, item: str) -> Model:
    """Return a classifier whose training's speed is measured."""
    config = f"{CONFIGS}/ImageNet/{family}/{name}.yaml"
    return Model(
        name=f"{name}, {item.partition('_')[0]}",
        file=f"test_tipc/configs/{family}/{name}_train_infer_python.txt",
        # Eight images are four iterations of two.
        settings=("python=python", f"norm_train=tools/train.py -c {config} {UNEVALUATED} -o Global.print_batch_step=1"),
        mode="benchmark_train",
        chain="benchmark_train",
        argument=item,
        words=("--warm-up=1",),
    )


def exported(name: str, family: str) -> str:
    """Return the export of a classifier; the folder follows."""
    config = f"{CONFIGS}/ImageNet/{family}/{name}.yaml"
    return f"tools/export_model.py -c {config} {ON_CPU} -o Global.save_inference_dir"


def onnx(name: str, family: str) -> Model:
    """Return a classifier that is converted; its weights are those that it begins with."""
    folder = f"deploy/models/{name}_infer"
    return Model(
        name=name,
        file=f"test_tipc/configs/{family}/{name}_linux_gpu_normal_normal_paddle2onnx_python_linux_cpu.txt",
        settings=("python=python",),
        mode="paddle2onnx_infer",
        versions=("3.3.1",),  # the export is that of one version
        chain="paddle2onnx",
        makes=((f"{folder}/inference.pdiparams", f"{exported(name, family)}={folder}"),),
    )


RECOGNITION = f"{CONFIGS}/GeneralRecognition/GeneralRecognition_PPLCNet_x2_5.yaml"
COMMON = (
    "pillow",
    "tqdm",
    "PyYAML",
    "scipy",
    "scikit-learn",
    "faiss-cpu",
    "easydict",
    "prettytable",
    "ujson",
    "requests",
)

RECIPE = Recipe(
    suite="paddleclas",
    repository="PaddlePaddle/PaddleClas",
    models=(
        classifier("PPLCNet_x0_25", "PPLCNet", "PPLCNet"),
        classifier("MobileNetV3_small_x0_35", "MobileNetV3", "MobileNetV3"),
        classifier("ShuffleNetV2_x0_25", "ShuffleNet", "ShuffleNet"),
        Model(
            name="GeneralRecognition_PPLCNet_x2_5",
            file="test_tipc/configs/GeneralRecognition/GeneralRecognition_PPLCNet_x2_5_train_infer_python.txt",
            settings=(
                f"norm_train=tools/train.py -c {RECOGNITION} {SMALL} {UNEVALUATED}",
                f"eval=tools/eval.py -c {RECOGNITION} {SMALL} {SERIAL}",
                f"norm_export=tools/export_model.py -c {RECOGNITION} {SMALL} {ON_CPU}",
            ),
        ),
        speed("PPLCNet_x1_0", "PPLCNet", "dynamic_bs2_fp32_DP_N1C1"),
        speed("PPLCNet_x1_0", "PPLCNet", "dynamicTostatic_bs2_fp32_DP_N1C1"),
        onnx("PPLCNet_x0_25", "PPLCNet"),
        onnx("PPLCNet_x1_0", "PPLCNet"),
        Model(
            name="MobileNetV3_large_x1_0",
            file="test_tipc/configs/MobileNetV3/MobileNetV3_large_x1_0_train_dy2static_python.txt",
            settings=("base_train:python=python", "base_train:-o DataLoader.Train.sampler.batch_size=2"),
            chain="dy2static",
        ),
        Model(
            name="PPLCNet_x0_25",
            file="test_tipc/configs/PPLCNet/PPLCNet_x0_25_train_ptq_infer_python.txt",
            settings=("python=python",),
            mode="whole_infer",
            versions=("2.6.2",),
            chain="ptq_infer_python",
            makes=(
                (
                    "PPLCNet_x0_25_infer/inference.pdiparams",
                    f"{exported('PPLCNet_x0_25', 'PPLCNet')}=PPLCNet_x0_25_infer",
                ),
            ),
        ),
    ),
    packages={
        "2.6.2": (*COMMON, "opencv-python-headless<4.10", "visualdl", "pandas<3"),
        "3.3.1": (*COMMON, "opencv-python-headless", "visualdl"),
    },
    make_data=make_data,
    data=("dataset/ILSVRC2012",),
    # As after the suite's own `python setup.py install`; its package imports the checkout's `ppcls` besides.
    env={"PYTHONPATH": ".installed:../.installed:.:..", **ONE_ZLIB},
)
