"""What a builder rests on: the names that it reaches, each from where it is defined, and nothing else."""

import ast
import textwrap

import pytest

from tipchain.errors import UsageError
from tipchain.port.sources import Sources

FILES = {
    "my/__init__.py": "from my.train import fit\n",
    "my/layers/__init__.py": "from .conv import Conv\nfrom .extra import *\nfrom torch.hub import load\n",
    "my/layers/conv.py": """
        import torch
        from torch import nn
        try:
            from torch.hub import fetch
        except ImportError:
            from torch.utils import fetch

        WIDTH = 8
        NAMES = {}
        NAMES["conv"] = WIDTH
        OTHER = 3

        class Conv(nn.Conv2d):
            def forward(self, x):
                if torch.jit.is_scripting():
                    return fetch(x)
                return super().forward(x) * WIDTH + NAMES["conv"]

        def unused():
            return OTHER
    """,
    "my/layers/extra.py": "def scaled(x):\n    return x * 2\n",
    "my/helpers.py": "def log(x):\n    return x\n\ndef other():\n    return missing\n",
    "my/acts.py": "import torch\nfrom torch import nn\nfrom torch.jit import Final\nfrom torch.jit.annotations import List\n\nclass Act(nn.ReLU):\n    fast: torch.jit.Final[bool] = True\n    slow: Final[bool]\n    sizes: List[int] = torch.jit.annotate(List[int], [])\n",
    "my/more.py": "from .acts import *\n\nKNOWN = 'silu' in dir(torch.nn)\n\ndef make(given=None):\n    return KNOWN, Act(**{**{}, **(given or {})})\n",
    "my/train.py": "import nowhere\n\ndef fit():\n    return nowhere\n",
    "my/net.py": '''
        """A net."""
        import torch
        import argparse
        from . import helpers as tools
        from .layers import Conv, load, scaled
        from .more import make

        @torch.jit.unused
        def build():
            from .layers import Conv as Inner
            load("a")
            return tools.log(scaled(Conv(3, 3, 1))), Inner, make

        def main():
            argparse.ArgumentParser()

        if __name__ == "__main__":
            main()
    ''',
}


@pytest.fixture
def written(tmp_path):
    """The modules that are converted, by their paths in the port's package."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip())
    return Sources.of("my.net:build", tmp_path).written("port")


def test_only_what_the_builder_reaches_is_written(written):
    assert {name for name, text in written.items() if text.strip()} == {
        "net.py",
        "layers/conv.py",
        "layers/extra.py",
        "helpers.py",
        "acts.py",
        "more.py",
    }
    assert {"__init__.py", "layers/__init__.py"} <= written.keys()  # packages, so that imports find what is in them
    for gone in ("argparse", "main", "other", "unused", "OTHER"):
        assert not any(gone in text for text in written.values())


def test_names_come_from_where_they_are_defined(written):
    lines = written["net.py"].splitlines()
    assert "from port.layers.conv import Conv" in lines
    assert "from port.layers.extra import scaled" in lines
    assert "from port import helpers as tools" in lines
    assert "    from port.layers.conv import Conv as Inner" in lines
    assert "from torch.hub import load" in lines  # a name of torch's that a module only hands on


def test_names_of_a_star_are_imported_one_by_one(written):
    assert "from port.acts import Act\n" in written["more.py"]
    assert "import torch\n" in written["more.py"]
    assert "import *" not in written["more.py"]
    assert "{**{}, **dict(given or {})}" in written["more.py"]  # paconvert would lose the parentheses


def test_a_statement_that_changes_what_is_needed_is_kept(written):
    assert "NAMES['conv'] = WIDTH" in written["layers/conv.py"]


def test_what_only_the_compilers_of_torch_need_is_left_out(written):
    assert "torch.jit." not in "".join(written.values())
    assert "if False:" in written["layers/conv.py"]
    assert "    fast: bool = True\n    slow: bool\n    sizes: List[int] = []\n" in written["acts.py"]
    assert "from typing import List\n" in written["acts.py"]
    assert "except" not in written["layers/conv.py"]  # paconvert would leave the attempt without a body
    assert "from torch.hub import fetch" in written["layers/conv.py"]
    for text in written.values():
        ast.parse(text)


def test_a_module_that_looks_names_up_is_taken_whole(tmp_path):
    (tmp_path / "net.py").write_text(
        "def small():\n    return 1\n\ndef build(name='small'):\n    return globals()[name]()\n"
    )
    written = Sources.of("net:build", tmp_path).written("port")
    assert "def small" in written["net.py"]


def test_what_is_reached_of_a_library_that_needs_torch_is_converted(tmp_path, monkeypatch):
    pytest.importorskip("paconvert")
    site = tmp_path / "site-packages"
    for path, text in {
        "needs_torch-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: needs_torch\nVersion: 1.0\nRequires-Dist: torch>=2\n",
        "needs_torch/__init__.py": "from .ops import Frozen\n",
        "needs_torch/ops.py": "import torch\n\nclass Frozen(torch.nn.Module):\n    pass\n\ndef other():\n    return missing\n",
        "needs_torch/graphs.py": "import torch\n\nclass Tracer(torch.fx.Tracer):\n    pass\n",
        "torchvision-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 1.0\nRequires-Dist: torch\n",
        "torchvision/__init__.py": "",
        "torchvision/ops/__init__.py": "def nms():\n    return 1\n",
        "free-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: free\nVersion: 1.0\nRequires-Dist: torch; extra == 'torch'\n",
        "free/__init__.py": "def rearranged(x):\n    return x\n",
    }.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (tmp_path / "net.py").write_text(
        "from free import rearranged\nfrom needs_torch import Frozen, graphs\nfrom torchvision.ops import nms\n"
        "try:\n    from needs_torch.graphs import Tracer\nexcept ImportError:\n    Tracer = None\n\n"
        "def build():\n    return Frozen, rearranged, nms, Tracer, graphs\n"
    )
    monkeypatch.syspath_prepend(site)
    written = Sources.of("net:build", tmp_path).written("port")
    assert "from port.needs_torch.ops import Frozen" in written["net.py"]
    assert "class Frozen" in written["needs_torch/ops.py"]
    assert "other" not in written["needs_torch/ops.py"]
    for kept in (
        "from free import rearranged",
        "from needs_torch import graphs",  # a module whole
        "from torchvision.ops import nms",  # paconvert knows Paddle's
        "    from needs_torch.graphs import Tracer",  # only tried
    ):
        assert kept in written["net.py"]


def test_a_table_of_all_names_of_a_module_is_not_filled(tmp_path):
    (tmp_path / "net.py").write_text(
        "import sys\n\nFOUND = {}\n\ndef register(name, *given):\n    FOUND[name] = [getattr(sys.modules[name], one) for one in given]\n\n"
        "def other():\n    return 2\n\n@register\ndef build():\n    return FOUND\n\nregister(__name__, 'other')\n"
    )
    written = Sources.of("net:build", tmp_path).written("port")["net.py"]
    assert "@register" in written
    assert "__name__" not in written


def test_what_code_reads_of_modules_that_it_looks_up_is_kept(tmp_path):
    (tmp_path / "registry.py").write_text(
        "import sys\n\ndef register(build):\n    build.size = sys.modules[build.__module__].SIZES\n    return build\n"
    )
    (tmp_path / "net.py").write_text(
        "from registry import register\n\nSIDE = 8\nSIZES = {'build': SIDE}\nOTHERS = {}\n\n@register\ndef build():\n    return 1\n"
    )
    written = Sources.of("net:build", tmp_path).written("port")["net.py"]
    assert "SIDE = 8\nSIZES = {'build': SIDE}" in written
    assert "OTHERS" not in written


def test_a_call_that_fills_a_needed_table_is_kept(tmp_path):
    (tmp_path / "blocks.py").write_text(
        "TABLE = {}\nSEEN = []\n\ndef register(name, block):\n    TABLE[name] = block\n\ndef note(name):\n    SEEN.append(name)\n\n"
        "def create(name):\n    return TABLE[name]()\n"
    )
    (tmp_path / "net.py").write_text(
        "from blocks import create, note, register\n\nclass Block:\n    pass\n\nclass Other:\n    pass\n\n"
        "register('own', Block)\nnote(Other)\nprint(Other)\n\ndef build():\n    return create('own')\n"
    )
    written = Sources.of("net:build", tmp_path).written("port")
    assert "class Block" in written["net.py"]
    assert "register('own', Block)" in written["net.py"]
    assert "Other" not in written["net.py"]
    assert "def register" in written["blocks.py"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [("nowhere:build", "no module nowhere"), ("net:absent", "binds no 'absent'"), ("wrong:build", "wrong.py:1: ")],
)
def test_a_builder_that_is_not_there_is_refused(tmp_path, spec, said):
    (tmp_path / "net.py").write_text("def build():\n    return 1\n")
    (tmp_path / "wrong.py").write_text("def build(:\n")
    with pytest.raises(UsageError, match=said):
        Sources.of(spec, tmp_path)
