"""How the two frameworks are set to compute in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tipchain.parity.findings import Effect, Finding


def check_environment() -> list[Finding]:
    """Compare what is set for a whole process: TF32 and deterministic kernels on GPUs, default dtypes, seeds.

    Only TF32 that one side may use and the other may not changes what comes out; the rest is told and fails nothing.
    Sources: https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices, and the
    switches that ``paddle.base.core`` has in builds with CUDA.
    """
    import paddle
    import torch

    return [
        *(_gpu(torch, paddle) if torch.cuda.is_available() and paddle.is_compiled_with_cuda() else ()),
        *_defaults(torch, paddle),
    ]


def _finding(code: str, ours: str, theirs: str, what: str, fix: str, *, effect: Effect = "none") -> Finding:
    return Finding(
        code=code, kind="environment", reference_path="", port_path="", reference=ours, port=theirs,
        message=f"{what}: torch has {ours}, Paddle {theirs}", fix=fix, effect=effect,
    )  # fmt: skip


def _gpu(torch: Any, paddle: Any) -> Iterator[Finding]:
    core = paddle.base.core
    for code, what, ours, switch in (
        ("tf32-matmul", "TF32 in matrix products", torch.backends.cuda.matmul, "cublas"),
        ("tf32-convolution", "TF32 in convolutions", torch.backends.cudnn, "cudnn"),
    ):
        read = getattr(core, f"get_{switch}_switch", None)
        if read is not None and bool(ours.allow_tf32) != bool(read()):
            yield _finding(
                code, f"allow_tf32={bool(ours.allow_tf32)}", f"{switch}_switch={bool(read())}", what,
                f"call `paddle.base.core.set_{switch}_switch({bool(ours.allow_tf32)})`, or set NVIDIA_TF32_OVERRIDE=0 for both",
                effect="here",
            )  # fmt: skip
    name = "FLAGS_cudnn_deterministic"
    ours = bool(torch.backends.cudnn.deterministic)
    theirs = bool(paddle.get_flags([name])[name])
    if ours != theirs:
        yield _finding(
            "deterministic", f"cudnn.deterministic={ours}", f"{name}={theirs}", "deterministic convolutions",
            f"call `paddle.set_flags({{'{name}': {ours}}})`",
        )  # fmt: skip


def _defaults(torch: Any, paddle: Any) -> Iterator[Finding]:
    ours, theirs = str(torch.get_default_dtype()).removeprefix("torch."), str(paddle.get_default_dtype())
    if ours != theirs:
        yield _finding(
            "default-dtype",
            ours,
            theirs,
            "the dtype of new tensors",
            f"call `paddle.set_default_dtype('{ours}')`",
        )
    seeds = torch.initial_seed(), paddle.framework.core.default_cpu_generator().initial_seed()
    if seeds[0] != seeds[1]:
        yield _finding(
            "seed", str(seeds[0]), str(seeds[1]), "the seed of random numbers",
            "seed both alike (the same seed still gives each framework other numbers)",
        )  # fmt: skip
