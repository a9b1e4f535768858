import os
from pathlib import Path

from dualtemp.training.unreadable_files import read_unreadable, write_unreadable


def test_what_is_listed_is_read_back_also_where_names_and_reasons_have_colons(tmp_path: Path) -> None:
    listed = {"a.png": "cut short", "b: c.png": "not an image", "d.heic": "a HEIC picture: convert it", "e: f": "g: h"}
    assert read_unreadable(tmp_path) == {}
    write_unreadable(tmp_path, listed)
    assert read_unreadable(tmp_path, ["a.png", "x: y", *listed]) == listed


def test_a_name_that_is_no_plain_text_is_read_back_and_not_listed_a_second_time(tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9.png"), "two\nlines.png", "form\x0cfeed", "next\x85.png", "re\rturn", "caf\xe9.png"]
    listed = dict.fromkeys(names, "cut short")
    write_unreadable(tmp_path, listed)
    text = (tmp_path / "unreadable.txt").read_bytes()
    assert text.count(b"\n") == len(names)
    before = read_unreadable(tmp_path, names)
    assert before == listed
    write_unreadable(tmp_path, {**before, **listed})  # as a resumed run does that meets the files again
    assert (tmp_path / "unreadable.txt").read_bytes() == text
