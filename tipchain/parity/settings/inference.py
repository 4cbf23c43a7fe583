"""What a case says about the stage ``inference``."""

from __future__ import annotations

from dataclasses import dataclass

from tipchain.yaml_lines import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """The stage that holds the exported model's outputs against the training engine's.

    Attributes:
        batch_sizes: the batch sizes that the exported program must handle: at least two different numbers.
        onnx: whether the program is also converted by paddle2onnx and run in onnxruntime.
        opset: the ONNX operator set of the conversion. paddle2onnx takes a later one if an operator needs it.
    """

    batch_sizes: tuple[int, ...] = (1, 4)
    onnx: bool = True
    opset: int = 17


def read(reader: Reader) -> InferenceSettings:
    """Read the mapping ``inference`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    inference = reader.mapping("inference", default={})
    assert inference is not None
    settings = InferenceSettings(
        batch_sizes=_batch_sizes(inference),
        onnx=inference.flag("onnx", default=True),
        opset=inference.integer("opset", 17, least=7),
    )
    inference.done()
    return settings


def _batch_sizes(inference: Reader) -> tuple[int, ...]:
    found = inference.items("batch_sizes", default=[1, 4])
    good = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in found)
    if not good or len(set(found)) < len(found) or len(found) < 2:
        raise inference.error(
            "batch_sizes", "are not two or more different sizes", found=found,
            expected="e.g. [1, 4]; with one alone a batch size frozen into the program is not seen",
        )  # fmt: skip
    return tuple(found)
