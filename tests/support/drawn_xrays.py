"""Gray images of 12 bits in files of 16, as X-rays and microscopes make them, that tests draw."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def drawn_xray(number: int, side: int = 40) -> np.ndarray:
    """Smooth patterns, uint16 (side - 4, side), values of about 300 to 3,700."""
    coarse = np.random.default_rng(number).random((5, 4)).astype(np.float32)
    smooth = Image.fromarray(coarse).resize((side, side - 4), Image.Resampling.BILINEAR)
    return (300 + 3400 * np.asarray(smooth)).astype(np.uint16)


def write_gray(path: Path, values: np.ndarray) -> np.ndarray:
    """As PNG or TIFF, by Pillow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return values


def draw_xrays(folder: Path, count: int, ending: str = "png", side: int = 40) -> dict[str, np.ndarray]:
    """Values by name."""
    return {f"{n:03}.{ending}": write_gray(folder / f"{n:03}.{ending}", drawn_xray(n, side)) for n in range(count)}


def write_dicom(path: Path, values: np.ndarray, bits: int = 12, **more: object) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    about = pydicom.Dataset()
    about.file_meta = FileMetaDataset()
    about.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    about.file_meta.MediaStorageSOPClassUID = about.SOPClassUID = SecondaryCaptureImageStorage
    about.file_meta.MediaStorageSOPInstanceUID = about.SOPInstanceUID = generate_uid(entropy_srcs=[path.name])
    about.Rows, about.Columns = values.shape[:2]
    about.SamplesPerPixel = 1 if values.ndim == 2 else 3
    about.PhotometricInterpretation = "MONOCHROME2" if values.ndim == 2 else "RGB"
    if values.ndim == 3:
        about.PlanarConfiguration = 0
    about.BitsAllocated = values.dtype.itemsize * 8
    about.BitsStored, about.HighBit, about.PixelRepresentation = bits, bits - 1, int(values.dtype.kind == "i")
    about.PixelData = values.tobytes()
    for name, value in more.items():
        setattr(about, name, value)
    about.save_as(path, enforce_file_format=True)
