"""Mistakes that a user can make and correct."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """A mistake that the user can correct: one line that says what is wrong, what was expected and what to do."""


class Unreachable(UserError):
    """A host does not answer. The request is not at fault, and may succeed later."""


@contextmanager
def writing(path: object, remedy: str | Callable[[], str], verb: str = "written") -> Iterator[None]:
    """Turn an OSError into a UserError: "PATH cannot be written (REASON): REMEDY".

    Give the remedy as a function if it depends on what the failure has left behind.
    """
    try:
        yield
    except OSError as error:
        remedy = remedy if isinstance(remedy, str) else remedy()
        raise UserError(f"{path} cannot be {verb} ({error.strerror or error}): {remedy}") from None
