"""Drawn parameters: torchvision's distributions."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dualtemp.data.augment.color import NOTHING
from dualtemp.data.augment.crop import central_crops, crop_words, random_crops
from dualtemp.data.augment.parameters import drawn_parameters
from dualtemp.data.augment.philox import Slot, words
from dualtemp.data.augment.recipes import RECIPES, Augmentation, Blur, Jitter, recipe_named
from dualtemp.errors import UserError
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
warnings.filterwarnings("ignore", module="torchvision")
from torchvision import transforms  # noqa: E402

RATIO = (3 / 4, 4 / 3)
DRAWS = 3000


def p_value(result: Any) -> float:
    return float(result.pvalue)


def crops(height: int, width: int, scale: tuple[float, float], count: int = DRAWS, seed: int = 0) -> torch.Tensor:
    random = crop_words(seed, 0, torch.arange(count), 0)
    return random_crops(random, torch.full((count,), height), torch.full((count,), width), scale, RATIO)


def torchvision_crops(height: int, width: int, scale: tuple[float, float]) -> torch.Tensor:
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    return torch.tensor(
        [transforms.RandomResizedCrop.get_params(image, list(scale), list(RATIO)) for _ in range(DRAWS)]
    )


# 32 x 32 nearly always finds a crop; 20 x 64 and 90 x 30 with large areas often fall back; 10 x 100 always does.
@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [
        (32, 32, (0.08, 1.0)),
        (375, 500, (0.2, 1.0)),
        (20, 64, (0.4, 1.0)),
        (90, 30, (0.4, 1.0)),
        (10, 100, (0.5, 1.0)),
        (1, 1, (0.08, 1.0)),
    ],
)
def test_crops_are_distributed_as_torchvision_draws_them(height, width, scale):
    ours, theirs = crops(height, width, scale), torchvision_crops(height, width, scale)
    for side in range(4):
        assert p_value(stats.ks_2samp(ours[:, side].numpy(), theirs[:, side].numpy(), method="asymp")) > 1e-3
    area = [boxes[:, 2] * boxes[:, 3] for boxes in (ours, theirs)]
    assert p_value(stats.ks_2samp(area[0].numpy(), area[1].numpy())) > 1e-3
    centred = central_crops(torch.tensor([height]), torch.tensor([width]), RATIO)
    fallen_back = [int((boxes == centred).all(1).sum()) for boxes in (ours, theirs)]
    if 0 < sum(fallen_back) < 2 * DRAWS:
        table = [[n, DRAWS - n] for n in fallen_back]
        assert p_value(stats.fisher_exact(table)) > 1e-3


@pytest.mark.parametrize(("height", "width"), [(10, 100), (100, 10), (33, 200), (7, 7), (64, 50)])
def test_an_image_that_no_try_fits_gets_torchvisions_central_crop(height, width):
    # an area that only fits if it is the whole image's, or more
    image = torch.empty(1, height, width)
    theirs = transforms.RandomResizedCrop.get_params(image, [50.0, 60.0], list(RATIO))
    assert crops(height, width, (50.0, 60.0), count=1)[0].tolist() == list(theirs)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_crop_always_lies_inside_its_image(height, width, seed):
    top, left, crop_height, crop_width = crops(height, width, (0.08, 1.0), 64, seed).unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (crop_height >= 1).all()
    assert (crop_width >= 1).all()
    assert (top + crop_height <= height).all()
    assert (left + crop_width <= width).all()


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_a_crop_is_what_torchvisions_loop_makes_of_the_same_draws(seed, height, width):
    scale = (0.08, 1.0)
    unit = (crop_words(seed, 0, torch.arange(8), 0).to(torch.float64) / 2**32).T.tolist()
    for draws, box in zip(unit, crops(height, width, scale, 8, seed).tolist(), strict=True):
        for t in range(10):
            area = height * width * (scale[0] + draws[Slot.CROP_AREA + t] * (scale[1] - scale[0]))
            low, high = math.log(RATIO[0]), math.log(RATIO[1])
            aspect = math.exp(low + draws[Slot.CROP_RATIO + t] * (high - low))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = int(draws[Slot.CROP_TOP] * (height - h + 1)), int(draws[Slot.CROP_LEFT] * (width - w + 1))
                assert box == [top, left, h, w]
                break


def test_jitter_factors_and_their_order_are_distributed_as_torchvisions():
    jitter = Jitter(0.8, 0.4, 1.5, 0.2, probability=1.0)  # a strength above 1: the range begins at 0
    ours = drawn_parameters(words(0, 0, torch.arange(DRAWS), 0), Augmentation(jitter=jitter))
    torch.manual_seed(0)
    reference = transforms.ColorJitter(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    ranges: Any = (reference.brightness, reference.contrast, reference.saturation, reference.hue)
    theirs = [transforms.ColorJitter.get_params(*ranges) for _ in range(DRAWS)]
    for number in range(4):
        factors = np.array([t[1 + number] for t in theirs])
        assert p_value(stats.ks_2samp(ours.factors[:, number].numpy(), factors)) > 1e-3
    kinds = {order: k for k, order in enumerate(sorted({tuple(t[0].tolist()) for t in theirs}))}
    counts = np.zeros((2, 24), dtype=int)
    for mine, their in zip(ours.order.tolist(), theirs, strict=True):
        counts[0, kinds[tuple(mine)]] += 1
        counts[1, kinds[tuple(their[0].tolist())]] += 1
    assert p_value(stats.chi2_contingency(counts)) > 1e-3


def test_probabilities_are_the_recipes():
    augmentation = Augmentation(flip=0.5, jitter=Jitter(probability=0.8), grayscale=0.2, blur=Blur(0.1), solarize=0.3)
    drawn = drawn_parameters(words(0, 0, torch.arange(20_000), 0), augmentation)
    shares = {"flipped": 0.5, "jittered": 0.8, "gray": 0.2, "blurred": 0.1, "solarized": 0.3}
    for name, probability in shares.items():
        assert p_value(stats.binomtest(int(getattr(drawn, name).sum()), 20_000, probability)) > 1e-3, name
    assert p_value(stats.kstest(drawn.sigma.numpy(), stats.uniform(0.1, 1.9).cdf)) > 1e-3
    assert ((drawn.order == NOTHING).all(1) == ~drawn.jittered).all()


def test_what_happens_to_an_image_says_nothing_about_what_else_happens_to_it():
    recipe = Augmentation(flip=0.5, jitter=Jitter(probability=0.5), grayscale=0.5, blur=Blur(0.5), solarize=0.5)
    random = words(0, 0, torch.arange(20_000), 0)
    drawn = drawn_parameters(random, recipe)
    sides = torch.full((20_000,), 32)
    boxes = random_crops(random, sides, sides, recipe.scale, recipe.ratio)
    happened = (drawn.flipped, drawn.jittered, drawn.gray, drawn.blurred, drawn.solarized)
    amounts = (drawn.sigma, *drawn.factors.T, boxes[:, 2] * boxes[:, 3])
    together = np.corrcoef(torch.stack([x.double() for x in (*happened, *amounts)]).numpy())
    assert np.abs(together - np.eye(len(together))).max() < 0.04
    jittered = drawn.jittered  # only those have an order: is brightness first, contrast second, ...?
    in_place = (drawn.order[jittered] == torch.arange(4)).double().T
    others = torch.stack([x[jittered].double() for x in (drawn.flipped, drawn.gray, drawn.sigma, *drawn.factors.T)])
    assert np.abs(np.corrcoef(others.numpy(), in_place.numpy())[: len(others), len(others) :]).max() < 0.05


def test_what_a_recipe_leaves_out_never_happens_and_certainties_always_do():
    nothing = Augmentation(flip=0.0, jitter=None, grayscale=0.0, blur=None, solarize=0.0)
    drawn = drawn_parameters(words(0, 0, torch.arange(5000), 0), nothing)
    for name in ("flipped", "jittered", "gray", "blurred", "solarized"):
        assert not getattr(drawn, name).any()
    always = Augmentation(flip=1.0, jitter=Jitter(probability=1.0), grayscale=1.0, blur=Blur(1.0), solarize=1.0)
    drawn = drawn_parameters(words(0, 0, torch.arange(5000), 0), always)
    for name in ("flipped", "jittered", "gray", "blurred", "solarized"):
        assert getattr(drawn, name).all()


def test_the_two_views_of_byol_differ_and_those_of_the_paper_do_not():
    assert RECIPES["paper"].first == RECIPES["paper"].second
    assert RECIPES["paper"].first.blur is None
    byol = recipe_named("byol")
    assert byol.of_view(0).blur == Blur(1.0)
    assert byol.of_view(1).blur == Blur(0.1)
    assert (byol.of_view(0).solarize, byol.of_view(1).solarize) == (0.0, 0.2)


def test_a_mistyped_recipe_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="did you mean 'simclr'"):
        recipe_named("simcrl")
    with pytest.raises(UserError, match="paper, paper_large_crops, mocov2, simclr, byol, weak"):
        recipe_named("zzz")


@pytest.mark.parametrize(("size", "width"), [(8, 3), (32, 3), (96, 9), (224, 23)])
def test_the_blur_kernel_is_odd_and_a_tenth_of_the_view(size, width):
    assert Blur.kernel(size) == width
