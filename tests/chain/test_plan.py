"""From slots to commands: the default behaviour."""

import pytest
from chain_samples import ALIGNMENT, TEMPLATE, TUTORIAL, edit
from suite_samples import SUITE_FILES

from tipchain.chain.build import build_spec
from tipchain.chain.expand import expand
from tipchain.chain.load import load_plan
from tipchain.chain.params import parse_params
from tipchain.chain.plan import Options
from tipchain.chain.profiles import get_suite
from tipchain.errors import ParamsError
from tipchain.modes import Mode

LITE = Mode.LITE_TRAIN_LITE_INFER
RUN = "./test_tipc/output/net/lite_train_lite_infer/runs/RUN"


def make(text, mode=LITE, suite="tipchain", *, lenient=False, **options):
    spec = build_spec(parse_params(text, "f.txt"), get_suite(suite), mode, lenient=lenient)
    return expand(spec, "f.txt", Options(**options))


def by_id(plan):
    return {command.id: command for command in plan.commands}


def test_the_whole_plan_of_the_usual_file():
    plan = make(TEMPLATE)
    save = f"{RUN}/norm_train_gpus_-1_autocast_null"
    assert [command.id for command in plan.commands] == [
        "train[norm_train;gpus=-1]",
        "eval[norm_train;gpus=-1]",
        "export[norm_train;gpus=-1]",
        "infer[cpu;mkldnn=False;threads=2;bs=1;precision=fp32]",
        "infer[cpu;mkldnn=False;threads=2;bs=4;precision=fp32]",
        "infer[cpu;mkldnn=True;threads=2;bs=1;precision=fp32]",
        "infer[cpu;mkldnn=True;threads=2;bs=4;precision=fp32]",
    ]
    train, evaluation, export, infer, *_ = plan.commands
    assert train.argv == (
        *("python", "train.py", "--case", "a.yaml", "--device=cpu", f"--output-dir={save}"),
        *("--epochs=1", "--batch-size=4"),
    )
    assert evaluation.argv == ("python", "eval.py", f"--pretrained={save}/best.pdparams", "--device=cpu")
    assert export.argv == ("python", "export.py", f"--weights={save}/best.pdparams", f"--save-dir={save}")
    assert infer.argv == (
        *("python", "infer.py", "--use-gpu=False", "--mkldnn=False", "--threads=2", f"--model={save}"),
        *("--bs=1", "--image=./images", "--benchmark=True", "--precision=fp32"),
    )
    assert [command.needs for command in plan.commands[:4]] == [(), (train.id,), (train.id,), (export.id,)]
    assert {command.cwd for command in plan.commands} == {"."}
    assert not any(command.env for command in plan.commands)
    assert train.log == f"{RUN[2:]}/train-norm_train-gpus=-1.log"
    assert not plan.notes


# Alignment


def test_alignment_comes_first_on_the_files_device():
    plan = make(TEMPLATE + ALIGNMENT)
    assert [command.step for command in plan.commands[:6]] == ["align"] * 5 + ["train"]
    assert plan.commands[1].id == "align[02]"
    assert plan.commands[1].argv == (
        *("python", "test_tipc/02_test_data.py", "--case", "configs/net.yaml"),
        *("--mode", "lite_train_lite_infer", "--device", "cpu"),
    )
    assert all(command.needs == () for command in plan.commands[:6])
    gpu = make(edit(TEMPLATE + ALIGNMENT, ("gpu_list", "gpu_list:1,2|-1")))
    assert gpu.commands[0].argv[-1] == "gpu:1"
    assert gpu.commands[0].on_gpu
    assert make(TEMPLATE + ALIGNMENT, device="gpu").commands[0].argv[-1] == "gpu:0"


def test_whole_infer_aligns_forward_data_and_metric_only():
    plan = make(TEMPLATE + ALIGNMENT, Mode.WHOLE_INFER)
    assert [command.id for command in plan.commands[:4]] == [
        *("align[01]", "align[02]", "align[03]"),
        "export[whole_infer]",
    ]
    some = make(edit(TEMPLATE + ALIGNMENT, ("steps", "steps:02|05")))
    assert [command.id for command in some.commands if command.step == "align"] == ["align[02]", "align[05]"]
    none = make(edit(TEMPLATE + ALIGNMENT, ("steps", "steps:04|05")), Mode.WHOLE_INFER)
    assert "nothing is aligned: whole_infer has none of the file's steps" in none.notes


def test_a_null_case_is_no_alignment_and_a_step_is_planned_once():
    without = make(edit(TEMPLATE + ALIGNMENT, ("alignment:", "alignment:null")))
    assert without.commands == make(TEMPLATE).commands
    twice = make(edit(TEMPLATE + ALIGNMENT, ("steps", "steps:01|01|03")))
    assert [command.id for command in twice.commands][:3] == ["align[01]", "align[03]", "train[norm_train;gpus=-1]"]


def test_stages_without_a_script_share_one_command_that_stands_in_the_files_order():
    plan = make(edit(TEMPLATE + ALIGNMENT, ("steps", "steps:01|optimizer|lr|05|inference")))
    aligned = [command for command in plan.commands if command.step == "align"]
    assert [command.id for command in aligned] == ["align[01]", "align[optimizer+lr]", "align[05]", "align[inference]"]
    words = f"-m tipchain align configs/net.yaml --only optimizer,lr --mode {LITE.value} --device cpu"
    assert " ".join(aligned[1].argv[1:]) == words


# null, nothing planned


def test_null_means_absent_everywhere():
    plan = make(edit(TEMPLATE, ("infer_model", "infer_model:null")), Mode.WHOLE_INFER)
    assert plan.commands == ()
    assert "f.txt:37: infer_model: names no model" in plan.notes[0]
    without = make(edit(TEMPLATE, ("inference", "inference:null")))
    assert [command.step for command in without.commands] == ["train", "eval", "export"]
    assert "inference is null, so nothing is inferred" in without.notes
    bare = make(edit(TEMPLATE, ("eval:", "eval:null"), ("norm_export", "norm_export:null")))
    assert [command.step for command in bare.commands] == ["train"]


def test_an_empty_model_is_none_and_a_missing_export_is_noted():
    text = edit(TEMPLATE, ("infer_model", "infer_model:a||b"))
    plan = make(text, Mode.WHOLE_INFER)
    models = {word for command in plan.commands for word in command.argv if word.startswith("--model")}
    assert models == {"--model=b", "--model=./test_tipc/output/net/whole_infer/runs/RUN/whole_infer_export_0"}
    assert all(any(word.startswith("--model") for word in command.argv) for command in plan.commands[1:])
    assert "f.txt:38: infer_export: has no entry for the model b" in plan.notes[0]


@pytest.mark.parametrize(("start", "new"), [("python", "python:null"), ("train_model_name", "train_model_name:null")])
def test_what_a_chain_cannot_do_without_is_asked_for(start, new):
    with pytest.raises(ParamsError, match=f": {start}: "):
        make(edit(TEMPLATE, (start, new)))


@pytest.mark.parametrize(
    ("mode", "changes", "reason"),
    [
        (LITE, [("--precision", "--precision:fp16"), ("--mkldnn", "--mkldnn:False")], "on the cpu: no combination"),
        (Mode.WHOLE_INFER, [("infer_quant", "infer_quant:True")], "--precision:fp32 can be (quantized: True)"),
        (LITE, [("norm_export", "norm_export:null")], "norm_train has no export program"),
    ],
)
def test_it_is_said_when_nothing_is_inferred(mode, changes, reason):
    plan = make(edit(TEMPLATE, *changes), mode)
    assert plan.commands
    assert not any(command.step == "infer" for command in plan.commands)
    assert any(reason in note for note in plan.notes)


@pytest.mark.parametrize(
    ("change", "line", "lost"),
    [
        (("gpu_list", "gpu_list:"), 4, "trained"),
        (("--amp", "--amp:"), 6, "trained"),
        (("trainer", "trainer"), 15, "trained"),
        (("--bs", "--bs:"), 44, "inferred"),
    ],
)
def test_a_list_without_entries_does_not_leave_out_a_part_of_the_chain_in_silence(change, line, lost):
    text = edit(TEMPLATE, change)
    told = f"f.txt:{line}: {change[0]}: is an empty list, so nothing is {lost}"
    with pytest.raises(ParamsError, match=told):
        make(text)
    plan = make(text, lenient=True)
    assert not any(command.step == ("train" if lost == "trained" else "infer") for command in plan.commands)
    assert any(told in note for note in plan.notes)


# Values


def test_mode_fallback():
    plan = make(TEMPLATE, Mode.LITE_TRAIN_WHOLE_INFER)
    assert {"--epochs=1", "--batch-size=4"} <= set(plan.commands[0].argv)
    assert "f.txt:7: --epochs: has no value for lite_train_whole_infer" in plan.notes[0]
    whole = make(TEMPLATE, Mode.WHOLE_TRAIN_WHOLE_INFER)
    assert "--epochs=9" in whole.commands[0].argv
    assert not any(word.startswith("--batch-size") for word in whole.commands[0].argv)
    assert "f.txt:9: --batch-size: has no value for whole_train_whole_infer; the argument is left out" in whole.notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("infer_quant", "infer_quant:Fasle"), "f.txt:39: infer_quant: .Fasle. is neither(.|\n)*did you mean 'False'"),
        (("--mkldnn", "--mkldnn:true"), "did you mean 'True'"),
        (("--use-gpu", "--use-gpu:Ture"), "did you mean 'True'"),
        (("trainer", "trainer:norm_trian"), "unknown trainer 'norm_trian'(.|\n)*'norm_train'[?] Or else --lenient"),
        (("--epochs", "--epochs:lite_trian_lite_infer=1"), "unknown mode(.|\n)*did you mean 'lite_train_lite_infer'"),
        (("--amp", "--amp:apm"), "unknown precision 'apm'(.|\n)*did you mean 'amp'"),
        (("--epochs", "--epochs:lite_train_lite_infer=one"), "f.txt:7: --epochs: 'one' is no number"),
        (("--threads", "--threads:2|two"), "--threads: 'two' is no number"),
    ],
)
def test_typos_refuse_to_run_unless_lenient(change, message):
    text = edit(TEMPLATE, change)
    mode = Mode.WHOLE_INFER if "quant" in change[0] else LITE
    with pytest.raises(ParamsError, match=message):
        make(text, mode)
    assert make(text, mode, lenient=True).notes


@pytest.mark.parametrize("value", ["a/b", "..", ".", "", "$(touch x)", "a b", "-x", "a;b"])
def test_a_model_name_that_is_no_folder_is_refused(value):
    with pytest.raises(ParamsError, match=r"f\.txt:2: model_name: "):
        make(edit(TEMPLATE, ("model_name", f"model_name:{value}")))


@pytest.mark.parametrize("role", ["norm_train", "eval:", "norm_export", "inference", "python", "--epochs", "--bs"])
@pytest.mark.parametrize("value", ["x $(touch /tmp/x)", "x `id`", "x; id", "it's"])
def test_no_value_reaches_a_shell(role, value):
    key = role.rstrip(":")
    text = edit(TEMPLATE, (role, f"{key}:lite_train_lite_infer={value}" if role == "--epochs" else f"{key}:{value}"))
    with pytest.raises(ParamsError, match=r"f\.txt:\d+: "):
        make(text)


# Devices


def test_hosts_are_recognised_by_parsing():
    plan = make(edit(TEMPLATE, ("gpu_list", "gpu_list:10.0.0.1,b:80;0,1|0,1,2,3,4,5,6,7,8,9")))
    hosts, many = (command.argv for command in plan.commands if command.step == "train")
    assert hosts[1:5] == ("-m", "paddle.distributed.launch", "--ips=10.0.0.1,b:80", "--gpus=0,1")
    assert any(word.endswith("norm_train_gpus_0,1_autocast_null_nodes_2") for word in hosts)
    assert not any(word.startswith("--ips") for word in many)
    with pytest.raises(ParamsError, match="'0;x' names no device"):
        make(edit(TEMPLATE, ("gpu_list", "gpu_list:0;x")))


def test_two_values_for_a_mode_are_refused_unless_lenient():
    text = edit(TEMPLATE, ("--epochs", "--epochs:lite_train_lite_infer=2|lite_train_lite_infer=5"))
    with pytest.raises(ParamsError, match="has two values for lite_train_lite_infer"):
        make(text)
    plan = make(text, lenient=True)
    assert "--epochs=2" in plan.commands[0].argv
    assert "has two values" in plan.notes[0]


def test_device_per_leg_repeats_the_last_value():
    plan = make(edit(TEMPLATE, ("gpu_list", "gpu_list:0|0,1"), ("--device", "--device:gpu")))
    assert "--device=gpu" in by_id(plan)["train[norm_train;gpus=0,1]"].argv
    assert not any("has fewer values" in note for note in plan.notes)


def test_amp_on_a_cpu_is_skipped_with_the_reason_and_not_on_a_gpu():
    text = edit(TEMPLATE, ("gpu_list", "gpu_list:-1|0"), ("--amp", "--amp:null|amp"), ("--device", "--device:cpu|gpu"))
    commands = by_id(make(text))
    assert commands["train[norm_train;gpus=-1;amp]"].skip == "AMP on a CPU: Paddle ignores it there"
    assert not commands["train[norm_train;gpus=-1]"].skip
    amp = commands["train[norm_train;gpus=0;amp]"]
    assert not amp.skip
    assert {"--amp=amp", "Global.use_amp=True"} <= set(amp.argv)


# Trainers and inference points


def test_pact_starts_from_what_norm_left_and_infers_quantized():
    text = edit(
        TEMPLATE,
        ("trainer", "trainer:norm_train|pact_train"),
        ("pact_train", "pact_train:slim.py"),
        ("quant_export", "quant_export:slim_export.py"),
        ("--precision", "--precision:fp32|int8"),
    )
    commands = by_id(make(text))
    pact = commands["train[pact_train;gpus=-1]"]
    assert f"--pretrained={RUN}/norm_train_gpus_-1_autocast_null/best.pdparams" in pact.argv
    assert pact.needs == ("train[norm_train;gpus=-1]",)
    quantized = [name for name in commands if name.startswith("infer[pact_train")]
    assert quantized
    assert all("mkldnn=True" in name and "precision=int8" in name for name in quantized)


def test_impossible_points_are_left_out_on_a_gpu():
    text = edit(TEMPLATE, ("--use-gpu", "--use-gpu:True"), ("--precision", "--precision:fp32|fp16|int8"))
    lines = text.splitlines()
    lines[44] = "--trt:False|True"
    points = [c.id for c in make("\n".join(lines)).commands if c.step == "infer"]
    assert "infer[gpu;trt=True;precision=fp16;bs=1]" in points
    assert not any("int8" in point or ("trt=False" in point and "fp16" in point) for point in points)
    quant = make(edit("\n".join(lines), ("infer_quant", "infer_quant:True")), Mode.WHOLE_INFER)
    assert {c.id for c in quant.commands if c.step == "infer"} == {
        "infer[gpu;trt=True;precision=int8;bs=1]",
        "infer[gpu;trt=True;precision=int8;bs=4]",
    }


def test_a_file_of_30_lines_infers_on_the_programs_own_data():
    short = TUTORIAL.replace("--img-path:./images/demo.jpg\n--benchmark:True\n", "")
    (infer, *_) = (one for one in make(short, suite="tutorial").commands if one.step == "infer")
    assert [word.partition("=")[0] for word in infer.argv[2:]] == ["--use-gpu", "--model-dir", "--batch-size"]


def test_a_program_that_names_its_model_needs_no_line_for_it():
    short = TUTORIAL.replace("--model-dir:./output/net_infer/\n--img-path:./images/demo.jpg\n", "")
    plan = make(edit(short, ("inference:", "inference:infer.py --model-dir ./exported")), suite="tutorial")
    (infer, *_) = (one for one in plan.commands if one.step == "infer")
    assert infer.argv[2:] == ("--model-dir", "./exported", "--use-gpu=True", "--batch-size=1", "--benchmark=True")


def test_a_list_where_the_suite_takes_one_device_is_told_as_such():
    with pytest.raises(ParamsError, match=r"use_gpu.*is a list, and PaddleDetection hands one value to all entries"):
        make(edit(SUITE_FILES["paddledetection"], ("use_gpu", "use_gpu:True|True")), suite="paddledetection")


def leaf(folder):
    plan = load_plan(
        folder / "net.txt", Mode.LITE_TRAIN_LITE_INFER, suite="tutorial", options=Options(root=str(folder))
    )
    (line,) = {one.line for command in plan.commands if command.step == "infer" for one in command.leaves}
    return line, [note for note in plan.notes if "result" in note]


def test_a_profiles_result_line_is_wanted_of_the_program_that_it_is_of(tmp_path):
    (tmp_path / "net.txt").write_text(TUTORIAL)
    assert leaf(tmp_path) == (get_suite("tutorial").result_line, [])  # which one it is cannot be told
    program = tmp_path / "infer.py"
    program.write_text("print(f'class_id: {class_id}, prob: {prob}')\n")
    assert leaf(tmp_path) == (get_suite("tutorial").result_line, [])
    program.write_text("print(f'score is {score}')\n")
    line, (note,) = leaf(tmp_path)
    assert line == ""
    assert note.startswith("infer.py is not the program that the profile tutorial was verified")
    (tmp_path / "result_line.txt").write_text("^score is\n\n^psnr\n")
    line, (note,) = leaf(tmp_path)
    assert (line, note.endswith("says which lines of an inference hold a result")) == ("(?:^score is)|(?:^psnr)", True)
    (tmp_path / "result_line.txt").write_text("x\n(\n")
    with pytest.raises(ParamsError, match=r"result_line\.txt:2: is no regular expression"):
        leaf(tmp_path)


def test_equal_entries_are_planned_once_and_equal_names_keep_their_own_folders():
    plan = make(edit(TEMPLATE, ("gpu_list", "gpu_list:0|0|-1"), ("--device", "--device:gpu|gpu|cpu")))
    trains = [command for command in plan.commands if command.step == "train"]
    assert ["--device=gpu" in trains[0].argv, "--device=cpu" in trains[1].argv] == [True, True]
    assert len(trains) == 2
    assert any("f.txt:4: gpu_list: has an entry twice" in note for note in plan.notes)
    hosts = make(edit(TEMPLATE, ("gpu_list", "gpu_list:a,b;0|c,d;0")))
    assert "train[norm_train;gpus=0;hosts=2]#2" in by_id(hosts)
    saves = [word for c in hosts.commands if c.step == "train" for word in c.argv if "output-dir" in word]
    assert len(set(saves)) == 2


@pytest.mark.parametrize("name", ["../../x", "a/b", "-x"])
def test_no_name_leaves_the_run(name):
    text = edit(TEMPLATE, ("trainer", f"trainer:{name}"), ("norm_train", f"{name}:train.py"))
    with pytest.raises(ParamsError, match="cannot be a folder's name"):
        make(text)
    plan = make(edit(TEMPLATE, ("--threads", f"--threads:{name}")))
    assert all(command.log.count("/") == 6 for command in plan.commands)
    assert not any(".." in alias for alias, _ in plan.latest)


def test_a_file_that_ends_after_the_evaluation_only_trains_and_says_so():
    text = TEMPLATE[: TEMPLATE.index("===========================infer_params")]
    plan = make(text)
    assert [command.step for command in plan.commands] == ["train", "eval"]
    assert any("the file ends after the evaluation's section" in note for note in plan.notes)
    whole = make(text, Mode.WHOLE_INFER)
    assert whole.commands == ()
    with pytest.raises(ParamsError, match=r"\[infer_params\]"):  # a section of another name is none that is missing
        make(text + "===inferr_params===\nsave_dir:x\n")


def test_a_module_is_launched_as_the_command_of_its_name():
    """Paddle's launcher starts files and commands, no modules."""
    lines = ("gpu_list", "gpu_list:0|0,1"), ("norm_train", "norm_train:-m tipchain case train a.yaml")
    plan = by_id(make(edit(TEMPLATE, *lines)))
    assert plan["train[norm_train;gpus=0]"].argv[1:6] == ("-m", "tipchain", "case", "train", "a.yaml")
    words = plan["train[norm_train;gpus=0,1]"].argv
    assert words[1:7] == ("-m", "paddle.distributed.launch", "--gpus=0,1", "tipchain", "case", "train")


NO_FOLDERS = (
    ("--output-dir", "null:null"),
    ("--save-dir", "null:null"),
    ("--pretrained", "null:null"),
    ("--weights", "null:null"),
)


def test_a_key_that_is_not_its_lines_is_told_where_nothing_reads_the_line():
    plan = make(edit(TEMPLATE, ("pact_train", "quant_export:null"), ("export1", "--data:x")))
    assert plan.commands == make(TEMPLATE).commands
    assert plan.notes == (
        "f.txt:17: quant_export: stands where `*_train:` or `pact:` is expected; nothing reads it",
        "f.txt:34: --data: stands where `*export*:` is expected; nothing reads it",
    )


def test_an_empty_name_hands_the_folder_on_and_believes_what_is_in_it():
    plan = make(edit(TUTORIAL, ("train_model_name", "train_model_name:")), suite="tutorial")
    save = f"{RUN}/norm_train_gpus_0_autocast_False_nodes_1.log"
    train, evaluation, export, *_ = plan.commands
    assert train.leaves[0].files == (f"{save}/**/*.pdparams",)
    assert evaluation.argv[-1] == f"--pretrained={save}/"
    assert f"--pretrained={save}/" in export.argv
    assert [note for note in plan.notes if note.startswith("f.txt:10: train_model_name: is empty")]


@pytest.mark.parametrize("value", ["null", ""])
def test_no_name_is_needed_where_no_program_gets_it(value):
    text = edit(TEMPLATE, ("train_model", f"train_model_name:{value}"))
    if value:
        with pytest.raises(ParamsError, match="train_model_name: is needed to evaluate and export"):
            make(text)
    assert make(edit(text, *NO_FOLDERS)).commands
    assert make(edit(text, ("eval", "eval:null"), ("--weights", "null:null"))).commands


def test_programs_that_get_no_folder_are_looked_after_in_the_whole_checkout():
    plan = make(edit(TEMPLATE, *NO_FOLDERS))
    train, _, export, *_ = plan.commands
    assert train.leaves[0].files == ("**/*.pdparams",)
    assert {"**/*.pdmodel", "**/*.pdiparams"} <= {file for one in export.leaves for file in one.files}
    assert [note.partition(": null: ")[0] for note in plan.notes] == ["f.txt:8", "f.txt:28"]
    assert all("looked for in the whole checkout" in note for note in plan.notes)


ALONE = (("train_model_name", "train_model_name:null"), ("eval:", "eval:null"), ("norm_export", "null:null"))


def test_a_training_that_names_nothing_and_that_nothing_follows_is_judged_by_its_exit_code():
    """Such are files of reinforcement learning, whose programs save no model."""
    plan = make(edit(TUTORIAL, *ALONE, ("--output-dir", "null:null")), suite="tutorial")
    (train,) = plan.commands
    assert train.leaves == ()
    assert any("the training is judged by its exit code" in note for note in plan.notes)
    (saves,) = make(edit(TUTORIAL, *ALONE), suite="tutorial").commands
    assert saves.leaves
    (named,) = make(edit(TUTORIAL, *ALONE[1:], ("--output-dir", "null:null")), suite="tutorial").commands
    assert named.leaves
