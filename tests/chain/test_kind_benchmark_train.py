"""Plans of benchmark_train chains, and how the speed is read from a log."""

from pathlib import Path

import pytest

from tipchain.chain.execute import FigureReader
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Command, Options, Speed, command_json
from tipchain.core.json_text import parse_as
from tipchain.errors import ParamsError, UsageError
from tipchain.modes import Mode

SAMPLES = Path(__file__).parents[1] / "conformance/samples"
SECTION = """===========================train_benchmark_params==========================
batch_size:64|8
fp_items:fp32|fp16
epoch:1
model_type:norm_train
num_workers:12
--profiler_options:batch_range=[10,20];state=GPU
flags:FLAGS_a=0.0;FLAGS_b=1
"""
ONE = "dynamic_bs8_fp32_DP_N1C1"


def planned(tmp_path, *, section: str = SECTION, legacy: bool = False, **options):
    text = (SAMPLES / "paddleclas/resnet_amp.txt").read_text().rstrip("\n")
    path = tmp_path / "train_infer_python.txt"
    path.write_text(f"{text}\n{section}")
    settings = Options(root="/w/PaddleClas", **options)
    return load_plan(path, Mode.BENCHMARK_TRAIN, suite="paddleclas", legacy=legacy, options=settings)


def ids(plan) -> list[str]:
    return [one.id for one in plan.commands]


def test_the_sections_product_is_trained_and_nothing_else(tmp_path):
    plan = planned(tmp_path)
    assert ids(plan) == [f"train[bs{size}_{item}_DP_N1C4]" for size in (64, 8) for item in ("fp32", "fp16")]
    words = " ".join(plan.commands[3].argv)
    assert "sampler.batch_size=8" in words
    assert "AMP.level=O2" in words
    assert "Global.epochs=1" in words
    assert "--devices=0,1,2,3" in words
    assert plan.commands[0].env["FLAGS_a"] == "0.0"
    assert plan.commands[0].gpus == ("0", "1", "2", "3")


def test_one_gpu_is_profiled_first(tmp_path):
    profiled, measured = planned(tmp_path, argument=ONE).commands
    assert profiled.id == "train[bs8_fp32_DP_N1C1;profiled]"
    assert "--profiler_options=batch_range=[10,20];state=GPU" in profiled.argv
    assert profiled.speed is None
    assert measured.speed == Speed(warm_up=100, unit="samples/s")
    assert not any("profiler" in word for word in measured.argv)


def test_3d_counts_iterations_and_its_profiler_gets_all_options():
    path = SAMPLES.parent / "kind_samples/benchmark_train/paddle3d.txt"
    settings = Options(root="/w", argument="dynamicTostatic_bs2_fp16_DP_N1C1")
    profiled, measured = load_plan(path, Mode.BENCHMARK_TRAIN, suite="paddle3d", options=settings).commands
    assert "--profiler_options=batch_range=[3,6];state=GPU;profile_path=model.profile" in profiled.argv
    assert {"--iters=50", "--batch_size=2", "--amp", "--to_static"} <= set(measured.argv)
    assert measured.speed == Speed(warm_up=2, unit="samples/s")


def test_on_the_cpu_the_profiler_of_gpus_has_nothing_to_do(tmp_path):
    plan = planned(tmp_path, argument=ONE, device="cpu", warm_up=2)
    assert ids(plan) == ["train[bs8_fp32_DP_cpu]"]
    assert not plan.commands[0].on_gpu
    assert plan.commands[0].speed == Speed(warm_up=2, unit="samples/s")


def test_trainings_write_to_folders_of_their_own(tmp_path):
    folders = {word for one in planned(tmp_path).commands for word in one.argv if "Global.output_dir=" in word}
    assert len(folders) == 4


@pytest.mark.parametrize("argument", ["dynamic_bs8_fp32", "static_bs8_fp32_DP_N1C1", "dynamic_bs_fp32_DP_N1C1"])
def test_what_is_no_item_is_refused(argument, tmp_path):
    with pytest.raises(UsageError, match="is no item of a benchmark"):
        planned(tmp_path, argument=argument)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size:64|8", "batch_size:many", "is no list of them"),
        ("epoch:1", "epoch:one", "is no number of epochs"),
        ("FLAGS_a=0.0", "rm -r", "is no environment variable"),
        ("fp_items:fp32|fp16\n", "", "fp_items"),
        (SECTION, "", "no section"),
    ],
)
def test_a_wrong_section_is_refused(old, new, message, tmp_path):
    with pytest.raises(ParamsError, match=message):
        planned(tmp_path, section=SECTION.replace(old, new))


def test_the_original_runs_nothing_when_only_a_static_graph_is_asked_for(tmp_path):
    assert len(planned(tmp_path, legacy=True, argument="dynamicTostatic").commands) == 1
    assert len(planned(tmp_path, argument="dynamicTostatic").commands) == 4


def reader(warm_up: int, *lines: str) -> FigureReader:
    found = FigureReader("train", Speed(warm_up=warm_up, unit="samples/s"))
    for line in lines:
        found.read(line)
    return found


LINES = [f"[Train] iter {speed}, loss: 2.0, ips: {speed}.0 images/sec, eta: 0:01" for speed in (1, 5, 10, 20)]


def test_the_mean_leaves_the_warm_up_out_and_has_the_logs_unit():
    found = reader(2, *LINES)
    assert found.figures()["avg_ips[images/s]"] == 15.0
    assert "avg_ips" not in found.figures()
    assert not found.unmeasured()


def test_evaluations_do_not_count_and_the_drivers_unit_stands_in():
    found = reader(0, "ips: 4.0", "[Eval][Epoch 1] ips: 100.0")
    assert found.figures()["avg_ips[samples/s]"] == 4.0


def test_a_log_without_more_lines_than_the_warm_up_measured_nothing():
    found = reader(4, *LINES)
    assert not any(name.startswith("avg_ips") for name in found.figures())
    assert found.unmeasured() == "4 lines tell a speed, and the first 4 are warm-up"


def test_lines_at_the_start_of_each_epoch_are_left_out_too():
    found = FigureReader("train", Speed(warm_up=1, unit="samples/s", each_epoch=2))
    for epoch in (1, 2):
        for step, speed in enumerate((1, 2, 30, 40)):
            found.read(f"[TRAIN] epoch: {epoch}, iter: {step}, ips: {speed}.0 samples/sec")
    assert found.figures()["avg_ips[samples/s]"] == pytest.approx((40 + 30 + 40) / 3)
    few = FigureReader("train", Speed(warm_up=1, unit="samples/s", each_epoch=2))
    few.read("[TRAIN] epoch: 1, ips: 1.0")
    assert few.unmeasured() == "1 lines tell a speed, and the first 1 are warm-up, as are the first 2 of each epoch"


def seg(tmp_path, last: str, **options):
    path = tmp_path / "train_infer_python.txt"
    text = (SAMPLES.parent / "kind_samples/benchmark_train/paddleseg.txt").read_text()
    path.write_text(text.replace("log_iters:5;skip_iters:2;repeats:50", last))
    return load_plan(path, Mode.BENCHMARK_TRAIN, suite="paddleseg", options=Options(root="/w", **options))


def test_the_last_line_of_paddlesegs_files_says_what_is_left_out_on_one_gpu(tmp_path):
    plan = seg(tmp_path, "log_iters:5;skip_iters:2;repeats:50")
    speeds = {one.leg.rpartition("_")[2]: one.speed.each_epoch for one in plan.commands if one.speed}
    assert speeds == {"N1C1": 2, "N1C8": 0}
    measured = next(one for one in plan.commands if one.speed)
    assert measured.argv[-4:] == ("--log_iters", "5", "--repeats", "50")
    assert parse_as(Command, command_json(measured)) == measured
    with pytest.raises(ParamsError, match="'two' is no number of lines"):
        seg(tmp_path, "log_iters:5;skip_iters:two")


def detection(tmp_path, *, dataset: str, model: str = "yolo_slim", item: str = "dynamic_bs2_fp32_DP_N1C4"):
    path = tmp_path / "test_tipc/configs/train_infer_python.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (SAMPLES.parent / "kind_samples/benchmark_train/paddledetection.txt").read_text()
    path.write_text(text.replace("model_name:yolo_slim", f"model_name:{model}"))
    (tmp_path / "configs").mkdir(exist_ok=True)
    (tmp_path / "configs/yolo.yml").write_text(f"_BASE_: ['datasets/{dataset}.yml']\n")
    options = Options(root=str(tmp_path), argument=item)
    return load_plan(path, Mode.BENCHMARK_TRAIN, suite="paddledetection", options=options)


def test_paddledetection_repeats_its_data_as_often_as_it_has_gpus(tmp_path):
    argv = detection(tmp_path, dataset="coco_detection").commands[0].argv
    assert "TrainDataset.repeat=12" in argv
    assert "epoch=1" in argv
    # Behind -o, where the settings stand.
    assert argv.index("-o") < argv.index("TrainDataset.repeat=12") < argv.index("use_gpu=True")


def test_data_that_cannot_be_repeated_are_left_alone_and_whole_data_are_trained_on_longer(tmp_path):
    plan = detection(tmp_path, dataset="mot")
    assert not any("repeat" in word for word in plan.commands[0].argv)
    assert any("left to the data set's own settings" in note for note in plan.notes)
    whole = detection(tmp_path, dataset="coco_detection", model="tinypose")
    assert "epoch=4" in whole.commands[0].argv
    assert not any("repeat" in word for word in whole.commands[0].argv)
