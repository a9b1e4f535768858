"""Exports: tables that other readers read, class folders as links and copies, columns from files."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from served_studio import ServedStudio, serve, unpacked, write_embeddings

from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.errors import UserError
from dualtemp.studio.class_folders import folder_name
from dualtemp.studio.columns import NO_CODE, read_columns
from dualtemp.studio.opening import open_for_studio
from dualtemp.studio.space import make_space


def test_tables_say_what_was_said_and_open_again(studio: ServedStudio, drawn_images: Path, tmp_path: Path) -> None:
    studio.ask("/api/label", {"ids": [2, 3], "label": "=cmd()"})
    studio.ask("/api/tag", {"ids": [3], "tag": "odd"})
    studio.until(lambda: studio.workspace.probe.predictions is not None)
    rows = list(csv.DictReader(io.StringIO(studio.ask("/api/export.csv").body.decode())))
    names = studio.workspace.shown.images.names
    assert [row["name"] for row in rows] == names
    assert rows[3]["label"] == "'=cmd()", "no formula for a spreadsheet"
    assert rows[3]["tags"] == "odd"
    assert Path(rows[3]["filepath"]) == drawn_images.resolve() / names[3]
    content = studio.ask("/api/export.parquet").body
    table = pq.read_table(io.BytesIO(content)).to_pydict()
    assert table["label"][2] == "=cmd()"
    assert table["tags"][3] == ["odd"]
    assert set(table["prediction"]) <= {"blue", "green", "red", "=cmd()"}
    np.testing.assert_array_equal(np.array(table["features"], np.float32), studio.workspace.space.features)
    (tmp_path / "again.parquet").write_bytes(content)
    assert EmbeddingFile(tmp_path / "again.parquet").width == 16
    assert open_for_studio(str(tmp_path / "again.parquet"), str(drawn_images)).title == "again"


def test_class_folders_are_links_or_copies_below_the_folder_of_the_command_line(
    studio: ServedStudio, drawn_images: Path, tmp_path: Path
) -> None:
    studio.ask("/api/label", {"ids": [1, 2], "label": "../up/and away"})
    for copies in (False, True):
        job = studio.finish_job(studio.ask("/api/export/folders", {"copy_files": copies}))
        assert job["state"] == "done", job
    linked, copied = tmp_path / "export" / "classes-1", tmp_path / "export" / "classes-2"
    names = studio.workspace.shown.images.names
    for folder in (linked, copied):
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        assert len(files) == 60
        assert {path.parent.name for path in files.values()} == {"blue", "green", "red", "_up_and away"}
        assert all(path.read_bytes() == (drawn_images / path.name).read_bytes() for path in files.values())
        assert all(path.is_symlink() == (folder is linked) for path in files.values())
        assert f"_up_and away/{names[1]}" in files
    assert sorted(each.name for each in tmp_path.iterdir()) == [".labels.csv.undo", "export", "labels.csv"]


@pytest.mark.parametrize("label", ["..", ".", "/", "a/b", "\\", "x" * 500, "con:", "\N{SNOWMAN}" * 300])
def test_a_label_is_one_folder(label: str) -> None:
    name = folder_name(label)
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert len(name.encode()) <= 200


def test_columns_of_a_file_color_the_map(embeddings: Path, drawn_images: Path, tmp_path: Path) -> None:
    names = sorted(each.name for each in drawn_images.iterdir())
    table = tmp_path / "more.csv"
    lines = [
        f'"elsewhere/{name}",{number / 7},{"day" if number % 2 else ""},{number % 3}'
        for number, name in enumerate(names[:40])
    ]
    table.write_text("path,brightness,when,camera\n" + "\n".join(lines) + "\n")
    with serve(embeddings, tmp_path, columns=table) as studio:
        columns = {each["title"]: each for each in studio.ask("/api/state").json()["columns"]}
        assert (columns["brightness"]["kind"], columns["when"]["kind"], columns["camera"]["kind"]) == (
            "number",
            "category",
            "category",
        )
        _, values = unpacked(studio.ask(f"/api/columns/{columns['brightness']['id']}").body, "<f4")
        np.testing.assert_allclose(values[:40], np.arange(40) / 7, rtol=1e-6)
        assert np.isnan(values[40:60]).all()
        head, codes = unpacked(studio.ask(f"/api/columns/{columns['when']['id']}").body, "<u2")
        assert head["categories"] == ["day"]
        assert codes[:4].tolist() == [NO_CODE, 0, NO_CODE, 0]


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "name,x\nnowhere.png,1\n", "name,x\na\n", "name,name\n1,2\n"])
def test_a_file_of_columns_that_does_not_fit_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(content)
    with pytest.raises(UserError) as refused:
        read_columns(path, ["x/a.png", "b.png"])
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_row_of_another_folder_is_not_taken_for_an_image_of_the_same_file_name(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    rows = {
        "cats/1.jpg": 1.5,
        "dogs/1.jpg": 9.5,
        "/home/me/cats/2.jpg": 2.5,
        "3.jpg": 3.5,
        "x/4.jpg": 4.5,
        "y/4.jpg": 8.5,
    }
    path.write_text("name,score\n" + "".join(f"{name},{score}\n" for name, score in rows.items()))
    names = ["cats/1.jpg", "cats/2.jpg", "birds/3.jpg", "4.jpg"]
    (column,) = read_columns(path, names)
    np.testing.assert_array_equal(column.values, np.array([1.5, 2.5, 3.5, np.nan], np.float32))


def test_nan_among_numbers_is_no_value_and_among_words_a_word(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("name,score,word\na,0.5,x\nb,nan,nan\nc,inf,y\nd,1.25,y\n")
    score, word = read_columns(path, ["a", "b", "c", "d"])
    assert score.kind == "number"
    np.testing.assert_array_equal(score.values, np.array([0.5, np.nan, np.nan, 1.25], np.float32))
    assert word.categories == ["nan", "x", "y"]
    pq.write_table(pa.table({"name": ["a", "b"], "score": [0.5, float("nan")]}), tmp_path / "c.parquet")
    (column,) = read_columns(tmp_path / "c.parquet", ["a", "b"])
    assert column.kind == "number"


def test_labels_that_differ_have_folders_that_differ(studio: ServedStudio, tmp_path: Path) -> None:
    for number, label in enumerate(("1/2", "1_2", "1:2")):
        studio.ask("/api/label", {"ids": [number], "label": label})
    job = studio.finish_job(studio.ask("/api/export/folders", {"ids": [0, 1, 2]}))
    assert job["state"] == "done", job
    names = studio.workspace.shown.images.names
    files = {path.parent.name: path.name for path in (tmp_path / "export").rglob("*.png")}
    assert files == {"1_2": names[1], "1_2-2": names[0], "1_2-3": names[2]}


def test_all_of_a_large_group_of_duplicates_is_told_with_the_cosines_by_which_it_was_found(
    drawn_images: Path, tmp_path: Path
) -> None:
    names = sorted(each.name for each in drawn_images.iterdir())
    names += [f"gone-{name}" for name in names]
    write_embeddings(tmp_path / "same.npz", drawn_images, names, [0] * 120, ("one",))
    with serve(tmp_path / "same.npz", tmp_path) as studio:
        shown = studio.workspace.shown
        shown.spaces[0].features[:] = shown.spaces[0].features[0]
        studio.finish_job(studio.ask("/api/duplicates", {"threshold": 0.99}))
        other = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
        studio.workspace.add_space(make_space("another encoder", None, other))
        (group,) = studio.ask("/api/duplicates/found").json()["groups"]
    assert sorted(group["members"]) == list(range(120))
    assert group["s"] == 1.0
