"""Every command of every page is run by a test, or stands here with what it needs and a test has not.

The Chinese pages have the blocks of the English ones, which tests/test_site.py compares.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forking
import pytest
from page_blocks import ROOT, blocks_of, follow, run_line
from programs import commit_all

PAGES = (
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if ".zh" not in path.name),
    "README.md",
    "CONTRIBUTING.md",
    "test_tipc/README.md",
    "benchmarks/README.md",
)
COMMAND = re.compile(r"(?:[$>] )?((?:\w+=\S+ )*(?:tipchain|python|bash|pip|pipx|git|rm|source|\.venv/bin/python) .*)")
LANGUAGES = ("bash", "text")

# Where a command is run.
FOLLOWED = {
    ("docs/tutorial.md", "bash"): "tests/test_pages.py",
    ("docs/how-to/guide.md", "bash"): "tests/test_guide.py",
    ("docs/own-port.md", "bash"): "tests/test_page_commands.py",
    ("docs/suite-in-ci.md", "bash"): "tests/test_suite_in_ci.py",
}
"""Pages whose blocks of a language are run by a test of their own."""
ELSEWHERE = {
    "bash test_train_inference_python.sh test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer": "tests/test_main_job.py",
    "bash test_tipc/test_train_inference_python.sh test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer": "tests/test_drivers.py",
    "bash test_tipc/tipchain.sh PARAMS MODE [GPU_ID] [options]": "tests/test_foreign_checkout.py",
    "python tests/conformance/record_original.py ~/SpeechLite --suite speechlite.yaml": "tests/conformance/test_record_original.py",
    "tipchain port --torch my.net:build": "tests/commands/test_port_command.py",
    "tipchain run FILE benchmark_train": "tests/chain/test_kind_benchmark_train.py",
    "tipchain nightly run MANIFEST.yaml --executor ray": "tests/nightly/test_ray_nights.py",
    "RAY_ADDRESS=10.0.0.1:6379 tipchain nightly run MANIFEST.yaml --executor ray": "tests/nightly/test_ray_nights.py",
    "bash prepare.sh test_tipc/configs/alexnet/train_infer_python.txt lite_train_lite_infer": "tests/test_setup.py",
}
"""The beginning of a command, and the test that runs it on what it needs: a checkout, a suite's stub, a cluster of one machine."""
NEEDS = {
    "bash tests/run.sh": "all tests: it runs this one",
    "pip install": "a network: it installs; tools/check_package.py does so in empty environments",
    "python tools/lock_constraints.py": "a network and four Pythons; tests/tools/test_lock_constraints.py runs its parts",
    "python tools/check_package.py": "a network and four Pythons; tests/test_package.py runs its parts",
    "TIPCHAIN_PYTHON=/path/to/that/python": "a GPU, and an environment with the frameworks' GPU builds",
    "tipchain align configs/alexnet.yaml --prepare --record torch --device gpu": "a GPU; tests/parity/test_align.py records on the CPU",
    "tipchain align configs/alexnet.yaml --prepare --reference recorded/": "dumps of a GPU; tests/parity/test_align.py compares a CPU's",
    ".venv/bin/python benchmarks/": "minutes on a machine that does nothing else",
}
"""The beginning of a command that no test runs, and what it needs."""
HERE = {
    "README.md": {"4,3,224,224": "4,3,32,32"},
    "docs/how-to/bundles.md": {
        "CASE.yaml": "net.yaml",
        "[--only forward,loss]": "--only forward",
        "[--mode MODE]": "--mode lite_train_lite_infer",
        "[--out DIR]": "--out bundle",
        "BUNDLE NEW": "bundle bundle",
        "BUNDLE": "bundle",
    },
    "docs/how-to/ci.md": {"20261121-221722-0a3f1": "{night}"},
    "docs/how-to/data.md": {},
    "docs/how-to/history.md": {
        "MANIFEST": "test_tipc/nightly.yaml",
        "add NIGHT|REPORT ...": "add {night}",
        "[--name TITLE] [--limit N]": "--name nightly --limit 3",
        "show NAME [ITEM]": "show latest 'hello[cpu]'",
        "[NAME] [--name TITLE] [--against NAME] [--all]": "latest --against latest~1 --all",
    },
    "docs/how-to/locate.md": {"CASE.yaml": "net.yaml"},
    "docs/how-to/nightly.md": {"MANIFEST.yaml": "test_tipc/nightly.yaml"},
    "docs/how-to/tolerances.md": {"/alexnet/": "/net/"},
    "docs/when-it-fails.md": {},
    "docs/how-to/weights.md": {
        "configs/alexnet.yaml": "net.yaml",
        "OUT.pth": "back.pth",
        "IN.pdparams": "OUT.pdparams",
    },
}
"""Pages whose remaining commands are run here, in a small project, with these words in place of those."""


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Yield language and text of each command of a page, without what is said about it to its right."""
    for block in blocks_of(ROOT / page):
        if block.language in LANGUAGES and not block.title:
            for line in block.text.replace("\\\n", " ").splitlines():
                found = COMMAND.fullmatch(line.strip())
                if found:
                    yield (
                        block.language,
                        re.split(r"\s{2,}(?!-)|\s+# (?!exit)", re.sub(r" {2,}(?=--)", " ", found[1]))[0],
                    )


def run_here(page: str) -> list[str]:
    """Return the commands of a page that are neither followed, nor run elsewhere, nor out of reach."""
    return [
        line
        for language, line in commands(page)
        if (page, language) not in FOLLOWED and not line.startswith((*ELSEWHERE, *NEEDS))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_run_or_says_what_it_needs(page):
    assert page in HERE or run_here(page) == []


def test_the_table_is_no_longer_than_needed():
    lines = [(page, *one) for page in PAGES for one in commands(page)]
    assert len(lines) > 80
    for start, test in ELSEWHERE.items():
        assert any(line.startswith(start) for _, _, line in lines), start
        assert (ROOT / test).is_file(), test
    assert [start for start in NEEDS if not any(line.startswith(start) for *_, line in lines)] == []
    assert [key for key in FOLLOWED if key not in {(page, language) for page, language, _ in lines}] == []
    assert [page for page in HERE if not run_here(page)] == []


MANIFEST = """\
commands:
  - {id: hello, argv: ["{python}", -c, "print('hello')"]}
"""
DATA = """\
import numpy


def torch_val():
    return [(numpy.ones((2, 3), "float32"), numpy.zeros(2, "int64"))]


def ours(outputs, labels):
    return {"top1": float((numpy.asarray(outputs).argmax(1) == numpy.asarray(labels)).mean())}


paddle_val, theirs = torch_val, ours
"""
INPUTS = """\
import numpy, torch
from my.net import build
numpy.savez("inputs.npz", args_0=numpy.random.default_rng(0).standard_normal((4, 3, 32, 32), dtype="float32"), labels=numpy.arange(4))
torch.save(build().state_dict(), "IN.pth")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with the tutorial's pair, the full case of the next page, a night's manifest with a command, inputs and weights."""
    folder = tmp_path_factory.mktemp("project")
    for page in ("docs/tutorial.md", "docs/own-port.md"):
        for block in blocks_of(ROOT / page):
            if block.title:
                (folder / block.title).parent.mkdir(exist_ok=True)
                (folder / block.title).write_text(block.text)
    (folder / "net.yaml").rename(folder / "full.yaml")
    (folder / "my" / "data.py").write_text(DATA)
    (folder / "my" / "metrics.py").write_text(DATA)
    (folder / "my_net").mkdir()
    shutil.copy(folder / "my/net.py", folder / "my_net/reference.py")
    shutil.copy(folder / "my/port.py", folder / "my_net/port.py")
    for file in (folder / "my/port.py", folder / "my/net.py"):
        file.write_text(file.read_text().replace("def build():", "def build(classes=10):"))
    (folder / "names.yaml").write_text("head: head\n")
    (folder / "test_tipc/configs").mkdir(parents=True)
    (folder / "test_tipc/nightly.yaml").write_text(MANIFEST)
    (folder / "pyproject.toml").touch()
    commit_all(folder)
    variables = forking.environment(folder, ROOT)
    subprocess.run([sys.executable, "-c", INPUTS], cwd=folder, env=variables, check=True)
    run_line("tipchain init --torch my.net:build --paddle my.port:build --input 4,3,32,32", folder)
    for line in (
        "align net.yaml --only forward",
        "nightly run test_tipc/nightly.yaml",
        "nightly run test_tipc/nightly.yaml",
    ):
        run_line(f"tipchain {line}", folder)
    for file in (folder / "test_tipc/output/net/lite_train_lite_infer/log_reprod").glob("forward_*.npy"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.frameworks
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", HERE, ids=lambda page: Path(page).stem)
def test_the_commands_of_a_page_run(page, project):
    nights = sorted((project / "tipchain-nights/nightly").iterdir())
    if page == "README.md":
        (project / "net.yaml").unlink()
    for line in run_here(page):
        for old, new in HERE[page].items():
            line = line.replace(old, new)  # noqa: PLW2901
        if line.startswith("tipchain history add"):
            line = line.replace("{night}", str(nights[0].relative_to(project)))  # noqa: PLW2901
        run_line(line, project, {"TIPCHAIN_LANG": "en"})


@pytest.mark.frameworks
@pytest.mark.timeout(1800)
@pytest.mark.nightly
def test_a_model_of_ones_own_is_aligned_and_its_chain_runs(tmp_path):
    """Nightly: the chain has every stage of the alignment."""
    for block in blocks_of(ROOT / "docs/tutorial.md"):
        if block.title:
            (tmp_path / block.title).parent.mkdir(exist_ok=True)
            (tmp_path / block.title).write_text(block.text)
    follow(ROOT / "docs/own-port.md", tmp_path)
    report = next((tmp_path / "test_tipc/output/net/lite_train_lite_infer/runs").glob("*/report.json"))
    assert '"PASS"' in report.read_text()
