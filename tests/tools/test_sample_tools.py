"""What inference reads: images by default, or what the case's own builder finds."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from tipchain.errors import DataError, InputError, UsageError
from tipchain.paddle_tools.infer import ModelCard, classify, open_samples, sample_spec
from tipchain.paddle_tools.program import ProgramError, find_data
from tipchain.parity.case import load_case

CASE = """\
id: demo
sides:
  torch: {model: "sounds:model", dataset: "sounds:build_dataset"}
  paddle: {model: "sounds:model", dataset: "sounds:build_dataset"}
data: {set: mini_ucf, args: {length: 3}}
stages: [data]
"""


class Sounds:
    """Samples that are no images: lines of numbers."""

    def __init__(self, path: Path, length: int) -> None:
        self.files, self.length = sorted(path.glob("*.txt")), length

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int):
        numbers = [float(word) for word in self.files[index].read_text().split()]
        if len(numbers) < self.length:
            raise DataError("is too short", file=self.files[index])
        return np.array(numbers[: self.length], np.float32), -1, self.files[index].name


@pytest.fixture
def module(monkeypatch):
    made = ModuleType("sounds")
    made.build_dataset = lambda root, split, length: []
    made.build_transform = lambda length: lambda image: np.full(length, image.size[0], np.float32)
    monkeypatch.setitem(sys.modules, "sounds", made)
    return made


@pytest.fixture
def case(tmp_path):
    (tmp_path / "case.yaml").write_text(CASE)
    return load_case(tmp_path / "case.yaml")


def test_images_are_what_is_read_by_default(module, case, tmp_path):
    (tmp_path / "val/cat").mkdir(parents=True)
    for name, size in (("cat/b.png", 5), ("cat/a.PNG", 4)):
        Image.new("L", (size, size)).save(tmp_path / "val" / name)
    samples = open_samples(case, None, tmp_path)
    assert sample_spec(case) == "sounds:build_transform"
    assert [(samples[i][0].tolist(), Path(samples[i][2]).name) for i in range(len(samples))] == [
        ([4.0] * 3, "a.PNG"),
        ([5.0] * 3, "b.png"),
    ]
    assert len(open_samples(case, tmp_path / "val/cat/b.png", tmp_path)) == 1
    with pytest.raises(DataError, match="no such file or folder"):
        open_samples(case, tmp_path / "nowhere", tmp_path)


def test_a_cases_own_builder_goes_first(module, case, tmp_path):
    module.build_inference_set = Sounds
    (tmp_path / "a.txt").write_text("1 2 3 4")
    (tmp_path / "given").mkdir()
    (tmp_path / "given/b.txt").write_text("5 6 7")
    assert sample_spec(case) == "sounds:build_inference_set"
    assert open_samples(case, None, tmp_path)[0][2] == "a.txt"
    assert open_samples(case, tmp_path / "given", tmp_path)[0][0].tolist() == [5, 6, 7]


def test_a_module_with_neither_gives_its_data_set_and_none_the_fake_inputs(module, case, tmp_path):
    del module.build_transform
    assert sample_spec(case) is None
    module.build_dataset = lambda root, split, length: [(root, length, split)]
    assert open_samples(case, None, tmp_path)[0] == (tmp_path, 3, "val")
    with pytest.raises(UsageError, match="a build_inference_set or build_transform beside the Paddle data set"):
        open_samples(case, tmp_path, tmp_path)
    side = replace(case.sides["paddle"], dataset=None)
    bare = replace(case, sides={**case.sides, "paddle": side})
    assert sample_spec(bare) is None
    with pytest.raises(InputError, match="has no model input"):
        open_samples(bare, None, tmp_path)


def test_samples_of_any_kind_are_classified_in_batches(module, case, tmp_path, capsys):
    module.build_inference_set = Sounds
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(" ".join("9" if n == number % 3 else "0" for n in range(3)))
    card = ModelCard(case="demo", inputs=[], class_names=("x", "y", "z"), transform="", paddle="")
    shapes = []

    def predictor(batch):
        shapes.append(batch.shape)
        return [batch]

    args = Namespace(batch_size=2, top_k=1, benchmark=True)
    times = classify(predictor, open_samples(case, None, tmp_path), card, args)
    assert shapes == [(2, 3), (2, 3), (2, 3), (1, 3)], "the first batch runs twice"
    assert (times.samples, times.batches) == (5, 3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" [")[0] for line in lines] == [f"file: {n}.txt, top-1:" for n in range(5)]
    assert [line.split("(")[1][0] for line in lines] == list("xyzxy")
    (tmp_path / "3.txt").write_text("1")
    with pytest.raises(ProgramError, match=r"3\.txt: is too short"):
        classify(predictor, open_samples(case, None, tmp_path), card, args)


def test_a_tool_finds_the_lite_data_of_the_cases_set(case):
    assert find_data(case, None, {}) == (case.root / "test_tipc/data/mini_ucf", False)
    assert find_data(case, None, {"TIPCHAIN_DATA": "/chain"}) == (Path("/chain"), True)
    assert find_data(case, Path("mine"), {"TIPCHAIN_DATA": "/chain"}) == (Path("mine"), True)
