"""Labels of image files in a CSV file: one line per file, its name and its label. Needs no torch.

    file,label
    IMG_0001.jpg,tench
    2024/IMG_0002.jpg,church

The first line names the columns, in any order and among others; it may be missing if there are just these two. Columns
are separated by commas, semicolons or tabs. Files that are not listed, or whose label is empty, have no label.
"""

import csv
import io
import unicodedata
from collections.abc import Collection
from pathlib import Path

from dualtemp.errors import UserError
from dualtemp.file_names import valid_text

LABEL_FILE = "labels.csv"  # used by default if it is in a flat folder of images
AUTO = "auto"  # the LABEL_FILE of a flat folder, if there is one
FILE_COLUMNS = ("file", "name", "filename", "file_name", "image", "path")
LABEL_COLUMNS = ("label", "class", "category")
EXPECTED = "expected a line `file,label`, then one line for each image"


def read_label_file(path: Path, names: Collection[str], left_out: Collection[str] = ()) -> dict[str, str]:
    """Read the labels of images, by name; raises UserError if the file is not valid.

    Args:
        path: of the CSV file.
        names: of the images, relative to their folder, with forward slashes; other names in the file are an error. A
            name that is not valid Unicode is written in the file as commands print it.
        left_out: names of files in formats that cannot be read; their labels are dropped.
    """
    known = {valid_text(name): name for name in names}
    dropped = {valid_text(name) for name in left_out}
    both = known.keys() | dropped
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    unknown: list[str] = []
    for number, cell, given in label_lines(path, both):
        name, label = image_name(cell, both), given.strip()
        if name in lines:
            raise UserError(f"{path}: {name} is on line {lines[name]} and on line {number}; keep one of them")
        lines[name] = number
        if name not in both:
            unknown.append(name)
        elif label and name in known:
            labels[known[name]] = label
    if unknown:
        more = f" and {len(unknown) - 1:,} more files" if len(unknown) > 1 else ""
        raise UserError(
            f"{path}, line {lines[unknown[0]]}: {unknown[0] or 'an empty name'}{more} not among the {len(known):,} "
            "images; give names relative to the folder of the images"
        )
    require_labels(path, labels, lines.keys() & dropped)
    return labels


def check_label_file(path: Path) -> None:
    """Raise UserError for mistakes that show without the images' names: before features are computed, say."""
    first = label_rows(path)[0][1][0]  # perhaps the name of an image: a file may have no header
    require_labels(path, [label for *_, label in label_lines(path, {first}) if label.strip()], ())


def require_labels(path: Path, labels: Collection[str], dropped: Collection[str]) -> None:
    """Raise UserError if a file gives no label; dropped: images in it that cannot be read."""
    if not labels:
        raise UserError(f"{path}: no image {'that can be read ' if dropped else ''}has a label; {EXPECTED}")


def label_lines(path: Path, known: Collection[str] = ()) -> list[tuple[int, str, str]]:
    """Line number, name and label of every line, unchanged; raises UserError if the columns are missing.

    known: names of images: a first line that begins with one of them is not a header.
    """
    rows = label_rows(path)
    file_at, label_at, begin = _columns(path, rows[0], known)
    for number, row in rows[begin:]:
        if max(file_at, label_at) >= len(row):
            raise UserError(f"{path}, line {number}: {len(row)} column{'s' * (len(row) != 1)}; {EXPECTED}")
    return [(number, row[file_at], row[label_at]) for number, row in rows[begin:]]


def label_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of all lines that are not empty; raises UserError if there are none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a CSV file of labels") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not text in UTF-8; give a CSV file of labels") from None
    first = text.lstrip("\n").split("\n", 1)[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; {EXPECTED}") from None
    if not rows:
        raise UserError(f"{path}: it is empty; {EXPECTED}")
    return rows


def _columns(path: Path, first: tuple[int, list[str]], known: Collection[str]) -> tuple[int, int, int]:
    """The columns of the file's name and of the label, and the number of lines before the first image."""
    words = [cell.strip().lower() for cell in first[1]]
    files = [at for at, word in enumerate(words) if word in FILE_COLUMNS]
    labels = [at for at, word in enumerate(words) if word in LABEL_COLUMNS]
    if files and labels:
        return files[0], labels[0], 1
    if len(words) == 2 and not labels and image_name(first[1][0], known) in known:  # no header
        return 0, 1, 0
    missing, choices = ("label", LABEL_COLUMNS) if files else ("file", FILE_COLUMNS)
    raise UserError(f"{path}: no column is called {missing!r} (or {', '.join(choices[1:])}); {EXPECTED}")


def image_name(cell: str, known: Collection[str]) -> str:
    """The image that a cell names: its text if an image has that name, else the text stripped, with / for Windows' \\.

    Both Unicode forms are tried, since accented letters are one code point or two: macOS and editors often differ.
    """
    if cell in known:
        return cell
    tidy = cell.strip().replace("\\", "/").removeprefix("./")
    ways = (tidy, unicodedata.normalize("NFC", tidy), unicodedata.normalize("NFD", tidy))
    return next((name for name in ways if name in known), tidy)
