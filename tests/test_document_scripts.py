"""The scripts that the user documents name, on the tiny case and from another working folder."""

import ast
import re
import sys
from pathlib import Path

import forking
import pytest
from programs import completed
from tiny_project import make_tiny_project

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ROOT.parent / "shared" / "user_documents"
STEPS = sorted((ROOT / "alignment").glob("step*/*.py"))
LINE = r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] root INFO: "


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_tiny_project(tmp_path_factory.mktemp("documents"))


@pytest.fixture
def script(project, tmp_path):
    """Run one of the documents' scripts with the tiny case, from a folder that is not the project's."""

    def run(name: str, *args: str, program: str = sys.executable, code: int = 0, case: bool = True) -> str:
        done = completed(
            [program, str(ROOT / "alignment" / name), *(("--case", str(project.case)) if case else ()), *args],
            cwd=tmp_path,
            env={**forking.environment(ROOT), "TIPCHAIN_PYTHON": sys.executable},
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def printed():
    return {}


@pytest.fixture
def checked(project, script, printed):
    """Record both sides for a check and run it as its document does, once for all tests; return what it printed."""

    def check(command: str) -> str:
        stem = Path(command).stem
        if command not in printed:
            data = ["--dataset_root", str(project.root / "test_tipc/data/lite_data")] if stem == "check_step2" else []
            for one in BEFORE.get(stem, ()):
                script(one, *data)
            printed[command] = script(str(ROOT / command))
        return printed[command]

    return check


def latest(project) -> Path:
    return project.root / "tipchain-output" / "tiny" / "lite_train_lite_infer" / "log_reprod"


# What the documents show below a command: the keys of the printed log; and the commands that come before it.
SAMPLES = {
    "alignment/step1/check_step1.py": ("logits",),
    "alignment/step2/check_step2.py": ("top1_acc", "mean_class_accuracy"),
    "alignment/step3/check_step3.py": ("loss",),
    "alignment/step4/check_step4.py": ("loss_0", "loss_1", "loss_2", "loss_3", "loss_4"),
    "alignment/pipeline/reprod_log_demo/check_log_diff.py": ("demo_test_1", "demo_test_2"),
    "test_tipc/01_test_forward.py": ("logits",),
    "test_tipc/02_test_data.py": ("length", "dataloader_0", "dataloader_1"),
    "test_tipc/03_test_metric.py": ("acc_top1", "acc_top5"),
    "alignment/pipeline/Step4/check_step4.py": ("loss_0", "loss_1", "loss_2", "loss_3", "loss_4"),
}
BEFORE = {
    "check_step1": ["step1/create_fakedata.py", "step1/paddle_forward.py", "step1/torch_forward.py"],
    "check_step2": ["step2/paddle_val.py", "step2/toch_val.py"],
    "check_step3": ["step3/paddle_loss.py", "step3/torch_loss.py"],
    "check_step4": ["step4/paddle_train.py", "step4/torch_train.py"],
}
PAIR = rf"{LINE}(\w+): \n{LINE}\t(?:mean|max) diff: check passed: (?:True|False), value: [\d.e-]+\n"


@pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="the user documents are not beside this clone")
def test_the_samples_are_the_documents_own():
    found: dict[str, tuple[str, ...]] = {}
    places = {"check_log_diff.py": "alignment/pipeline/reprod_log_demo/", "check_step4.py": "alignment/pipeline/Step4/"}
    lines = [line for document in sorted(DOCUMENTS.glob("*.md")) for line in document.read_text().splitlines()]
    for line in lines:
        if words := re.match(r"(?:\$ )?python(?:3\.7)? (\S+\.py)", line):
            command = places.get(words[1], "") + words[1]
        elif key := re.match(r"\S+ \S+ (?:root|- reprod_log.utils -) (?:INFO:|INFO -) (\w+): ?$", line):
            found[command] = (*found.get(command, ()), key[1])
    assert found == SAMPLES


@pytest.mark.frameworks
def test_a_long_log_is_cut_unless_all_is_wanted_and_quiet_prints_none(project, checked, script):
    said = checked("alignment/step4/check_step4.py").splitlines()
    log = (latest(project) / "bp_align_diff.log").read_text().splitlines()
    assert said[:40] == log[:40]
    assert said[40].startswith(f"… {len(log) - 41} more lines: ")
    assert said[41] == log[-1]
    assert script("step4/check_step4.py", "-v").count("root INFO: ") == len(log)
    assert "root INFO: " not in script("step4/check_step4.py", "-q")


@pytest.mark.frameworks
@pytest.mark.parametrize("command", SAMPLES)
def test_a_command_prints_what_its_document_shows(checked, script, command):
    """The lines are reprod_log's, before our verdict; the documents' keys are among them, in their order."""
    if command.endswith("check_log_diff.py"):
        script(str(ROOT / command).replace("check_log_diff", "write_log"), case=False)
        said = script(str(ROOT / command), case=False, code=1)
    elif "pipeline" in command:
        for side in ("paddle", "torch"):
            script(f"pipeline/Step4/AlexNet_{side}/train.sh", program="sh")
        said = script("pipeline/Step4/check_step4.py")
    else:
        said = checked(command)
    if command.endswith("03_test_metric.py"):
        dictionaries, _, said = said.partition("\n")
        assert re.fullmatch(r"\{'acc_top1': array\(.*'acc_top5': array\(.*\} \{'acc_top1': array\(.*\}", dictionaries)
    keys = [key.replace("acc_top1", "top1_acc") if "step2" in command else key for key in re.findall(PAIR, said)]
    assert re.match(PAIR, said)
    assert [key for key in keys if key in SAMPLES[command]] == list(SAMPLES[command])
    demo = command.endswith("check_log_diff.py")
    log, end, verdict = re.split(rf"{LINE}diff check (passed|failed)\n", said)
    assert end == ("failed" if demo else "passed")
    assert all(re.match(LINE, line) or "more lines: " in line for line in log.splitlines())
    assert verdict == "" if demo else verdict.startswith("equal to its reference: ")


THEIRS = """\
import sys
from reprod_log import ReprodDiffHelper, ReprodLogger

folder, helper = sys.argv[1], ReprodDiffHelper()
sides = {side: helper.load_info(f"{folder}/loss_{side}.npy") for side in ("torch", "paddle")}
helper.compare_info(*sides.values())
helper.report(diff_threshold=1e-5, path="loss_diff.log")
for side, arrays in sides.items():
    logger = ReprodLogger()
    for key, value in arrays.items():
        logger.add(key, value)
    logger.save(f"loss_{side}.npy")
"""


@pytest.mark.frameworks
def test_a_script_of_the_original_reads_our_dumps_and_we_judge_its(project, checked, script, tmp_path):
    pytest.importorskip("reprod_log")
    checked("alignment/step3/check_step3.py")
    (tmp_path / "theirs.py").write_text(THEIRS)
    script(str(tmp_path / "theirs.py"), str(latest(project)), case=False)
    ours, theirs = (
        re.sub(r"\[.*?\]|value: .*", "", (folder / "loss_diff.log").read_text()).splitlines()
        for folder in (latest(project), tmp_path)
    )
    assert theirs[:2] == ours[:2]
    assert theirs[-1] == ours[-1] == " root INFO: diff check passed"
    for option in ("--reference", "--port"):
        said = script(str(ROOT / "test_tipc/04_test_loss.py"), option, str(tmp_path))
        assert "the recorded numbers are within their tolerances: 1 stage" in said


@pytest.mark.frameworks
def test_the_train_sh_pair_feeds_the_check_and_a_wrong_port_fails_it(project, script, printed):
    right, wrong = "nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(label_smoothing=0.1)"
    project.edit("tiny_paddle.py", right, wrong)
    try:
        script("pipeline/Step4/AlexNet_paddle/train.sh", program="sh")
        script("pipeline/Step4/AlexNet_torch/train.sh", program="sh")
        said = script("pipeline/Step4/check_step4.py", code=1)
        assert "root INFO: diff check failed\nNOT the same loss: " in said
        assert "pass `label_smoothing=0.0` to `cross_entropy`" in said
    finally:
        printed.pop("alignment/step4/check_step4.py", None)
        project.edit("tiny_paddle.py", wrong, right)


def test_a_check_without_dumps_fails_and_names_what_is_missing(project, script, tmp_path):
    said = script("step3/check_step3.py", "--out", str(tmp_path / "empty"), code=1)
    assert "root INFO: diff check failed\nno verdict: loss/dump: " in said
    assert "loss_torch.npy" in "".join(said.split())


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name)
def test_the_scripts_only_call_the_engine(path):
    """Whatever a script did by itself would be logic that stands twice."""
    statements = ast.parse(path.read_text()).body
    kinds = [type(one).__name__ for one in statements]
    assert kinds == ["Expr", "Import", "ImportFrom", "Expr", "ImportFrom", "If"]
