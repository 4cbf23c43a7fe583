"""torch's dumps of earlier runs serve while all that they rest on is as it was, and not a moment longer."""

import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import completed, full_disk
from stage_records import recording_job
from tiny_project import make_tiny_project

from tipchain.core import store
from tipchain.core.store import HASHED_BYTES, mark
from tipchain.errors import Outcome
from tipchain.modes import Mode, dump_name
from tipchain.numbers.dumps import load_record, save_record
from tipchain.numbers.verdicts import Verdict
from tipchain.parity import align
from tipchain.parity.align import AlignRequest, ReferenceCache, _spare
from tipchain.parity.case import load_case
from tipchain.parity.recorder import StageNeeds
from tipchain.parity.stages.judging import Judged

ROOT = Path(__file__).resolve().parents[2]
READING = """
import json, sys
from pathlib import Path
from tipchain.parity.inputs import Reading
reading = Reading(since=float(sys.argv[1]), known={str(Path("known.bin").absolute())}, apart=[Path("run").absolute()])
import model
for name in ("config.json", "known.bin", "run/written.npy", "large.bin", "absent.json"):
    try:
        open(name, "rb").close()
    except OSError:
        pass
open("run/log", "w").close()
exec(sys.argv[2])
print(json.dumps(reading.marks()))
"""


def fill(root):
    for name in ("config.json", "known.bin", "run/written.npy", "model.py", "helper.py", "other.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "model.py").write_text("import helper\n")
    with (root / "large.bin").open("wb") as file:
        file.truncate(HASHED_BYTES + 1)
    return root


@pytest.fixture
def project(tmp_path):
    return fill(tmp_path / "project")


def marks(project, since=None, code=""):
    """Return what a process that imports ``model`` and opens some files has read, by path as seen from the project."""
    command = [sys.executable, "-c", READING, str(time.time() + 1e6 if since is None else since), code]
    env = {**os.environ, "PYTHONPATH": f"{project}:{ROOT}"}
    done = completed(command, cwd=project, env=env, check=True)
    found = json.loads(done.stdout)
    return found and {os.path.relpath(path, project): one for path, one in found.items()}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A project and what was read of it, once for all tests that change something and look again."""
    project = fill(tmp_path_factory.mktemp("read") / "project")
    return project, marks(project)


@pytest.fixture
def restored(read):
    project, found = read
    shutil.copytree(project, project.with_name("as it was"))
    yield project, found
    shutil.rmtree(project)
    project.with_name("as it was").rename(project)


def test_what_is_imported_or_opened_is_known_by_its_content(read):
    found = read[1]
    own = {path: one for path, one in found.items() if not path.startswith("..")}
    assert set(own) == {".", "model.py", "helper.py", "config.json", "large.bin", "absent.json"}
    assert own["absent.json"] == "content FileNotFoundError"
    assert own["large.bin"].startswith(f"content {HASHED_BYTES + 1} ")
    assert any("site-packages" in path and one.startswith("time ") for path, one in found.items())


@pytest.mark.parametrize(
    ("change", "marked"),
    [
        (lambda root: (root / "helper.py").write_text("SCALE = 2"), "helper.py"),
        (lambda root: (root / "config.json").write_text("{}"), "config.json"),
        (lambda root: (root / "absent.json").write_text(""), "absent.json"),
        (lambda root: os.utime(root / "large.bin", (1, 1)), "large.bin"),
        (lambda root: (root / "json.py").write_text("from other import *"), "."),
        (lambda root: (root / "other.py").write_text("PORT = 1"), None),
        (lambda root: (root / "run/written.npy").write_text("more"), None),
        (lambda root: os.utime(root / "helper.py", (1, 1)), None),
    ],
)
def test_a_change_of_what_was_read_shows_and_of_nothing_else(restored, change, marked):
    project, before = restored
    change(project)
    now = {path: mark(str(project / path), one.partition(" ")[0]) for path, one in before.items()}
    assert [path for path in before if now[path] != before[path]] == ([marked] if marked else [])


def test_nothing_is_known_of_what_changed_while_it_ran(project):
    for path in project.rglob("*"):
        os.utime(path)
    began = time.time() + 0.2
    time.sleep(0.3)
    assert marks(project, began) is not None
    os.utime(project / "config.json", (1, 1))  # the time of its content is old, that of the file is not
    assert marks(project, began) is None


def test_nothing_is_known_where_compiled_code_opens_files(project):
    (project / "cv2.py").touch()
    assert marks(project, code="import cv2") is None


@pytest.mark.parametrize(
    "line",
    [
        "model = lambda: torch.jit.load('model.pt')",
        "from safetensors import safe_open",
        "from torchvision import io, transforms",
    ],
)
def test_nothing_is_known_where_the_users_code_has_files_opened_by_compiled_code(project, line):
    (project / "reader.py").write_text(f"if False:\n    {line}\n")
    assert marks(project, code="import reader") is None
    (project / "reader.py").write_text("jitter, tokenizer_io = 1, 2\n")
    assert marks(project, code="import reader") is not None


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_project(tmp_path_factory.mktemp("tiny"))


def job_of(tiny, **changes):
    needs = StageNeeds(inputs="in", weights="w", weights_sha256="1", names={"a": "b"}, digests={"fake": "2"})
    data = tiny.root / "test_tipc/data/lite_data"
    given = {"case": str(tiny.case), "folder": str(tiny.root / "run"), "needs": {"forward": needs}, "commit": "c"}
    job = recording_job("forward", train_data=str(data / "train"), eval_data=str(data / "val"), **given)
    return replace(job, **changes)


def key(tiny, job=None):
    return ReferenceCache.of(load_case(tiny.case), job or job_of(tiny), ("forward",)).keys["forward"]


def need(**changes):
    return lambda tiny: {"needs": {"forward": replace(job_of(tiny).needs["forward"], **changes)}}


@pytest.mark.parametrize(
    "changes",
    [
        need(weights_sha256="9"), need(names={}), need(digests={"fake": "9"}), need(inputs=""), need(weights="v"),
        *(lambda _, name=name, value=value: {name: value} for name, value in {
            "device": "gpu:0", "threads": 2, "epochs": 2, "seeds": 2, "reseed": 1, "train_data": "tests/cases", "eval_data": "tests/cases",
            "side": "paddle",
        }.items()),
    ],
)  # fmt: skip
def test_every_part_of_the_job_is_a_part_of_the_key(tiny, changes):
    assert key(tiny, job_of(tiny, **changes(tiny))) != key(tiny)


def change_of_case(tiny, monkeypatch, tmp_path):
    copied = tmp_path / "case.yaml"
    copied.write_text(tiny.case.read_text() + "\n")
    (tmp_path / "pyproject.toml").touch()
    return copied


def change_of_data(tiny, monkeypatch, tmp_path):
    image = next(Path(job_of(tiny).train_data).rglob("*.png"))
    os.utime(image, ns=(1, 1 + image.stat().st_mtime_ns))


SURROUNDINGS = {
    "case": change_of_case,
    "variable": lambda _, monkeypatch, tmp_path: monkeypatch.setenv("SCALE_OF_MY_MODEL", "2"),
    "folder": lambda _, monkeypatch, tmp_path: monkeypatch.chdir(tmp_path),
    "data": change_of_data,
    "machine": lambda _, monkeypatch, tmp_path: monkeypatch.setattr(align, "_machine", lambda: {"python": "4"}),
}


@pytest.mark.parametrize("change", SURROUNDINGS)
def test_what_surrounds_the_job_is_a_part_of_the_key(tiny, change, monkeypatch, tmp_path):
    known = key(tiny)
    case = SURROUNDINGS[change](tiny, monkeypatch, tmp_path) or tiny.case
    assert ReferenceCache.of(load_case(case), job_of(tiny), ("forward",)).keys["forward"] != known


JUDGED = Judged(stage="forward", verdicts=(Verdict(outcome=Outcome.FAIL, subject="forward/logits", reason="differs"),))


@pytest.fixture
def kept(tmp_path):
    """A cache with one entry, what it rests on, and the folder of the run that it is of."""
    cache = ReferenceCache(folder=tmp_path / "references", case="tiny", keys={"forward": "k" * 64})
    source, run = tmp_path / "model.py", tmp_path / "run"
    source.write_text("1")
    save_record(run / dump_name("forward", "torch"), {"logits": np.ones(3)}, meta={"side": "torch"})
    cache.keep(JUDGED, {str(source): mark(str(source), "content")}, run)
    return replace(cache, look=mark), source, tmp_path


def adopts(cache, tmp_path):
    return replace(cache, look=mark).adopt("forward", tmp_path / "later")


def test_an_entry_gives_back_what_was_recorded(kept):
    cache, _, tmp_path = kept
    (tmp_path / "later").mkdir()
    assert adopts(cache, tmp_path)
    found = load_record(tmp_path / "later" / dump_name("forward", "torch"))
    assert (found.side, found.arrays["logits"].tolist()) == ("torch", [1.0, 1.0, 1.0])
    assert "for 1 stage" in cache.note()


def altered(cache, name, value):
    content = json.loads(cache.entry("forward").read_text())
    cache.entry("forward").write_text(json.dumps({**content, name: value}))


STALE = {
    "source": lambda cache, source: source.write_text("2"),
    "dump": lambda cache, source: (cache.entry("forward").parent / dump_name("forward", "torch")).write_bytes(b"x"),
    "dump gone": lambda cache, source: (cache.entry("forward").parent / dump_name("forward", "torch")).unlink(),
    "key": lambda cache, source: altered(cache, "key", "l" * 64),
    "no marks": lambda cache, source: altered(cache, "rests_on", None),
    "damaged": lambda cache, source: cache.entry("forward").write_text("{"),
}


@pytest.mark.parametrize("change", STALE)
def test_an_entry_that_no_longer_holds_does_not_serve(kept, change):
    cache, source, tmp_path = kept
    (tmp_path / "later").mkdir()
    STALE[change](cache, source)
    assert not adopts(cache, tmp_path)
    assert not list((tmp_path / "later").iterdir())


def test_what_could_not_be_judged_or_followed_is_not_kept(tmp_path):
    cache = ReferenceCache(folder=tmp_path / "references", case="tiny", keys={"forward": "k" * 64})
    save_record(tmp_path / dump_name("forward", "torch"), {"logits": np.ones(3)})
    error = replace(JUDGED.verdicts[0], outcome=Outcome.ERROR)
    cache.keep(replace(JUDGED, verdicts=(error,)), {"/a": "content 1"}, tmp_path)
    cache.keep(JUDGED, None, tmp_path)
    assert not cache.folder.exists()


def test_the_entries_are_bounded_and_the_last_to_serve_stay(tmp_path, monkeypatch):
    save_record(tmp_path / dump_name("forward", "torch"), {"logits": np.ones(1000)})
    size = (tmp_path / dump_name("forward", "torch")).stat().st_size
    monkeypatch.setattr(align, "KEPT_BYTES", int(2.5 * size))
    for number in range(4):
        cache = ReferenceCache(folder=tmp_path / "references", case="c", keys={"forward": f"{number}" * 64})
        cache.keep(JUDGED, {str(tmp_path): "modules"}, tmp_path)
        for age, one in enumerate(sorted((tmp_path / "references").glob("*/*/entry.json"))):
            os.utime(one, (age, age)) if number == 1 else None
    left = sorted(one.name[8:9] for one in (tmp_path / "references" / "c").iterdir())
    assert left == ["2", "3"]


def test_a_disk_that_is_full_in_the_middle_has_no_half_of_an_entry(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store, "atomic_write", full_disk)
    cache = ReferenceCache(folder=tmp_path / "references", case="c", keys={"forward": "k" * 64})
    cache.keep(JUDGED, {str(tmp_path): "modules"}, tmp_path)
    assert "not kept" in capsys.readouterr().err
    assert not list((tmp_path / "references" / "c").iterdir())


def spared(tiny, **changes):
    """Return the cache that a run of both sides opens, and torch's job, of which nothing is known yet."""
    asked = {
        "case": load_case(tiny.case),
        "mode": Mode.LITE_TRAIN_LITE_INFER,
        "stages": ("forward",),
        "folder": tiny.root / "run",
        **changes,
    }
    request = AlignRequest(**asked)
    job, cache = _spare(request, job_of(tiny), ("forward",), 7.0)
    return cache, job


@pytest.mark.parametrize("asked", [{"device": "gpu:0"}, {"sides": ("torch",)}, {"dumps": {"torch": Path()}}])
def test_no_earlier_run_serves_one_side_alone_or_where_torch_does_not_repeat_itself(tiny, asked):
    cache, job = spared(tiny, **asked)
    assert cache is None
    assert (job.stages, job.since) == (("forward",), 0.0)


@pytest.mark.frameworks
def test_a_second_run_records_the_port_alone_until_the_reference_changes(tmp_path):
    project = make_tiny_project(tmp_path)

    def run(*words, code=0):
        done = project.align("--only", "forward", *words)
        assert done.returncode == code, done.stdout + done.stderr
        latest = max((project.root / "out" / "runs").iterdir())
        recorded = {path.name for path in (latest / "log_reprod").glob("recorder_*.json")}
        assert ("reused torch's results of" in " ".join(done.stdout.split())) is (recorded == {"recorder_paddle.json"})
        return recorded, done.stdout

    both = {"recorder_torch.json", "recorder_paddle.json"}
    assert run()[0] == both
    assert run("--fresh")[0] == both
    project.edit("tiny_paddle.py", "return self.head(", "return 1.5 * self.head(")
    recorded, printed = run(code=1)
    assert recorded == {"recorder_paddle.json"}
    assert "forward/logits" in printed
    project.edit("tiny_torch.py", "return self.head(", "return 1.5 * self.head(")
    assert run()[0] == both, "an old dump would fail the port that follows"
