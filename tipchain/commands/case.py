"""``tipchain case ACTION``: all actions on a case's port besides aligning it."""

from __future__ import annotations

import argparse
from importlib import import_module

from tipchain.commands.options import add_action, run_action

ACTIONS = {
    "train": ("paddle_tools.train", "train the Paddle port of a case"),
    "eval": ("paddle_tools.evaluate", "evaluate a weight file of a case's Paddle port"),
    "export": ("paddle_tools.export", "export a case's Paddle port, checked against the model"),
    "infer": ("paddle_tools.infer", "run an exported model on images or a case's other samples"),
    "certify": ("commands.certify", "plant faults into the port, and say which would be caught"),
    "pack": ("commands.pack", "put what a reproduction must submit into one archive"),
}
"""The module and the meaning of each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of each action."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, (module, text) in ACTIONS.items():
        program = import_module(f"tipchain.{module}")
        program.add_arguments(add_action(actions, name, text, program.run))


run = run_action
