from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dualtemp.data.images import ImageSet
from dualtemp.data.sources.cifar10_npm import CLASSES as CIFAR10
from dualtemp.data.sources.digits import open_digits
from dualtemp.data.sources.label_noise import CIFAR100_GROUPS, asymmetric_target, noisy, with_label_noise
from dualtemp.errors import UserError


def labelled(labels: list[int], classes: tuple[str, ...]) -> ImageSet:
    return ImageSet("x", torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), torch.tensor(labels), classes, 1)


def labels_of(images: ImageSet) -> torch.Tensor:
    assert images.labels is not None
    return images.labels


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.floats(0, 1), st.integers(0, 2**40), st.booleans())
def test_exactly_the_rate_of_each_class_changes(labels: list[int], rate: float, seed: int, symmetric: bool) -> None:
    images = labelled(labels, tuple("abcdef"))
    new = labels_of(noisy(images, "symmetric" if symmetric else "asymmetric", rate, seed)).tolist()
    changed = Counter(old for old, now in zip(labels, new, strict=True) if old != now)
    assert all(changed[label] == round(rate * count) for label, count in Counter(labels).items())
    assert set(new) <= set(range(6))


def test_symmetric_noise_goes_to_every_other_class_alike() -> None:
    old = torch.arange(20_000) % 10
    new = labels_of(noisy(labelled(old.tolist(), tuple("abcdefghij")), "symmetric", 0.6, 3))
    steps = ((new - old) % 10)[new != old].bincount(minlength=10)[1:].numpy()
    assert steps.sum() == 12_000
    assert stats.chisquare(steps).pvalue > 1e-3


def test_which_labels_change_is_independent_of_the_position() -> None:
    old = torch.zeros(10_000, dtype=torch.int64)
    new = labels_of(noisy(labelled(old.tolist(), ("a", "b")), "symmetric", 0.4, 5))
    where = np.flatnonzero((new != old).numpy()) / 10_000
    assert stats.kstest(where, "uniform").pvalue > 1e-3


def test_asymmetric_noise_on_cifar10_flips_the_customary_pairs_and_leaves_five_classes_clean() -> None:
    old = torch.arange(1000) % 10
    new = labels_of(noisy(labelled(old.tolist(), CIFAR10), "asymmetric", 0.4, 0))
    moves = Counter((CIFAR10[a], CIFAR10[b]) for a, b in zip(old.tolist(), new.tolist(), strict=True) if a != b)
    assert moves == {
        ("truck", "automobile"): 40,
        ("bird", "airplane"): 40,
        ("deer", "horse"): 40,
        ("cat", "dog"): 40,
        ("dog", "cat"): 40,
    }


def test_asymmetric_noise_on_cifar100_stays_within_the_super_class() -> None:
    classes = tuple(sorted(name for group in CIFAR100_GROUPS for name in group))
    assert len(set(classes)) == 100
    target = asymmetric_target(classes)
    group_of = {name: number for number, group in enumerate(CIFAR100_GROUPS) for name in group}
    assert all(
        group_of[classes[t]] == group_of[name] and classes[t] != name for name, t in zip(classes, target, strict=True)
    )
    for start in range(100):  # five steps come back, fewer do not
        here, seen = start, set()
        for _ in range(5):
            here = int(target[here])
            seen.add(here)
        assert here == start
        assert len(seen) == 5


def test_asymmetric_noise_elsewhere_moves_to_the_next_class_in_a_circle() -> None:
    assert asymmetric_target(("a", "b", "c")).tolist() == [1, 2, 0]


def test_only_training_labels_change_and_pixels_never() -> None:
    clean = open_digits()
    dirty = with_label_noise(clean, "symmetric", 0.5, 1)
    assert dirty.test is clean.test
    assert dirty.train.pixels is clean.train.pixels
    assert (labels_of(dirty.train) != labels_of(clean.train)).float().mean() == pytest.approx(0.5, abs=0.005)
    assert dirty.train.fingerprint != clean.train.fingerprint


def test_noise_is_decided_by_the_seed() -> None:
    images = open_digits().train
    first, again, other = (labels_of(noisy(images, "symmetric", 0.4, seed)).tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_images_without_a_label_stay_without() -> None:
    images = labelled([-1, 0, -1, 1], ("a", "b"))
    assert labels_of(noisy(images, "symmetric", 1.0)).tolist() == [-1, 1, -1, 0]


@pytest.mark.parametrize(
    ("images", "kind", "rate", "message"),
    [
        (ImageSet("x", torch.zeros(2, 1, 1, 1, dtype=torch.uint8), channels=1), "symmetric", 0.1, "no labels"),
        (labelled([0, 0], ("a",)), "symmetric", 0.1, "one class"),
        (labelled([0, 1], ("a", "b")), "symmetric", 1.1, "rate"),
        (labelled([0, 1], ("a", "b")), "symmetric", float("nan"), "rate"),
        (labelled([0, 1], ("a", "b")), "uniform", 0.1, "expected 'symmetric'"),
    ],
)
def test_impossible_noise_is_refused_in_one_line(images: ImageSet, kind: str, rate: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        noisy(images, kind, rate)  # type: ignore[arg-type]
