"""Any images in, two seeded views out.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.data.images import FileImages, ImageSet, Splits, UnreadableImage
    from dualtemp.data.label_noise import with_label_noise
    from dualtemp.data.loader import Loader, evaluation_batches
    from dualtemp.data.recipes import RECIPES
    from dualtemp.data.sources import open_source
    from dualtemp.data.views import Views, evaluation_view

_HOME = {
    "RECIPES": "recipes",
    "FileImages": "images",
    "ImageSet": "images",
    "Loader": "loader",
    "Splits": "images",
    "UnreadableImage": "images",
    "Views": "views",
    "evaluation_batches": "loader",
    "evaluation_view": "views",
    "open_source": "sources",
    "with_label_noise": "label_noise",
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
