"""What the package says of itself, what lies in it, and what messages name of it."""

import importlib.util
import os
import re
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from programs import completed

from tipchain import __version__

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "https://git.example/team/tipchain"
BUILD = (
    "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[2]))"
)


def build(kind: str, source: Path, out: Path, **more: str) -> Path:
    """Return the wheel or sdist that hatchling builds; nothing is fetched."""
    environment = {**os.environ, "TIPCHAIN_REPOSITORY": "", **more}
    done = completed([sys.executable, "-c", BUILD.format(kind=kind), source, out], env=environment)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("hatchling")
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"), TIPCHAIN_REPOSITORY=f"{ADDRESS}.git")


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    # Of an unpacked sdist only its own metadata says where it comes from.
    return build("wheel", next(folder.iterdir()), folder)


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        name = next(one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(file.read(name).decode())


def test_the_wheel_has_every_file_of_the_package(wheel):
    tracked = completed(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "tipchain"], check=True
    )
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if name.startswith("tipchain/")}
    assert held == {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}


def test_the_metadata_lead_to_the_repository_also_from_an_sdist(metadata):
    urls = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL"))
    assert urls["Repository"] == ADDRESS
    assert set(urls) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert metadata["Version"] == __version__
    assert "paddlepaddle" in metadata["Keywords"]


def test_the_long_description_has_no_relative_link(metadata):
    text = metadata.get_payload()
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert f"{ADDRESS}/blob/HEAD/LICENSE" in targets
    assert [one for one in targets if "://" not in one and not one.startswith("#")] == []


def test_without_an_address_links_are_text_and_nothing_is_made_up(hook):
    text = "See [the guide](docs/guide.md), ![a picture](docs/a.png)[there](https://a.example/b) and [above](#top)."
    assert hook.absolute_links(text, "") == "See the guide, [there](https://a.example/b) and [above](#top)."
    assert hook.urls_of("") == {}


@pytest.fixture(scope="module")
def hook():
    pytest.importorskip("hatchling")

    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://user:secret@git.example/team/name", "https://git.example/team/name"),
        ("git@git.example:team/sub/name.git", "https://git.example/team/sub/name"),
        ("ssh://git@git.example:2222/team/name.git", "https://git.example/team/name"),
        ("/srv/git/name.git", ""),
        ("file:///srv/name", ""),
    ],
)
def test_a_remote_becomes_an_address_without_secrets(hook, remote, address):
    assert hook.public_address(remote) == address


def extras() -> dict[str, list[str]]:
    text = (ROOT / "pyproject.toml").read_text()
    table = re.search(r"\[project\.optional-dependencies\]\n(.*?)\n\[", text, re.DOTALL)[1]
    return {
        name: re.findall(r'"([^"]+)"', needs)
        for name, needs in re.findall(r"^(\w+) = \[(.*?)\]$", table, re.DOTALL | re.MULTILINE)
    }


def test_every_extra_that_is_named_exists():
    named = {
        (extra.strip(), path.relative_to(ROOT).as_posix())
        for pattern in ("tipchain/**/*.py", "tipchain/**/*.po", "docs/**/*.md", "*.md", "Dockerfile*", "action.yml")
        for path in ROOT.glob(pattern)
        for names in re.findall(r"(?:tipchain|\.whl|/tipchain|\.)\[([\w, ]+)\]['\"]", path.read_text())
        for extra in names.split(",")
    }
    assert {extra for extra, _ in named} >= {"cpu", "cases", "onnx", "postgres", "ray", "stats"}
    assert {one for one in named if one[0] not in extras()} == set()


def test_the_doctor_names_the_extra_that_brings_a_package():
    from tipchain.core.machine import needed_packages

    needed = needed_packages()
    assert (needed["numpy"], needed["rich"], needed["scipy"]) == ("tipchain", "tipchain", "tipchain[stats]")
    assert not {"torch", "paddlepaddle"} & set(needed), "they have lines of their own"


def test_the_changelog_begins_with_this_version():
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert re.fullmatch(rf"{re.escape(__version__)}( \(unreleased\)|, \d{{4}}-\d\d-\d\d)", heading)
