from chain_samples import TEMPLATE, edit

from tipchain.chain.build import legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.profiles import get_suite
from tipchain.modes import Mode


def make(text, mode, suite):
    return expand(legacy_spec(text, "f.txt", get_suite(suite), Mode(mode)), "f.txt").commands


def test_a_null_training_to_which_words_are_added_is_run():
    text = edit(TEMPLATE, ("norm_train", "norm_train:null"), ("trainer", "trainer:to_static_train"))
    text += "=====to_static_train_benchmark_params=====\nto_static_train:-o a=1\n"
    argv = make(text, "lite_train_lite_infer", "paddlegan")[0].argv
    assert argv[:4] == ("python", "null", "-o", "a=1")
    assert not make(edit(text, ("trainer", "trainer:norm_train")), "lite_train_lite_infer", "paddlegan")


def test_a_bar_is_a_blank_in_values_and_skips_an_evaluation_and_an_export():
    text = edit(TEMPLATE, ("eval:", "eval:eval.py 'a|b'"), ("train_model_name", "train_model_name:n"))
    text = text.replace("train_model_name:n\nnull:null", "train_model_name:n\ndata:a|b")
    commands = make(text, "lite_train_lite_infer", "template")
    assert [command.step for command in commands][:2] == ["train", "export"]
    infers = [command.argv for command in commands if command.step == "infer"]
    assert infers
    assert all(argv[argv.index("--image=a") + 1] == "b" for argv in infers)
    text = edit(text, ("norm_export", "norm_export:export.py a|b"))
    assert [command.step for command in make(text, "lite_train_lite_infer", "template")] == ["train"]


def test_no_interpreter_leaves_the_script_alone():
    train, *_, infer = make(edit(TEMPLATE, ("python:", "python:")), "lite_train_lite_infer", "template")
    assert (train.argv[0], infer.argv[0]) == ("train.py", "infer.py")
