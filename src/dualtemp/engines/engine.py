"""The interface between independent tasks and what carries them out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dualtemp.errors import UserError


@dataclass(frozen=True)
class Place:
    """Where a task is carried out: its device, and how many CPU threads it may use."""

    device: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class Task:
    """One independent piece of work: `call(place, *arguments)` in any process of any machine.

    call: a function at the top of a module; its arguments and its value can be pickled. What it leaves behind goes into
    files that all machines see, so that a task which is killed is continued by whoever takes it next.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a task ended: with a value, stopped by a signal after it was saved, or lost with its process.

    lost: why its process ended; "" if it did not.
    """

    value: Any = None
    stopped: bool = False
    lost: str = ""


class Submitted(Protocol):
    """A task that an engine has accepted."""

    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it waits or runs. Raises UserError if the task did."""
        ...


class Engine(Protocol):
    """Carries out tasks. `at_once`: how many it accepts at a time; `pause`: seconds between two looks at them."""

    @property
    def at_once(self) -> int:
        """How many tasks may be submitted and not yet ended."""
        ...

    @property
    def pause(self) -> float:
        """Seconds to wait between two looks at submitted tasks."""
        ...

    def submit(self, tasks: Sequence[Task]) -> Sequence[Submitted]:
        """Accept tasks: never more than `at_once` together with those that have not ended."""
        ...

    def close(self) -> None:
        """Stop what has not ended, letting it save, and leave no process behind."""
        ...


def outcome_of_error(error: BaseException) -> Outcome:
    """Return how a task ended that raised; a UserError, and an error of the program, is raised again."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return Outcome(stopped=True)
    if isinstance(error, UserError):
        raise UserError(str(error)) from None
    raise error
