"""torchvision against ``paddle.vision``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Pair
from port_recipes.feeding import cross_entropies, images
from port_recipes.importing import import_torchvision

PACKAGES = ("torchvision 0.29.0", "paddlepaddle 3.3.1")


def model(
    name: str, port: str = "", ours: Mapping[str, Any] = {}, theirs: Mapping[str, Any] = {}
) -> Callable[[], tuple[Any, Any]]:
    """Return a builder of a model of torchvision and of ``paddle.vision``, with ten classes."""

    def build() -> tuple[Any, Any]:
        torchvision = import_torchvision()
        import paddle

        reference = getattr(torchvision.models, name)(num_classes=10, **ours)
        return reference, getattr(paddle.vision.models, port or name)(num_classes=10, **theirs)

    return build


def pair(name: str, build: Callable[[], tuple[Any, Any]], size: int = 64, **more: Any) -> Pair:
    """Return a pair of classifiers."""
    return Pair(
        name=name, packages=PACKAGES, build=build, inputs=images(size), losses=cross_entropies, **more
    )


WORK = (
    pair("resnet18", model("resnet18")),
    pair("mobilenet_v2", model("mobilenet_v2")),
    pair("squeezenet", model("squeezenet1_0")),
    pair("googlenet", model("googlenet", ours={"init_weights": False}), size=224),
    pair("alexnet", model("alexnet"), size=224),
)
CHECK: tuple[Pair, ...] = ()
