"""Models of either framework: layers by name, and a function that is their forward."""


def model(side, make, forward):
    """Return a model in eval mode.

    Args:
        side: the module ``torch`` or ``paddle``.
        make: returns the layers, parameters and settings by name, given ``side.nn``.
        forward: takes the model and its arguments.
    """

    class Net(side.nn.Layer if hasattr(side.nn, "Layer") else side.nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in make(side.nn).items():
                setattr(self, name, layer)

        def forward(self, *args, **kwargs):
            return forward(self, *args, **kwargs)

    made = Net()
    made.eval()
    return made
