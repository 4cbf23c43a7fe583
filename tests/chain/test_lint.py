"""What lint finds in files, and what it says about lines."""

import pytest
from chain_samples import ALIGNMENT, CORPUS, TEMPLATE, TUTORIAL, edit

from tipchain.chain import slots
from tipchain.chain.lint import lint_file
from tipchain.modes import Mode

CLAS = "PaddleClas/test_tipc/configs/AlexNet/AlexNet_train_infer_python.txt"


@pytest.fixture
def lint(tmp_path):
    """Return a function that lints a text and returns ``(code, severity, line, message)`` of each finding."""

    def run(text, suite="tipchain", name="p.txt", **more):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        linted = lint_file(path, suite=suite, **more)
        return [(f.finding.code, f.finding.severity, f.finding.line, f.finding.message) for f in linted.found]

    return run


def errors(found):
    return [one for one in found if one[1] == "error"]


def has(found, code, severity, line, words):
    return any(one[:3] == (code, severity, line) and words in one[3] for one in found)


def test_every_error_of_a_file_is_reported(lint):
    found = errors(
        lint(
            edit(
                TEMPLATE,
                ("model_name", "model_name:../net"),
                ("gpu_list", "gpu_list:0,0|x"),
                ("--epochs", "--epochs:lite_trian_lite_infer=1|lite_train_lite_infer=1|5"),
                ("trainer:", "trainer:norm_train|nrom_train"),
                ("eval:", "eval:eval.py; rm x"),
                ("inference:", "inference:infer.py $(id)"),
                ("--precision", "--precision:'fp32"),
            )
        )
    )
    assert has(found, "value", "error", 2, "cannot be a folder's name")
    assert has(found, "closed-modes", "error", 7, "unknown mode 'lite_trian_lite_infer'; did you mean")
    assert has(found, "closed-modes", "error", 7, "'5' is no mode=value")
    assert has(found, "typos", "error", 15, "unknown trainer 'nrom_train'; did you mean 'norm_train'?")
    assert has(found, "no-shell", "error", 24, "';' would be acted on by a shell")
    assert has(found, "no-shell", "error", 40, "'$(' would be acted on by a shell")
    assert has(found, "value", "error", 46, "cannot be split into words: no closing quotation")
    assert {one[2] for one in found} == {2, 4, 7, 15, 24, 40, 46}


def test_lines_that_are_no_lines_are_errors_and_the_rest_is_looked_at(lint):
    text = edit(TEMPLATE, ("python:", "python"), ("infer_quant", "infer_quant:Fasle\x1b[2J")) + ""
    found = errors(lint(text))
    assert has(found, "value", "error", 3, "names no interpreter")  # a line without ':' has an empty value
    assert has(found, "text", "error", 39, "a control character in the line")
    assert len(found) == 3  # and what the control character's line is taken for: no boolean
    assert has(lint("x:1\n" + TEMPLATE), "text", "error", 1, "a line before the first section header")


@pytest.mark.parametrize(("suite", "text"), [("tipchain", TEMPLATE), ("tutorial", TUTORIAL)])
def test_a_missing_line_is_named_where_it_is(lint, suite, text):
    lines = text.splitlines()
    exact = 0
    for index, line in enumerate(lines):
        if line.startswith(("#", "=")):
            continue
        found = errors(lint("\n".join(lines[:index] + lines[index + 1 :]), suite))
        if line in ("--benchmark:True", "null:null", "--img-path:./images/demo.jpg") and not found:
            assert index >= len(lines) - 2
            continue
        assert len(found) == 1
        message = found[0][3]
        assert "a line is missing" in message, (index, message)
        words = message.rpartition("a line is missing ")[2].split()
        before = int(words[2])
        after = before + 1 if words[0] == "after" else int(words[4].rstrip(";"))
        # The line that was number index + 1 lay between those that are now index and index + 1.
        assert before <= index < after, (index, message)
        exact += after - before == 1
    assert exact >= len(lines) / 4


def test_a_line_missing_below_a_null_inference_is_told_and_not_refused(lint):
    found = lint(edit(TEMPLATE, ("inference:", "inference:null")).replace("--bs:1|4\n", ""))
    assert not errors(found)
    assert has(found, "sections", "info", 45, "no line there is read, for the inference is null")


@pytest.mark.parametrize(("suite", "text"), [("tipchain", TEMPLATE), ("tutorial", TUTORIAL)])
def test_an_added_line_is_named_where_it_is(lint, suite, text):
    lines = text.splitlines()
    for index in range(1, len(lines)):
        found = errors(lint("\n".join([*lines[:index], "extra:1", *lines[index:]]), suite))
        message = found[0][3]
        numbers = [int(word.rstrip(":")) for word in message.split() if word.rstrip(":").isdigit()]
        assert numbers[0] <= index + 1 <= numbers[-1], (index, message)
        assert "too many" in message


def test_what_is_tried_on_a_section_does_not_grow_with_its_lines(lint, monkeypatch):
    tried = []
    fitted = slots._fitted
    monkeypatch.setattr(slots, "_fitted", lambda *args: tried.append(len(args[1])) or fitted(*args))
    counts = []
    for lines in (1_000, 2_000):
        tried.clear()
        found = lint(TEMPLATE.replace("##\n", "x:y\n" * lines + "##\n", 1))
        assert errors(found)
        counts.append(len(tried))
    assert counts[0] == counts[1]


def test_sections_are_looked_at_one_by_one_and_mistyped_keys_do_not_hide_the_rest(lint):
    text = edit(TEMPLATE, ("eval:", "evla:eval.py"), ("infer_quant", "infer_quant:Fasle"))
    found = errors(lint(text.replace("trainer:", "triner:")))
    assert has(found, "sections", "error", 15, "expected `trainer:`, found `triner:`; did you mean 'trainer'?")
    assert has(found, "sections", "error", 24, "expected `eval:`, found `evla:`")
    assert has(found, "typos", "error", 39, "did you mean 'False'?")
    found = errors(lint(TEMPLATE.replace("eval:", "evla:").replace("--threads:2\n", "")))
    assert [one[2] for one in found] == [24, 43]
    found = errors(lint(TEMPLATE.replace("eval_params", "evla_params")))
    assert has(found, "sections", "error", 23, "expected the section [eval_params]; did you mean 'eval_params'?")


def test_a_wrong_suite_is_told_by_the_layout_that_fits(lint):
    found = lint(TUTORIAL, "template")
    assert any(one[1] == "info" and "fits the layout of tutorial" in one[3] for one in found)


@pytest.mark.parametrize(
    ("change", "code", "line", "message"),
    [
        (("--batch-size", "--batch-size 4"), "default", 9, "has no colon, so it has no value"),
        (("trainer:", "trainer:pact_train"), "nothing-planned", 17, "so the trainer pact_train is skipped"),
        (("--epochs", "--epochs:null"), "default", 0, ""),
        (("--batch-size", "--batch-size:lite_train_lite_infer=4"), "default", 9, "has no value for whole_train"),
        (("--batch-size", "--batch-size:lite_train_lite_infer=4"), "mode-fallback", 9, "has no value for lite"),
    ],
)
def test_what_planning_tells_is_told(lint, change, code, line, message):
    found = lint(edit(TEMPLATE, change))
    if line:
        assert has(found, code, "warning", line, message)
    else:
        assert not any(one[2] == 7 for one in found)


def test_missing_programs_are_told_of_in_a_checkout_of_the_suite(lint, tmp_path):
    text = edit(
        TEMPLATE, ("norm_train:", "norm_train:train.py -c there.yaml -o a=b"), ("eval:", "eval:eval.py -c gone.yaml")
    )
    name = "test_tipc/configs/p.txt"
    assert not any(one[0] == "paths" and one[1] == "warning" for one in lint(text, name=name))
    for file in ("train.py", "there.yaml", "infer.py"):
        (tmp_path / file).touch()
    found = [one for one in lint(text, name=name) if one[0] == "paths" and one[1] == "warning"]
    assert [(one[2], one[3].partition(" is not")[0]) for one in found] == [
        (24, "eval.py"),
        (24, "gone.yaml"),
        (30, "export.py"),
        (38, "export.py"),
    ]


def test_a_missing_folder_to_infer_in_is_told_of(tmp_path):
    path = CORPUS / "configs" / CLAS
    if not path.is_file():
        pytest.skip("the corpus of parameter files is not here")
    copy = tmp_path / "test_tipc/p.txt"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    (tmp_path / "ppcls").mkdir()
    found = [one.finding for one in lint_file(copy).found]
    assert [one.line for one in found if one.code == "cwd"] == [40]
    (tmp_path / "deploy").mkdir()
    found = [one.finding for one in lint_file(copy).found]
    assert "deploy/python/predict_cls.py is not in" in " ".join(one.message for one in found)


def test_an_interpreter_that_cannot_be_started_is_a_remark(lint):
    found = lint(edit(TEMPLATE, ("python:", "python:python9.9")))
    assert has(found, "paths", "info", 3, "python9.9 cannot be started here; --python PATH")


def test_a_finding_of_several_modes_is_one_and_names_them(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text(edit(TEMPLATE, ("trainer:", "trainer:pact_train"), ("--batch-size", "--batch-size:null")))
    linted = lint_file(path, suite="template")
    assert "klquant_whole_infer" not in linted.modes
    modes = {one.finding.message: one.modes for one in linted.found}
    assert modes["is null, so the trainer pact_train is skipped"] == linted.modes[:3]
    assert ("lite_train_whole_infer",) in modes.values()
    only = lint_file(path, suite="template", modes=[Mode.WHOLE_INFER])
    assert only.modes == ("whole_infer",)
    assert not any("is null, so the trainer" in one.finding.message for one in only.found)


def test_lines_are_explained_with_what_the_plans_make_of_them(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text(TEMPLATE + ALIGNMENT + "===train_benchmark_params===\nbatch_size:8\n")
    linted = lint_file(path, explained=True)
    lines = {line.line: line for line in linted.lines}
    assert lines[7].role == "epoch"
    assert lines[7].use == "in train[norm_train;gpus=-1]"
    assert lines[16].use == "in train[norm_train;gpus=-1]"
    assert lines[42].use.startswith("in infer[cpu;mkldnn=False;")
    assert lines[14].meaning == "separator"
    assert "another driver" in lines[55].meaning
    assert 56 not in lines
    assert linted.reason == "only tipchain's files have a section [alignment_params]"


def test_what_the_original_would_run_otherwise_is_computed_and_a_remark(lint):
    found = lint(
        edit(TEMPLATE, ("--epochs", "--epochs:whole_train_whole_infer=a=b")), modes=[Mode.WHOLE_TRAIN_WHOLE_INFER]
    )
    assert has(found, "original", "info", 0, "train: --epochs=a=b stands here for --epochs=a in the original")


def test_every_line_of_the_corpus_has_a_meaning():
    folder = CORPUS / "configs"
    if not folder.is_dir():
        pytest.skip("the corpus of parameter files is not here")
    for path in sorted(folder.rglob("*.txt"))[::9]:
        linted = lint_file(path, explained=True, modes=[Mode.LITE_TRAIN_LITE_INFER])
        assert all(line.meaning and "suite's own" not in line.meaning for line in linted.lines), path
        assert not any(
            one.finding.code in ("text", "sections", "value", "no-shell") and one.finding.severity == "error"
            for one in linted.found
        ), path


def test_line_ends_of_windows_are_a_remark(lint):
    found = lint(TEMPLATE.replace("\n", "\r\n"))
    assert has(found, "text", "info", 0, "lines end with CR LF")
    assert not any(one[0] == "text" for one in lint(TEMPLATE))
