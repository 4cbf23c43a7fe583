"""timm or torchvision against PaddleClas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Pair
from port_recipes.feeding import cross_entropies, images
from port_recipes.importing import import_paddleclas, import_timm, import_torchvision

TIMM = ("timm 1.0.31", "PaddleClas d178931")
TORCHVISION = ("torchvision 0.29.0", "PaddleClas d178931")


def model(
    name: str, module: str, port: str, ours: Mapping[str, Any] = {}, theirs: Mapping[str, Any] = {}
) -> Callable[[], tuple[Any, Any]]:
    """Return a builder of a model of timm and of PaddleClas, with ten classes; ``torchvision:name`` is one of that."""

    def build() -> tuple[Any, Any]:
        package, _, bare = name.rpartition(":")
        if package:
            reference = getattr(import_torchvision().models, bare)(num_classes=10, **ours)
        else:
            reference = import_timm().create_model(bare, num_classes=10, **ours)
        return reference, getattr(import_paddleclas(module), port)(class_num=10, **theirs)

    return build


def pair(name: str, build: Callable[[], tuple[Any, Any]], size: int = 64, packages: tuple[str, str] = TIMM, **more: Any) -> Pair:  # fmt: skip
    """Return a pair of classifiers."""
    return Pair(
        name=name, packages=packages, build=build, inputs=images(size), losses=cross_entropies, **more
    )


def vit(dropout: float = 0.0) -> Callable[[], tuple[Any, Any]]:
    """Return a builder of a small ViT, with every kind of dropout that it has."""
    both = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 3,
        "num_heads": 4,
        "drop_path_rate": 2 * dropout,
    }
    return model(
        "vit_base_patch16_224", "model_zoo.vision_transformer", "VisionTransformer",
        both | {"pos_drop_rate": dropout, "proj_drop_rate": dropout, "attn_drop_rate": dropout},
        both | {"qkv_bias": True, "epsilon": 1e-6, "drop_rate": dropout, "attn_drop_rate": dropout},
    )  # fmt: skip


WORK = (
    pair("clas_resnet50", model("torchvision:resnet50", "legendary_models.resnet", "ResNet50"), packages=TORCHVISION),
    pair("se_resnext50", model("seresnext50_32x4d", "model_zoo.se_resnext", "SE_ResNeXt50_32x4d")),
    pair("res2net50", model("res2net50_26w_4s", "model_zoo.res2net", "Res2Net50_26w_4s")),
    pair("swin", model("swin_tiny_patch4_window7_224", "legendary_models.swin_transformer", "SwinTransformer_tiny_patch4_window7_224"), size=224),
    pair("convnext", model("convnext_tiny", "model_zoo.convnext", "ConvNeXt_tiny")),
    pair("efficientnet_b0", model("efficientnet_b0", "model_zoo.efficientnet", "EfficientNetB0")),
    pair("pvt_v2", model("pvt_v2_b0", "model_zoo.pvt_v2", "PVT_V2_B0")),
    pair("mobilevit_v2", model("mobilevitv2_050", "model_zoo.mobilevit_v2", "MobileViTV2_x0_5")),
    pair("nextvit", model("nextvit_small", "model_zoo.nextvit", "NextViT_small_224")),
    pair("xception41", model("xception41", "model_zoo.xception_deeplab", "Xception41_deeplab")),
    pair("darknet53", model("darknet53", "model_zoo.darknet", "DarkNet53")),
    pair("vit", vit(), size=32),
    pair("vit_dropout", vit(0.1), size=32),
)  # fmt: skip
CHECK: tuple[Pair, ...] = ()
