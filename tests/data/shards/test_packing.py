"""A packed folder is the same set; it is there whole or not at all."""

import os
import shutil
import tarfile
from hashlib import blake2b
from pathlib import Path

import pytest
from command_processes import Commands, halting, kill_where_it_halts
from drawn_photos import draw_photos
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.data.shards.packing import pack_folder
from dualtemp.errors import UserError
from dualtemp.quantities import bytes_of


def layouts(root: Path) -> dict[str, Path]:
    """Folders of every kind that a folder of images may have."""
    for place in ("parts/train/cat", "parts/train/dog", "parts/val/cat", "parts/val/dog", "parts/unlabelled", "flat"):
        draw_photos(root / place, 6, first=sum(map(ord, place)))
    draw_photos(root / "parts/test", 3, first=5000)  # without labels, as ImageNet's
    shutil.copytree(root / "parts/train", root / "classes")
    shutil.copytree(root / "parts/train", root / "lone/train")
    (root / "classes/cat/a.b.png").write_bytes((root / "flat" / os.listdir(root / "flat")[0]).read_bytes())
    draw_photos(root / "classes/cat", 2, first=7000, suffix=".a.png")
    draw_photos(root / "classes/cat", 2, first=7000, suffix=".jpg")  # the keys of two others
    (root / "classes" / "dog" / ("long name " * 12 + "ü.png")).write_bytes(b"broken")
    return {name: root / name for name in ("parts", "classes", "lone", "flat")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return layouts(tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("layout", ["parts", "classes", "lone", "flat"])
def test_a_packed_folder_is_the_same_set(folders: dict[str, Path], layout: str, labels: bool, tmp_path: Path) -> None:
    packed = pack_folder(folders[layout], tmp_path / "out", shard_size=20_000, labels=labels)
    assert packed.shards == len(list((tmp_path / "out").rglob("*.tar"))) > 1
    files, shards = open_source(folders[layout], labels=labels), open_source(tmp_path / "out", labels=labels)
    assert shards.parts().keys() == files.parts().keys()
    for part, expected in files.parts().items():
        found = shards.parts()[part]
        assert found.fingerprint == expected.fingerprint, part
        assert found.classes == expected.classes
        assert list(found.source.names) == list(expected.source.names)
    # Packed with labels, opened without: the labels are all that is left out.
    again = open_source(tmp_path / "out", labels=False).pretraining
    assert again.labels is None


@pytest.mark.parametrize("layout", ["parts", "classes", "flat"])
def test_a_folder_that_is_packed_shuffled_has_the_same_images_and_labels_in_another_order(
    folders: dict[str, Path], layout: str, tmp_path: Path
) -> None:
    pack_folder(folders[layout], tmp_path / "out", shard_size=20_000, shuffle=True)
    files, shards = open_source(folders[layout]), open_source(tmp_path / "out")
    assert shards.parts().keys() == files.parts().keys()
    known, wanted = (
        {
            # "classes" has exact copies: another one is the first of them, and decides who is held out
            name: (part if layout != "classes" else "", each.source.content(i), labels[i])
            for part, each in splits.parts().items()
            for labels in [[None] * len(each) if each.labels is None else each.labels.tolist()]
            for i, name in enumerate(each.source.names)
        }
        for splits in (shards, files)
    )
    assert known == wanted
    assert shards.train.classes == files.train.classes
    order, plain = (list(each.train.source.names) for each in (shards, files))
    assert order != plain
    if layout == "classes":  # class after class there; here the first half has both, and pairs of one key are together
        assert {name.split("/")[0] for name in order[: len(order) // 2]} == {"cat", "dog"}
        assert abs(order.index("cat/7000.jpg") - order.index("cat/7000.a.png")) == 1


def test_shuffling_is_about_packing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_photos(tmp_path / "photos", 4)
    assert main(["data", str(tmp_path / "photos"), "--shuffle"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["data", str(tmp_path / "photos"), "--to", str(tmp_path / "shards"), "--shuffle"]) == 0
    names = list(open_source(tmp_path / "shards", labels=False).pretraining.source.names)
    expected = sorted((blake2b(name.split(".")[0].encode(), digest_size=8).digest(), name) for name in names)
    assert names == [name for _, name in expected]


def test_the_same_folder_gives_the_same_bytes(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack_folder(folders["classes"], tmp_path / name, shard_size=20_000)
        os.utime(folders["classes"] / "cat/a.b.png", (1, 1))
    for path in sorted((tmp_path / "one").rglob("*.tar")):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    with tarfile.open(tmp_path / "one/000000.tar") as archive:
        names = archive.getnames()
    assert names[0].endswith(".png")
    assert any(name.endswith(".cls") for name in names)


def test_what_is_there_is_never_overwritten(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pack_folder(folders["flat"], tmp_path / "out")
    with pytest.raises(UserError, match="is there already"):
        pack_folder(folders["flat"], tmp_path / "out")
    with pytest.raises(UserError, match="is inside the folder"):
        pack_folder(folders["flat"], folders["flat"] / "out")


def test_an_image_file_that_cannot_be_read_stops_it_with_nothing_written(tmp_path: Path) -> None:
    draw_photos(tmp_path / "in", 3)
    (tmp_path / "in" / "gone.png").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"gone\.png cannot be read"):
        pack_folder(tmp_path / "in", tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.slow
def test_a_killed_packing_leaves_nothing_and_the_next_one_is_whole(
    folders: dict[str, Path], commands: Commands, tmp_path: Path
) -> None:
    words = ("data", folders["classes"], "--to", tmp_path / "out", "--shard-size", "20kB")
    kill_where_it_halts(commands.start(*words, first=halting("*.tar", 2)))
    assert not (tmp_path / "out").exists()
    ended = commands.run(*words)
    assert (ended.code, ended.err) == (0, "")
    assert f"{tmp_path / 'out'}: 18 images in" in ended.out
    assert ", 2 classes" in ended.out
    assert sorted(os.listdir(tmp_path)) == ["out"]
    expected = open_source(folders["classes"]).train.fingerprint
    assert open_source(tmp_path / "out").train.fingerprint == expected
    assert commands.run(*words).code == 2


@given(number=st.integers(1, 5000), unit=st.sampled_from(["MB", " GB", "kb", "MiB", ""]))
def test_sizes_are_read(number: int, unit: str) -> None:
    scale = {"MB": 10**6, "GB": 10**9, "kb": 1000, "MiB": 2**20, "": 1}[unit.strip()]
    assert bytes_of(f"{number}{unit}") == number * scale


@pytest.mark.parametrize("text", ["", "big", "-3MB", "0", "3 parsecs", "nanMB", "infGB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="256MB"):
        bytes_of(text)


def test_labels_of_a_file_are_packed_and_a_part_of_them_is_a_mistake(tmp_path: Path) -> None:
    names = [path.name for path in draw_photos(tmp_path / "in", 12)]
    lines = [f"{name},{'ab'[i % 2]}" for i, name in enumerate(names)]
    (tmp_path / "in" / "labels.csv").write_text("\n".join(["name,label", *lines, ""]))
    pack_folder(tmp_path / "in", tmp_path / "out")
    found, expected = open_source(tmp_path / "out").train, open_source(tmp_path / "in").train
    assert found.classes == ("a", "b")
    assert found.fingerprint == expected.fingerprint
    (tmp_path / "in" / "labels.csv").write_text("\n".join(["name,label", *lines[:6], ""]))
    with pytest.raises(UserError, match="no label for 6 images"):
        pack_folder(tmp_path / "in", tmp_path / "again")


def test_a_shard_size_without_its_unit_is_refused(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", str(folders["classes"]), "--to", str(tmp_path / "out"), "--shard-size", "256"]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_images_of_one_sample_that_have_two_labels_are_refused(tmp_path: Path) -> None:
    draw_photos(tmp_path / "in", 4)
    for i in range(4):
        (tmp_path / "in" / f"{i:03}.png").rename(tmp_path / "in" / f"2024.01.{i:02}.png")
    lines = [f"2024.01.{i:02}.png,{'ab'[i // 2]}" for i in range(4)]
    (tmp_path / "in" / "labels.csv").write_text("\n".join(["name,label", *lines, ""]))
    with pytest.raises(UserError, match=r"2024\.01\.00\.png and 2024\.01\.02\.png have one name.* 'a' and 'b'"):
        pack_folder(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pack_folder(tmp_path / "in", tmp_path / "out", labels=False)
