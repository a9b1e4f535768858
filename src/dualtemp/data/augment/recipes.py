"""Augmentation recipes as data. Needs no torch, so that settings can name and check them cheaply.

Users add recipes by a YAML file or a plugin (`@recipe("mine")`). A run records the content of such a recipe, so that it
does not need the file or plugin later; the key of a result, too, holds the content, not a name or a path.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError
from dualtemp.plugins import Registry
from dualtemp.text import suggest
from dualtemp.yaml_file import read_yaml


@dataclass(frozen=True)
class Jitter:
    """Color jitter with torchvision's meaning: strengths around 1 (hue: around 0), applied in random order."""

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
    """The operations that make one view, in this order: crop, flip, jitter, grayscale, blur, solarize.

    scale, ratio: ranges of the crop's share of the image's area, and of its aspect; flip, grayscale, solarize:
    probabilities. None or 0 means never.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: Jitter | None = Jitter()
    grayscale: float = 0.2
    blur: Blur | None = None
    solarize: float = 0.0


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
        """Return the augmentation of view 0, 1, 2, ...: first, second, first, ..."""
        return self.second if view % 2 else self.first


RECIPES: Registry[Recipe] = Registry("recipe")


def register_recipe(name: str, made: Recipe | Augmentation, module: str = "") -> None:
    """Register a recipe under a name; a single augmentation is used for both views."""
    made = Recipe(made, made) if isinstance(made, Augmentation) else made
    if not isinstance(made, Recipe):
        raise UserError(f"the recipe {name!r} is a {type(made).__name__}: give a Recipe or an Augmentation")
    recipe_from(content_of(made), f"the recipe {name!r}")  # raises if a value is invalid
    RECIPES.declare(name, made, module)


def recipe(name: str) -> Callable[[Callable[[], Recipe | Augmentation]], Callable[[], Recipe | Augmentation]]:
    """Register the recipe that a function returns under this name: `@recipe("mine")`."""

    def register(make: Callable[[], Recipe | Augmentation]) -> Callable[[], Recipe | Augmentation]:
        register_recipe(name, make(), make.__module__)
        return make

    return register


_STRONG = Jitter(0.8, 0.8, 0.8, 0.2)
_BYOL = Jitter(0.4, 0.4, 0.2, 0.1)
_BUILT_IN: dict[str, Recipe | Augmentation] = {
    # the dual-temperature paper and its public scripts
    "paper": Augmentation(),
    # the same with MoCo v2's larger crops, for networks too small, or trainings too short, for tiny ones
    "paper_large_crops": Augmentation(scale=(0.2, 1.0)),
    # He et al. / Chen et al., MoCo v2
    "mocov2": Augmentation(scale=(0.2, 1.0), blur=Blur()),
    # Chen et al., SimCLR, strength 1
    "simclr": Augmentation(jitter=_STRONG, blur=Blur()),
    # Grill et al., BYOL: the two views differ
    "byol": Recipe(
        Augmentation(jitter=_BYOL, blur=Blur(probability=1.0)),
        Augmentation(jitter=_BYOL, blur=Blur(probability=0.1), solarize=0.2),
    ),
    # a mild crop and a flip, as for supervised learning
    "weak": Augmentation(scale=(0.64, 1.0), jitter=None, grayscale=0.0),
}


def recipe_named(word: str) -> Recipe:
    """Return a recipe by its name, from a YAML file, or from the JSON that `recipe_text` returned."""
    if word.startswith("{"):
        return recipe_from(_from_json(word), "recipe")
    if word.endswith((".yaml", ".yml")) or os.sep in word:
        path = Path(word).expanduser()
        return recipe_from(read_yaml(path, "a recipe in a YAML file, such as `flip: 0.5`"), str(path))
    if word in RECIPES:
        return RECIPES[word]
    raise UserError(f"there is no recipe {word!r}: {suggest(word, RECIPES)} (your own: FILE.yaml, or --plugin FILE.py)")


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(
            f"recipe: {text[:80]} is not JSON ({error}); give such as '{{\"flip\": 0.5}}', or FILE.yaml"
        ) from None


def recipe_text(given: str | Mapping[str, Any] | Recipe) -> str:
    """Return a recipe as settings store it: the name of a built-in one, else its content as a line of JSON."""
    if isinstance(given, str) and given in _BUILT_IN:
        return given
    if isinstance(given, str):
        made = recipe_named(given)
    else:
        made = given if isinstance(given, Recipe) else recipe_from(given, "recipe")
    return next((name for name in _BUILT_IN if RECIPES[name] == made), json.dumps(content_of(made)))


def content_of(made: Recipe) -> dict[str, Any]:
    """The complete content of a recipe, as YAML and JSON store it; the inverse of `recipe_from`."""
    if made.first == made.second:
        return _operations(made.first)
    return {"first": _operations(made.first), "second": _operations(made.second)}


def _operations(made: Augmentation) -> dict[str, Any]:
    found: dict[str, Any] = {"crop": {"scale": list(made.scale), "ratio": list(made.ratio)}, "flip": made.flip}
    if made.jitter is not None:
        found["jitter"] = asdict(made.jitter)
    found["grayscale"] = made.grayscale
    if made.blur is not None:
        found["blur"] = {"probability": made.blur.probability, "sigma": list(made.blur.sigma)}
    return found | {"solarize": made.solarize}


OPERATIONS = ("crop", "flip", "jitter", "grayscale", "blur", "solarize")
_CHANCES = ("flip", "grayscale", "solarize")
_VIEWS = ("first", "second")


def recipe_from(values: Any, where: str) -> Recipe:
    """Build a recipe from operations by name; those of only one view are given under `first` or `second`.

    Operations that are not named are left out, except the crop. where: the start of error messages.
    """
    _check_names(values, (*OPERATIONS, *_VIEWS), where)
    shared = {name: value for name, value in values.items() if name in OPERATIONS}
    made = []
    for view in _VIEWS:
        own = values.get(view) or {}
        _check_names(own, OPERATIONS, f"{where}, {view}")
        made.append(_augmentation({**shared, **own}, where))
    return Recipe(*made)


def _augmentation(values: dict[str, Any], where: str) -> Augmentation:
    crop = values.get("crop") or {}
    _check_names(crop, ("scale", "ratio"), f"{where}, crop")
    jitter = _part(Jitter, values.get("jitter"), f"{where}, jitter")
    blur = _part(Blur, values.get("blur"), f"{where}, blur")
    chances = {name: _number(values.get(name) or 0.0, 1, f"{where}, {name}") for name in _CHANCES}
    pairs = {name: _pair(crop[name], 1 if name == "scale" else math.inf, f"{where}, crop, {name}") for name in crop}
    return replace(Augmentation(jitter=jitter, blur=blur), **chances, **pairs)


_MOST = {"probability": 1.0, "hue": 0.5}  # upper limits of an operation's numbers; the others have none


def _part(kind: Any, values: Any, where: str) -> Any:
    """Build a Jitter or a Blur; values that are not given keep their defaults."""
    if values is None or values is False:
        return None
    _check_names(values, [each.name for each in fields(kind)], where)
    return kind(
        **{
            name: _pair(value, math.inf, f"{where}, {name}")
            if name == "sigma"
            else _number(value, _MOST.get(name, math.inf), f"{where}, {name}")
            for name, value in values.items()
        }
    )


def _number(value: Any, most: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value <= most and value < math.inf):
        wanted = "a number from 0 on" if most == math.inf else f"a number from 0 to {most:g}"
        raise UserError(f"{where} must be {wanted}, got {value!r}")
    return float(value)


def _pair(value: Any, most: float, where: str) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UserError(f"{where} must be two numbers, [least, most], got {value!r}")
    least, largest = (_number(each, most, where) for each in value)
    if not 0 < least <= largest:
        raise UserError(f"{where} must be two numbers above 0, the smaller one first, got {value!r}")
    return least, largest


def _check_names(values: Any, known: Iterable[str], where: str) -> None:
    known = list(known)
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: {', '.join(known)} by name expected, got {values!r}")
    for name in values:
        if name not in known:
            raise UserError(f"{where}: nothing is called {name!r}: {suggest(str(name), known)}")


for _name, _made in _BUILT_IN.items():
    register_recipe(_name, _made, __name__)
