"""A project of its own with the tiny case in it, for tests that change a side and run the alignment."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import forking
from programs import completed

HERE = Path(__file__).resolve().parent


@dataclass
class TinyProject:
    """A folder with ``case.yaml``, ``tiny_torch.py``, ``tiny_paddle.py``, lite data and weights."""

    root: Path

    @property
    def case(self) -> Path:
        return self.root / "case.yaml"

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace ``old``, which must be there, in a file of the project."""
        path = self.root / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new))

    def align(
        self, *args: object, out: str = "out", env: dict[str, str] | None = None, timeout=300, locate=False, every=True
    ):
        """Run ``tipchain align`` on the case and return the finished process.

        ``locate``: look for causes too; ``every``: show every check, not the verdict alone.
        """
        command = [sys.executable, "-m", "tipchain", "align", str(self.case), "--out", str(self.root / out)]
        command += [] if locate else ["--no-locate"]
        command += ["-v"] if every else []
        return self.run([*command, *map(str, args)], env=env, timeout=timeout)

    def run(self, command: list[str], env: dict[str, str] | None = None, timeout=300):
        return completed(
            command, cwd=self.root, env={**forking.environment(HERE.parent), **(env or {})}, timeout=timeout
        )

    def latest(self, out: str = "out") -> Path:
        return self.root / out / "log_reprod"


def make_tiny_project(root: Path) -> TinyProject:
    """Fill ``root`` with the tiny case and the lite data."""
    from tipchain.prepare.data import prepare_data

    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").touch()
    for name in ("tiny_torch.py", "tiny_paddle.py"):
        shutil.copy(HERE / "cases" / "tiny" / name, root / name)
    text = (HERE / "cases" / "tiny" / "tiny.yaml").read_text()
    (root / "case.yaml").write_text(text.replace("tests.cases.tiny.", ""))
    prepare_data(root, "lite", say=lambda _: None)
    return TinyProject(root)
