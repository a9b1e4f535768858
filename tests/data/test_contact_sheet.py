from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.cli import main
from dualtemp.config import settings
from dualtemp.data import contact_sheet as contact_sheet_module
from dualtemp.data.augment.views import Views
from dualtemp.data.contact_sheet import CELL, GAP, HEAD, TEXT, contact_sheet, write_contact_sheet
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.sources.digits import open_digits
from dualtemp.data.sources.folder import open_folder
from dualtemp.data.subset import subset_index
from dualtemp.errors import UserError
from dualtemp.training.default_start import default_start
from dualtemp.training.own_images import with_sensible_settings


def cell(sheet: Image.Image, row: int, place: int, side: int) -> np.ndarray:
    """The image in the first column of rows, brought back to side x side pixels."""
    left, top = 2 * GAP + place * (CELL + GAP), HEAD + TEXT + row * (CELL + TEXT + GAP) + TEXT
    step = CELL // side
    return np.asarray(sheet)[top + step // 2 : top + CELL : step, left + step // 2 : left + CELL : step][:side, :side]


def test_the_sheet_shows_the_images_and_exactly_the_views_of_training() -> None:
    images = open_digits().train
    assert isinstance(images.pixels, torch.Tensor)
    assert images.labels is not None
    sheet = contact_sheet(images, recipe="mocov2", count=4, seed=5, epoch=2)
    chosen = subset_index(images.labels, len(images), 4, 5)
    chosen = sorted(chosen.tolist(), key=lambda i: int(images.labels[i]))  # type: ignore[index]
    views = Views("mocov2", 8, 5, (0.5,), (0.25,))
    for row, i in enumerate(chosen):
        assert (cell(sheet, row, 0, 8)[..., 0] == images.pixels[i, 0].numpy()).all()
        for view in (0, 1):
            normalised = views(images.pixels[i : i + 1], torch.tensor([i]), 2, view)[0, 0]
            expected = (normalised * 0.25 + 0.5) * 255
            shown = cell(sheet, row, 1 + view, 8)[..., 1].astype(float)
            assert np.abs(shown - expected.numpy()).max() <= 0.51


def test_photographs_show_the_views_that_a_tensor_of_them_would_give(tmp_path: Path) -> None:
    ramp = np.zeros((200, 300, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.linspace(0, 255, 300), np.linspace(0, 255, 200)[:, None]
    for number in range(3):
        Image.fromarray(np.roll(ramp, number, axis=2)).save(tmp_path / f"{number}.png")
    images = open_folder(tmp_path).train
    sheet = contact_sheet(images, recipe="paper", count=2, size=CELL, seed=1, epoch=3)
    assert isinstance(images.pixels, FileImages)
    pixels = torch.from_numpy(np.stack([np.asarray(images.pixels.open(i)) for i in (0, 1)])).permute(0, 3, 1, 2)
    views = Views("paper", CELL, 1, (0.0,) * 3, (1.0,) * 3)
    for view in (0, 1):
        expected = views(pixels.contiguous(), torch.arange(2), 3, view).permute(0, 2, 3, 1).numpy() * 255
        for row in (0, 1):  # the crop of a file is rounded to 8 bits before the colours change
            assert np.abs(cell(sheet, row, 1 + view, CELL) - expected[row]).max() < 3


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_any_number_of_channels_can_be_shown(channels: int) -> None:
    pixels = torch.randint(0, 256, (7, channels, 12, 10), dtype=torch.uint8)
    sheet = contact_sheet(ImageSet("x", pixels, channels=channels), recipe="simclr")
    assert sheet.mode == "RGB"


def test_it_is_written_whole_as_png(tmp_path: Path) -> None:
    write_contact_sheet(open_digits().test or open_digits().train, tmp_path / "sheet.png", recipe="byol", count=3)
    with Image.open(tmp_path / "sheet.png") as image:
        image.load()
        assert image.format == "PNG"
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_contact_sheet(open_digits().train, tmp_path / "missing" / "sheet.png", count=1)


def test_unreadable_files_are_passed_over_unless_there_is_nothing_else(tmp_path: Path) -> None:
    for number in range(12):
        Image.new("RGB", (120, 120), (number * 20, 0, 0)).save(tmp_path / f"{number:02}.png")
    images = open_folder(tmp_path).train
    for path in sorted(tmp_path.iterdir())[3:]:
        path.write_bytes(b"gone bad")
    assert contact_sheet(images, recipe="paper").height > CELL
    for path in tmp_path.iterdir():
        path.write_bytes(b"gone bad")
    with pytest.raises(UserError, match="none of"):
        contact_sheet(images, recipe="paper")


def test_the_sheet_of_own_images_has_the_views_that_training_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        Image.new("RGB", (300 + number, 260), (number * 20, 0, 0)).save(tmp_path / f"{number:02}.png")
    splits, sizes = open_folder(tmp_path), []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    begin, _ = default_start(settings({"data": str(tmp_path)}), splits)
    chosen, _ = with_sensible_settings(settings({"data": str(tmp_path)}), splits, torch.device("cpu"), begin)
    drawn = contact_sheet_module.contact_sheet
    monkeypatch.setattr(
        contact_sheet_module, "contact_sheet", lambda *a, **kw: (sizes.append(kw["size"]), drawn(*a, **kw))[1]
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert main(["data", str(tmp_path), "--show", "--out", str(tmp_path.parent / "sheet.png")]) == 0
    assert sizes == [chosen.image_size] == [224]  # the start's
