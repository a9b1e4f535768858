"""Any images in, two seeded views out.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.data.augment.recipes import RECIPES
    from dualtemp.data.augment.views import Views, evaluation_view
    from dualtemp.data.images import FileImages, ImageSet, Splits, UnreadableImage
    from dualtemp.data.loading.loader import Loader, evaluation_batches
    from dualtemp.data.sources.label_noise import with_label_noise
    from dualtemp.data.sources.opening import open_source

_HOME = {
    "RECIPES": "augment.recipes",
    "FileImages": "images",
    "ImageSet": "images",
    "Loader": "loading.loader",
    "Splits": "images",
    "UnreadableImage": "images",
    "Views": "augment.views",
    "evaluation_batches": "loading.loader",
    "evaluation_view": "augment.views",
    "open_source": "sources.opening",
    "with_label_noise": "sources.label_noise",
}

__all__ = [
    "RECIPES",
    "FileImages",
    "ImageSet",
    "Loader",
    "Splits",
    "UnreadableImage",
    "Views",
    "evaluation_batches",
    "evaluation_view",
    "open_source",
    "with_label_noise",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
