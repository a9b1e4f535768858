import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from dualtemp.data import open_source
from dualtemp.data.images import ImageSet
from dualtemp.evaluation import few_shot_accuracy, image_features
from dualtemp.evaluation.few_shot import PENALTY, few_labels
from dualtemp.models import build_backbone

Part = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def digits() -> tuple[ImageSet, Part, Part]:
    """The training digits, and features of an encoder with labels of both parts."""
    torch.set_num_threads(1)
    splits = open_source("digits")
    encoder = build_backbone("resnet_mini", 8, 1, seed=0)
    assert splits.test is not None
    parts = []
    for images in (splits.train, splits.test):
        assert isinstance(images.pixels, torch.Tensor)
        assert images.labels is not None
        parts.append((image_features(encoder, (images.pixels / 255).split(256)), images.labels))
    return splits.train, *parts


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_it_is_as_good_as_scikit_learns_regression_on_the_same_images(
    digits: tuple[ImageSet, Part, Part], share: float
) -> None:
    images, (train, labels), (test, truth) = digits
    scaler = StandardScaler().fit(train.numpy())
    rows = torch.arange(len(images))
    numbered = ImageSet("numbers", torch.zeros(len(images), 1, 1, 1, dtype=torch.uint8), labels, channels=1)
    right = []
    for draw in range(3):
        # ImageSet.subset says which images; their numbers are found through a set whose labels tell the places.
        count = max(10, round(share * len(images)))
        taken = _places(numbered, count, draw, rows)
        peer = LogisticRegression(C=1 / (count * PENALTY * train.shape[1]), tol=1e-8, max_iter=5000)
        peer.fit(scaler.transform(train[taken].numpy()), labels[taken].numpy())
        right.append(peer.score(scaler.transform(test.numpy()), truth.numpy()))
    found = few_shot_accuracy(train, labels, test, truth, share, draws=3)
    assert found.top1 == pytest.approx(np.mean(right), abs=0.003)
    assert found.deviation == pytest.approx(np.std(right, ddof=1), abs=0.003)
    assert found.labels == max(10, round(share * len(images)))


def _places(images: ImageSet, count: int, seed: int, rows: torch.Tensor) -> torch.Tensor:
    """Which images a subset took: pixels carry the number of the image."""
    pixels = torch.stack([rows % 256, rows // 256], 1).to(torch.uint8)[:, :, None, None]
    taken = ImageSet("numbers", pixels, images.labels, channels=2).subset(count, seed).pixels
    assert isinstance(taken, torch.Tensor)
    return taken[:, 0, 0, 0].long() + 256 * taken[:, 1, 0, 0].long()


def test_the_result_is_the_mean_over_draws_and_seeds_share_no_draw(digits: tuple[ImageSet, Part, Part]) -> None:
    _, train, test = digits
    single = [few_shot_accuracy(*train, *test, 0.02, draws=1, seed=seed) for seed in range(4)]
    assert len({one.top1 for one in single}) > 1
    for seed in (0, 1):
        both = few_shot_accuracy(*train, *test, 0.02, draws=2, seed=seed)
        of_it = single[2 * seed : 2 * seed + 2]
        assert both.top1 == pytest.approx(np.mean([one.top1 for one in of_it]))
        assert both.top5 == pytest.approx(np.mean([one.top5 for one in of_it]))
    assert single[0].deviation == 0


def test_more_labels_help(digits: tuple[ImageSet, Part, Part]) -> None:
    _, train, test = digits
    few, some, many = (few_shot_accuracy(*train, *test, share, draws=2).top1 for share in (0.01, 0.05, 0.5))
    assert 0.15 < few < some < many


def test_scale_and_offset_of_the_features_do_not_matter(digits: tuple[ImageSet, Part, Part]) -> None:
    _, (train, labels), (test, truth) = digits
    plain = few_shot_accuracy(train, labels, test, truth, 0.05, draws=2)
    moved = few_shot_accuracy(100 * train + 5, labels, 100 * test + 5, truth, 0.05, draws=2)
    assert moved.top1 == pytest.approx(plain.top1, abs=0.006)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.floats(0.001, 1.0), st.integers(0, 5))
def test_every_class_has_a_label_and_the_others_share_alike(labels: list[int], share: float, seed: int) -> None:
    tensor = torch.tensor(labels)
    count = few_labels(tensor, share)
    assert count >= share * len(labels) - 0.5
    pixels = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    chosen = ImageSet("some", pixels, tensor, channels=1).subset(count, seed).labels
    assert chosen is not None
    assert set(chosen.tolist()) == set(labels)


@pytest.mark.parametrize(("share", "draws"), [(0.0, 5), (1.5, 5), (float("nan"), 5), (0.1, 0)])
def test_impossible_shares_and_draws_are_refused(share: float, draws: int) -> None:
    x, labels = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    with pytest.raises(ValueError, match="share lies in"):
        few_shot_accuracy(x, labels, x, labels, share, draws=draws)
