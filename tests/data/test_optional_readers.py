"""DICOM, and TIFF files that Pillow refuses: values against those that were written; one line without the reader."""

from pathlib import Path

import numpy as np
import pytest
from drawn_photos import drawn_photo
from drawn_xrays import write_dicom
from PIL import Image

from dualtemp.data import open_source
from dualtemp.data.loading import decode, optional_readers
from dualtemp.data.loading.decode import UnreadableImage, read_header, read_image

RAMP = np.linspace(0, 4095, 60 * 50).reshape(60, 50).astype(np.uint16)


def test_without_a_window_the_range_of_the_stored_bits_becomes_0_to_255(tmp_path: Path) -> None:
    write_dicom(tmp_path / "x.dcm", RAMP)
    assert read_header(tmp_path / "x.dcm", "x") == (60, 50, "F")  # of more than 8 bits
    found = np.asarray(read_image((tmp_path / "x.dcm").read_bytes(), "x", 1)).astype(float)
    assert np.abs(found - RAMP / 4095 * 255).max() <= 0.5
    write_dicom(tmp_path / "y.dcm", RAMP, PhotometricInterpretation="MONOCHROME1")
    assert (np.asarray(read_image(tmp_path / "y.dcm", "y", 1)) == 255 - found).all()


def test_a_window_is_applied_after_slope_and_intercept(tmp_path: Path) -> None:
    signed = RAMP.astype(np.int16)
    more = {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": [40, 600], "WindowWidth": [400, 1500]}
    write_dicom(tmp_path / "x.dcm", signed, 16, **more)
    found = np.asarray(read_image(tmp_path / "x.dcm", "x", 1)).astype(float)
    units = signed.astype(float) * 2 - 1024
    expected = (((units - 39.5) / 399 + 0.5) * 255).clip(0, 255)  # the formula of the standard, C.11.2.1.2
    assert np.abs(found - expected).max() <= 0.5


def test_color_and_a_folder_of_dicom_files(tmp_path: Path) -> None:
    color = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    for i in range(12):
        write_dicom(tmp_path / f"{i}.dcm", color + np.uint8(i), 8)
    splits = open_source(tmp_path)
    whole = splits.train.join([splits.test]) if splits.test is not None else splits.train
    assert len(whole) == 12

    assert (np.asarray(read_image(tmp_path / "0.dcm", "0", 3)) == color).all()


def test_a_tiff_of_floating_point_color_is_read_and_one_of_many_channels_says_what_to_do(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    values = np.random.default_rng(0).random((50, 40, 3), np.float32)
    tifffile.imwrite(tmp_path / "x.tif", values, photometric="rgb")
    found = np.asarray(read_image(tmp_path / "x.tif", "x", 3)).astype(float)
    assert np.abs(found - values.astype(float) * 255).max() <= 0.5 + 1e-4
    tifffile.imwrite(
        tmp_path / "many.tif", np.zeros((50, 40, 7), np.uint16), photometric="minisblack", planarconfig="contig"
    )
    with pytest.raises(UnreadableImage, match=r"7 channels, where images of 1 or 3 are expected"):
        read_image(tmp_path / "many.tif", "many", 3)


def test_without_the_reader_a_file_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dicom(tmp_path / "x.dcm", RAMP)
    monkeypatch.setattr(optional_readers, "has_reader", lambda package: False)
    decode.image_extensions.cache_clear()
    try:
        with pytest.raises(Exception, match=r"pip install 'dualtemp\[dicom\]'"):
            open_source(tmp_path)
        with pytest.raises(UnreadableImage, match=r"dualtemp\[dicom\]"):
            read_image(tmp_path / "x.dcm", "x", 1)
    finally:
        decode.image_extensions.cache_clear()


def test_color_that_is_stored_as_luma_and_chroma_is_the_color_that_was_stored(tmp_path: Path) -> None:
    color = np.asarray(drawn_photo(0, 30, 20))
    stored = np.asarray(Image.fromarray(color).convert("YCbCr"))
    write_dicom(tmp_path / "x.dcm", stored, 8, PhotometricInterpretation="YBR_FULL")
    found = np.asarray(read_image(tmp_path / "x.dcm", "x", 3)).astype(int)
    assert np.abs(found - color).max() <= 3  # Y, Cb and Cr are rounded


@pytest.mark.parametrize("bits", [8, 16])
def test_numbers_of_colors_become_the_colors_of_the_palette(tmp_path: Path, bits: int) -> None:
    palette = np.random.default_rng(0).integers(0, 256, (4, 3), np.uint8)
    numbers = np.random.default_rng(1).integers(0, 4, (12, 9), np.uint8)
    kept = palette.astype(np.uint16) * 257 if bits == 16 else palette
    words = {}
    for channel, color in enumerate(("Red", "Green", "Blue")):
        words[f"{color}PaletteColorLookupTableDescriptor"] = [4, 0, bits]
        words[f"{color}PaletteColorLookupTableData"] = np.ascontiguousarray(kept[:, channel]).tobytes()
    write_dicom(tmp_path / "x.dcm", numbers, 8, PhotometricInterpretation="PALETTE COLOR", **words)
    assert read_header(tmp_path / "x.dcm", "x") == (12, 9, "RGB")
    assert (np.asarray(read_image(tmp_path / "x.dcm", "x", 3)) == palette[numbers]).all()


@pytest.mark.parametrize("kind", ["gray", "dark", "eight", "color", "frames"])
def test_the_header_of_a_dicom_file_is_what_decoding_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pydicom = pytest.importorskip("pydicom")
    values = np.arange(80 * 60, dtype=np.uint16).reshape(80, 60) % 4000
    write = {
        "gray": lambda path: write_dicom(path, values),
        "dark": lambda path: write_dicom(path, values, PhotometricInterpretation="MONOCHROME1"),
        "eight": lambda path: write_dicom(path, (values % 256).astype(np.uint8), 8),
        "color": lambda path: write_dicom(path, np.zeros((80, 60, 3), np.uint8), 8),
        "frames": lambda path: write_dicom(path, values, Rows=40, NumberOfFrames=2),
    }
    write[kind](tmp_path / "x.dcm")
    content = (tmp_path / "x.dcm").read_bytes()
    with decode.open_image(content, deep=True) as image:
        expected = (image.height, image.width, image.mode)
    with pytest.raises(UnreadableImage):
        read_header(content[:-100], "cut short")
    decoded = property(lambda self: pytest.fail("decoded"))
    monkeypatch.setattr(pydicom.dataset.Dataset, "pixel_array", decoded)
    assert read_header(content, "x") == read_header(tmp_path / "x.dcm", "x") == expected
