"""Labels from a CSV file: what they mean for a folder, and every mistake in one line."""

import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from drawn_photos import draw_photos
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.config import settings as make_settings
from dualtemp.data import open_source
from dualtemp.data.sources.label_file import read_label_file
from dualtemp.encoder.image_list import listed
from dualtemp.errors import UserError
from dualtemp.training.run_data import open_data, resolve_data

NAMES = [f"{number:03}.png" for number in range(24)]
LABELS = {name: ("cat", "dog")[number % 2] for number, name in enumerate(NAMES[:20])}  # four have none


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A flat folder of 24 images, 20 of them in labels.csv."""
    root = tmp_path / "flat"
    draw_photos(root, 24)
    (root / "labels.csv").write_text("file,label\n" + "".join(f"{name},{label}\n" for name, label in LABELS.items()))
    return root


def label_names(images) -> dict[str, str]:
    return {
        name: images.classes[label] for name, label in zip(images.source.names, images.labels.tolist(), strict=True)
    }


def test_a_flat_folder_with_a_labels_csv_has_labels_and_the_rest_is_unlabelled(flat: Path) -> None:
    splits = open_source(flat)
    assert splits.test is not None
    assert splits.unlabeled is not None
    assert label_names(splits.train) | label_names(splits.test) == LABELS
    assert sorted(label_names(splits.test).values()) == ["cat", "dog"]  # a tenth of each class
    assert list(splits.unlabeled.source.names) == NAMES[20:]
    assert splits.unlabeled.labels is None
    assert open_source(flat, labels=False).train.labels is None


@pytest.mark.parametrize(("of_file", "of_cell"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_an_accent_may_be_a_letter_of_its_own_or_not(of_file: Any, of_cell: Any, tmp_path: Path) -> None:
    name, cell = (unicodedata.normalize(way, "été/ñandú.png") for way in (of_file, of_cell))
    assert name != cell
    (tmp_path / "labels.csv").write_text(f"file,label\n{cell},bird\n", encoding="utf-8")
    assert read_label_file(tmp_path / "labels.csv", [name]) == {name: "bird"}
    (tmp_path / "labels.csv").write_text(f"file,label\n{cell},bird\n{name},bird\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 2 and on line 3"):
        read_label_file(tmp_path / "labels.csv", [name])


def test_a_list_of_images_has_the_same_labels_and_parts(flat: Path) -> None:
    found, splits = listed(flat), open_source(flat)
    assert {name: found.label(i) for i, name in enumerate(found.names) if found.label(i)} == LABELS
    assert splits.test is not None
    assert [name for i, name in enumerate(found.names) if found.part(i) == "test"] == list(splits.test.source.names)


def test_a_given_file_comes_before_class_folders(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    for start, label in ((0, "a"), (10, "b")):
        draw_photos(root / label, 10, first=start)
    names = listed(root).names
    other = tmp_path / "other.csv"
    other.write_text("label;file\n" + "".join(f"{('x', 'y')[i % 2]};{name}\n" for i, name in enumerate(names)))
    assert listed(root).images.classes == ("a", "b")
    found = listed(root, labels_from=other)
    assert [found.label(i) for i in range(4)] == ["x", "y", "x", "y"]
    (root / "labels.csv").write_text("file,label\n")  # beside class folders it is not looked at
    assert open_source(root).train.classes == ("a", "b")


def test_a_new_run_writes_down_its_label_file_and_an_old_one_goes_on_without(flat: Path) -> None:
    new = resolve_data(make_settings({"data": str(flat)}))
    assert new.labels_from == str(flat.resolve() / "labels.csv")
    assert open_data(new).train.classes == ("cat", "dog")
    old = new.model_copy(update={"labels_from": None})  # begun before there was such a file
    assert open_data(old).train.labels is None
    assert len(open_data(old).train) == 22
    with pytest.raises(UserError, match="one of the two"):
        resolve_data(make_settings({"data": str(flat), "labels": False, "labels_from": "x.csv"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is empty"),
        ("file,label\n", "no image has a label"),
        ("file,label\n000.png,\n", "no image has a label"),
        ("file,colour\n000.png,red\n", "no column is called 'label'"),
        ("picture,label\n000.png,red\n", "no column is called 'file'"),
        ("file,label\n000.png,a\n000.png,b\n", "000.png is on line 2 and on line 3"),
        ("file,label\n000.png,a\nnone.png,b\nnever.png,b\n", r"line 3: none.png and 1 more files not among the 24"),
        ("file,label\n000.png,a\n001.png\n", "line 3: 1 column;"),
        ('file,label\n"000.png,a\n', "line 2: "),
        (b"file,label\n\xff\xfe,a\n", "not text in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_mistake_is_one_line(flat: Path, content: str | bytes | None, message: str) -> None:
    path = flat / "labels.csv"
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for open_it in (open_source, listed):
        with pytest.raises(UserError, match=message) as raised:
            open_it(flat, labels_from=path)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("head", ["file,label\n", ""])
def test_labels_of_files_in_formats_that_cannot_be_read_are_dropped(flat: Path, head: str) -> None:
    (flat / "IMG_1.HEIC").write_bytes(b"x")
    path = flat / "labels.csv"
    path.write_text(f"{head}IMG_1.HEIC,owl\n000.png,cat\n001.png,dog\n")
    for labels_from in ("auto", path):
        found = listed(flat, labels_from=labels_from)
        assert {name: found.label(i) for i, name in enumerate(found.names) if found.label(i)} == {
            "000.png": "cat", "001.png": "dog"
        }  # fmt: skip
        assert set(found.foreign) == {"IMG_1.HEIC"}
        assert open_source(flat, labels_from=labels_from).train.classes == ("cat", "dog")
    path.write_text("file,label\nIMG_1.HEIC,owl\nIMG_1.heic,owl\n")
    with pytest.raises(UserError, match=r"line 3: IMG_1\.heic not among the 24 images"):
        open_source(flat)
    path.write_text("file,label\nIMG_1.HEIC,owl\n")
    with pytest.raises(UserError, match="no image that can be read has a label"):
        open_source(flat)


def test_sets_and_npz_files_take_no_label_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has its own labels"):
        open_source("digits", labels_from=tmp_path / "labels.csv")


@pytest.mark.parametrize(
    "content",
    [
        "000.png,a\n001.png,b\n",
        "\ufefflabel\tfile\tnote\na\t./000.png\tx\nb\t001.png\ty\n",
        '"file";"label"\r\n"000.png";"a"\r\n\r\n"001.png";"b"\r\n',
        "FileName,Class\n000.png, a \n001.png,b",
    ],
)
def test_common_ways_to_write_it_are_read(flat: Path, content: str) -> None:
    (flat / "own.csv").write_bytes(content.encode())
    assert read_label_file(flat / "own.csv", NAMES) == {"000.png": "a", "001.png": "b"}


@settings(max_examples=60, deadline=None)
@given(content=st.one_of(st.binary(max_size=60), st.text("fileabl,;\n\r\t\"'0.png", max_size=60).map(str.encode)))
def test_whatever_is_in_the_file_it_is_labels_or_one_line(content: bytes, tmp_path_factory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    try:
        found, said = read_label_file(path, NAMES), ""
    except UserError as error:
        found, said = {"000.png": "none"}, str(error)
    assert "\n" not in said
    assert found
    assert set(found) <= set(NAMES)
    assert all(found.values())


@pytest.mark.parametrize("name", ["a\\b.png", " begins with a space.png"])
def test_a_file_name_of_odd_letters_can_be_listed_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(f'file,label\n"{name}",a\n')
    assert read_label_file(tmp_path / "labels.csv", [name, "other.png"]) == {name: "a"}


def test_a_file_name_that_is_no_text_is_read_as_commands_write_it(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    (tmp_path / "labels.csv").write_text("name,label\ncaf\\xe9.png,a\nother.png,b\n")
    assert read_label_file(tmp_path / "labels.csv", [name, "other.png"]) == {name: "a", "other.png": "b"}


def test_empty_lines_before_the_first_do_not_hide_what_separates(flat: Path) -> None:
    (flat / "own.csv").write_text("\n\nfile;label\n000.png;a, b\n")
    assert read_label_file(flat / "own.csv", NAMES) == {"000.png": "a, b"}
