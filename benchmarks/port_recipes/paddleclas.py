"""timm or torchvision against PaddleClas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Difference, Pair
from port_recipes.feeding import cross_entropies, images, replace_forward
from port_recipes.importing import import_paddleclas, import_timm, import_torchvision
from port_recipes.paddlevision import CEIL, DROPOUT, EPSILON, PADS

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


def pair(
    name: str, build: Callable[[], tuple[Any, Any]], size: int = 64, packages: tuple[str, str] = TIMM, **more: Any
) -> Pair:
    """Return a pair of classifiers."""
    return Pair(name=name, packages=packages, build=build, inputs=images(size), losses=cross_entropies, **more)


def vit(dropout: float = 0.0) -> Callable[[], tuple[Any, Any]]:
    """Return a builder of a small ViT, with every kind of dropout that it has."""
    both = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 3, "num_heads": 4, "drop_path_rate": 2 * dropout}
    return model(
        "vit_base_patch16_224",
        "model_zoo.vision_transformer",
        "VisionTransformer",
        both | {"pos_drop_rate": dropout, "proj_drop_rate": dropout, "attn_drop_rate": dropout},
        both | {"qkv_bias": True, "epsilon": 1e-6, "drop_rate": dropout, "attn_drop_rate": dropout},
    )


def open_stages_alike(reference: Any, port: Any) -> None:
    """Let Res2Net's first block of each stage neither add nor pass by, and its pooling count the padding, as timm does."""
    del reference
    import paddle

    def forward(block: Any, inputs: Any) -> Any:
        parts = paddle.split(block.conv0(inputs), block.scales, 1)
        done = [conv(part) for part, conv in zip(parts, block.conv1_list, strict=False)]
        out = block.conv2(paddle.concat([*done, block.pool2d_avg(parts[-1])], axis=1))
        return paddle.nn.functional.relu(block.short(inputs) + out)

    for one in port.sublayers():
        if type(one).__name__ == "BottleneckBlock" and not one.shortcut:
            one.pool2d_avg.exclusive = False
            replace_forward(one, forward)


def leak(reference: Any, port: Any) -> None:
    """Give DarkNet the leaky activation that timm's has."""
    del reference
    import paddle

    def forward(block: Any, hidden: Any) -> Any:
        return paddle.nn.functional.leaky_relu(block._bn(block._conv(hidden)), 0.01)

    for one in port.sublayers():
        if type(one).__name__ == "ConvBNLayer":
            one._bn._act = None
            replace_forward(one, forward)


def take_momentum(reference: Any, port: Any) -> None:
    """Give each BatchNorm of the port the momentum of the reference's."""
    import torch

    (momentum,) = {
        one.momentum for one in reference.modules() if isinstance(one, torch.nn.modules.batchnorm._BatchNorm)
    }
    for one in port.sublayers():
        if hasattr(one, "_momentum"):
            one._momentum = 1 - momentum


def hold_still(reference: Any, port: Any) -> None:
    """Let Swin's blocks not shift where one window is the whole map, as timm's do not."""
    del reference
    for one in port.sublayers():
        if type(one).__name__ == "SwinTransformerBlock" and min(one.input_resolution) <= one.window_size:
            one.shift_size = 0


def close_up(reference: Any, port: Any) -> None:
    """Let Xception's last block look at neighbours, as timm's does for a stride of 32."""
    del reference
    for one in port._exit_flow_2.sublayers():
        if getattr(one, "_dilation", None) == [2, 2]:
            one._dilation, one._padding, one._updated_padding = [1, 1], 1, [1, 1]


def drop_pooled(reference: Any, port: Any) -> None:
    """Let Xception drop what it has pooled, as timm's does."""
    del reference
    import paddle

    port._pool = paddle.nn.Sequential(port._pool, port._drop)
    port._drop = paddle.nn.Identity()


def norm_alike(reference: Any, port: Any) -> None:
    """Give MobileViT's last norms the epsilon of timm's."""
    del reference
    for one in port.sublayers():
        if type(one).__name__ == "Transformer":
            one.norm._epsilon = 1e-5


def drop_nothing_inside(reference: Any, port: Any) -> None:
    """Take away the dropout inside of MobileViT's blocks, which timm's has not."""
    del reference
    for path, one in port.named_sublayers():
        if type(one).__name__ == "Dropout" and "." in path:
            one.p = 0.0


def clip_at_six(reference: Any, port: Any) -> None:
    """Give MobileNet the ReLU6 that timm's has."""
    del reference
    import paddle

    for one in port.sublayers():
        if hasattr(one, "relu"):
            one.relu = paddle.nn.ReLU6()


MOMENTUM = Difference(
    message="BatchNorm's momentum is 0.99 where timm's is 0.9 in Paddle's terms", remove=take_momentum
)
OPENED = Difference(
    message="the first block of a stage adds, passes by its pooling, and its pooling leaves out the padding",
    remove=open_stages_alike,
)
WORK = (
    pair("clas_resnet50", model("torchvision:resnet50", "legendary_models.resnet", "ResNet50"), packages=TORCHVISION),
    pair("se_resnext50", model("seresnext50_32x4d", "model_zoo.se_resnext", "SE_ResNeXt50_32x4d")),
    pair("res2net50", model("res2net50_26w_4s", "model_zoo.res2net", "Res2Net50_26w_4s"), differences=(OPENED,)),
    pair("swin", model("swin_tiny_patch4_window7_224", "legendary_models.swin_transformer", "SwinTransformer_tiny_patch4_window7_224", {"drop_path_rate": 0.2}), size=224,
         differences=(Difference(message="the last stage shifts and masks, though one window is the whole map; timm does not", remove=hold_still),)),
    pair("convnext", model("convnext_tiny", "model_zoo.convnext", "ConvNeXt_tiny")),
    pair("efficientnet_b0", model("tf_efficientnet_b0", "model_zoo.efficientnet", "EfficientNetB0", {"drop_rate": 0.2, "drop_path_rate": 0.2}), size=224,
         differences=(MOMENTUM,)),
    pair("pvt_v2", model("pvt_v2_b0", "model_zoo.pvt_v2", "PVT_V2_B0")),
    pair("mobilevit_v2", model("mobilevitv2_050", "model_zoo.mobilevit_v2", "MobileViTV2_x0_5")),
    pair("nextvit", model("nextvit_small", "model_zoo.nextvit", "NextViT_small_224")),
    pair("xception41", model("xception41", "model_zoo.xception_deeplab", "Xception41_deeplab", {"drop_rate": 0.5}),
         differences=(Difference(message="the last block's convolutions have a dilation of 2, timm's 1 for a stride of 32", remove=close_up), MOMENTUM, DROPOUT,
                      Difference(message="dropout stands before the pooling, timm's after it", remove=drop_pooled))),
    pair("darknet53", model("darknet53", "model_zoo.darknet", "DarkNet53"),
         differences=(Difference(message="ReLU where timm has LeakyReLU(0.01)", remove=leak),)),
    pair("vit", vit(), size=32),
    pair("vit_dropout", vit(0.1), size=32),
)  # fmt: skip
CHECK = (
    pair("clas_vgg11", model("torchvision:vgg11", "legendary_models.vgg", "VGG11"), size=224, packages=TORCHVISION, corresponds=False),
    pair("clas_densenet121", model("torchvision:densenet121", "model_zoo.densenet", "DenseNet121"), packages=TORCHVISION),
    pair("clas_mobilenet_v2", model("torchvision:mobilenet_v2", "model_zoo.mobilenet_v2", "MobileNetV2"), packages=TORCHVISION, corresponds=False),
    pair("clas_mobilenet_v3", model("torchvision:mobilenet_v3_large", "legendary_models.mobilenet_v3", "MobileNetV3_large_x1_0"), packages=TORCHVISION, corresponds=False),
    pair("clas_squeezenet", model("torchvision:squeezenet1_1", "model_zoo.squeezenet", "SqueezeNet1_1"), packages=TORCHVISION, differences=(CEIL, PADS, DROPOUT)),
    pair("clas_shufflenet_v2", model("torchvision:shufflenet_v2_x1_0", "model_zoo.shufflenet_v2", "ShuffleNetV2_x1_0"), packages=TORCHVISION),
    pair("clas_resnext50", model("torchvision:resnext50_32x4d", "model_zoo.resnext", "ResNeXt50_32x4d"), packages=TORCHVISION),
    pair("clas_inception_v3", model("inception_v3", "legendary_models.inception_v3", "InceptionV3", {"drop_rate": 0.2}), size=299, differences=(EPSILON, DROPOUT)),
    pair("clas_inception_v4", model("inception_v4", "model_zoo.inception_v4", "InceptionV4", {"drop_rate": 0.2}), size=299, corresponds=False),
    pair("hrnet", model("hrnet_w18", "legendary_models.hrnet", "HRNet_W18_C"), corresponds=False),
    pair("regnet", model("regnetx_004", "model_zoo.regnet", "RegNetX_400MF")),
    pair("ghostnet", model("ghostnet_100", "model_zoo.ghostnet", "GhostNet_x1_0"), corresponds=False),
    pair("mixnet", model("mixnet_s", "model_zoo.mixnet", "MixNet_S"), size=224),
    pair("rexnet", model("rexnet_100", "model_zoo.rexnet", "ReXNet_1_0")),
    pair("deit", model("deit_tiny_patch16_224", "model_zoo.distilled_vision_transformer", "DeiT_tiny_patch16_224"), size=224),
    pair("deit_distilled", model("deit_tiny_distilled_patch16_224", "model_zoo.distilled_vision_transformer", "DeiT_tiny_distilled_patch16_224"), size=224),
    pair("tnt", model("tnt_s_patch16_224", "model_zoo.tnt", "TNT_small"), size=224),
    pair("twins_pcpvt", model("twins_pcpvt_small", "model_zoo.twins", "pcpvt_small"), size=224),
    pair("twins_svt", model("twins_svt_small", "model_zoo.twins", "alt_gvt_small"), size=224),
    pair("levit", model("levit_128s", "model_zoo.levit", "LeViT_128S", {"distilled": False}), size=224),
    pair("repvgg", model("repvgg_a0", "model_zoo.repvgg", "RepVGG_A0")),
    pair("resnest", model("resnest50d", "model_zoo.resnest", "ResNeSt50"), corresponds=False),
    pair("dla34", model("dla34", "model_zoo.dla", "DLA34")),
    pair("dpn68", model("dpn68", "model_zoo.dpn", "DPN68"), differences=(EPSILON,)),
    pair("mobilevit", model("mobilevit_xxs", "model_zoo.mobilevit", "MobileViT_XXS", {"drop_rate": 0.1}),
         differences=(Difference(message="the last norm of each block has an epsilon of 1e-6, timm's 1e-5", remove=norm_alike),
                      Difference(message="dropout of 0.1 after attention and in MLPs, where timm has none", remove=drop_nothing_inside))),
    pair("tinynet", model("tinynet_e", "model_zoo.tinynet", "TinyNet_E"), corresponds=False),
    pair("cspdarknet53", model("cspdarknet53", "model_zoo.cspnet", "CSPDarkNet53")),
    pair("efficientnet_v2", model("tf_efficientnetv2_s", "model_zoo.efficientnet_v2", "EfficientNetV2_S", {"drop_rate": 0.1, "drop_path_rate": 0.2})),
    pair("fasternet", model("fasternet_t0", "model_zoo.fasternet", "FasterNet_T0"), differences=(MOMENTUM,)),
    pair("starnet", model("starnet_s1", "model_zoo.starnet", "StarNet_S1")),
    pair("resnet50_vd", model("resnet50d", "legendary_models.resnet", "ResNet50_vd")),
    pair("mobilenet_v1", model("mobilenetv1_100", "legendary_models.mobilenet_v1", "MobileNetV1"),
         differences=(Difference(message="ReLU where timm has ReLU6", remove=clip_at_six),)),
    pair("mobilenet_v4", model("mobilenetv4_conv_small", "legendary_models.mobilenet_v4", "MobileNetV4_conv_small")),
    pair("hgnet_tiny", model("hgnet_tiny", "legendary_models.pp_hgnet", "PPHGNet_tiny")),
    pair("hgnetv2_b0", model("hgnetv2_b0", "legendary_models.pp_hgnet_v2", "PPHGNetV2_B0")),
    pair("lcnet", model("lcnet_050", "legendary_models.pp_lcnet", "PPLCNet_x0_5"), corresponds=False),
    pair("clas_alexnet", model("torchvision:alexnet", "model_zoo.alexnet", "AlexNet"), size=224, packages=TORCHVISION, differences=(DROPOUT,)),
    pair("res2net50_vd", model("res2net50d", "model_zoo.res2net_vd", "Res2Net50_vd_26w_4s"), differences=(OPENED,)),
)  # fmt: skip
