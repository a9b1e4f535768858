import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from command_processes import Commands, halting, kill_where_it_halts, together
from drawn_photos import draw_photos
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.cli import main
from dualtemp.encoder.bank import Gathered, bank_of_file, gather_rows
from dualtemp.encoder.embed import embed
from dualtemp.encoder.embedding_file import Columns, write_features
from dualtemp.encoder.embedding_parts import Share, read_share
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.errors import UserError

HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}
# The process stops itself once it has computed so many batches, and a test can kill it there.
STOP = """
import os, signal
from dualtemp.runs.work_file import WorkFile
def append(self, record, append=WorkFile.append, done=[]):
    append(self, record)
    done.append(record)
    if len(done) == {}: os.kill(os.getpid(), signal.SIGSTOP)
WorkFile.append = append
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    started = Commands(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of two classes and of none, some of which cannot be read."""
    folder = tmp_path_factory.mktemp("images") / "some"
    paths = [*draw_photos(folder / "cat", 9), *draw_photos(folder / "dog", 8, 50), *draw_photos(folder, 4, 90)]
    for number in (2, 11, 12, 20):
        paths[number].write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def whole(photos_run: Path, some: Path, tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    """What one process writes into one file."""
    out = tmp_path_factory.mktemp("whole") / "e.parquet"
    return rows(embed(photos_run, data=some, out=out, batch=2, **HOW).path)


def rows(path: Path) -> Gathered:
    return gather_rows(bank_of_file(path).rows)


def assert_same(found: Gathered, expected: Gathered) -> None:
    assert found[:3] == expected[:3]
    assert found.features.numpy().tobytes() == expected.features.numpy().tobytes()


@given(st.integers(0, 1000), st.integers(1, 300), st.integers(1, 50))
def test_parts_are_whole_batches_in_order_and_about_equally_many(count: int, batch: int, parts: int) -> None:
    ranges = [Share(i, parts).images(count, batch) for i in range(parts)]
    assert [i for each in ranges for i in each] == list(range(count))
    assert all(each.start % batch == 0 for each in ranges if each)
    lengths = [-(-len(each) // batch) for each in ranges]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("parts", [1, 3, 16])
def test_a_folder_of_parts_has_the_bits_of_one_file(
    photos_run: Path, some: Path, whole: Gathered, tmp_path: Path, parts: int
) -> None:
    for i in reversed(range(parts)):  # in any order; of 16, some have no batch
        embed(photos_run, data=some, out=tmp_path / "e", batch=2, share=f"{i}/{parts}", **HOW)
    assert_same(rows(tmp_path / "e"), whole)
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == [Share(i, parts).file_name for i in range(parts)]
    # Whoever reads the folder with pyarrow alone sees one table.
    assert pq.read_table(tmp_path / "e").column("name").to_pylist() == whole.names


def test_files_that_cannot_be_read_are_named_again_when_their_part_is_finished(
    photos_run: Path, tmp_path: Path
) -> None:
    paths = draw_photos(tmp_path / "some", 8)
    paths[1].write_bytes(b"broken")
    first, again = (
        embed(photos_run, data=tmp_path / "some", out=tmp_path / "e", batch=2, parts=2, **HOW) for _ in range(2)
    )
    assert (first.resumed, again.resumed) == (0, 7)
    assert list(first.unreadable) == [paths[1].name]
    assert again.unreadable == first.unreadable
    assert again.images == 7


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    """A flat folder of eight images, one of which cannot be read, and labels.csv."""
    paths = draw_photos(tmp_path / "labeled", 8)
    paths[1].write_bytes(b"broken")
    write_labels(tmp_path / "labeled", ["cat", "dog"] * 4)
    return tmp_path / "labeled"


def write_labels(folder: Path, labels: list[str]) -> None:
    names = sorted(path.name for path in folder.glob("*.png"))
    lines = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    (folder / "labels.csv").write_text("\n".join(["file,label", *lines, ""]))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_finished_parts_get_the_labels_of_now_and_keep_their_features(
    photos_run: Path, labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    words: dict[str, Any] = {"data": labeled, "batch": 2, "parts": 5, "dtype": dtype, **HOW}  # one part is empty
    embed(photos_run, out=tmp_path / "e", **words)
    for labels in (["fox", "dog", "cat", "fox"] * 2, None):
        if labels is None:
            (labeled / "labels.csv").unlink()
        else:
            write_labels(labeled, labels)
        fresh = embed(photos_run, out=tmp_path / f"fresh-{labels}", **words)
        notes: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(RunEncoder, "features", None)  # nothing is computed
            again = embed(photos_run, out=tmp_path / "e", note=notes.append, **words)
        assert contents(again.path) == contents(fresh.path)
        assert (again.images, again.resumed, again.unreadable) == (7, 7, fresh.unreadable)
        assert notes == ["7 of 7 rows were computed before", "7 of them were written again, with the present labels"]
        expected = [None] * 7 if labels is None else [labels[0], *labels[2:]]
        assert rows(again.path).labels == expected
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "e").iterdir()}
    embed(photos_run, out=tmp_path / "e", **words)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "e").iterdir()} == before


def test_a_folder_of_parts_with_different_labels_is_refused(photos_run: Path, labeled: Path, tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": labeled, "out": tmp_path / "e", "batch": 2, **HOW}
    embed(photos_run, parts=2, **words)
    (labeled / "labels.csv").unlink()
    embed(photos_run, share="1/2", **words)
    with pytest.raises(UserError, match=r"part-00001-of-00002\.parquet has other labels than part-00000"):
        rows(tmp_path / "e")
    embed(photos_run, share="0/2", **words)
    assert rows(tmp_path / "e").labels == [None] * 7


def test_parts_that_do_not_record_their_labels_are_read_and_get_the_labels_of_now(
    photos_run: Path, labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"data": labeled, "batch": 2, "parts": 2, **HOW}
    fresh = contents(embed(photos_run, out=tmp_path / "fresh", **words).path)
    out = embed(photos_run, out=tmp_path / "e", **words).path
    for path in out.iterdir():  # as earlier versions wrote it
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"dualtemp"])
        del about["labels"]
        pq.write_table(table.replace_schema_metadata({"dualtemp": json.dumps(about)}), path)
    assert rows(out).labels == rows(tmp_path / "fresh").labels
    monkeypatch.setattr(RunEncoder, "features", None)  # nothing is computed
    embed(photos_run, out=out, **{**words, "parts": None}, share="0/2")
    assert rows(out).labels == rows(tmp_path / "fresh").labels, "only one part records its labels"
    embed(photos_run, out=out, **words)
    assert contents(out) == fresh


def test_a_finished_part_whose_features_are_damaged_is_computed_when_labels_change(
    photos_run: Path, labeled: Path, tmp_path: Path
) -> None:
    words: dict[str, Any] = {"data": labeled, "batch": 2, "parts": 2, **HOW}
    out = embed(photos_run, out=tmp_path / "e", **words).path
    first = out / "part-00000-of-00002.parquet"
    content = bytearray(first.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    first.write_bytes(content)
    write_labels(labeled, ["fox"] * 8)
    assert embed(photos_run, out=out, **words).images == 7
    assert contents(out) == contents(embed(photos_run, out=tmp_path / "fresh", **words).path)


def test_images_of_a_set_in_parts_have_the_bits_of_one_file(digits_run: Path, tmp_path: Path) -> None:
    embed(digits_run, out=tmp_path / "e.npz", part="test", batch=100, **HOW)
    embed(digits_run, out=tmp_path / "e", part="test", batch=100, parts=3, **HOW)
    assert_same(rows(tmp_path / "e"), rows(tmp_path / "e.npz"))


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_processes_of_torchrun_share_the_list_and_resume_after_kills(
    commands: Commands, photos_run: Path, some: Path, whole: Gathered, tmp_path: Path, count: int
) -> None:
    out = tmp_path / "e"
    words = ["embed", photos_run, "--data", some, "--out", out, "--batch", "2", "--workers", "0", "--device", "cpu"]
    begun = together(commands, *words, count=count, first=STOP.format(1))
    for command in begun:
        kill_where_it_halts(command)
    with pytest.raises(UserError, match=f"{count} of {count} parts are missing|no features in it"):
        rows(out)
    for command in together(commands, *words, count=count):
        ended = command.wait()
        assert ended.code == 0, ended.err
        assert "continuing: 2 of" in ended.err
    assert_same(rows(out), whole)
    # Nothing is computed twice: the same command finds all parts finished.
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    for command in together(commands, *words, count=count, first=STOP.format(1)):
        assert command.wait().code == 0
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.slow
def test_a_folder_begun_by_four_processes_is_finished_by_one(
    commands: Commands, photos_run: Path, some: Path, whole: Gathered, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    words = ["embed", photos_run, "--data", some, "--out", out, "--batch", "2", "--workers", "0", "--device", "cpu"]
    halves = together(commands, *words, count=4, first=STOP.format(2))
    for command in halves:
        kill_where_it_halts(command)
    ended = commands.run(*words)
    assert ended.code == 0, ended.err
    assert len(list(out.glob("part-*-of-00004.parquet"))) == 4
    assert_same(rows(out), whole)


@pytest.mark.slow
def test_a_part_that_is_killed_while_it_is_written_is_written_again(
    commands: Commands, photos_run: Path, some: Path, whole: Gathered, tmp_path: Path
) -> None:
    words = ["embed", photos_run, "--data", some, "--out", tmp_path / "e", "--batch", "2", "--workers", "0"]
    kill_where_it_halts(commands.start(*words, "--parts", "2", first=halting(".part-00001*")))
    assert [path.name for path in (tmp_path / "e").glob("part*")] == ["part-00000-of-00002.parquet"]
    assert commands.run(*words).code == 0
    assert_same(rows(tmp_path / "e"), whole)
    assert sorted(path.name[:4] for path in (tmp_path / "e").iterdir()) == ["part", "part"]


def test_search_near_duplicates_and_select_read_a_folder_as_one_file(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: Any
) -> None:
    embed(photos_run, data=photos, out=tmp_path / "one.parquet", batch=8, **HOW)
    embed(photos_run, data=photos, out=tmp_path / "several", batch=8, parts=3, **HOW)
    photo = photos / "test/cat/200.png"
    for words in (
        ["search", str(photos_run), str(photo), "--json"],
        ["near-duplicates", str(photos_run), "--threshold", "0.5", "--json"],
    ):
        told = []
        for features in ("one.parquet", "several"):
            assert main([*words, "--embeddings", str(tmp_path / features)]) == 0
            told.append(json.loads(capsys.readouterr().out))
        assert told[0] == told[1]
    for features in ("one.parquet", "several"):
        assert main(["select", str(tmp_path / features), "-n", "3", "--out", str(tmp_path / f"{features}.txt")]) == 0
    assert (tmp_path / "one.parquet.txt").read_text() == (tmp_path / "several.txt").read_text()


def test_a_folder_that_is_not_whole_or_not_of_one_computation_is_refused(
    photos_run: Path, digits_run: Path, photos: Path, tmp_path: Path
) -> None:
    out = embed(photos_run, data=photos, out=tmp_path / "e", batch=8, parts=3, **HOW).path
    middle = out / "part-00001-of-00003.parquet"
    kept = middle.read_bytes()
    middle.unlink()
    with pytest.raises(UserError, match=r"1 of 3 parts are missing, the first is 1: .*--share 1/3"):
        rows(out)
    middle.write_bytes(kept[:-100])
    with pytest.raises(UserError, match=r"part-00001-of-00003\.parquet: cannot be read"):
        rows(out)
    other = embed(photos_run, data=photos, out=tmp_path / "other", batch=4, parts=3, **HOW).path
    shutil.copy(other / middle.name, middle)
    with pytest.raises(UserError, match=r"part-00001-of-00003\.parquet is of other images"):
        rows(out)
    # The command that began it computes that part again, and no other.
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    embed(photos_run, data=photos, out=out, batch=8, **HOW)
    assert [name for name, time in before.items() if (out / name).stat().st_mtime_ns != time] == [middle.name]
    assert middle.read_bytes() == kept
    shutil.copy(middle, out / "part-00000-of-00001.parquet")
    with pytest.raises(UserError, match="parts of 1 and of 3"):
        rows(out)


@pytest.mark.parametrize("name", ["e.parquet", "e.npz", "e"])
def test_float16_is_half_the_size_and_rounds_each_feature(
    photos_run: Path, photos: Path, tmp_path: Path, name: str
) -> None:
    full = rows(embed(photos_run, data=photos, out=tmp_path / f"full-{name}", **HOW).path)
    half = rows(embed(photos_run, data=photos, out=tmp_path / name, dtype="float16", **HOW).path)
    assert half[:3] == full[:3]
    assert (half.features.numpy() == full.features.numpy().astype(np.float16).astype(np.float32)).all()


def test_a_feature_that_float16_cannot_hold_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="a feature of 70000 does not fit into float16"),
        open(tmp_path / "e", "wb") as file,
    ):
        write_features(file, ".npz", Columns(["a"], None, (), None, ()), [np.full((1, 2), 7e4, "f4")], 2, {}, "float16")


@pytest.mark.parametrize("name", ["e.parquet", "e"])
def test_features_that_float16_cannot_hold_are_kept_for_the_same_command_without_it(
    photos_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    draw_photos(tmp_path / "some", 6)
    words: dict[str, Any] = {"data": tmp_path / "some", "batch": 2, **HOW}
    computed = RunEncoder.features

    def large(self: RunEncoder, *given: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index, features in computed(self, *given):
            yield index, features * 1e9

    monkeypatch.setattr(RunEncoder, "features", large)
    fresh = rows(embed(photos_run, out=tmp_path / f"fresh-{name}", **words).path)
    with pytest.raises(UserError, match="does not fit into float16: leave --dtype out"):
        embed(photos_run, out=tmp_path / name, dtype="float16", **words)
    monkeypatch.setattr(RunEncoder, "features", None)  # nothing is computed
    made = embed(photos_run, out=tmp_path / name, **words)
    assert (made.images, made.resumed) == (6, 6)
    assert_same(rows(made.path), fresh)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "e.parquet", "--share", "0/2"], "give --out a name without an ending, such as e"),
        (["--out", "e.npz", "--parts", "2"], "name without an ending"),
        (["--out", "e", "--share", "2/2"], "the parts of 2 are 0/2 to 1/2"),
        (["--out", "e", "--share", "two"], "such as 0/8 for the first of eight"),
        (["--out", "e", "--share", "0/0"], "from 1 to 99,999"),
        (["--out", "e", "--share", "-1/2"], "--share"),
        (["--out", "e", "--parts", "0"], "from 1 to 99,999"),
        (["--out", "e", "--parts", "1000000"], "from 1 to 99,999"),
        (["--out", "e", "--parts", "2", "--share", "0/2"], "leave --parts and torchrun out"),
        (["--out", "e.csv", "--dtype", "float16"], "take .parquet or .npz"),
        (["--out", "others"], "others has other files in it"),
        (["--out", "begun", "--parts", "4"], "divided into 3 parts already"),
    ],
)
def test_mistakes_are_one_line(
    photos_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("others/note.txt", "begun/part-00000-of-00003.parquet"):
        Path(name).parent.mkdir()
        Path(name).touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(["embed", str(photos_run), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1 or "usage" in error
    assert sorted(tmp_path.rglob("*")) == before


@given(st.text(max_size=12))
def test_whatever_is_given_as_a_share_is_read_or_refused(text: str) -> None:
    try:
        share = read_share(text)
    except UserError:
        return
    assert 0 <= share.part < share.parts
    assert text.split("/") == [text.split("/")[0], text.split("/")[1]]
