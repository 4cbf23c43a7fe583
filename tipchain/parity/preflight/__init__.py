"""What can be compared about a model and its port before anything runs.

`check` compares all of it: what layers are made with, parameters and buffers, modes and dtypes, optimizers, schedules and
the environment. Each part can be called by itself.
"""

from tipchain.parity.preflight.environment import check_environment
from tipchain.parity.preflight.flags import check_flags
from tipchain.parity.preflight.front import check
from tipchain.parity.preflight.layers import check_layers
from tipchain.parity.preflight.optimizers import check_optimizers
from tipchain.parity.preflight.parameters import check_parameters
from tipchain.parity.preflight.schedulers import check_schedulers
from tipchain.parity.preflight.table import Pair

__all__ = [
    "Pair",
    "check",
    "check_environment",
    "check_flags",
    "check_layers",
    "check_optimizers",
    "check_parameters",
    "check_schedulers",
]
