"""CPU slots of this machine, which all nights of a user share.

A slot is a lease, as a GPU is: one for each core that may be used here. The system gives it back however its holder
ends. An item gets all its slots or none, so nights never wait for one another in a ring. Who waits has the turn, a
lease of its own: no night takes slots before it, so that small items do not keep a large one waiting for ever.
"""

from __future__ import annotations

from pathlib import Path

from tipchain.chain.leases import Leases, lease_folder
from tipchain.cores import usable_cores

TURN = "turn"


class CpuSlots:
    """The slots that one night takes part in.

    Args:
        jobs: slots of the night; the cores if None. More than the cores are shared by the nights that ask for as many.
        folder: of the leases; this user's if None.

    Attributes:
        count: how many the night may have at once.
    """

    def __init__(self, jobs: int | None = None, folder: Path | None = None) -> None:
        cores = usable_cores()
        self.count = jobs or len(cores)
        beyond = range(max(self.count - len(cores), 0))
        self._names = (*(f"core-{number}" for number in cores), *(f"beyond-{number}" for number in beyond))
        self._leases = Leases(folder or lease_folder() / "cpus")
        self._taken = 0
        self._has_turn = self._waits = False

    def full(self, wanted: int) -> str:
        """Return why the night itself has no room for an item that wants so many slots; "" if it has."""
        own = min(wanted, self.count)
        return f"{own} of {self.count} CPU slots" if self._taken + own > self.count else ""

    def take(self, wanted: int, holder: str) -> tuple[tuple[str, ...], str]:
        """Take so many slots for an item that the night has room for, or none; of one that wants more than all, all.

        Returns:
            Their names, and "" or what has to be waited for.
        """
        count = min(wanted, len(self._names))
        if not self._has_turn and self._leases.take((TURN,), holder):
            process = self._leases.holder(TURN)
            return (), f"{_slots(count)}: an item of another night is before it ({process})"
        self._has_turn = True
        taken: list[str] = []
        others: dict[str, None] = {}
        for name in self._names:
            if len(taken) == count:
                break
            if self._leases.take((name,), holder):
                others[self._leases.holder(name)] = None
            else:
                taken.append(name)
        if len(taken) < count:
            self._leases.give_back(taken)
            self._waits = True
            return (), f"{_slots(count)}, held by {', '.join(others)}"
        self.pass_turn()
        self._taken += min(count, self.count)
        return tuple(taken), ""

    def give_back(self, names: tuple[str, ...]) -> None:
        """Give slots back that were taken."""
        self._leases.give_back(names)
        self._taken -= min(len(names), self.count)

    def rest(self) -> None:
        """Pass the turn on unless an item has asked for slots since the last rest and did not get them."""
        if not self._waits:
            self.pass_turn()
        self._waits = False

    def pass_turn(self) -> None:
        """Let other nights take slots."""
        if self._has_turn:
            self._has_turn = False
            self._leases.give_back((TURN,))


def _slots(count: int) -> str:
    return f"{count} CPU slot{'s' if count > 1 else ''}"
