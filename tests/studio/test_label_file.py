"""Labels in a plain file: whole before a change counts, kept for images that are not on show, undone."""

import csv
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.data.sources.label_file import read_label_file
from dualtemp.encoder.label_file import labels_by_name
from dualtemp.errors import UserError
from dualtemp.studio.label_file import Entry, LabelFile, valid_word

NAMES = ["a.png", "b, with a comma.png", 'c "quoted".png', "d\nline.png", "é.png"]


def rows(path: Path) -> dict[str, tuple[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return {row["name"]: (row["label"], row["tags"]) for row in csv.DictReader(file)}


def test_labels_and_tags_are_a_csv_file_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    file = LabelFile(path, NAMES)
    assert file.set_label([0, 1, 3], "cat").version == 1
    file.add_tag([1, 2], "night")
    file.add_tag([1], "blurred")
    assert rows(path) == {
        "a.png": ("cat", ""),
        NAMES[1]: ("cat", "blurred|night"),
        NAMES[2]: ("", "night"),
        NAMES[3]: ("cat", ""),
    }
    again = LabelFile(path, NAMES)
    assert again.entries == file.entries
    assert again.entry(1) == Entry("cat", ("blurred", "night"))
    again.set_label([0, 1, 3], None)
    again.remove_tag([2], "night")
    assert list(rows(path)) == [NAMES[1]]


def test_undo_takes_changes_back_one_by_one_in_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    file = LabelFile(path, NAMES)
    file.set_label([0, 1], "cat")
    file.set_label([1, 2], "dog")
    change = file.undo()
    assert change is not None
    assert change.entries == {1: Entry("cat"), 2: Entry()}
    assert {name: label for name, (label, _) in rows(path).items()} == {"a.png": "cat", NAMES[1]: "cat"}
    file.undo()
    assert rows(path) == {}
    assert file.undo() is None
    assert file.version == 4


def test_what_changes_nothing_is_no_step(tmp_path: Path) -> None:
    file = LabelFile(tmp_path / "labels.csv", NAMES)
    file.set_label([0], "cat")
    assert file.set_label([0], "cat").entries == {}
    assert file.version == 1
    file.undo()
    assert file.entries == {}


def test_rows_of_other_images_and_of_other_programs_stay(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("name,label,tags\nelsewhere.png,owl,\na.png,cat,\n")
    file = LabelFile(path, NAMES)
    file.set_label([4], "dog")
    assert rows(path)["elsewhere.png"] == ("owl", "")
    path.write_text("name,label\na.png,lion\nelsewhere.png,eagle\n")  # an editor's, without the column of tags
    os.utime(path, ns=(1, 1))
    change = file.set_label([1], "mouse")
    assert change.reread
    assert rows(path) == {"a.png": ("lion", ""), NAMES[1]: ("mouse", ""), "elsewhere.png": ("eagle", "")}


def test_columns_of_others_and_rows_without_a_label_stay_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(
        "name,photographer,label,taken\nz.png,Ada,,2024\na.png,Bo,cat,\né.png,,,\nelsewhere.png,,,\n\nshort.png\n"
    )
    file = LabelFile(path, NAMES)
    assert file.entries == {0: Entry("cat")}
    file.set_label([0], None)
    file.set_label([1], "dog")
    file.set_label([4], "owl")
    file.undo()
    assert path.read_text().splitlines() == [
        "name,photographer,label,taken,tags",
        "z.png,Ada,,2024,",
        "a.png,Bo,,,",
        "é.png,,,,",
        "elsewhere.png,,,,",
        "",
        "short.png,,,,",
        '"b, with a comma.png",,dog,,',
    ]
    again = LabelFile(path, NAMES)
    assert again.labels() == {1: "dog"}
    while again.undo():
        pass
    assert again.labels() == {0: "cat"}
    assert "a.png,Bo,cat,," in path.read_text().splitlines()


@given(
    st.lists(st.lists(st.text('ab,"\n|', max_size=3), min_size=1, max_size=6), max_size=6),
    st.permutations(["label", "tags", "mine"]),
    st.sampled_from(NAMES),
)
def test_a_label_changes_no_other_row_and_no_other_cell(
    tmp_path_factory: pytest.TempPathFactory, others: list[list[str]], columns: list[str], name: str
) -> None:
    path = tmp_path_factory.mktemp("tables") / "labels.csv"
    before = [["name", *columns], *others, [name, "mine", "mine", "mine"]]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(before)
    LabelFile(path, NAMES).set_label([NAMES.index(name)], "dog")
    with open(path, newline="", encoding="utf-8") as file:
        after = list(csv.reader(file))
    before[-1][1 + columns.index("label")] = "dog"
    assert sorted(before) == sorted(after)
    assert after[0] == before[0]


def test_a_change_that_cannot_be_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "labels.csv"
    file = LabelFile(path, NAMES)
    file.set_label([0], "cat")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        for change in (lambda: file.set_label([1], "dog"), file.undo):
            with pytest.raises(OSError, match="No space"):
                change()
    assert path.read_bytes() == before
    assert file.labels() == {0: "cat"}
    assert file.version == 1
    file.set_label([1], "dog")
    assert LabelFile(path, NAMES).labels() == {0: "cat", 1: "dog"}


@pytest.mark.parametrize("content", ["", "x,y\n1,2\n", "name\na\n", "\x00", b"name,label\n\xff\xfe,\n"])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match="labels") as refused:
        LabelFile(path, NAMES)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=300))
def test_every_valid_word_survives_the_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    word = valid_word(text)
    if word is None:
        return
    path = tmp_path_factory.mktemp("words") / "labels.csv"
    file = LabelFile(path, NAMES)
    file.set_label([3], word)
    file.add_tag([3], word)
    assert LabelFile(path, NAMES).entry(3) == Entry(word, (word,))


def test_other_commands_read_the_file(tmp_path: Path) -> None:
    path, names = tmp_path / "labels.csv", ["a.png", "b.png", "c.png"]
    file = LabelFile(path, names)
    file.set_label([0, 2], "cat")
    file.add_tag([1], "night")
    assert labels_by_name(path, names) == ["cat", None, "cat"]  # select
    assert read_label_file(path, names) == {"a.png": "cat", "c.png": "cat"}  # train, evaluate, predict
