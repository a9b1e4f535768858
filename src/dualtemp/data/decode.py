"""From any file that PIL opens to one upright 8-bit image, grey or RGB.

Decided once, for every image file:
- EXIF rotation is applied; of an animation the first frame is taken.
- Transparent pixels lie on white.
- 16-bit grey is divided by 257 (65535 becomes 255); 32-bit integers are taken as 16-bit values;
  floating-point images are in [0, 1] if no value exceeds 1, else in [0, 255].
"""

from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageOps

GREY_MODES = frozenset({"1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N"})

# Formats that Pillow names but does not decode by itself.
NOT_DECODED = frozenset({"BUFR", "GRIB", "HDF5", "MPEG"})


@cache
def image_extensions() -> frozenset[str]:
    """The file name endings, in small letters, of every format that Pillow decodes."""
    known = Image.registered_extensions()
    return frozenset(ext for ext, form in known.items() if form in Image.OPEN and form not in NOT_DECODED)


class UnreadableImage(Exception):
    """An image file that cannot be read: `name` (relative, posix) and `reason`, one line each."""

    def __init__(self, name: str, reason: str) -> None:
        """Name the file and say what is wrong with it."""
        super().__init__(name, reason)  # both in args, so that it survives the way out of a worker process
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        """Name and reason in one line."""
        return f"{self.name}: {self.reason}"


def read_image(path: Path, name: str, channels: int) -> Image.Image:
    """Decode one file upright: mode "L" if channels is 1, "RGB" if it is 3.

    Raises UnreadableImage(name, reason) for whatever keeps the file from being decoded.
    """
    try:
        with Image.open(path) as image:
            return eight_bit(ImageOps.exif_transpose(image), channels)
    except Exception as error:  # PIL's plugins raise nearly anything on broken files
        raise UnreadableImage(name, reason_of(error)) from error


def eight_bit(image: Image.Image, channels: int) -> Image.Image:
    """Convert any PIL mode to "L" (channels 1) or "RGB" (channels 3)."""
    target = "L" if channels == 1 else "RGB"
    if image.mode == target and "transparency" not in image.info:
        image.load()
        return image.copy() if image.readonly else image
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
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


def is_grey(mode: str) -> bool:
    """Whether a PIL mode carries no colour (a palette may; it counts as colour)."""
    return mode in GREY_MODES or mode.startswith("I;16")


def reason_of(error: BaseException) -> str:
    """One line that says why, without the path (the name stands beside it)."""
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow can read"
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200]
