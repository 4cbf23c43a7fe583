"""The driver copied alone into a suite's test_tipc, beside the suite's own, and `tipchain prepare` there."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import forking
import pytest
from chain_samples import PROGRAM, ROOT, TEMPLATE, edit, lay_params, lay_programs, living, stub
from programs import await_, commit_all, completed

DRIVER = "test_tipc/tipchain.sh"
THEIRS = "test_tipc/test_train_inference_python.sh"
PARAMS = "test_tipc/configs/net/train_infer_python.txt"
MODE = "lite_train_lite_infer"
NEEDED = ("bash", "dirname", "basename", "readlink", "cat")


@pytest.fixture
def suite(tmp_path):
    """A suite's checkout as its users have it, with the driver alone in its test_tipc."""
    folder = tmp_path / "my suite"
    lay_params(folder, edit(TEMPLATE, ("python:", f"python:{tmp_path / 'bin' / 'python'}")))
    lay_programs(folder, PROGRAM)
    (folder / "test_tipc/prepare.sh").write_text("touch prepared\n")
    (folder / THEIRS).write_text("touch theirs\n")
    shutil.copy(ROOT / "test_train_inference_python.sh", folder / DRIVER)
    (tmp_path / "bin").mkdir()
    stub(tmp_path / "bin/python", f'exec "{sys.executable}" "$@"')
    return folder


def environment(suite: Path, **more: str) -> dict[str, str]:
    """Return an environment in which only the tests' own tipchain is found."""
    kept = {name: value for name, value in os.environ.items() if name not in ("TIPCHAIN_PYTHON", "PYTHONPATH")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", **more}


def drive(suite: Path, *arguments: str, driver: str | Path = DRIVER, cwd: Path | None = None, **env: str):
    return completed(["bash", str(driver), *arguments], cwd=cwd or suite, env=environment(suite, **env), timeout=120)


@pytest.fixture
def recorder(tmp_path):
    """A program tipchain that shows how it was started."""
    folder = tmp_path / "recorder"
    folder.mkdir()
    stub(folder / "tipchain", '[[ $1 == --version ]] || printf "%s\\n" "$PWD" "${PYTHONPATH-unset}" "$@"')
    return f"{folder}:{os.environ['PATH']}"


def test_hands_everything_on_and_prepares_nothing(suite, recorder):
    done = drive(suite, PARAMS, MODE, "0,1", "--jobs", "2", "--only", "a b", "--resume", PATH=recorder)
    assert done.returncode == 0, done.stderr
    expected = [str(suite), "unset", "run", PARAMS, MODE, "--gpu-id", "0,1"]
    assert done.stdout.splitlines() == [*expected, "--jobs", "2", "--only", "a b", "--resume"]
    assert not (suite / "prepared").exists()
    assert not (suite / "theirs").exists()


def test_in_place_of_a_driver_that_no_script_uses_it_runs_too(suite, recorder):
    (suite / DRIVER).rename(suite / THEIRS)
    (suite / "test_tipc/other.sh").write_text(f"# unlike {THEIRS}\n")
    done = drive(suite, PARAMS, MODE, driver=THEIRS, PATH=recorder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(suite), "unset", "run", PARAMS, MODE]


@pytest.mark.parametrize(
    ("arguments", "expected"), [([""], []), (["-1", "--json", "-"], ["--gpu-id", "-1", "--json", "-"])]
)
def test_the_third_word_is_a_gpu_id(suite, recorder, arguments, expected):
    done = drive(suite, PARAMS, "klquant_whole_infer", *arguments, PATH=recorder)
    assert done.stdout.splitlines()[4:] == ["klquant_whole_infer", *expected]


def test_a_data_folder_is_found_from_the_callers_folder(suite, recorder, tmp_path):
    (tmp_path / "data").mkdir()
    for words in (["--data-path", "data"], ["--data-path=data"]):
        done = drive(suite, str(suite / PARAMS), MODE, *words, driver=suite / DRIVER, cwd=tmp_path, PATH=recorder)
        assert done.stdout.splitlines()[-2:] == ["--data-path", str(tmp_path / "data")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "2", PARAMS, MODE], "usage: bash tipchain.sh PARAMS MODE"),
        ([PARAMS, "lite_trian_lite_infer"], "expected one of: lite_train_lite_infer lite_train_whole_infer"),
        ([PARAMS, MODE, "--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_use_is_exit_2(suite, arguments, message):
    done = drive(suite, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (suite / "test_tipc/output").exists()


def test_called_through_a_link_or_from_another_folder(suite, tmp_path, recorder):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link").symlink_to(suite / DRIVER)
    for params in (PARAMS, str(suite / PARAMS)):
        for driver in (suite / DRIVER, elsewhere / "link"):
            done = drive(suite, params, MODE, driver=driver, cwd=elsewhere, PATH=recorder)
            assert done.stdout.splitlines()[0] == str(suite), done.stderr
            assert done.stdout.splitlines()[3] == PARAMS


def tools(tmp_path: Path) -> Path:
    """Return a folder with what the driver itself needs and no Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in NEEDED:
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def test_without_tipchain_it_says_both_ways_to_it(suite, tmp_path):
    folder = tools(tmp_path)
    stub(folder / "python3", "exit 1")
    done = drive(suite, PARAMS, MODE, PATH=str(folder))
    assert done.returncode == 2
    assert "tipchain is on PATH" in done.stderr
    assert "TIPCHAIN_PYTHON=/path/to/python" in done.stderr
    done = drive(suite, PARAMS, MODE, PATH=str(folder), TIPCHAIN_PYTHON=str(folder / "python3"))
    assert done.returncode == 2
    assert f"TIPCHAIN_PYTHON={folder / 'python3'} cannot run tipchain" in done.stderr
    assert "--python PATH" in done.stderr


def test_any_python_that_has_tipchain_will_do(suite, tmp_path):
    folder = tools(tmp_path)
    stub(folder / "python", "exit 1")
    stub(folder / "python3", 'echo "python3 $*"')
    done = drive(suite, PARAMS, MODE, PATH=str(folder))
    assert done.stdout == f"python3 -m tipchain run {PARAMS} {MODE}\n"
    (folder / "python3").unlink()
    (suite / ".venv/bin").mkdir(parents=True)
    stub(suite / ".venv/bin/python", 'echo "venv $*"')
    done = drive(suite, PARAMS, MODE, PATH=str(folder))
    assert done.stdout == f"venv -m tipchain run {PARAMS} {MODE}\n"


def test_the_interpreter_named_runs_tipchain_and_the_commands(suite, tmp_path, recorder):
    stub(tmp_path / "mine", 'echo "mine $*"')
    for name in (str(tmp_path / "mine"), "../mine"):
        done = drive(suite, PARAMS, MODE, "--python", "other", PATH=recorder, TIPCHAIN_PYTHON=name)
        assert done.stdout.startswith(f"mine -m tipchain run {PARAMS} {MODE} --python ")
        assert done.stdout.endswith("mine --python other\n"), "the later one counts"


# tipchain prepare


def prepare(
    suite: Path, *arguments: str, params: str = PARAMS, folder: str = ".", **env: str
) -> subprocess.CompletedProcess[str]:
    return completed(
        [sys.executable, "-m", "tipchain", "prepare", params, MODE, *arguments],
        cwd=suite / folder,
        env=environment(suite, **{**forking.variables(), **env}),
        timeout=120,
    )


def begin(suite: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start ``tipchain prepare`` in the checkout."""
    return subprocess.Popen(
        [sys.executable, "-m", "tipchain", "prepare", PARAMS, MODE, *options],
        cwd=suite,
        env=environment(suite, **forking.variables()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def script(suite: Path, text: str) -> None:
    (suite / "test_tipc/prepare.sh").write_text(text)


@pytest.fixture
def checked(suite):
    """The suite with images in place, all that the plan names."""
    (suite / "images").mkdir()
    (suite / "images/1.jpg").write_bytes(b"image")
    return suite


def test_a_good_script_is_run_in_the_checkout_in_english_and_logged(checked):
    script(checked, 'echo "$PWD|$1|$2|$#"; mkdir -p data; echo "$LC_MESSAGES ${LC_ALL-none} $LC_CTYPE"\n')
    done = prepare(checked, LC_ALL="C.UTF-8", LANGUAGE="zh_CN")
    assert done.returncode == 0, done.stdout + done.stderr
    assert logged(checked) == [f"{checked}|{PARAMS}|{MODE}|2", "C none C.UTF-8"]
    assert "exit code 0: prepared; 1 named paths are there" in done.stdout


@pytest.mark.parametrize(
    ("leave", "fault"), [("", "is missing"), ("mkdir images; : >images/1.jpg\n", "is an empty folder")]
)
def test_data_that_the_file_names_must_be_there(suite, leave, fault):
    script(suite, leave)
    done = prepare(suite)
    assert done.returncode == 1
    assert f"FAIL  images {fault} (--image of infer[" in done.stdout


def test_no_text_of_the_file_reaches_a_shell(checked):
    name = "test_tipc/configs/net/$(touch hurt) ;touch hurt;.txt"
    (checked / PARAMS).rename(checked / name)
    script(checked, 'printf "%s" "$1"\n')
    done = prepare(checked, params=name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert logged(checked) == [name]
    assert not (checked / "hurt").exists()


def test_a_script_that_hangs_is_ended_with_its_children(checked):
    script(checked, "sleep 60 & echo $! >child\nwait\n")
    done = prepare(checked, "--timeout", "0.5")
    assert done.returncode == 1
    assert "timed out after 0.5 s" in done.stdout
    assert not living(checked / "child")


def test_an_end_of_the_preparation_ends_the_script_with_its_children(checked):
    script(checked, "sleep 60 & echo $! >child.new; mv child.new child\nwait\n")
    process = begin(checked)
    await_((checked / "child").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not living(checked / "child")


def test_tracked_files_that_the_script_changed_are_named(checked):
    for name in ("a.yml", "b.yml", "c.yml"):
        (checked / name).write_text("one\n")
    commit_all(checked)
    (checked / "b.yml").write_text("mine\n")
    (checked / "c.yml").write_text("mine\n")
    script(checked, "sed -i s/one/two/ a.yml; sed -i s/mine/theirs/ c.yml; touch new\n")
    done = prepare(checked)
    assert done.returncode == 0, done.stdout
    assert "note: the script changed tracked files: a.yml, c.yml\n" in done.stdout


def test_a_dry_run_shows_and_runs_nothing(suite):
    done = prepare(suite, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"$ bash test_tipc/prepare.sh {PARAMS} {MODE}" in done.stdout
    assert "must be there: images (--image of infer[" in done.stdout
    assert not (suite / "prepared").exists()
    assert not (suite / "test_tipc/output").exists()


def test_a_file_that_cannot_be_planned_is_refused_before_the_script_runs(suite):
    (suite / PARAMS).write_text((suite / PARAMS).read_text().replace("gpu_list:-1\n", ""))
    done = prepare(suite)
    assert done.returncode == 2
    assert f"{PARAMS}:" in done.stderr
    assert not (suite / "prepared").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo last words\nexit 7\n", "FAIL  test_tipc/prepare.sh: exit 7: last words"),
        (f'"{sys.executable}" -m tipchain prepare "$1" "$2"\n', "calls tipchain prepare again"),
    ],
    ids=["an exit status", "an endless loop"],
)
def test_a_script_that_fails_is_exit_1(checked, text, message):
    script(checked, text)
    done = prepare(checked)
    assert done.returncode == 1
    assert message in done.stdout


def test_a_checkout_without_a_script_is_only_checked(checked):
    (checked / "test_tipc/prepare.sh").unlink()
    (checked / "ppcls").mkdir()
    done = prepare(checked, "--suite", "tipchain")
    assert done.returncode == 0, done.stderr
    assert "has no test_tipc/prepare.sh" in done.stdout
    shutil.rmtree(checked / "images")
    assert prepare(checked, "--suite", "tipchain").returncode == 1
    (checked / PARAMS).write_text(edit((checked / PARAMS).read_text(), ("--image:", "--image:null")))
    done = prepare(checked, "--suite", "tipchain")
    assert done.returncode == 4
    assert "nothing was run and nothing checked" in done.stdout


def test_two_preparations_of_one_checkout_wait_for_each_other(checked):
    script(checked, "[[ ! -e busy ]] || exit 5\ntouch busy; sleep 0.4; rm busy\n")
    for process in [begin(checked) for _ in range(2)]:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out


@pytest.mark.parametrize(
    "name", ["prepare.sh", "test_train_inference_python.sh", "tools/environment.sh", "test_tipc/prepare.sh"]
)
def test_the_scripts_source_nothing(name):
    lines = (ROOT / name).read_text().splitlines()
    assert not [line for line in lines if line.split()[:1] in (["source"], ["."])]


@pytest.fixture
def venv(tmp_path):
    """An environment of the suite's own, whose pip tells where it would install."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "pip.py").write_text("import sys; print('pip', sys.prefix, *sys.argv[1:])\n")
    return folder


def logged(suite: Path) -> list[str]:
    return (suite / f"test_tipc/output/prepare/net-{MODE}.log").read_text().splitlines()


CALLS = """\
for name in python python3 python3.7; do $name -c 'import sys; print(sys.prefix)'; done
for name in pip pip3 "python3 -m pip"; do $name install -r 'a b.txt'; done
echo "$VIRTUAL_ENV"
"""


def test_the_script_runs_with_the_interpreter_that_is_named_under_all_names(checked, venv):
    script(checked, CALLS)
    done = prepare(checked, "--python", str(venv / "bin/python"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"  python: {venv}/bin/python\n" in done.stdout
    expected = [*[str(venv)] * 3, *[f"pip {venv} install -r a b.txt"] * 3, str(venv)]
    assert logged(checked) == expected
    text = (checked / PARAMS).read_text()
    (checked / PARAMS).write_text(edit(text, ("python:", f"python:{venv}/bin/python")))
    assert prepare(checked).returncode == 0
    assert logged(checked) == expected, "the file's, where none is named"


def test_a_chain_is_prepared_first_when_asked_with_its_own_interpreter(suite, venv):
    words = (PARAMS, MODE, "--prepare", "--python", str(venv / "bin/python"))
    script(suite, "mkdir -p images\necho x > images/a.png\npip install x\n")
    done = drive(suite, *words, **forking.variables())
    assert done.returncode == 0, done.stdout + done.stderr
    assert logged(suite) == [f"pip {venv} install x"]
    assert "exit code 0" in done.stdout
    script(suite, "exit 3\n")
    before = list((suite / "test_tipc/output").rglob("report.json"))
    done = drive(suite, *words, **forking.variables())
    assert done.returncode == 1
    assert "could not be prepared; nothing was run" in done.stderr
    assert list((suite / "test_tipc/output").rglob("report.json")) == before


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--python=no/such", "--python no/such: there is no such program"),
        ("--python=/bin/true", "--python /bin/true: is no interpreter"),
        ("--data-path=.", "--data-path is for tipchain's own project"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_anything_runs(checked, option, message):
    done = prepare(checked, option)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (checked / "prepared").exists()


def test_nothing_is_installed_into_the_environment_that_tipchain_runs_in(checked):
    """Here ``python`` is tipchain's own, as where its environment is activated."""
    (checked / "setup.py").write_text("open('installed', 'w')\n")
    calls = ["pip3 -q install x", "python -m pip install x", "python3 setup.py install", "pip uninstall -y x"]
    script(checked, "\n".join([*calls, "pip --version >version", "python -c 'print(1 + 1)'\n"]))
    done = prepare(checked)
    assert done.returncode == 1
    for number, words in enumerate(calls, 1):
        assert f"FAIL  log:{number}: ERROR: not installed: {words}\n" in done.stdout
    assert "tipchain's own, so nothing is installed" in done.stdout
    assert "--python PATH names an interpreter of the suite's own" in done.stdout
    assert logged(checked)[len(calls) :] == ["2"]
    assert "pip" in (checked / "version").read_text()
    assert not (checked / "installed").exists()


# What it deletes, and --keep-data

DELETING = "cd data && rm -rf mine && mkdir -p mine/new && echo theirs >mine/x && cd ..\n"


def own_data(suite: Path) -> Path:
    folder = suite / "data/mine"
    folder.mkdir(parents=True)
    (folder / "x").write_text("mine")
    return folder


def test_what_was_there_is_kept_if_asked_for(checked):
    folder = own_data(checked)
    script(checked, DELETING)
    done = prepare(checked, "--keep-data")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in folder.iterdir()] == ["x"]
    assert (folder / "x").read_text() == "mine"
    assert "kept: data/mine; what the script made there is mine.from-script\n" in done.stdout
    assert (checked / "data/mine.from-script/x").read_text() == "theirs\n"
    assert logged(checked) == []
    done = prepare(checked)
    assert (folder / "x").read_text() == "theirs\n", "not asked for"
    assert "moved aside: data/mine, which the script deleted, is .mine.kept now\n" in done.stdout


def test_what_a_killed_preparation_moved_aside_is_put_back_by_the_next(checked):
    folder = own_data(checked)
    script(checked, "rm -rf data/mine; touch deleted; sleep 60\n")
    process = begin(checked, "--keep-data")
    await_((checked / "deleted").exists)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not folder.exists()
    script(checked, ":\n")
    assert "kept: data/mine\n" in prepare(checked).stdout
    assert (folder / "x").read_text() == "mine"


# A failed one is failed the second time, too


DOWNLOAD = """\
cd data
[ -e w.pdparams ] && echo "File 'w.pdparams' already there; not retrieving." && exit 0
echo "--$(date '+%F %T')--  http://host/w.pdparams"
echo "Saving to: 'w.pdparams'"
printf half >w.pdparams
"""


def test_a_half_made_download_does_not_pass_the_second_time(checked):
    (checked / "data").mkdir()
    (checked / "w.pdparams").write_text("another of that name")
    time.sleep(1.1)  # wget tells the time in seconds
    for end in ("sleep 0.5; kill -9 $PPID; sleep 60\n", "exit 4\n"):
        script(checked, DOWNLOAD + end)
        assert prepare(checked, "--timeout", "2").returncode != 0
    script(checked, DOWNLOAD.replace("half", "whole") + "echo \"2024 - 'w.pdparams' saved [5/5]\"\n")
    assert prepare(checked).returncode == 0
    assert (checked / "data/w.pdparams").read_text() == "whole"
    assert (checked / "data/w.pdparams.half-made").read_text() == "half"
    assert prepare(checked).returncode == 0
    assert (checked / "data/w.pdparams").read_text() == "whole"
    assert (checked / "w.pdparams").exists()
