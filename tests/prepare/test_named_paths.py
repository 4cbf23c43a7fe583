from __future__ import annotations

import os

import pytest
from chain_samples import a_plan

from tipchain.chain.plan import Artifact, Command, Plan
from tipchain.prepare.suite import NamedPath, named_paths

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
