"""The commands of a chain get the data folders of the case that the file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tipchain.chain.execute import Place
from tipchain.chain.plan import Command
from tipchain.commands.plan import add_chain_arguments, options
from tipchain.modes import DataFolders, Mode

ROOT = Path(__file__).resolve().parents[2]
MVF = ROOT / "test_tipc/configs/mvf/train_infer_python.txt"
ALEXNET = ROOT / "test_tipc/configs/alexnet/train_infer_python.txt"


def environment_of(step: str, **place) -> dict[str, str]:
    command = Command(id=step, step=step, argv=("true",))
    mode = Mode.LITE_TRAIN_WHOLE_INFER
    return Place(root=Path("/root"), run=Path("/run"), mode=mode, **place).environment(command)


def data_of(step: str, **place) -> str:
    return environment_of(step, **place)["TIPCHAIN_DATA"]


def test_logs_are_english_whoever_reads_them(monkeypatch):
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    assert environment_of("align")["TIPCHAIN_LANG"] == "en"


def test_the_folders_that_a_place_is_given_go_before_the_modes_and_the_users_before_all():
    assert (data_of("train"), data_of("eval")) == ("/root/test_tipc/data/lite_data", "/root/test_tipc/data/whole_data")
    folders = DataFolders(train="a", other="b")
    assert [data_of(step, folders=folders) for step in ("train", "eval", "align", "infer")] == [
        "/root/a",
        "/root/b",
        "/root/b",
        "/root/b",
    ]
    assert data_of("train", folders=folders, data=Path("/mine")) == "/mine"


@pytest.mark.parametrize(
    ("params", "mode", "folders"),
    [
        (MVF, "lite_train_whole_infer", ("mini_ucf", "whole_ucf")),
        (MVF, "whole_infer", ("whole_ucf", "whole_ucf")),
        (ALEXNET, "lite_train_whole_infer", ("lite_data", "whole_data")),
    ],
)
def test_options_hold_the_folders_of_the_files_case(params, mode, folders):
    import argparse

    parser = argparse.ArgumentParser()
    add_chain_arguments(parser)
    found = options(parser.parse_args([str(params), mode])).data
    assert (found.train, found.other) == tuple(f"test_tipc/data/{name}" for name in folders)


def test_a_file_without_a_case_has_the_modes_folders(tmp_path):
    import argparse

    parser = argparse.ArgumentParser()
    add_chain_arguments(parser)
    (tmp_path / "p.txt").write_text("no parameter file")
    assert options(parser.parse_args([str(tmp_path / "p.txt"), "whole_infer"])).data is None
