"""The data that tipchain makes: digits, whole or not there, and nobody's else."""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import completed

from tipchain.errors import DataError
from tipchain.prepare import data
from tipchain.prepare.data import check_data, choose_images, encode_png, load_scans, prepare_data, split_whole


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    prepare_data(root, "lite")
    return root


@pytest.fixture
def root(made, tmp_path):
    """A project root with whole lite data."""
    shutil.copytree(made / "test_tipc", tmp_path / "test_tipc")
    return tmp_path


def folder_of(root: Path) -> Path:
    return root / "test_tipc/data/lite_data"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def an_image(folder: Path) -> Path:
    return sorted((folder / "val").rglob("*.png"))[3]


def neighbours(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock"))


def run_python(code: str, root: Path, **more) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, "-c", code, str(root)], timeout=120, **more)


def test_lite_data_has_its_images_list_and_manifest(root):
    folder = folder_of(root)
    check_data(folder)
    lines = (folder / "lite_data.txt").read_text().splitlines()
    assert len(lines) == 40
    for line in lines:
        path, label = line.split(" ")
        assert (folder / path).is_file()
        assert path.split("/")[1] == label
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["recipe"]["train"], manifest["recipe"]["val"], manifest["recipe"]["seed"]) == (20, 20, 0)
    assert set(manifest["files"]) == {*(line.split()[0] for line in lines), "lite_data.txt"}


def test_two_makings_give_the_same_bytes(root):
    before = contents(folder_of(root))
    inode = folder_of(root).stat().st_ino
    prepare_data(root, "lite", force=True)
    assert folder_of(root).stat().st_ino != inode
    assert contents(folder_of(root)) == before


def flip(folder):
    path = an_image(folder)
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)


def lose_manifest(folder):
    (folder / "manifest.json").unlink()


def cut_manifest(folder):
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:500])


def half_make(folder):
    lose_manifest(folder)
    shutil.rmtree(folder / "val")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: an_image(folder).write_bytes(b""), r"is damaged\n  found: 0 bytes"),
        (flip, "checksum"),
        (lambda folder: an_image(folder).unlink(), r"\.png: is missing"),
        (cut_manifest, "half-made"),
        (half_make, "half-made"),
    ],
)
def test_a_damaged_or_half_made_folder_is_found_and_made_again(root, damage, message):
    before = contents(folder_of(root))
    damage(folder_of(root))
    with pytest.raises(DataError, match=message) as caught:
        check_data(folder_of(root))
    assert "bash prepare.sh" in str(caught.value)
    said = []
    prepare_data(root, "lite", say=said.append)
    assert "making it again" in said[0]
    assert contents(folder_of(root)) == before
    assert neighbours(folder_of(root)) == ["lite_data"]


def test_a_folder_that_is_not_there_is_said_with_the_way_out(tmp_path):
    with pytest.raises(DataError, match="no such data folder") as caught:
        check_data(tmp_path / "whole_data")
    assert "whole_train_whole_infer --data-only" in str(caught.value)


def test_a_file_that_was_added_is_not_taken_for_data(root):
    (folder_of(root) / "train/0/mine.png").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"mine\.png"):
        check_data(folder_of(root))


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_with_a_users_file_is_never_replaced(root, force):
    mine = folder_of(root) / "train/0/mine.png"
    mine.write_bytes(b"mine")
    lose_manifest(folder_of(root))
    with pytest.raises(DataError, match=r"not ours\n  found: train/0/mine\.png"):
        prepare_data(root, "lite", force=force)
    assert mine.read_bytes() == b"mine"


def test_a_users_folder_and_a_users_file_stay(tmp_path):
    folder = folder_of(tmp_path)
    (folder / "train/cat").mkdir(parents=True)
    (folder / "train/cat/1.jpg").write_bytes(b"cat")
    with pytest.raises(DataError, match=r"train/cat/1\.jpg"):
        prepare_data(tmp_path, "lite")
    assert (folder / "train/cat/1.jpg").read_bytes() == b"cat"
    shutil.rmtree(folder)
    folder.write_text("notes")
    with pytest.raises(DataError, match="not ours"):
        prepare_data(tmp_path, "lite")
    assert folder.read_text() == "notes"


KILLED = """
import os, signal, sys
from pathlib import Path
from tipchain.prepare import data
write, calls = data._write, []
def dying(path, content):
    calls.append(path)
    if len(calls) == AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(path, content)
data._write = dying
data.prepare_data(Path(sys.argv[1]), "lite", force=FORCE)
"""


def test_a_killed_preparation_leaves_nothing_that_passes_for_complete(tmp_path):
    killed = run_python(KILLED.replace("AFTER", "42").replace("FORCE", "False"), tmp_path)
    assert killed.returncode == -signal.SIGKILL
    assert not folder_of(tmp_path).exists()
    assert any(".making-" in name for name in neighbours(folder_of(tmp_path)))
    prepare_data(tmp_path, "lite")
    check_data(folder_of(tmp_path))
    assert neighbours(folder_of(tmp_path)) == ["lite_data"]


def test_a_killed_forced_preparation_leaves_the_old_folder(root):
    before = contents(folder_of(root))
    killed = run_python(KILLED.replace("AFTER", "20").replace("FORCE", "True"), root)
    assert killed.returncode == -signal.SIGKILL
    assert contents(folder_of(root)) == before


def test_two_preparations_at_once(tmp_path):
    code = "import sys; from pathlib import Path; from tipchain.prepare.data import prepare_data as p;"
    code += "p(Path(sys.argv[1]), 'lite', say=print)"
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run_python(code, tmp_path), range(3)))
    assert [one.returncode for one in done] == [0, 0, 0], done[0].stderr + done[1].stderr
    assert sum("made" in one.stdout for one in done) == 1
    check_data(folder_of(tmp_path))
    assert neighbours(folder_of(tmp_path)) == ["lite_data"]


def test_a_disk_that_takes_no_more_bytes_keeps_the_old_folder(root):
    before = contents(folder_of(root))
    code = """
import resource, sys
from pathlib import Path
from tipchain.cli import guarded
from tipchain.prepare.data import prepare_data
from tipchain.prepare.data import load_scans
load_scans()
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
sys.exit(guarded(lambda: prepare_data(Path(sys.argv[1]), "lite", force=True) and 0))
"""
    done = run_python(code, root)
    assert done.returncode == 2
    assert "cannot be made: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(folder_of(root)) == before
    assert neighbours(folder_of(root)) == ["lite_data"]


def test_ready_data_in_a_read_only_place_is_enough(root, monkeypatch):
    monkeypatch.setattr(data, "_locked", lambda _: pytest.fail("wants to write"))
    prepare_data(root, "lite")


def test_without_scikit_learn_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=r"scikit-learn(.|\n)*tipchain\[cases\]"):
        prepare_data(tmp_path, "lite")
    assert neighbours(folder_of(tmp_path)) == []


@pytest.fixture(scope="module")
def digits():
    return load_scans()


def test_the_whole_data_is_every_digit_once_and_stratified(digits):
    _, labels = digits
    splits = split_whole(labels)
    assert (len(splits["train"]), len(splits["val"])) == (1437, 360)
    assert sorted([*splits["train"], *splits["val"]]) == list(range(1797))
    whole = Counter(labels)
    for label, count in Counter(labels[number] for number in splits["val"]).items():
        assert abs(count - whole[label] * 360 / 1797) < 1


def test_the_lite_data_is_balanced(digits):
    _, labels = digits
    images = choose_images("lite", labels)
    for split in ("train", "val"):
        chosen = [image for image in images if image.path.startswith(split)]
        assert Counter(image.label for image in chosen) == dict.fromkeys(range(10), 2)


def test_lite_training_images_are_never_evaluated_on_in_any_mode(digits):
    _, labels = digits
    lite, whole = choose_images("lite", labels), choose_images("whole", labels)
    assert {image.path for image in lite} <= {image.path for image in whole}


def test_the_choice_is_the_same_on_every_machine(digits):
    _, labels = digits
    images = choose_images("lite", labels)
    assert [image.number for image in images[:6]] == [831, 1745, 726, 1688, 860, 1499]


def test_a_png_holds_the_scans_values(digits, tmp_path):
    import numpy as np
    from PIL import Image

    scans, _ = digits
    (tmp_path / "a.png").write_bytes(encode_png(scans[7]))
    with Image.open(tmp_path / "a.png") as image:
        assert (image.size, image.mode) == ((8, 8), "L")
        pixels = np.asarray(image)
    assert np.array_equal(np.rint(pixels / 255 * 16), scans[7])
    assert encode_png(scans[7]) == (tmp_path / "a.png").read_bytes()
