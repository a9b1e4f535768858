"""One image under several names: links, hard links and copies, on one side of the split whatever holds it out."""

import os
import shutil
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.cli import main
from dualtemp.config import settings
from dualtemp.data.check import check_source
from dualtemp.data.images import FileImages, ImageSet, Splits
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.folder import folder_files
from dualtemp.data.sources.opening import open_source
from dualtemp.encoder.image_list import listed
from dualtemp.training.run_data import open_data


def pixels(seed: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def folder(root: Path, count: int = 60, side: int = 8) -> Path:
    """Class folders a and b; of several sizes if the side is large, so that they stay in files."""
    for number in range(count):
        path = root / "ab"[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(number, side + (number % 3 if side > 8 else 0))).save(path)
    return root


def linked(file: Path, to: Path) -> None:
    to.symlink_to(os.path.relpath(file, to.parent))


NAMING: dict[str, Callable[[Path, Path], object]] = {"link": linked, "hard link": os.link, "copy": shutil.copy}


def contents(images: ImageSet | None) -> set[bytes]:
    if images is None:
        return set()
    if isinstance(images.pixels, FileImages):
        return {images.pixels.path(i).read_bytes() for i in range(len(images))}
    assert isinstance(images.pixels, torch.Tensor)
    return {image.numpy().tobytes() for image in images.pixels}


def apart(splits: Splits) -> bool:
    return not contents(splits.test) & (contents(splits.train) | contents(splits.unlabeled))


@pytest.mark.parametrize("side", [8, 100], ids=["in memory", "in files"])
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("how", NAMING)
def test_no_held_out_image_is_learned_from_under_another_name(
    how: str, labels: bool, side: int, tmp_path: Path
) -> None:
    root = folder(tmp_path / "photos", side=side)
    for file in sorted(root.rglob("*.png")):
        for other in (file.parent / f"again-{file.name}", root / "c" / file.name):
            other.parent.mkdir(exist_ok=True)
            NAMING[how](file, other)
    splits = open_source(root, labels=labels)
    assert splits.test is not None
    assert apart(splits)
    assert len(splits.test) + len(splits.train) == 180
    assert len(splits.test) >= 3 * 3  # a tenth of 180 would be 18; three names of an image go together
    if labels:
        assert splits.test.labels is not None
        assert splits.test.labels.unique().tolist() == [0, 1, 2]
    assert open_data(settings({"data": str(root), "labels": labels, "validate": "held-out"})).test is not None
    assert apart(open_data(settings({"data": str(root), "labels": labels, "validate": "held-out"})))


def test_a_linked_class_folder_is_the_class_again_and_parts_no_image(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    (root / "c").symlink_to("a")
    splits = open_source(root)
    assert splits.train.classes == ("a", "b", "c")
    assert apart(splits)
    part = {name: images.names for name, images in folder_files(root).items()}
    assert {n.removeprefix("c/") for n in part["test"] if n[0] == "c"} == {
        n.removeprefix("a/") for n in part["test"] if n[0] == "a"
    }


def test_unlabelled_images_hold_no_held_out_image(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos" / "train").parent
    (root / "test").mkdir()  # empty: a tenth of train/ is held out
    (root / "unlabelled").symlink_to("train")
    splits = open_source(root)
    assert splits.unlabeled is not None
    assert apart(splits)
    assert len(splits.unlabeled) == 54


@pytest.mark.parametrize("labels", [True, False])
def test_equal_images_of_an_npz_file_stay_together_and_the_list_says_the_same(labels: bool, tmp_path: Path) -> None:
    images = np.stack([pixels(number % 40) for number in range(120)])
    np.savez(tmp_path / "all.npz", images=images, labels=np.arange(120) % 4)
    splits = open_source(tmp_path / "all.npz", labels=labels)
    assert apart(splits)
    assert splits.test is not None
    whole = listed(tmp_path / "all.npz", labels=labels)
    assert isinstance(whole.images.pixels, torch.Tensor)
    there = {image.numpy().tobytes() for image in whole.images.pixels[torch.from_numpy(whole.parts == 1)]}
    assert there == contents(splits.test)


def test_images_without_copies_are_held_out_by_their_names_alone(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    expected = set()
    for name in "ab":
        names = [f"{name}/{file.name}" for file in (root / name).iterdir()]
        names.sort(key=lambda n: blake2b(n.encode(), digest_size=8).digest())
        expected |= set(names[:3])
    assert set(folder_files(root)["test"].names) == expected
    # An earlier run goes on with just these, also where copies came between.
    for file in sorted(root.rglob("*.png")):
        os.link(file, root / "c" / file.name) if (root / "c").is_dir() else (root / "c").mkdir()
    before = open_data(settings({"data": str(root)}), {"train": {}})
    now = open_data(settings({"data": str(root)}), {"split": 2})
    assert not apart(before)
    assert apart(now)


def test_copies_are_found_and_nothing_else_is(tmp_path: Path) -> None:
    long = b"P5 100 256 255\n" + bytes(range(256)) * 100  # a gray image
    for name, content in {
        "a": long,
        "b": long[:10_000] + b"x" + long[10_001:],  # of the same size and ends, another in the middle
        "c": long,
        "d": b"short",
        "e": b"shorT",
        "f": b"",  # files that were emptied or spoiled alike are no images, and no copies
        "g": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    linked(tmp_path / "d", tmp_path / "h")
    (tmp_path / "i").symlink_to("nowhere")
    (tmp_path / "j").symlink_to("nowhere")
    found = copies([FileImages(tmp_path, tuple("abcdefghij"))])
    assert found.tolist() == [0, 1, 0, 3, 4, 5, 6, 3, 8, 9]


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a device"])
def test_what_is_no_regular_file_is_passed_over(kind: str, tmp_path: Path) -> None:
    root, pipe = folder(tmp_path / "photos", 20), tmp_path / "pipe"
    os.mkfifo(pipe)
    if kind == "pipe":
        os.mkfifo(root / "a" / "pipe.png")
    else:
        (root / "a" / "other.png").symlink_to("/dev/zero" if "device" in kind else pipe)
    splits = open_source(root)
    assert len(splits.train) + len(splits.test or ()) == 20
    assert not splits.unreadable
    assert len(listed(root)) == 20


@pytest.mark.parametrize("side", [8, 100], ids=["in memory", "in files"])
def test_copies_across_the_split_and_with_two_labels_are_told(
    side: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, first, count in (("train", 0, 20), ("test", 50, 10)):
        for number in range(first, first + count):
            path = tmp_path / "own" / part / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(number, side + (number % 3 if side > 8 else 0))).save(path)
    assert check_source(str(tmp_path / "own")).twins.lines() == []
    shutil.copy(tmp_path / "own/train/a/4.png", tmp_path / "own/test/a/4.png")
    linked(tmp_path / "own/train/b/5.png", tmp_path / "own/train/a/5.png")
    found = check_source(str(tmp_path / "own")).twins
    if side > 8:
        assert found.across == [("test/a/4.png", "train/a/4.png")]
        assert found.labels == [("train/b/5.png", "train/a/5.png")]
    assert (len(found.across), len(found.labels)) == (1, 1)
    assert main(["data", str(tmp_path / "own")]) == 0
    told = capsys.readouterr().out
    assert "exact copies of test images among the training images, so accuracies are too high: 1, the first" in told
    assert "exact copies with different labels: 1, the first" in told


@pytest.mark.parametrize("side", [8, 100], ids=["in memory", "in files"])
def test_copies_of_test_images_among_unlabeled_ones_are_told(side: int, tmp_path: Path) -> None:
    for part, first, count in (("train/a", 0, 4), ("test/a", 10, 4), ("unlabelled", 20, 4)):
        for number in range(first, first + count):
            path = tmp_path / "own" / part / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(number, side + (number % 3 if side > 8 else 0))).save(path)
    shutil.copy(tmp_path / "own/train/a/1.png", tmp_path / "own/unlabelled/copy.png")  # spoils no measurement
    assert check_source(str(tmp_path / "own")).twins.lines() == []
    shutil.copy(tmp_path / "own/test/a/11.png", tmp_path / "own/unlabelled/archive.png")
    (line,) = check_source(str(tmp_path / "own")).twins.lines()
    assert "so accuracies are too high: 1, the first" in line


@pytest.mark.parametrize("kind", ["in memory", "in files", "npz"])
def test_a_new_run_does_not_learn_from_copies_of_test_images_among_unlabeled_ones(kind: str, tmp_path: Path) -> None:
    images = {"train/a": [0, 1, 2, 3], "test/a": [10, 11, 12, 13], "unlabelled": [20, 11, 1, 21]}
    for part, numbers in images.items():
        if kind == "npz":
            np.savez(tmp_path / f"{part.removesuffix('/a')}.npz", images=np.stack([pixels(one) for one in numbers]))
            continue
        for number in numbers:
            path = tmp_path / part / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(number, 8 if kind == "in memory" else 100 + number % 3)).save(path)
    chosen = settings({"data": str(tmp_path)})
    now, before = open_data(chosen).unlabeled, open_data(chosen, {"split": 3}).unlabeled
    assert now is not None
    assert before is not None
    assert (len(now), len(before)) == (3, 4), "an earlier run goes on as it began"
    test = open_data(chosen).test
    assert test is not None
    alike = copies([test.source, now.source])
    assert not set(alike[len(test) :].tolist()) & set(range(len(test)))


def test_a_part_that_is_left_aside_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, part in enumerate(["train"] * 10 + ["test"] * 4 + ["val"] * 4):
        path = tmp_path / "own" / part / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(number)).save(path)
    assert main(["data", str(tmp_path / "own")]) == 0
    assert "split: train/ and test/; val/ not used" in capsys.readouterr().out
