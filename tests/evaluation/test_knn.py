import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from dualtemp.evaluation import best_k, knn, knn_accuracy, knn_votes


def clusters(n: int, features: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Overlapping clusters: about half of the points are nearest to a point of another class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(classes, (n,), generator=generator)
    return centres[labels] + 1.5 * torch.randn(n, features, generator=generator), labels


def brute_force_votes(
    bank: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor, classes: int, k: int, temperature: float
) -> torch.Tensor:
    """Wu et al.'s votes in float64, image by image; of equal similarities the earlier in the bank is the nearer."""
    bank, queries = (x.double() / x.double().norm(dim=1, keepdim=True) for x in (bank, queries))
    votes = torch.zeros(len(queries), classes, dtype=torch.float64)
    for row, query in zip(votes, queries, strict=True):
        similarity = [float(s) for s in bank @ query]
        for j in sorted(range(len(bank)), key=lambda j: -similarity[j])[:k]:
            row[labels[j]] += math.exp(similarity[j] / temperature)
    return votes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 7, 50])
def test_it_agrees_with_scikit_learn(weighted: bool, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "TRAIN_ROWS", 130)  # several tiles each way
    monkeypatch.setitem(knn.TEST_ROWS, "cpu", 64)
    bank, labels = clusters(500, 10, 7, 0)
    queries, truth = clusters(300, 10, 7, 1)

    def weights(distance: np.ndarray) -> np.ndarray:
        return np.exp((1 - distance) / 0.1)

    # On unit vectors the cosine distance is 1 - s.
    weighing: Any = weights if weighted else "uniform"  # scikit-learn's annotation knows no function
    peer = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=weighing)
    peer.fit(bank.double().numpy(), labels.numpy())
    expected = torch.from_numpy(peer.predict_proba(queries.double().numpy()))
    votes = knn_votes(bank, labels, queries, 7, k=k, temperature=0.1 if weighted else math.inf)
    torch.testing.assert_close((votes / votes.sum(1, keepdim=True)).double(), expected, atol=1e-5, rtol=1e-4)
    top1 = knn_accuracy(bank, labels, queries, truth, k=k, temperature=0.1 if weighted else math.inf).top1
    assert 0.2 < top1 < 0.9
    assert top1 == pytest.approx(peer.score(queries.double().numpy(), truth.numpy()), abs=1e-9)


@settings(max_examples=40)
@given(
    bank_size=st.integers(1, 40),
    k=st.integers(1, 50),
    tile=st.integers(1, 45),
    temperature=st.sampled_from([0.01, 0.1, 1.0]),
    seed=st.integers(0, 100),
)
def test_votes_are_those_of_a_brute_force_for_any_tiles_and_k(
    bank_size: int, k: int, tile: int, temperature: float, seed: int
) -> None:
    bank, labels = clusters(bank_size, 4, 5, seed)
    queries, _ = clusters(9, 4, 5, seed + 1)
    expected = brute_force_votes(bank, labels, queries, 5, k, temperature)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn, "TRAIN_ROWS", tile)
        patch.setitem(knn.TEST_ROWS, "cpu", 4)
        votes = knn_votes(bank, labels, queries, 5, k=k, temperature=temperature).double()
    torch.testing.assert_close(
        votes / votes.sum(1, keepdim=True), expected / expected.sum(1, keepdim=True), atol=3e-5, rtol=1e-3
    )


@given(size=st.integers(1, 60), k=st.integers(1, 60), tile=st.integers(1, 70), seed=st.integers(0, 100))
def test_of_equal_neighbours_the_earlier_in_the_bank_are_taken(size: int, k: int, tile: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    bank = torch.eye(3)[torch.randint(3, (size,), generator=generator)]  # similarities are exactly 0 or 1
    k = min(k, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn, "TRAIN_ROWS", tile)
        similarity, index = knn._nearest(torch.eye(3), bank, k)
    for axis in range(3):
        expected = sorted(range(size), key=lambda j: -bank[j, axis])[:k]
        assert index[axis].tolist() == expected
        assert similarity[axis].tolist() == [float(bank[j, axis]) for j in expected]


def test_classes_with_equal_votes_rank_by_number() -> None:
    bank = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert knn_accuracy(bank, torch.tensor([4, 2]), bank[:1], torch.tensor([2])).top1 == 1
    assert knn_accuracy(bank, torch.tensor([4, 2]), bank[:1], torch.tensor([4])).top1 == 0


def test_lengths_of_features_and_tiny_temperatures_do_not_matter() -> None:
    bank, labels = clusters(200, 8, 5, 0)
    queries, truth = clusters(100, 8, 5, 1)
    plain = knn_accuracy(bank, labels, queries, truth, k=20)
    assert knn_accuracy(bank * torch.rand(200, 1).add(0.1), labels, queries * 1e3, truth, k=20) == plain
    assert knn_accuracy(bank, labels, queries, truth, k=20, temperature=1e-4) == knn_accuracy(
        bank, labels, queries, truth, k=1
    )


def test_a_collapsed_encoder_is_at_chance_and_one_of_nans_at_zero() -> None:
    labels = torch.arange(100) % 10
    assert knn_accuracy(torch.ones(100, 4), labels, torch.ones(100, 4), labels).top1 == pytest.approx(0.1)
    nans = torch.full((100, 4), float("nan"))
    assert knn_accuracy(nans, labels, nans, labels) == (0.0, 0.0)


def test_the_similarity_matrix_is_never_whole() -> None:
    bank, labels = clusters(40_000, 4, 5, 0)
    queries, truth = clusters(2_000, 4, 5, 1)
    with torch.profiler.profile(profile_memory=True) as profile:
        knn_accuracy(bank, labels, queries, truth, k=5)
    largest = max(event.cpu_memory_usage for event in profile.events() or [] if event.name == "aten::mm")
    assert 0 < largest <= 256 * 16384 * 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"train_labels": torch.zeros(3, dtype=torch.int64)}, "4 features in the bank and 3 labels"),
        ({"test_labels": torch.zeros(0, dtype=torch.int64)}, "one per feature"),
    ],
)
def test_wrong_arguments_are_named(changes: dict, said: str) -> None:
    arguments: dict[str, Any] = {
        "train_features": torch.ones(4, 2),
        "train_labels": torch.zeros(4, dtype=torch.int64),
        "test_features": torch.ones(2, 2),
        "test_labels": torch.zeros(2, dtype=torch.int64),
    }
    with pytest.raises(ValueError, match=said):
        knn_accuracy(**(arguments | changes))


@pytest.mark.parametrize("most", [2_000, 37])
@pytest.mark.parametrize("seed", range(4))
def test_the_chosen_k_is_best_when_each_image_is_asked_of_the_others(seed: int, most: int, monkeypatch) -> None:
    monkeypatch.setattr(knn, "TRAIN_ROWS", 64)
    monkeypatch.setitem(knn.TEST_ROWS, "cpu", 16)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (130,), generator=generator)
    features = torch.randn(130, 5, generator=generator) + 1.2 * torch.eye(5)[labels]
    features[40:60] = features[100:120]  # copies, some with another label
    asked = torch.linspace(0, 129, min(most, 130), dtype=torch.float64).long().tolist()
    right = {}
    for k in (1, 5, 10, 20, 50, 100):
        right[k] = 0
        for i in asked:
            others = torch.tensor([j for j in range(130) if j != i])
            votes = knn_votes(features[others], labels[others], features[i : i + 1], 4, k=k)
            right[k] += int(votes.argmax()) == int(labels[i])
    best = max(right.values())
    assert best_k(features, labels, most=most) == min(k for k, count in right.items() if count == best)


def test_the_images_asked_are_spaced_on_the_cpu_since_not_every_device_has_float64(monkeypatch) -> None:
    linspace = torch.linspace

    def on_the_cpu(*values: float, device: object = None, **more: object) -> torch.Tensor:
        assert device is None
        return linspace(*values, **more)  # pyright: ignore

    monkeypatch.setattr(torch, "linspace", on_the_cpu)
    assert best_k(torch.randn(60, 4), torch.arange(60) % 3, most=20) >= 1


def test_few_neighbours_are_chosen_where_classes_are_small_and_many_where_they_are_noisy() -> None:
    generator = torch.Generator().manual_seed(0)
    small = torch.arange(60).repeat_interleave(3)
    assert best_k(torch.eye(60)[small] + 0.05 * torch.randn(180, 60, generator=generator), small) <= 5
    two = torch.arange(400) % 2
    assert best_k(torch.randn(400, 8, generator=generator) + 0.5 * torch.eye(8)[two], two) >= 20
    assert best_k(torch.ones(1, 3), torch.zeros(1, dtype=torch.int64)) == 1


def test_an_image_that_its_copies_push_out_of_the_list_still_has_its_nearest_others() -> None:
    features = torch.tensor([[1.0, 0.0]] * 7 + [[0.0, 1.0]])
    ((own, _, index),) = knn._nearest_others(features, torch.tensor([6]), 3)
    assert (own.tolist(), index.tolist()) == ([6], [[0, 1, 2]])
