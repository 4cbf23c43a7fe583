"""Texts settled when a command starts."""

import os

import pytest

from tipchain.chain.artifacts import UnsettledError, settle
from tipchain.chain.plan import Command, Find


def make(root, *names, age=0):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("w")
        os.utime(path, ns=(1, 10**18 - age + number))


def settled(root, text, *files, argv=None, cwd="."):
    command = Command(
        id="eval", step="eval", argv=argv or ("python", f"-o=w={text}"), cwd=cwd, finds=(Find(text=text, files=files),)
    )
    return settle(command, root, root / "run").argv


def test_the_first_pattern_with_a_match_gives_the_text(tmp_path):
    make(tmp_path, "run/iter_2/model.pdparams")
    files = ("run/best_model/model.pdparams", "run/iter_*/model.pdparams")
    assert settled(tmp_path, "run/best_model/model.pdparams", *files)[1] == "-o=w=run/iter_2/model.pdparams"
    make(tmp_path, "run/best_model/model.pdparams", age=100)
    assert settled(tmp_path, "run/best_model/model.pdparams", *files)[1] == "-o=w=run/best_model/model.pdparams"


def test_the_newest_match_counts_then_the_name(tmp_path):
    make(tmp_path, "run/e/3.pdparams", "run/e/1.pdparams")
    make(tmp_path, "run/e/9.pdparams", age=50)
    text = "run/e*/*.pdparams"
    assert settled(tmp_path, text, text)[1] == "-o=w=run/e/1.pdparams"
    for name in "139":
        os.utime(tmp_path / f"run/e/{name}.pdparams", ns=(1, 10**18))
    assert settled(tmp_path, text, text)[1] == "-o=w=run/e/9.pdparams"


def test_the_text_is_written_as_before(tmp_path):
    make(tmp_path, "run/a/m_epoch_00002.pdparams")
    pattern = "run/a/m_epoch_*.pdparams"
    name = "run/a/m_epoch_00002.pdparams"
    forms = {
        "./run/a/m.pdparams": f"./{name}",
        f"{tmp_path}/run/a/m.pdparams": f"{tmp_path}/{name}",
        "run/a/m": name.removesuffix(".pdparams"),
        "./run/a/m": f"./{name}".removesuffix(".pdparams"),
        "run/a/m.pdopt": name,
    }
    for text, expected in forms.items():
        for head in ("", f"{tmp_path}/"):
            both = (f"{head}{pattern}", f"{head}{pattern}".removesuffix(".pdparams"))
            assert settled(tmp_path, text, *both)[1] == f"-o=w={expected}", text
    # A pattern that is no prefix itself gives the whole name, as the original's second choice does.
    assert settled(tmp_path, "run/a/m", pattern)[1] == f"-o=w={name}"
    (tmp_path / "deploy").mkdir()
    assert settled(tmp_path, "../run/a/m.pdparams", pattern, cwd="deploy")[1] == f"-o=w=../{name}"


def test_a_file_that_stands_for_a_prefix_keeps_its_ending(tmp_path):
    make(tmp_path, "run/best_model/model.pdparams")
    files = ("run/latest.pdparams", "run/latest", "run/best_model/model.pdparams")
    assert settled(tmp_path, "run/latest", *files)[1] == "-o=w=run/best_model/model.pdparams"
    make(tmp_path, "run/latest.pdparams")
    assert settled(tmp_path, "run/latest", *files)[1] == "-o=w=run/latest"


def test_a_prefix_of_another_name_is_no_text(tmp_path):
    make(tmp_path, "run/x/latest.pdparams")
    argv = ("run/m", "run/m.pdparams", "run/m_export", "run/m-2", "-o", "k=run/m;l=run/m")
    found = settled(tmp_path, "run/m", "run/x/*.pdparams", "run/x/*", argv=argv)
    new = "run/x/latest"
    assert found == (new, f"{new}.pdparams", "run/m_export", "run/m-2", "-o", f"k={new};l={new}")


def test_texts_do_not_settle_one_another(tmp_path):
    make(tmp_path, "run/a/b", "run/b/a")
    finds = (Find(text="run/1", files=("run/a/b",)), Find(text="run/1/2", files=("run/b/a",)))
    command = Command(id="x", step="eval", argv=("run/1", "run/1/2"), finds=finds)
    assert settle(command, tmp_path, tmp_path / "run").argv == ("run/a/b", "run/b/a")


@pytest.mark.parametrize(
    "pattern", ["run/../other/*.pdparams", "{root}/other/*.pdparams", "run/link/*.pdparams", "run/w*"]
)
def test_what_lies_outside_the_run_is_refused(tmp_path, pattern):
    make(tmp_path, "other/w.pdparams")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/link").symlink_to(tmp_path / "other")
    (tmp_path / "run/w.pdparams").symlink_to("../other/w.pdparams")
    with pytest.raises(UnsettledError, match="found for run/best, lies outside the run's folder"):
        settled(tmp_path, "run/best", pattern.format(root=tmp_path))


def test_a_link_inside_the_run_is_fine_and_a_broken_one_no_match(tmp_path):
    make(tmp_path, "run/epoch_2.pdparams")
    (tmp_path / "run/latest.pdparams").symlink_to("epoch_2.pdparams")
    (tmp_path / "run/best.pdparams").symlink_to("epoch_9.pdparams")
    files = ("run/best.pdparams", "run/latest.pdparams")
    assert settled(tmp_path, "run/best.pdparams", *files)[1] == "-o=w=run/latest.pdparams"


def test_a_run_reached_through_a_link_is_inside_itself(tmp_path):
    make(tmp_path, "disk/runs/1/w.pdparams")
    (tmp_path / "run").symlink_to("disk/runs/1")
    assert settled(tmp_path, "run/*.pdparams", "run/*.pdparams")[1] == "-o=w=run/w.pdparams"


def test_a_program_outside_of_the_run_is_the_newer_one_by_whatever_name(tmp_path):
    make(tmp_path, "models/m.pdmodel", age=50)
    files = ("models/m.pdmodel", "models/m.json")

    def words():
        finds = tuple(Find(text=text, files=files, anywhere=True) for text in ("./models/m.pdmodel", "m.pdmodel"))
        argv = ("x", "--model=./models/m.pdmodel", "--model_filename=m.pdmodel")
        return settle(Command(id="a", step="convert", argv=argv, finds=finds), tmp_path, tmp_path / "run").argv[1:]

    assert words() == ("--model=./models/m.pdmodel", "--model_filename=m.pdmodel")
    make(tmp_path, "models/m.json")
    assert words() == ("--model=./models/m.json", "--model_filename=m.json")
    for file in files:
        (tmp_path / file).unlink()
    assert words() == ("--model=./models/m.pdmodel", "--model_filename=m.pdmodel")
