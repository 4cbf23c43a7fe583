"""What a case says about the stage ``backward``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.errors import did_you_mean
from tipchain.yaml_lines import Reader

EVAL, TRAIN = MODES = ("eval", "train")
"""The modes that a model can run backward in, by the names that they have in a case."""

SINGLE, DOUBLE = DTYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardSettings:
    """The stage that runs some iterations.

    Attributes:
        iterations: the number of updates in each mode.
        learning_rate: the learning rate.
        modes: ``eval``, ``train`` or both. The names of the second mode's tensors begin with the mode: ``train/loss_0``.
        inputs: the inputs of the model: fake ones, or those of the training loader.
        dtype: the precision. Some nets need ``float64``, because rounding dominates their gradients in float32.
    """

    iterations: int = 5
    learning_rate: float = 1e-4
    modes: tuple[str, ...] = (EVAL,)
    inputs: str = "fake"
    dtype: str = SINGLE


def read(reader: Reader) -> BackwardSettings:
    """Read the mapping ``backward`` of a case; ``training: true`` is another way to say ``modes: [train]``.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    backward = reader.mapping("backward", default={})
    assert backward is not None
    settings = BackwardSettings(
        iterations=backward.integer("iterations", 5, least=2),
        learning_rate=backward.positive("learning_rate", 1e-4),
        modes=_modes(backward),
        inputs=backward.choice("inputs", ("fake", "train_loader"), default="fake"),
        dtype=backward.choice("dtype", DTYPES, default=SINGLE),
    )
    backward.done()
    return settings


def _modes(backward: Reader) -> tuple[str, ...]:
    training = backward.flag("training", default=False)
    found = backward.items("modes", default=[TRAIN if training else EVAL])
    expected = f"some of {', '.join(MODES)}"
    for number, mode in enumerate(found):
        if mode not in MODES:
            raise backward.error(
                f"modes.{number}", "is not a mode", found=mode, expected=expected,
                hint=did_you_mean(str(mode), MODES),
            )  # fmt: skip
    if not found or len(set(found)) < len(found):
        raise backward.error("modes", "is empty or names one twice", found=list(found), expected=expected)
    if "training" in backward.data and "modes" in backward.data:
        raise backward.error("training", "cannot stand beside 'modes'", expected="modes alone")
    return tuple(found)
