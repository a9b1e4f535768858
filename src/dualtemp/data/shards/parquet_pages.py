"""Locate the values of a Parquet column of bytes in the file, page by page, so that one can be read without the rest.

Libraries read whole row groups: a hundred images or more for a single one. This parses the format itself (headers in
Thrift's compact protocol): data pages of versions 1 and 2, PLAIN and dictionary encoding, any compression of pages.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from dualtemp.data.shards.tar_members import Damaged

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # types of pages
_PLAIN, _OLD_DICTIONARY_INDICES, _DICTIONARY_INDICES = 0, 2, 8  # encodings
_NO_PAGES = 1 << 30

Unpack = Callable[[bytes, int], bytes]  # (packed, length when unpacked) -> unpacked


class Chunk(NamedTuple):
    """A column of a row group: where its pages begin, and how many values it has.

    levels: the definition level of a value that is not null.
    """

    start: int
    values: int
    levels: int


class Value(NamedTuple):
    """One value of a column.

    start, stored: the bytes of the file that hold it; unpacked: their number after decompression; inner: its position
    in these; content: the value itself; packed: whether the bytes are compressed.
    """

    start: int
    stored: int
    unpacked: int
    inner: int
    content: memoryview
    packed: bool


class _Page(NamedTuple):
    """The body of a page: where it begins in the file, its number of bytes there, and its decompressed content."""

    start: int
    stored: int
    body: memoryview


def values(file: BinaryIO, chunk: Chunk, unpack: Unpack | None) -> Iterator[Value | None]:
    """Yield the values of a column chunk, None for nulls; unpack: decompresses a page, None for uncompressed pages."""
    at, left = chunk.start, chunk.values
    words: list[Value] = []  # the dictionary
    while left > 0:
        file.seek(at)
        head = file.read(1 << 16)
        header, length = _header(head)
        kind, size, unpacked = header.get(1, -1), header.get(3, -1), header.get(2, -1)
        if not 0 <= size < _NO_PAGES or not 0 <= unpacked < _NO_PAGES:
            raise Damaged(f"a damaged page at byte {at:,}")
        begin = at + length
        file.seek(begin)
        stored = file.read(size)
        if len(stored) < size:
            raise Damaged(f"the file ends in the page at byte {at:,}")
        at = begin + size
        if kind == _DICTIONARY:
            page = _unpacked(begin, stored, unpacked, unpack)
            words = list(_plain(page, 0, header.get(7, {}).get(1, 0), unpack is not None))
        elif kind in (_DATA, _DATA_2):
            about = header.get(5 if kind == _DATA else 8, {})
            count = about.get(1, 0)
            if not 0 < count <= left:
                raise Damaged(f"a page of {count} values at byte {begin:,}")
            left -= count
            try:
                yield from _data_page(kind, about, begin, stored, unpacked, unpack, chunk.levels, words)
            except IndexError:  # the page is too short
                raise Damaged(f"a damaged page at byte {begin:,}") from None


def _data_page(
    kind: int,
    about: dict[int, Any],
    begin: int,
    stored: bytes,
    unpacked: int,
    unpack: Unpack | None,
    levels: int,
    words: list[Value],
) -> Iterator[Value | None]:
    count, width = about[1], levels.bit_length()
    if kind == _DATA:
        page, packed, encoding = _unpacked(begin, stored, unpacked, unpack), unpack is not None, about.get(2, -1)
        at, there = 0, [levels] * count
        if levels:
            length = int.from_bytes(page.body[:4], "little")
            there, at = _hybrid(page.body[4 : 4 + length], width, count), 4 + length
    else:
        encoding, before = about.get(4, -1), about.get(5, 0) + about.get(6, 0)
        there = _hybrid(memoryview(stored)[about.get(6, 0) : before], width, count) if levels else [levels] * count
        packed = unpack is not None and bool(about.get(7, 1))
        page = _unpacked(begin + before, stored[before:], unpacked - before, unpack if packed else None)
        at = 0
    present = sum(level == levels for level in there)
    if encoding == _PLAIN:
        found = _plain(page, at, present, packed)
    elif encoding in (_DICTIONARY_INDICES, _OLD_DICTIONARY_INDICES):
        body = page.body[at:]
        numbers = _hybrid(body[1:], body[0], present) if present else []
        if numbers and max(numbers) >= len(words):
            raise Damaged(f"a damaged page at byte {begin:,}")
        found = iter([words[i] for i in numbers])
    else:
        raise Damaged(f"values are encoded by way {encoding} of Parquet, which is not read; write it with pyarrow")
    for level in there:
        yield next(found) if level == levels else None


def _unpacked(begin: int, stored: bytes, length: int, unpack: Unpack | None) -> _Page:
    body = stored if unpack is None or not stored else unpack(stored, length)
    return _Page(begin, len(stored), memoryview(body))


def _plain(page: _Page, at: int, count: int, packed: bool) -> Iterator[Value]:
    """Yield values that are stored one after another, each after its length in four bytes."""
    for _ in range(count):
        length = int.from_bytes(page.body[at : at + 4], "little")
        at += 4
        content = page.body[at : at + length]
        if len(content) < length:
            raise Damaged(f"a damaged page at byte {page.start:,}")
        if packed:
            yield Value(page.start, page.stored, len(page.body), at, content, True)
        else:
            yield Value(page.start + at, length, length, 0, content, False)
        at += length


def _hybrid(body: memoryview, width: int, count: int) -> list[int]:
    """Decode integers of `width` bits: runs of one value, or bit-packed in groups of eight."""
    found: list[int] = []
    at, size = 0, (width + 7) // 8
    while len(found) < count:
        if at >= len(body):
            raise Damaged("a damaged page of numbers")
        head, at = _varint(body, at)
        if head & 1:
            groups = head >> 1
            packed = int.from_bytes(body[at : at + groups * width], "little")
            found += [packed >> (i * width) & ((1 << width) - 1) for i in range(min(8 * groups, count - len(found)))]
            at += groups * width
        else:
            value = int.from_bytes(body[at : at + size], "little")
            found += [value] * min(head >> 1, count - len(found))
            at += size
    return found


def _header(body: bytes) -> tuple[dict[int, Any], int]:
    """Parse a page header into integers and nested structs by field number; also returns its length."""
    try:
        return _struct(memoryview(body), 0)
    except IndexError:
        raise Damaged("a damaged page header") from None


def _struct(body: memoryview, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while head := body[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(body, at)
        fields[number], at = _thrift(body, at, kind)
    return fields, at + 1


def _thrift(body: memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return 2 - kind, at
    if kind == 3:
        return body[at], at + 1
    if kind in (4, 5, 6):
        return _zigzag(body, at)
    if kind == 7:
        return 0, at + 8
    if kind == 8:  # binary: only in statistics, skipped
        length, at = _varint(body, at)
        return 0, at + length
    if kind in (9, 10):
        head = body[at]
        count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(body, at + 1)
        for _ in range(min(count, len(body))):
            _, at = _thrift(body, at, head & 15)
        return 0, at
    if kind == 12:
        return _struct(body, at)
    raise Damaged("a damaged page header")


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = body[at]
        found, shift, at = found | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return found, at
        if shift > 63:
            raise Damaged("a damaged number")


def _zigzag(body: memoryview, at: int) -> tuple[int, int]:
    found, at = _varint(body, at)
    return found >> 1 ^ -(found & 1), at
