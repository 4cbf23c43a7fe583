"""What of a plan may start when: pure bookkeeping, nothing is run here.

Commands of one leg run one after the other, in the plan's order; a command starts when those that it needs have
passed. What cannot run gets its result without being started, so that every command ends with one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tipchain.chain.hardware import Gpus
from tipchain.chain.plan import Command, Plan
from tipchain.chain.result import Result
from tipchain.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a plan shall be run.

    Attributes:
        jobs: how many commands of different legs may run at once.
        require_gpu: whether a GPU that is not there is an ERROR; it is a SKIP otherwise.
        fail_fast: whether the first FAIL or ERROR ends the run.
    """

    jobs: int = 1
    require_gpu: bool = False
    fail_fast: bool = False


class Schedule:
    """The commands of a plan that are still to come, those that run, and the results so far.

    Attributes:
        results: how commands ended, by id.
        running: ids of the commands that run.
        halt: why nothing new is started, "" while it is.
    """

    def __init__(self, commands: Sequence[Command], gpus: Gpus, policy: Policy) -> None:
        self.gpus, self.policy = gpus, policy
        self.results: dict[str, Result] = {}
        self.running: set[str] = set()
        self.halt = ""
        self._legs: dict[str, deque[tuple[int, Command]]] = {}
        for number, command in enumerate(commands, 1):
            self._legs.setdefault(_leg(command), deque()).append((number, command))

    @property
    def done(self) -> bool:
        """Whether every command has its result."""
        return not self._legs

    def ready(self) -> Iterator[tuple[int, Command]]:
        """Yield the commands whose turn it is, with their numbers, in the plan's order.

        Each must then be started (`start`) or settled (`settle`), or is yielded again next time.
        """
        heads = sorted((leg[0] for leg in self._legs.values()), key=lambda head: head[0])
        for number, command in heads:
            if command.id in self.running:
                continue
            if self.halt or all(need in self.results for need in command.needs):
                yield number, command

    def start(self, command: Command) -> None:
        """Take note that ``command`` runs."""
        self.running.add(command.id)

    def settle(self, result: Result) -> None:
        """Take note of how a command ended, or why it is not run; its leg goes on."""
        name = result.command.id
        self.running.discard(name)
        self.results[name] = result
        leg = self._legs[_leg(result.command)]
        leg.popleft()
        if not leg:
            del self._legs[_leg(result.command)]

    def unstarted(self, command: Command) -> Result | None:
        """Return the result of a command whose turn it is and that cannot be run; None if it can."""
        if reason := self.halt or command.skip:
            return _not_run(command, reason)
        if reason := self.gpus.why_not(command):
            return _not_run(command, reason, Outcome.ERROR if self.policy.require_gpu else Outcome.SKIP)
        for need in command.needs:
            outcome = self.results[need].outcome
            if outcome is Outcome.SKIP:
                return _not_run(command, f"{need} was not run")
            if outcome is not Outcome.PASS:
                return _not_run(command, f"{need} failed")
        return None

    def must_repeat(self, command: Command) -> bool:
        """Return whether what ``command`` needs was run anew, so that its own earlier result is out of date."""
        return not all(need in self.results and self.results[need].reused for need in command.needs)

    def stuck(self) -> Iterator[Result]:
        """Yield an ERROR for the head of every leg that waits for what cannot come before it."""
        for leg in list(self._legs.values()):
            command = leg[0][1]
            needs = ", ".join(need for need in command.needs if need not in self.results)
            yield _not_run(command, f"it needs {needs}, which cannot come before it", Outcome.ERROR)


def _leg(command: Command) -> str:
    # Commands that belong to no leg are a leg of their own for each kind.
    return f"leg:{command.leg}" if command.leg else f"step:{command.step}"


def _not_run(command: Command, reason: str, outcome: Outcome = Outcome.SKIP) -> Result:
    return Result(command=command, outcome=outcome, reason=f"not run: {reason}")


def as_reused(result: Result, command: Command) -> Result:
    """Return the earlier PASS of ``command``, which the plan may name or place otherwise by now."""
    own = replace(command, argv=result.command.argv, env=result.command.env)
    return replace(result, command=own, reused=True)


def forecast(
    plan: Plan, gpus: Gpus, policy: Policy, earlier: Callable[[Command], Result | None] | None = None
) -> tuple[Result, ...]:
    """Return the results of the commands that would not be started here, if all others passed.

    ``earlier`` gives the PASS of an earlier attempt that still holds.
    """
    schedule = Schedule(plan.commands, gpus, policy)
    unstarted = []
    while not schedule.done:
        turn = [command for _, command in schedule.ready()]
        for command in turn:
            known = earlier(command) if earlier and not schedule.must_repeat(command) else None
            result = as_reused(known, command) if known else schedule.unstarted(command)
            unstarted += [result] if result else []
            schedule.settle(result or Result(command=command, outcome=Outcome.PASS))
        for result in () if turn else list(schedule.stuck()):
            unstarted.append(result)
            schedule.settle(result)
    return tuple(unstarted)


def unaccounted(planned: Sequence[Command], results: Mapping[str, Result]) -> tuple[Result, ...]:
    """Return an ERROR for every planned command without a result: executed must equal planned."""
    seen: set[str] = set()
    missing = []
    for command in planned:
        if command.id not in results or command.id in seen:
            missing.append(
                Result(command=command, outcome=Outcome.ERROR, reason="planned, but there is no result of it")
            )
        seen.add(command.id)
    return tuple(missing)
