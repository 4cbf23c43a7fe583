import json
import os
import runpy
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from programs import completed

PROGRAM = Path(__file__).resolve().parents[2] / "tools/installers.py"
NAMES = runpy.run_path(str(PROGRAM))
cuda_packages, notice, read_report, uv_variables = (
    NAMES[name] for name in ("cuda_packages", "notice", "read_report", "uv_variables")
)
LOCKED = {
    "UV_INDEX_STRATEGY": "unsafe-best-match",
    "UV_CONSTRAINT": "constraints.txt",
    "UV_BUILD_CONSTRAINT": "constraints.txt",
}


def report(*requires: str, name: str = "torch") -> dict:
    return {"install": [{"metadata": {"name": name, "version": "2.13.0", "requires_dist": list(requires)}}]}


@pytest.mark.parametrize(
    "need",
    [
        'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
        "cuda-toolkit[cublas,cudart]==13.0.3",
        "triton==3.7.1",
        "triton (==3.7.1)",
    ],
)
def test_cuda_is_seen_in_what_torch_asks_for(need):
    assert len(cuda_packages(report("filelock", need))) == 1
    text = notice(report("filelock", need))
    assert "torch 2.13.0 with CUDA" in text
    for way in ("GB", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "--python PATH"):
        assert way in text


def test_cuda_is_seen_among_what_is_installed():
    assert cuda_packages(report(name="nvidia-cublas")) == ("nvidia-cublas",)


@pytest.mark.parametrize("found", [{"install": []}, report("filelock", "sympy>=1.13", "cudaless; extra == 'x'")])
def test_a_cpu_build_says_nothing(found):
    assert notice(found) == ""


@pytest.mark.parametrize(("text", "names"), [("", ()), ("nvidia-nccl==2.1\ntorch==2.13.0\n", ("nvidia-nccl",))])
def test_what_uv_would_install_is_read(text, names):
    assert cuda_packages(read_report(text)) == names
    assert ("torch 2.13.0 with CUDA" in notice(read_report(text))) == bool(names)


def test_an_optional_requirement_does_not_count():
    assert cuda_packages(report('triton; extra == "compile"')) == ()


def test_the_program(tmp_path):
    command = [sys.executable, str(PROGRAM), "notice"]
    done = completed(command, input=json.dumps(report("triton")))
    assert (done.returncode, done.stdout.startswith("note: ")) == (0, True)
    done = completed(command, input="{")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(
    ("listed", "environment", "variables"),
    [
        ("", {}, {}),
        ("global.index-url='https://a'\ninstall.index-url='https://b'", {}, {"UV_DEFAULT_INDEX": "https://b"}),
        (":env:.index-url='https://c'\nglobal.index-url='https://a'", {}, {"UV_DEFAULT_INDEX": "https://c"}),
        (r"global.extra-index-url='\nfile:///a\nfile:///b?c=d'", {}, {"UV_INDEX": "file:///a file:///b?c=d"}),
        ("global.find-links='/a /b'", {}, {"UV_FIND_LINKS": "/a,/b"}),
        (":env:.no-index='1'", {}, {"UV_NO_INDEX": "true"}),
        ("global.cert='/c.pem'", {}, {"SSL_CERT_FILE": "/c.pem"}),
        (":env:.constraint='mine.txt'", {}, {"UV_CONSTRAINT": "constraints.txt mine.txt"}),
        ("", {"UV_INDEX_STRATEGY": "first-index"}, {"UV_INDEX_STRATEGY": "first-index"}),
        (
            ":env:.disable-pip-version-check='1'\nfreeze.all='1'\nglobal.default-timeout='9'",
            {},
            {"UV_HTTP_TIMEOUT": "9"},
        ),
    ],
)
def test_uv_is_told_what_pip_is_told_and_the_users_own_variables_win(listed, environment, variables):
    assert uv_variables(listed, environment) == {**LOCKED, **variables}


@pytest.mark.parametrize(
    "listed", ["global.no-binary=':all:'", "install.require-hashes='1'", "nonsense", "global.cert=("]
)
def test_what_uv_cannot_be_told_is_an_error(listed):
    command = [sys.executable, str(PROGRAM), "uv"]
    done = completed(command, input=listed)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert done.stderr.startswith("error: ")


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not here")
def test_uv_takes_a_package_from_where_pip_would(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        with zipfile.ZipFile(wheels / f"tiny_pair-{version}-py3-none-any.whl", "w") as wheel:
            folder = f"tiny_pair-{version}.dist-info"
            wheel.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: tiny-pair\nVersion: {version}\n")
            wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{folder}/RECORD", "")
    (tmp_path / "constraints.txt").write_text("tiny-pair==1.0\n")
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{tmp_path / 'none'} {wheels}", "PIP_CONFIG_FILE": os.devnull}
    (tmp_path / "none").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environment = {**kept, **told, "UV_CACHE_DIR": str(tmp_path / "cache")}
    listed = completed([sys.executable, "-m", "pip", "config", "list"], env=environment, check=True)
    done = completed(
        ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", sys.executable, "-"],
        env={**environment, **uv_variables(listed.stdout, environment)},
        cwd=tmp_path,
        input="tiny-pair",
    )
    assert (done.stdout, done.returncode) == ("tiny-pair==1.0\n", 0), done.stderr
