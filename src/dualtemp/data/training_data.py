"""The data of a run."""

from dataclasses import dataclass, field

from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet


@dataclass(frozen=True)
class TrainingData:
    """Images to learn from; labeled training images for kNN and the probe, if there are any; a test set.

    held_out: labeled training images that are not learned from, to decide when to stop; unreadable: file name ->
    reason, first files that were left out, then those found during training.
    """

    images: ImageSet
    bank: ImageSet | None
    test: ImageSet | None
    views: Views
    classes: int
    held_out: ImageSet | None = None
    unreadable: dict[str, str] = field(default_factory=dict)
