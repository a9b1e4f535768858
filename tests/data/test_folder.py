import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.config import settings
from dualtemp.data.check import check_source
from dualtemp.data.images import FileImages, ImageSet, Splits
from dualtemp.data.sources.folder import find_images, name_keys, open_folder
from dualtemp.data.sources.held_out import held_out
from dualtemp.data.sources.opening import open_source
from dualtemp.errors import UserError
from dualtemp.training.run_data import open_data, refuse_misnamed_folders

SMALL, LARGE = (20, 16), (130, 100)  # width, height


def put(root: Path, *names: str, size: tuple[int, int] = SMALL, mode: str = "RGB") -> Path:
    """Write one image a name, each with a colour that follows from the name."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shade = sum(name.encode()) % 256
        colour = (shade, 255 - shade, zlib.crc32(name.encode()) % 256)
        Image.new(mode, size, shade if mode in ("L", "1", "P") else colour).save(path)
    return root


def classes_of(images: ImageSet) -> list[str]:
    assert images.labels is not None
    return [images.classes[label] for label in images.labels.tolist()]


def names_of(images: ImageSet | None) -> set[str]:
    assert images is not None
    assert isinstance(images.pixels, FileImages)
    return set(images.pixels.names)


def many(*folders: str, count: int = 20) -> list[str]:
    return [f"{folder}/{number}.png" for folder in folders for number in range(count)]


def test_train_and_test_folders_are_the_split(tmp_path: Path) -> None:
    root = put(tmp_path, *many("train/cat", "train/dog", count=3), *many("test/cat", "test/dog", count=2), size=LARGE)
    splits = open_folder(root)
    assert names_of(splits.train) == set(many("train/cat", "train/dog", count=3))
    assert names_of(splits.test) == set(many("test/cat", "test/dog", count=2))
    assert classes_of(splits.train) == ["cat"] * 3 + ["dog"] * 3
    assert splits.split == "train/ and test/"


def test_labels_agree_with_torchvisions_image_folder(tmp_path: Path) -> None:
    from dualtemp.torchvision_operators import declare_missing_operators

    declare_missing_operators()
    from torchvision.datasets import ImageFolder

    root = put(tmp_path, *many("train/b", "train/B", "train/10", "train/2", "train/a/deep", count=3), size=LARGE)
    put(root, *many("test/b", count=1), size=LARGE)
    reference = ImageFolder(str(root / "train"))
    splits = open_folder(root)
    assert isinstance(splits.train.pixels, FileImages)
    assert splits.train.classes == tuple(reference.classes)
    expected = {Path(path).relative_to(root).as_posix(): label for path, label in reference.samples}
    assert splits.train.labels is not None
    assert dict(zip(splits.train.pixels.names, splits.train.labels.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", ["val", "validation"])
def test_val_stands_for_test(tmp_path: Path, name: str) -> None:
    splits = open_folder(put(tmp_path, *many("train/a", "train/b", f"{name}/a", f"{name}/b", count=2), size=LARGE))
    assert names_of(splits.test) == set(many(f"{name}/a", f"{name}/b", count=2))


def test_a_labelled_val_comes_before_an_unlabelled_test(tmp_path: Path) -> None:
    root = put(tmp_path, *many("train/a", "train/b", "val/a", "val/b", "test", count=2), size=LARGE)
    assert open_folder(root).split == "train/ and val/; test/ not used"


def test_unlabelled_images_join_training_without_a_label(tmp_path: Path) -> None:
    root = put(tmp_path, *many("train/a", "train/b", "test/a", count=2), *many("unlabelled", count=3), size=LARGE)
    splits = open_folder(root)
    assert names_of(splits.unlabeled) == set(many("unlabelled", count=3))
    both = splits.pretraining
    assert both.labels is not None
    assert both.labels.tolist() == [0, 0, 1, 1, -1, -1, -1]
    assert len(both) == 7


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    splits = open_folder(put(tmp_path, *many("car", "train", "tram", count=4)))
    assert splits.train.classes == ("car", "train", "tram")


def test_a_folder_called_valid_beside_train_is_the_test_part(tmp_path: Path) -> None:
    splits = open_folder(put(tmp_path, *many("train/cat", "train/dog", "valid/cat", "valid/dog", count=3)))
    assert splits.train.classes == ("cat", "dog")
    assert (len(splits.train), splits.split) == (6, "train/ and valid/")
    assert classes_of(splits.test) == ["cat"] * 3 + ["dog"] * 3  # pyright: ignore


@pytest.mark.parametrize("name", ["unlabelled", "unlabeled"])
def test_images_without_labels_beside_train_alone_are_no_class(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, *many("train/cat", "train/dog", count=20), *many(name, count=5), size=LARGE)
    splits = open_folder(root)
    assert splits.train.classes == ("cat", "dog")
    assert names_of(splits.unlabeled) == set(many(name, count=5))
    assert all(each.startswith("train/") for each in names_of(splits.test))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("Train", "Test"), "rename Test/ to test/ and Train/ to train/"),
        (("Training", "Testing"), "rename Testing/ to test/ and Training/ to train/"),
        (("train", "VAL"), "rename VAL/ to val/"),
        (("train", "test"), ""),
        (("train", "testing", "tram"), ""),  # classes
        (("Training",), ""),
    ],
)
def test_parts_of_a_set_that_are_spelled_otherwise_are_not_taken_for_classes(
    names: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    root = put(tmp_path / "own", *many(*(f"{name}/{kind}" for name in names for kind in ("cat", "dog")), count=2))
    chosen = settings({"data": str(root)})
    if not said:
        refuse_misnamed_folders(chosen)
        return
    for refuse in (lambda: refuse_misnamed_folders(chosen), lambda: check_source(str(root))):
        with pytest.raises(UserError, match=said):
            refuse()
    refuse_misnamed_folders(chosen.model_copy(update={"labels": False}))


@pytest.mark.parametrize("name", ["valid", "unlabelled"])
def test_an_earlier_run_goes_on_with_the_classes_that_it_took_these_folders_for(tmp_path: Path, name: str) -> None:
    root = put(tmp_path, *many("train/cat", f"{name}/cat", count=20), size=LARGE)
    chosen = settings({"data": str(root)})
    assert set(open_data(chosen, {"split": 2}).train.classes) == {"train", name}
    assert open_data(chosen).train.classes == ("cat",)


def test_without_a_test_folder_a_tenth_of_each_class_is_held_out(tmp_path: Path) -> None:
    root = put(tmp_path, *many("a", count=40), *many("b/deep/er", count=12), *many("c", count=1), size=LARGE)
    splits = open_folder(root)
    assert splits.test is not None
    train, test = names_of(splits.train), names_of(splits.test)
    assert not train & test
    assert len(train | test) == 53
    assert [classes_of(splits.test).count(name) for name in "abc"] == [4, 1, 0]
    assert splits.train.classes == splits.test.classes == ("a", "b", "c")


def test_what_is_held_out_has_the_smallest_hashes_of_the_relative_name(tmp_path: Path) -> None:
    from hashlib import blake2b

    names = many("a", count=30)
    expected = sorted(names, key=lambda name: blake2b(name.encode(), digest_size=8).digest())[:3]
    assert names_of(open_folder(put(tmp_path / "x", *names, size=LARGE)).test) == set(expected)
    below_train = put(tmp_path / "y", *(f"train/{name}" for name in names), size=LARGE)
    assert names_of(open_folder(below_train).test) == {f"train/{name}" for name in expected}


def test_the_held_out_images_stay_when_files_are_added_elsewhere(tmp_path: Path) -> None:
    root = put(tmp_path, *many("a", "b", count=30), size=LARGE)
    before = names_of(open_folder(root).test)
    put(root, *many("c", count=50), *(f"b/more{number}.png" for number in range(60)), size=LARGE)
    after = names_of(open_folder(root).test)
    assert {name for name in before if name.startswith("a/")} == {name for name in after if name.startswith("a/")}


def test_held_out_counts_follow_the_documented_rule() -> None:
    rng = np.random.default_rng(0)
    for size, expected in {1: 0, 2: 1, 9: 1, 14: 1, 15: 2, 25: 3, 100: 10, 104: 10, 105: 11}.items():
        keys = rng.integers(0, 2**63, size).astype(np.uint64)
        assert held_out(np.zeros(size, np.int64), keys).sum() == expected


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    splits = open_folder(put(tmp_path, *(f"{number}.png" for number in range(20))))
    assert splits.train.labels is None
    assert splits.test is not None
    assert (len(splits.train), len(splits.test)) == (18, 2)
    assert splits.train.classes == ()


def test_small_images_of_one_size_become_one_tensor_with_the_right_pixels(tmp_path: Path) -> None:
    root = put(tmp_path, *many("train/a", "train/b", "test/a", count=3))
    splits = open_folder(root)
    assert isinstance(splits.train.pixels, torch.Tensor)
    assert splits.train.pixels.shape == (6, 3, 16, 20)
    for i, name in enumerate(many("train/a", "train/b", count=3)):
        expected = np.asarray(Image.open(root / name)).transpose(2, 0, 1)
        assert (splits.train.pixels[i].numpy() == expected).all()


@pytest.mark.parametrize("odd", [(20, 17), LARGE])
def test_one_image_of_another_size_keeps_all_in_files(tmp_path: Path, odd: tuple[int, int]) -> None:
    root = put(tmp_path, *many("a", "b"))
    put(root, "b/odd.png", size=odd)
    assert not open_folder(root).train.in_memory


def test_a_sideways_image_counts_upright(tmp_path: Path) -> None:
    root = put(tmp_path, *many("a", count=20))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (16, 20), "red").save(root / "a" / "sideways.png", exif=exif)
    splits = open_folder(root)
    assert splits.train.size == (16, 20)


def test_a_set_is_grey_only_if_every_image_is(tmp_path: Path) -> None:
    grey = put(tmp_path / "g", *many("a", count=10), mode="L")
    assert open_folder(grey).train.channels == 1
    put(grey, "a/color.png")
    assert open_folder(grey).train.channels == 3
    large = put(tmp_path / "l", *many("a", count=10), mode="L", size=LARGE)
    splits = open_folder(large)
    assert splits.train.channels == 1
    assert isinstance(splits.train.pixels, FileImages)
    assert splits.train.pixels.open(0).mode == "L"


def test_hidden_files_and_other_files_are_ignored_and_endings_count_in_any_case(tmp_path: Path) -> None:
    root = put(tmp_path, "a/1.PNG", "a/2.Jpeg", "b/3.webp", ".hidden/4.png", "a/._1.png", "b/.5.jpg")
    for name in ("readme.txt", "a/labels.csv", "Thumbs.db", ".DS_Store", "clip.mpg", "table.h5"):
        (root / name).write_bytes(b"x")
    assert find_images(root) == ["a/1.PNG", "a/2.Jpeg", "b/3.webp"]


def test_linked_folders_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "1.png")
    root = put(tmp_path / "set", "a/1.png")
    (root / "b").symlink_to(tmp_path / "elsewhere")
    (root / "a" / "up").symlink_to(root)
    assert find_images(root) == ["a/1.png", "b/1.png"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_with_the_name_of_an_image_does_not_block(tmp_path: Path) -> None:
    root = put(tmp_path, "a.png", "c.png")
    os.mkfifo(root / "b.png")
    assert find_images(root) == ["a.png", "c.png"]


def test_unreadable_small_files_are_left_out_and_named(tmp_path: Path) -> None:
    root = put(tmp_path, *many("train/a", "train/b", "test/a", count=4))
    (root / "train/a/2.png").write_bytes(b"not an image")
    whole = (root / "train/b/1.png").read_bytes()
    (root / "train/b/1.png").write_bytes(whole[:-30])
    (root / "train/b/link.png").symlink_to(root / "nowhere.png")
    splits = open_folder(root)
    assert {each.name for each in splits.unreadable} == {"train/a/2.png", "train/b/1.png", "train/b/link.png"}
    assert classes_of(splits.train) == ["a"] * 3 + ["b"] * 3
    pixels = splits.train.pixels
    assert isinstance(pixels, torch.Tensor)
    assert (pixels[2].numpy().transpose(1, 2, 0) == np.asarray(Image.open(root / "train/a/3.png"))).all()


def test_names_that_are_not_valid_text_work(tmp_path: Path) -> None:
    root = put(tmp_path, *many("a", count=12), size=LARGE)
    try:
        os.rename(os.fsencode(root / "a/3.png"), os.fsencode(root / "a") + b"/\xff\xfe.png")
    except OSError:
        pytest.skip("this file system wants valid text")
    splits = open_folder(root)
    assert len(splits.train) + len(splits.test or ()) == 12
    assert len(splits.train.fingerprint) == 32


def test_a_name_key_is_the_head_of_its_hash() -> None:
    from hashlib import blake2b

    expected = int.from_bytes(blake2b("ä/1.png".encode(), digest_size=8).digest(), "big")
    assert name_keys(["ä/1.png"]).tolist() == [expected]


def test_labels_can_be_left_aside(tmp_path: Path) -> None:
    root = put(tmp_path, *many("a", "b", count=10), "loose.png", size=LARGE)
    with pytest.raises(UserError, match=r"1 image files lie beside the class folders \('loose.png'"):
        open_folder(root)
    splits = open_source(root, labels=False)
    assert splits.train.labels is None
    assert len(splits.train) + len(splits.test or ()) == 21


def broken(root: Path, case: str) -> Path:
    if case == "empty":
        root.mkdir(exist_ok=True)
    if case == "nothing readable":
        put(root, *many("a", count=3))
        for path in root.glob("a/*"):
            path.write_bytes(b"no")
    if case == "class only in test":
        put(root, *many("train/a", "train/b", "test/a", "test/zebra", count=2))
    if case == "test without classes":
        put(root, *many("train/a", "train/b", "test", count=2))
    if case == "empty train":
        (root / "train").mkdir(parents=True)
        put(root, *many("test/a", count=2))
    return root


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("missing", "no such folder"),
        ("empty", "no image file in it"),
        ("empty train", "no image file"),
        ("nothing readable", "none of 3 image files can be read, the first a/0.png"),
        (
            "class only in test",
            "class 'zebra' is in the test part only.*put train/zebra back, take test/zebra away, or .*--no-labels",
        ),
        ("test without classes", "the test part has none"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, case: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        open_source(broken(tmp_path / "set", case))
    assert "\n" not in str(raised.value)


def test_a_folder_of_one_image_is_all_training(tmp_path: Path) -> None:
    splits: Splits = open_folder(put(tmp_path, "1.png"))
    assert splits.test is None
    assert len(splits.train) == 1
