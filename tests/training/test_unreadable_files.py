from pathlib import Path

from dualtemp.training.unreadable_files import read_unreadable, write_unreadable


def test_what_is_listed_is_read_back_also_where_names_and_reasons_have_colons(tmp_path: Path) -> None:
    listed = {"a.png": "cut short", "b: c.png": "not an image", "d.heic": "a HEIC picture: convert it", "e: f": "g: h"}
    assert read_unreadable(tmp_path) == {}
    write_unreadable(tmp_path, listed)
    assert read_unreadable(tmp_path, ["a.png", "x: y", *listed]) == listed
