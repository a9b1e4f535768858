"""The interface between independent tasks and the engines that execute them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dualtemp.errors import UserError


@dataclass(frozen=True)
class Place:
    """Where a task is executed: its device, and how many CPU threads it may use."""

    device: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class Task:
    """One independent piece of work: `call(place, *arguments)` in any process of any machine.

    call: a function at the top level of a module, with picklable arguments and value. It keeps its progress in files
    that all machines see, so that any process can continue a task that was killed.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a task ended: with a value, stopped by a signal after saving, or lost with its process.

    lost: why its process ended, if it was lost; else "".
    """

    value: Any = None
    stopped: bool = False
    lost: str = ""


class Submitted(Protocol):
    """A task that an engine has accepted."""

    def outcome(self) -> Outcome | None:
        """Return how the task ended; None while it waits or runs. Raises the task's UserError, if it raised one."""
        ...


class Engine(Protocol):
    """Executes tasks. `at_once`: how many it accepts at a time; `pause`: seconds between two polls."""

    @property
    def at_once(self) -> int:
        """How many tasks may be submitted and not yet ended."""
        ...

    @property
    def pause(self) -> float:
        """Seconds to wait between two polls of submitted tasks."""
        ...

    def submit(self, tasks: Sequence[Task]) -> Sequence[Submitted]:
        """Accept tasks; with those that have not ended, there must never be more than `at_once`."""
        ...

    def close(self) -> None:
        """Stop the tasks that have not ended, letting them save, and leave no process behind."""
        ...


def outcome_of_error(error: BaseException) -> Outcome:
    """Return the outcome of a task that was interrupted; other errors are raised again."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Outcome(stopped=True)
    if isinstance(error, UserError):
        raise UserError(str(error)) from None
    raise error
