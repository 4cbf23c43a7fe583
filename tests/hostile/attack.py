"""Let tipchain read hostile files: ``python -m hostile.attack KIND [--seed S] [--count N] [--folder DIR]``.

Each file is read in this process, which is the point: what it takes is measured here, and what ends the process ends the
attack, whose last file then stands in the folder. The last line of the output is a JSON object with what went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hostile.mutations import mutated

SECONDS = 5.0
MEGABYTES = 500
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Target:
    """A kind of file.

    Attributes:
        samples: honest files to begin with, by name.
        read: reads the file at a path and returns an exit code; more than one way is tried in turn.
        imports: what is loaded before memory is measured: frameworks weigh more than any file.
        places: where a sample's file must stand to be read, by name; beside the others where it is not here.
    """

    samples: dict[str, bytes]
    read: Sequence[Callable[[Path], int]]
    imports: Sequence[str] = ()
    places: dict[str, Path] = field(default_factory=dict)


@dataclass
class Outcome:
    """What an attack came to."""

    files: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    codes: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def command(*words: str) -> Callable[[Path], int]:
    """Return what runs ``tipchain`` with a file in the place of ``{}``."""

    def read(path: Path) -> int:
        from tipchain.cli import main

        try:
            return main([str(path) if word == "{}" else word for word in words])
        except SystemExit as error:
            return int(error.code or 0)

    return read


def function(module: str, name: str) -> Callable[[Path], int]:
    """Return what calls a reader of a file as a command would."""

    def read(path: Path) -> int:
        from importlib import import_module

        from tipchain.core.guard import guarded

        reader = getattr(import_module(module), name)

        def call() -> int:
            reader(path)
            return 0

        return guarded(call)

    return read


def dumps(folder: Path) -> Target:
    """Dumps of reprod_log's format, and plain arrays."""
    from tipchain.numbers.dumps import save_record

    generator = np.random.default_rng(0)
    arrays = {
        f"layer{n}.{part}": generator.standard_normal((3, n + 1)).astype(np.float32) for n in range(4) for part in "wb"
    }
    arrays |= {
        "nested": {"a": np.arange(3), "b": np.float64(1)},
        "text": np.array(["x", "yz"]),
        "f": np.asfortranarray(np.ones((2, 3))),
    }
    np.save(folder / "reference.npy", arrays)
    save_record(folder / "ours.npy", arrays)
    samples = {name: (folder / name).read_bytes() for name in ("reference.npy", "ours.npy")}
    np.save(folder / "plain.npy", np.arange(12.0).reshape(3, 4))
    return Target(
        samples={**samples, "plain.npy": (folder / "plain.npy").read_bytes()},
        read=(command("diff", str(folder / "reference.npy"), "{}"),),
    )


def weights(folder: Path) -> Target:
    """Weight files of both frameworks."""
    import pickle

    import torch

    state = {
        "a.weight": torch.arange(6.0).reshape(2, 3),
        "a.bias": torch.ones(2, dtype=torch.bfloat16),
        "n": torch.tensor(3),
    }
    samples: dict[str, bytes] = {}
    for name, new in (("new.pth", True), ("old.pth", False)):
        torch.save(state, folder / name, _use_new_zipfile_serialization=new)
    from safetensors.torch import save

    samples["a.safetensors"] = save(state, metadata={"format": "pt"})
    samples |= {name: (folder / name).read_bytes() for name in ("new.pth", "old.pth")}
    paddle = {"a.w": np.arange(6.0), "LR": {"last": 1}, "StructuredToParameterName@@": {"a.w": "linear_0.w_0"}}
    samples |= {f"{protocol}.pdparams": pickle.dumps(paddle, protocol) for protocol in (2, 4)}

    def read(path: Path) -> int:
        name = "read_paddle_file" if path.suffix == ".pdparams" else "read_torch_state"
        return function("tipchain.weights.files", name)(path)

    return Target(samples=samples, read=(read,), imports=("torch", "safetensors.torch"))


def parameters(folder: Path) -> Target:
    """TIPC's parameter files."""
    files = sorted((ROOT / "test_tipc" / "configs").glob("*/*.txt"))
    return Target(
        samples={f"{number}.txt": file.read_bytes() for number, file in enumerate(files)},
        read=(
            command("lint", "{}"),
            command("plan", "{}", "lite_train_lite_infer"),
            command("plan", "{}", "whole_infer", "--json", "-"),
        ),
    )


def documents(folder: Path) -> Target:
    """Cases, manifests, profiles and tables of names."""
    kinds = {
        "configs/*.yaml": ("tipchain.parity.case", "load_case"),
        "test_tipc/nightly.yaml": ("tipchain.nightly.manifest", "load_manifest"),
        "tipchain/suites/*.yaml": ("tipchain.chain.profiles", "read_profile"),
    }
    samples: dict[str, bytes] = {"names.yaml": b"names:\n  a.weight: b.weight\n  c: T(d)\nignore: [e, f]\n"}
    readers = {"names": function("tipchain.weights.given_names", "read_names")}
    for number, (pattern, (module, name)) in enumerate(kinds.items()):
        readers[str(number)] = function(module, name)
        samples |= {f"{number}.{file.name}": file.read_bytes() for file in sorted(ROOT.glob(pattern))}
    return Target(samples=samples, read=(lambda path: readers[path.name.partition(".")[0]](path),))


def nights(folder: Path) -> Target:
    """What a night leaves: its plan, its items' records, what still runs, its end."""
    import yaml
    from night_samples import NightSample, item

    from tipchain.errors import Outcome as Ended

    manifest = folder / "suite.yaml"
    commands = [{"id": name, "argv": ["/bin/true"]} for name in "abc"]
    manifest.write_text(yaml.safe_dump({"name": "suite", "commands": commands}))
    items = [item(name) for name in "abc"]
    night = NightSample(folder / "tipchain-nights" / "suite", 0, items)
    for one, ended in zip(items, (Ended.PASS, Ended.FAIL, Ended.ERROR), strict=True):
        night.end(one, ended, "a reason", report={"exit_code": 0})
    night.finish()
    places = {f"{number}.{file.name}": file for number, file in enumerate(sorted(night.folder.rglob("*.json")))}
    page = folder / "page.html"
    return Target(
        samples={name: file.read_bytes() for name, file in places.items()},
        places=places,
        read=tuple(
            lambda _, words=words: command(*words)(Path())
            for words in (
                ("nightly", "status", str(manifest)),
                ("nightly", "status", str(manifest), "--json", "-"),
                ("nightly", "report", str(manifest), "--html", str(page)),
            )
        ),
    )


def reports(folder: Path) -> Target:
    """Reports of finished runs, as JSON."""
    from tipchain.errors import Outcome as Ended
    from tipchain.numbers.verdicts import Verdict
    from tipchain.report.model import RunReport, dump_report

    verdicts = tuple(Verdict(outcome=ended, subject=f"forward/{ended.value}", reason="because") for ended in Ended)
    report = RunReport(
        title="case.yaml", mode="m", run="runs/1", started="2026-11-01T22:00:00+00:00", seconds=1.5, verdicts=verdicts
    )
    return Target(samples={"report.json": dump_report(report).encode()}, read=(command("report", "{}"),))


KINDS: dict[str, Callable[[Path], Target]] = {
    "dumps": dumps,
    "weights": weights,
    "parameters": parameters,
    "documents": documents,
    "nights": nights,
    "reports": reports,
}


def attack(kind: str, folder: Path, *, seed: int, count: int) -> Outcome:
    """Let ``count`` hostile files of a kind be read; see the module's text."""
    folder.mkdir(parents=True, exist_ok=True)
    target = KINDS[kind](folder)
    for module in target.imports:
        __import__(module)
    generator = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    names = sorted(target.samples)
    outcome = Outcome()
    for name in names:  # honest files first: they load what readers load
        _read(target, folder, name, target.samples[name], Outcome(), 0.0)
    base = _megabytes()
    for _ in range(count):
        name = names[int(generator.integers(0, len(names)))]
        _read(target, folder, name, mutated(target.samples[name], generator), outcome, base)
    return outcome


def _read(target: Target, folder: Path, name: str, content: bytes, outcome: Outcome, base: float) -> None:
    path = target.places.get(name, folder / "hostile" / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for read in target.read:
        out, err = io.StringIO(), io.StringIO()
        _forget_peak()
        began = time.process_time()
        signal.alarm(60)  # ends the process, whose caller then has the file
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code: Any = read(path)
        signal.alarm(0)
        seconds, megabytes = time.process_time() - began, _megabytes() - base
        outcome.files += 1
        outcome.codes[int(code)] = outcome.codes.get(int(code), 0) + 1
        outcome.seconds, outcome.megabytes = max(outcome.seconds, seconds), max(outcome.megabytes, megabytes)
        told = out.getvalue() + err.getvalue()
        wrong = [
            text
            for text, is_so in (
                (f"exit code {code}", code not in (0, 1, 2, 4)),
                ("a traceback", "Traceback" in told),
                (
                    "an escape on the terminal",
                    "\x1b" in told or ("\u202e" in told and not told.startswith("{")),
                ),  # JSON is data
                (f"{seconds:.1f} s", seconds > SECONDS),
                (f"{megabytes:.0f} MB", megabytes > MEGABYTES),
                ("exit code 2 without a word", code == 2 and "error: " not in told),
            )
            if is_so
        ]
        if wrong and base:
            kept = folder / f"problem-{len(outcome.problems)}-{name}"
            kept.write_bytes(content)
            outcome.problems.append(f"{kept}: {', '.join(wrong)}: {told[-300:]}")
    if name in target.places:
        path.write_bytes(target.samples[name])


def _forget_peak() -> None:
    # Linux: the peak of the resident set is what it is now. https://docs.kernel.org/filesystems/proc.html
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _megabytes() -> float:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return float(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(argv: Sequence[str]) -> int:
    """Attack and say what came of it; 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args(argv)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="hostile-"))
    outcome = attack(args.kind, folder, seed=args.seed, count=args.count)
    print(json.dumps(vars(outcome), indent=1))
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
