"""What the package's metadata says of where the project lives, found out when it is built.

The repository's address stands in no file: it is the one that the build was cloned from, so that a fork's wheel leads to
the fork. The README's links are relative, as its readers in the repository need them; in the long description they
become absolute, or plain text where no address is known.
"""

from __future__ import annotations

import os
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "TIPCHAIN_REPOSITORY"
"""Names the repository's address where the build is no clone of it."""
LABEL = "Repository"
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]+)\]\((?P<target>(?![a-z]+:|#)[^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Fills in ``urls`` and ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both fields to the project's table."""
        root = Path(self.root)
        address = find_address(root)
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, address)}
        metadata["urls"] = urls_of(address)


def find_address(root: Path) -> str:
    """Return the repository's address: of the variable, of an sdist's metadata, or of the clone; else ""."""
    stored = root / "PKG-INFO"
    if os.environ.get(VARIABLE):
        return public_address(os.environ[VARIABLE])
    if stored.is_file():
        urls = HeaderParser().parsestr(stored.read_text(encoding="utf-8")).get_all("Project-URL", [])
        known = dict(one.split(", ", 1) for one in urls)
        return str(known.get(LABEL, ""))
    try:
        done = subprocess.run(
            ("git", "-C", str(root), "remote", "get-url", "origin"), capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return public_address(done.stdout.strip()) if done.returncode == 0 else ""


def public_address(remote: str) -> str:
    """Return a remote as the address of a page, without name or password; "" where it is none that others can open."""
    match = re.fullmatch(
        r"(?:https?://(?:[^@/]*@)?|ssh://(?:[^@/]*@)?|[^@/:]+@)(?P<host>[\w.-]+\.[a-z]+)(?::\d+)?[:/](?P<path>[\w./-]+?)(?:\.git)?/?",
        remote,
    )
    return f"https://{match['host']}/{match['path']}" if match else ""


def urls_of(address: str) -> dict[str, str]:
    """Return the links that an index shows beside the project."""
    if not address:
        return {}
    return {
        LABEL: address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def absolute_links(text: str, address: str) -> str:
    """Return Markdown whose relative links lead to the repository; without an address their text alone stays."""

    def link(match: re.Match[str]) -> str:
        if not address:
            return "" if match["image"] else match["text"]
        kind = "raw" if match["image"] else "blob"
        return f"{match['image']}[{match['text']}]({address}/{kind}/HEAD/{match['target']})"

    return LINK.sub(link, text)
