"""PaddleVideo: models of skeletons, and one of frames.

Training and evaluation know GPU, NPU and XPU only: ``main.py`` fails on a Paddle without CUDA. A program of ours stands
in front of it, which has the suite's ``set_device("gpu")`` mean the CPU. The last model is without it.
"""

from __future__ import annotations

from pathlib import Path

from suite_recipes import Model, Recipe

SKELETONS, FRAMES = "data/fsd10", "data/k400"
ON_CPU = '''\
"""Run main.py with the CPU for the GPU."""
import runpy
import sys

import paddle

set_device = paddle.set_device
paddle.set_device = lambda name: set_device("cpu" if name == "gpu" else name)
sys.argv[0] = "main.py"
runpy.run_path("main.py", run_name="__main__")
'''
PACKAGES = ("pyyaml", "pandas", "tqdm", "scipy", "decord", "opencv-python-headless<4.12", "requests")
USUAL = ("--cpu_threads=1", "--precision=fp32", "--enable_benchmark=False")
"""``--enable_benchmark=True`` needs AutoLog, which no index has."""


def make_data(root: Path) -> None:
    """Write skeletons of 25 joints, frames of two videos, and the program in front of main.py."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    skeletons = root / SKELETONS
    skeletons.mkdir(parents=True, exist_ok=True)
    np.save(skeletons / "FSD_train_data.npy", rng.random((4, 3, 40, 25, 1), dtype=np.float32))
    np.save(skeletons / "FSD_train_label.npy", rng.integers(0, 30, 4))
    for number in range(2):
        frames = root / FRAMES / "rawframes" / f"video{number}"
        frames.mkdir(parents=True, exist_ok=True)
        for frame in range(1, 9):
            image = Image.fromarray(rng.integers(0, 255, (64, 80, 3), dtype=np.uint8))
            image.save(frames / f"img_{frame:05}.jpg")
    lines = [f"video{number} 8 {number}\n" for number in range(2)]
    (root / FRAMES / "tiny.list").write_text("".join(lines), encoding="utf-8")
    (root / "on_cpu.py").write_text(ON_CPU, encoding="utf-8")


def _skeletons(name: str, yaml: str, *, program: str = "on_cpu.py") -> Model:
    """Return a model of skeletons."""
    config = f"configs/recognition/{yaml}.yaml"
    data = " ".join(
        (
            f"-o DATASET.train.file_path={SKELETONS}/FSD_train_data.npy",
            f"-o DATASET.train.label_path={SKELETONS}/FSD_train_label.npy",
            f"-o DATASET.test.file_path={SKELETONS}/FSD_train_data.npy",
            "-o PIPELINE.train.sample.window_size=40",
            "-o PIPELINE.test.sample.window_size=40",
        )
    )
    return Model(
        name=name if program == "on_cpu.py" else f"{name}, as it is",
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(
            *USUAL,
            "-o epochs=1",
            "-o DATASET.batch_size=2",
            f"norm_train={program} -c {config} --seed 1234 -o DATASET.num_workers=0 {data}",
            f"eval={program} --test -c {config} {data}",
        ),
    )


_TSM = "configs/recognition/pptsm/pptsm_k400_frames_uniform.yaml"
_LIST = f"{FRAMES}/tiny.list"
_LISTS = f"{_LIST} -o DATASET.valid.file_path={_LIST} -o DATASET.test.file_path={_LIST}"
RECIPE = Recipe(
    suite="paddlevideo",
    repository="PaddlePaddle/PaddleVideo",
    models=(
        _skeletons("STGCN", "stgcn/stgcn_fsd"),
        _skeletons("AGCN", "agcn/agcn_fsd"),
        _skeletons("AGCN2s", "agcn2s/agcn2s_ntucs_joint_fsd"),
        Model(
            name="PP-TSM",
            file="test_tipc/configs/PP-TSM/train_infer_python.txt",
            settings=(
                *USUAL,
                "-o epochs=1",
                "-o DATASET.batch_size=1",
                '-o MODEL.backbone.pretrained=""',
                f"norm_train=on_cpu.py --validate -c {_TSM} --seed 1234 -o DATASET.num_workers=0",
                f"eval=on_cpu.py --test -c {_TSM} -o DATASET.num_workers=0",
                f"-o DATASET.train.file_path={_LISTS}",
            ),
        ),
        _skeletons("STGCN", "stgcn/stgcn_fsd", program="main.py"),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), PACKAGES),
    make_data=make_data,
    data=(SKELETONS, FRAMES),
)
