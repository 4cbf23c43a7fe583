"""Weights from torch to Paddle and back, whole or not at all, and bit by bit the same.

Both models must be given: the type of each layer decides how its tensors are stored, never a name or shape alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tipchain.framework_types import Array, Model, Tensor
from tipchain.weights.files import array_of, misfits, read_paddle_file, read_torch_state, tensor_of, write_weights
from tipchain.weights.matching import Match, UnmatchedError, match_models, refuse
from tipchain.weights.sides import assemble, divide, dtype_name


class Converted(NamedTuple):
    """A state dict (for Paddle of arrays, bfloat16 as its bits), and how the models belong together."""

    state: Mapping[str, Array]
    match: Match


def to_paddle(
    torch_model: Model,
    state: Mapping[str, Tensor],
    paddle_model: Model,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
) -> Converted:
    """Return torch's ``state`` under Paddle's names and in Paddle's layout.

    Args:
        torch_model: the ``torch.nn.Module`` that ``state`` belongs to.
        state: tensors by name.
        paddle_model: the ``paddle.nn.Layer`` that the result must fit.
        names: Paddle's name by torch's, of tensors or of layers, where structure cannot tell.
        ignore: layers or tensors of either model that the other one lacks; the port's keep their values.

    Raises:
        WeightsError: unknown or missing keys, tensors that could not be matched, or shapes or dtypes that do not fit;
            all of them are listed.
    """
    own, strange = paddle_model.state_dict(), misfits(state, torch_model.state_dict(), "the torch model")
    match, problems = _match(torch_model, paddle_model, names, ignore, strange)
    result: dict[str, Array] = {}
    for name, slot in match.slots.items():
        for part, array in zip(slot.parts, divide(array_of(state[name]), slot), strict=True):
            if part.names[0] in result and result[part.names[0]].tobytes() != array.tobytes():
                problems.append(
                    f"shared: {part.names[0]} is one tensor in the port, but {name} and another tensor of torch's differ"
                )
            result.update(dict.fromkeys(part.names, array))
    zeros = (name for slot in match.zeros for part in slot.parts for name in part.names)
    result |= {name: np.zeros_like(own[name].numpy()) for name in zeros}
    result |= {name: own[name].numpy() for name in match.kept}
    problems += [
        f"tied: {name} and {other} are one tensor in the torch model, but differ in the file"
        for name, other in match.tied.items()
        if array_of(state[name]).tobytes() != array_of(state[other]).tobytes()
    ]
    refuse(problems or misfits(result, own))
    return Converted(state={name: result[name] for name in own}, match=match)


def to_torch(
    paddle_model: Model,
    state: Mapping[str, Array],
    torch_model: Model,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
) -> Converted:
    """Return Paddle's ``state``, arrays by name, under torch's names and in torch's layout: the inverse of `to_paddle`.

    What Paddle does not have (``num_batches_tracked``) stays as ``torch_model`` has it.

    Raises:
        WeightsError: as `to_paddle` does, or a bias that torch does not have is not zero.
    """
    match, problems = _match(torch_model, paddle_model, names, ignore, misfits(state, paddle_model.state_dict()))
    problems += [
        f"shared: {part.names[0]} and {name} are one tensor in the port, but differ in the file"
        for slot in match.slots.values()
        for part in slot.parts
        for name in part.names[1:]
        if state[part.names[0]].tobytes() != state[name].tobytes()
    ]
    problems += [
        f"no place: torch has no {slot.name}, but {slot.parts[0].names[0]} is not zero"
        for slot in match.zeros
        if np.any(state[slot.parts[0].names[0]])
    ]
    refuse(problems)
    result = dict(torch_model.state_dict())
    for name, slot in match.slots.items():
        result[name] = tensor_of(assemble([state[part.names[0]] for part in slot.parts], slot), slot.dtype)
    result |= {name: result[other] for name, other in match.tied.items()}
    return Converted(state=result, match=match)


def _match(
    torch_model: Model, paddle_model: object, names: Mapping[str, str] | None, ignore: Iterable[str], strange: list[str]
) -> tuple[Match, list[str]]:
    """Return the models' match, whose faults are listed after what is ``strange``, and the dtypes that differ."""
    try:
        match = match_models(torch_model, paddle_model, names, ignore)
    except UnmatchedError as error:
        raise error.at(None, strange) from error
    refuse(strange)
    dtypes = {name: dtype_name(tensor) for name, tensor in torch_model.state_dict().items()}
    return match, [
        f"dtype: {name} is {dtypes[name]}, {' + '.join(part.names[0] for part in slot.parts)} is {slot.dtype} in the port"
        for name, slot in match.slots.items()
        if dtypes[name] != slot.dtype
    ]


def convert_file(
    torch_model: object,
    torch_path: Path,
    paddle_model: Model,
    paddle_path: Path,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    *,
    back: bool = False,
) -> Converted:
    """Convert a torch weight file for Paddle, or ``back``, and verify the written file.

    The written file takes its name only once every tensor in it has been found equal. It is a ``.safetensors`` file if
    it is called so, else what ``paddle.save`` or ``torch.save`` writes.

    Raises:
        WeightsError: the input is unreadable or does not fit, or the output cannot be written.
    """
    try:
        if back:
            converted = to_torch(paddle_model, read_paddle_file(paddle_path), torch_model, names, ignore)
            write_weights("torch", torch_model, converted.state, torch_path)
        else:
            converted = to_paddle(torch_model, read_torch_state(torch_path), paddle_model, names, ignore)
            write_weights("paddle", paddle_model, converted.state, paddle_path)
    except UnmatchedError as error:
        raise error.at(paddle_path if back else torch_path) from error
    return converted
