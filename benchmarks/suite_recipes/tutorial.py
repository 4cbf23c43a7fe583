"""The MobileNetV3 tutorial: four images of two classes.

The inference's timing is switched off, for its package is in no index.
"""

from __future__ import annotations

from pathlib import Path

from suite_recipes import Model, Recipe
from suite_recipes.class_folders import make_class_folders


def make_data(root: Path) -> None:
    """Write the data where the suite's own preparation puts them: the program looks for ``data``."""
    make_class_folders(root)
    link = root / "data"
    if not link.is_symlink():
        link.symlink_to("lite_data")


RECIPE = Recipe(
    suite="tutorial",
    repository="PaddlePaddle/models",
    start="tutorials/mobilenetv3_prod/Step6",
    models=(
        Model(
            name="mobilenet_v3_small",
            file="test_tipc/configs/mobilenet_v3_small/train_infer_python.txt",
            settings=(
                "norm_train=train.py --workers=0",
                "eval=train.py --test-only --workers=0",
                "--epochs=lite_train_lite_infer=1",
                "--benchmark=False",
            ),
        ),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), ("pillow", "reprod-log")),
    make_data=make_data,
    data=("lite_data",),
)
