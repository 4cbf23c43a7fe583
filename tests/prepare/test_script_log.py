"""A suite's script: what it tells of itself, what it deletes, and the paths that must be there afterwards."""

import os
import signal
import subprocess
import sys
import time
from datetime import datetime

import pytest
from chain_samples import a_plan

from tipchain.chain.plan import Artifact, Command, Plan
from tipchain.prepare import suite
from tipchain.prepare.keep import left_aside, put_back, start_keeping
from tipchain.prepare.suite import TICK_S, NamedPath, find_troubles, named_paths, unfinished_downloads


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-01 10:00:00 ERROR 404: Not Found.",
        "wget: unable to resolve host address 'paddle.example'",
        "curl: (6) Could not resolve host: paddle.example",
        "fatal: unable to access 'https://git.example/x/': Could not resolve host: git.example",
        "tar: data.tar: Cannot open: No such file or directory",
        "tar: Unexpected EOF in archive",
        "gzip: stdin: unexpected end of file",
        "unzip:  cannot find or open data.zip, data.zip.zip or data.zip.ZIP.",
        "rm: cannot remove 'data': No such file or directory",
        "ln: failed to create symbolic link '/x': Permission denied",
        "test_tipc/prepare.sh: line 3: wget: command not found",
        "python: can't open file '/x/tools/make.py': [Errno 2] No such file or directory",
        "ModuleNotFoundError: No module named 'paddle'",
        "urllib.error.HTTPError: HTTP Error 403: Forbidden",
        "ERROR: Could not find a version that satisfies the requirement nothing==1.0",
        "write error: No space left on device",
        "data.tar: FAILED",
        " 10%[==>    ] 1,024  --.-K/s\r 20%[===>   ] tar: x: Cannot open",
    ],
)
def test_failures_are_seen_with_their_line(line):
    (found,) = find_troubles(f"first\n{line}\nlast\n")
    assert found.line == 2
    assert found.text in line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "File 'data.tar' already there; not retrieving.",
        "tar: Removing leading `/' from member names",
        "tar: Ignoring unknown extended header keyword 'SCHILY.fflags'",
        "mkdir: cannot create directory 'data': File exists",
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
        "WARNING: Retrying after connection broken by 'NewConnectionError('<pip>: Failed to establish')': /simple/x/",
        "bash: warning: setlocale: LC_ALL: cannot change locale (xx): No such file or directory",
        "[: =: unary operator expected",
    ],
)
def test_what_is_harmless_is_no_failure(line):
    assert find_troubles(f"first\n{line}\nlast\n") == ()


BEGIN = "--2024-01-01 10:00:00--  https://paddle.example/data.tar"
RETRY = "--2024-01-01 10:00:09--  (try: 2)  https://paddle.example/data.tar"
REFUSED = "Connecting to paddle.example|2001:db8::1|:443... failed: Network is unreachable."
CONNECTED = "Connecting to paddle.example|192.0.2.1|:443... connected."


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        ([BEGIN, REFUSED, CONNECTED], []),
        ([BEGIN, REFUSED, RETRY, CONNECTED], []),
        ([BEGIN, REFUSED, BEGIN, CONNECTED], [2]),
        ([BEGIN, REFUSED, REFUSED], [2, 3]),
    ],
)
def test_an_address_that_does_not_answer_counts_unless_another_does(lines, numbers):
    assert [trouble.line for trouble in find_troubles("\n".join(lines))] == numbers


def test_lines_may_end_as_on_windows():
    (found,) = find_troubles("one\r\nsh: 1: tar: not found\r\n")
    assert (found.line, found.text) == (2, "sh: 1: tar: not found")


SAVING = "Saving to: \u2018data/data.tar\u2019"
SAVED = "2024-01-01 10:00:02 (1.2 MB/s) - \u2018data/data.tar\u2019 saved [5/5]"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([BEGIN, SAVING, SAVED], []),
        ([BEGIN, SAVING, "     0K .......... .......... 1%"], ["data/data.tar"]),
        ([BEGIN, SAVING, "Read error; Retrying.", RETRY, SAVING, SAVED], []),
        ([BEGIN, SAVING, SAVED, BEGIN, SAVING], ["data/data.tar"]),
        ([BEGIN, SAVING.replace("\u2018", "'").replace("\u2019", "'")], ["data/data.tar"]),
        (["File \u2018data.tar\u2019 already there; not retrieving."], []),
    ],
)
def test_a_download_that_did_not_get_to_its_end_is_found(lines, names):
    found = unfinished_downloads("\n".join(lines))
    began = datetime(2024, 1, 1, 10, 0, 9 if RETRY in lines else 0).astimezone().timestamp()
    assert found == dict.fromkeys(names, began)


@pytest.mark.parametrize(("behind", "aside"), [(0.5, True), (-0.5, True), (100, False)])
def test_a_file_begun_at_the_start_of_a_second_bears_the_tick_before(behind, aside, tmp_path, monkeypatch):
    log, half = tmp_path / "log", tmp_path / "w.pdparams"
    log.touch()
    half.write_text("half")
    made = half.stat().st_ctime
    monkeypatch.setattr(suite, "unfinished_downloads", lambda _: {half.name: made + behind * TICK_S})
    assert len([*suite._set_half_made_aside(tmp_path, log, made)]) == aside
    assert half.exists() is not aside


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Tell of a script that writes three lines; return what stands on standard error in the end."""

    def tell(capsys, *, terminal):
        monkeypatch.setattr(suite, "ELSEWHERE_S", 0.05)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        monkeypatch.setenv("COLUMNS", "60")
        log = tmp_path / "log"
        log.write_text("x" * 2048)
        with suite._told(log) as one:
            for line in ("a", "b\x1b[1m", "\tc\td " + "c" * 100):
                one(line)
            time.sleep(0.3)
        return capsys.readouterr().err

    return tell


def test_in_a_log_a_line_is_written_now_and_then(told, capsys):
    lines = told(capsys, terminal=False).splitlines()
    assert 2 <= len(lines) <= 6
    assert lines[0].startswith("  0 s, log 2 kB: c d ccc")
    assert max(map(len, lines)) < 60
    assert "\r" not in "".join(lines)


def test_on_a_terminal_it_is_one_line_that_goes_away(told, capsys):
    text = told(capsys, terminal=True)
    assert "\n" not in text
    assert "  0 s, log 2 kB: c d ccc" in text
    assert text.endswith("\r\x1b[2K\x1b[?25h\r")


@pytest.mark.parametrize("begins", [False, True])
def test_ctrl_c_counts_before_and_after_the_script_too(tmp_path, monkeypatch, begins):
    def look(_):
        if (tmp_path / "began").exists() is begins:
            signal.raise_signal(signal.SIGINT)
        return set()

    monkeypatch.setattr(suite, "_changed_files", look)
    try:
        ending, _ = suite.run_script(
            tmp_path, ("bash", "-c", "touch began"), tmp_path / "log", None, keep=False, limit_s=None
        )
    except KeyboardInterrupt:
        assert not begins
    else:
        assert ending.interrupted
    assert (tmp_path / "began").exists() is begins


OUT = "./test_tipc/output/net/whole_infer"


def plan(*commands: Command) -> Plan:
    return a_plan(out=OUT, run=f"{OUT}/runs/RUN", commands=commands)


def command(*argv: str, **more) -> Command:
    return Command(id="infer[cpu]", step="infer", argv=("python", "infer.py", *argv), **more)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--image_dir=./dataset/coco/test2017/"], ["dataset/coco/test2017"]),
        (["--image_dir", "./lite_data/test/demo.jpg"], ["lite_data/test/demo.jpg"]),
        (["-o", "Global.infer_imgs=dataset/val"], ["dataset/val"]),
        (["--model_path=./test_tipc/output/net/model.pdparams"], ["test_tipc/output/net/model.pdparams"]),
        (["pretrained_model=./pretrained/net"], ["pretrained/net"]),
        (["-c", "configs/net.yml", "--config=./data/a.yml"], []),
        (["pretrain_weights=https://paddle.example/net.pdparams"], []),
        (["Transform.NormalizeImage.mean=[0.,0.,0.]", "--use_data=True", "--model_name=a/b"], []),
        ([f"--model_dir={OUT}/runs/RUN/norm", f"--model_dir={OUT}"], []),
        (["--model_dir=${HOME}/x", "--model_path=a/*.pdparams"], []),
    ],
)
def test_data_and_weights_are_told_from_other_words(argv, expected):
    assert [one.path for one in named_paths(plan(command(*argv)))] == expected


def test_paths_are_the_commands_folders():
    (found,) = named_paths(plan(command("Global.infer_imgs=../dataset/val", cwd="deploy")))
    assert (found.path, found.key, found.command) == ("dataset/val", "Global.infer_imgs", "infer[cpu]")


def test_what_the_chain_makes_is_not_asked_for():
    export = command("--weights=./w/net.pdparams", "--output_dir=./output_inference")
    left = command(leaves=(Artifact(what="program", files=("quant/net/*.pdmodel",)),))
    infer = command("--model_dir=./output_inference/net", "--quant_model=quant/net/sub/x")
    assert [one.path for one in named_paths(plan(export, left, infer))] == ["w/net.pdparams"]


def test_faults(tmp_path):
    def fault(path: str, key: str = "--image_dir") -> str:
        return NamedPath(path=path, key=key, command="c").fault(tmp_path)

    (tmp_path / "full/sub").mkdir(parents=True)
    (tmp_path / "full/sub/a").write_text("a")
    (tmp_path / "empty/sub").mkdir(parents=True)
    (tmp_path / "nothing").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "linked").symlink_to("full")
    (tmp_path / "net.pdparams").write_text("w")
    assert [fault(name) for name in ("full", "full/sub/a", "linked", str(tmp_path / "full"))] == [""] * 4
    assert fault("empty") == "is an empty folder"
    assert fault("nothing") == "is an empty file"
    assert fault("absent") == "is missing"
    assert fault("absent/sub") == "is missing"
    assert fault("dangling") == "is a link to nothing"
    assert fault("net", "--pretrained") == "", "Paddle adds the ending"
    assert fault("net") == "is missing"
    os.truncate(tmp_path / "net.pdparams", 0)
    assert fault("net", "--pretrained") == "is an empty file"


@pytest.mark.parametrize(
    ("value", "config", "expected"),
    [
        ("../../data/train", "models/net/config.yaml", "data/train"),
        ("../../data/train", "config.yaml", "../../data/train"),
        ("../shared/train", "", "../shared/train"),
    ],
)
def test_a_path_out_of_the_checkout_may_be_the_configurations(value, config, expected):
    words = ["-m", config, "-o", f"runner.train_data_dir={value}"] if config else [f"--data={value}"]
    assert [one.path for one in named_paths(plan(command(*words)))] == [expected]


@pytest.fixture
def keeping(tmp_path):
    """Run a script among files of the user's; return its exit status and what was put back."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "work/mine/deep").mkdir(parents=True)
    (tmp_path / "work/mine/deep/x").write_text("mine")
    (tmp_path / "work/link").symlink_to("mine")

    def run(text):
        start_keeping(tmp_path / "logs", tmp_path / "bin")
        env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", text], cwd=tmp_path / "work", env=env, check=False)
        kept = [(place.name, beside and beside.name) for place, beside in put_back(tmp_path / "logs")]
        return done.returncode, kept

    run.work = tmp_path / "work"
    return run


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm -rf mine; test ! -e mine", [("mine", None)]),
        ("rm -rf ./*", [("mine", None), ("link", None)]),
        ("rm -rf link; test -d mine", [("link", None)]),
        ("touch mine/deep; rm -rf mine", [("mine", None)]),
        ("mkdir new; touch new/y; rm -rf new absent; test ! -e new", []),
    ],
)
def test_what_was_there_is_there_again(keeping, text, expected):
    before = contents(keeping.work)
    status, kept = keeping(text)
    assert (status, kept) == (0, expected)
    assert contents(keeping.work) == before


def test_what_the_script_made_in_its_place_is_beside_it(keeping):
    for number, name in enumerate(("mine.from-script", "mine.from-script.2"), 1):
        _, kept = keeping(f"rm -rf mine; mkdir mine; echo {number} >mine/x")
        assert kept == [("mine", name)]
        assert (keeping.work / name / "x").read_text() == f"{number}\n"
    for _ in range(2):
        assert keeping("rm link; ln -s elsewhere link")[1] == [("link", "link.from-script")]
    assert (keeping.work / "mine/deep/x").read_text() == "mine"


def test_what_is_left_aside_is_named_once_and_not_put_back_later(keeping):
    logs = keeping.work.parent / "logs"
    start_keeping(logs, keeping.work.parent / "bin")
    env = {**os.environ, "PATH": f"{keeping.work.parent}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", "rm -rf mine; mkdir mine"], cwd=keeping.work, env=env, check=True)
    assert list(left_aside(logs)) == [(keeping.work / "mine", keeping.work / ".mine.kept")]
    assert (keeping.work / ".mine.kept/deep/x").read_text() == "mine"
    assert list(left_aside(logs)) == list(put_back(logs)) == []


def test_the_real_rm_has_its_exit_status(keeping):
    assert keeping("rm absent 2>/dev/null")[0] == 1
    assert keeping("rm -f absent; rm -f")[0] == 0


def test_the_folder_of_its_own_list_is_left(keeping, capfd):
    assert keeping("rm -rf ../logs")[0] == 1
    assert "rm: cannot move '../logs' aside" in capfd.readouterr().err
    assert (keeping.work.parent / "logs").is_dir()
