import pickle
import zlib
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from dualtemp.data.loading.decode import UnreadableImage, read_header, read_image

PILLOW = int(PIL.__version__.partition(".")[0])
RAMP = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def read(path: Path, channels: int = 3) -> np.ndarray:
    image = read_image(path, path.name, channels)
    assert image.mode == ("L" if channels == 1 else "RGB")
    return np.asarray(image)


@pytest.mark.parametrize(
    ("mode", "ending"),
    [
        ("1", "png"),
        ("L", "png"),
        ("L", "bmp"),
        ("P", "gif"),
        ("RGB", "tiff"),
        ("CMYK", "tiff"),
        pytest.param("YCbCr", "tiff", marks=pytest.mark.skipif(PILLOW < 13, reason="Pillow reads these since 13.0")),
    ],
)
def test_plain_modes_come_out_as_pillow_converts_them(tmp_path: Path, mode: str, ending: str) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    path = saved(tmp_path / f"x.{ending}", Image.fromarray(colours).convert(mode))
    with Image.open(path) as image:
        assert (read(path) == np.asarray(image.convert("RGB"))).all()
        assert (read(path, 1) == np.asarray(image.convert("L"))).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_lie_on_white(tmp_path: Path, mode: str) -> None:
    rgba = np.zeros((2, 3, 4), dtype=np.uint8)
    rgba[:, :2, 3] = 255  # opaque black, then a transparent column
    path = tmp_path / "x.png"
    if mode == "P":
        Image.fromarray(np.array([[0, 0, 1]] * 2, dtype=np.uint8)).save(path, transparency=1)
        with Image.open(path) as image:
            palette = image.convert("P")
            palette.info["transparency"] = 1
            palette.save(path, transparency=1)
    else:
        Image.fromarray(rgba).convert(mode).save(path)
    assert (read(path)[:, 2] == 255).all()
    assert (read(path)[:, :2] < 2).all()
    assert (read(path, 1)[:, 2] == 255).all()


@pytest.mark.parametrize(("mode", "key"), [("RGB", (9, 9, 9)), ("L", 9)])
def test_a_transparent_colour_lies_on_white(tmp_path: Path, mode: str, key: object) -> None:
    image = Image.new(mode, (2, 1), key)  # type: ignore[arg-type]
    image.putpixel((1, 0), 77 if mode == "L" else (77, 77, 77))
    path = saved(tmp_path / "x.png", image, transparency=key)
    assert read(path).tolist() == [[[255] * 3, [77] * 3]]
    assert read(path, 1).tolist() == [[255, 77]]


def test_half_transparent_pixels_are_mixed_with_white(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.png", Image.new("RGBA", (2, 2), (0, 100, 200, 51)))
    assert np.abs(read(path)[0, 0] - np.array([204, 224, 244])).max() <= 1  # .2 of the colour, .8 of 255


def test_sixteen_bits_are_divided_by_257(tmp_path: Path) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16)
    path = saved(tmp_path / "x.png", Image.fromarray(values))
    assert read(path, 1).tolist() == [[round(value / 257) for value in values[0].tolist()]]
    big_endian = saved(tmp_path / "x.tiff", Image.fromarray(values))
    assert read(big_endian, 1).tolist() == read(path, 1).tolist()


def test_floating_point_images_are_from_0_to_1_or_to_255(tmp_path: Path) -> None:
    unit = saved(tmp_path / "unit.tiff", Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32)))
    bytes_ = saved(tmp_path / "bytes.tiff", Image.fromarray(np.array([[-3, 127.6, 300, np.nan]], dtype=np.float32)))
    assert read(unit, 1).tolist() == [[0, 128, 255]]
    assert read(bytes_, 1).tolist() == [[0, 128, 255, 0]]


def test_lab_images_are_converted_through_their_profile(tmp_path: Path) -> None:
    lab = Image.merge("LAB", [Image.new("L", (2, 2), value) for value in (255, 128, 128)])
    assert (read(saved(tmp_path / "x.tiff", lab)) >= 253).all()  # L* = 100 is white


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda a: a),
        (2, np.fliplr),
        (3, lambda a: np.rot90(a, 2)),
        (4, np.flipud),
        (5, np.transpose),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: np.rot90(np.transpose(a), 2)),
        (8, np.rot90),
    ],
)
def test_exif_rotation_is_applied(tmp_path: Path, orientation: int, upright: object) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "x.png", Image.fromarray(RAMP), exif=exif)
    assert (read(path, 1) == upright(RAMP)).all()  # type: ignore[operator]


@pytest.mark.parametrize("ending", ["png", "webp", "jpg"])
def test_damaged_exif_data_leave_an_image_as_it_is(tmp_path: Path, ending: str) -> None:
    plain = saved(tmp_path / f"plain.{ending}", Image.fromarray(RAMP), dpi=(72, 72))
    damaged = b"Exif\0\0garbage garbage"
    path = saved(tmp_path / f"damaged.{ending}", Image.fromarray(RAMP), dpi=(72, 72), exif=damaged)
    assert read_header(path, "x") == read_header(plain, "x")
    assert np.array_equal(read(path), read(plain))
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 4])
    with pytest.raises(UnreadableImage):
        read(path)


def test_the_header_of_a_large_png_is_read_without_decoding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, exif = Image.new("L", (300, 400)), Image.Exif()
    exif[0x0112] = 6
    plain, turned = saved(tmp_path / "x.png", image), saved(tmp_path / "turned.png", image, exif=exif)
    content, chunk = plain.read_bytes(), exif_chunk(exif)
    late = content[:-12] + chunk + content[-12:]  # behind the pixels, where it is found by decoding
    assert read_header(late, "x") == (300, 400, "L")
    for cut in (content[:-30], saved(tmp_path / "small.png", image.resize((30, 40))).read_bytes()[:-30]):
        with pytest.raises(UnreadableImage):
            read_header(cut, "x")
    monkeypatch.setattr(PngImageFile, "load", lambda self: pytest.fail("decoded"))
    assert read_header(plain, "x") == read_header(content, "x") == (400, 300, "L")
    assert read_header(turned, "x") == (300, 400, "L")


def exif_chunk(exif: Image.Exif) -> bytes:
    content = b"eXIf" + exif.tobytes().removeprefix(b"Exif\0\0")
    return (len(content) - 4).to_bytes(4) + content + zlib.crc32(content).to_bytes(4)


def test_the_first_frame_of_an_animation_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    path = saved(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    assert (read(path) == (255, 0, 0)).all()


def test_the_picture_outlives_its_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.png", Image.fromarray(RAMP))
    image = read_image(path, "x.png", 1)
    path.unlink()
    assert (np.asarray(image) == RAMP).all()


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    whole = saved(tmp_path / "x.jpg", Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)))
    cases = {"gone.jpg": None, "text.jpg": b"hello", "empty.jpg": b"", "half.jpg": whole.read_bytes()[:900]}
    for name, content in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableImage) as raised:
            read_image(tmp_path / name, f"sub/{name}", 3)
        assert raised.value.name == f"sub/{name}"
        assert raised.value.reason
        assert "\n" not in str(raised.value)
        assert str(tmp_path) not in str(raised.value)


def test_the_error_survives_the_way_out_of_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(UnreadableImage("a/b.jpg", "truncated")))
    assert (error.name, error.reason) == ("a/b.jpg", "truncated")


@pytest.mark.parametrize("ending", ["tiff", "png", "jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_header_of_a_turned_image_has_the_size_of_its_pixels(orientation: int, ending: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"x.{ending}", Image.new("RGB", (14, 10)), exif=exif)
    header = read_header(path, path.name)
    assert (header.width, header.height) == read_image(path, path.name, 3).size
