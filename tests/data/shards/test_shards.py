"""Shards are the same set as the folder of the same images; labels, names, and what happens to shards that change."""

import io
import json
import os
import pickle
import shutil
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from drawn_photos import draw_photos, drawn_photo
from drawn_xrays import drawn_xray, write_dicom
from packed_shards import add_member, write_shards
from PIL import Image

from dualtemp.data import open_source
from dualtemp.data.loading import optional_readers
from dualtemp.data.loading.decode import UnreadableImage, image_extensions
from dualtemp.data.shards import indexing, shard_reading
from dualtemp.errors import UserError


def encoded(number: int) -> bytes:
    buffer = io.BytesIO()
    drawn_photo(number, 40 + number, 48).save(buffer, "PNG")
    return buffer.getvalue()


def test_shards_are_the_same_set_as_their_folder(photos: Path, shards: Path) -> None:
    files = open_source(photos)
    braces = str(shards / "{train,test}" / "{000..004}.tar")
    for found in (open_source(shards), open_source(braces), open_source(braces.replace("{000..004}", "*"))):
        for one, other in ((found.train, files.train), (found.test, files.test)):
            assert one is not None
            assert other is not None
            assert one.fingerprint == other.fingerprint
            assert one.identity() == other.identity()
            assert list(one.source.names) == list(other.source.names)
            assert one.take([3, 1]).fingerprint == other.take([3, 1]).fingerprint
            assert one.join([one.take([0])]).fingerprint == other.join([other.take([0])]).fingerprint
            for i in (0, 5):
                assert one.source.header(i) == other.source.header(i)
                assert one.source.convert(1, 20).open(i) == other.source.convert(1, 20).open(i)


@pytest.mark.parametrize("labels", [True, False])
def test_the_same_images_are_held_out_as_of_the_folder(photos: Path, tmp_path: Path, labels: bool) -> None:
    shutil.copytree(photos / "train", tmp_path / "train")
    shutil.copy(tmp_path / "train/cat/005.png", tmp_path / "train/dog/copy.png")
    write_shards(tmp_path / "train", tmp_path / "shards" / "all", 7)
    found = open_source(tmp_path / "shards" / "all", labels=labels)
    expected = open_source(tmp_path / "train", labels=labels)
    assert found.split == expected.split
    assert "1 name of images that have another" in found.split
    assert found.test is not None
    assert expected.test is not None
    assert found.test.fingerprint == expected.test.fingerprint
    assert found.train.fingerprint == expected.train.fingerprint


def test_small_images_of_one_size_become_one_tensor(tmp_path: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "small" / name).mkdir(parents=True)
        for i in range(10):
            drawn_photo(10 * number + i, 16, 16).save(tmp_path / "small" / name / f"{i}.png")
    write_shards(tmp_path / "small", tmp_path / "shards" / "all", 7)
    found, expected = open_source(tmp_path / "shards" / "all"), open_source(tmp_path / "small")
    assert found.train.in_memory
    assert found.train.fingerprint == expected.train.fingerprint


def test_a_source_survives_pickling_and_names_are_made_when_asked_for(shards: Path) -> None:
    source = open_source(shards).train.source
    again = pickle.loads(pickle.dumps(source))
    assert again.content(7) == source.content(7)
    assert again.names == tuple(source.names)
    assert source.names[-1] == list(source.names)[-1]
    assert list(source.names[2:5]) == list(source.names)[2:5]


@pytest.mark.parametrize("kind", ["words", "json words", "json numbers", "numbers"])
def test_labels_come_from_cls_and_json(tmp_path: Path, kind: str) -> None:
    animals = ["zebra", "ape"]
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i in range(20):
            label = animals[i % 2] if "words" in kind else str(i % 2)
            told = json.dumps({"label": label if "words" in kind else i % 2, "x": [1]}) if "json" in kind else label
            add_member(archive, f"{i:03}.png", encoded(i))
            add_member(archive, f"{i:03}.{'json' if 'json' in kind else 'cls'}", told.encode())
    splits = open_source(tmp_path / "x.tar")
    assert splits.test is not None
    assert splits.train.classes == (("ape", "zebra") if "words" in kind else ("0", "1"))
    for part in (splits.train, splits.test):
        assert part.labels is not None
        numbers = [int(name.removesuffix(".png")) for name in part.source.names]
        expected = [part.classes.index(animals[i % 2]) if "words" in kind else i % 2 for i in numbers]
        assert part.labels.tolist() == expected
    assert open_source(tmp_path / "x.tar", labels=False).train.labels is None


@pytest.mark.parametrize("ending", ["cls", "json"])
def test_a_label_of_minus_one_is_none(tmp_path: Path, ending: str) -> None:
    for part, first in (("train", 0), ("test", 10), ("val", 20)):
        with tarfile.open(tmp_path / f"{part}-0.tar", "w") as archive:
            for i in range(first, first + 6):
                label = -1 if part == "test" else i % 2
                add_member(archive, f"{i:03}.png", encoded(i))
                told = json.dumps({"cls": label} if ending == "json" else label)
                add_member(archive, f"{i:03}.{ending}", told.encode())
    splits = open_source(tmp_path)
    assert splits.train.classes == ("0", "1")
    assert splits.test is not None
    assert list(splits.test.source.names) == [f"val/{i:03}.png" for i in range(20, 26)]  # test/ has no labels
    (tmp_path / "val-0.tar").unlink()
    (tmp_path / "train-0.tar").unlink()
    assert open_source(tmp_path / "test-0.tar").train.labels is None


def test_an_image_without_a_label_among_others_is_a_mistake(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i in range(4):
            add_member(archive, f"{i:03}.png", encoded(i))
            if i:
                add_member(archive, f"{i:03}.cls", b"1")
    with pytest.raises(UserError, match=r"1 images of the train part have no label \('000.png' is the first\)"):
        open_source(tmp_path / "x.tar")
    assert len(open_source(tmp_path / "x.tar", labels=False).train) == 4 - 1


def test_numbers_that_begin_anew_in_each_shard_are_told_apart_by_its_name(tmp_path: Path) -> None:
    for shard in range(3):
        with tarfile.open(tmp_path / f"s{shard}.tar", "w") as archive:
            for i in range(4):
                add_member(archive, f"{i}.png", encoded(4 * shard + i))
    splits = open_source(tmp_path)
    names = [name for part in splits.parts().values() for name in part.source.names]
    assert sorted(names) == sorted(f"s{shard}/{i}.png" for shard in range(3) for i in range(4))


def test_the_index_is_made_once_and_again_only_for_a_shard_that_changed(
    photos: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_shards(photos / "train", tmp_path / "s", 6)
    asked: list[str] = []
    listed = indexing.list_tar
    monkeypatch.setattr(indexing, "list_tar", lambda file: (asked.append(Path(file.name).name), listed(file))[1])
    before = open_source(tmp_path / "s").train.fingerprint
    assert sorted(asked) == sorted(path.name for path in paths)
    asked.clear()
    (index,) = (own_cache / "shards").glob("*.npz")
    os.utime(index, (0, 0))
    assert open_source(tmp_path / "s").train.fingerprint == before
    assert asked == []
    assert index.stat().st_mtime > time.time() - 3600, "`clean --older-than` sees that it is used"
    with tarfile.open(paths[1], "a") as archive:
        add_member(archive, "dog/new.png", encoded(77))
        add_member(archive, "dog/new.cls", b"1")
    grown = open_source(tmp_path / "s")
    assert asked == [paths[1].name]
    assert sum(map(len, grown.parts().values())) == 25
    asked.clear()
    index.write_bytes(index.read_bytes()[:-700])
    assert open_source(tmp_path / "s").train.fingerprint == grown.train.fingerprint
    assert len(asked) == len(paths), "a damaged index is made anew"
    with np.load(index, allow_pickle=False) as arrays:
        assert len(arrays["start"]) == 25


def test_a_shard_that_vanishes_leaves_unreadable_images_and_the_order_of_all_others(
    photos: Path, tmp_path: Path
) -> None:
    paths = write_shards(photos / "train", tmp_path / "s", 6)
    before = open_source(tmp_path / "s" / "{000..003}.tar")
    fingerprint, held = before.train.fingerprint, paths[1].read_bytes()
    paths[1].unlink()
    after = open_source(str(tmp_path / "s" / "{000..003}.tar"))
    assert list(after.train.source.names) == list(before.train.source.names)
    lost = [name for name in after.train.source.names if _reason(after, name)]
    assert lost
    assert all(_reason(after, name) == "its shard 001.tar is gone" for name in lost if name != "cat/003.png")
    paths[1].write_bytes(held)
    again = open_source(str(tmp_path / "s" / "{000..003}.tar"))
    assert again.train.fingerprint == fingerprint


def test_copies_stay_on_one_side_of_the_split_when_the_shard_of_the_first_vanishes(tmp_path: Path) -> None:
    for shard, numbers in enumerate((range(20), range(100, 104), range(20))):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as archive:
            for i in numbers:
                add_member(archive, f"{shard}_{i:03}.png", encoded(i))
    before = _names_by_part(str(tmp_path / "{0..2}.tar"))
    (tmp_path / "0.tar").unlink()
    shard_reading._open.clear()
    after = _names_by_part(str(tmp_path / "{0..2}.tar"))
    assert after == before
    train, test = ({name[2:] for name in names if name[0] in "02"} for names in (after["train"], after["test"]))
    assert test
    assert not train & test


def _names_by_part(source: str) -> dict[str, list[str]]:
    return {part: list(images.source.names) for part, images in open_source(source).parts().items()}


def test_a_shard_that_was_never_there_is_left_out_and_named(photos: Path, tmp_path: Path) -> None:
    paths = write_shards(photos / "train", tmp_path / "s", 6)
    paths[2].unlink()
    splits = open_source(str(tmp_path / "s" / "{000..003}.tar"))
    assert [str(each) for each in splits.unreadable] == ["002.tar: the shard is not there"]
    assert sum(map(len, splits.parts().values())) == 18


def test_a_truncated_shard_gives_what_it_has_and_says_where_it_ends(photos: Path, tmp_path: Path) -> None:
    paths = write_shards(photos / "train", tmp_path / "s", 6)
    whole = open_source(tmp_path / "s")
    os.truncate(paths[0], paths[0].stat().st_size // 2)
    cut = open_source(tmp_path / "s")
    assert 18 < sum(map(len, cut.parts().values())) < 24
    ((name, reason),) = [(each.name, each.reason) for each in cut.unreadable]
    assert name == "000.tar"
    assert "the file ends at byte" in reason
    # What was opened before it was cut says so too, and reads all other shards.
    reasons = {_reason(whole, name) for name in whole.train.source.names}
    changed = {f"its shard 000.tar has been {what}" for what in ("cut short", "changed since it was indexed")}
    assert reasons & changed
    assert None in reasons


def _reason(splits: object, name: str) -> str | None:
    source = splits.train.source  # pyright: ignore[reportAttributeAccessIssue]
    try:
        source.open(list(source.names).index(name))
    except UnreadableImage as error:
        return error.reason
    return None


def test_shards_without_an_image_are_a_mistake(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        add_member(archive, "a.txt", b"text")
    with pytest.raises(UserError, match="no image in 1 shard"):
        open_source(tmp_path / "x.tar")


def test_a_cache_that_cannot_be_written_costs_the_index_alone(shards: Path, own_cache: Path, photos: Path) -> None:
    own_cache.write_text("a file where the cache folder should be")
    assert open_source(shards).train.fingerprint == open_source(photos).train.fingerprint


def test_images_with_dots_in_their_names_and_two_in_a_sample(tmp_path: Path) -> None:
    draw_photos(tmp_path / "one", 2)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i in range(10):
            for side in ("left", "right"):
                add_member(archive, f"{i}.{side}.png", encoded(2 * i + (side == "left")))
            add_member(archive, f"{i}.cls", str(i % 2).encode())
            add_member(archive, f".hidden{i}.png", encoded(99))
    splits = open_source(tmp_path / "x.tar")
    names = [name for part in splits.parts().values() for name in part.source.names]
    assert len(names) == 20
    assert splits.train.labels is not None
    assert [int(name[0]) % 2 for name in splits.train.source.names] == splits.train.labels.tolist()
    assert Image.open(io.BytesIO(splits.train.source.content(0))).size[1] == 48


@pytest.mark.parametrize("part", ["train", "unlabelled"])
def test_shards_of_a_part_without_an_image_are_one_line_or_no_part(tmp_path: Path, part: str) -> None:
    for word in ("train", "test", "unlabelled"):
        with tarfile.open(tmp_path / f"{word}-0.tar", "w") as archive:
            for path in draw_photos(tmp_path / word, 4) if word != part else []:
                add_member(archive, f"{word}{path.name}", path.read_bytes())
            add_member(archive, "readme.txt", b"no image")
        shutil.rmtree(tmp_path / word, ignore_errors=True)
    if part == "train":
        with pytest.raises(UserError, match="no image in its train shards"):
            open_source(tmp_path)
    else:
        found = open_source(tmp_path)
        assert (len(found.train), found.unlabeled) == (4, None)


def test_labels_that_are_numbers_of_something_else_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i, path in enumerate(draw_photos(tmp_path / "in", 4)):
            add_member(archive, path.name, path.read_bytes())
            add_member(archive, f"{path.stem}.cls", str(2_024_000 + i).encode())
    with pytest.raises(UserError, match="label 2024003; expected classes numbered from 0"):
        open_source(tmp_path / "x.tar")
    assert open_source(tmp_path / "x.tar", labels=False).train.labels is None


def test_names_of_classes_that_windows_wrote_have_no_mark_before_the_first(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes("\ufeffape\r\nzebra\r\n".encode())
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i, path in enumerate(draw_photos(tmp_path / "in", 4)):
            add_member(archive, path.name, path.read_bytes())
            add_member(archive, f"{path.stem}.cls", str(i % 2).encode())
    assert open_source(tmp_path / "x.tar").train.classes == ("ape", "zebra")


def test_images_whose_reader_is_installed_later_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for i in range(3):
            write_dicom(tmp_path / f"{i}.dcm", drawn_xray(i))
            add_member(archive, f"{i}.dcm", (tmp_path / f"{i}.dcm").read_bytes())
    image_extensions.cache_clear()
    with monkeypatch.context() as without:
        without.setattr(optional_readers, "has_reader", lambda package: False)
        with pytest.raises(UserError, match="no image in 1 shard"):
            open_source(tmp_path / "x.tar")
    image_extensions.cache_clear()
    assert sum(map(len, open_source(tmp_path / "x.tar").parts().values())) == 3
