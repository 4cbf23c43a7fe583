"""A project with a reference bundle in it, and commands run in it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tiny_project import TinyProject

STAGES = "forward,loss"


@dataclass
class Made:
    """A project with a bundle in it; tests change a copy."""

    project: TinyProject
    output: str

    @property
    def bundle(self) -> Path:
        return self.project.root / "bundle"

    def copy(self, to: Path) -> Made:
        """Copy the project whole, the weights left out: whoever has a bundle needs none."""
        shutil.copytree(self.project.root, to, ignore=shutil.ignore_patterns("weights.prepared", "out"))
        return Made(project=TinyProject(to), output=self.output)


def tipchain(project: TinyProject, *args: object, env: dict[str, str] | None = None):
    return project.run([sys.executable, "-m", "tipchain", *map(str, args)], env=env)
