from importlib.resources import files

import numpy as np
import pytest
import torch

from dualtemp.data.sources.digits import open_digits


def test_the_shipped_file_is_small_and_attributed() -> None:
    folder = files("dualtemp.data.sources")
    assert len(folder.joinpath("digits.npz").read_bytes()) < 100_000
    text = folder.joinpath("digits.txt").read_text()
    assert "Alpaydin" in text
    assert "CC BY 4.0" in text


def test_the_parts_are_balanced_and_complete() -> None:
    digits = open_digits()
    assert digits.test is not None
    assert digits.train.labels is not None
    assert digits.test.labels is not None
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    whole = digits.train.labels.bincount() + digits.test.labels.bincount()
    assert whole.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as UCI's description counts them
    assert ((digits.test.labels.bincount() - whole / 5).abs() <= 0.5).all()
    assert digits.train.channels == 1
    assert digits.train.size == (8, 8)


def test_they_are_the_digits_of_the_uci_set() -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    original = load_digits()
    scaled = np.floor(original.images * 255 / 16 + 0.5).astype(np.uint8)
    expected = sorted((image.tobytes(), int(label)) for image, label in zip(scaled, original.target, strict=True))
    digits = open_digits()
    assert digits.test is not None
    found = []
    for part in (digits.train, digits.test):
        assert isinstance(part.pixels, torch.Tensor)
        assert part.labels is not None
        found += [
            (pixels.numpy().tobytes(), int(label)) for pixels, label in zip(part.pixels, part.labels, strict=True)
        ]
    assert sorted(found) == expected


def test_labels_can_be_left_aside() -> None:
    digits = open_digits(labels=False)
    assert digits.train.labels is None
    assert digits.train.classes == ()
    assert len(digits.train) == 1438
