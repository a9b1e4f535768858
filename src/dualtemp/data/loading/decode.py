"""Decode anything that PIL opens, a file or its bytes, to one upright 8-bit image, gray or RGB.

The rules for every image file:
- EXIF rotation is applied; of an animation the first frame is taken.
- Transparent pixels are drawn on white.
- 16-bit gray is divided by 257 (65535 becomes 255); 32-bit integers are taken as 16-bit values;
  floating-point images are in [0, 1] if no value exceeds 1, else in [0, 255]. Given levels (gray_levels.py) replace
  these rules.
- Images of more than 100 million pixels are refused; a JPEG of up to four times as many is decoded at a smaller scale.
- Formats that another program would have to interpret (PostScript) are not read: a file never runs code.
"""

import io
import os
import stat
import warnings
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image, ImageCms, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from dualtemp.data.loading.gray_levels import deep_values, to_eight_bits
from dualtemp.data.loading.optional_readers import (
    DICOM_ENDINGS,
    NEEDS_PYDICOM,
    HeaderAlone,
    extra_endings,
    open_otherwise,
)
from dualtemp.data.loading.stacks import IsStack, Levels, by_levels, read_stack

GRAY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})

# Formats that Pillow knows but does not decode by itself (it passes EPS to Ghostscript).
NOT_DECODED = frozenset({"BUFR", "GRIB", "HDF5", "MPEG", "EPS", "WMF"})
# Endings of image files that Pillow does not decode: they are reported, not skipped silently.
FOREIGN = frozenset(
    {".heic", ".heif", ".jxl", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2", ".pef", ".srw"}
    | DICOM_ENDINGS  # read if pydicom is installed
)
CONVERT = "Pillow does not read this format; convert it to JPEG or PNG"


def what_to_do(ending: str) -> str:
    """Advice on a file of a foreign format."""
    return NEEDS_PYDICOM if ending.lower() in DICOM_ENDINGS else CONVERT


MOST_PIXELS = 100_000_000  # 0.3 GB in color
MOST_JPEG_PIXELS = 4 * MOST_PIXELS
LARGE_PNG = 1 << 16  # pixels; a smaller one is decoded for its header, which costs less than a millisecond
_PNG, _TELLING = b"\x89PNG\r\n\x1a\n", (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
_SCALES = (1, 2, 4, 8)  # at which a JPEG can be decoded
_ORIENTATION = 0x0112  # an EXIF tag; by its value:
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = frozenset(_TURNS[value] for value in (5, 6, 7, 8))

_SAMPLES, _PLANAR = 277, 284  # tags of TIFF: channels, and whether each is stored on its own (2)

Encoded = Path | bytes  # an image file, or the bytes of one

# Silence Pillow's warnings: large images have our own limit, and damaged EXIF data are ignored.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", "Corrupt EXIF data", UserWarning)


@cache
def image_extensions() -> frozenset[str]:
    """The lowercase file name endings of all formats that Pillow or an installed optional reader decodes."""
    known = Image.registered_extensions()
    endings = frozenset(ext for ext, form in known.items() if form in Image.OPEN and form not in NOT_DECODED)
    return endings | extra_endings()


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(form for form in Image.ID if form not in NOT_DECODED)


class NotRead(str):
    """A reason that may pass, such as a failing disk or network: the file may be intact, and is worth another try.

    Reasons that are plain strings are about the content, and hold until the file changes.
    """

    __slots__ = ()


class UnreadableImage(Exception):
    """An image file that cannot be read: `name` (relative, posix) and `reason`, one line each."""

    def __init__(self, name: str, reason: str) -> None:
        """Name the file and say what is wrong with it."""
        super().__init__(name, reason)  # both in args, so that it can be pickled by a worker process
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        """Name and reason in one line."""
        return f"{self.name}: {self.reason}"


class Header(NamedTuple):
    """Height and width of the upright image, and its PIL mode, or that of a stack ("4 x uint16")."""

    height: int
    width: int
    mode: str


def read_header(encoded: Encoded, name: str) -> Header:
    """Read height, width and mode without decoding; raises UnreadableImage(name, reason)."""
    try:
        with open_image(encoded, deep=True, pixels=False) as image:
            width, height = image.size
            if not isinstance(image, TiffImageFile) and _turn(image) in _SIDEWAYS:  # Pillow turns TIFF by itself
                width, height = height, width
            return Header(height, width, image.mode)
    except IsStack as found:
        return Header(found.stack.height, found.stack.width, str(found.stack))
    except HeaderAlone as found:
        return Header(found.height, found.width, found.mode)
    except Exception as error:  # PIL's plugins raise nearly anything on broken files
        raise UnreadableImage(name, reason_of(error, encoded)) from error


def _turn(image: Image.Image) -> Image.Transpose | None:
    """The transposition that the EXIF data ask for; None if there is none, or if the data are damaged."""
    if isinstance(image, PngImageFile) and "exif" not in image.info and not _has_told_all(image):
        image.load()  # EXIF data may come after the pixels
    try:
        return _TURNS.get(Image.Image.getexif(image).get(_ORIENTATION, 1))
    except Exception:  # Pillow raises nearly anything on damaged EXIF data
        return None


def _has_told_all(image: PngImageFile) -> bool:
    """Whether a PNG file is large, complete by its chunks, and has no metadata after the pixels."""
    if image.width * image.height < LARGE_PNG or image.fp is None:
        return False
    file, at = image.fp, image.fp.tell()
    try:
        return _ends_after_pixels(file)
    finally:
        file.seek(at)


def _ends_after_pixels(file: IO[bytes]) -> bool:
    """Whether the chunks of a PNG file reach its end, and none after the pixels can hold EXIF or XMP data."""
    file.seek(len(_PNG))
    pixels = False
    while len(head := file.read(8)) == 8:
        length, kind = int.from_bytes(head[:4]), head[4:]
        if kind == b"IEND" or (pixels and kind in _TELLING):
            return kind == b"IEND"
        pixels = pixels or kind == b"IDAT"
        file.seek(length + 4, os.SEEK_CUR)  # and a checksum
    return False


def _upright(image: Image.Image) -> Image.Image:
    """Decode an image and turn it as its EXIF data say: a new image."""
    image.load()
    turn = _turn(image)
    return image.copy() if turn is None else image.transpose(turn)


def read_image(
    encoded: Encoded, name: str, channels: int, enough: int | None = None, levels: Levels | None = None
) -> Image.Image:
    """Decode one image upright: mode "L" if channels is 1, "RGB" if it is 3.

    enough: pixels needed on the shorter side; an image with at least twice as many is reduced by a whole factor, which
    for a JPEG saves most of the decoding. None: never reduced.
    levels: of gray images of more than 8 bits (gray_levels.py).
    Raises UnreadableImage(name, reason) if the image cannot be decoded, for whatever reason.
    """
    try:
        with open_image(encoded, deep=levels is not None) as image:
            if isinstance(image, JpegImageFile) and (scale := _jpeg_scale(image.size, enough)) > 1:
                image.draft(None, (image.width // scale, image.height // scale))
            upright = _upright(image)
            upright = upright if levels is None else to_eight_bits(upright, levels)
            return _reduced(eight_bit(upright, channels), enough)
    except Exception as error:  # PIL's plugins raise nearly anything on broken files
        raise UnreadableImage(name, reason_of(error, encoded)) from error


def read_deep_gray(encoded: Encoded, name: str) -> np.ndarray | None:
    """The stored values of a gray image of more than 8 bits, (H, W, 1); None for all other images.

    Raises UnreadableImage(name, reason).
    """
    try:
        with open_image(encoded, deep=True) as image:
            return deep_values(image)
    except Exception as error:  # PIL's plugins raise nearly anything on broken files
        raise UnreadableImage(name, reason_of(error, encoded)) from error


def read_bands(encoded: Encoded, name: str, levels: Levels | None, enough: int | None = None) -> np.ndarray:
    """Decode one stack to uint8 (H, W, C) by levels; without levels, return the stored values.

    For `enough` and errors see `read_image`.
    """
    try:
        values = read_stack(encoded, MOST_PIXELS)
        return values if levels is None else by_levels(values, levels, enough)
    except Exception as error:  # tifffile raises nearly anything on broken files
        raise UnreadableImage(name, reason_of(error, encoded)) from error


def open_image(encoded: Encoded, deep: bool = False, pixels: bool = True) -> Image.Image:
    """Open an image by its content, not its ending, and read its header; raises TooLarge.

    deep: keep the values of gray images of more than 8 bits, also in formats that Pillow does not know. pixels=False:
    may raise HeaderAlone for an image of such a format, instead of decoding it.
    """
    if isinstance(encoded, Path) and not stat.S_ISREG(os.stat(encoded).st_mode):
        raise OSError("not a regular file")  # reading a pipe could block, and a device might never end
    try:
        image = Image.open(_stream(encoded), formats=_formats())
        if _is_planar_stack(image):
            image.close()
            raise UnidentifiedImageError  # Pillow takes it for gray, and cannot decode it
    except UnidentifiedImageError:
        found = _open_otherwise(encoded, deep, pixels)
        if found is None:
            raise
        image = found
    except Image.DecompressionBombError as error:
        try:
            image = JpegImageFile(_stream(encoded))  # can be decoded smaller, but Pillow refuses it first
        except SyntaxError:
            raise TooLarge(str(error)) from None
    width, height = image.size
    if width * height > (MOST_JPEG_PIXELS if isinstance(image, JpegImageFile) else MOST_PIXELS):
        image.close()
        raise TooLarge(f"{width} x {height}")
    return image


def _open_otherwise(encoded: Encoded, deep: bool, pixels: bool) -> Image.Image | None:
    try:
        return open_otherwise(encoded, deep, pixels)
    except HeaderAlone as found:
        if found.width * found.height > MOST_PIXELS:
            raise TooLarge(f"{found.width} x {found.height}") from None
        raise


def _is_planar_stack(image: Image.Image) -> bool:
    """Whether this is a TIFF file of several channels stored one after the other, which Pillow takes for gray."""
    tags = getattr(image, "tag_v2", {})
    return is_gray(image.mode) and tags.get(_SAMPLES, 1) > 1 and tags.get(_PLANAR, 1) == 2


def _stream(encoded: Encoded) -> Path | io.BytesIO:
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded


class TooLarge(Exception):
    """Raised for an image of more pixels than the limit."""


def _jpeg_scale(size: tuple[int, int], enough: int | None) -> int:
    """The factor, 1, 2, 4 or 8, by which to reduce a JPEG: within the limit, and if possible not below `enough`."""
    pixels, shorter = size[0] * size[1], min(size)
    needed = next((scale for scale in _SCALES if pixels <= MOST_PIXELS * scale**2), _SCALES[-1])
    wanted = 1 if enough is None else max((scale for scale in _SCALES if shorter // scale >= enough), default=1)
    return max(needed, wanted)


def _reduced(image: Image.Image, enough: int | None) -> Image.Image:
    factor = 1 if enough is None else min(image.size) // enough
    return image.reduce(factor) if factor > 1 else image


def eight_bit(image: Image.Image, channels: int) -> Image.Image:
    """Convert any PIL mode to "L" (channels 1) or "RGB" (channels 3)."""
    target = "L" if channels == 1 else "RGB"
    if image.mode == target and "transparency" not in image.info:
        image.load()
        return image.copy() if image.readonly else image
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int32).clip(0, 65535)
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        values = np.nan_to_num(np.asarray(image, dtype=np.float32), posinf=0, neginf=0)
        scale = 255.0 if values.max(initial=0) <= 1 else 1.0
        image = Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))
    elif image.mode == "LAB":
        srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        converted = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")
        assert converted is not None  # None only in place
        image = converted
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, rgba)
    return image.convert(target)


def is_gray(mode: str) -> bool:
    """Whether a PIL mode has no color; a palette counts as color, since it may have."""
    return mode in GRAY_MODES or mode.startswith("I;16")


def reason_of(error: BaseException, encoded: Encoded | None = None) -> str:
    """One line that says why a file is unreadable, without its path, and what it is instead, if known."""
    if isinstance(error, FileNotFoundError):
        return NotRead("the file is gone")
    if isinstance(error, PermissionError):
        return NotRead("no permission to read it")
    if isinstance(error, OSError) and error.errno is not None:  # from the system: Pillow's own errors have no errno
        return NotRead(error.strerror or error)
    if isinstance(error, TooLarge):
        return f"more than {MOST_PIXELS // 1_000_000} million pixels"
    if isinstance(error, UnidentifiedImageError):
        return _what_it_is(encoded)
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200]


def _what_it_is(encoded: Encoded | None) -> str:
    try:
        if isinstance(encoded, bytes):
            start = encoded[:12]
        else:
            with open(encoded or "", "rb") as file:
                start = file.read(12)
    except OSError:
        return "not an image that Pillow can read"
    if not start:
        return "the file is empty"
    if start[4:8] == b"ftyp" and start[8:12] in (b"heic", b"heix", b"hevc", b"mif1", b"msf1"):
        return f"a HEIC picture: {CONVERT}"
    return "not an image that Pillow can read"
