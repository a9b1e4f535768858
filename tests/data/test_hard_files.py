"""Files that people have in their folders: broken, huge, odd, foreign. Each is read or named, and never kills."""

import os
import resource
import struct
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, features

from dualtemp.data.augment.views import Views, evaluation_geometry
from dualtemp.data.images import FileImages, ImageSet, ImagesGone
from dualtemp.data.loading.crop_files import clean_crop, enough_pixels, resize
from dualtemp.data.loading.decode import MOST_PIXELS, UnreadableImage, read_image
from dualtemp.data.loading.loader import Loader, evaluation_batches
from dualtemp.data.sources.folder import find_images, foreign_images, open_folder
from dualtemp.errors import UserError

# pytest shows what the package silences.
pytestmark = pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def views(size: int = 16, recipe: str = "paper") -> Views:
    return Views(recipe, size, 0, MEAN, STD)


def noise(width: int = 130, height: int = 90, seed: int = 0) -> Image.Image:
    """Smooth enough that scaling it in two ways gives nearly the same."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def png(width: int, height: int, depth: int, colour: int, row: bytes) -> bytes:
    """A PNG of equal rows, written by hand: Pillow writes neither 16-bit colour nor one that is too large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(b"\0" + row) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("zoo")
    for number in range(20):
        noise(seed=number).save(root / f"photo{number:02}.jpg")
    jpeg = (root / "photo00.jpg").read_bytes()
    noise().save(root / "whole.png")
    (root / "half.png").write_bytes((root / "whole.png").read_bytes()[:5000])
    (root / "half.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (root / "empty.jpg").write_bytes(b"")
    (root / "text.jpg").write_text("a letter")
    (root / "iphone.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    (root / "script.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    (root / "bomb.png").write_bytes(png(20_000, 20_000, 1, 0, bytes(2500)))
    (root / "large.png").write_bytes(png(11_000, 11_000, 1, 0, bytes(1375)))  # Pillow itself would only warn
    (root / "link.jpg").symlink_to("nowhere.jpg")
    (root / "circle.jpg").symlink_to("circle.jpg")
    noise().convert("CMYK").save(root / "cmyk.jpg")
    (root / "colour16.png").write_bytes(png(130, 90, 16, 2, struct.pack(">3H", 65535, 32896, 0) * 130))
    Image.fromarray(np.full((90, 130), 32896, np.uint16)).save(root / "grey16.png")
    noise().convert("P").save(root / "palette.png", transparency=3)
    for form in ("gif", "webp", "png"):
        noise().save(root / f"moving.{form}", save_all=True, append_images=[noise(seed=1), noise(seed=2)])
    turned = Image.Exif()
    turned[0x0112] = 6
    noise().save(root / "turned.jpg", exif=turned)
    noise().save(root / "wrong.jpg", format="PNG")
    Image.new("RGB", (1, 5000), "red").save(root / "thin.png")
    Image.new("RGB", (5000, 1), "red").save(root / "flat.png")
    Image.new("RGB", (1, 1), "red").save(root / "dot.png")
    (root / "notes.txt").write_text("x")
    (root / "clip.mov").write_bytes(b"x")
    (root / "script.eps").write_bytes((root / "script.jpg").read_bytes())
    (root / ".hidden.jpg").write_bytes(jpeg)
    (root / "folder.jpg").mkdir()
    return root


UNREADABLE = {
    "half.png": "truncated",
    "half.jpg": "truncated",
    "empty.jpg": "the file is empty",
    "text.jpg": "not an image",
    "iphone.jpg": "a HEIC picture: Pillow does not read this format; convert it to JPEG or PNG",
    "script.jpg": "not an image",
    "bomb.png": "more than 100 million pixels",
    "large.png": "more than 100 million pixels",
    "link.jpg": "the file is gone",
    "circle.jpg": "symbolic links",
}


def test_every_odd_file_is_read_or_named_with_the_reason(zoo: Path) -> None:
    found = find_images(zoo)
    assert {"notes.txt", "clip.mov", "script.eps", ".hidden.jpg", "folder.jpg"}.isdisjoint(found)
    files, reasons = FileImages(zoo, tuple(found)), {}
    for i, name in enumerate(found):
        try:
            assert files.open(i).mode == "RGB"
        except UnreadableImage as error:
            reasons[name] = error.reason
    assert set(reasons) == set(UNREADABLE)
    for name, words in UNREADABLE.items():
        assert words in reasons[name]


def test_sixteen_bits_of_colour_and_of_grey_come_out_in_eight(zoo: Path) -> None:
    assert np.asarray(read_image(zoo / "colour16.png", "", 3))[5, 5].tolist() == [255, 128, 0]
    assert np.asarray(read_image(zoo / "grey16.png", "", 3))[5, 5].tolist() == [128] * 3


def test_an_epoch_over_all_of_them_ends_with_every_unreadable_file_named(zoo: Path) -> None:
    images = open_folder(zoo).train
    assert isinstance(images.pixels, FileImages)
    with Loader(images, views(), 4, workers=1) as loader:
        seen = [batch for epoch in range(3) for batch in loader.batches(epoch)]
    assert all(view.isfinite().all() for batch in seen for view in batch.views)
    expected = set(UNREADABLE) & set(images.pixels.names)
    # Every epoch drops the rest of a batch, so that after three of them nearly all have been met.
    assert set(loader.problems) <= expected
    assert len(loader.problems) >= len(expected) - 1


def test_a_picture_of_400_million_pixels_costs_neither_memory_nor_time(zoo: Path) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with warnings.catch_warnings(action="error"), pytest.raises(UnreadableImage, match="100 million pixels"):
        read_image(zoo / "bomb.png", "bomb.png", 3)
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


@pytest.mark.skipif(not features.check("jpg"), reason="Pillow without JPEG")
def test_a_jpeg_beyond_the_limit_is_decoded_smaller(tmp_path: Path) -> None:
    path = tmp_path / "panorama.jpg"
    Image.new("L", (30_000, 6_100), 77).save(path, quality=30)  # larger than Pillow opens
    assert MOST_PIXELS < 30_000 * 6_100
    for enough, size in ((None, (15_000, 3_050)), (700, (3_750, 763)), (300, (1_875, 382))):
        image = read_image(path, path.name, 1, enough)
        assert image.size == size
        assert abs(image.getpixel((5, 5)) - 77) <= 2  # type: ignore[operator]


@pytest.mark.parametrize("form", ["jpg", "png", "webp"])
@pytest.mark.parametrize(("enough", "factor"), [(None, 1), (301, 1), (300, 2), (150, 4), (99, 4), (75, 8)])
def test_a_large_image_comes_reduced_to_what_is_enough_and_looks_the_same(
    tmp_path: Path, form: str, enough: int | None, factor: int
) -> None:
    path = tmp_path / f"x.{form}"
    noise(792, 600).save(path)
    image = read_image(path, path.name, 3, enough)
    if enough == 99 and form != "jpg":
        factor = 6  # a JPEG is decoded at a half, a quarter or an eighth
    assert image.size == (792 // factor, 600 // factor)
    whole = read_image(path, path.name, 3).resize((24, 20), Image.Resampling.BILINEAR)
    small = image.resize((24, 20), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(whole, np.int64) - np.asarray(small, np.int64)).mean() <= 2


def test_a_turned_photograph_is_reduced_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    noise(1600, 800).save(tmp_path / "x.jpg", exif=exif)
    assert read_image(tmp_path / "x.jpg", "x.jpg", 3, 100).size == (100, 200)


@pytest.mark.parametrize(("recipe", "size"), [("paper", 16), ("mocov2", 224), ("weak", 64), ("byol", 128)])
def test_even_the_smallest_crop_of_a_reduced_image_fills_its_view(recipe: str, size: int) -> None:
    made = views(size, recipe)
    side = torch.full((4000,), enough_pixels(made))
    for view in (0, 1):
        boxes = made.crop_boxes(torch.arange(4000), 0, view, side, side)
        assert int(boxes[:, 2:].min()) >= size - 1  # a crop's side is rounded
        assert int(boxes[:, 2:].min()) < 1.5 * size  # and no more is asked for than that


def test_photographs_in_formats_that_are_not_read_are_named_not_passed_over(tmp_path: Path) -> None:
    for name in ("IMG_1.HEIC", "raw/DSC_2.NEF"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert [each.name for each in foreign_images(tmp_path)] == ["IMG_1.HEIC", "raw/DSC_2.NEF"]
    with pytest.raises(UserError, match=r"its 2 image files cannot be read, the first IMG_1.HEIC: .* convert it"):
        open_folder(tmp_path)
    for number in range(12):
        noise(seed=number).save(tmp_path / f"{number}.jpg")
    assert [each.name for each in open_folder(tmp_path, labels=False).unreadable] == ["IMG_1.HEIC", "raw/DSC_2.NEF"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    noise().save(tmp_path / "x.jpg")
    (tmp_path / "x.jpg").chmod(0)
    with pytest.raises(UnreadableImage, match="no permission"):
        read_image(tmp_path / "x.jpg", "x.jpg", 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_one_good_image_among_hundreds_of_broken_ones_is_found(tmp_path: Path, workers: int) -> None:
    for number in range(150):
        (tmp_path / f"{number:03}.jpg").write_bytes(b"broken")
    noise().save(tmp_path / "123.jpg")
    images = ImageSet("mostly broken", FileImages(tmp_path, tuple(f"{number:03}.jpg" for number in range(150))))
    with Loader(images, views(), 50, workers=workers) as loader:
        shown = torch.cat([batch.index for batch in loader.batches(0)])
    assert shown.tolist() == [123] * 150
    assert len(loader.problems) == 149


def test_a_folder_that_was_taken_away_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for number in range(8):
        noise(seed=number).save(tmp_path / "set" / f"{number}.png")
    images = ImageSet("set", FileImages(tmp_path / "set", tuple(f"{number}.png" for number in range(8))))
    (tmp_path / "set").rename(tmp_path / "away")
    with Loader(images, views(), 4, workers=0) as loader, pytest.raises(ImagesGone, match="set is gone: put it back"):
        list(loader.batches(0))
    with pytest.raises(ImagesGone, match="is gone"):
        list(evaluation_batches(images, views(), 4, workers=0))
    problems: dict[str, str] = {}
    assert list(evaluation_batches(images, views(), 4, workers=0, problems=problems)) == []
    assert len(problems) == 8


@pytest.mark.parametrize("size", [(100_000, 1), (1, 100_000)])
def test_a_very_long_image_is_seen_without_being_enlarged_whole(size: tuple[int, int]) -> None:
    line = torch.arange(100_000, dtype=torch.int64).remainder(7).mul(30).to(torch.uint8)
    image = line.view(1, size[1], size[0]).expand(3, -1, -1)
    seen = clean_crop(image, 128)  # took 6 GB, and 19 at 224 px
    assert seen.shape == (3, 128, 128)
    middle = image.flatten(1)[:, 49_900:50_100].reshape(3, *((1, 200) if size[1] == 1 else (200, 1)))
    assert (seen.short() - clean_crop(middle, 128).short()).abs().max() <= 1
    usual = torch.randint(0, 256, (3, 40, 4_000), dtype=torch.uint8)
    height, width, top, left = evaluation_geometry(40, 4_000, 32)
    assert torch.equal(clean_crop(usual, 32), resize(usual, height, width)[:, top : top + 32, left : left + 32])
