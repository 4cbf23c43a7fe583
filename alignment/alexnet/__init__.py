"""AlexNet, once in PyTorch and once in PaddlePaddle."""
