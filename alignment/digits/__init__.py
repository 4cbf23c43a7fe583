"""The shipped cases' data, once in PyTorch and once in PaddlePaddle: image folders, transforms, accuracies."""
