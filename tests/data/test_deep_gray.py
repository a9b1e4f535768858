"""Gray images of more than 8 bits by measured levels: PNG, TIFF and DICOM, against the values that were written."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import Commands
from drawn_photos import draw_photos
from drawn_xrays import draw_xrays, drawn_xray, write_dicom, write_gray
from PIL import Image, UnidentifiedImageError

from dualtemp.config import ADDED_LATER, from_yaml, settings, to_yaml
from dualtemp.data import open_source
from dualtemp.data.deep_gray import measure_levels, narrow_range, require_levels, with_levels
from dualtemp.data.images import ImageSet
from dualtemp.data.shards.packing import pack_folder
from dualtemp.errors import UserError
from dualtemp.training.run_data import open_data


def spread(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """In float64, not rounded."""
    return ((values.astype(float) - low) / (high - low) * 255).clip(0, 255)


def divided(values: np.ndarray) -> np.ndarray:
    """As all 16-bit images were read before there were levels."""
    return (values.astype(float) / 257).round()


def all_pixels(images: ImageSet) -> np.ndarray:
    return np.stack([images.source.pixels(i)[0].numpy() for i in range(len(images))])


@pytest.mark.parametrize("ending", ["png", "tif"])
@pytest.mark.parametrize("side", [40, 120], ids=["in memory", "in files"])
def test_percentiles_of_the_training_images_become_0_and_255(tmp_path: Path, ending: str, side: int) -> None:
    written = draw_xrays(tmp_path, 12, ending, side)
    before = open_source(tmp_path)
    source = before.train.source
    names = (source.files or source).names
    assert before.train.in_memory == (side == 40)
    assert (all_pixels(before.train) == np.stack([divided(written[name]) for name in names])).all()

    values = np.concatenate([written[name].reshape(-1) for name in names]).astype(float)
    low, high = np.percentile(values, (0.1, 99.9))
    splits = open_data(settings({"data": str(tmp_path), "levels": "measured"}))
    assert splits.train.source.levels == (pytest.approx((low, high)),)
    assert splits.train.in_memory == before.train.in_memory
    assert splits.train.size == before.train.size
    found = all_pixels(splits.train)
    assert np.abs(found - np.stack([spread(written[name], low, high) for name in names])).max() <= 0.5 + 1e-3
    assert found.std() > 10 * all_pixels(before.train).std()
    assert splits.test is not None  # the levels are those of the training images
    assert splits.test.source.levels == splits.train.source.levels
    other = next(iter(set(written) - set(names)))
    assert np.abs(all_pixels(splits.test)[0] - spread(written[other], low, high)).max() <= 0.5 + 1e-3


def test_subsets_joins_and_color_keep_the_way_to_the_files(tmp_path: Path) -> None:
    written = draw_xrays(tmp_path, 20)
    splits = open_source(tmp_path)
    assert splits.test is not None
    kept = splits.train.subset(9).take([0, 2, 4, 5]).join([splits.test]).since(1).to("cpu")
    source = kept.source
    assert source.files is not None
    names = source.files.names
    found = kept.convert(3).convert(3, ((1000.0, 3000.0),))
    assert found.in_memory
    assert found.source.levels == ((1000.0, 3000.0),)
    expected = np.stack([spread(written[name], 1000, 3000) for name in names])
    for channel in range(3):
        shown = np.stack([found.source.pixels(i)[channel].numpy() for i in range(len(found))])
        assert np.abs(shown - expected).max() <= 0.5 + 1e-3
    again = found.convert(1, ((0.0, 65535.0),))
    assert np.abs(all_pixels(again) - np.stack([written[name] / 257 for name in names])).max() <= 0.5 + 1e-3


def test_images_of_8_bits_stay_as_they_are_among_deeper_ones(tmp_path: Path) -> None:
    draw_xrays(tmp_path, 10)
    plain = np.random.default_rng(0).integers(0, 256, (36, 40), np.uint8)
    for n in range(10):
        Image.fromarray(plain).save(tmp_path / f"plain{n}.png")
    opened = open_source(tmp_path)
    splits = with_levels(opened, require_levels(opened.train))
    source = splits.train.source
    assert source.files is not None
    for i, name in enumerate(source.files.names):
        if name.startswith("plain"):
            assert (source.pixels(i)[0].numpy() == plain).all()


def test_shards_are_read_by_the_same_levels(tmp_path: Path) -> None:
    draw_xrays(tmp_path / "folder", 20, "tif")
    pack_folder(tmp_path / "folder", tmp_path / "shards")
    one, other = (
        open_data(settings({"data": str(tmp_path / name), "levels": "measured"})) for name in ("folder", "shards")
    )
    assert one.train.source.levels == other.train.source.levels
    assert (all_pixels(one.train) == all_pixels(other.train)).all()


def test_dicom_values_after_slope_and_intercept_in_place_of_each_window(tmp_path: Path) -> None:
    units = {}
    for n in range(10):
        more = {"RescaleSlope": 2, "RescaleIntercept": -1000, "WindowCenter": 40 + 100 * n, "WindowWidth": 400}
        write_dicom(tmp_path / f"{n}.dcm", drawn_xray(n), **more)
        units[f"{n}.dcm"] = drawn_xray(n) * 2.0 - 1000
    write_dicom(tmp_path / "a.dcm", 4095 - drawn_xray(20), PhotometricInterpretation="MONOCHROME1")
    units["a.dcm"] = drawn_xray(20).astype(float)  # of 12 bits, the low ones bright
    opened = open_source(tmp_path)
    splits = with_levels(opened, ((-500.0, 6000.0),))
    source = splits.train.source
    assert source.files is not None
    for i, name in enumerate(source.files.names):
        assert np.abs(source.pixels(i)[0].numpy() - spread(units[name], -500, 6000)).max() <= 0.5 + 1e-3
    levels = measure_levels(opened.train)
    values = np.concatenate([units[name].reshape(-1) for name in source.files.names])
    assert levels == (pytest.approx(tuple(np.percentile(values, (0.1, 99.9))), rel=1e-5),)


def test_signed_values_and_floating_point(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    signed = {n: drawn_xray(n).astype(np.int16) - 2000 for n in range(10)}
    for n, values in signed.items():
        (tmp_path / "signed").mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / "signed" / f"{n}.tif", values)
        write_gray(tmp_path / "float" / f"{n}.tif", values.astype(np.float32) / 7)
    for name, unit in (("signed", 1.0), ("float", 7.0)):
        opened = open_source(tmp_path / name)
        levels = require_levels(opened.train)
        source = with_levels(opened, levels).train.source
        assert source.files is not None
        assert levels[0][0] < 0
        for i, file in enumerate(source.files.names):
            expected = spread(signed[int(Path(file).stem)] / unit, *levels[0])
            assert np.abs(source.pixels(i)[0].numpy() - expected).max() <= 0.5 + 1e-3


def test_a_16_bit_tiff_that_only_tifffile_reads_keeps_its_depth(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    for n in range(10):
        tifffile.imwrite(tmp_path / f"{n}.tif", drawn_xray(n), bigtiff=True, byteorder=">")
    with pytest.raises(UnidentifiedImageError):
        Image.open(tmp_path / "0.tif")
    opened = open_source(tmp_path)
    source = opened.train.source
    assert source.files is not None
    assert (all_pixels(opened.train)[0] == divided(drawn_xray(int(Path(source.files.names[0]).stem)))).all()
    assert require_levels(opened.train)[0][1] < 4096


@pytest.mark.parametrize("side", [40, 120], ids=["in memory", "in files"])
@pytest.mark.parametrize("kind", ["float16", ">f4"])
def test_floating_point_that_only_tifffile_reads_is_spread_by_levels(tmp_path: Path, kind: str, side: int) -> None:
    tifffile = pytest.importorskip("tifffile")
    written = {f"{n}.tif": (drawn_xray(n, side) / 7 - 100).astype(kind) for n in range(10)}
    for name, values in written.items():
        tifffile.imwrite(tmp_path / name, values, bigtiff=True, byteorder=">")
    with pytest.raises(UnidentifiedImageError):
        Image.open(tmp_path / "0.tif")
    opened = open_source(tmp_path)
    names = (opened.train.source.files or opened.train.source).names
    before = np.stack([written[name].astype(float).round().clip(0, 255) for name in names])
    assert (all_pixels(opened.train) == before).all()  # values above 1 are taken as 0 to 255
    levels = require_levels(opened.train)
    low, high = np.percentile(np.concatenate([written[name].reshape(-1) for name in names]).astype(float), (0.1, 99.9))
    assert levels == (pytest.approx((low, high)),)
    found = all_pixels(with_levels(opened, levels).train)
    assert np.abs(found - np.stack([spread(written[name], low, high) for name in names])).max() <= 0.5 + 1e-3


def test_dicom_files_are_told_by_their_content_in_shards_without_names(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for n in range(10):
        write_dicom(tmp_path / f"{n}.dcm", drawn_xray(n))
    contents = [(tmp_path / f"{n}.dcm").read_bytes() for n in range(10)]
    pq.write_table(pa.table({"image": contents}), tmp_path / "set.parquet")
    splits = open_data(settings({"data": str(tmp_path / "set.parquet"), "levels": "measured"}))
    assert splits.train.in_memory
    levels, files = splits.train.source.levels, splits.train.source.files
    assert levels is not None
    assert files is not None
    for i in range(len(splits.train)):
        number = contents.index(files.content(i))
        expected = spread(drawn_xray(number), *levels[0])
        assert np.abs(splits.train.source.pixels(i)[0].numpy() - expected).max() <= 0.5 + 1e-3


def test_what_has_nothing_to_measure_is_refused(tmp_path: Path) -> None:
    draw_photos(tmp_path / "photos", 4)
    with pytest.raises(UserError, match="levels measured: photos has images in color"):
        open_data(settings({"data": str(tmp_path / "photos"), "levels": "measured"}))
    with pytest.raises(UserError, match="levels measured: digits has no gray image of more than 8 bits"):
        open_data(settings({"data": "digits", "levels": "measured"}))
    with pytest.raises(UserError, match="no levels is called 'mesured'"):
        settings({"data": "digits", "levels": "mesured"})


def test_a_config_of_before_means_the_whole_range(tmp_path: Path) -> None:
    chosen = settings({"data": "digits", "levels": "measured"})
    text = to_yaml(chosen)
    assert "levels: measured" in text
    (tmp_path / "old.yaml").write_text(text.replace("levels: measured\n", ""))
    assert from_yaml(tmp_path / "old.yaml")["levels"] == ADDED_LATER["levels"] == "full"
    assert settings({"data": "digits"}).levels == "full"


def test_a_narrow_range_is_told_and_a_wide_one_is_not(commands: Commands, tmp_path: Path) -> None:
    written = draw_xrays(tmp_path / "narrow", 20)
    for name, values in written.items():
        write_gray(tmp_path / "wide" / name, values * 16)
        write_gray(tmp_path / "eight" / name, (values // 16).astype(np.uint8))
    assert narrow_range(open_source(tmp_path / "narrow").train) == pytest.approx(3700 / 65535, rel=0.1)
    assert narrow_range(open_source(tmp_path / "wide").train) is None
    assert narrow_range(open_source(tmp_path / "eight").train) is None
    for name, told in (("narrow", True), ("wide", False)):
        ended = commands.run("data", tmp_path / name)
        assert ("--levels measured" in ended.out) == told
        assert ended.code == 0
    found = json.loads(commands.run("data", tmp_path / "narrow", "--json").out)["narrow"]
    assert 0.04 < found < 0.07


def test_the_bits_of_sets_without_levels_are_those_of_plain_tensors(tmp_path: Path) -> None:
    draw_xrays(tmp_path, 12)
    train = open_source(tmp_path).train
    plain = ImageSet(train.name, torch.from_numpy(all_pixels(train)[:, None]), channels=1)
    assert train.fingerprint == plain.fingerprint
    assert train.identity() == plain.identity()
