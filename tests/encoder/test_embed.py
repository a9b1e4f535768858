import csv
import json
import os
import signal
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from command_processes import Commands, kill_where_it_halts
from drawn_photos import draw_photos, drawn_photo
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.loading.decode import NotRead
from dualtemp.data.sources.npz import write_npz
from dualtemp.encoder import embedding_file
from dualtemp.encoder.embed import Embedded, embed
from dualtemp.encoder.embedding_file import Columns, write_features
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.search import search
from dualtemp.errors import UserError
from dualtemp.runs.work_file import Record, WorkFile

ENDINGS = (".parquet", ".npz", ".csv")
HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}


def contents(path: Path) -> dict[str, Any]:
    """Names, parts, labels and features, read without dualtemp."""
    if path.suffix == ".parquet":
        table = pq.read_table(path).to_pydict()
        rows = np.array(table["features"], np.float32)
        return {"name": table["name"], "part": table.get("part"), "label": table.get("label"), "features": rows}
    if path.suffix == ".npz":
        arrays = np.load(path, allow_pickle=False)
        labels = [arrays["classes"][i] for i in arrays["labels"]] if "labels" in arrays else None
        parts = arrays["parts"].tolist() if "parts" in arrays else None
        return {"name": arrays["names"].tolist(), "part": parts, "label": labels, "features": arrays["features"]}
    with open(path, newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    texts = {word: [line[word] for line in lines] if word in lines[0] else None for word in ("name", "part", "label")}
    values = [[value for key, value in line.items() if key[0] == "f"] for line in lines]
    return {**texts, "features": np.array(values, dtype=np.float32)}


def interrupted(after: int, **words: Any) -> None:
    """`embed`, stopped once so many images are done."""

    def told(done: int, _: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(**words, progress=told)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_row_is_a_file_in_the_order_of_names_with_its_part_and_class(
    photos_run: Path, photos: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "new" / f"features{ending}"
    assert main(["embed", str(photos_run), "--out", str(out), "--batch", "7", "--workers", "0"]) == 0
    files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*"))
    found = contents(out)
    assert found["name"] == files
    assert found["part"] == [name.split("/")[0] for name in files]
    assert found["label"] == [name.split("/")[1] for name in files]
    encoder = run_encoder(photos_run, "cpu")
    splits = open_source(str(photos))
    for part, images in (("train", splits.train), ("test", splits.test)):
        assert images is not None
        expected = torch.cat([features for _, features in encoder.features(images, workers=0)])
        here = found["features"][[name == part for name in found["part"]]]
        np.testing.assert_allclose(here, expected, atol=1e-5, rtol=1e-5)
    assert list(out.parent.iterdir()) == [out]


def test_all_formats_hold_the_same_bits(digits_run: Path, tmp_path: Path) -> None:
    found = [contents(embed(digits_run, out=tmp_path / f"e{ending}", part="test", **HOW).path) for ending in ENDINGS]
    for other in found[1:]:
        assert all(other[word] == found[0][word] for word in ("name", "part", "label"))
        assert np.array_equal(other["features"], found[0]["features"])


def test_one_part_of_a_set_can_be_taken(digits_run: Path, tmp_path: Path) -> None:
    test = open_source("digits").test
    assert test is not None
    assert test.labels is not None
    made = embed(digits_run, data="digits", out=tmp_path / "e.npz", part="test", **HOW)
    found = contents(made.path)
    assert made == Embedded(tmp_path / "e.npz", len(test), found["features"].shape[1], {}, 0)
    assert set(found["part"]) == {"test"}
    assert [int(label) for label in found["label"]] == test.labels.tolist()
    assert found["name"] == sorted(found["name"])


def test_an_npz_file_keeps_its_own_order(digits_run: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    write_npz(tmp_path / "set.npz", pixels, np.arange(40) % 3, ("a", "b", "c"))
    found = contents(embed(digits_run, data=tmp_path / "set.npz", out=tmp_path / "e.npz", **HOW).path)
    images = ImageSet("set", torch.from_numpy(pixels).permute(0, 3, 1, 2), channels=1)
    expected = next(iter(run_encoder(digits_run, "cpu").features(images)))[1]
    assert found["name"] == [f"{i:02}" for i in range(40)]
    assert found["label"] == ["abc"[i % 3] for i in range(40)]
    assert found["part"].count("test") == 3  # one of 14, 13, 13 each
    np.testing.assert_allclose(found["features"], expected, atol=1e-6)


def test_files_beside_class_folders_and_hidden_parts_are_there_too(photos_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    draw_photos(folder / "cat", 3)
    draw_photos(folder, 2, first=50)
    found = contents(embed(photos_run, data=folder, out=tmp_path / "e.csv", **HOW).path)
    assert found["name"] == ["050.png", "051.png", "cat/000.png", "cat/001.png", "cat/002.png"]
    assert found["label"] is None


def test_unreadable_files_are_left_out_counted_and_named(
    photos_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = draw_photos(tmp_path / "some", 9)
    for number in (3, 4, 8):
        paths[number].write_bytes(b"broken")
    out = tmp_path / "e.csv"
    words = ["embed", str(photos_run), "--data", str(tmp_path / "some"), "--out", str(out), "--workers", "0"]
    for batch in ("2", "256"):  # with 2, images 8 and 4 stand alone in their batches
        assert main([*words, "--batch", batch]) == 0
        told = capsys.readouterr().out
        assert contents(out)["name"] == [f"{i:03}.png" for i in (0, 1, 2, 5, 6, 7)]
        assert "6 images" in told
        assert "3 files could not be read" in told
        assert all(f"00{i}.png: not an image" in told for i in (3, 4, 8))


def test_photographs_of_formats_that_are_not_read_are_counted_and_named(
    photos_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = draw_photos(tmp_path / "some", 5)
    paths[1].write_bytes(b"broken")
    for name in ("holiday.HEIC", "raw.cr2"):
        (tmp_path / "some" / name).write_bytes(b"foreign")
    data = ["--data", str(tmp_path / "some"), "--workers", "0"]
    for words in (
        ["embed", str(photos_run), "--out", str(tmp_path / "e.csv")],
        ["search", str(photos_run), str(paths[0]), "--out", str(tmp_path / "s.html")],
        ["near-duplicates", str(photos_run)],
    ):
        assert main([*words, *data]) == 0
        told = capsys.readouterr().out
        assert "3 files could not be read" in told
        assert all(f"  {name}: " in told for name in ("001.png", "holiday.HEIC", "raw.cr2"))
        assert "convert it to JPEG or PNG" in told
    assert contents(tmp_path / "e.csv")["name"] == ["000.png", "002.png", "003.png", "004.png"]


def test_of_a_part_its_own_photographs_are_named(photos_run: Path, tmp_path: Path) -> None:
    for part in ("train", "test"):
        draw_photos(tmp_path / "some" / part / "cat", 3)
        (tmp_path / "some" / part / "cat" / "x.heic").write_bytes(b"foreign")
    made = embed(photos_run, data=tmp_path / "some", out=tmp_path / "e.csv", part="test", **HOW)
    assert list(made.unreadable) == ["test/cat/x.heic"]


@pytest.mark.parametrize("command", ["embed", "search", "near-duplicates"])
def test_a_folder_of_foreign_photographs_alone_is_refused_by_their_names(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "some").mkdir()
    for name in ("b.heic", "a.heic"):
        (tmp_path / "some" / name).write_bytes(b"foreign")
    more = {"embed": ["--out", str(tmp_path / "e.csv")], "search": [str(photos / "test" / "dog" / "300.jpg")]}
    assert main([command, str(photos_run), *more.get(command, []), "--data", str(tmp_path / "some")]) == 2
    told = capsys.readouterr().err
    assert "none of 2 image files can be read, the first a.heic: " in told
    assert told.count("\n") == 1


def test_if_no_file_can_be_read_nothing_is_written(photos_run: Path, tmp_path: Path) -> None:
    for path in draw_photos(tmp_path / "some", 3):
        path.write_bytes(b"broken")
    with pytest.raises(UserError, match=r"none of 3 images .* 000\.png"):
        embed(photos_run, data=tmp_path / "some", out=tmp_path / "e.npz", **HOW)
    assert [path.name for path in tmp_path.iterdir()] == ["some"]


@pytest.fixture(scope="module")
def undisturbed(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return {
        ending: embed(digits_run, out=folder / f"e{ending}", part="test", batch=50, **HOW).path.read_bytes()
        for ending in ENDINGS
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_stopped_anywhere_it_goes_on_to_the_same_bits(
    digits_run: Path, tmp_path: Path, undisturbed: dict[str, bytes], ending: str
) -> None:
    out, notes = tmp_path / f"e{ending}", []
    words = {"run": digits_run, "out": out, "part": "test", "batch": 50, **HOW}
    interrupted(150, **words)
    assert not out.exists()
    interrupted(300, **words)
    made = embed(**words, note=notes.append)
    assert made.resumed == 300
    assert notes == ["continuing: 300 of 359 images are done"]
    assert out.read_bytes() == undisturbed[ending]
    assert list(tmp_path.iterdir()) == [out]


@settings(max_examples=12)
@given(st.floats(0, 1), st.integers(0, 3))
def test_whatever_a_crash_leaves_of_the_work_file_the_bits_are_the_same(
    digits_run: Path, tmp_path: Path, undisturbed: dict[str, bytes], share: float, zeros: int
) -> None:
    out = tmp_path / "e.npz"
    work = tmp_path / ".e.npz.work"
    words = {"run": digits_run, "out": out, "part": "test", "batch": 50, **HOW}
    interrupted(359, **words)
    content = work.read_bytes()
    # A file system may lose the end, or keep its length and lose its content.
    work.write_bytes(content[: round(share * len(content))] + bytes(zeros * 40))
    embed(**words)
    assert out.read_bytes() == undisturbed[".npz"]


HALT = """
import os, signal
from dualtemp.runs.work_file import WorkFile
append, left = WorkFile.append, {records}
def append_and_halt(*words):
    global left
    append(*words)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
WorkFile.append = append_and_halt
"""


def test_killed_processes_go_on_to_the_same_bits(photos_run: Path, tmp_path: Path, commands: Commands) -> None:
    folder, out, whole = tmp_path / "some", tmp_path / "e.parquet", tmp_path / "whole.parquet"
    draw_photos(folder, 60)
    words = ("embed", photos_run, "--data", folder, "--batch", "2", "--workers", "1", "--device", "cpu", "--out")
    assert commands.run(*words, whole).code == 0
    for records in (2, 6):
        kill_where_it_halts(commands.start(*words, out, first=HALT.format(records=records)))
        assert not out.exists()
        assert (tmp_path / ".e.parquet.work").exists()
    ended = commands.run(*words, out)
    assert "continuing" in ended.err
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("change", ["data", "time", "run", "batch", "part"])
def test_what_was_begun_for_something_else_is_begun_anew(
    run_copy: Path, digits_run: Path, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "some"
    paths = draw_photos(folder / "cat", 12)
    words: dict[str, Any] = {"run": run_copy, "data": folder, "out": tmp_path / "e.npz", "batch": 4, **HOW}
    interrupted(8, **words)
    if change == "data":
        (folder / "cat" / "more.png").write_bytes(paths[0].read_bytes())
    elif change == "time":
        paths[2].write_bytes(paths[5].read_bytes())
    elif change == "run":
        words["run"] = digits_run
    else:
        words |= {"batch": 5} if change == "batch" else {"part": "train"}
    notes: list[str] = []
    made = embed(**words, note=notes.append)
    assert made.resumed == 0
    assert "starting anew" in notes[0]
    fresh = embed(**{**words, "out": tmp_path / "fresh.npz"})
    assert fresh.path.read_bytes() == made.path.read_bytes()


def test_it_goes_on_where_a_batch_ends_though_its_last_file_cannot_be_read(photos_run: Path, tmp_path: Path) -> None:
    paths = draw_photos(tmp_path / "some", 9)
    paths[2].write_bytes(b"broken")
    words = {"run": photos_run, "data": tmp_path / "some", "out": tmp_path / "e.npz", "batch": 3, **HOW}
    interrupted(3, **words)
    told: list[int] = []
    made = embed(**words, progress=lambda done, _: told.append(done))
    assert told == [6, 9]
    assert (made.images, made.resumed, list(made.unreadable)) == (8, 2, ["002.png"])


def test_a_stop_says_how_to_go_on(digits_run: Path, tmp_path: Path) -> None:
    def told(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="64 of 359 images are done; the same command continues"):
        embed(digits_run, out=tmp_path / "e.npz", part="test", batch=64, progress=told, **HOW)


@pytest.mark.parametrize("ending", ENDINGS)
def test_blocks_are_written_as_they_come_and_let_go(tmp_path: Path, ending: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(embedding_file, "ROWS", 64)
    alive: list[weakref.ref] = []
    most = 0

    def blocks() -> Iterator[np.ndarray]:
        nonlocal most
        for number in range(100):
            block = np.full((30, 4), number, np.float32)
            alive.append(weakref.ref(block))
            most = max(most, sum(ref() is not None for ref in alive))
            yield block

    columns = Columns([str(i) for i in range(3000)], None, (), None, ())
    with open(tmp_path / f"e{ending}", "wb") as file:
        write_features(file, ending, columns, blocks(), 4, {})
    assert most <= 6
    assert contents(tmp_path / f"e{ending}")["features"][:, 0].tolist() == [i // 30 for i in range(3000)]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(
    st.lists(st.tuples(texts, st.integers(-1, 2), st.lists(st.floats(width=32), min_size=2, max_size=2)), min_size=1),
    st.integers(1, 5),
    st.sampled_from(ENDINGS),
)
def test_every_name_label_and_number_comes_back(tmp_path: Path, rows: list, piece: int, ending: str) -> None:
    features = np.array([values for _, _, values in rows], np.float32)
    features[~np.isfinite(features)] = 0
    # Text arrays of numpy, and so npz files, drop zeros at the end; csv has no difference between no label and "".
    classes = ("x", 'quoted, "é"', "line\nbreak")
    labels = np.array([label for _, label, _ in rows])
    columns = Columns([name for name, _, _ in rows], None, (), labels, classes)
    path = tmp_path / f"e{ending}"
    with open(path, "wb") as file:
        blocks = [features[i : i + piece] for i in range(0, len(features), piece)]
        write_features(file, ending, columns, blocks, 2, {"backbone": "b"})
    read = EmbeddingFile(path)
    pieces = list(read.rows())
    assert [name for each in pieces for name in each.names] == [name for name, _, _ in rows]
    assert [label for each in pieces for label in each.labels] == [None if i < 0 else classes[i] for i in labels]
    assert np.array_equal(np.concatenate([each.features for each in pieces]), features)
    assert read.about == ({} if ending == ".csv" else {"backbone": "b"})


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="names there are always text")
@pytest.mark.parametrize("ending", ENDINGS)
def test_names_that_are_no_text_are_escaped(photos_run: Path, tmp_path: Path, ending: str) -> None:
    (path,) = draw_photos(tmp_path / "some", 1)
    path.rename(path.with_name("caf\udce9.png"))
    made = embed(photos_run, data=tmp_path / "some", out=tmp_path / f"e{ending}", **HOW)
    assert contents(made.path)["name"] == ["caf\\xe9.png"]


@given(st.sampled_from(ENDINGS), st.floats(0, 1), st.binary(max_size=8), st.booleans())
def test_a_damaged_file_is_told_in_one_line(
    tmp_path: Path, undisturbed: dict[str, bytes], ending: str, where: float, bytes_there: bytes, cut: bool
) -> None:
    content = undisturbed[ending]
    start = round(where * len(content))
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(content[:start] + bytes_there + (b"" if cut else content[start + len(bytes_there) :]))
    try:
        rows, told = [row for piece in EmbeddingFile(path).rows() for row in piece.names], ""
    except UserError as error:
        rows, told = [], str(error)
    assert str(path) in told if told else len(rows) <= 359
    assert "\n" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "e.txt"], "features go into .parquet, .npz, .csv files"),
        (["--out", "e.npz", "--batch", "0"], "--batch must be at least 1"),
        (["--out", "e.npz", "--workers", "-1"], "--workers must be from 0 to"),
        (["--out", "e.npz", "--data", "no/such"], "no such folder"),
        (["--out", "e.npz", "--device", "abacus"], "abacus"),
        (["--out", "folder.npz"], "is a folder"),
        (["--out", "file/e.npz"], "cannot be written"),
        (["--out", "e.npz", "--data", "empty"], "no image file in it"),
        (["--out", "e.npz", "--data", "flat", "--part", "test"], "has no test part"),
        ([], "--out"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    photos_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("folder.npz", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("a file")
    draw_photos(tmp_path / "flat", 1)
    before = sorted(tmp_path.rglob("*"))
    assert main(["embed", str(photos_run), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_pyarrow_parquet_is_refused_before_anything_is_computed(
    photos_run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"pip install 'dualtemp\[parquet\]'"):
        embed(photos_run, out=tmp_path / "e.parquet", **HOW)


def test_the_work_file_gives_back_whole_records_alone(tmp_path: Path) -> None:
    path, rng = tmp_path / "work", np.random.default_rng(0)
    records = [Record(np.arange(i, i + 2), rng.random((2, 3), np.float32), {f"{i}": "why"}) for i in range(3)]
    work = WorkFile(path, {"a": 1})
    for record in records:
        work.append(record)
    work.close()
    content = bytearray(path.read_bytes())
    content[-30] ^= 1  # a bit of the last record's features or problems
    path.write_bytes(content)
    again = WorkFile(path, {"a": 1})
    found = list(again.records())
    again.append(records[2])
    found += list(again.records())[2:]
    again.close()
    for one, other in zip(found, records, strict=True):
        assert one.index.tolist() == other.index.tolist()
        assert np.array_equal(one.features, other.features)
        assert one.problems == other.problems
    assert json.loads(path.read_bytes().splitlines()[0]) == {"a": 1}


def test_the_work_file_tells_a_failed_reading_from_damage_and_drops_what_is_outdated(tmp_path: Path) -> None:
    path, rng = tmp_path / "work", np.random.default_rng(0)
    problems: list[dict[str, str]] = [{"a": "damaged"}, {"b": NotRead("no answer"), "c": "damaged"}, {}]
    records = [Record(np.arange(i, i + 2), rng.random((2, 3), np.float32), each) for i, each in enumerate(problems)]
    with closing(WorkFile(path, {"a": 1})) as work:
        for record in records:
            work.append(record)
    with closing(WorkFile(path, {"a": 1})) as work:
        for record in work.records():
            if any(isinstance(reason, NotRead) for reason in record.problems.values()):
                assert record.problems == problems[1]
                work.cut()
                break
        work.append(records[2])
        assert [record.problems for record in work.records()] == [problems[0], problems[2]]
        assert [record.index.tolist() for record in work.records()] == [[0, 1], [2, 3]]


def test_quick_features_are_close_and_say_how_they_were_read(photos_run: Path, tmp_path: Path) -> None:
    photos = tmp_path / "large"
    photos.mkdir()
    for number in range(6):
        drawn_photo(number, 400, 300 + 10 * number).save(photos / f"{number}.jpg")
    plain = embed(photos_run, data=photos, out=tmp_path / "plain.npz", workers=0, device="cpu").path
    quick = embed(photos_run, data=photos, out=tmp_path / "quick.npz", workers=0, device="cpu", quick=True).path
    one, other = (np.load(path)["features"] for path in (plain, quick))
    assert not np.array_equal(one, other), "the files are decoded smaller"
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert cosines.min() > 0.95
    about = [EmbeddingFile(path).about for path in (plain, quick)]
    assert ["quick" in each for each in about] == [False, True]
    photo = sorted(photos.iterdir())[0]
    copy = photo.rename(tmp_path / "copy.jpg")
    nearest = search(photos_run, [copy], data=photos, embeddings=quick, device="cpu").near[0][0]
    assert (nearest.name, nearest.s > 0.9999) == (photo.name, True), "a search reads its photo in the same way"


def test_a_set_in_memory_may_have_fewer_batches_than_parts(digits_run: Path, tmp_path: Path) -> None:
    embed(digits_run, out=tmp_path / "whole.npz", batch=700, device="cpu")
    made = embed(digits_run, out=tmp_path / "parts", parts=5, batch=700, device="cpu")  # three batches
    assert made.images == 1797
    assert len(list((tmp_path / "parts").iterdir())) == 5
    found = [each for piece in EmbeddingFile(tmp_path / "parts").rows() for each in piece.features]
    assert np.array_equal(found, contents(tmp_path / "whole.npz")["features"])


def test_killed_workers_leave_what_was_computed_to_the_next_call(
    photos_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, here = draw_photos(tmp_path / "in", 12), os.getpid()
    words: dict[str, Any] = {"data": tmp_path / "in", "batch": 2, "device": "cpu"}
    read = FileImages.pixels

    def deadly(self: FileImages, i: int) -> torch.Tensor:
        if os.getpid() != here and self.names[i] == paths[9].name:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, i)

    monkeypatch.setattr(FileImages, "pixels", deadly)
    with pytest.raises(UserError, match=r"killed 3 times.* use 0 workers to read in the main process"):
        embed(photos_run, out=tmp_path / "out.npz", workers=1, **words)
    made = embed(photos_run, out=tmp_path / "out.npz", workers=0, **words)
    assert (made.images, made.resumed) == (12, 8)
