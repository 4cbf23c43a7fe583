"""Import public packages whose own imports do not all hold here: what they never use gets an empty stand-in."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(sys.prefix)
PADDLECLAS = Path(os.environ.get("PADDLECLAS", HERE.parent / "PaddleClas"))
"""A checkout of PaddleClas: beside the environment, unless the variable says another."""
UNUSED = (
    "aistudio_sdk",
    "paddlefsl",
    "visualdl",
    "seqeval",
    "blobfile",
    "paddle2onnx",
    "datasets",
    "flask_babel",
    "fast_dataindex",
    "fastapi",
    "uvicorn",
    "onnx",
    "multiprocess",
    "tiktoken",
)
"""What paddlenlp imports beside its models: hubs, servers, tokenizers."""


class _StandIn(types.ModuleType):
    """A module that has every name; each is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StandIns:
    """Finds an empty module for each of some packages and all below them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = set(names)

    def find_spec(self, name: str, *_: Any) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return _StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__path__ = []


def bare_package(name: str, folder: Path, **values: Any) -> None:
    """Make a package known without running its ``__init__``: only what is asked for below it is imported."""
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update(values)
        sys.modules[name] = module


def import_torchvision() -> Any:
    """Import torchvision, whose compiled half was built for another torch."""
    import torch  # noqa: F401  (before Paddle, and before its kernels are registered)

    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("_meta_registrations"))
    return importlib.import_module("torchvision")


def import_timm() -> Any:
    """Import timm, which imports torchvision."""
    import_torchvision()
    return importlib.import_module("timm")


def import_transformers() -> Any:
    """Import Hugging Face's transformers; with torchvision, some of its models import it."""
    import_torchvision()
    return importlib.import_module("transformers")


def import_paddlenlp() -> Any:
    """Import ``paddlenlp.transformers``, without the rest of paddlenlp and what it needs."""
    import torch  # noqa: F401  (before Paddle)

    if "paddlenlp" not in sys.modules:
        sys.meta_path.append(_StandIns(UNUSED))
        hub = importlib.import_module("huggingface_hub")
        for gone in ("repo_type_and_id_from_hf_id",):
            if not hasattr(hub, gone):
                setattr(hub, gone, None)
        found = importlib.util.find_spec("paddlenlp")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("paddlenlp")
        import paddle  # noqa: F401

        bare_package("paddlenlp", Path(next(iter(found.submodule_search_locations))), __version__="3.0.0b4")
        importlib.import_module("paddlenlp.data")  # first: it and the models import each other
    return importlib.import_module("paddlenlp.transformers")


def import_paddleclas(backbone: str) -> Any:
    """Import one file of PaddleClas's backbones, ``model_zoo.convnext`` say."""
    import torch  # noqa: F401  (before Paddle)

    backbones = PADDLECLAS / "ppcls" / "arch" / "backbone"
    if not backbones.is_dir():
        raise ModuleNotFoundError(f"PaddleClas is not at {PADDLECLAS}; the variable PADDLECLAS names its checkout")
    bare_package("ppcls", PADDLECLAS / "ppcls")
    bare_package("ppcls.utils", PADDLECLAS / "ppcls" / "utils")
    for name, inside in (("save_load", _StandIn), ("logger", logging.getLogger)):
        module = inside(f"ppcls.utils.{name}")
        sys.modules.setdefault(f"ppcls.utils.{name}", module)
        setattr(sys.modules["ppcls.utils"], name, module)
    bare_package("ppcls.arch", PADDLECLAS / "ppcls" / "arch")
    bare_package("ppcls.arch.backbone", backbones)
    for folder in ("legendary_models", "model_zoo", "variant_models"):
        bare_package(f"ppcls.arch.backbone.{folder}", backbones / folder)
    from paddle.base import unique_name

    # Some backbones give two parameters one name, which Paddle 3 refuses.
    unique_name.dygraph_parameter_name_checker = lambda _: False

    return importlib.import_module(f"ppcls.arch.backbone.{backbone}")
