"""TIFF files of four and more channels, of 16 bits and of floating point: values against those that were written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos
from drawn_stacks import draw_stacks, drawn_stack, write_stack
from PIL import Image

from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.loading.decode import UnreadableImage, read_header, read_image
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.data.normalization import normalization
from dualtemp.data.shards.packing import pack_folder
from dualtemp.errors import UserError

pytest.importorskip("tifffile")


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("channels", [2, 4, 8])
@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.float32])
def test_values_become_8_bits_by_percentiles_of_the_training_images(
    tmp_path: Path, channels: int, dtype: type, planar: str
) -> None:
    written = {
        f"{n}.tif": write_stack(tmp_path / f"{n}.tif", drawn_stack(n, channels, dtype), planarconfig=planar)
        for n in range(10)
    }
    train = open_source(tmp_path).train
    assert (train.channels, len(train), train.in_memory) == (channels, 9, False)
    values = np.concatenate([written[name].reshape(-1, channels) for name in train.source.names]).astype(float)
    low, high = np.percentile(values, (0.1, 99.9), axis=0)
    np.testing.assert_allclose(np.array(train.source.levels).T, (low, high))
    for i in (0, 8):
        expected = ((written[train.source.names[i]].astype(float) - low) / (high - low) * 255).clip(0, 255)
        found = train.source.pixels(i).permute(1, 2, 0).numpy()
        assert np.abs(found - expected).max() <= 0.5 + 1e-3
        shown = np.asarray(train.source.open(i))
        assert (shown == (found[..., 0] if channels == 2 else found[..., :3])).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nan_and_infinity_do_not_count_as_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(50, 10, (10, 30, 40, 3)).astype(np.float32)
    holes = np.random.default_rng(1).random(values.shape)
    spoiled = np.select([holes < 0.1, holes < 0.2, holes < 0.3], [np.nan, np.inf, -np.inf], values).astype(np.float32)
    nothing = np.full((30, 40, 1), np.nan, np.float32)  # a fourth channel
    for n in range(10):
        write_stack(tmp_path / f"{n}.tif", np.concatenate([spoiled[n], nothing], -1))
    train = open_source(tmp_path).train
    order = [int(Path(name).stem) for name in train.source.names]
    assert train.source.levels is not None
    for channel, (low, high) in enumerate(train.source.levels[:3]):
        known = spoiled[order][..., channel]
        assert (low, high) == pytest.approx(tuple(np.percentile(known[np.isfinite(known)], (0.1, 99.9))))
        found = np.stack([train.source.pixels(i)[channel].numpy() for i in range(len(train))])
        assert (found[known == np.inf] == 255).all()
        assert (found[(known == -np.inf) | np.isnan(known)] == 0).all()  # NaN is taken as 0, which is below
        expected = ((values[order][..., channel] - low) / (high - low) * 255).clip(0, 255)
        assert np.abs(found - expected)[np.isfinite(known)].max() <= 0.5 + 1e-3
    assert not train.source.pixels(0)[3].any()


def test_stacks_of_8_bits_stay_as_they_are_and_a_header_tells_what_there_is(tmp_path: Path) -> None:
    written = [write_stack(tmp_path / f"{n}.tif", drawn_stack(n, 5, np.uint8)) for n in range(6)]
    train = open_source(tmp_path).train
    assert train.source.levels == ((0.0, 255.0),) * 5
    numbers = [int(name[0]) for name in train.source.names]
    assert all((train.source.pixels(i).permute(1, 2, 0).numpy() == written[n]).all() for i, n in enumerate(numbers))
    assert read_header(tmp_path / "0.tif", "0") == (36, 40, "5 x uint8")


def test_color_with_transparency_stays_color(tmp_path: Path) -> None:
    write_stack(tmp_path / "x.tif", drawn_stack(0), photometric="rgb", extrasamples=["unassalpha"])
    assert read_header(tmp_path / "x.tif", "x").mode in ("RGBA", "RGB")


def test_mean_and_deviation_are_measured_on_the_scaled_values(tmp_path: Path) -> None:
    draw_stacks(tmp_path, 12)
    train = open_source(tmp_path).train
    pixels = np.concatenate([train.source.pixels(i).reshape(4, -1).numpy() for i in range(len(train))], 1) / 255
    mean, std = normalization(str(tmp_path), train.pixels)
    assert mean == pytest.approx(pixels.mean(1), abs=1e-4)
    assert std == pytest.approx(pixels.std(1), abs=1e-4)


def test_a_stack_among_photographs_and_a_photograph_among_stacks_are_named(tmp_path: Path) -> None:
    draw_photos(tmp_path / "photos", 5)
    write_stack(tmp_path / "photos" / "aaa.tif", drawn_stack(0))
    splits = open_source(tmp_path / "photos")
    assert splits.train.channels == 3
    with pytest.raises(UnreadableImage, match="4 channels, where images of 1 or 3"):
        read_image(tmp_path / "photos" / "aaa.tif", "aaa.tif", 3)
    draw_stacks(tmp_path / "stacks", 80)
    write_stack(tmp_path / "stacks" / "other.tif", drawn_stack(0, 5))
    draw_photos(tmp_path / "stacks", 1, first=990)
    splits = open_source(tmp_path / "stacks")
    views = Views("paper", 16, 0, (0.5,) * 4, (0.5,) * 4)
    problems: dict[str, str] = {}
    parts = [part for part in (splits.train, splits.test) if part is not None]
    seen = [batch for part in parts for batch in evaluation_batches(part, views, workers=0, problems=problems)]
    assert sum(len(batch.index) for batch in seen) == 80
    assert set(problems) == {"other.tif", "990.png"}
    assert "5 channels, and the other images have 4" in problems["other.tif"]


def test_a_stack_cannot_become_color_nor_color_a_stack(tmp_path: Path) -> None:
    draw_stacks(tmp_path / "stacks", 4)
    draw_photos(tmp_path / "photos", 4)
    with pytest.raises(ValueError, match="4 channels cannot become 3"):
        open_source(tmp_path / "stacks").train.convert(3)
    with pytest.raises(ValueError, match="3 channels cannot become 4"):
        open_source(tmp_path / "photos").train.convert(4)


def test_large_stacks_come_reduced_as_other_images_do(tmp_path: Path) -> None:
    values = write_stack(tmp_path / "x.tif", drawn_stack(0, 4, np.uint8, side=64))
    write_stack(tmp_path / "y.tif", values + 1)
    source = open_source(tmp_path).train.source
    found = source.convert(enough=20).pixels(0)
    whole = Image.fromarray(source.pixels(0)[:3].permute(1, 2, 0).contiguous().numpy())
    assert (found[:3].permute(1, 2, 0).numpy() == np.asarray(whole.reduce(3))).all()


def test_packed_stacks_are_the_same_set(tmp_path: Path) -> None:
    for number in range(2):
        draw_stacks(tmp_path / "stacks" / f"c{number}", 6, first=6 * number)
    pack_folder(tmp_path / "stacks", tmp_path / "shards", shard_size=20_000)
    folder, shards = (open_source(tmp_path / name) for name in ("stacks", "shards"))
    assert folder.train.source.levels == shards.train.source.levels
    assert folder.train.fingerprint == shards.train.fingerprint
    assert all(
        torch.equal(folder.train.source.pixels(i), shards.train.source.pixels(i)) for i in range(len(folder.train))
    )


def test_without_the_reader_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dualtemp.data.loading import optional_readers

    draw_stacks(tmp_path, 3)
    monkeypatch.setattr(optional_readers, "has_reader", lambda package: False)
    with pytest.raises(UserError, match=r"pip install 'dualtemp\[tiff\]'"):
        open_source(tmp_path)
