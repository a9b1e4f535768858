"""Columns to color points by: categories or numbers, one value per image."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualtemp.errors import UserError

NO_CODE = 0xFFFF
MOST_CATEGORIES = 1_000  # keep the most frequent categories; the rest becomes one
FEW = 12  # integers with at most this many distinct values are categories
NAMES = ("name", "file_name", "filename", "filepath", "path", "image")  # accepted titles of the column of names
OTHER = "(other)"


class Column(NamedTuple):
    """Values of N images.

    kind: "category" or "number"; values: uint16 (N,), indices into `categories` or NO_CODE; or float32 (N,), NaN where
    there is none; about: a line of explanation.
    """

    title: str
    kind: str
    values: np.ndarray
    categories: list[str]
    about: str = ""


def category_column(title: str, words: Sequence[str | None], about: str = "") -> Column:
    """A column of words; None means no value. Categories are sorted, numerals by their value."""
    counts: dict[str, int] = {}
    for word in words:
        if word is not None:
            counts[word] = counts.get(word, 0) + 1
    kept = sorted(counts, key=lambda word: -counts[word])[:MOST_CATEGORIES]
    rest = len(counts) > len(kept)
    categories = sorted(kept, key=_natural) + ([OTHER] if rest else [])
    place = {word: code for code, word in enumerate(categories)}
    otherwise = place.get(OTHER, NO_CODE)
    codes = [NO_CODE if word is None else place.get(word, otherwise) for word in words]
    return Column(title, "category", np.array(codes, np.uint16), categories, about)


def coded_column(title: str, codes: np.ndarray, categories: Sequence[str], about: str = "") -> Column:
    """A column from indices of categories, negative for none."""
    if len(categories) > MOST_CATEGORIES:
        words: list[str | None] = [str(categories[int(code)]) if code >= 0 else None for code in codes]
        return category_column(title, words, about)
    return Column(title, "category", np.where(codes < 0, NO_CODE, codes).astype(np.uint16), list(categories), about)


def number_column(title: str, values: np.ndarray, about: str = "") -> Column:
    """A column of numbers; a number that is not finite counts as no value."""
    values = np.asarray(values, np.float32)
    return Column(title, "number", np.where(np.isfinite(values), values, np.float32("nan")), [], about)


def read_columns(path: Path, names: Sequence[str]) -> list[Column]:
    """Read the columns of a CSV or Parquet file that has a column of image names; images without a row have no value.

    A row matches an image if their names are equal; else if one of them ends with "/" and the other, as an absolute
    path does, and no other image or row matches as well.
    """
    rows = _read(path)
    key = next((word for word in NAMES if word in rows), None)
    if key is None:
        raise UserError(f"{path}: no column of image names; expected one called {', '.join(NAMES[:3])} or path")
    at = _matched([str(name) for name in rows.pop(key)], names)
    if all(number is None for number in at):
        raise UserError(f"{path}: none of its names is one of the images, such as {names[0]!r}")
    found = []
    for title, values in rows.items():
        spread: list[Any] = [None] * len(names)
        for number, value in zip(at, values, strict=True):
            if number is not None:
                spread[number] = value
        column = _typed(title, spread, path.name)
        if column is not None:
            found.append(column)
    return found


def _matched(given: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Return the number of the image that each given name matches; None if it matches none, or more than one."""
    place = {name: number for number, name in enumerate(names)}
    ends: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        ends.setdefault(name.rpartition("/")[2], []).append(number)
    found = [place.get(name) for name in given]
    taken = {number for number in found if number is not None}
    loosely: dict[int, list[int]] = {}  # by image, rows
    for row, name in enumerate(given):
        if found[row] is None:
            near = [i for i in ends.get(name.rpartition("/")[2], []) if _ends_alike(name, names[i])]
            if len(near) == 1 and near[0] not in taken:
                loosely.setdefault(near[0], []).append(row)
    for number, lines in loosely.items():
        if len({given[row] for row in lines}) == 1:
            for row in lines:
                found[row] = number
    return found


def _ends_alike(one: str, other: str) -> bool:
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")


def _typed(title: str, values: list[Any], source: str) -> Column | None:
    there = [value for value in values if value not in (None, "")]
    if not there or any(isinstance(value, list | dict | bytes) for value in there):
        return None
    about, all_numbers = f"a column of {source}", all(_is_number(value) for value in there)
    if all_numbers:  # nan and infinity are numbers too, but count as no value
        values = [None if _number(value) is None else value for value in values]
    numbers = {number for value in values if (number := _number(value)) is not None}
    whole = all(number.is_integer() for number in numbers)
    if all_numbers and numbers and not (whole and len(numbers) <= FEW):
        found = (_number(value) for value in values)
        return number_column(title, np.array([math.nan if number is None else number for number in found]), about)
    return category_column(title, [None if value in (None, "") else str(value)[:200] for value in values], about)


def _number(value: Any) -> float | None:
    """The finite number that a value is or spells; None if it is not one."""
    if value in (None, "") or not _is_number(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _read(path: Path) -> dict[str, list[Any]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give --columns a CSV or Parquet file")
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                nested = ("list", "fixed_size", "large_list", "struct", "map")
                flat = [each.name for each in file.schema_arrow if not str(each.type).startswith(nested)]
                return file.read(columns=flat).to_pydict()
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            head = next(reader, [])
            rows = [row for row in reader if row]
        if any(len(row) != len(head) for row in rows) or len(set(head)) != len(head):
            raise ValueError("lines of different lengths, or a title twice")
        return {title: [row[place] for row in rows] for place, title in enumerate(head)}
    except ImportError:
        raise UserError(f"{path}: .parquet files need pyarrow: pip install 'dualtemp[parquet]'") from None
    except Exception as error:  # pyarrow may raise nearly anything on broken files
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason}); give --columns a CSV or Parquet file") from None


def _natural(word: str) -> tuple[int, float, str]:
    number = _number(word)
    return (1, 0.0, word.casefold()) if number is None else (0, number, word)
