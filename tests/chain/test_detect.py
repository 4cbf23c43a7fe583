import pytest
from chain_samples import ALIGNMENT, CORPUS, ROOT, TEMPLATE, TUTORIAL, corpus, lay_params

from tipchain.chain.lint import lint_file
from tipchain.chain.load import checkout, detect_suite, fingerprint, load_plan
from tipchain.chain.params import parse_params, read_text
from tipchain.chain.profiles import get_suite, suite_names
from tipchain.cli import main
from tipchain.errors import ParamsError
from tipchain.modes import CHAIN_MODES, Mode

SAMPLES = ROOT / "tests/conformance/samples"


def detect(text, **more):
    return detect_suite(parse_params(text), **more).name


def test_the_functions_beside_the_driver_tell_its_version_too(tmp_path):
    file = lay_params(tmp_path, (SAMPLES / "paddleclas/lcnet_cpu.txt").read_text(encoding="utf-8"))
    driver, functions = (tmp_path / "test_tipc" / name for name in ("test_train_inference_python.sh", "common_func.sh"))
    driver.write_text("set_autocast=$(func_set_amp_params)\n${log_rank} print_mem_info\n")

    def words():
        plan = load_plan(file, Mode.LITE_TRAIN_LITE_INFER, suite="paddleclas")
        return " ".join(word for one in plan.commands if one.step == "train" for word in one.argv)

    assert "AMP.use_amp=False" in words()
    functions.write_text('if [[ ${value} = "fp16" ]];then\n    echo "-o AMP.scale_loss=128 -o AMP.level=O2"\n')
    assert "AMP" not in words()


def test_files_without_marks():
    assert detect(TEMPLATE) == "tipchain"
    assert detect(TEMPLATE, legacy=True) == "template"
    assert detect(TEMPLATE + ALIGNMENT, legacy=True) == "tipchain"
    assert detect(TUTORIAL) == "tutorial"
    assert detect("") == "tipchain"


@pytest.mark.parametrize("name", [name for name in suite_names() if get_suite(name).marks.folders])
def test_folders_of_the_checkout_tell(name, tmp_path):
    suite = get_suite(name)
    root = tmp_path / "tests"
    # No layout fits this file, so the folders alone decide.
    path = lay_params(root, "===train_params===\nmodel_name:net\n")
    for folder in suite.marks.folders:
        (root / folder).mkdir(parents=True)
    assert checkout(path) == root
    assert detect(path.read_text(), root=root) == name


@pytest.mark.parametrize(
    ("there", "file", "expected"),
    [
        ((), "Rec/test_tipc/configs/net/a.txt", "Rec"),
        (("Rec/test_tipc/test_tipc/data",), "Rec/test_tipc/configs/net/a.txt", "Rec"),
        (("Rec/.git",), "Rec/contrib/Med/test_tipc/configs/a.txt", "Rec/contrib/Med"),
        (("Rec/.git",), "Rec/test_tipc/test_tipc/configs/a.txt", "Rec"),
        (("Rec/test_tipc/prepare.sh",), "Rec/test_tipc/test_tipc/configs/a.txt", "Rec"),
        (("Rec/test_tipc/prepare.sh/",), "test_tipc/Rec/test_tipc/a.txt", "test_tipc/Rec"),
        (("test_tipc/.git",), "test_tipc/test_tipc/configs/a.txt", "test_tipc"),
        (("Rec/.git", "Rec/sub/test_tipc"), "Rec/sub/a.txt", "Rec/sub"),
        (("Rec/.git",), "Rec/sub/a.txt", "Rec"),
        (("Rec/.git",), "Rec/test_tipc/../sub/a.txt", "Rec"),
    ],
)
def test_the_checkout_is_the_folder_whose_test_tipc_holds_the_file(tmp_path, there, file, expected):
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch() if name.endswith(".sh") else (tmp_path / name).mkdir()
    assert checkout(tmp_path / file) == tmp_path / expected


def test_every_recorded_file_is_told_from_its_text_alone():
    wrong = []
    for record in corpus():
        if record["mode"] != "whole_infer":
            continue
        path = CORPUS / "configs" / record["repo"] / record["config"]
        found = detect_suite(parse_params(read_text(path), str(path)), legacy=True).name
        if found != record["suite"]:
            wrong.append((record["suite"], found, record["config"]))
    assert wrong == []


@pytest.mark.parametrize(
    "name", ["paddlevideo/pp_tsm", "paddlegan/edvr", "paddlerec/wide_deep", "panopticseg/mask2former"]
)
def test_a_shifted_file_is_still_that_suites(name):
    lines = (SAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for index in range(4, 54 if "panoptic" in name else 51):
        if not lines[index].startswith("="):
            shifted = [*lines[:index], "--added:7", *lines[index:]]
            assert detect("\n".join(shifted)) == name.partition("/")[0], f"{index}: {lines[index]}"


DRIVER = 'model=$(func_parser_value "${{lines[1]}}")\nlast_key=$(func_parser_key "${{lines[{last}]}}")\nlines[40]\n'


@pytest.fixture
def copied(tmp_path):
    """Return a function that writes a parameter file beside a driver and returns what planning it says."""

    def refused(text: str, lines: int | None = None) -> str:
        path = lay_params(tmp_path, text)
        if lines:
            (tmp_path / "test_tipc/test_train_inference_python.sh").write_text(DRIVER.format(last=lines - 1))
        with pytest.raises(ParamsError) as error:
            load_plan(path, Mode.LITE_TRAIN_LITE_INFER)
        advice = [one.finding.message for one in lint_file(path).found if one.finding.severity in ("info", "warning")]
        assert str(error.value).partition("  hint: ")[2] in (*advice, "")
        return str(error.value)

    return refused


def test_a_driver_of_ones_own_is_told_of_with_the_nearest_layout_and_what_to_do(copied):
    message = copied(TUTORIAL.replace("--img-path", "--other:x\n--img-path"), 33)
    assert message.endswith(
        "test_tipc/test_train_inference_python.sh reads 33 lines, and tutorial, the nearest layout, has 32; "
        "describe the driver in test_tipc/tipchain_suite.yaml, as docs/reference/suites.md says"
    )


@pytest.mark.parametrize("lines", [None, 32])
def test_what_the_driver_makes_of_a_broken_file_is_told(copied, lines):
    text = TUTORIAL.replace("--model-dir:./output/net_infer/\n", "").replace("--img-path:./images/demo.jpg\n", "")
    told = "section [infer_params] has 9 lines, and this one stands for another: argument for the exported model, which tipchain"
    assert f":30: {told}" in copied(text, lines)


def test_a_driver_that_no_version_of_its_suite_has_is_told_of(tmp_path, monkeypatch, capsys):
    path, scripts = lay_params(tmp_path, TEMPLATE), tmp_path / "test_tipc"
    own, known, functions = scripts / "tipchain_suite.yaml", "a\n  b  c\n", "func_parser_key(){\n}\n"
    driver, sourced = scripts / "test_train_inference_python.sh", scripts / "common_func.sh"
    versions = (
        "versions: [{title: of old, has: old, changes: {out: older}}, {title: older, has: b c, changes: {reads: 51}}]\n"
    )

    def told(text: str | None, functions: str, name: str = "mine") -> str:
        driver.unlink(missing_ok=True) if text is None else driver.write_text(text)
        sourced.write_text(functions)
        plans = [load_plan(path, mode, legacy=legacy) for mode in CHAIN_MODES[:-1] for legacy in (True, False)]
        (found,) = {tuple(note for note in plan.notes if "differs" in note) for plan in plans}
        warned = [one.finding.message for one in lint_file(path).found if "differs" in one.finding.message]
        assert (warned, {plan.suite for plan in plans}) == (list(found), {name})
        return " ".join(found)

    prints = f"drivers: {fingerprint(known)} {fingerprint(functions)}\n"
    own.write_text(f"suite: mine\nextends: template\ntitle: Mine\n{versions}{prints}")
    assert told(known, functions) == told("# A comment.\na\n\n b c", functions) == told(None, "x") == ""
    end = "shows whether the commands are the driver's"
    assert told("a\nb d\n", functions) == (
        "test_tipc/test_train_inference_python.sh differs from every version of mine that is known, and the plan follows this one: "
        f"the newest version; tests/conformance/record_original.py in a clone of tipchain {end}"
    )
    assert ": of old, older; " in told("a\nb c old\n", functions)
    assert told("exec tipchain run $1 $2", functions) == ""
    assert told(known, "func_parser_key(){ echo }").startswith("test_tipc/common_func.sh differs")
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    assert main(["plan", str(path), "whole_infer"]) == 0
    assert "test_tipc/common_func.sh 与已知的 mine 各版本都不同，计划按此版本：older；" in capsys.readouterr().err
    path.write_text(TEMPLATE.replace("gpu_list:", "gpus:"))
    with pytest.raises(ParamsError, match=r"hint: .* differs from every version"):
        load_plan(path, Mode.WHOLE_INFER)
    assert "differs" in " ".join(one.finding.message for one in lint_file(path).found)


def test_a_known_driver_decides_whatever_keys_the_file_has(tmp_path):
    path = lay_params(tmp_path, (SAMPLES / "verbatim/as_it_stands.txt").read_text(encoding="utf-8"))
    driver, texts = tmp_path / "test_tipc/test_train_inference_python.sh", get_suite("verbatim").marks.driver
    (tmp_path / "ppocr").mkdir()
    driver.write_text("\n".join(texts))
    plan = load_plan(path, Mode.LITE_TRAIN_LITE_INFER)
    assert plan.suite == "verbatim"
    (export, *_) = (one for one in plan.commands if one.step == "export")
    assert "**/*.pdmodel" in export.leaves[0].files, "the driver hands it no folder, though the file names an argument"
    told = "test_tipc/test_train_inference_python.sh of its checkout is the driver of verbatim"
    assert lint_file(path).reason == told
    for left_out in texts:
        driver.write_text("\n".join(text for text in texts if text != left_out))
        assert load_plan(path, Mode.LITE_TRAIN_LITE_INFER, legacy=True).suite == "paddleocr"


def test_lint_names_the_versions_of_the_checkouts_driver(tmp_path):
    path = lay_params(tmp_path, (SAMPLES / "paddleocr/lines_pact.txt").read_text(encoding="utf-8"))
    (tmp_path / "ppocr").mkdir()
    assert "another version" not in lint_file(path).reason
    version = get_suite("paddleocr").versions[0]
    (tmp_path / "test_tipc/test_train_inference_python.sh").write_text("\n".join(version.has))
    assert lint_file(path).reason.endswith(f"; its driver is another version: {version.title}")


@pytest.mark.parametrize("data", ["--img-path:a.jpg", "--clean-dir:a.jpg\n--noisy-dir:b.jpg"])
def test_a_driver_that_infers_with_two_files_runs_a_file_that_names_one(tmp_path, monkeypatch, data):
    path = lay_params(tmp_path, TUTORIAL.replace("--img-path:./images/demo.jpg", data))
    version = next(one for one in get_suite("tutorial").versions if one.title.startswith("two files"))
    (tmp_path / "test_tipc/test_train_inference_python.sh").write_text("\n".join(version.has))
    monkeypatch.chdir(tmp_path)
    plan = load_plan(path, Mode.LITE_TRAIN_LITE_INFER)
    words = [one for one in plan.commands if one.step == "infer"][-1].argv
    assert {line.replace(":", "=") for line in data.splitlines()} < set(words)
