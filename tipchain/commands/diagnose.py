"""``tipchain diagnose``: what makes the layer at fault, the loss, the optimizer or the schedule differ."""

from __future__ import annotations

import argparse

from tipchain.commands.locate import add_arguments, show

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Look for causes and return the exit code."""
    return show(args, causes=True)
