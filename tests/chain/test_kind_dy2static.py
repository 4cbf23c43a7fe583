"""Plans of a training in dynamic mode and as a static graph."""

import re
import sys

import pytest
from chain_samples import kind_sample

from tipchain.chain.kinds.dy2static import NUDGED, RULES, RUNS
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options
from tipchain.errors import ParamsError

BASE, _AMP, _TEXT = kind_sample("dy2static", "paddleclas").partition("=========================== amp_train")
AMP = _AMP + _TEXT
UNTOLD = AMP.replace("to_static_train:-o Global.to_static=True", "null:null")


def planned(tmp_path, text, suite="paddleclas", **more):
    path = tmp_path / "Net_train_dy2static_python.txt"
    path.write_text(text)
    options = Options(root="/w", **more.pop("options", {}))
    return load_plan(path, None, suite=suite, options=options, **more)


def test_both_trainings_the_envelope_and_the_comparison(tmp_path):
    plan = planned(tmp_path, BASE, options={"device": "cpu"})
    dynamic, static, *nudged, compare = plan.commands
    assert [one.id for one in plan.commands] == [
        "train[base_train;dynamic]",
        "train[base_train;static]",
        "train[base_train;nudged=0]",
        "train[base_train;nudged=1]",
        "compare[base_train]",
    ]
    assert len(nudged) == RUNS
    for number, one in enumerate(nudged):
        assert one.argv == (dynamic.argv[0], NUDGED, str(number), "16", *dynamic.argv[1:])
    assert set(static.argv) - set(dynamic.argv) == {
        "Global.to_static=True",
        next(word for word in static.argv if word.startswith("Global.output_dir=")),
    }
    assert compare.argv[:3] == (sys.executable, "-m", "tipchain.parity.envelope")
    assert list(compare.argv[3:5]) == [dynamic.log, static.log]
    assert set(compare.needs) == {one.id for one in plan.commands[:-1]}
    assert len({one.log for one in plan.commands}) == len(plan.commands)
    assert not any(one.on_gpu for one in plan.commands)


def test_each_section_is_a_training_of_its_own(tmp_path):
    plan = planned(tmp_path, BASE + "\n" + AMP, options={"device": "cpu"})
    assert {one.leg for one in plan.commands} == {"base_train", "amp_train"}
    amp = [one.skip for one in plan.commands if one.leg == "amp_train" and one.step == "train"]
    assert set(amp) == {"AMP on a CPU: Paddle ignores it there"}
    assert not any(one.skip for one in plan.commands if one.leg == "base_train")


def test_a_section_without_words_for_the_static_graph_is_not_compared_with_itself(tmp_path):
    legacy = planned(tmp_path, UNTOLD, legacy=True)
    assert "Global.to_static=True" not in legacy.commands[1].argv
    plan = planned(tmp_path, BASE + "\n" + UNTOLD)
    told = [one.skip for one in plan.commands if one.leg == "amp_train" and one.step == "train"]
    assert all("no line to_static_train:" in one for one in told)
    assert any("twice in dynamic mode" in note for note in plan.notes)


def test_a_command_that_the_original_runs_first_is_told_and_not_run(tmp_path):
    text = kind_sample("dy2static", "paddlenlp")
    plan = planned(tmp_path, text, suite="paddlenlp")
    assert [one.step for one in plan.commands] == ["train"] * 4 + ["compare"]
    (note,) = [note for note in plan.notes if "run it before the chain" in note]
    assert ":22: sed: the original runs this command first" in note  # and not some hundred signs later
    assert not [one for one in plan.commands if "sed" in one.argv]
    assert not [
        note for note in planned(tmp_path, text.rpartition("sed -i")[0], suite="paddlenlp").notes if "sed" in note
    ]


def test_a_lost_line_is_refused_by_its_place_in_the_file(tmp_path):
    text = BASE + "\n" + AMP.replace("pact_train:null\n", "").replace("-o Global.pretrained_model:null\n", "")
    with pytest.raises(ParamsError) as caught:
        planned(tmp_path, text)
    assert caught.value.line > BASE.count("\n")


@pytest.mark.parametrize(
    ("suite", "line", "loss"),
    [
        (
            "paddleclas",
            "[Train][Epoch 1/2][Iter: 0/4]lr(L): 0.1, top1: 0.5, CELoss: 6.91, loss: 6.90812, ips: 3",
            "6.90812",
        ),
        ("paddlenlp", "step_idx: 10, epoch: 0, batch: 10, avg loss: 11.1234, normalized loss: 9.7", "11.1234"),
        ("paddleseg", "2026 [INFO] [TRAIN] epoch: 1, iter: 1/2, loss: 0.7153, lr: 0.01", "0.7153"),
        ("paddlevideo", "epoch:[  1/2  ] train step:0    loss: 1.23456 lr: 0.001", "1.23456"),
        ("paddleclas", "[Train][Epoch 1/2][Iter: 0/4]lr: 0.1, loss: nan, ips: 3", "nan"),
    ],
)
def test_the_losses_that_the_originals_look_for(suite, line, loss):
    assert re.search(RULES[suite].losses, line)[1] == loss
