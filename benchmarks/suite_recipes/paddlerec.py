"""PaddleRec: models of click-through rates and of several tasks, on random rows."""

from __future__ import annotations

import random
from pathlib import Path

from suite_recipes import Model, Recipe

ROWS = 100
CRITEO, CENSUS = "test_tipc/data", "test_tipc/census"
USUAL = ("--benchmark=False", "--cpu_threads=1")
"""``--benchmark=True`` needs AutoLog, which no index has."""
ON_CENSUS = (
    f"runner.test_data_dir={CENSUS}/infer",
    f"runner.train_data_dir=../../../{CENSUS}/train",
    f"--data_dir={CENSUS}/infer",
)


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


def _model(name: str, *settings: str, exports_on_gpu: bool = False) -> Model:
    """Return a model; the YAML of one that ``exports_on_gpu`` says so, and the original's export reads no device."""
    export = f"-u tools/to_static.py -m ./models/rank/{name}/config_bigdata.yaml -o runner.CE=true"
    return Model(
        name=name,
        file=f"test_tipc/configs/{name}/train_infer_python.txt",
        settings=(*USUAL, *settings),
        original_settings=(f"norm_export={export} runner.use_gpu=False",) if exports_on_gpu else (),
    )


RECIPE = Recipe(
    suite="paddlerec",
    repository="PaddlePaddle/PaddleRec",
    models=(
        _model("deepfm", exports_on_gpu=True),
        _model("wide_deep", exports_on_gpu=True),
        _model("dnn"),  # its reader hands the exported model the label, too, so that inference fails
        _model("mmoe", *ON_CENSUS),
        _model("ple", *ON_CENSUS),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), ("pyyaml", "six", "requests")),
    make_data=make_data,
    data=(CRITEO, CENSUS),
)
