"""PaddleRec: models of click-through rates and of several tasks, on random rows."""

from __future__ import annotations

import random
from pathlib import Path

from suite_recipes import Model, Recipe

ROWS = 100
CRITEO, CENSUS = "test_tipc/data", "test_tipc/census"
CPU = ("gpu_list=-1", "runner.use_gpu=False", "--use_gpu=False", "--benchmark=False", "--cpu_threads=1")
"""``--benchmark`` would need AutoLog, which no index has."""


def make_data(root: Path) -> None:
    """Write rows of Criteo's format (26 ids, 13 numbers) and of the census' (499 numbers)."""
    rng = random.Random(0)
    for split in ("train", "infer"):
        _write(root / CRITEO / split / "rows.txt", [_criteo_row(rng) for _ in range(ROWS)])
        _write(root / CENSUS / split / "rows.txt", [_census_row(rng) for _ in range(ROWS)])


def _write(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def _criteo_row(rng: random.Random) -> str:
    numbers = [f"dense_feature:{rng.random():.4f}" for _ in range(13)]
    ids = [f"{slot}:{rng.randrange(1, 1_000_000)}" for slot in range(1, 27)]
    return " ".join([f"click:{rng.randrange(2)}", *numbers, *ids])


def _census_row(rng: random.Random) -> str:
    return ",".join(str(rng.randrange(2)) for _ in range(2 + 499))


def _model(name: str, *settings: str, on_gpu: str = "") -> Model:
    """Return a model; ``on_gpu`` is the configuration that exports on a GPU unless the command says otherwise."""
    export = f"-u tools/to_static.py -m ./models/rank/{name}/{on_gpu} -o runner.CE=true runner.use_gpu=False"
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(*CPU, *settings),
        original_settings=(f"norm_export={export}",) if on_gpu else (),
    )


_CENSUS = (
    f"runner.test_data_dir={CENSUS}/infer",
    f"runner.train_data_dir=../../../{CENSUS}/train",
    f"--data_dir={CENSUS}/infer",
)

RECIPE = Recipe(
    suite="paddlerec",
    repository="PaddlePaddle/PaddleRec",
    models=(
        _model("deepfm", on_gpu="config_bigdata.yaml"),
        _model("wide_deep", on_gpu="config_bigdata.yaml"),
        # Its reader hands the label to the exported model, too: the inference itself is broken.
        _model("dnn"),
        _model("mmoe", *_CENSUS),
        _model("ple", *_CENSUS),
    ),
    packages={
        version: (
            numpy,
            "setuptools",
            "pyyaml",
            "six",
            "requests",
        )
        for version, numpy in (("2.6.2", "numpy<2"), ("3.3.1", "numpy"))
    },
    make_data=make_data,
    data=(CRITEO, CENSUS),
)
