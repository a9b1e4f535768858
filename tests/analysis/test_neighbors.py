"""Neighbours and their labels, against scikit-learn and plain loops."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.analysis.clean_sample import clean_sample
from dualtemp.analysis.neighbors import (
    agreement,
    chance_agreement,
    confused_classes,
    measure_neighbors,
    nearest_neighbors,
)
from dualtemp.analysis.trained_run import open_trained_run
from dualtemp.evaluation.features import image_features

labels_of_some = st.lists(st.integers(-1, 3), min_size=3, max_size=14)


def test_the_nearest_are_those_of_scikit_learn_without_the_image_itself() -> None:
    search = pytest.importorskip("sklearn.neighbors")
    features = torch.randn(700, 9, generator=torch.Generator().manual_seed(0))  # more than one tile of rows
    found = nearest_neighbors(features, 7)
    distance, index = search.NearestNeighbors(n_neighbors=7, metric="cosine").fit(features).kneighbors()
    np.testing.assert_array_equal(found.index.numpy(), index)
    np.testing.assert_allclose(found.similarity.numpy(), 1 - distance, atol=1e-5)
    assert nearest_neighbors(features[:4], 7).index.shape == (4, 3)
    assert nearest_neighbors(features[:1], 7).index.shape == (1, 0)


@given(labels_of_some, st.integers(1, 4))
def test_agreement_and_confusion_count_what_is_known(given_labels: list[int], k: int) -> None:
    labels = torch.tensor(given_labels)
    count = len(labels)
    index = torch.stack([(torch.arange(1, k + 1) * 3 + i) % count for i in range(count)])
    pairs = [
        (given_labels[i], given_labels[j])
        for i in range(count)
        for j in index[i].tolist()
        if min(given_labels[i], given_labels[j]) >= 0
    ]
    same = [one == other for one, other in pairs]
    assert agreement(labels, index) == (pytest.approx(sum(same) / len(same)) if same else None)
    expected = {
        (one, other): pairs.count((one, other)) / sum(first == one for first, _ in pairs)
        for one, other in set(pairs)
        if one != other
    }
    found = confused_classes(labels, index, most=100)
    assert {(one, other): share for one, other, share in found} == pytest.approx(expected)
    assert [share for *_, share in found] == sorted((share for *_, share in found), reverse=True)


def test_classes_that_no_image_has_take_neither_memory_nor_time() -> None:
    labels = torch.tensor([7, 7, 2_000_000, 30_000_000])  # a table of all classes would be petabytes
    index = torch.tensor([[1, 2], [0, 2], [0, 3], [2, 1]])
    found = confused_classes(labels, index)
    last, rare = 30_000_000, 2_000_000
    assert found == [(7, rare, 0.5), (rare, 7, 0.5), (rare, last, 0.5), (last, 7, 0.5), (last, rare, 0.5)]


@given(labels_of_some)
def test_chance_is_the_share_of_pairs_with_one_label(given_labels: list[int]) -> None:
    known = [label for label in given_labels if label >= 0]
    pairs = [(a, b) for i, a in enumerate(known) for j, b in enumerate(known) if i != j]
    expected = pytest.approx(sum(a == b for a, b in pairs) / len(pairs)) if pairs else None
    assert chance_agreement(torch.tensor(given_labels)) == expected


def test_features_are_those_of_the_encoder_in_eval_mode_also_after_anchors_were_looked_at(
    run_of: Callable[[str], Path],
) -> None:
    run = open_trained_run(run_of("simco"))
    list(run.anchors(2))
    sample = clean_sample(run, 50)
    assert sample.part == "test"
    assert sorted(sample.labels.bincount().tolist()) == [5] * 10
    test = run.data.test
    assert test is not None
    backbone = open_trained_run(run_of("simco")).method.network.backbone
    expected = image_features(backbone, [run.data.views.evaluation(test.pixels[sample.index])])  # pyright: ignore
    torch.testing.assert_close(sample.features, expected)
    shown = sample.tiles[:, 0, ::4, ::4].int()
    assert (shown - test.pixels[sample.index][:, 0].int()).abs().max() <= 1  # pyright: ignore


def test_a_supervised_run_has_neighbours_too_and_they_agree_better_than_chance(run_of: Callable[[str], Path]) -> None:
    found = measure_neighbors(open_trained_run(run_of("supervised")), images=200)
    assert found["images"] == 200
    assert found["chance"] == pytest.approx(19 / 199)
    assert all(share > 3 * found["chance"] for share in found["agreement"].values())
    assert list(found["agreement"]) == ["1", "5", "20"]
    assert len(found["rows"]) == 8
    assert all(len(row["found"]) == 6 and row["query"] not in row["found"] for row in found["rows"])
