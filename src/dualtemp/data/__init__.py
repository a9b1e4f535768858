"""Data: images from any source, and seeded views of them.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.data.augment.recipes import RECIPES, Augmentation, Blur, Jitter, Recipe, recipe, register_recipe
    from dualtemp.data.augment.views import Views, evaluation_view
    from dualtemp.data.images import FileImages, ImageSet, ImageSource, Splits, TensorImages, UnreadableImage
    from dualtemp.data.loading.loader import Loader, evaluation_batches
    from dualtemp.data.sources.label_noise import with_label_noise
    from dualtemp.data.sources.opening import open_source
    from dualtemp.data.sources.registry import source

_HOME = {
    "RECIPES": "augment.recipes",
    "Augmentation": "augment.recipes",
    "Blur": "augment.recipes",
    "FileImages": "images",
    "ImageSet": "images",
    "ImageSource": "images",
    "Jitter": "augment.recipes",
    "Loader": "loading.loader",
    "Recipe": "augment.recipes",
    "Splits": "images",
    "TensorImages": "images",
    "UnreadableImage": "images",
    "Views": "augment.views",
    "evaluation_batches": "loading.loader",
    "evaluation_view": "augment.views",
    "open_source": "sources.opening",
    "recipe": "augment.recipes",
    "register_recipe": "augment.recipes",
    "source": "sources.registry",
    "with_label_noise": "sources.label_noise",
}

__all__ = [
    "RECIPES",
    "Augmentation",
    "Blur",
    "FileImages",
    "ImageSet",
    "ImageSource",
    "Jitter",
    "Loader",
    "Recipe",
    "Splits",
    "TensorImages",
    "UnreadableImage",
    "Views",
    "evaluation_batches",
    "evaluation_view",
    "open_source",
    "recipe",
    "register_recipe",
    "source",
    "with_label_noise",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
