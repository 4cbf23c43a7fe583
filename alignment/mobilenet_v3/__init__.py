"""MobileNetV3-small, once in PyTorch and once in PaddlePaddle."""
