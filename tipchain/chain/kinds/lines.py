"""The lines of a file of another kind than ``train_infer_python``: layouts by suite, and which of them a file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tipchain.chain.detect import marks_in_checkout
from tipchain.chain.params import ParamFile
from tipchain.chain.profiles import get_suite, parse_layout, suite_names
from tipchain.chain.slots import Slots, checked_slots, distance, legacy_slots, read_slots
from tipchain.chain.suites import SlotRule
from tipchain.errors import ParamsError, UsageError

if TYPE_CHECKING:
    from tipchain.chain.kinds.base import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The lines of one suite's files of a kind.

    Attributes:
        suite: the suite's name.
        text: the lines, written as in a suite's profile; "" for those of the suite's own.
        reads: physical lines that the original reads, None for all.
        rest: whether a value is all after the first ``:`` in the original too.
        unread: roles that the original never reads.
        layout: the parsed ``text``.
    """

    suite: str
    text: str = ""
    reads: int | None = None
    rest: bool = False
    unread: frozenset[str] = frozenset()
    layout: tuple[SlotRule, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", parse_layout(self.text) if self.text else get_suite(self.suite).layout)

    @property
    def to_static(self) -> bool:
        """Whether the original looks up a line by a header: none of these does."""
        return False

    def fits(self, request: Request) -> bool:
        """Return whether the file has these lines."""
        try:
            checked_slots(request.file, self)
        except ParamsError:
            return False
        return True


LAST_LINE = frozenset({"log_iters", "skip_iters", "repeats", "task"})
"""Settings on the last line of PaddleSeg's files, which belongs to no section."""


def only_section(file: ParamFile, name: str) -> ParamFile:
    """Return ``file`` with one of its sections alone; as it is where ``name`` is ""."""
    if not name:
        return file
    return replace(
        file,
        headers=tuple(header for header in file.headers if header[0] == name),
        params=tuple(one for one in file.section(name) if one.key not in LAST_LINE),
    )


def choose_layout(request: Request, layouts: Sequence[Layout]) -> Layout:
    """Return the layout of a file: the named suite's, else by the checkout's folders, else the one it comes nearest to.

    Raises:
        UsageError: the named suite has none.
    """
    if request.suite is not None:
        found = next((one for one in layouts if one.suite == request.suite), None)
        if found is None:
            get_suite(request.suite)  # an unknown one is told as such
            known = ", ".join(one.suite for one in layouts)
            raise UsageError(f"{request.suite} has no such chains\n  suites that have: {known}")
        return found
    shipped = [one for one in layouts if one.suite in suite_names()]
    of_checkout = (one for one in shipped if marks_in_checkout(get_suite(one.suite), request.root))
    if found := next(of_checkout, None):
        return found
    fitting = (one for one in layouts if one.fits(request))
    return next(fitting, None) or min(layouts, key=lambda one: distance(request.file, one))


def read_lines(request: Request, layout: Layout) -> Slots:
    """Return the slots of a file by role; of a legacy plan as the original counts and cuts them.

    Raises:
        ParamsError: a line is missing, added or out of place.
    """
    if request.legacy:
        return legacy_slots(request.text, request.file.path, layout)
    return read_slots(request.file, layout)
