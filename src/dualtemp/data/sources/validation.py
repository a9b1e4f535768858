"""Hold out a tenth of the training images for choosing settings; the test images are then used once, at the end."""

from dataclasses import replace

import numpy as np

from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.folder import name_keys
from dualtemp.data.sources.held_out import held_out
from dualtemp.data.subset import VALIDATION, random_keys
from dualtemp.errors import UserError


def held_out_for_validation(splits: Splits, wanted_by: str = "--validate held-out") -> Splits:
    """Return the splits with a tenth of the training images, balanced over the classes, as the test part.

    The choice does not depend on a seed: files go by a hash of their names, images in memory by a hash of their
    position, so that all runs on a source are measured on the same images. Copies of one image stay on one side.
    wanted_by: the flag that the error message names if there are too few images.
    """
    train, more = splits.train, splits.unlabeled
    alike = copies(part.source for part in (train, more) if part is not None)
    labels = np.zeros(len(train), np.int64) if train.labels is None else train.labels.numpy()
    test = held_out(labels, _keys(train), alike[: len(train)])
    if not test.any():
        raise UserError(f"{train.name}: too few training images to hold some out; leave {wanted_by} away, or give more")
    if more is not None:
        seen = np.isin(alike[len(train) :], alike[: len(train)][test])
        more = more.take(np.flatnonzero(~seen)) if seen.any() else more
    return replace(
        splits,
        train=train.take(np.flatnonzero(~test)),
        test=train.take(np.flatnonzero(test)),
        unlabeled=more if more is not None and len(more) else None,
        split="a tenth of the training images held out to measure with; test images are not looked at",
    )


def without_test_images(splits: Splits) -> Splits:
    """Return the splits without unlabeled images that are exact copies of test images, which must not be trained on."""
    test, more = splits.test, splits.unlabeled
    if test is None or more is None:
        return splits
    alike = copies(part.source for part in (test, more))
    left = np.flatnonzero(~np.isin(alike[len(test) :], alike[: len(test)]))
    if len(left) == len(more):
        return splits
    return replace(splits, unlabeled=more.take(left) if len(left) else None)


def _keys(images: ImageSet) -> np.ndarray:
    if images.in_memory:
        return random_keys(0, VALIDATION, len(images))
    # The prefix makes this independent of the images that a folder without a test part holds out.
    return name_keys([f"validation/{name.removeprefix('train/')}" for name in images.source.names])
