"""What of a project Ray is given to send; without a cluster."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("pathspec", reason="the extra ray is not installed")

from tipchain.errors import UsageError
from tipchain.nightly.cluster import driver
from tipchain.nightly.cluster.driver import survey


def fill(root, **sizes):
    for name, size in sizes.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))


def test_links_that_lead_away_or_in_circles_and_pipes_are_left_out(tmp_path):
    root, data = tmp_path / "project", tmp_path / "imagenet"
    fill(root, configs__a=10, other__b=5)
    fill(data, picture=1000)
    (root / "data [full]").symlink_to(data)
    (root / "configs/up").symlink_to("..")
    (root / "configs/self").symlink_to(".")
    (root / "configs/back").symlink_to("../other")
    (root / "other/forth").symlink_to("../configs")
    (root / "one").symlink_to(data / "picture")
    (root / "nowhere").symlink_to("not-there")
    os.mkfifo(root / "pipe")
    found = survey(root, [])
    assert sorted(found.left_out) == [
        "/configs/back/forth",
        "/configs/self",
        "/configs/up",
        "/data\\ \\[full\\]",
        "/other/forth/back",
        "/other/forth/self",
        "/other/forth/up",
        "/pipe",
    ]
    assert found.sizes == {"configs": 15, "other": 15, "one": 1000}
    assert survey(root, found.left_out).left_out == [], "the patterns name what they should"


def test_what_is_ignored_does_not_count(tmp_path, monkeypatch):
    fill(tmp_path, a=1, out__x=100, deep__b=2, deep__c__log=200, nights__big=400, deep__kept=800)
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "deep/.gitignore").write_text("log\n/a\n")
    (tmp_path / "deep/.rayignore").write_text("kept\n")
    ignores = 5 + 7 + 5
    assert sum(survey(tmp_path, ["/nights"]).sizes.values()) == 3 + ignores
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    assert sum(survey(tmp_path, ["/nights"]).sizes.values()) == 303 + ignores


def test_what_is_too_much_is_said_with_what_is_largest(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "LIMIT", 3 << 20)
    fill(tmp_path, data__a=2 << 20, data__b=1 << 20, small=1, weights=1 << 20)
    with pytest.raises(UsageError) as caught:
        survey(tmp_path, []).check()
    assert str(caught.value) == (
        "--ship: the project has 4 MiB, Ray sends 3 MiB at most\n"
        "  largest, in MiB: data 3, weights 1, small 0\n"
        "  hint: what a .rayignore or .gitignore names is not sent"
    )
    (tmp_path / ".rayignore").write_text("data\n")
    survey(tmp_path, []).check()
