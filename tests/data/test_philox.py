"""Draws: the published generator, uniform, independent, and without a state."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dualtemp.data.augment.philox import SLOTS, Slot, integer_below, permutation, philox, replacements, uniform, words

MASK = 0xFFFFFFFF


def philox_in_python_integers(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 from its description, one counter, unbounded integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


@pytest.mark.parametrize(
    ("counter", "key", "published"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([MASK] * 4, [MASK] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_generator_gives_the_known_answers_of_its_authors(counter, key, published):
    random = philox(torch.tensor(counter).unsqueeze(1), (key[0], key[1]))
    assert " ".join(f"{word:08x}" for word in random.flatten().tolist()) == published


@given(st.integers(0, 2**64 - 1), st.integers(0, MASK), st.integers(0, MASK), st.integers(0, MASK - 2))
@settings(max_examples=50, deadline=None)
def test_every_slot_is_the_word_of_its_counter(seed, epoch, index, view):
    random = words(seed, epoch, torch.tensor([index]), view).flatten().tolist()
    expected: list[int] = []
    for block in range(-(-SLOTS // 4)):
        expected += philox_in_python_integers([index, epoch, view, block], [seed & MASK, seed >> 32])
    assert random == expected[:SLOTS]


@given(st.integers(0, SLOTS - 1), st.integers(1, SLOTS))
@settings(max_examples=30, deadline=None)
def test_some_slots_are_the_same_words_as_all_slots(first, count):
    count = min(count, SLOTS - first)
    index = torch.arange(5)
    assert torch.equal(words(3, 1, index, 0, first, count), words(3, 1, index, 0)[first : first + count])


def test_a_draw_does_not_depend_on_the_batch_around_it():
    index = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    whole = words(7, 2, index, 1)
    for part in (slice(0, 1), slice(5, 300), slice(999, 1000)):
        assert torch.equal(words(7, 2, index[part], 1), whole[:, part])


def test_another_process_draws_the_same():
    code = (
        "import torch; from dualtemp.data.augment.philox import *; print(int(words(11, 4, torch.arange(999), 1).sum()))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(seen) == int(words(11, 4, torch.arange(999), 1).sum())


@pytest.mark.parametrize("slot", list(Slot))
def test_each_slot_is_uniform(slot):
    unit = uniform(words(0, 0, torch.arange(20_000), 0)[slot])
    assert stats.kstest(unit.numpy(), "uniform").pvalue > 1e-3
    assert unit.min() >= 0
    assert unit.max() < 1


@pytest.mark.parametrize(
    "other",
    [
        lambda index: words(1, 0, index, 0),  # another seed
        lambda index: words(1 << 32, 0, index, 0),  # a seed that differs in its upper half
        lambda index: words(0, 1, index, 0),  # another epoch
        lambda index: words(0, 0, index, 1),  # the other view
        lambda index: words(0, 0, index + 1, 0),  # the neighbouring image
        lambda index: words(0, 0, index, 0).roll(1, 0),  # another slot
    ],
)
def test_draws_of_different_seeds_epochs_views_images_and_slots_are_independent(other):
    index = torch.arange(4000)
    a = uniform(words(0, 0, index, 0)).flatten().numpy()
    b = uniform(other(index)).flatten().numpy()
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(a.size)
    cells, _, _ = np.histogram2d(a, b, bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(cells.flatten()).pvalue > 1e-3


def test_no_two_of_a_million_words_pairs_coincide_more_often_than_chance():
    random = words(5, 0, torch.arange(250_000), 0, count=4).flatten()
    repeats = len(random) - len(random.unique())
    expected = len(random) ** 2 / 2**33
    assert abs(repeats - expected) < 5 * np.sqrt(expected)


@given(st.integers(0, MASK), st.integers(1, 2**31))
def test_an_integer_below_a_limit_never_reaches_it(word, limit):
    assert int(integer_below(torch.tensor(word), limit)) == word * limit // 2**32
    assert int(integer_below(torch.tensor(MASK), limit)) == limit - 1


@given(st.integers(0, 2**63), st.integers(0, 1000), st.integers(1, 500))
@settings(deadline=None)
def test_the_order_of_an_epoch_is_a_permutation(seed, epoch, count):
    assert permutation(seed, epoch, count).sort().values.tolist() == list(range(count))


def test_the_order_of_an_epoch_is_decided_by_seed_and_epoch_and_every_order_is_as_likely():
    assert torch.equal(permutation(1, 2, 100), permutation(1, 2, 100))
    assert not torch.equal(permutation(1, 2, 100), permutation(1, 3, 100))
    assert not torch.equal(permutation(1, 2, 100), permutation(2, 2, 100))
    seen: dict[tuple[int, ...], int] = {}
    for epoch in range(2400):
        order = tuple(permutation(0, epoch, 4).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_replacements_are_other_images_of_the_set_and_always_the_same():
    first = replacements(0, 3, 17, 50, 16)
    assert first == replacements(0, 3, 17, 50, 16)
    assert len(first) == 16
    assert all(0 <= i < 50 for i in first)
    assert first != replacements(0, 3, 18, 50, 16)
