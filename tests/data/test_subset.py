import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.data.images import ImageSet
from dualtemp.data.subset import random_keys, rank_within, subset_count, subset_index
from dualtemp.errors import UserError


def philox4x64(counter: int, key: tuple[int, int]) -> list[int]:
    """Four words of Philox-4x64-10, from the publication, in plain integers."""
    low = 2**64 - 1
    x = [counter & low, (counter >> 64) & low, 0, 0]
    k = list(key)
    for step in range(10):
        if step:
            k = [(k[0] + 0x9E3779B97F4A7C15) & low, (k[1] + 0xBB67AE8584CAA73B) & low]
        first, second = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(second >> 64) ^ x[1] ^ k[0], second & low, (first >> 64) ^ x[3] ^ k[1], first & low]
    return x


def test_keys_are_the_published_philox_words() -> None:
    keys = random_keys(7, 2, 11).tolist()
    expected = [word for counter in (1, 2, 3) for word in philox4x64(counter, (7, 2))]
    assert keys == expected[:11]


def test_keys_do_not_depend_on_how_many_are_asked_for() -> None:
    assert random_keys(3, 0, 100)[:37].tolist() == random_keys(3, 0, 37).tolist()


def test_a_negative_or_huge_seed_is_a_seed_like_any_other() -> None:
    assert random_keys(-1, 0, 4).tolist() == random_keys(2**64 - 1, 0, 4).tolist()


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 2**64 - 1)), max_size=40))
def test_rank_within_counts_the_smaller_keys_of_the_same_group(pairs: list[tuple[int, int]]) -> None:
    groups = np.array([group for group, _ in pairs], dtype=np.int64)
    keys = np.array([key for _, key in pairs], dtype=np.uint64)
    expected = [
        sum(1 for j, (other, k) in enumerate(pairs) if other == group and (k, j) < (key, i))
        for i, (group, key) in enumerate(pairs)
    ]
    assert rank_within(groups, keys).tolist() == expected


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_a_subset_is_as_balanced_as_the_classes_allow(labels: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(labels)))
    seed = data.draw(st.integers(0, 2**32))
    chosen = subset_index(torch.tensor(labels), len(labels), count, seed)
    assert len(set(chosen.tolist())) == count
    assert chosen.tolist() == sorted(chosen.tolist())
    whole, taken = np.bincount(labels, minlength=5), np.bincount(np.array(labels)[chosen], minlength=5)
    unfinished = taken[taken < whole]
    if len(unfinished):
        assert taken.max() - unfinished.min() <= 1


@settings(max_examples=40)
@given(st.booleans(), st.integers(1, 50), st.integers(1, 50), st.integers(0, 1000))
def test_a_larger_subset_contains_every_smaller_one(labelled: bool, a: int, b: int, seed: int) -> None:
    labels = torch.arange(50) % 7 if labelled else None
    small, large = (set(subset_index(labels, 50, count, seed).tolist()) for count in sorted((a, b)))
    assert small <= large


def test_every_image_of_a_class_is_equally_likely() -> None:
    labels = torch.arange(40) % 4
    hits = np.zeros(40)
    for seed in range(2000):
        hits[subset_index(labels, 40, 8, seed)] += 1
    # 8 of 40: a fifth each; the standard error is .009
    assert np.abs(hits / 2000 - 0.2).max() < 0.045


def test_seeds_choose_differently_and_the_same_seed_alike() -> None:
    labels = torch.arange(1000) % 10
    first, again, other = (subset_index(labels, 1000, 100, seed).tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_a_fraction_is_a_part_and_a_whole_number_a_count() -> None:
    images = ImageSet("x", torch.zeros(30, 1, 2, 2, dtype=torch.uint8), torch.arange(30) % 3, ("a", "b", "c"), 1)
    part = images.subset(0.2)
    assert part.labels is not None
    assert part.labels.bincount().tolist() == [2, 2, 2]
    assert len(images.subset(1)) == 1
    assert len(images.subset(1.0)) == 30


@pytest.mark.parametrize("amount", [0, -3, 31, 0.0, 1.5, -0.1, float("nan")])
def test_an_impossible_amount_is_refused_in_one_line(amount: float) -> None:
    images = ImageSet("x", torch.zeros(30, 1, 2, 2, dtype=torch.uint8), channels=1)
    with pytest.raises(UserError, match="subset") as raised:
        images.subset(amount)
    assert "\n" not in str(raised.value)


def test_images_without_a_label_make_the_choice_unbalanced_but_legal() -> None:
    labels = torch.tensor([-1] * 90 + [0] * 5 + [1] * 5)
    taken = [int((subset_index(labels, 100, 50, seed) < 90).sum()) for seed in range(300)]
    assert np.mean(taken) == pytest.approx(45, abs=0.5)  # classes that take turns would give 40


def test_images_without_labels_are_those_with_the_smallest_philox_words() -> None:
    words = [word for counter in range(1, 6) for word in philox4x64(counter, (3, 0))]
    assert subset_index(None, 20, 7, 3).tolist() == sorted(np.argsort(np.array(words, dtype=np.uint64))[:7].tolist())


def test_fractions_are_rounded_not_cut() -> None:
    assert subset_count(0.29, 100) == 29  # 28.999999999999996
    assert subset_count(0.05, 30) == 2
