"""torchvision against ``paddle.vision``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Difference, Pair
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
    return Pair(name=name, packages=PACKAGES, build=build, inputs=images(size), losses=cross_entropies, **more)


def use_ceil_mode(reference: Any, port: Any) -> None:
    """Let the port's poolings keep the last window, as the reference's do."""
    del reference
    port._pool.ceil_mode = True


def drop_alike(reference: Any, port: Any) -> None:
    """Let the port's dropout scale in training, as the reference's does."""
    del reference
    for one in port.sublayers():
        if type(one).__name__ == "Dropout":
            one.mode = "upscale_in_train"


DROPOUT = Difference(
    message="Dropout(mode='downscale_in_infer'): torch's scales in training, this one in eval mode", remove=drop_alike
)


def pad_less(reference: Any, port: Any) -> None:
    """Let SqueezeNet 1.1's first convolution not pad, as the reference's does not."""
    del reference
    port._conv._padding, port._conv._updated_padding = 0, [0, 0]


def take_epsilon(reference: Any, port: Any) -> None:
    """Give each BatchNorm of the port the epsilon of the reference's."""
    (epsilon,) = {one.eps for one in reference.modules() if hasattr(one, "running_mean")}
    for one in port.sublayers():
        if hasattr(one, "_epsilon"):
            one._epsilon = epsilon


def drop_as_often(reference: Any, port: Any) -> None:
    """Give the port's only dropout the probability of the reference's."""
    (ours,) = (one for one in reference.modules() if type(one).__name__ == "Dropout")
    (theirs,) = (one for one in port.sublayers() if type(one).__name__ == "Dropout")
    theirs.p = ours.p


CEIL = Difference(message="MaxPool2D without ceil_mode", remove=use_ceil_mode)
PADS = Difference(message="the first convolution pads by 1, the reference's not at all", remove=pad_less)
EPSILON = Difference(message="BatchNorm's epsilon is 1e-5 where the reference's is 1e-3", remove=take_epsilon)
RATE = Difference(message="dropout's p is 0.2 where the reference's is 0.5", remove=drop_as_often)
WORK = (
    pair("resnet18", model("resnet18")),
    pair("mobilenet_v2", model("mobilenet_v2")),
    pair("squeezenet", model("squeezenet1_0"), differences=(CEIL, DROPOUT)),
    pair("googlenet", model("googlenet", ours={"init_weights": False}), size=224, corresponds=False),
    pair("alexnet", model("alexnet"), size=224, differences=(DROPOUT,)),
)
CHECK = (
    pair("vgg11", model("vgg11"), size=224),
    pair("vgg16_bn", model("vgg16_bn", "vgg16", theirs={"batch_norm": True}), size=224),
    pair("densenet121", model("densenet121")),
    pair(
        "inception_v3",
        model("inception_v3", ours={"init_weights": False, "aux_logits": False}),
        size=299,
        differences=(EPSILON, DROPOUT, RATE),
    ),
    pair("shufflenet_v2", model("shufflenet_v2_x1_0")),
    pair("mobilenet_v3_small", model("mobilenet_v3_small")),
    pair("mobilenet_v3_large", model("mobilenet_v3_large")),
    pair("resnet50", model("resnet50")),
    pair("resnext50", model("resnext50_32x4d")),
    pair("wide_resnet50", model("wide_resnet50_2")),
    pair("squeezenet1_1", model("squeezenet1_1"), differences=(CEIL, PADS, DROPOUT)),
)
