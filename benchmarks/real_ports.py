"""Public ports: does tipchain convert their weights, is its verdict right, what does that cost?

Each pair of `port_recipes` is a model that the public has in PyTorch and in PaddlePaddle. Used as by a newcomer: weights are
copied without hints, then aligned with a loss, in eval mode and in training mode. What is really different in a port is known to
its recipe, which takes it away in memory; then the verdict must be PASS. Every measurement is a process of its own.

    python benchmarks/real_ports.py --make-env DIR
    DIR/venv/bin/python benchmarks/real_ports.py [--list work|check] [--pairs NAME,…] [--modes weights,eval,training]
        [--json FILE] [--table FILE.md] [--within SECONDS]

Other programs: ``sys.path.append("benchmarks"); from real_ports import build; reference, port, inputs, losses = build("bart")``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks")]
if str(ROOT) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    sys.path.append(str(ROOT))

from port_recipes import Difference, Losses, Pair, get_pair, pairs  # noqa: E402

MODES = ("weights", "eval", "training")
WITHIN_S = 900
"""Wall seconds that one measurement may take."""
PADDLECLAS = ("https://github.com/PaddlePaddle/PaddleClas.git", "d178931fca432204e6b7422bac4f92e09ff22fa4")
PACKAGES = (
    ("torch==2.13.0",),
    ("paddlepaddle==3.3.1", "transformers==5.23.0", "paddlenlp==3.0.0b4", "timm==1.0.31", "torchvision==0.29.0"),
    (
        "numpy==2.4.6", "pillow", "httpx", "opt_einsum==3.3.0", "protobuf", "safetensors", "huggingface-hub>=1.31,<3", "packaging",
        "pyyaml", "regex>=2025.10.22", "tokenizers>=0.23.1,<0.24", "tqdm", "typer", "requests", "colorlog", "colorama", "dill",
        "sentencepiece", "omegaconf", "ml_dtypes", "rich", "jieba", "six", "ftfy", "scipy", "filelock", "sqlalchemy",
    ),
)  # fmt: skip
"""What is installed: the second group without its dependencies, which exclude each other."""


def build(name: str) -> tuple[Any, Any, dict[str, Any], Losses]:
    """Return the reference, the port, the inputs of `tipchain.align`, and torch's and Paddle's loss.

    The reference's values are all distinct, as after training; the port's weights are its own.

    Raises:
        KeyError: no recipe has that name.
    """
    pair = get_pair(name)
    reference, port = _built(pair)
    return reference, port, pair.inputs(), pair.losses()


def _built(pair: Pair) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    import paddle

    paddle.seed(0)
    reference, port = pair.build()
    scatter(reference)
    settle(reference, pair.inputs())
    reference.eval()
    port.eval()
    return reference, port


def scatter(reference: Any) -> None:
    """Make the values of each tensor distinct: fresh biases are all 0 and norms all 1, so that a crossing of two is invisible."""
    import torch

    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        tensors = {name: one for name, one in reference.named_parameters() if one.requires_grad}
        saved = reference.state_dict()
        tensors.update({name: value for name, value in reference.named_buffers() if name in saved})
        for name, value in tensors.items():
            if not value.is_floating_point():
                continue
            noise = torch.rand(value.shape, generator=generator, dtype=torch.float32) - 0.5
            if name.endswith("running_var"):
                value.mul_((1 + 0.2 * noise).to(value.dtype))
            else:
                spread = float(value.std()) if value.numel() > 1 else 0.0
                value.add_((max(0.2 * spread, 0.1 if value.dim() < 2 else 0.02) * noise).to(value.dtype))


def settle(reference: Any, inputs: Mapping[str, Any]) -> None:
    """Give each BatchNorm the statistics of the inputs, as training does: fresh ones let a deep network blow up or die away."""
    import torch

    norms = [one for one in reference.modules() if hasattr(one, "running_mean") and one.running_mean is not None]
    if not norms:
        return
    reference.eval()
    momenta = [one.momentum for one in norms]
    for one in norms:
        one.train()
        one.momentum = 0.9
    with torch.no_grad():
        _call(reference, 0, inputs)
    for one, momentum in zip(norms, momenta, strict=True):
        one.momentum = momentum
        if one.num_batches_tracked is not None:
            one.num_batches_tracked.zero_()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurements; the exit code is 1 if a weight is silently wrong, or a verdict."""
    args = _arguments(argv)
    if args.make_env:
        make_environment(Path(args.make_env))
        return 0
    names = args.pairs.split(",") if args.pairs else list(pairs(args.list))
    for name in names:
        get_pair(name)
    results: dict[str, Any] = {}
    if args.json and Path(args.json).exists():
        results = json.loads(Path(args.json).read_text())
    _preload(names)
    modes = [mode for mode in MODES if mode in args.modes.split(",")]
    for name in names:
        results.setdefault(name, {})
        for mode in modes:
            results[name][mode] = _measure(name, mode, args.within)
            if args.json:
                Path(args.json).write_text(json.dumps(results, indent=1))
        print(" | ".join(_row(get_pair(name), results[name])), flush=True)
    table = _table({name: results[name] for name in names})
    if args.table:
        Path(args.table).write_text(table)
    print("\n" + table)
    return 1 if any(_is_bad(get_pair(name), results[name]) for name in names) else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", choices=("work", "check"), default="work")
    parser.add_argument("--pairs", default="", help="names, with commas; all of the list otherwise")
    parser.add_argument("--modes", default=",".join(MODES), help="some of " + ",".join(MODES))
    parser.add_argument("--json", default="", help="a file of results that is added to")
    parser.add_argument("--table", default="", help="a Markdown file")
    parser.add_argument("--within", type=float, default=WITHIN_S, help="seconds for one measurement")
    parser.add_argument("--make-env", default="", metavar="DIR", help="make the environment and stop")
    return parser.parse_args(argv)


def make_environment(folder: Path) -> None:
    """Make a virtual environment below the folder, and PaddleClas beside it.

    Raises:
        CalledProcessError: pip or git failed.
    """
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    for number, group in enumerate(PACKAGES):
        extra = ["--no-deps"] if number == 1 else []
        subprocess.run([str(python), "-m", "pip", "install", "-q", *extra, *group], check=True)
    checkout = folder / "PaddleClas"
    if not checkout.exists():
        address, commit = PADDLECLAS
        subprocess.run(
            ["git", "clone", "-q", "--filter=blob:none", "--no-checkout", address, str(checkout)], check=True
        )
        subprocess.run(["git", "-C", str(checkout), "checkout", "-q", commit, "--", "ppcls"], check=True)


def _preload(names: Sequence[str]) -> None:
    """Import what the pairs need, once: each measurement is a fork of this process."""
    from port_recipes import importing

    packages = {one.partition(" ")[0] for name in names for one in get_pair(name).packages}
    loaders = {
        "transformers": importing.import_transformers,
        "paddlenlp": importing.import_paddlenlp,
        "timm": importing.import_timm,
        "torchvision": importing.import_torchvision,
    }
    for package, load in loaders.items():
        if package in packages:
            load()
    import torch  # noqa: F401, I001  (before Paddle)
    import paddle  # noqa: F401
    import tipchain  # noqa: F401


def _measure(name: str, mode: str, within_s: float) -> dict[str, Any]:
    """Run one measurement in a process of its own; what becomes of that process is part of the result."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "result.json"), Path(folder, "log")
        process = multiprocessing.get_context("fork").Process(target=_run_job, args=(name, mode, file, log))
        process.start()
        process.join(within_s)
        code: int | str | None = process.exitcode
        if code is None:
            process.kill()
            process.join()
            code = f"stopped after {within_s:g} s"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if code != 0:
            found["crash"] = {"code": code, "log": log.read_text()[-2000:]}
        return found


def _run_job(name: str, mode: str, file: Path, log: Path) -> None:
    """Do one measurement; what is found is written as soon as it is."""
    with log.open("w") as kept:
        for number in (1, 2):
            os.dup2(kept.fileno(), number)
    warnings.simplefilter("ignore")
    pair, found = get_pair(name), {}
    steps = (_try_weights,) if mode == "weights" else (_try_align, _adjudicate)
    for step in steps:
        step(pair, mode, found)
        file.write_text(json.dumps(found))


def _used() -> tuple[float, float]:
    """Return this process's CPU seconds and its peak of memory in MB."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _timed(found: dict[str, Any], start: tuple[float, float], wall: float) -> None:
    seconds, peak = _used()
    found |= {"cpu_s": round(seconds - start[0], 2), "wall_s": round(time.time() - wall, 2), "peak_mb": round(peak)}


def _try_weights(pair: Pair, mode: str, found: dict[str, Any]) -> None:
    """Run both models plainly, then copy the weights as a newcomer does, then with the recipe's hints if that is refused."""
    del mode
    import tipchain
    from tipchain.errors import TipchainError

    reference, port = _built(pair)
    inputs, losses = pair.inputs(), pair.losses()
    plain: dict[str, Any] = {}
    start, wall = _used(), time.time()
    for number in (0, 1):
        _run_plainly((reference, port)[number], number, inputs, losses[number])
    _timed(plain, start, wall)
    plain["parameters"] = sum(one.numel() for one in reference.parameters())
    found["plain"] = plain
    for label, hints, ignore in (("free", {}, ()), ("hinted", dict(pair.hints), pair.ignore)):
        if label == "hinted" and (found["free"]["outcome"] == "ok" or not (hints or ignore)):
            break
        result: dict[str, Any] = {"outcome": "ok", "hints": [*hints, *ignore]}
        start, wall = _used(), time.time()
        try:
            told = tipchain.copy_weights(reference, port, names=hints or None, ignore=ignore)
            result["told"] = str(told)[:3000]
        except TipchainError as error:
            result |= {"outcome": "refused", "reason": str(error)[:3000]}
        except Exception:  # noqa: BLE001  (a crash of the tool is what is looked for)
            result |= {"outcome": "crash", "reason": traceback.format_exc()[-2000:]}
        _timed(result, start, wall)
        if result["outcome"] == "ok":
            result |= _check_truth(pair, reference, port)
            result["apart"] = _apart(reference, port, inputs)
        found[label] = result


def _run_plainly(model: Any, number: int, inputs: Mapping[str, Any], loss: Any) -> None:
    """Run a model forward and backward once, as its users would."""
    output = _call(model, number, inputs)
    loss(output, _tensor(inputs["labels"], number)).backward()
    for one in model.parameters():
        if number == 0:
            one.grad = None
        else:
            one.clear_gradient(set_to_zero=False)


def _tensor(value: Any, number: int) -> Any:
    import paddle
    import torch

    return paddle.to_tensor(value) if number else torch.tensor(value)


def _call(model: Any, number: int, inputs: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in inputs.items() if name != "labels"}
    args = given.pop("args", ())
    args = args if isinstance(args, tuple) else (args,)
    return model(*(_tensor(one, number) for one in args), **{name: _tensor(one, number) for name, one in given.items()})


def _apart(reference: Any, port: Any, inputs: Mapping[str, Any]) -> float:
    """Return how far the first outputs are apart, relative, in float32."""
    import numpy as np
    from port_recipes.feeding import first

    ours = first(_call(reference, 0, inputs)).detach().numpy().astype(np.float64)
    theirs = first(_call(port, 1, inputs)).numpy().astype(np.float64)
    if ours.shape != theirs.shape:
        return float("inf")
    return float(np.sqrt(np.mean((ours - theirs) ** 2) / max(float(np.mean(ours**2)), 1e-300)))


def _expected(pair: Pair, reference: Any, port: Any) -> dict[str, Any]:
    """Return the port's tensors as its own package would convert them; empty where it does not say how.

    A Linear of torch is transposed, and only that; several of the port's tensors that have one source share it out.
    """
    import torch

    ours, theirs = reference.state_dict(), port.state_dict()
    turned = {f"{path}.weight" for path, one in reference.named_modules() if isinstance(one, torch.nn.Linear)}
    truth = {} if pair.truth is None else pair.truth(reference, port)
    targets: dict[str, list[str]] = {}
    for target, source in truth.items():
        if target in theirs and source in ours:
            targets.setdefault(source, []).append(target)
    expected = {}
    for source, several in targets.items():
        value = ours[source].detach().numpy()
        value = value.T if source in turned else value
        size = value.shape[-1] // len(several) if value.ndim else 0
        for number, target in enumerate(several):
            part = value
            if len(several) > 1 and list(value.shape) != list(theirs[target].shape):
                part = value[..., number * size : (number + 1) * size]
            shape = tuple(theirs[target].shape)
            if part.shape != shape and part.T.shape == shape:
                part = part.T  # an embedding that is a head as well
            expected[target] = part.reshape(shape) if part.size == 1 else part
    return expected


def _check_truth(pair: Pair, reference: Any, port: Any) -> dict[str, Any]:
    """Compare the copied weights with those of the port's own package, where it says how to convert them."""
    import numpy as np

    theirs, expected = port.state_dict(), _expected(pair, reference, port)
    wrong = [name for name, value in expected.items() if not np.array_equal(theirs[name].numpy(), value)]
    return {"checked": len(expected), "of": len(theirs), "wrong": wrong}


def _give_weights(pair: Pair, reference: Any, port: Any) -> dict[str, Any]:
    """Copy the weights without hints, else with the recipe's, else as the port's package does; return the options that it took."""
    import paddle

    import tipchain
    from tipchain.errors import TipchainError

    refused: Exception | None = None
    hinted: dict[str, Any] = {"names": dict(pair.hints) or None, "ignore": pair.ignore}
    for options in ({}, hinted):
        try:
            tipchain.copy_weights(reference, port, **options)
        except TipchainError as error:
            refused = error
            continue
        if not _check_truth(pair, reference, port)["wrong"]:
            return options
    expected = _expected(pair, reference, port)
    if not expected:
        raise refused or RuntimeError("weights are silently wrong, and the recipe knows no truth")
    theirs = port.state_dict()
    for name, value in expected.items():
        theirs[name].set_value(paddle.to_tensor(value))
    return {}


def _try_align(pair: Pair, mode: str, found: dict[str, Any]) -> None:
    """Align as a newcomer does."""
    reference, port = _built(pair)
    found |= _align(pair, mode, reference, port)


def _adjudicate(pair: Pair, mode: str, found: dict[str, Any]) -> None:
    """Take away what is known to be different, and align again: what then still differs is a false alarm."""
    known = [one for one in pair.differences if mode in one.shows]
    if not known or found.get("verdict") in (None, "PASS"):
        return
    reference, port = _built(pair)
    found["adjudicated"] = _align(pair, mode, reference, port, known)


def _align(pair: Pair, mode: str, reference: Any, port: Any, remove: Sequence[Difference] = ()) -> dict[str, Any]:
    import tipchain

    found: dict[str, Any] = {}
    try:
        options = _give_weights(pair, reference, port)
    except Exception as error:  # noqa: BLE001  (it is what is told)
        return {"weights": f"{type(error).__name__}: {error}"[:1000]}
    for one in remove:
        one.remove(reference, port)
    training = mode == "training"
    reference.train(training)
    port.train() if training else port.eval()
    start, wall = _used(), time.time()
    try:
        report = tipchain.align(reference, port, pair.inputs(), loss=pair.losses(), training=training, **options)
    except Exception:  # noqa: BLE001  (a crash of the tool is what is looked for)
        return {"verdict": "CRASH", "text": traceback.format_exc()[-3000:]}
    _timed(found, start, wall)
    outcomes = {name: outcome.value for name, outcome in report.stages.items()}
    first = report.first_divergence
    return found | {
        "verdict": "PASS" if report.passed else "FAIL" if "FAIL" in outcomes.values() else "ERROR",
        "stages": outcomes,
        "reasons": report.reasons,
        "first": None if first is None else f"{first.port_path} ({first.port_type}): {first.reason}",
        "causes": [f"{one.code} at {one.port_path}: {one.message} [{one.explained}]" for one in report.diagnoses[:5]],
        "text": str(report),
    }


def judge_weights(pair: Pair, found: Mapping[str, Any]) -> str:
    """Return one word on the weights: what a newcomer got."""
    if "crash" in found and "free" not in found:
        return "crash"
    if not pair.corresponds and found["free"]["outcome"] == "refused":
        return "refused, rightly"
    free, hinted = found["free"], found.get("hinted")
    if free.get("wrong") or (hinted or {}).get("wrong"):
        return "WRONG"
    if free["outcome"] == "ok":
        return "ok"
    if hinted and hinted["outcome"] == "ok":
        return f"{len(hinted['hints'])} hints"
    return free["outcome"]


def judge_verdict(pair: Pair, mode: str, found: Mapping[str, Any]) -> str:
    """Return what the verdict of one mode is worth."""
    if "verdict" not in found:
        return "no weights" if "weights" in found else "crash"
    verdict, known = found["verdict"], [one for one in pair.differences if mode in one.shows]
    if verdict == "ERROR" and mode in pair.raises:
        return "ERROR, the port raises"
    if verdict in ("ERROR", "CRASH"):
        return "false ERROR"
    if not known:
        return "PASS" if verdict == "PASS" else "false alarm"
    if verdict == "PASS":
        return "missed"
    after = found.get("adjudicated", {}).get("verdict")
    return f"FAIL, {after} without" if after else "FAIL, not adjudicated"


def _is_bad(pair: Pair, found: Mapping[str, Any]) -> bool:
    words = {judge_verdict(pair, mode, found[mode]) for mode in MODES[1:] if mode in found}
    if not pair.corresponds:
        words -= {"no weights"}
    wrong = "weights" in found and judge_weights(pair, found["weights"]) in ("WRONG", "crash")
    return wrong or not words <= {"PASS", "FAIL, PASS without", "ERROR, the port raises"}


def _row(pair: Pair, found: Mapping[str, Any]) -> list[str]:
    """Return the cells of one pair."""
    plain = found.get("weights", {}).get("plain", {})
    cells = [pair.name, judge_weights(pair, found["weights"]) if "weights" in found else ""]
    cells += [judge_verdict(pair, mode, found[mode]) if mode in found else "" for mode in MODES[1:]]
    for key in ("cpu_s", "peak_mb"):
        cells += [
            f"{one[key]:g}" if key in one else "" for one in (plain, *(found.get(mode, {}) for mode in MODES[1:]))
        ]
    return cells


HEADS = (
    "pair",
    "weights",
    "eval",
    "training",
    "plain, s",
    "eval, s",
    "training, s",
    "plain, MB",
    "eval, MB",
    "training, MB",
)


def _table(results: Mapping[str, Any]) -> str:
    """Return the table in Markdown: CPU seconds and the peak of the process."""
    rows = [_row(get_pair(name), found) for name, found in results.items()]
    lines = ["| " + " | ".join(one) + " |" for one in (HEADS, ["---"] * len(HEADS), *rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
