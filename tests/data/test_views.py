"""Views: what comes out equals torchvision's operations on the drawn parameters, whatever the batch around an image."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.data.augment.crop import random_crops
from dualtemp.data.augment.parameters import drawn_parameters
from dualtemp.data.augment.philox import words
from dualtemp.data.augment.recipes import RECIPES, Augmentation, Blur, Jitter, Recipe
from dualtemp.data.augment.views import Views, evaluation_geometry, evaluation_view
from dualtemp.data.loading.crop_files import clean_crop
from dualtemp.errors import UserError
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as reference  # noqa: E402

BICUBIC = v2.InterpolationMode.BICUBIC
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
EVERYTHING = Recipe(
    Augmentation(blur=Blur(0.5), solarize=0.3), Augmentation(jitter=Jitter(0.8, 0.8, 0.8, 0.2), blur=Blur(0.1))
)
OPERATIONS = (
    reference.adjust_brightness,
    reference.adjust_contrast,
    reference.adjust_saturation,
    reference.adjust_hue,
)


def pixels_of(count: int, channels: int = 3, height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    """Smooth 8-bit images with some noise and saturated regions."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear") * 1.4 - 0.2
    noise = torch.randn(count, channels, height, width, generator=generator) * 0.03
    return ((smooth + noise).clamp(0, 1) * 255).round().to(torch.uint8)


def by_torchvision(views: Views, pixels: torch.Tensor, index: torch.Tensor, epoch: int, view: int) -> torch.Tensor:
    """The same draws, one image at a time, with torchvision's functions on float64 images."""
    augmentation = views.recipe.of_view(view)
    random = words(views.seed, epoch, index, view)
    count, channels, height, width = pixels.shape
    boxes = random_crops(
        random, torch.full((count,), height), torch.full((count,), width), augmentation.scale, augmentation.ratio
    )
    drawn = drawn_parameters(random, augmentation)
    made = []
    for i in range(count):
        image = pixels[i].double() / 255
        image = reference.resized_crop(
            image, *boxes[i].tolist(), size=[views.size] * 2, interpolation=BICUBIC, antialias=True
        )
        image = image.clamp(0, 1)
        if drawn.flipped[i]:
            image = reference.horizontal_flip(image)
        if drawn.jittered[i]:
            for number in drawn.order[i].tolist():
                image = OPERATIONS[number](image, float(drawn.factors[i, number]))
        if drawn.gray[i] and channels == 3:
            image = reference.rgb_to_grayscale(image, num_output_channels=3)
        if drawn.blurred[i] and augmentation.blur is not None:
            kernel = augmentation.blur.kernel(views.size)
            image = reference.gaussian_blur(image, [kernel] * 2, [float(drawn.sigma[i])] * 2)
        if drawn.solarized[i]:
            image = reference.solarize(image, threshold=0.5)
        made.append(reference.normalize(image, list(views.mean), list(views.std)))
    return torch.stack(made)


@pytest.mark.parametrize("recipe", [*RECIPES, "everything"])
@pytest.mark.parametrize("view", [0, 1])
def test_views_equal_torchvisions_operations_one_by_one(recipe, view):
    views = Views(EVERYTHING if recipe == "everything" else recipe, 32, 3, MEAN, STD)
    pixels, index = pixels_of(96), torch.arange(1000, 1096)
    ours, theirs = views(pixels, index, 5, view), by_torchvision(views, pixels, index, 5, view)
    assert ours.dtype == torch.float32
    off = ((ours - theirs) * torch.tensor(STD).view(3, 1, 1)).abs()
    if views.recipe.of_view(
        view
    ).solarize:  # a pixel within rounding of one half may be inverted by one and not the other
        assert (off > 5e-6).float().mean() < 1e-5
    else:
        assert off.max() < 5e-6  # of pixels in [0, 1]: single operations are within 1e-6, jitter adds up


@pytest.mark.parametrize(
    ("height", "width", "size"), [(28, 28, 28), (40, 24, 32), (96, 96, 64), (20, 30, 48), (140, 150, 32)]
)
def test_images_of_any_shape_become_views_of_any_size(height, width, size):
    views = Views("paper", size, 0, MEAN, STD)
    pixels, index = pixels_of(12, 3, height, width), torch.arange(12)
    ours, theirs = views(pixels, index, 0, 0), by_torchvision(views, pixels, index, 0, 0)
    assert ours.shape == (12, 3, size, size)
    assert (ours - theirs).abs().max() < 2e-4


def test_grey_images_become_views_as_torchvision_makes_them():
    views = Views("simclr", 32, 0, (0.5,), (0.25,))
    pixels, index = pixels_of(48, 1), torch.arange(48)
    assert (views(pixels, index, 0, 0) - by_torchvision(views, pixels, index, 0, 0)).abs().max() < 1e-4


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
@pytest.mark.parametrize("recipe", list(RECIPES))
def test_any_number_of_channels_works(channels, recipe):
    views = Views(recipe, 16, 0, (0.5,) * channels, (0.25,) * channels)
    made = views(pixels_of(8, channels), torch.arange(8), 0, 1)
    assert made.shape == (8, channels, 16, 16)
    assert made.isfinite().all()


@given(st.integers(1, 40), st.integers(0, 2**31), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_a_view_does_not_depend_on_the_batch_around_the_image(count, start, random):
    views = Views(EVERYTHING, 32, 1, MEAN, STD)
    pixels, index = pixels_of(count, seed=count), torch.arange(start, start + count)
    together = views(pixels, index, 2, 0)
    some = torch.tensor(random.sample(range(count), max(1, count // 2)))
    assert (views(pixels[some], index[some], 2, 0) - together[some]).abs().max() < 1e-5


def test_a_batch_is_the_same_bits_again_and_other_epochs_views_and_seeds_differ():
    views, pixels, index = Views("paper", 32, 0, MEAN, STD), pixels_of(64), torch.arange(64)
    first = views(pixels, index, 0, 0)
    assert torch.equal(first, views(pixels, index, 0, 0))
    assert torch.equal(first, pickle.loads(pickle.dumps(views))(pixels, index, 0, 0))
    others = (
        views(pixels, index, 1, 0),
        views(pixels, index, 0, 1),
        Views("paper", 32, 1, MEAN, STD)(pixels, index, 0, 0),
    )
    for other in others:
        assert ((other - first).abs().amax((1, 2, 3)) > 0.01).all()


def test_the_pixels_given_are_left_alone():
    views, pixels = Views("byol", 32, 0, MEAN, STD), pixels_of(8)
    before = pixels.clone()
    views(pixels, torch.arange(8), 0, 1)
    views.after_crop(pixels, torch.arange(8), 0, 1)
    views.evaluation(pixels)
    assert torch.equal(pixels, before)


def test_cropping_first_and_the_rest_afterwards_is_the_whole_view():
    views = Views(EVERYTHING, 32, 9, MEAN, STD)
    pixels, index = pixels_of(64), torch.arange(64)
    boxes = views.crop_boxes(index, 4, 0, torch.full((64,), 32), torch.full((64,), 32))
    cropped = torch.stack(
        [
            reference.resized_crop(p.double(), *box, size=[32, 32], interpolation=BICUBIC, antialias=True)
            for p, box in zip(pixels, boxes.tolist(), strict=True)
        ]
    )
    separately = views.after_crop(cropped.clamp(0, 255).round().to(torch.uint8), index, 4, 0)
    off = ((separately - views(pixels, index, 4, 0)) * torch.tensor(STD).view(3, 1, 1)).abs()
    # Cropped pixels are rounded to 8 bits: half a level, which jitter may amplify (the hue of greyish pixels most).
    assert off.mean() < 1 / 255
    assert off.flatten(1).median(1).values.max() < 2 / 255


def test_no_images_become_no_views():
    made = Views("byol", 32, 0, MEAN, STD)(pixels_of(4)[:0], torch.arange(0), 0, 0)
    assert made.shape == (0, 3, 32, 32)


def test_autocast_does_not_reach_the_pixels():
    views, pixels, index = Views(EVERYTHING, 32, 0, MEAN, STD), pixels_of(16), torch.arange(16)
    expected = views(pixels, index, 0, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(views(pixels, index, 0, 0), expected)


@pytest.mark.parametrize(
    ("height", "width", "size"), [(32, 32, 32), (40, 60, 32), (61, 40, 24), (300, 201, 224), (8, 8, 32)]
)
def test_the_clean_view_is_torchvisions_resize_and_central_crop(height, width, size):
    pixels = pixels_of(3, 3, height, width)
    shorter = 256 if size == 224 else size
    steps = v2.Compose([v2.Resize(shorter, interpolation=BICUBIC, antialias=True), v2.CenterCrop(size)])
    theirs = reference.normalize(steps(pixels.double() / 255).clamp(0, 1), list(MEAN), list(STD))
    assert (evaluation_view(pixels, size, MEAN, STD) - theirs).abs().max() < 1e-5
    new_height, new_width, top, left = evaluation_geometry(height, width, size)
    assert 0 <= top <= new_height - size
    assert 0 <= left <= new_width - size


def test_a_clean_view_of_the_right_size_is_only_normalised():
    pixels, views = pixels_of(4), Views("paper", 32, 0, MEAN, STD)
    assert torch.equal(views.evaluation(pixels), views.normalize(pixels))
    assert torch.equal((views.unnormalize(views.evaluation(pixels)) * 255).round().to(torch.uint8), pixels)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_smallest_views_work(size):
    made = Views("byol", size, 0, MEAN, STD)(pixels_of(16, 3, 2, 1), torch.arange(16), 0, 0)
    assert made.shape == (16, 3, size, size)
    assert made.isfinite().all()


def test_a_large_batch_is_worked_on_in_parts_and_comes_out_the_same():
    views = Views(EVERYTHING, 224, 0, MEAN, STD)
    pixels, index = pixels_of(30, 3, 64, 64), torch.arange(30)
    whole = views(pixels, index, 0, 0)
    assert whole.shape == (30, 3, 224, 224)
    for part in (slice(0, 5), slice(11, 16), slice(29, 30)):
        torch.testing.assert_close(whole[part], views(pixels[part], index[part], 0, 0), rtol=0, atol=1e-5)
    cropped = torch.nn.functional.interpolate(pixels, 224)
    after = views.after_crop(cropped, index, 0, 0)
    torch.testing.assert_close(after[12:15], views.after_crop(cropped[12:15], index[12:15], 0, 0), rtol=0, atol=1e-5)


def test_wrong_arguments_are_answered_with_one_line():
    with pytest.raises(UserError, match="there is no recipe"):
        Views("papper", 32, 0, MEAN, STD)
    with pytest.raises(UserError, match="each std above 0"):
        Views("paper", 32, 0, MEAN, (0.2, 0.2, 0.0))
    with pytest.raises(UserError, match="at least 1"):
        Views("paper", 0, 0, MEAN, STD)
    with pytest.raises(UserError, match="1 channels, mean and std have 3"):
        Views("paper", 32, 0, MEAN, STD)(pixels_of(2, 1), torch.arange(2), 0, 0)
    with pytest.raises(TypeError, match="uint8"):
        Views("paper", 32, 0, MEAN, STD)(pixels_of(2).float(), torch.arange(2), 0, 0)
    with pytest.raises(ValueError, match="index"):
        Views("paper", 32, 0, MEAN, STD)(pixels_of(2), torch.arange(3), 0, 0)


@pytest.mark.parametrize(("size", "crop", "side"), [(16, 0.875, 18), (20, 1.0, 20)])
def test_the_clean_view_of_a_start_is_its_own_resize_and_crop(size: int, crop: float, side: int) -> None:
    pixels = pixels_of(3, 3, 40, 40)
    views = Views("paper", size, 0, MEAN, STD, "bilinear", crop)
    assert views.shorter_side == side
    theirs = torch.nn.functional.interpolate(pixels.float(), (side, side), mode="bilinear", antialias=True) / 255
    first = round((side - size) / 2)
    theirs = theirs[:, :, first : first + size, first : first + size]
    theirs = (theirs - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)
    assert (views.evaluation(pixels) - theirs).abs().max() < 1e-5
    one = clean_crop(pixels[0], size, "bilinear", crop)
    assert (views.normalize(one[None]) - theirs[:1]).abs().max() < 1.01 / 255 / min(STD)  # rounded to 8 bits twice


@pytest.mark.parametrize("ratio", [(3.0, 4.0), (0.1, 0.2)])
def test_an_image_of_one_pixel_has_a_crop_of_one_pixel_whatever_the_aspect(ratio: tuple[float, float]) -> None:
    index, sides = torch.arange(40), torch.ones(40, dtype=torch.int64)
    boxes = random_crops(words(0, 0, index, 0), sides, sides, (0.08, 1.0), ratio)
    assert boxes.tolist() == [[0, 0, 1, 1]] * 40
