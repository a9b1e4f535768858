"""The set that needs no download: 1,797 real handwritten digits, 8 x 8, shipped with the package.

This is UCI's "optical recognition of handwritten digits" (see digits.txt beside the file), whose pixel values are 0 to
16; here v becomes v * 255 / 16, rounded half up. The test part is a fifth of each digit (n / 5, rounded half up), the
images with the smallest Philox keys under seed 0: 1,438 for training, 359 for testing.
"""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import torch

from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.subset import HELD_OUT, random_keys, rank_within


def open_digits(labels: bool = True) -> Splits:
    """Open the digits: gray, uint8 (N, 1, 8, 8), ten classes; labels=False ignores the labels."""
    with (
        files("dualtemp.data.sources").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        counts, digits = arrays["counts"], arrays["labels"].astype(np.int64)  # counts 0..16, (1797, 8, 8)
    pixels = torch.from_numpy(((counts.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[:, None])
    whole = ImageSet("digits", pixels, channels=1)
    if labels:
        whole = replace(whole, labels=torch.from_numpy(digits), classes=tuple("0123456789"))
    test = rank_within(digits, random_keys(0, HELD_OUT, len(digits))) < ((np.bincount(digits) * 2 + 5) // 10)[digits]
    train, test = (whole.take(np.flatnonzero(part)) for part in (~test, test))
    return Splits(train, test, split="a fifth of each digit, fixed")
