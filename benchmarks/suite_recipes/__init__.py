"""What it takes to run models of a public suite's own checkout here: packages, tiny data, settings.

A recipe holds no code of the suite: the checkout is brought by whoever runs the benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

ONE_ZLIB: Mapping[str, str] = {"LD_PRELOAD": "libz.so.1"}
"""paddlepaddle 2.6.2 lends its own zlib to what is imported after it: OpenCV then reads no PNG, and later scipy ends by a
signal. With the system's zlib loaded first everybody has the same one."""

QUANTIZE = "quantize_on_cpu.py"
QUANTIZE_ON_CPU = '''\
"""Run a program that quantizes with the PaddleSlim of Paddle 2.2: on the CPU, its samples handed on by a loader."""
import runpy
import sys

import paddle
import paddleslim.quant

quantize = paddleslim.quant.quant_post_static


class Loader(paddle.io.DataLoader):
    def __init__(self, name, samples):
        self.samples = [{name: one} for one in samples]

    def __len__(self):
        return len(self.samples)

    def __iter__(self):
        return iter(self.samples)

    __call__ = __iter__


def with_loader(executor, model_dir, *, sample_generator, model_filename, params_filename, **named):
    names = {"model_filename": model_filename, "params_filename": params_filename}
    [name] = paddle.static.load_inference_model(model_dir, executor, **names)[1]
    loader = Loader(name, sample_generator())
    return quantize(executor, model_dir, data_loader=loader, **names, **named)


paddleslim.quant.quant_post_static = with_loader
paddle.CUDAPlace = lambda number: paddle.CPUPlace()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
'''
"""A program in front of the suites': Paddle dropped ``sample_generator``, and some of them quantize on a GPU alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One parameter file of a suite, and how it runs on a CPU with tiny data.

    Attributes:
        name: what the table calls it.
        file: the parameter file, relative to the folder that the driver is started in.
        settings: lines to change, as for ``tipchain run --set``: ``KEY=VALUE``, ``SECTION:KEY=VALUE`` or
            ``LINE:KEY=VALUE``; both the original and tipchain get them.
        original_settings: further lines that only the original gets: what it needs on a CPU, where tipchain's profile
            knows the word itself.
        mode: the mode to run.
        versions: the Paddle versions to run it with.
        chain: the kind of chain, as ``--chain`` has it.
        argument: the driver's third word, "" for none.
        words: further words for ``tipchain run``.
        makes: (file, command line) pairs: what the chain needs, made beforehand where it is not there.
    """

    name: str
    file: str
    settings: tuple[str, ...] = ()
    original_settings: tuple[str, ...] = ()
    mode: str = "lite_train_lite_infer"
    versions: tuple[str, ...] = ("2.6.2", "3.3.1")
    chain: str = "train_infer_python"
    argument: str = ""
    words: tuple[str, ...] = ()
    makes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A suite with its models.

    Attributes:
        suite: name of the profile.
        repository: owner and name of the public repository.
        models: what is run.
        packages: pip requirements beside paddlepaddle, by Paddle version.
        make_data: writes tiny data into the folder that the driver is started in; may be called again.
        data: folders of that data, relative to it; one of them is moved away to plant a fault.
        start: folder of the checkout that the driver is started in.
        driver: the suite's own driver, relative to ``start``.
        env: environment variables of both.
        unchecked: packages that no index has, or that the suite imports and never uses on this path, each a module
            name that is given an empty stand-in.
    """

    suite: str
    repository: str
    models: tuple[Model, ...]
    packages: Mapping[str, tuple[str, ...]]
    make_data: Callable[[Path], None]
    data: tuple[str, ...]
    start: str = "."
    driver: str = "test_tipc/test_train_inference_python.sh"
    env: Mapping[str, str] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()


def get_recipe(suite: str) -> Recipe:
    """Return the recipe of ``suite``.

    Raises:
        ModuleNotFoundError: there is none.
    """
    recipe: Recipe = import_module(f"suite_recipes.{suite}").RECIPE
    return recipe
