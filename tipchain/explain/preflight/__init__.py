"""What can be compared about a model and its port before anything runs.

`check` compares all of it: what layers are made with, parameters and buffers, modes and dtypes, optimizers, schedules and
the environment. Each part can be called by itself.
"""

from tipchain.explain.preflight.construction import check, check_environment, check_flags, check_layers
from tipchain.explain.preflight.optimizers import check_optimizers, check_schedulers
from tipchain.explain.preflight.parameters import check_parameters
from tipchain.explain.preflight.table import PairedLayers

__all__ = [
    "PairedLayers",
    "check",
    "check_environment",
    "check_flags",
    "check_layers",
    "check_optimizers",
    "check_parameters",
    "check_schedulers",
]
