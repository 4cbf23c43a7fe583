"""Reports of runs, made without running anything: an alignment with one fault, one that passes, a chain that fails."""

from tipchain.chain.plan import Command, Result
from tipchain.errors import Outcome
from tipchain.explain.findings import Diagnosis, SourceLine
from tipchain.numbers.compare import TensorDiff
from tipchain.numbers.verdicts import Verdict
from tipchain.report.model import RunReport

NASTY = """</pre><script>alert("1")</script>&'`\x1b[31m\x00"""
MODELS = {"reference": "nets.torch_side:build_model", "port": "nets.paddle_side:build_model"}
WHERE = {"commit": "1a2b3c4", "machine": "box", "cores": 2, "gpus": []}
LINE = "        x = F.avg_pool2d(x, 3, stride=2, padding=1)"
CAUSE = Diagnosis(
    code="exclusive",
    port_path="stage2.0.pool",
    message="`exclusive` of `avg_pool2d` at paddle_side.py:34 is True, the reference counts padding",
    evidence="tried 12 settings; with exclusive=False the output is as close as rounding allows",
    explained=1.0,
    fix=f"pass `exclusive=False` to `avg_pool2d` at paddle_side.py:34: `{LINE.strip()}`",
    stage="forward",
    reference_path="layer2.0.pool",
    place=SourceLine(file="nets/paddle_side.py", line=34, code=LINE),
    corrected="x = F.avg_pool2d(x, 3, stride=2, padding=1, exclusive=False)",
    reference_place=SourceLine(file="nets/torch_side.py", line=31, code="        x = F.avg_pool2d(x, 3, 2, 1)"),
    explains=("forward/logits", "backward/grad/stage2.0.conv.weight", "backward/grad/stem.conv.weight"),
)


def tensor_diff(**changed: object) -> TensorDiff:
    given: dict[str, object] = {
        "path": "logits", "expected_shape": (4, 10), "actual_shape": (4, 10), "expected_dtype": "float32",
        "actual_dtype": "float32", "size": 40, "mean_abs": 3e-7, "max_abs": 1e-6, "min_abs": 0.0,
        "worst_index": (1, 2), "worst_expected": 1.0, "worst_actual": 1.000001, "expected_nan": 0, "actual_nan": 0,
        "mismatched_nan": 0, "mismatched_inf": 0, "expected_max_abs": 1.0,
        "needed_atol": 1e-6,
    }  # fmt: skip
    return TensorDiff(**{**given, **changed})


def verdict(subject: str, outcome: Outcome = Outcome.PASS, reason: str = "", **more: object) -> Verdict:
    return Verdict(outcome=outcome, subject=subject, reason=reason, **{"diff": tensor_diff(), "share": 0.03, **more})


def aligned(*verdicts: Verdict, **more: object) -> RunReport:
    """Return the report of an alignment that passes, or of the verdicts given."""
    ones = verdicts or (
        verdict("forward/logits"),
        verdict("loss/loss", share=0.0),
        verdict("data/length", diff=None, share=None),
    )
    given: dict[str, object] = {
        "title": "configs/nets.yaml",
        "mode": "lite_train_lite_infer",
        "run": "test_tipc/output/nets/runs/20261101-220000-1",
        "started": "2026-11-01T22:00:00+08:00",
        "seconds": 83.2,
        "versions": {"torch": "2.13.0", "paddle": "3.3.1"},
        "where": WHERE,
        "models": MODELS,
    }
    return RunReport(**{**given, "verdicts": ones, **more})


def misaligned(nasty: str = "", grads: int = 40) -> RunReport:
    """Return the report of an alignment with one fault, most of whose failures follow from it; and one that does not.

    ``nasty`` stands in every text that may come from a user.
    """
    big = {"diff": tensor_diff(mean_abs=0.2, max_abs=0.9, needed_atol=0.9), "share": 2e4}
    failed = [
        verdict(one, Outcome.FAIL, f"mean 0.2 > 1e-05, worst at (1, 2): 1 and 0.1{nasty}", **big)
        for one in CAUSE.explains
    ]
    undefined = tensor_diff(max_abs=float("nan"), mean_abs=float("nan"))
    return aligned(
        verdict("data/length", diff=None, share=None),
        *failed,
        *(verdict(f"backward/grad/stage1.{one}.conv.weight", share=0.4) for one in range(grads)),
        verdict("lr/lr_3", Outcome.FAIL, f"NaN in the port{nasty}", diff=undefined, share=None),
        verdict("metric/acc", Outcome.ERROR, f"nets/paddle_side.py:80: ValueError: odd{nasty}", diff=None, share=None),
        diagnoses=(CAUSE,),
        undiagnosed="lr: the live models show no difference",
        notes=(f"tf32 is off{nasty}",),
    )


def chain(nasty: str = "") -> RunReport:
    """Return the report of a chain of which one step fails, and two need it."""

    def ran(step: str, outcome: Outcome = Outcome.PASS, **more: object) -> Result:
        argv = ("python", "tools/train.py", "-c", f"configs/{step}{nasty}.yaml")
        command = Command(
            id=f"{step}[autocast=null;trainer=norm_train]{nasty}",
            step=step,
            argv=argv,
            env={},
            log=f"{step}.log",
            needs=(),
        )
        return Result(command=command, outcome=outcome, **more)

    tail = (
        "epoch 0 loss 2.30",
        f"Traceback (most recent call last):{nasty}",
        "ValueError: 中文 label 12 is out of range " + "x" * 150,
    )
    return aligned(
        title="test_tipc/configs/nets/train_infer_python.txt",
        models={"model": "nets"},
        verdicts=(),
        run="test_tipc/output/a_model_with_a_long_name_KL/lite_train_lite_infer/runs/20261101-220000-1",
        results=(
            ran("train", seconds=61.3, figures={"loss": 0.31, "avg_ips": 812.5}, log="train.log", started="x"),
            ran(
                "eval",
                Outcome.FAIL,
                reason=f"exit 1: ValueError: label 12 is out of range{nasty}",
                seconds=3.2,
                exit_code=1,
                log="eval.log",
                tail=tail,
                missing=("eval.json",),
                started="x",
            ),
            ran("export", Outcome.SKIP, reason="not run: eval failed"),
            ran("infer", Outcome.SKIP, reason="not run: export did not run"),
        ),
    )
