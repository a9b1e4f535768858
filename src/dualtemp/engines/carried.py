"""Execute a task in a process of a cluster, and pass its outcome to the submitter; a UserError travels as its text."""

from typing import Any

from dualtemp.engines.engine import Outcome, Place, Task
from dualtemp.errors import UserError

VALUE, TROUBLE = "value", "trouble"


def carry_out(task: Task, place: Place) -> tuple[str, Any]:
    """Execute a task; returns (VALUE, its value), or (TROUBLE, the text of its UserError)."""
    try:
        return VALUE, task.call(place, *task.arguments)
    except UserError as error:
        return TROUBLE, str(error)


def outcome_of_told(told: tuple[str, Any]) -> Outcome:
    """Turn the result of `carry_out` into an outcome; raises the task's UserError."""
    kind, value = told
    if kind == TROUBLE:
        raise UserError(value)
    return Outcome(value=value)
