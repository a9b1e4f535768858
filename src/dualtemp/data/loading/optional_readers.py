"""Read images that Pillow does not, with optional packages: DICOM, and some TIFF files.

As for all other images (decode.py), the result is the first frame in 8 bits:
- DICOM (pydicom): slope and intercept are applied, then the file's first window (center and width) becomes 0 to 255, or
  without a window the whole range of the stored bits. MONOCHROME1 is inverted; color becomes RGB.
- TIFF that Pillow refuses (tifffile): floating-point color is in [0, 1] or [0, 255], by the same rule as gray; 16-bit
  color that Pillow does not know is divided by 257. For other numbers of channels see stacks.py.
"""

import importlib.util
import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dualtemp.data.loading.stacks import IsStack, stack_of

DICOM_ENDINGS = frozenset({".dcm", ".dicom"})
NEEDS_PYDICOM = "a DICOM file: reading it needs pydicom, pip install 'dualtemp[dicom]'"
NEEDS_TIFFFILE = "a TIFF file that Pillow does not read: reading it needs tifffile, pip install 'dualtemp[tiff]'"
_PIXEL_DATA = (b"\xe0\x7f\x10\0", b"\x7f\xe0\0\x10")  # DICOM's tag, in either order of bytes
_DICOM_HEADER = (
    *("Rows", "Columns", "BitsAllocated", "BitsStored", "SamplesPerPixel"),
    *("PixelRepresentation", "PhotometricInterpretation"),
)
_DICOM_KINDS = ((1, "MONOCHROME1"), (1, "MONOCHROME2"), (3, "RGB"), (3, "YBR_FULL"))
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class NeedsReader(Exception):
    """Raised for an image whose reader is not installed, or whose channels or values are not supported."""


class HeaderAlone(Exception):
    """Raised instead of returning an image if only its header is wanted: height, width and PIL mode."""

    def __init__(self, height: int, width: int, mode: str) -> None:
        """Store the properties that the decoded image would have."""
        super().__init__(height, width, mode)
        self.height, self.width, self.mode = height, width, mode


@cache
def has_reader(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None


def extra_endings() -> frozenset[str]:
    """File name endings that count as images because their reader is installed."""
    return DICOM_ENDINGS if has_reader("pydicom") else frozenset()


def open_otherwise(encoded: Path | bytes, deep: bool = False, pixels: bool = True) -> Image.Image | None:
    """Decode an image that Pillow does not know; None if no reader here knows it either. Raises NeedsReader.

    deep: keep the values of gray images of more than 8 bits, DICOM and floating point as mode "F". pixels=False: raise
    HeaderAlone if the header can be known without decoding.
    """
    start = _start(encoded)
    if start[128:132] == b"DICM":
        return _open_dicom(encoded, deep, pixels)
    if start[:4] in _TIFF:
        return _open_tiff(encoded, deep)
    return None


def _start(encoded: Path | bytes) -> bytes:
    if isinstance(encoded, bytes):
        return encoded[:132]
    with open(encoded, "rb") as file:
        return file.read(132)


def _stream(encoded: Path | bytes) -> Any:
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded


def _open_dicom(encoded: Path | bytes, deep: bool, pixels: bool) -> Image.Image:
    if not has_reader("pydicom"):
        raise NeedsReader(NEEDS_PYDICOM)
    import pydicom

    if not pixels and (found := _dicom_header(encoded, deep)):
        raise found
    about = pydicom.dcmread(_stream(encoded))
    values = about.pixel_array
    if int(about.get("NumberOfFrames", 1) or 1) > 1:
        values = values[0]
    if int(about.get("SamplesPerPixel", 1)) == 3:  # as RGB: pydicom has converted YBR already
        shift = max(0, int(about.BitsStored) - 8)
        return Image.fromarray((values >> shift).astype(np.uint8))
    if str(about.PhotometricInterpretation) == "PALETTE COLOR":  # values are indices into the palette
        from pydicom.pixels.processing import apply_color_lut

        color = apply_color_lut(values, about)
        return Image.fromarray((color >> 8 * (color.dtype.itemsize - 1)).astype(np.uint8))
    if deep and int(about.BitsStored) > 8:
        return Image.fromarray(_bright_values(values, about))
    return Image.fromarray(_eight_bit(values, about))


def _dicom_header(encoded: Path | bytes, deep: bool) -> HeaderAlone | None:
    """The header of a gray or RGB image if its pixels are complete and uncompressed; None for all others."""
    import pydicom

    with open(encoded, "rb") if isinstance(encoded, Path) else io.BytesIO(encoded) as file:
        about = pydicom.dcmread(file, stop_before_pixels=True)
        at = file.tell()
        has_pixels, left = file.read(4) in _PIXEL_DATA, file.seek(0, io.SEEK_END) - at
    packing = about.file_meta.TransferSyntaxUID
    if not has_pixels or packing.is_compressed or packing.is_deflated or any(n not in about for n in _DICOM_HEADER):
        return None
    rows, columns, allocated, stored, samples = (int(about[name].value) for name in _DICOM_HEADER[:5])
    frames = int(about.get("NumberOfFrames", 1) or 1)
    whole = left >= 8 + frames * rows * columns * samples * allocated // 8
    kind = (samples, str(about.PhotometricInterpretation))
    if not whole or allocated not in (8, 16) or kind not in _DICOM_KINDS:
        return None
    return HeaderAlone(rows, columns, "RGB" if samples == 3 else "F" if deep and stored > 8 else "L")


def _bright_values(values: np.ndarray, about: Any) -> np.ndarray:
    """Values after slope and intercept, float32; if low values are bright, mirrored within the stored range."""
    scaled = values.astype(np.float64) * _rescale(about)[0] + _rescale(about)[1]
    return (sum(_stored_range(about)) - scaled if _low_is_bright(about) else scaled).astype(np.float32)


def _eight_bit(values: np.ndarray, about: Any) -> np.ndarray:
    slope, intercept = _rescale(about)
    scaled = values.astype(np.float64) * slope + intercept
    low, high = _window(about)
    if low is None or high is None:
        low, high = _stored_range(about)
    found = ((scaled - low) * (255.0 / max(high - low, 1e-9))).round().clip(0, 255).astype(np.uint8)
    return 255 - found if _low_is_bright(about) else found


def _rescale(about: Any) -> tuple[float, float]:
    return float(about.get("RescaleSlope", 1) or 1), float(about.get("RescaleIntercept", 0) or 0)


def _low_is_bright(about: Any) -> bool:
    return str(about.PhotometricInterpretation) == "MONOCHROME1"


def _stored_range(about: Any) -> tuple[float, float]:
    """The least and the greatest value that the stored bits can hold, after slope and intercept."""
    bits, (slope, intercept) = int(about.BitsStored), _rescale(about)
    ends = (-(1 << bits - 1), (1 << bits - 1) - 1) if int(about.PixelRepresentation) else (0, (1 << bits) - 1)
    low, high = sorted(end * slope + intercept for end in ends)
    return low, high


def _window(about: Any) -> tuple[float | None, float | None]:
    """The values that become 0 and 255: the ends of the first window under DICOM's linear function."""
    center, width = (about.get(name) for name in ("WindowCenter", "WindowWidth"))
    if center is None or width is None:
        return None, None
    center, width = (float(each[0] if hasattr(each, "__len__") else each) for each in (center, width))
    return (center - 0.5 - (width - 1) / 2, center - 0.5 + (width - 1) / 2) if width >= 1 else (None, None)


def _open_tiff(encoded: Path | bytes, deep: bool) -> Image.Image:
    if not has_reader("tifffile"):
        raise NeedsReader(NEEDS_TIFFFILE)
    import tifffile

    with tifffile.TiffFile(_stream(encoded)) as file:
        page: Any = file.pages[0]
        if (stack := stack_of(page)) is not None:
            raise IsStack(stack)
        values, axes = page.asarray(), page.axes
    if "S" in axes:
        values = np.moveaxis(values, axes.index("S"), -1)
    channels = 1 if values.ndim == 2 else values.shape[-1]
    if values.ndim > 3 or channels not in (1, 3, 4):
        raise NeedsReader(f"{channels} channels of {values.ndim} axes: give an .npz file, which takes any number")
    if values.dtype.kind == "f" and channels == 1 and deep:
        values = values.astype(np.float32)
    elif values.dtype == np.uint16 and channels > 1:  # 16-bit gray is converted later, as Pillow's is
        values = ((values.astype(np.int32) + 128) // 257).astype(np.uint8)
    elif values.dtype.kind == "f":
        values = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
        values = (values * (255.0 if values.max(initial=0) <= 1 else 1.0)).round().clip(0, 255).astype(np.uint8)
    elif values.dtype not in (np.uint8, np.uint16):
        raise NeedsReader(f"values of type {values.dtype}; expected 8 or 16 bits without a sign, or floating point")
    return Image.fromarray(values[..., 0] if values.ndim == 3 and channels == 1 else values)
