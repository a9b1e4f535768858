"""Augmentation recipes as data. Needs no torch, so that settings can name and check them cheaply."""

from dataclasses import dataclass
from difflib import get_close_matches

from dualtemp.errors import UserError


@dataclass(frozen=True)
class Jitter:
    """Colour jitter with torchvision's meaning: strengths around 1 (hue: around 0), applied in random order."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 0.8


@dataclass(frozen=True)
class Blur:
    """Gaussian blur. The kernel's width is a tenth of the view's, made odd, at least 3 (23 at 224 px)."""

    probability: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)

    @staticmethod
    def kernel(size: int) -> int:
        """Width of the kernel for a view of `size` pixels."""
        return max(3, int(0.1 * size) // 2 * 2 + 1)


@dataclass(frozen=True)
class Augmentation:
    """What happens to one view, in this order: crop, flip, jitter, greyscale, blur, solarise.

    scale: share of the image's area in a crop; ratio: its aspect; the others are probabilities. None or 0 means never.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: Jitter | None = Jitter()
    greyscale: float = 0.2
    blur: Blur | None = None
    solarise: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """The augmentations of the first view and of the second."""

    first: Augmentation
    second: Augmentation

    @property
    def both(self) -> tuple[Augmentation, Augmentation]:
        """First and second."""
        return self.first, self.second

    def of_view(self, view: int) -> Augmentation:
        """Return what view 0, 1, 2, ... goes through: first, second, first, ..."""
        return self.second if view % 2 else self.first


def _both(augmentation: Augmentation) -> Recipe:
    return Recipe(augmentation, augmentation)


_STRONG = Jitter(0.8, 0.8, 0.8, 0.2)
_BYOL = Jitter(0.4, 0.4, 0.2, 0.1)
RECIPES: dict[str, Recipe] = {
    # the dual-temperature paper and its public scripts
    "paper": _both(Augmentation()),
    # the same with MoCo v2's larger crops, for networks and trainings too small for tiny ones
    "paper_large_crops": _both(Augmentation(scale=(0.2, 1.0))),
    # He et al. / Chen et al., MoCo v2
    "mocov2": _both(Augmentation(scale=(0.2, 1.0), blur=Blur())),
    # Chen et al., SimCLR, strength 1
    "simclr": _both(Augmentation(jitter=_STRONG, blur=Blur())),
    # Grill et al., BYOL: the two views differ
    "byol": Recipe(
        Augmentation(jitter=_BYOL, blur=Blur(probability=1.0)),
        Augmentation(jitter=_BYOL, blur=Blur(probability=0.1), solarise=0.2),
    ),
    # crop a little and flip, as for supervised learning
    "weak": _both(Augmentation(scale=(0.64, 1.0), jitter=None, greyscale=0.0)),
}


def recipe_named(name: str) -> Recipe:
    """Return a recipe by its name; a mistyped one is answered with the nearest."""
    if name in RECIPES:
        return RECIPES[name]
    near = get_close_matches(name, RECIPES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(RECIPES)}."
    raise UserError(f"there is no recipe {name!r}: {hint}")
