"""PaddleSeg: small networks on generated street scenes and portraits, at a size that a CPU trains in seconds."""

from __future__ import annotations

import random
from pathlib import Path

from suite_recipes import ONE_ZLIB, QUANTIZE, QUANTIZE_ON_CPU, Model, Recipe

SIZE = (128, 64)
DATA = "test_tipc/data"
PACKAGES = (
    "filelock",
    "numpy<2",
    "opencv-python-headless<4.12",
    "pillow",
    "prettytable",
    "pyyaml",
    "six",
    "requests",
    "scikit-image",
    "scikit-learn",
    "scipy",
    "tqdm",
)
OLDER = ("scikit-image<0.25", "scikit-learn<1.6", "scipy<1.14")
"""Later builds of these end the interpreter by a signal when they are imported after paddlepaddle 2.6.2."""
NO_WEIGHTS = "model: {pretrained: null}\n"
CONFIGS = {
    "deeplabv3p_resnet50": (
        "deeplabv3p_resnet50/deeplabv3p_resnet50_humanseg_512x512_mini_supervisely.yml",
        "model: {backbone: {pretrained: null}}\n",
    ),
    "fastscnn": ("fastscnn/fastscnn_cityscapes.yml", NO_WEIGHTS),
    "lpsnet": ("lpsnet/lpsnet_m_cityscapes_1536x1024_200k.yml", NO_WEIGHTS),
    "pphumanseg_lite": ("pphumanseg_lite/pphumanseg_lite_mini_supervisely.yml", NO_WEIGHTS),
    "segnext": ("segnext/segnext_mscan_t_cityscapes_1024x1024_160k.yml", "model: {backbone: {pretrained: null}}\n"),
    "stdc_stdc1": ("stdc_stdc1/stdc1_seg_cityscapes_1024x512_80k.yml", NO_WEIGHTS),
}
"""The suite's configuration by model, and what it must do without: weights that would be downloaded."""


def make_data(root: Path) -> None:
    """Write Cityscapes, Supervisely and matting data of a few images, and the suite's configurations at that size."""
    data = root / DATA
    data.mkdir(parents=True, exist_ok=True)
    chance = random.Random(5)
    _cityscapes(data / "cityscapes", chance)
    _supervisely(data / "mini_supervisely", chance)
    _matting(data / "PPM-100", chance)
    small = f"transforms: [{{type: Resize, target_size: [{SIZE[0]}, {SIZE[1]}]}}, {{type: Normalize}}]"
    parts = "".join(f"{part}: {{{small}}}\n" for part in ("train_dataset", "val_dataset", "export"))
    for name, (config, more) in CONFIGS.items():
        (data / f"tiny_{name}.yml").write_text(f"_base_: '../configs/{config}'\n{parts}{more}")
    (root / QUANTIZE).write_text(QUANTIZE_ON_CPU, encoding="utf-8")


def _cityscapes(folder: Path, chance: random.Random) -> None:
    listed = []
    for part, count in (("train", 4), ("val", 2)):
        images, labels = (folder / kind / part / "town" for kind in ("leftImg8bit", "gtFine"))
        for number in range(count):
            image = images / f"town_{number:06d}_leftImg8bit.png"
            _picture(image, labels / f"town_{number:06d}_gtFine_labelTrainIds.png", chance, classes=19)
            listed += [f"leftImg8bit/val/town/{image.name}"] if part == "val" else []
    (folder / "cityscapes_val_5.list").write_text("\n".join(listed) + "\n")


def _supervisely(folder: Path, chance: random.Random) -> None:
    for part, count in (("train", 4), ("val", 2), ("test", 2)):
        lines = []
        for number in range(count):
            names = f"Images/{part}{number}.png", f"Annotations/{part}{number}.png"
            _picture(folder / names[0], folder / names[1], chance, classes=2)
            lines.append(" ".join(names))
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")


def _matting(folder: Path, chance: random.Random) -> None:
    for part, count in (("train", 4), ("val", 2)):
        names = [f"{part}/fg/{number}.jpg" for number in range(count)]
        for name in names:
            label = folder / name.replace("/fg/", "/alpha/")
            _picture(folder / name, label, chance, classes=2, scale=255, size=(160, 160))
        (folder / f"{part}.txt").write_text("\n".join(names) + "\n")


def _picture(
    image: Path, label: Path, chance: random.Random, *, classes: int, scale: int = 1, size: tuple[int, int] = SIZE
) -> None:
    """Write an image of colored boxes and its label, where each class has a color of its own."""
    from PIL import Image, ImageDraw

    picture, truth = Image.new("RGB", size, (40, 60, 80)), Image.new("L", size, 0)
    for _ in range(6):
        kind = chance.randrange(1, classes)
        left, top = chance.randrange(size[0] - 20), chance.randrange(size[1] - 20)
        box = (left, top, left + 19, top + 19)
        ImageDraw.Draw(picture).rectangle(box, fill=(kind * 13 % 256, 255 - kind * 11, 200))
        ImageDraw.Draw(truth).rectangle(box, fill=kind * scale)
    for path, one in ((image, picture), (label, truth)):
        path.parent.mkdir(parents=True, exist_ok=True)
        one.save(path)


def _model(name: str, train: str, *settings: str, evaluated: bool = False) -> Model:
    config = f"--config {DATA}/tiny_{name}.yml"
    shape = f" --input_shape 1 3 {SIZE[1]} {SIZE[0]}" if name == "segnext" else ""
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            "python=python",
            "--iters=lite_train_lite_infer=2",
            f"norm_train=tools/train.py {config} {train}",
            *((f"eval=tools/val.py {config} --device cpu",) if evaluated else ()),
            f"norm_export=tools/export.py {config}{shape}",
            "--cpu_threads=2",
            "--benchmark=False",
            *settings,
        ),
    )


def _speed(name: str, item: str, last_line: str) -> Model:
    """Return a model whose training's speed is measured in eight iterations."""
    return Model(
        name=f"{name}, {item.partition('_')[0]}",
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            "python=python",
            f"norm_train=tools/train.py --config {DATA}/tiny_{name}.yml --device cpu --save_interval 500 --seed 100",
            "train_benchmark_params:epoch=8",
            f"log_iters={last_line}",
        ),
        mode="benchmark_train",
        chain="benchmark_train",
        argument=item,
    )


def _onnx(model: str, folder: str, config: str) -> Model:
    """Return a model that is converted; its weights are those that it begins with."""
    folder = f"test_tipc/infer_models/{folder}"
    return Model(
        name=model,
        file=f"test_tipc/configs/{model}/{model}_model_linux_gpu_normal_normal_paddle2onnx_python_linux_cpu.txt",
        settings=("python=python",),
        mode="paddle2onnx_infer",
        versions=("3.3.1",),  # the export is that of one version
        chain="paddle2onnx",
        makes=((f"{folder}/model.pdiparams", f"tools/export.py --config {config} --save_dir {folder}"),),
    )


def _quantized() -> Model:
    """Return a model that is quantized after a short training: one that was not trained decides nothing."""
    config, trained = f"{DATA}/tiny_pphumanseg_lite.yml", f"{DATA}/trained_pphumanseg_lite"
    folder = "test_tipc/output/pp_humanseg_lite_KL/pp_humanseg_lite_export_398x224"
    train = f"tools/train.py --config {config} --device cpu --seed 100 --iters 150 --batch_size 4 --num_workers 0"
    export = f"tools/export.py --config {config} --output_op argmax --model_path {trained}/iter_150/model.pdparams"
    return Model(
        name="pphumanseg_lite",
        file="test_tipc/configs/pphumanseg_lite/train_ptq_infer_python.txt",
        settings=(
            "python=python",
            f"PTQ={QUANTIZE} deploy/slim/quant/ptq.py",
            f"ptq_params:--config={config}",
            "--device=cpu",
            "--benchmark=False",
        ),
        mode="whole_infer",
        chain="ptq_infer_python",
        versions=("2.6.2",),
        makes=(
            (f"{trained}/iter_150/model.pdparams", f"{train} --save_interval 150 --save_dir {trained}"),
            (f"{folder}/model.pdiparams", f"{export} --save_dir {folder}"),
        ),
    )


RECIPE = Recipe(
    suite="paddleseg",
    repository="PaddlePaddle/PaddleSeg",
    models=(
        _model("pphumanseg_lite", "--device cpu --save_interval 500 --seed 100"),
        _model("fastscnn", "--device cpu --save_interval 500 --seed 100", evaluated=True),
        _model("stdc_stdc1", "--device cpu --save_interval 500 --seed 100", evaluated=True),
        _model("lpsnet", "--do_eval --save_interval 500 --seed 100 --device cpu"),
        _model("segnext", "--do_eval --save_interval 500 --seed 100"),
        Model(
            name="ppmatting",
            file="test_tipc/configs/ppmatting/train_infer_python.txt",
            settings=(
                "python=python",
                "--iters=lite_train_lite_infer=1",
                (
                    "norm_train=Matting/tools/train.py --config test_tipc/configs/ppmatting/modnet_mobilenetv2.yml"
                    " --device cpu --save_interval 500 --seed 100"
                ),
                "--cpu_threads=2",
                "--benchmark=False",
            ),
        ),
        _speed("fastscnn", "dynamic_bs2_fp32_DP_N1C1", "1;repeats:10"),
        _speed("fastscnn", "dynamicTostatic_bs2_fp32_DP_N1C1", "1;repeats:10"),
        _speed("stdc_stdc1", "dynamic_bs2_fp32_DP_N1C1", "1;skip_iters:1;repeats:4"),
        Model(
            name="deeplabv3p_resnet50",
            file="test_tipc/configs/deeplabv3p_resnet50/train_dy2static_python.txt",
            settings=(
                "python=python",
                (
                    f"norm_train=tools/train.py --config {DATA}/tiny_deeplabv3p_resnet50.yml --device cpu"
                    " --save_interval 500 --seed 100 --log_iters=1"
                ),
            ),
            chain="dy2static",
        ),
        _onnx("pphumanseg_lite", "pp_humanseg_lite_export_398x224", f"{DATA}/tiny_pphumanseg_lite.yml"),
        _onnx(
            "fcn_hrnetw18_small",
            "pp_humanseg_mobile_export_192x192",
            "test_tipc/configs/fcn_hrnetw18_small/fcn_hrnetw18_small_v1_humanseg_192x192_mini_supervisely.yml",
        ),
        _quantized(),
    ),
    packages={"2.6.2": (*PACKAGES, *OLDER), "3.3.1": PACKAGES},
    make_data=make_data,
    env={"PYTHONPATH": ".", **ONE_ZLIB},
    # The folders themselves: where images alone are missing, training waits for its reader for ever.
    data=(f"{DATA}/cityscapes", f"{DATA}/mini_supervisely"),
)
