"""Weights cross from torch to Paddle by the type of their layers, whole or not at all."""

from __future__ import annotations

import os
import pickle
import sys

import pytest
from chain_samples import ROOT
from pickles import Call
from stage_records import load_both

from tipchain.cli import main
from tipchain.core.language import columns
from tipchain.errors import WeightsError
from tipchain.weights.convert import convert_file, to_paddle
from tipchain.weights.files import load_paddle_weights
from tipchain.weights.sides import torch_view

pytestmark = pytest.mark.frameworks
CASE = ROOT / "tests/cases/tiny/tiny.yaml"


@pytest.fixture(scope="module")
def sides():
    sys.path.insert(0, str(ROOT))
    torch, paddle = load_both()
    from tests.cases.tiny import tiny_paddle, tiny_torch

    return torch.torch, paddle.paddle, tiny_torch, tiny_paddle


@pytest.fixture
def models(sides):
    """Both tiny models; every torch tensor is random, so that no two are equal by chance."""
    torch, _, tiny_torch, tiny_paddle = sides
    reference = tiny_torch.build_model()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in reference.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 1.0, generator=generator)
    return reference, tiny_paddle.build_model()


def test_all_misfits_are_listed(models):
    reference, port = models
    state = reference.state_dict()
    del state["head.bias"]
    state["heat.bias"] = state["features.1.weight"]
    state["square.bias"] = state["square.bias"][:5]
    state["features.1.bias"] = state["features.1.bias"].double()
    with pytest.raises(WeightsError) as caught:
        to_paddle(reference, state, port, {"nowhere": "x"})
    text = "\n".join(caught.value.problems)
    for part in (
        "missing: head.bias",
        "unknown: heat.bias, did you mean 'head.bias'?",
        "shape: square.bias is [5], the torch model has [128]",
        "dtype: features.1.bias is float64",
        "names: nowhere: the torch model has no 'nowhere'",
    ):
        assert part in text


def test_paddle_layers_of_unknown_types_are_refused(sides):
    torch, paddle, _, _ = sides
    port = paddle.nn.LayerDict({"part": paddle.nn.SpectralNorm([2, 3])})
    with pytest.raises(WeightsError, match=r"not supported: part\.weight_u belongs to a SpectralNorm"):
        to_paddle(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3).state_dict(), port)
    with pytest.raises(WeightsError, match="not supported"):
        list(torch_view(port))


def test_pickles_that_would_run_code_are_refused_and_not_run(sides, models, tmp_path):
    torch, *_ = sides
    reference, port = models
    torch.save({"head.bias": Call(os.mkdir, str(tmp_path / "ran"))}, tmp_path / "bomb.pth")
    with pytest.raises(WeightsError, match="no complete torch weight file"):
        convert_file(reference, tmp_path / "bomb.pth", port, tmp_path / "out.pdparams")
    (tmp_path / "bomb.pdparams").write_bytes(pickle.dumps({"head.bias": Call(os.mkdir, str(tmp_path / "ran"))}))
    with pytest.raises(WeightsError, match="mkdir"):
        load_paddle_weights(port, tmp_path / "bomb.pdparams")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bomb.pdparams", "bomb.pth"]


def test_command_without_a_case(sides, models, tmp_path, capsys, monkeypatch):
    from safetensors.torch import save_file

    reference, _ = models
    monkeypatch.chdir(ROOT)
    save_file(reference.state_dict(), tmp_path / "a.safetensors")
    (tmp_path / "names.yaml").write_text("head: head\n")
    argv = ["convert-weights", "--torch", str(tmp_path / "a.safetensors"), "--paddle", str(tmp_path / "a.pdparams")]
    argv += ["--reference", "tests.cases.tiny.tiny_torch:build_model", "--names", str(tmp_path / "names.yaml")]
    assert main(argv) == 2
    assert "--port" in capsys.readouterr().err
    argv += ["--port", "tests.cases.tiny.tiny_paddle:build_model"]
    assert main([*argv, "--model-args", "[1]"]) == 2
    assert main([*argv, "--model-args", '{"num_clases": 10}']) == 1
    assert "unexpected keyword argument 'num_clases'" in capsys.readouterr().err
    assert main([*argv, "--model-args", '{"num_classes": 10}']) == 0


def test_command_there_and_back(sides, models, tmp_path, capsys, monkeypatch):
    torch, *_ = sides
    reference, _ = models
    monkeypatch.chdir(ROOT)
    torch.save(reference.state_dict(), tmp_path / "a.pth")
    argv = ["convert-weights", "--case", str(CASE), "--paddle", str(tmp_path / "a.safetensors"), "--torch"]
    assert main([*argv, str(tmp_path / "a.pth")]) == 0
    out = capsys.readouterr().out
    assert "num_batches_tracked (1 times): left behind, for Paddle has none" in out
    assert "matched by structure" not in out
    assert main([*argv, str(tmp_path / "b.pt"), "--to", "torch"]) == 0
    out = capsys.readouterr().out
    assert "num_batches_tracked (1 times): as the torch model has it" in out
    assert f"wrote {tmp_path / 'b.pt'}: 9 torch tensors converted and verified" in out
    first, second = (torch.load(tmp_path / name, weights_only=True) for name in ("a.pth", "b.pt"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first if not name.endswith("tracked"))
    (tmp_path / "a.pth").write_bytes((tmp_path / "a.pth").read_bytes()[:1000])
    argv[4] = str(tmp_path / "c.safetensors")
    assert main([*argv, str(tmp_path / "a.pth")]) == 2
    assert "is no complete torch weight file" in capsys.readouterr().err
    assert not (tmp_path / "c.safetensors").exists()


def test_command_says_what_structure_matched_and_lists_what_it_did_not(tmp_path, capsys, monkeypatch, sides):
    torch, *_ = sides
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "renamed_torch.py").write_text(
        "from torch import nn\ndef build(more=False):\n"
        "    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), *[nn.PReLU(4)] * more)\n"
    )
    (tmp_path / "renamed_paddle.py").write_text(
        "from paddle import nn\ndef build(more=False):\n    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))\n"
    )
    monkeypatch.chdir(tmp_path)
    argv = (
        "convert-weights --torch a.pth --paddle a.pdparams --reference renamed_torch:build --port renamed_paddle:build"
    )
    argv = argv.split()
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)).state_dict(), "a.pth")
    assert main(argv) == 0
    assert "matched by structure: 2 -> 1\n" in capsys.readouterr().out
    torch.save(torch.nn.PReLU(4).state_dict(), "a.pth")
    (tmp_path / "a.pdparams").unlink()
    assert main([*argv, "--model-args", '{"more": true}']) == 2
    captured = capsys.readouterr()
    assert "missing: 0.weight [4, 3]" in captured.err, "of the file, first"
    assert "only in torch: " in captured.err
    assert main([*argv, "--model-args", '{"more": true}', "-v"]) == 2
    full = capsys.readouterr().err
    assert "more that are" not in full
    assert all(f": {name}" in full for name in ("0.weight", "0.bias", "2.weight", "2.bias"))
    assert '  ignore:\n    - "3"' in captured.err, "what both models' layers leave"
    assert not captured.out
    assert not (tmp_path / "a.pdparams").exists()


REFUSED = """\
错误：a.pth：与模型不符
  实际：
    布局：0.projection_of_all_heads [6, 6] 在 torch 中属于自定义类，在移植中属于
      Linear；它是方阵，无法由形状判断是否需要转置
    形状：1.weight [4, 3] float32（Linear）在移植中按 torch 的布局为 [5, 3]
    …… 另有 1 个问题：形状
    仅移植有：0.bias [6] float32（Linear）
    仅 torch 有：2.weight [4] float32（PReLU）
  提示：请指定对应关系（--names、对齐配置的 weights:、names= 和 ignore=）：
  names:
    "0.projection_of_all_heads": "0.weight"  # or T(0.weight)
  ignore:
    - "1"
    - "2"
    - "0.bias"
"""


def test_a_refusal_in_chinese(tmp_path, capsys, monkeypatch, sides):
    torch, *_ = sides
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "own_torch.py").write_text(
        "import torch\nfrom torch import nn\nclass Own(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.projection_of_all_heads = nn.Parameter(torch.ones(6, 6))\n"
        "def build():\n    return nn.Sequential(Own(), nn.Linear(3, 4), nn.PReLU(4))\n"
    )
    (tmp_path / "own_paddle.py").write_text(
        "from paddle import nn\ndef build():\n    return nn.Sequential(nn.Linear(6, 6), nn.Linear(3, 5))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    shapes = {"0.projection_of_all_heads": (6, 6), "1.weight": (4, 3), "1.bias": (4,), "2.weight": (4,)}
    torch.save({name: torch.ones(shape) for name, shape in shapes.items()}, "a.pth")
    words = "convert-weights --torch a.pth --paddle a.pdparams --reference own_torch:build --port own_paddle:build"
    assert main(words.split()) == 2
    text = capsys.readouterr().err
    assert text == REFUSED
    assert all(columns(line) <= 80 for line in text.splitlines())


def test_command_refuses_exchanged_files(tmp_path, capsys):
    argv = ["convert-weights", "--case", str(CASE), "--torch", "a.pdparams", "--paddle", "a.pth"]
    assert main(argv) == 2
    assert "--torch a.pdparams: .pdparams is a paddle file" in capsys.readouterr().err
    argv = ["convert-weights", "--case", str(CASE), "--torch", "a.pth", "--paddle", "b.pth"]
    assert main(argv) == 2
    assert "expected: .pdparams, .safetensors" in capsys.readouterr().err
