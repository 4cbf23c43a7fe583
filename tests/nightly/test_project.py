"""What of the disk a plan depends on: globs, files' own problems, data folders."""

from __future__ import annotations

import pytest
from chain_samples import TEMPLATE

from tipchain.errors import ManifestError, Outcome
from tipchain.modes import CHAIN_MODES, Mode
from tipchain.nightly import expand as projects
from tipchain.nightly.expand import DiskProject, expand
from tipchain.nightly.manifest import load_manifest, missing_data


def plan_of(folder, text, **options):
    (folder / "test_tipc").mkdir(exist_ok=True)
    path = folder / "suite.yaml"
    path.write_text(text)
    manifest = load_manifest(path)
    return expand(manifest, DiskProject(manifest), **options)


def params(folder, name, text=TEMPLATE):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_globs_name_each_file_once_without_what_is_excluded(tmp_path):
    for name in ("c/b/t.txt", "c/a/t.txt", "c/broken/t.txt"):
        params(tmp_path, name)
    plan = plan_of(tmp_path, "chains: [{params: ['c/*/t.txt', 'c/a/t.txt'], exclude: ['c/br*'], modes: [whole_infer]}]")
    assert [item.source for item in plan.items] == ["c/a/t.txt", "c/b/t.txt"]
    assert not any(item.reason for item in plan.items)


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("d/*.txt", "names no file"),
        ("../*.txt", "leads out"),
        ("/etc/*.txt", "leads out"),
        ("**x/*.txt", "is no glob"),
        (".", "is no glob"),
    ],
)
def test_globs_that_name_nothing_here(tmp_path, glob, said):
    with pytest.raises(ManifestError, match=said) as caught:
        plan_of(tmp_path, f"chains:\n  - params: ['{glob}']\n    modes: [whole_infer]")
    assert caught.value.line == 2


@pytest.mark.parametrize("name", ["a\nb", "esc\x1b[31m", "bad\udcff", "turned\u202e"])
def test_a_file_that_no_item_can_be_called_after_is_named(tmp_path, name):
    params(tmp_path, "c/a/t.txt")
    params(tmp_path, f"c/{name}/t.txt")
    text = "chains: [{params: ['c/*/t.txt'], modes: [whole_infer]"
    with pytest.raises(ManifestError) as error:
        plan_of(tmp_path, text + "}]")
    said = str(error.value)
    assert "suite.yaml:1: names a file that no item can be called after" in said
    assert f"found: {f'c/{name}/t.txt'!a}" in said
    assert "`exclude`" in said
    plan = plan_of(tmp_path, text + ", exclude: ['c/[!a]*/*', 'c/a?*/*']}]")
    assert [item.source for item in plan.items] == ["c/a/t.txt"]


def test_wrong_parameter_files_are_errors_of_their_items(tmp_path):
    params(tmp_path, "good/t.txt")
    params(tmp_path, "bad/t.txt", TEMPLATE.replace("model_name:net", "model_name net"))
    params(tmp_path, "typo/t.txt", TEMPLATE.replace("trainer:norm_train", "trainer:nrom_train"))
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin/t.txt").write_bytes(b"\xff\xfe\xfa")
    plan = plan_of(tmp_path, "chains: [{params: '*/t.txt', modes: [lite_train_lite_infer, whole_infer]}]")
    by_id = {item.id: item for item in plan.items}
    assert by_id["good[whole_infer;cpu]"].reason == ""
    bad = by_id["bad[whole_infer;cpu]"]
    assert bad.settled is Outcome.ERROR
    assert bad.reason.startswith("bad/t.txt:2: ")
    assert "\n" not in bad.reason
    typo = by_id["typo[lite_train_lite_infer;cpu]"]
    assert typo.settled is Outcome.ERROR
    assert "norm_train" in typo.reason
    assert by_id["latin[whole_infer;cpu]"].settled is Outcome.ERROR


def test_options_and_suites_count_when_files_are_looked_at(tmp_path):
    params(tmp_path, "typo/t.txt", TEMPLATE.replace("trainer:norm_train", "trainer:nrom_train"))
    text = "chains: [{params: '*/t.txt', modes: [lite_train_lite_infer]%s}]"
    (item,) = plan_of(tmp_path, text % ", options: ['--lenient']").items
    assert item.reason == ""
    (item,) = plan_of(tmp_path, text % ", suite: PaddleClass").items
    assert "did you mean" in item.reason


def test_wrong_cases_are_errors_of_their_items(tmp_path):
    (tmp_path / "bad.yaml").write_text("id: x\n")
    side = "{model: 'a:b'}"
    (tmp_path / "good.yaml").write_text(
        f"id: good\nsides: {{torch: {side}, paddle: {side}}}\nstages: [forward]\n"
        "inputs: {x: {shape: [1, 2], dtype: float32}}\n"
    )
    plan = plan_of(tmp_path, "cases: [{case: ['bad.yaml', 'good.yaml'], modes: [whole_infer], stages: [forward]}]")
    bad, good = plan.items
    assert bad.settled is Outcome.ERROR
    assert "bad.yaml" in bad.reason
    assert good.reason == ""
    (item,) = plan_of(tmp_path, "cases: [{case: good.yaml, modes: [whole_infer], stages: [forward, lr]}]").items
    assert item.reason == "good.yaml: the case has no stage lr"


def test_a_file_is_planned_once_for_each_mode(tmp_path, monkeypatch):
    import tipchain.chain.load as loading

    params(tmp_path, "a/t.txt")
    modes, original = [], loading.load_plan
    monkeypatch.setattr(
        loading, "load_plan", lambda path, mode, **more: modes.append(mode) or original(path, mode, **more)
    )
    wanted = [mode for mode in CHAIN_MODES if mode is not Mode.KLQUANT_WHOLE_INFER]
    names = ", ".join(mode.value for mode in wanted)
    plan = plan_of(tmp_path, f"chains: [{{params: a/t.txt, modes: [{names}], devices: [cpu, gpu], repeats: 4}}]")
    assert len(plan.items) == 32
    assert modes == wanted


def test_data_folders_are_looked_at_once(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(projects, "missing_data", lambda path, holds: looked.append(path) or "gone")
    params(tmp_path, "a/t.txt")
    params(tmp_path, "b/t.txt")
    plan = plan_of(tmp_path, "data: {d: {path: x}}\nchains: [{params: '*/t.txt', modes: [whole_infer], data: d}]")
    assert [item.reason for item in plan.items] == ["data 'd': gone"] * 2
    assert looked == [tmp_path / "x"]


def make(folder, *names):
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


@pytest.mark.parametrize(
    ("holds", "names", "lacking"),
    [
        (("train/*/", "val/*/"), ["train/a/", "val/a/"], ""),
        (("train/*/", "val/*/"), ["train/a/", "val/b.JPEG"], "val/*/"),
        (("*_list.txt", "train"), ["val_list.txt", "train/"], ""),
        (("*_list.txt", "train"), ["train/"], "*_list.txt"),
        (("*",), ["x"], ""),
        (("*",), [], "*"),
    ],
)
def test_what_a_folder_must_hold(tmp_path, holds, names, lacking):
    make(tmp_path, *names)
    assert missing_data(tmp_path, holds) == (f"{tmp_path}/{lacking} is not there" if lacking else "")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert missing_data(tmp_path / "none", ("*",)) == f"{tmp_path}/none is not there"
