"""A task in a process of a cluster: what it tells whoever submitted it. A UserError travels as its text."""

from typing import Any

from dualtemp.engines.engine import Outcome, Place, Task
from dualtemp.errors import UserError

VALUE, TROUBLE = "value", "trouble"


def carry_out(task: Task, place: Place) -> tuple[str, Any]:
    """Carry out a task; returns its value, or the text of its UserError."""
    try:
        return VALUE, task.call(place, *task.arguments)
    except UserError as error:
        return TROUBLE, str(error)


def outcome_of_told(told: tuple[str, Any]) -> Outcome:
    """Return what `carry_out` told as an outcome; raises the task's UserError."""
    kind, value = told
    if kind == TROUBLE:
        raise UserError(value)
    return Outcome(value=value)
