"""Standard output and error that may be closed, lie on a full disk, or be unable to hold the name of a file."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple


class Forgiving:
    """A text stream whose failures are remembered instead of raised, so that a log on a full disk ends no run.

    trouble: the first failure. A reader that has gone is raised, if wanted: nobody needs the rest then.
    """

    def __init__(self, stream: Any, raise_broken_pipe: bool) -> None:
        self._stream, self._raise_broken_pipe = stream, raise_broken_pipe
        self.trouble: OSError | None = None

    def write(self, text: str) -> int:
        """Write, or remember why not."""
        with self._remembered():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or remember why not."""
        with self._remembered():
            self._stream.flush()

    def discard(self) -> None:
        """Throw away what is not written yet: Python would complain of it when it ends."""
        with contextlib.suppress(OSError, ValueError):  # a stream of a test has no number
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a stream has."""
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._raise_broken_pipe and isinstance(error, BrokenPipeError):
                raise
            self.trouble = self.trouble or error


class Streams(NamedTuple):
    """Standard output and error."""

    out: Forgiving
    err: Forgiving


@contextlib.contextmanager
def standard_streams() -> Iterator[Streams]:
    """Make sys.stdout and sys.stderr usable, whatever they were."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Closed: a file that we open later would get its number, and what is said would be written into it.
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    before = sys.stdout, sys.stderr
    streams = Streams(Forgiving(_opened(sys.stdout), True), Forgiving(_opened(sys.stderr), False))
    sys.stdout, sys.stderr = streams  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.flush()
            if stream.trouble is not None:
                stream.discard()
        sys.stdout, sys.stderr = before


def _opened(stream: Any) -> Any:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):  # names of files need not be valid text
        stream.reconfigure(errors="backslashreplace")
    return stream
