"""The files that a run could not read: all of them in RUN/unreadable.txt, a few on the terminal."""

from collections.abc import Mapping
from pathlib import Path

from dualtemp.atomic_write import whole_file
from dualtemp.quantities import counted

NAME = "unreadable.txt"
A_FEW = 5


def write_unreadable(run: Path, unreadable: Mapping[str, str]) -> None:
    """Write RUN/unreadable.txt, a line a file in the order of names; nothing if there are none."""
    if unreadable:
        lines = [f"{name}: {reason}\n" for name, reason in sorted(unreadable.items())]
        with whole_file(run / NAME) as file:
            file.write("".join(lines).encode(errors="backslashreplace"))  # names need not be valid text


def short_list(run: Path, unreadable: Mapping[str, str]) -> str:
    """How many files could not be read, the first few by name, and where all are named."""
    names = sorted(unreadable)
    some = "; ".join(f"{name} ({unreadable[name]})" for name in names[:A_FEW])
    more = f"; and {len(names) - A_FEW} more" if len(names) > A_FEW else ""
    return (
        f"{counted(len(names), 'file')} could not be read and had no part in it: {some}{more}. "
        f"All are named in {run / NAME}"
    )
