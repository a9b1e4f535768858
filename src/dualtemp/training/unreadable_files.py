"""List the files that a run could not read: all in RUN/unreadable.txt, a few on the terminal."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dualtemp.atomic_write import whole_file
from dualtemp.quantities import counted

NAME = "unreadable.txt"
A_FEW = 5


def write_unreadable(run: Path, unreadable: Mapping[str, str]) -> None:
    """Write RUN/unreadable.txt, one line per file, sorted by name; nothing if there are none."""
    if unreadable:
        lines = [f"{_listed(name)}: {reason}\n" for name, reason in sorted(unreadable.items())]
        with whole_file(run / NAME) as file:
            file.write("".join(lines).encode(errors="backslashreplace"))


def read_unreadable(run: Path, names: Iterable[str] = ()) -> dict[str, str]:
    """Read RUN/unreadable.txt, name -> reason.

    names: of the images, to recognize those that contain a colon or are listed with escapes.
    """
    try:
        lines = (run / NAME).read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return {}
    known = {_listed(name): name for name in names if ": " in name or _listed(name) != name}
    found: dict[str, str] = {}
    for line in filter(None, lines):
        listed = next((name for name in known if line.startswith(f"{name}: ")), line.partition(": ")[0])
        found[known.get(listed, listed)] = line[len(listed) + 2 :]
    return found


def _listed(name: str) -> str:
    """A name as the file lists it: in one line, and with escapes where it is no valid text."""
    return name.replace("\n", "\\n").encode(errors="backslashreplace").decode()


def short_list(run: Path, unreadable: Mapping[str, str]) -> str:
    """Say how many files could not be read, name the first few, and say where all are listed."""
    names = sorted(unreadable)
    some = "; ".join(f"{name} ({unreadable[name]})" for name in names[:A_FEW])
    more = f"; and {len(names) - A_FEW} more" if len(names) > A_FEW else ""
    return (
        f"{counted(len(names), 'file')} could not be read and took no part: {some}{more}. All are named in {run / NAME}"
    )
