import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.evaluation.accuracy import label_ranks, predicted, top_accuracy


@given(classes=st.integers(1, 8), n=st.integers(1, 20), levels=st.integers(1, 4), seed=st.integers(0, 1000))
def test_a_label_ranks_where_a_stable_sort_puts_it(classes: int, n: int, levels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (n, classes), generator=generator).float()  # few levels: many ties
    labels = torch.randint(classes, (n,), generator=generator)
    ranks = [
        sorted(range(classes), key=lambda c: -row[c]).index(label)
        for row, label in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    assert label_ranks(scores, labels).tolist() == ranks
    result = top_accuracy(scores, labels)
    assert result.top1 == sum(rank < 1 for rank in ranks) / n
    assert result.top5 == sum(rank < 5 for rank in ranks) / n


def test_scores_that_are_not_numbers_are_not_right() -> None:
    scores = torch.full((6, 10), float("nan"))
    assert top_accuracy(scores, torch.arange(6)) == (0.0, 0.0)
    scores[:, 3] = 1
    assert top_accuracy(scores, torch.arange(6)).top1 == 0


def test_with_fewer_than_five_classes_the_top_five_are_all_of_them() -> None:
    assert top_accuracy(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([2])) == (0.0, 1.0)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, -1.0, math.nan, -math.inf]), min_size=3, max_size=3), min_size=1))
def test_the_predicted_class_is_right_just_where_the_top_1_is(rows: list[list[float]]) -> None:
    scores = torch.tensor(rows)
    found = predicted(scores)
    for label in range(3):
        labels = torch.full((len(rows),), label)
        right = torch.tensor([top_accuracy(row[None], labels[:1]).top1 == 1 for row in scores])
        assert torch.equal(found == label, right)
