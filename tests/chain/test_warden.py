"""What runs when tipchain itself is killed."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from chain_samples import living, stub
from misbehaving import BODIES, program
from programs import await_, completed

from tipchain.chain.process import call

PROGRAM = """
import os, sys
from pathlib import Path
from tipchain.chain import warden
from tipchain.chain.process import call
def run(*argv):
    call(argv, cwd=Path.cwd(), env=dict(os.environ), log=Path("x.log"), timeout_s=None, watch=len)
run("true")
print(*warden.descendants(os.getpid()))
"""
BODY = """
setsid bash -c 'echo $$ > grandchild; exec sleep 120' < /dev/null > /dev/null 2>&1 &
while [ ! -s grandchild ]; do sleep 0.02; done
echo $$ > child
exec sleep 120"""


def test_a_process_that_ends_well_waits_for_nothing_and_leaves_no_warden(tmp_path):
    done = completed([sys.executable, "-W", "error", "-X", "dev", "-c", PROGRAM], cwd=tmp_path, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("\n", "")


NESTED = """
import os, sys
from pathlib import Path
from tipchain.chain import warden
from tipchain.chain.process import call
def run(program, *words, log, **more):
    return call((program, *words), cwd=Path.cwd(), env=dict(os.environ), log=Path(log), watch=len, **more)
if sys.argv[1] == "inner":
    run(sys.argv[2], log="inner.log", timeout_s=None)
else:
    ending = run(sys.executable, "-c", os.environ["NESTED"], "inner", sys.argv[2], log="outer.log",
                 timeout_s=float(sys.argv[3]), grace_s=(0.0, 0.0, 5.0))
    print(ending.timed_out)
"""


def nested(tmp_path, timeout_s):
    environment = {**os.environ, "NESTED": NESTED}
    argv = [sys.executable, "-c", NESTED, "outer", str(stub(tmp_path / "stub", BODY)), str(timeout_s)]
    return subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)


def test_what_a_killed_run_within_a_run_started_is_ended_too(tmp_path):
    with nested(tmp_path, 100) as outer:
        child = tmp_path / "child"
        await_(lambda: child.exists() and child.read_text() != "")
        os.kill(outer.pid, signal.SIGKILL)
        outer.wait()
        await_(lambda: not living(child))
        await_(lambda: not living(tmp_path / "grandchild"))


def test_a_run_within_a_run_that_is_killed_for_its_time_leaves_nothing(tmp_path):
    with nested(tmp_path, 3) as outer:
        await_((tmp_path / "child").exists)
        assert outer.communicate(timeout=60)[0] == "True\n"
        assert not living(tmp_path / "child")
        assert not living(tmp_path / "grandchild")


def noted(folder):
    return {int(path.stem) for path in folder.rglob("*.pid")}


def alive(folder):
    """Return the processes that noted their number and live, and those that name the folder."""
    found, known = set(), noted(folder)
    for one in psutil.process_iter(["cmdline", "status"]):
        ours = one.pid in known or str(folder) in " ".join(one.info["cmdline"] or ())
        if ours and one.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(one.pid)
    return found


def place(folder, name):
    return folder / name.replace(" ", "-")


def run_misbehaving(folder, name, stays="goes"):
    here = place(folder, name)
    here.mkdir(parents=True, exist_ok=True)
    return call(
        (sys.executable, "-I", "-S", "-c", program(name), str(here), stays),
        cwd=folder,
        env=dict(os.environ),
        log=folder / f"{here.name}.log",
        timeout_s=30,
        watch=len,
        grace_s=(0.05, 0.05, 1.0),
    )


def test_forty_children_that_misbehave_end_with_their_parent(tmp_path):
    assert len(BODIES) >= 40
    with ThreadPoolExecutor(8) as pool:
        endings = dict(zip(BODIES, pool.map(lambda name: run_misbehaving(tmp_path, name), BODIES), strict=True))
    for name, ending in endings.items():
        assert noted(place(tmp_path, name)), (name, ending)
        assert not ending.timed_out, name
    killers = {"kills its parent", "a child kills its grandparent"}
    assert {name for name, ending in endings.items() if ending.failure} == killers
    assert endings["ends by a signal"].signal == 11
    assert alive(tmp_path) == set()


KILLED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from misbehaving import BODIES
from test_warden import run_misbehaving
with ThreadPoolExecutor(len(BODIES)) as pool:
    list(pool.map(lambda name: run_misbehaving(Path(sys.argv[1]), name, "stays"), BODIES))
"""


def test_forty_children_that_misbehave_end_when_tipchain_is_killed(tmp_path):
    here = Path(__file__).parent
    folder = tmp_path / "all"
    bystander = subprocess.Popen(["sleep", "120"], start_new_session=True)
    parent = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(here), str(here.parent)], cwd=tmp_path)
    try:
        await_(lambda: all(noted(place(folder, name)) for name in BODIES))
    finally:
        parent.kill()
        parent.wait()
    try:
        await_(lambda: not alive(folder), 10.0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
