"""Folders of nights as a coordinator leaves them, for tests of what is made of them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.nightly.items import Item
from tipchain.nightly.nights import ENDED, FINISHED, LOCK, NIGHT, ItemRecord, item_folder, write_document, write_record

FIRST = datetime(2026, 11, 1, 22, 0, tzinfo=timezone.utc)
ENVIRONMENT = {"commit": "1a2b3c4", "machine": "box", "versions": {"torch": "2.13.0", "paddle": "3.3.1"}}


def item(subject: str, *, mode: str = "whole_infer", device: str = "cpu", kind: str = "chain", **more: Any) -> Item:
    """Return an item; its id follows from the rest."""
    middle = ":align" if kind == "align" else ""
    values: dict[str, Any] = {
        "id": f"{subject}{middle}[{mode};{device}]",
        "kind": kind,
        "subject": subject,
        "mode": mode,
        "device": device,
        "source": f"test_tipc/configs/{subject}/train_infer_python.txt",
        "repeat": 1,
        "tags": ("lite",),
        "cwd": ".",
        "argv": ("{python}", "-m", "tipchain", "run", subject, mode, "--json", "{report}"),
        "timeout_s": 60.0,
    }
    return Item(**{**values, **more})


class NightSample:
    """A night's folder, made piece by piece.

    Args:
        nights: the folder of a manifest's nights.
        day: which night after the first.
        items: its plan.
        root: the project's folder.
        environment: what it says of where it ran.
        options: what its command line said.
        hours: how long after the day's night it began.
        cut: how the whole plan was cut into shares, of a share.
    """

    def __init__(
        self,
        nights: Path,
        day: int,
        items: Sequence[Item],
        *,
        root: Path | None = None,
        environment: Mapping[str, Any] = ENVIRONMENT,
        options: Mapping[str, Any] | None = None,
        hours: float = 0.0,
        cut: Mapping[str, Any] | None = None,
    ) -> None:
        self.began = FIRST + timedelta(days=day, hours=hours)
        self.folder = nights / f"{self.began:%Y%m%d-%H%M%S}-{day:05x}"
        self.token = f"token{day}" + (f"-{hours}" if hours else "")
        self.folder.mkdir(parents=True)
        plan = {
            "name": nights.name,
            "root": str(root or nights),
            "manifest": f"{nights.name}.yaml",
            "sha256": "0" * 64,
            **({"cut": cut} if cut else {}),
        }
        document = {
            "token": self.token,
            "started": self.began.isoformat(),
            "options": dict(options or {}),
            "environment": environment,
            "plan": {**plan, "items": as_json(items)},
        }
        write_document(self.folder / NIGHT, document)
        (self.folder / LOCK).touch()

    def end(
        self,
        one: Item,
        outcome: Outcome = Outcome.PASS,
        reason: str = "",
        *,
        seconds: float = 1.0,
        log: str | None = "all is well\n",
        report: Mapping[str, Any] | None = None,
        attempt: int = 1,
        **more: Any,
    ) -> ItemRecord:
        """Let an item end; ``log`` None leaves none."""
        folder = item_folder(self.folder, one.id) / f"attempt-{attempt}"
        folder.mkdir(parents=True)
        below = folder.relative_to(self.folder)
        if log is not None:
            (folder / "output.log").write_text(log)
        if report is not None:
            (folder / "report.json").write_text(json.dumps(report))
        record = ItemRecord(
            id=one.id,
            attempt=attempt,
            outcome=outcome,
            reason=reason,
            seconds=seconds,
            started=self.began.isoformat(),
            machine="box",
            executor="local",
            log="" if log is None else f"{below}/output.log",
            report="" if report is None else f"{below}/report.json",
            **more,
        )
        write_record(self.folder, record, self.token)
        return record

    def finish(self, **facts: Any) -> Path:
        write_document(self.folder / FINISHED, {"token": self.token, **facts})
        return self.folder

    def ended_file(self, one: Item) -> Path:
        return item_folder(self.folder, one.id) / ENDED


def ended_night(
    nights: Path, day: int, items: Sequence[Item], outcomes: Mapping[str, Outcome] | None = None, **given: Any
) -> NightSample:
    """Make a night that has finished, whose items ended as told by id, else with PASS."""
    made = NightSample(nights, day, items, **given)
    for one in items:
        made.end(one, (outcomes or {}).get(one.id, Outcome.PASS))
    made.finish()
    return made


def share_of_night(
    nights: Path,
    day: int,
    share: int,
    items: Sequence[Item],
    cut: Mapping[str, int],
    *,
    of: int = 0,
    hours: float | None = None,
    outcomes: Mapping[str, Outcome] | None = None,
    night: str = "",
    environment: Mapping[str, Any] = ENVIRONMENT,
) -> NightSample:
    """Make a share of a night that has finished.

    Args:
        nights: the folder of a manifest's nights.
        day: which night after the first.
        share: its number.
        items: of the whole plan.
        cut: by id, the number of the share, as this machine cut it.
        of: how many shares there are; as many as the cut has if 0.
        hours: how long after the day's night it began; a tenth of an hour for each share if None.
        outcomes: by id; PASS for the others.
        night: the whole night's id; the day if "".
        environment: what it says of where it ran.
    """
    count = of or max(cut.values())
    options = {"shard": f"{share}/{count}", "night_id": night or str(day)}
    return ended_night(
        nights,
        day,
        [one for one in items if cut.get(one.id) == share],
        outcomes,
        options=options,
        hours=share / 10 if hours is None else hours,
        cut={"ids": list(cut), "shares": list(cut.values())},
        environment=environment,
    )
