import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from drawn_photos import draw_photos
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import dualtemp
from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.normalization import measured
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.errors import UserError
from dualtemp.models import ResNetMini
from dualtemp.torchvision_operators import declare_missing_operators
from dualtemp.training.run_encoder import PIECE


def all_features(encoder: RunEncoder, images: ImageSet, batch: int = 256) -> torch.Tensor:
    found = list(encoder.features(images, batch, workers=0))
    assert torch.equal(torch.cat([index for index, _ in found]), torch.arange(len(images)))
    return torch.cat([features for _, features in found])


def plain_backbone(run: Path, size: int, channels: int) -> ResNetMini:
    backbone = ResNetMini(size, channels)
    backbone.load_state_dict(safetensors.torch.load_file(run / "backbone.safetensors"))
    return backbone.eval()


def changed_environment(run: Path, **images: object) -> None:
    path = run / "environment.json"
    content = {name: value for name, value in json.loads(path.read_text()).items() if name != "images"}
    path.write_text(json.dumps({**content, **({"images": images} if images else {})}))


def test_features_are_those_of_the_plain_backbone_on_normalised_pixels(digits_run: Path) -> None:
    digits = open_source("digits")
    seen = digits.train.subset(128, seed=0)  # what the run trained on
    train, test = (part.pixels.double() / 255 for part in (seen, digits.test))  # pyright: ignore
    mean, std = round(float(train.mean()), 4), round(float(train.std(unbiased=False)), 4)
    with torch.no_grad():
        expected = plain_backbone(digits_run, 8, 1)(((test - mean) / std).float())
    assert digits.test is not None
    found = all_features(run_encoder(digits_run, "cpu"), digits.test, batch=100)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_photographs_are_resized_cut_out_and_normalised_as_torchvision_does(photos_run: Path, photos: Path) -> None:
    declare_missing_operators()
    from torchvision.transforms import InterpolationMode, v2

    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.jpg"))
    view = v2.Compose(
        [
            v2.PILToTensor(),
            v2.Resize(24, InterpolationMode.BICUBIC, antialias=True),
            v2.CenterCrop(24),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*measured(open_source(photos).train.pixels)),
        ]
    )
    pixels = torch.stack([view(Image.open(photos / name).convert("RGB")) for name in names])
    with torch.no_grad():
        expected = plain_backbone(photos_run, 24, 3)(pixels)
    found = all_features(run_encoder(photos_run, "cpu"), ImageSet("photos", FileImages(photos, tuple(names))), batch=5)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_neither_checkpoints_nor_data_are_needed(run_copy: Path, photos_run: Path, photos: Path) -> None:
    images = ImageSet("photos", FileImages(photos, ("test/dog/300.jpg", "train/cat/000.png")))
    expected = all_features(run_encoder(photos_run, "cpu"), images)
    shutil.rmtree(run_copy / "checkpoints")
    config = run_copy / "config.yaml"
    config.write_text(config.read_text().replace(str(photos), "/nowhere/at/all"))
    mean, std = (list(values) for values in measured(open_source(photos).train.pixels))
    changed_environment(run_copy, channels=3, size=24, mean=mean, std=std, classes=["cat", "dog"])
    encoder = run_encoder(run_copy, "cpu")
    assert torch.equal(all_features(encoder, images), expected)
    assert (encoder.classes, encoder.channels, encoder.width) == (("cat", "dog"), 3, expected.shape[1])


@pytest.mark.parametrize("images", [{}, {"channels": 3, "mean": [0.5], "std": [0.5], "classes": []}, {"mean": None}])
def test_a_run_that_says_nothing_of_its_images_is_asked_for_its_data(
    run_copy: Path, photos_run: Path, photos: Path, images: dict
) -> None:
    one = ImageSet("photos", FileImages(photos, ("test/dog/300.jpg",)))
    expected = all_features(run_encoder(photos_run, "cpu"), one)
    changed_environment(run_copy, **images)
    encoder = run_encoder(run_copy, "cpu")
    assert torch.equal(all_features(encoder, one), expected)
    assert encoder.classes == ("cat", "dog")


@pytest.fixture(scope="module")
def grey_encoder(digits_run: Path) -> RunEncoder:
    return run_encoder(digits_run, "cpu")


@given(st.binary(min_size=12, max_size=12))
def test_colour_becomes_grey_as_pillow_does_it(grey_encoder: RunEncoder, content: bytes) -> None:
    pixels = np.frombuffer(content, np.uint8).reshape(2, 2, 3)
    coloured = ImageSet("one", torch.tensor(pixels).permute(2, 0, 1)[None], channels=3)
    grey = grey_encoder.fitted(coloured).pixels
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    assert torch.equal(grey, torch.tensor(expected)[None, None])  # pyright: ignore


def test_grey_images_are_seen_in_colour_by_an_encoder_of_coloured_ones(photos_run: Path) -> None:
    encoder, digits = run_encoder(photos_run, "cpu"), open_source("digits").train.take(range(20))
    assert isinstance(digits.pixels, torch.Tensor)
    coloured = ImageSet("digits", digits.pixels.repeat(1, 3, 1, 1), channels=3)
    assert torch.equal(all_features(encoder, digits), all_features(encoder, coloured))


def test_images_of_four_channels_are_refused(photos_run: Path) -> None:
    images = ImageSet("four", torch.zeros(2, 4, 8, 8, dtype=torch.uint8), channels=4)
    with pytest.raises(UserError, match=r"4 channels.*takes 3"):
        list(run_encoder(photos_run, "cpu").features(images))


def test_unreadable_files_are_left_out_and_told(photos_run: Path, tmp_path: Path) -> None:
    paths = draw_photos(tmp_path, 5)
    paths[2].write_bytes(b"no image")
    problems: dict[str, str] = {}
    images = ImageSet("photos", FileImages(tmp_path, tuple(path.name for path in paths)))
    found = list(run_encoder(photos_run, "cpu").features(images, batch=2, workers=0, problems=problems))
    assert [index.tolist() for index, _ in found] == [[0, 1], [3], [4]]
    assert list(problems) == ["002.png"]


def test_an_image_and_its_mirror_image_have_the_same_mirrored_features(photos_run: Path) -> None:
    pixels = torch.randint(0, 256, (3, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    encoder = run_encoder(photos_run, "cpu")
    (_, one), (_, other) = (
        next(iter(encoder.features(ImageSet("m", each), mirrored=True))) for each in (pixels, pixels.flip(3))
    )
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    plain = all_features(encoder, ImageSet("m", pixels))
    torch.testing.assert_close((plain + all_features(encoder, ImageSet("m", pixels.flip(3)))) / 2, one)
    assert not torch.allclose(plain, one, atol=1e-3)


def test_what_is_no_run_or_has_no_weights_is_told(run_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        run_encoder(tmp_path / "nothing", "cpu")
    (run_copy / "backbone.safetensors").unlink()
    with pytest.raises(UserError, match=r"no backbone\.safetensors"):
        run_encoder(run_copy, "cpu")


@pytest.mark.parametrize(
    ("word", "meant"), [("imagent", "imagenet"), ("ImageNet", "imagenet"), ("tim:resnet18", "timm:resnet18")]
)
def test_a_mistyped_start_is_answered_with_the_one_that_was_meant(
    word: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"{word} is not a run, and no start is called so: did you mean '{meant}'"):
        run_encoder(Path(word), "cpu")
    for other in ("mine", "images", "runs/imagent", "c:run"):  # paths, and what resembles no start
        with pytest.raises(UserError, match=r"it has no config\.yaml"):
            run_encoder(Path(other), "cpu")
    (tmp_path / word).mkdir()  # it exists: what is wrong is what is in it
    with pytest.raises(UserError, match=r"it has no config\.yaml"):
        run_encoder(Path(word), "cpu")


def test_weights_of_another_backbone_are_told(run_copy: Path, digits_run: Path) -> None:
    shutil.copy(digits_run / "backbone.safetensors", run_copy)
    with pytest.raises(UserError, match="does not fit this backbone"):
        run_encoder(run_copy, "cpu")


@pytest.mark.parametrize("count", [-3, 100_000])
def test_an_impossible_number_of_workers_is_one_line_in_python_too(photos_run: Path, photos: Path, count: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: dualtemp.near_duplicates(photos_run, data=photos, workers=count),
        lambda: dualtemp.select(photos_run, 2, data=photos, workers=count),
        lambda: dualtemp.evaluate(photos_run, data=photos, workers=count),
        lambda: dualtemp.judge([photos_run], workers=count),
    ]
    for call in calls:
        with pytest.raises(UserError, match="workers must be from 0 to"):
            call()


@pytest.mark.parametrize("use", ["search {run} {photo}", "near-duplicates {run}", "embed {run} --out {out}"])
def test_weights_that_are_not_finite_are_one_line_and_leave_nothing(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], use: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(photos_run, run)
    weights = safetensors.torch.load_file(run / "backbone.safetensors")
    name = next(name for name, value in weights.items() if value.ndim == 4)
    safetensors.torch.save_file(
        weights | {name: torch.full_like(weights[name], torch.nan)}, run / "backbone.safetensors"
    )
    photo = next(photos.rglob("*.png"))
    words = use.format(run=run, photo=photo, out=tmp_path / "features.csv").split()
    assert main([*words, "--data", str(photos)]) == 2
    assert "features are not finite" in capsys.readouterr().err
    assert not list(tmp_path.glob("features*"))


def test_a_cpu_encodes_large_images_a_few_at_a_time_and_small_ones_together(photos_run: Path, monkeypatch) -> None:
    encoder = run_encoder(photos_run, "cpu")
    seen: list[int] = []
    encoder.backbone.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    views = torch.randn(21, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    together = encoder.of_views(views)
    assert encoder.piece == PIECE // 24**2 > 256, "a whole batch, whatever its images cost"
    monkeypatch.setattr("dualtemp.training.run_encoder.PIECE", 8 * 24**2)  # as if they were of 224 px
    pieces = encoder.of_views(views)
    assert torch.equal(replace(encoder, in_pieces=False).of_views(views), together)
    assert seen == [21, 8, 8, 5, 21]
    torch.testing.assert_close(pieces, together, rtol=1e-4, atol=1e-5)
    assert encoder.of_views(views[:0]).shape == (0, encoder.width)
