"""The sides on a GPU, against the other side on the CPU. Skipped, with the reason, where there is none."""

import pytest
from tiny_project import make_tiny_project

pytestmark = [pytest.mark.frameworks, pytest.mark.gpu]


def why_no_gpu(framework: str) -> str:
    if framework == "torch":
        import torch

        return "" if torch.cuda.is_available() else f"torch {torch.__version__} sees no GPU"
    import paddle

    if not paddle.is_compiled_with_cuda():
        return f"paddle {paddle.__version__} is a CPU build"
    return "" if paddle.device.cuda.device_count() else "paddle sees no GPU"


@pytest.mark.parametrize(("on_gpu", "given"), [("torch", "--reference"), ("paddle", "--port")])
def test_a_side_on_the_gpu_agrees_with_the_other_on_the_cpu(tmp_path, on_gpu, given):
    reason = why_no_gpu(on_gpu)
    if reason:
        pytest.skip(reason)
    project = make_tiny_project(tmp_path / "gpu")
    stages = ("--only", "forward,metric,loss,backward")
    recorded = project.align(*stages, "--record", on_gpu, "--device", "gpu", out=on_gpu)
    assert recorded.returncode == 4, recorded.stdout + recorded.stderr
    done = project.align(*stages, given, project.latest(on_gpu), out="both")
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_sides_on_the_gpu(tmp_path):
    for framework in ("torch", "paddle"):
        reason = why_no_gpu(framework)
        if reason:
            pytest.skip(reason)
    project = make_tiny_project(tmp_path / "gpu")
    done = project.align("--device", "gpu:0")
    assert done.returncode == 0, done.stdout + done.stderr
