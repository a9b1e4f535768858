"""Labels and tags of images in one plain CSV file, written whole before a change counts.

    name,label,tags
    cats/1.jpg,cat,
    cats/2.jpg,,blurred|night

A row for each image that has a label or a tag. Rows of images that are not on show are kept as they are.
"""

import csv
import io
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError

HEAD = ["name", "label", "tags"]
BETWEEN = "|"  # between tags
STEPS = 1_000  # that can be undone
EXPECTED = "a first line `name,label,tags` is expected; name another file with --labels"


class Entry(NamedTuple):
    """What a person has said of an image: its label, None if there is none, and its tags, sorted."""

    label: str | None = None
    tags: tuple[str, ...] = ()


NOTHING = Entry()


class Change(NamedTuple):
    """A step: the entries that are now, by image number; version: of the file, which rises by one each time."""

    version: int
    entries: dict[int, Entry]
    undoes: bool = False
    reread: bool = False  # another program has written the file: all entries may be other ones


class LabelFile:
    """The entries of a collection's images, and the file that keeps them; any thread may ask and change.

    Args:
        path: the file; it is made with the first change.
        names: of the images on show.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, names
        self.version = 0
        self.entries: dict[int, Entry] = {}
        self._place = {name: number for number, name in enumerate(names)}
        self._others: dict[str, Entry] = {}  # of images that are not on show
        self._steps: list[dict[int, Entry]] = []  # entries before each change, the newest last
        self._lock = threading.RLock()
        self._seen = self._read()

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return bool(self._steps)

    def entry(self, number: int) -> Entry:
        """What is said of an image."""
        return self.entries.get(number, NOTHING)

    def labels(self) -> dict[int, str]:
        """All labels by image number."""
        with self._lock:
            return {number: entry.label for number, entry in self.entries.items() if entry.label is not None}

    def set_label(self, numbers: Iterable[int], label: str | None) -> Change:
        """Give these images a label; None takes it away."""
        return self._change(numbers, lambda entry: entry._replace(label=label))

    def add_tag(self, numbers: Iterable[int], tag: str) -> Change:
        """Add a tag to these images."""
        return self._change(numbers, lambda entry: entry._replace(tags=tuple(sorted({*entry.tags, tag}))))

    def remove_tag(self, numbers: Iterable[int], tag: str) -> Change:
        """Remove a tag from these images."""
        return self._change(numbers, lambda entry: entry._replace(tags=tuple(t for t in entry.tags if t != tag)))

    def undo(self) -> Change | None:
        """Take the newest change back; None if there is none."""
        with self._lock:
            reread = self._take_over_edits()
            if not self._steps:
                return Change(self.version, {}, reread=True) if reread else None
            change = self._commit(self._steps[-1], undoes=True)
            self._steps.pop()
            return change

    def _change(self, numbers: Iterable[int], make: Callable[[Entry], Entry]) -> Change:
        with self._lock:
            reread = self._take_over_edits()
            wanted = {number: make(self.entry(number)) for number in dict.fromkeys(numbers)}
            wanted = {number: entry for number, entry in wanted.items() if entry != self.entry(number)}
            if not wanted:
                return Change(self.version, {}, reread=reread)
            before = {number: self.entry(number) for number in wanted}
            change = self._commit(wanted)
            self._steps = [*self._steps[-STEPS + 1 :], before]
            return change._replace(reread=reread)

    def _commit(self, wanted: Mapping[int, Entry], undoes: bool = False) -> Change:
        """Write the file with these entries; only then they count. Raises OSError, and nothing has changed."""
        entries = {**self.entries, **wanted}
        entries = {number: entry for number, entry in entries.items() if entry != NOTHING}
        rows = {self.names[number]: entry for number, entry in entries.items()} | self._others
        text = io.StringIO(newline="")
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(HEAD)
        lines.writerows((name, rows[name].label or "", BETWEEN.join(rows[name].tags)) for name in sorted(rows))
        with whole_file(self.path) as file:
            file.write(text.getvalue().encode())
        self._seen = _stamp(self.path)
        self.entries, self.version = entries, self.version + 1
        return Change(self.version, dict(wanted), undoes)

    def _take_over_edits(self) -> bool:
        """Read the file again if another program has written it since; its rows count."""
        if _stamp(self.path) == self._seen:
            return False
        self._seen = self._read()
        self._steps.clear()
        self.version += 1
        return True

    def _read(self) -> tuple[int, ...] | None:
        stamp = _stamp(self.path)
        rows = {} if stamp is None else _rows(self.path)
        self.entries = {self._place[name]: entry for name, entry in rows.items() if name in self._place}
        self._others = {name: entry for name, entry in rows.items() if name not in self._place}
        return stamp


def valid_word(text: str) -> str | None:
    """A label or a tag as it is kept, without spaces around it; None if it cannot be one."""
    word = " ".join(text.split())
    if not word or len(word) > 200 or BETWEEN in word or not word.isprintable():
        return None
    with suppress(UnicodeEncodeError):
        word.encode()
        return word
    return None


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _rows(path: Path) -> dict[str, Entry]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            head = next(reader, [])
            if head[:1] != ["name"] or "label" not in head:
                raise UserError(f"{path}: no file of labels; {EXPECTED}")
            at = {word: head.index(word) for word in HEAD if word in head}
            found: dict[str, Entry] = {}
            for row in reader:
                cells = {word: row[place] if place < len(row) else "" for word, place in at.items()}
                tags = tuple(sorted({tag for tag in cells.get("tags", "").split(BETWEEN) if tag}))
                found[cells["name"]] = Entry(cells["label"] or None, tags)
            return found
    except (OSError, ValueError, csv.Error) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"{path}: cannot be read ({reason}); {EXPECTED}") from None
