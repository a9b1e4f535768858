"""Standard output and error that keep working when closed, on a full disk, or unable to encode a file name."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple


class Forgiving:
    """A text stream that remembers write errors instead of raising them, so that a log on a full disk ends no run.

    trouble: the first error. A broken pipe, whose reader has gone, is raised if `raise_broken_pipe`.
    """

    def __init__(self, stream: Any, raise_broken_pipe: bool) -> None:
        self._stream, self._raise_broken_pipe = stream, raise_broken_pipe
        self.trouble: OSError | None = None

    def write(self, text: str) -> int:
        """Write; remember an error."""
        with self._remembered():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; remember an error."""
        with self._remembered():
            self._stream.flush()

    def discard(self) -> None:
        """Discard what is still buffered; Python would complain about it on exit."""
        with contextlib.suppress(OSError, ValueError):  # a test's stream has no file descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """Take everything else from the stream."""
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
    """Make sys.stdout and sys.stderr usable, even if they are closed or cannot encode a name."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Closed: the next file opened would get this descriptor, and messages would be written into it.
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
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
    if hasattr(stream, "reconfigure"):  # file names need not be valid text
        stream.reconfigure(errors="backslashreplace")
    return stream
