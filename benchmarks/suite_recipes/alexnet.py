"""AlexNet-Prod: four images of two classes."""

from __future__ import annotations

from suite_recipes import Model, Recipe
from suite_recipes.class_folders import make_class_folders

RECIPE = Recipe(
    suite="alexnet",
    repository="littletomatodonkey/AlexNet-Prod",
    start="pipeline/Step5/AlexNet_paddle",
    models=(
        Model(
            name="AlexNet",
            file="test_tipc/configs/AlexNet/train_infer_python.txt",
            settings=("norm_train=train.py --lr=0.001 --data-path=./lite_data --workers=0",),
        ),
    ),
    packages=dict.fromkeys(("2.6.2", "3.3.1"), ("pillow", "reprod-log")),
    make_data=make_class_folders,
    data=("lite_data",),
)
