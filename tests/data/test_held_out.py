"""What is held out, and that no copy of it stays behind."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.data.sources.held_out import held_out


@st.composite
def some_copies(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = draw(st.integers(1, 60))
    labels = np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    keys = np.array(draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count)), dtype=np.uint64)
    contents = draw(st.lists(st.integers(0, draw(st.integers(0, 80))), min_size=count, max_size=count))
    return labels, keys, np.array([contents.index(content) for content in contents])


@given(some_copies())
def test_all_copies_of_an_image_go_to_one_side_and_no_class_is_emptied(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    labels, keys, copy_of = drawn
    test = held_out(labels, keys, copy_of)
    assert not set(copy_of[test]) & set(copy_of[~test])
    for label in set(labels.tolist()):
        here = labels == label
        assert (~test[here]).any()
        if len(set(copy_of[here])) == here.sum() and here.sum() > 1 and all((copy_of == c).sum() == 1 for c in copy_of):
            assert test[here].sum() == max(1, (here.sum() + 5) // 10)


@given(some_copies())
def test_images_that_are_all_different_are_held_out_as_ever(drawn: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    labels, keys, _ = drawn
    assert (held_out(labels, keys, np.arange(len(labels))) == held_out(labels, keys)).all()


def test_a_class_of_pairs_gives_one_pair() -> None:
    copy_of = np.repeat(np.arange(0, 8, 2), 2)
    test = held_out(np.zeros(8, np.int64), np.arange(8, dtype=np.uint64)[::-1].copy(), copy_of)
    assert test.sum() == 2
    assert len(set(copy_of[test])) == 1


def test_many_copies_of_one_image_do_not_fill_the_tenth() -> None:
    copy_of = np.r_[np.zeros(60, np.int64), np.arange(60, 100)]
    test = held_out(np.zeros(100, np.int64), np.arange(100, dtype=np.uint64), copy_of)
    assert np.flatnonzero(test).tolist() == list(range(60, 70))
