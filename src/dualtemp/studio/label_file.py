"""Labels and tags of images in one plain CSV file; a change counts once the whole file is written.

    name,label,tags
    cats/1.jpg,cat,
    cats/2.jpg,,blurred|night

There is a row for each image with a label or a tag. Rows of images that are not shown, rows without label or tags, and
other columns are kept as they are. A journal beside the file keeps the entries before each change, for undo.
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
from dualtemp.studio.undo_journal import Said, digest, journal_path, read_journal, step_line, write_journal

HEAD = ["name", "label", "tags"]
BETWEEN = "|"  # separates tags
STEPS = 1_000  # most changes that can be undone
MOST_ENTRIES = 100_000  # most entries in these changes together; the newest change is always kept
EXPECTED = "a first line `name,label,tags` is expected; name another file with --labels"


class Entry(NamedTuple):
    """What the user has said about an image: its label, or None, and its tags, sorted."""

    label: str | None = None
    tags: tuple[str, ...] = ()


NOTHING = Entry()


class Table(NamedTuple):
    """The content of a label file, with whatever else users keep in it: only rows that change are rewritten.

    head: the columns, name first, label and tags anywhere; rows: the rows below; silent: names of rows that had neither
    label nor tags when the file was read, which are kept.
    """

    head: list[str]
    rows: list[list[str]]
    silent: frozenset[str]

    def entries(self) -> dict[str, Entry]:
        """The entries of images, by name."""
        found = {row[0]: self._entry(row) for row in self.rows if row}
        return {name: entry for name, entry in found.items() if entry != NOTHING}

    def changed(self, said: Mapping[str, Entry]) -> "Table":
        """The table with these entries; a row that loses its label and tags is removed.

        New rows are added at the end, or in their place if all rows are sorted by name, as the studio writes them.
        """
        rows = [self._with(row, said[row[0]]) if row and row[0] in said else row for row in self.rows]
        rows = [row for row in rows if not row or row[0] not in said or row[0] in self.silent or any(row[1:])]
        names, there = [row[:1] for row in rows], {row[0] for row in rows if row}
        new = sorted(name for name, entry in said.items() if entry != NOTHING and name not in there)
        rows += [self._with([name], said[name]) for name in new]
        if names == sorted(names):
            rows.sort(key=lambda row: row[:1])
        return self._replace(rows=rows)

    def content(self) -> bytes:
        """The table as the bytes of its file."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue().encode()

    def _entry(self, row: list[str]) -> Entry:
        row = _padded(row, len(self.head))
        tags = row[self.head.index("tags")].split(BETWEEN)
        return Entry(row[self.head.index("label")] or None, tuple(sorted({tag for tag in tags if tag})))

    def _with(self, row: list[str], entry: Entry) -> list[str]:
        row = _padded(row, len(self.head))
        row[self.head.index("label")] = entry.label or ""
        row[self.head.index("tags")] = BETWEEN.join(entry.tags)
        return row


class Change(NamedTuple):
    """A change: the new entries, by image number; version: of the file, one more with each change."""

    version: int
    entries: dict[int, Entry]
    undoes: bool = False
    reread: bool = False  # another program has written the file: all entries may have changed


class Step(NamedTuple):
    """The entries before a change, by image number; others: those of images that are not shown, by name."""

    entries: dict[int, Entry]
    others: dict[str, Entry]
    line: bytes  # of the journal


class LabelFile:
    """The entries of a collection's images, and the file that keeps them; thread-safe.

    Args:
        path: the file; it is created with the first change.
        names: of the images shown.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, names
        self.version = 0
        self.entries: dict[int, Entry] = {}
        self._place = {name: number for number, name in enumerate(names)}
        self._others: dict[str, Entry] = {}  # of images that are not shown
        self._table = Table(HEAD, [], frozenset())
        self._lock = threading.RLock()
        self._journal = journal_path(path)
        self._seen, self._state = self._read()
        self._steps = [self._step(before) for before in read_journal(self._journal, self._state)]  # the newest last

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return bool(self._steps)

    def snapshot(self) -> tuple[int, dict[int, Entry], bool]:
        """Version, all entries by image number, and whether there is a change to undo, consistent with each other."""
        with self._lock:
            return self.version, self.entries, self.can_undo

    def entry(self, number: int) -> Entry:
        """The entry of an image."""
        return self.entries.get(number, NOTHING)

    def labels(self) -> dict[int, str]:
        """All labels by image number."""
        with self._lock:
            return {number: entry.label for number, entry in self.entries.items() if entry.label is not None}

    def set_label(self, numbers: Iterable[int], label: str | None) -> Change:
        """Give these images a label; None removes it."""
        return self._change(numbers, lambda entry: entry._replace(label=label))

    def add_tag(self, numbers: Iterable[int], tag: str) -> Change:
        """Add a tag to these images."""
        return self._change(numbers, lambda entry: entry._replace(tags=tuple(sorted({*entry.tags, tag}))))

    def remove_tag(self, numbers: Iterable[int], tag: str) -> Change:
        """Remove a tag from these images."""
        return self._change(numbers, lambda entry: entry._replace(tags=tuple(t for t in entry.tags if t != tag)))

    def undo(self) -> Change | None:
        """Undo the newest change; None if there is none."""
        with self._lock:
            reread = self._take_over_edits()
            if not self._steps:
                return Change(self.version, {}, reread=True) if reread else None
            step = self._steps[-1]
            change = self._commit(step.entries, step.others, self._steps, undoes=True)
            self._steps = self._steps[:-1]
            return change._replace(reread=reread)

    def _change(self, numbers: Iterable[int], make: Callable[[Entry], Entry]) -> Change:
        with self._lock:
            reread = self._take_over_edits()
            wanted = {number: make(self.entry(number)) for number in dict.fromkeys(numbers)}
            wanted = {number: entry for number, entry in wanted.items() if entry != self.entry(number)}
            if not wanted:
                return Change(self.version, {}, reread=reread)
            before = {number: self.entry(number) for number in wanted}
            line = step_line({self.names[number]: entry for number, entry in before.items()})
            steps = _newest([*self._steps, Step(before, {}, line)])
            change = self._commit(wanted, {}, steps)
            self._steps = steps
            return change._replace(reread=reread)

    def _commit(
        self, wanted: Mapping[int, Entry], elsewhere: Mapping[str, Entry], steps: Sequence[Step], undoes: bool = False
    ) -> Change:
        """Write the file with these entries, which count only then. If it raises OSError, nothing has changed.

        steps: the last one is the change being made or undone.
        """
        entries = {**self.entries, **wanted}
        entries = {number: entry for number, entry in entries.items() if entry != NOTHING}
        others = {name: entry for name, entry in {**self._others, **elsewhere}.items() if entry != NOTHING}
        table = self._table.changed({self.names[number]: entry for number, entry in wanted.items()} | {**elsewhere})
        content = table.content()
        state = digest(content)
        write_journal(
            self._journal,
            [step.line for step in steps],
            (state, self._state) if undoes else (self._state, state),
        )
        with whole_file(self.path) as file:
            file.write(content)
        self._seen, self._state = _stamp(self.path), state
        self.entries, self._others, self._table, self.version = entries, others, table, self.version + 1
        return Change(self.version, dict(wanted), undoes)

    def _take_over_edits(self) -> bool:
        """Read the file again if another program has written it since, and accept its rows."""
        if _stamp(self.path) == self._seen:
            return False
        self._seen, self._state = self._read()
        self._steps = []
        self.version += 1
        return True

    def _read(self) -> tuple[tuple[int, ...] | None, str]:
        """Read the entries from the file; returns its stamp and its state."""
        stamp = _stamp(self.path)
        content = None if stamp is None else _content(self.path)
        self._table = Table(HEAD, [], frozenset()) if content is None else _read_table(self.path, content)
        said = self._table.entries()
        self.entries = {self._place[name]: entry for name, entry in said.items() if name in self._place}
        self._others = {name: entry for name, entry in said.items() if name not in self._place}
        return stamp, digest(content)

    def _step(self, before: Mapping[str, Said]) -> Step:
        """Make a step from an entry of the journal; some of its images may be shown, and others not."""
        said = {name: Entry(*each) for name, each in before.items()}
        shown = {self._place[name]: entry for name, entry in said.items() if name in self._place}
        return Step(shown, {name: said[name] for name in said if name not in self._place}, step_line(before))


def _newest(steps: Sequence[Step]) -> list[Step]:
    """The newest steps, within the limits."""
    kept, entries = 0, 0
    for step in reversed(steps):
        entries += len(step.entries) + len(step.others)
        if kept == STEPS or (kept and entries > MOST_ENTRIES):
            break
        kept += 1
    return list(steps[len(steps) - kept :])


def valid_word(text: str) -> str | None:
    """A label or a tag without surrounding spaces; None if it is not valid."""
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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); {EXPECTED}") from None


def _read_table(path: Path, content: bytes) -> Table:
    try:
        head, *rows = [*csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))] or [[]]
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error}); {EXPECTED}") from None
    if head[:1] != ["name"] or "label" not in head:
        raise UserError(f"{path}: no file of labels; {EXPECTED}")
    if "tags" not in head:
        rows = [[*_padded(row, len(head))[: len(head)], "", *row[len(head) :]] if row else row for row in rows]
        head = [*head, "tags"]
    return Table(head, rows, frozenset(row[0] for row in rows if row and not any(row[1:])))


def _padded(row: list[str], length: int) -> list[str]:
    return row + [""] * (length - len(row))
