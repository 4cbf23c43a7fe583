"""Which suite a parameter file is of: by its layout, its keys, and the folders of the checkout that it lies in."""

from __future__ import annotations

import os
from pathlib import Path

from tipchain.chain.params import ParamFile
from tipchain.chain.profiles import OWN, all_suites, get_suite, read_profile
from tipchain.chain.slots import ALIGNMENT_SECTION, checked_slots, distance, ends_after_evaluation, layout_sections
from tipchain.chain.suites import Marks, Suite
from tipchain.errors import ParamsError

FOLDER_WEIGHT = 4
# So many marks are no chance: a file that bears them is that suite's, though it fits another's layout.
SURE = 2
FOLDER = "test_tipc"


def checkout(params: Path) -> Path | None:
    """Return the folder that a parameter file belongs to: the one whose ``test_tipc/`` holds it.

    Links stay: a linked file belongs to where the link stands. If several folders of its path are called
    ``test_tipc``, the nearest that stands in a git repository's top folder or holds a ``prepare.sh`` counts; what a
    failed script leaves, as ``test_tipc/test_tipc``, is never asked for. For a file outside of any it is the nearest
    folder above with a ``test_tipc`` or a ``.git``, None if there is none.
    """
    above = Path(os.path.abspath(params)).parents  # noqa: PTH100
    holders = [folder.parent for folder in above if folder.name == FOLDER]
    sure = (one for one in holders if (one / ".git").exists() or (one / FOLDER / "prepare.sh").is_file())
    near = (one for one in above if (one / FOLDER).is_dir() or (one / ".git").exists())
    return next(sure, None) or next(iter(holders), None) or next(near, None)


def detect_suite(file: ParamFile, *, legacy: bool = False, root: Path | None = None) -> Suite:
    """Return the suite of ``file``.

    A profile of the checkout's own comes first, then the alignment section, which only ``tipchain``'s files have. Else
    the layouts that the file fits are candidates; folders of the checkout, keys and programs decide among them. A file
    that fits none of those and bears several marks of a suite is that suite's, a shifted one as a rule. One that bears
    no suite's marks is ``tipchain``'s (in legacy plans ``template``'s) or the tutorial's, whichever it comes nearest to.

    Args:
        file: the parsed file.
        legacy: whether the original driver's commands are wanted.
        root: the checkout that the file lies in, None for none.

    Raises:
        ProfileError: the checkout's own profile is wrong.
    """
    if root is not None and (root / OWN).is_file():
        return read_profile(root / OWN)
    if any(name == ALIGNMENT_SECTION for name, _ in file.headers):
        return get_suite("tipchain")  # no other suite has the section
    other = "tipchain" if legacy else "template"  # the two have one layout
    scores = {suite.name: score(file, suite, root) for suite in all_suites()}
    # Sorted is stable: of equals the first by name, as the maximum would be.
    ranked = sorted(all_suites(), key=lambda suite: -scores[suite.name])
    marked = [suite for suite in ranked if scores[suite.name] > 0]
    likely = (suite for holds in (fits, is_sure) for suite in marked if holds(file, suite))
    if best := next(likely, None):
        return best
    unmarked = [suite for suite in ranked if suite.marks == Marks() and suite.name != other]
    if best := next((suite for suite in unmarked if fits(file, suite)), None):
        return best
    near = [suite for suite in (*marked, *unmarked) if has_headers(file, suite)]
    return min(near or marked or unmarked, key=lambda suite: distance(file, suite))


def is_sure(file: ParamFile, suite: Suite) -> bool:
    """Return whether ``file`` has the sections of ``suite`` and too many of its marks for a chance."""
    return len(marks_in_file(file, suite)) >= SURE and has_headers(file, suite)


def fits(file: ParamFile, suite: Suite) -> bool:
    """Return whether ``file`` has the layout of ``suite``."""
    if not has_headers(file, suite):
        return False
    try:
        checked_slots(file, suite)
    except ParamsError:
        return False
    return True


def has_headers(file: ParamFile, suite: Suite) -> bool:
    """Return whether the file's sections are those of the suite's layout."""
    sections = layout_sections(suite, file)
    found = [name for name, _ in file.headers[: len(sections)]]
    whole = len(found) == len(sections) or ends_after_evaluation(file, sections)
    return whole and all(name in one.names for name, one in zip(found, sections, strict=False))


def score(file: ParamFile, suite: Suite, root: Path | None) -> int:
    """Return how many of the suite's marks the file and its checkout bear."""
    return len(marks_in_file(file, suite)) + FOLDER_WEIGHT * len(marks_in_checkout(suite, root))


def marks_in_file(file: ParamFile, suite: Suite) -> tuple[str, ...]:
    """Return the marks of ``suite`` that the file bears, in words."""
    marks = suite.marks
    keys = {param.key for param in file.params} if marks.keys else set()
    words = [param.value.split(maxsplit=1) for param in file.params] if marks.values else []
    heads = {found[0] for found in words if found}
    return (
        *(f"the key {key}" for key in marks.keys if key in keys),
        *(f"the program {value}" for value in marks.values if value in heads),
        *(f"the section [{name}]" for name, _ in file.headers if name in marks.headers),
    )


def marks_in_checkout(suite: Suite, root: Path | None) -> tuple[str, ...]:
    """Return the marks of ``suite`` that the checkout bears, in words."""
    folders = () if root is None else suite.marks.folders
    return tuple(f"the folder {folder}" for folder in folders if root is not None and (root / folder).is_dir())
