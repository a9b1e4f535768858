"""What a run sees of its data."""

from dataclasses import dataclass, field

from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet


@dataclass(frozen=True)
class TrainingData:
    """What a run sees: images to learn from; labelled images for kNN and the probe, if there are any; a test set.

    unreadable: reason by file name; begins with the files that were left out, and grows as others are met.
    """

    images: ImageSet
    bank: ImageSet | None
    test: ImageSet | None
    views: Views
    classes: int
    unreadable: dict[str, str] = field(default_factory=dict)
