"""Mistakes that a user can make, and can mend."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """A mistake that the user can mend: one line that says what is wrong, what was expected and what to do."""


@contextmanager
def writing(path: object, remedy: str) -> Iterator[None]:
    """Turn an OSError into a UserError: "PATH cannot be written (REASON): REMEDY"."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): {remedy}") from None
