"""The default behaviour suite by suite: what a chain of each would run."""

import re
from pathlib import Path

import pytest
from chain_samples import ROOT, edit, lay_params, stub
from suite_samples import SUITE_FILES

from tipchain.chain import emitter
from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.load import detect_suite, load_plan
from tipchain.chain.params import parse_params
from tipchain.chain.plan import Options
from tipchain.chain.profiles import get_suite, suite_names
from tipchain.cli import main
from tipchain.errors import ParamsError
from tipchain.modes import Mode

LITE, WHOLE_TRAIN, WHOLE = Mode.LITE_TRAIN_LITE_INFER, Mode.WHOLE_TRAIN_WHOLE_INFER, Mode.WHOLE_INFER
KLQUANT = Mode.KLQUANT_WHOLE_INFER
LAUNCHED_WITH_GPUS = (
    *("paddledetection", "medicalseg", "paddlers", "paddleocr", "paddlenlp", "paddlegan", "paddle3d", "passl"),
    *("tutorial", "template", "alexnet"),
)
ALL_BUT_OWN = sorted(SUITE_FILES)


def plan(suite, *changes, mode=LITE, lenient=False):
    text = edit(SUITE_FILES[suite], *changes)
    spec = build_spec(parse_params(text, "f.txt"), get_suite(suite), mode, lenient=lenient)
    return expand(spec, "f.txt", Options(root="/w"))


def steps(found, step):
    return [command for command in found.commands if command.step == step]


def line_of(suite, role):
    slot = build_spec(parse_params(SUITE_FILES[suite]), get_suite(suite), LITE).slots[role]
    return SUITE_FILES[suite].splitlines()[slot.line - 1]


def with_role(suite, role, value):
    line = line_of(suite, role)
    return (line, f"{line.partition(':')[0]}:{value}")


def test_there_is_a_sample_of_every_suite_but_our_own():
    assert set(SUITE_FILES) == set(suite_names()) - {"tipchain", "programs", "verbatim", "paddlespeech"}


@pytest.mark.parametrize("suite", ALL_BUT_OWN)
def test_a_sample_is_told_from_its_text(suite):
    found = detect_suite(parse_params(SUITE_FILES[suite]), legacy=True).name
    # One has none of AlexNet-Prod's programs, and PaddleNLP is told by its folder alone.
    assert found == ("template" if suite in ("alexnet", "paddlenlp") else suite)


@pytest.mark.parametrize("suite", ALL_BUT_OWN)
def test_the_chain_of_each_suite(suite):
    found = plan(suite)
    assert not found.notes
    train, export = steps(found, "train"), steps(found, "export")
    assert [len(train), len(export)] == [1, 1]
    assert len(steps(found, "eval")) == (suite != "paddlegan")  # its sample has no eval program
    infer = steps(found, "infer")
    assert all(command.leaves for command in (*train, *export, *infer))
    assert {command.on_gpu for command in infer} == {True, False}
    assert all(command.needs == (export[0].id,) for command in infer)
    (made,) = steps(found, "eval") if suite == "passl" else train  # there a classifier is trained to evaluate
    assert export[0].needs == (made.id,)
    made = f"{found.run}/"
    assert all(any(made in word for word in command.argv) for command in found.commands)
    assert {command.env["CUDA_VISIBLE_DEVICES"] for command in found.commands} == {"0"}


@pytest.mark.parametrize("name", ["GeneralRecognition_PPLCNet", "x_MetaBIN_ResNet50"])
def test_clas_weights(name):
    found = plan("paddleclas", ("model_name", f"model_name:{name}"))
    save = f"/w/{found.run}/norm_train_gpus_0_autocast_null_nodes_1"
    weights = f"Global.pretrained_model={save}/RecModel/latest"
    assert weights in steps(found, "eval")[0].argv
    assert steps(found, "export")[0].argv == (
        *("python3.7", "tools/export_model.py", "-c", "ppcls/configs/ResNet/demo.yaml"),
        *("-o", weights, "-o", f"Global.save_inference_dir={save}"),
    )


def test_clas_inference_runs_in_deploy_and_names_absolute_paths():
    found = plan("paddleclas")
    for command in steps(found, "infer"):
        assert command.cwd == "deploy"
        assert f"Global.inference_model_dir=/w/{found.run}/norm_train_gpus_0_autocast_null_nodes_1" in command.argv
        assert "Global.infer_imgs=../dataset/val/1.JPEG" in command.argv  # the file's own, seen from deploy


def test_a_relative_interpreter_is_found_from_deploy_too():
    found = plan("paddleclas", ("python:", "python:./venv/bin/python -u"))
    assert {one.argv[:2] for one in found.commands if one.cwd == "."} == {("./venv/bin/python", "-u")}
    assert {one.argv[:2] for one in steps(found, "infer")} == {("/w/./venv/bin/python", "-u")}


def test_clas_quantizes_and_infers_what_that_left():
    kl_quant = ("kl_quant", "kl_quant:deploy/slim/quant_post_static.py -c q.yaml")
    found = plan("paddleclas", kl_quant, ("infer_model", "infer_model:deploy/net_infer"), mode=WHOLE)
    export, *infer = found.commands
    assert export.argv == ("python3.7", "deploy/slim/quant_post_static.py", "-c", "q.yaml")
    assert all(command.needs == (export.id,) and command.cwd == "deploy" for command in infer)
    # A quantized program is linked from whatever PaddleSlim calls it.
    assert [(Path(name).name, Path(target).name) for name, target in infer[0].links] == [
        ("inference.pdmodel", "model.pdmodel"),
        ("inference.pdmodel", "__model__"),
        ("inference.pdiparams", "model.pdiparams"),
        ("inference.pdiparams", "__params__"),
    ]
    model = "Global.inference_model_dir=../deploy/net_infer/quant_post_static_model"
    assert [model in command.argv for command in infer] == [True, True]
    nothing = plan("paddleclas", mode=WHOLE)
    assert nothing.commands == ()
    assert any("f.txt:34: kl_quant: is null" in note for note in nothing.notes)


def test_panoptic_vars():
    found = plan("panopticseg", mode=WHOLE)
    folder = f"./{found.run}/whole_infer_export_0"
    assert found.commands[0].argv == (
        *("python3", "tools/export.py", "--config=configs/tipc/whole.yml", "--model_path=output/mask/model.pdparams"),
        *(f"--save_dir={folder}", "--input_shape", "-1", "3", "512", "512"),
    )
    assert all(f"--config={folder}/deploy.yaml" in command.argv for command in found.commands[1:])
    null = plan("panopticseg", ("infer_model", "infer_model:null"), mode=WHOLE)
    assert null.commands == ()


def test_3d_trains_several_gpus_into_a_folder_and_passes_each_argument_once():
    changes = ("gpu_list", "gpu_list:0,1"), ("null:null", "--seed:3")
    original = legacy_spec(edit(SUITE_FILES["paddle3d"], *changes), "f.txt", get_suite("paddle3d"), LITE)
    (train,) = steps(expand(original, "f.txt"), "train")
    assert (train.argv.count("--seed=3"), "--save_dir" in " ".join(train.argv)) == (2, False)
    found = plan("paddle3d", *changes)
    (train,) = steps(found, "train")
    assert (train.argv.count("--seed=3"), f"--save_dir=./{found.run}/" in " ".join(train.argv)) == (1, True)


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        ([], {"other": "train", "eval": "other", "export": "eval"}),
        ([("extract:", "extract:null")], {"eval": "train", "export": "eval"}),
        ([("linear:", "linear:null")], {"other": "train", "export": "train"}),
    ],
)
def test_passl_extracts_weights_trains_a_classifier_on_them_and_exports_it(change, needs):
    found = plan("passl", *change)
    ids = {command.id: command.step for command in found.commands}
    rest = [command for command in found.commands if command.step not in ("train", "infer")]
    assert {command.step: ids[command.needs[0]] for command in rest} == needs
    save = f"./{found.run}/norm_train_gpus_0_autocast_null"
    trained = f"{save}/contrast_linear"
    words = {command.step: command.argv for command in rest}
    if "other" in words:
        assert words["other"][2:] == (
            *(f"{trained}/latest.pd", "--prefix=backbone", f"--output={trained}/ext.pd", "--remove_prefix"),
        )
    if "eval" in words:
        assert {f"--load={trained}/ext.pd", f"output_dir={save}", "epochs=3"} <= set(words["eval"])
    assert f"--export={save}/contrast_clas/latest.pd" in words["export"]
    assert ("lr_scheduler.milestones=[1,]" in words["export"]) == ("eval" in words)
    infer = steps(found, "infer")
    assert {command.cwd for command in infer} == {"deploy"}
    assert all(f"model_dir=../{save.removeprefix('./')}" in command.argv for command in infer)


@pytest.mark.parametrize("epochs", ["lite_train_lite_infer=3", "null"])
def test_passl_trains_two_epochs_where_the_file_has_none_for_the_mode(epochs):
    found = plan("passl", ("-o epochs", f"-o epochs:{epochs}"), mode=WHOLE_TRAIN)
    assert "epochs=2" in steps(found, "train")[0].argv
    left_out = plan("passl", ("-o epochs", "null:null"), mode=WHOLE_TRAIN)
    assert not any(word.startswith("epochs=") for word in steps(left_out, "train")[0].argv)


def test_a_training_alone_may_leave_files_with_the_ending_of_its_own():
    alone = [(f"{key}:", f"{key}:null") for key in ("extract", "linear", "norm_export")]
    found = plan("passl", *alone)
    (train,) = found.commands
    save = f"./{found.run}/norm_train_gpus_0_autocast_null"
    assert train.leaves[0].files == (f"{save}/**/*.pdparams", f"{save}/**/*.pd")
    extracted = steps(plan("passl", *alone[1:]), "train")[0].leaves[0].files
    assert extracted[0] == f"{save}/contrast_linear/latest.pd"


def test_passl_exports_without_training_with_the_keys_of_the_file():
    found = plan("passl", mode=WHOLE)
    (export,), infer = steps(found, "export"), steps(found, "infer")
    folder = f"{found.run}/whole_infer_export_0"
    assert export.argv[4:] == ("--export=contrast_linear_pretrained", "-o", f"save_inference_dir=./{folder}")
    assert all(f"model_dir=../{folder}" in command.argv for command in infer)
    given = plan("passl", ("infer_export", "infer_export:False"), mode=WHOLE)
    assert not steps(given, "export")
    assert all("model_dir=../inference/" in command.argv for command in given.commands)
    assert not plan("passl", mode=KLQUANT).commands


def test_a_sections_name_may_have_blanks():
    text = SUITE_FILES["passl"].replace("linear_eval_params", " eval params ")
    assert [name for name, _ in parse_params(text).headers][2] == "eval_params"
    spec = build_spec(parse_params(text), get_suite("passl"), LITE)
    assert expand(spec, "f.txt", Options(root="/w")).commands == plan("passl").commands


def test_rec_takes_the_models_name_by_mode():
    for mode, name in ((LITE, "0/rec"), (WHOLE_TRAIN, "3/rec")):
        assert any(word.endswith(f"/{name}") for word in steps(plan("paddlerec", mode=mode), "export")[0].argv)


def test_kl_index():
    changes = (
        ("infer_mode", "infer_mode:norm|kl_quant"),
        ("infer_quant", "infer_quant:False|True"),
        ("--enable_mkldnn", "--enable_mkldnn:False|True"),
    )
    found = plan("paddledetection", *changes, mode=KLQUANT)
    assert found.commands[0].argv[1] == "tools/post_quant.py"
    # Its own flag, True, rules mkldnn False out; the original pairs it with norm's.
    cpu = [command.id for command in steps(found, "infer") if not command.on_gpu]
    assert cpu == ["infer[cpu;mkldnn=True;threads=4;bs=1]"]
    assert steps(plan("paddledetection", *changes, mode=WHOLE), "export")[0].argv[1] == "tools/export_model.py"


def test_medicals_usual_name_stands_for_its_best_model():
    found = plan("medicalseg", ("train_model_name", "train_model_name:latest"))
    (export,) = steps(found, "export")
    (find,) = export.finds
    assert find.files == (
        f"{find.text}.pdparams",
        find.text,
        find.text.replace("/latest", "/best_model/model.pdparams"),
    )


def test_seg_takes_the_last_iterations_model_for_no_name_but_the_best_ones():
    found = plan("paddleseg", ("train_model_name", "train_model_name:best_modle/model.pdparams"))
    (train,), (export,) = steps(found, "train"), steps(found, "export")
    (leaves,) = train.leaves
    assert leaves.files == (f"./{found.run}/norm_train_gpus_0_autocast_null/best_modle/model.pdparams",)
    assert leaves.files[0] in "".join(export.argv)


@pytest.mark.parametrize("name", ["../other/*.pdparams", "/data/*.pdparams", "~/x"])
def test_no_pattern_leaves_the_run(name):
    with pytest.raises(ParamsError, match=r"f\.txt:11: train_model_name: leaves the training's output folder"):
        plan("paddlegan", ("train_model_name", f"train_model_name:{name}"))


# Keys that default mode adds to the inference of a suite, on the CPU and on the GPU.
ADDED = {
    "tutorial": {(False, "--img-path"), (True, "--img-path")},
    "paddleseg": {(True, "--save_dir")},
    "medicalseg": {(True, "--save_dir")},
    "paddlers": {(True, "--model_name")},
    "paddle3d": {
        *((False, key) for key in ("--mkldnn", "--threads", "--bs", "--precision", "--data", "--benchmark")),
        *((True, key) for key in ("--data", "--benchmark")),
    },
}


@pytest.mark.parametrize("suite", SUITE_FILES)
def test_inference_gets_no_key_that_the_original_does_not_pass(suite):
    values = {"save_log": "./log", "train_data": "null", "precision": "fp32|fp16"}
    roles = get_suite(suite).roles
    changes = [with_role(suite, *one) for one in values.items() if one[0] in roles]
    text = edit(SUITE_FILES[suite], *changes)
    spec = legacy_spec(text, "f.txt", get_suite(suite), LITE)
    keys = [
        {(one.on_gpu, word.partition("=")[0]) for one in steps(found, "infer") for word in one.argv}
        for found in (expand(spec, "f.txt", Options(root="/w")), plan(suite, *changes))
    ]
    assert keys[1] - keys[0] == ADDED.get(suite, set())


@pytest.mark.parametrize(
    ("suite", "device", "mode", "place", "told"),
    [
        ("paddleclas", ("-o Global.device", "-o Global.device:cpu"), LITE, -1, "Global.device=cpu"),
        ("paddledetection", ("--device", "--device:cpu"), LITE, -2, "use_gpu=False"),  # the words of -o end behind it
        ("paddledetection", ("--device", "--device:cpu"), WHOLE, -2, "use_gpu=False"),
        ("paddlerec", ("runner.use_gpu", "runner.use_gpu:False"), LITE, -1, "runner.use_gpu=False"),
    ],
)
def test_an_export_on_the_cpu_is_told_so(suite, device, mode, place, told):
    assert all(told not in one.argv for one in steps(plan(suite, mode=mode), "export"))
    (export,) = steps(plan(suite, ("gpu_list", "gpu_list:-1"), device, mode=mode), "export")
    assert export.argv[place] == told


@pytest.mark.parametrize("suite", ["paddleseg", "medicalseg"])
def test_seg_saves_results_on_the_gpu_too_and_each_legs_apart(suite):
    found = plan(suite)
    saved = [word for one in steps(found, "infer") for word in one.argv if word.startswith("--save_dir=")]
    run = f"./{found.run}"
    assert saved == [
        f"--save_dir={run}/python_infer_cpu_usemkldnn_True_threads_6_precision_fp32_batchsize_1_results",
        f"--save_dir={run}/python_infer_gpu_usetrt_False_precision_fp32_batchsize_1_results",
    ]
    legs = plan(suite, ("gpu_list", "gpu_list:0|1"), ("--device:gpu", "--device:gpu|gpu"))
    apart = [word for one in steps(legs, "infer") for word in one.argv if word.startswith("--save_dir=")]
    assert len(set(apart)) == len(apart) == 4
    assert all(word.startswith(f"--save_dir=./{legs.run}/") for word in apart)


@pytest.mark.parametrize(
    "suite", ["paddleseg", "medicalseg", "paddlevideo", "paddlerec", "paddlegan", "paddle3d", "template"]
)
def test_int8_runs_on_gpus(suite):
    text = edit(SUITE_FILES[suite], with_role(suite, "precision", "fp32|int8"), ("infer_quant", "infer_quant:True"))
    lines = text.splitlines()
    slots = build_spec(parse_params(text), get_suite(suite), WHOLE, lenient=True).slots
    lines[slots["trt"].line - 1] = "--trt:False|True"
    spec = build_spec(parse_params("\n".join(lines)), get_suite(suite), WHOLE)
    found = expand(spec, "f.txt")
    gpu = [command.id for command in steps(found, "infer") if command.on_gpu]
    assert gpu
    assert all("trt=True;precision=int8" in name for name in gpu)


@pytest.mark.parametrize(
    ("suite", "change"),
    [
        ("paddledetection", ("--run_mode", "--run_mode:trt_fp32|trt_fp16")),
        ("paddleclas", ("-o Global.use_fp16", "-o Global.use_fp16:True")),
    ],
)
def test_a_setting_that_no_cpu_has_takes_no_command_away(suite, change):
    cpu = [command for command in steps(plan(suite, change), "infer") if not command.on_gpu]
    assert len(cpu) == 1
    assert not any(word.startswith(("--run_mode", "Global.use_fp16")) for word in cpu[0].argv)


@pytest.mark.parametrize("suite", ALL_BUT_OWN)
def test_devices_of_every_leg(suite):
    hosts = "192.168.0.1,192.168.0.2;4,5"
    found = plan(suite, ("gpu_list", f"gpu_list:10|2,3|{hosts}|-1"))
    legs = {"10": ("10", "10"), "2,3": ("2,3", "2"), "4,5": ("4,5", "4"), "-1": (None, None)}
    for gpus, (trained, after) in legs.items():
        own = [command for command in found.commands if f"gpus={gpus}" in command.id]
        assert {command.step for command in own} >= {"train", "export", "infer"}
        for command in own:
            wanted = trained if command.step == "train" else after
            assert command.env.get("CUDA_VISIBLE_DEVICES") == wanted, command.id
    train = {gpus: next(c.argv for c in steps(found, "train") if f"gpus={gpus}" in c.id) for gpus in legs}
    flag = "--gpus=" if suite in LAUNCHED_WITH_GPUS else "--devices="
    assert not any("paddle.distributed.launch" in train[gpus] for gpus in ("10", "-1"))
    assert f"{flag}2,3" in train["2,3"]
    assert not any(word.startswith("--ips") for word in train["2,3"])
    assert {"--ips=192.168.0.1,192.168.0.2", f"{flag}4,5"} <= set(train["4,5"])


@pytest.mark.parametrize("suite", ALL_BUT_OWN)
def test_null_settings_are_left_out(suite):
    found = plan(suite, with_role(suite, "benchmark", "null"), with_role(suite, "infer_data", "null"))
    key = line_of(suite, "benchmark").partition(":")[0].split()[-1]
    assert not any(word.startswith(f"{key}=") for command in found.commands for word in command.argv)
    assert not any(word.endswith("=null") for command in found.commands for word in command.argv)


def test_clas_never_reads_the_quant_flag_and_says_so():
    found = plan("paddleclas", ("infer_quant", "infer_quant:Fasle"))
    assert found.commands == plan("paddleclas").commands
    (typo,) = (one for one in found.findings if one.code == "typos")
    assert (typo.severity, typo.line) == ("info", 39)
    assert "did you mean 'False'" in typo.message


@pytest.mark.parametrize(
    "suite", ["paddleclas", "paddledetection", "paddleseg", "paddlevideo", "paddlegan", "paddle3d", "paddlenlp"]
)
def test_to_static_trains_norms_program_with_its_flag_and_exports_norms(suite):
    words = ("-o", "Global.to_static=True") if suite == "paddleclas" else ("--to_static",)
    text = SUITE_FILES[suite].partition("===========================to_static")[0]
    if suite != "paddleclas":
        text += "=====to_static_train_benchmark_params=====\nto_static_train:--to_static\n"
    text = edit(text, ("trainer:", "trainer:norm_train|to_static_train"))
    found = expand(build_spec(parse_params(text, "f.txt"), get_suite(suite), LITE), "f.txt", Options(root="/w"))
    norm, static = (command.argv for command in steps(found, "train"))
    assert set(words) <= set(static)
    assert len(static) == len(norm) + len(words)
    assert [command.argv[1] for command in steps(found, "export")] == [steps(found, "export")[0].argv[1]] * 2


THREE = Path(__file__).parents[1] / "conformance/samples/programs/three.txt"


def three(mode=LITE, **options):
    return load_plan(THREE, mode, options=Options(**options))


def test_a_driver_of_three_programs_adds_no_argument():
    train, export, infer = three().commands
    assert [one.argv[1:] for one in (train, export, infer)] == [
        ("tools/fit.py", "--epochs", "2", "--data", "lite/", "--out", "work dir"),
        ("tools/freeze.py", "--weights", "work/best", "--to", "frozen"),
        ("tools/guess.py", "--model", "frozen/pose", "--image", "lite/0.png"),
    ]
    assert (export.needs, infer.needs) == ((train.id,), (export.id,))
    assert train.leaves[0].files == ("**/*.pdparams",)
    assert {"**/*.pdmodel", "**/*.pdiparams"} <= {file for one in export.leaves for file in one.files}
    assert not three().notes


def test_three_programs_infer_where_they_train():
    assert [one.on_gpu for one in three().commands] == [True] * 3
    assert [one.on_gpu for one in three(device="cpu").commands] == [False] * 3
    assert three(device="cpu").commands[-1].id == "infer[cpu]"


@pytest.mark.parametrize("line", THREE.read_text(encoding="utf-8").splitlines()[1:])
def test_a_line_of_three_programs_missing_or_added_is_refused(line, tmp_path):
    text = THREE.read_text(encoding="utf-8")
    path = tmp_path / "train_infer_python.txt"
    missing = [] if line == "##" else [text.replace(f"{line}\n", "", 1)]
    for changed in (*missing, text.replace(line, f"{line}\nx:1", 1)):
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(ParamsError, match=r"train_infer_python\.txt:\d+: "):
            load_plan(path, LITE)


WRITES = """
case "$1" in
  tools/fit.py) mkdir -p work; echo "$RANDOM" > work/best.pdparams ;;
  tools/freeze.py) mkdir -p frozen; for kind in model iparams; do echo 1 > "frozen/pose.pd$kind"; done ;;
esac
echo "class 1, score 0.9"
"""


def test_three_programs_are_believed_by_what_is_new_in_the_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("three.txt").write_text(THREE.read_text(encoding="utf-8"), encoding="utf-8")
    words = ["run", "three.txt", LITE.value, "--device", "cpu", "--python"]
    assert main([*words, str(stub(tmp_path / "py", WRITES))]) == 0
    capsys.readouterr()
    # What an earlier run left is no proof.
    assert main([*words, str(stub(tmp_path / "py", WRITES.replace('echo "$RANDOM" > work', ": work")))]) == 1
    assert "no checkpoint" in capsys.readouterr().out


def test_a_value_without_a_mode_is_left_out_where_a_suites_files_are_made_so(tmp_path):
    sample = ROOT / "tests/conformance/samples/paddlespeech/keyword.txt"
    path = lay_params(tmp_path / "tests", sample.read_text(encoding="utf-8"))
    with pytest.raises(ParamsError, match="'20' is no mode=value"):
        load_plan(path, LITE)
    (tmp_path / "paddlespeech").mkdir()
    plan = load_plan(path, LITE)
    assert plan.suite == "paddlespeech"
    assert not [word for command in plan.commands for word in command.argv if "--max-steps" in word]
    (note,) = [note for note in plan.notes if "'20' is no mode=value" in note]
    assert "so it is left out, as in the original; write lite_train_lite_infer=20" in note
    assert not [note for note in plan.notes if "has no value for lite_train_lite_infer" in note]  # the same, once more


def test_a_full_width_bar_in_a_list_is_named():
    text = SUITE_FILES["paddleseg"].replace("trainer:norm", "trainer:norm\uff5cpact", 1)
    with pytest.raises(ParamsError, match="trainer: a full-width '\uff5c' stands in the list and separates nothing"):
        build_spec(parse_params(text, "f.txt"), get_suite("paddleseg"), LITE)


def test_lists_that_make_too_many_commands_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(emitter, "MAX_COMMANDS", 50)
    text = SUITE_FILES["paddleseg"]
    legs = re.sub(r"(?m)^gpu_list:.*$", "gpu_list:" + "|".join(map(str, range(49))), text)
    with pytest.raises(ParamsError, match=r"f\.txt: the lists of the file make more than 50 commands"):
        expand(build_spec(parse_params(legs, "f.txt"), get_suite("paddleseg"), LITE), "f.txt")
    many = "|".join(map(str, range(1, 9)))
    product = re.sub(r"(?m)^(--batch_size|--cpu_threads):(?!lite).*$", rf"\1:{many}", text)
    with pytest.raises(
        ParamsError, match=r"f.txt:\d+: --(batch_size|cpu_threads): this list and others make \d+ inferences"
    ):
        expand(build_spec(parse_params(product, "f.txt"), get_suite("paddleseg"), LITE), "f.txt")
