"""Lines of a parameter file changed from the command line: ``--set`` and ``--device``."""

import pytest
from chain_samples import TEMPLATE, edit
from suite_samples import SUITE_FILES

from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options
from tipchain.errors import UsageError
from tipchain.modes import Mode

LITE, WHOLE = Mode.LITE_TRAIN_LITE_INFER, Mode.WHOLE_INFER


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans a text with options."""

    def make(text=TEMPLATE, mode=LITE, *, suite=None, legacy=False, **options):
        path = tmp_path / "p.txt"
        path.write_text(text)
        return load_plan(path, mode, suite=suite, legacy=legacy, options=Options(root="/w", **options))

    return make


def words(plan, step="train"):
    return [command.argv for command in plan.commands if command.step == step]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("--epochs=lite_train_lite_infer=7", ("--epochs", "--epochs:lite_train_lite_infer=7")),
        ("train_params:--device=gpu", ("--device", "--device:gpu")),
        ("44:--bs=8|16", ("--bs", "--bs:8|16")),
        ("norm_train=train.py -o a=b", ("norm_train", "norm_train:train.py -o a=b")),
        ("--epochs=", ("--epochs", "--epochs:")),
    ],
)
def test_a_changed_line_is_that_of_an_edited_file(plan, setting, line, legacy):
    changed = plan(settings=(setting,), legacy=legacy)
    assert changed.commands == plan(edit(TEMPLATE, line), legacy=legacy).commands
    assert changed.commands != plan(legacy=legacy).commands
    key = line[0]
    assert any(note.startswith(f"--set {setting!r}: line ") and f", {key}, is" in note for note in changed.notes)


def test_a_setting_that_changes_nothing_is_no_note(plan):
    assert plan(settings=("python=python",)).notes == plan().notes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("--epoch=1",), "no line of .*p.txt has the key '--epoch', did you mean '--epochs'"),
        (("--epochs",), "no line of .*p.txt has the key '--epochs'; expected KEY=VALUE"),
        (("null=1",), r"\d+ lines of .*p.txt have the key 'null'\n    line 12: --set '12:null=1'"),
        (("--bs=1", "44:--bs=2"), r"--set '44:--bs=2': changes .*p.txt:44, as --set '--bs=1' does"),
        (("python=a\nb",), "a control character cannot stand in"),
    ],
)
def test_a_setting_that_names_no_line_is_refused(plan, settings, message):
    with pytest.raises(UsageError, match=message):
        plan(settings=settings)


@pytest.mark.parametrize(
    ("suite", "word"),
    [
        ("paddleclas", ("-o", "Global.device=cpu")),
        ("paddleseg", ("--device=cpu",)),
        ("paddledetection", ("use_gpu=False",)),
        ("template", ("--device=cpu",)),
    ],
)
def test_on_the_cpu_nothing_needs_a_gpu(plan, suite, word):
    found = plan(SUITE_FILES[suite], suite=suite, device="cpu")
    assert {"train", "infer"} <= {command.step for command in found.commands}
    assert not any(command.on_gpu or command.gpus or command.env for command in found.commands)
    (train, *_) = words(found)
    assert all(one in train for one in word)
    assert any(note.startswith("--device cpu: line 4, gpu_list, is '-1' instead of") for note in found.notes)


def test_a_gpu_is_taken_instead_of_the_list(plan):
    text = edit(TEMPLATE, ("gpu_list", "gpu_list:0|0,1"), ("--device", "--device:cpu|cpu"))
    found = plan(text, device="gpu:3")
    trains = [command for command in found.commands if command.step == "train"]
    assert [command.gpus for command in trains] == [("3",)]
    assert "--device=gpu" in trains[0].argv
    # Without a number the file's own GPUs stay.
    own = [command.gpus for command in plan(text, device="gpu").commands if command.step == "train"]
    assert own == [("0",), ("0", "1")]
    cpu = [command.gpus for command in plan(TEMPLATE, device="gpu").commands if command.step == "train"]
    assert cpu == [("0",)]


def test_without_training_the_gpu_is_that_of_inference(plan):
    text = edit(TEMPLATE, ("--use-gpu", "--use-gpu:True|False"))
    gpus = {command.gpus for command in plan(text, WHOLE, device="gpu:2").commands if command.on_gpu}
    assert gpus == {("2",)}
    on_cpu = plan(text, WHOLE, device="cpu").commands
    assert on_cpu
    assert not any(command.on_gpu for command in on_cpu)
