"""A layer that computes with fewer bits than float32 has."""

from __future__ import annotations

from tipchain.parity.findings import Diagnosis
from tipchain.parity.locate.verdicts import LayerVerdict, effective_bits

FORMATS = ((8.0, "bfloat16"), (11.0, "float16 or TF32"))
"""Significant bits, the implicit one counted, and the format that has them (IEEE 754; NVIDIA A100 whitepaper)."""


def lower_precision(verdict: LayerVerdict) -> Diagnosis:
    """Return what is told about a layer whose float64 result is right and whose float32 result is not."""
    bits = effective_bits(verdict.own or 0.0)
    _, name = min(FORMATS, key=lambda known: abs(known[0] - bits))
    shown = f"`{verdict.port_path}`" if verdict.port_path else "the model itself"
    fix = (
        f"run {shown} in float32: leave out `paddle.amp.auto_cast` or a cast to {name}"
        if name == "bfloat16"
        else f"run {shown} in float32: switch TF32 off (`FLAGS_cudnn_allow_tf32`, `NVIDIA_TF32_OVERRIDE=0`), or leave out a cast to float16"
    )
    return Diagnosis(
        code="lower-precision", port_path=verdict.port_path,
        message=f"{shown} computes with about {bits:.0f} significant bits ({name}), float32 has 24",
        evidence=f"in float64 it does what the reference does; in float32 its relative error is {verdict.own or 0.0:.3g}",
        explained=None, fix=fix,
    )  # fmt: skip
