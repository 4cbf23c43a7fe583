"""Which code between the layers made a tensor."""

from __future__ import annotations

from tipchain.parity.locate.trace import Call, Trace


def culprit(trace: Trace, call: Call, number: int) -> Call:
    """Return the call whose own code made the ``number``-th tensor that ``call`` was given.

    That is the call that returned the tensor, if one did; else the innermost call around ``call`` that was not given
    the tensor itself.
    """
    if number >= len(call.inputs):
        return trace.calls[call.parent] if call.parent is not None else call
    value = call.inputs[number]
    if value.made_by is not None:
        return trace.calls[value.made_by]
    around = call
    while around.parent is not None:
        around = trace.calls[around.parent]
        if value not in around.inputs:
            break
    return around


def culprit_of_output(trace: Trace) -> Call:
    """Return the call whose own code made the model's first output."""
    root = trace.calls[0]
    made_by = root.outputs[0].made_by if root.outputs else None
    return root if made_by is None else trace.calls[made_by]
