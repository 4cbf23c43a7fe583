"""Which line means what, and files that do not fit."""

import pytest
from chain_samples import ALIGNMENT, TEMPLATE, edit

from tipchain.chain.params import parse_params
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import alignment_params, read_slots
from tipchain.errors import ParamsError


def slots(text, suite="tipchain"):
    return read_slots(parse_params(text, "f.txt"), get_suite(suite))


IDLE = (
    ("pact_train", "quant_export:null"),
    ("fpgm_train", "prune:null"),
    ("export1", "--data:x"),
    ("train_model", "null:null"),
)


@pytest.mark.parametrize("change", IDLE)
def test_a_line_that_nothing_reads_may_have_any_key(change):
    whole, changed = slots(TEMPLATE), slots(edit(TEMPLATE, change))
    moved = [role for role, slot in whole.items() if slot != changed[role]]
    assert len(moved) == 1
    assert changed[moved[0]].key == change[1].partition(":")[0]


@pytest.mark.parametrize("change", [(start, "other:train.py") for start, _ in IDLE if start != "export1"])
def test_a_line_that_is_read_needs_its_key(change):
    with pytest.raises(ParamsError, match=r"f\.txt:\d+: expected"):
        slots(edit(TEMPLATE, change))


def test_a_line_missing_or_added_is_refused_beside_one_that_nothing_reads():
    lines = edit(TEMPLATE, IDLE[0]).splitlines()
    for index, line in enumerate(lines[:-2]):
        if line != "##":
            with pytest.raises(ParamsError, match=r"f\.txt:\d+: "):
                slots("\n".join(lines[:index] + lines[index + 1 :]))
        with pytest.raises(ParamsError, match=r"f\.txt:\d+: "):
            slots("\n".join([*lines[:index], "x:null", *lines[index:]]))


def test_a_missing_line_is_no_folder_that_may_be_missing_beside_an_idle_one():
    text = edit(TEMPLATE, ("export1", "--data:x")).replace("infer_model", "inference_dir:null\ninfer_model", 1)
    lines = text.splitlines()
    slots(text)
    start, end = lines.index("--save-dir:null"), lines.index("inference_dir:null")
    for index in range(start, end - 1):
        with pytest.raises(ParamsError, match=r"f\.txt:\d+: "):
            slots("\n".join(lines[:index] + lines[index + 1 :]))
    assert not slots("\n".join(lines[:end] + lines[end + 1 :])).get("inference_dir")


def test_a_missing_line_is_named_beside_idle_ones():
    text = edit(TEMPLATE, ("pact_train", "quant_export:null"), ("fpgm_train", "prune:null"))
    with pytest.raises(ParamsError, match=r"a line is missing between lines 13 and 15 \(`trainer:`"):
        slots(text.replace("trainer:norm_train\n", ""))


def test_a_line_in_the_place_of_another_is_no_idle_one():
    name = "train_model_name:best.pdparams\n"
    shifted = TEMPLATE.replace("--pretrained:null\n", "").replace(name, f"{name}null:null\n")
    with pytest.raises(ParamsError, match="expected `train_model_name:`"):
        slots(shifted)
    trained = TEMPLATE.replace("distill_train:null\nnull:null", "distill_train:null\nlite_train:lite.py")
    with pytest.raises(ParamsError, match=r"expected `\*export\*:`"):  # an export that a trainer runs
        slots(edit(trained, ("export1", "--data:x")))


def test_a_last_argument_may_be_missing_but_no_line_before_it():
    whole, short = slots(TEMPLATE), slots(TEMPLATE.removesuffix("null:null\n"))
    assert "extra_infer" in whole
    assert {**short, "extra_infer": whole["extra_infer"]} == whole
    with pytest.raises(ParamsError, match="a line is missing between lines 43 and 45"):
        slots(TEMPLATE.replace("--bs:1|4\n", ""))


def test_sections_out_of_place_are_refused():
    with pytest.raises(ParamsError, match=r"expected the section \[train_params\]"):
        slots("===eval_params===\n" + TEMPLATE)
    with pytest.raises(ParamsError, match=r"\[eval_params\] is missing"):
        slots(TEMPLATE[: TEMPLATE.index("===========================eval")])
    with pytest.raises(ParamsError, match=r"unknown section \[alignment_parms\]"):
        slots(TEMPLATE + ALIGNMENT.replace("params", "parms"))
    with pytest.raises(ParamsError, match="stands twice"):
        slots(TEMPLATE + ALIGNMENT + ALIGNMENT)
    slots(TEMPLATE + "===train_benchmark_params===\nbatch_size:8\n")


def test_alignment_may_stand_only_after_the_last_slot():
    assert alignment_params(parse_params(TEMPLATE)) is None
    found = alignment_params(parse_params(TEMPLATE + ALIGNMENT))
    assert (found.case, found.steps) == ("configs/net.yaml", ("01", "02", "03", "04", "05"))
    place = TEMPLATE.index("===========================infer")
    with pytest.raises(ParamsError, match=r"expected the section \[infer_params\]"):
        slots(TEMPLATE[:place] + ALIGNMENT + TEMPLATE[place:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("steps:", "step:01"), "unknown key(.|\n)*did you mean 'steps'"),
        (("steps:", "steps:01|09"), "unknown step '09'"),
        (("steps:", "steps:"), "needs `steps:`"),
        (("alignment:", "steps:01"), "stands twice"),
        (("alignment:", "# none"), "needs `alignment:`"),
    ],
)
def test_alignment_keys_are_checked(change, message):
    with pytest.raises(ParamsError, match=message):
        alignment_params(parse_params(edit(TEMPLATE + ALIGNMENT, change)))


def test_a_line_that_may_be_there_counts_in_what_is_expected():
    text = TEMPLATE.replace("##\ninfer_model", "inference_dir:x\ninfer_model").replace("--threads:2\n", "")
    with pytest.raises(
        ParamsError, match=r"has 23 lines, expected 24: a line is missing after line 42 \(numbers of CPU threads\)"
    ):
        slots(text)
