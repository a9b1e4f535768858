"""What is measured after an epoch: against brute forces, and without a trace in the network."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dualtemp.config import complete, settings
from dualtemp.data.augment.philox import permutation
from dualtemp.data.images import ImageSet
from dualtemp.data.training_data import TrainingData
from dualtemp.evaluation.online import SPREAD_IMAGES, evaluate, few, sphere, view_alignment
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.frameworks import build_framework
from dualtemp.training.run_data import open_data, training_data

CPU = torch.device("cpu")
CHOSEN = complete(settings({"data": "digits", "backbone": "resnet_mini", "subset": 150, "knn_images": 60}), 8)


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return training_data(CHOSEN, open_data(CHOSEN))


@pytest.fixture(scope="module")
def network(data: TrainingData) -> Any:
    return build_framework(CHOSEN, data.images.channels, data.classes).network


def unit64(features: torch.Tensor) -> np.ndarray:
    z = features.detach().double().numpy()
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize("epoch", [0, 3])
def test_alignment_is_the_mean_distance_of_two_views_drawn_for_the_epoch(
    epoch: int, data: TrainingData, network: Any
) -> None:
    images, everyone = few(data.images, 512), torch.arange(len(data.images))
    backbone = copy.deepcopy(network.backbone).eval()
    assert isinstance(images.pixels, torch.Tensor)
    with torch.no_grad():
        one, other = (unit64(backbone(data.views(images.pixels, everyone, epoch, view))) for view in (0, 1))
    distances = ((one - other) ** 2).sum(1)
    found = view_alignment(network.backbone, data, epoch, CPU)
    # Of 150 images two whole batches of 64 are seen, as the epoch's order has them.
    seen = permutation(CHOSEN.seed, epoch, len(images))[:128]
    assert found == pytest.approx(distances[seen.numpy()].mean(), rel=1e-5)


def test_the_views_change_with_the_epoch_and_nothing_else(data: TrainingData, network: Any) -> None:
    found = [view_alignment(network.backbone, data, epoch, CPU) for epoch in (0, 1, 0)]
    assert found[0] == found[2] != found[1]


def test_the_features_on_the_sphere_agree_with_numpy() -> None:
    features = torch.randn(60, 12, generator=torch.Generator().manual_seed(1)) + 1
    z, found = unit64(features), sphere(features)
    assert found["spread"] == pytest.approx(z.std(0).mean() * np.sqrt(12), rel=1e-5)
    squares = ((z[:, None] - z[None]) ** 2).sum(-1)[~np.eye(60, dtype=bool)]
    assert found["uniformity"] == pytest.approx(np.log(np.exp(-2 * squares).mean()), rel=1e-5)
    s = np.linalg.svd(features.double().numpy(), compute_uv=False)
    p = s / s.sum()
    assert found["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-5)


def test_of_many_features_some_are_taken_from_beginning_to_end() -> None:
    many = torch.zeros(3 * SPREAD_IMAGES, 4)  # sorted by class, as folders are
    for part in range(3):
        many[part * SPREAD_IMAGES : (part + 1) * SPREAD_IMAGES, part] = 1
    found = sphere(many)
    assert found["effective_rank"] == pytest.approx(3, rel=1e-3)
    assert found["uniformity"] == pytest.approx(np.log(1 / 3 + 2 / 3 * np.exp(-4)), rel=1e-2)


def test_one_image_has_no_uniformity() -> None:
    assert set(sphere(torch.ones(1, 4))) == {"spread", "effective_rank"}


@pytest.mark.parametrize("labels", [True, False])
def test_an_evaluation_leaves_no_trace(labels: bool, data: TrainingData, network: Any) -> None:
    seen = data if labels else TrainingData(data.images, None, None, data.views, 0)
    probe = OnlineProbe(network.backbone.num_features, data.classes) if labels else None
    network.train()
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    found = evaluate(network, probe, seen, CHOSEN, CPU, epoch=2)
    assert {"spread", "alignment", "uniformity", "effective_rank"} <= set(found)
    assert ("knn_top1" in found) == labels
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in network.modules())


def test_a_set_of_a_few_images_can_be_measured(data: TrainingData, network: Any) -> None:
    assert isinstance(data.images.pixels, torch.Tensor)
    three = ImageSet("three", data.images.pixels[:3], channels=1)
    found = evaluate(network, None, TrainingData(three, None, None, data.views, 0), CHOSEN, CPU)
    assert all(np.isfinite(value) for value in found.values())


def test_a_single_test_image_is_not_taken_for_a_collapse(data: TrainingData, network: Any) -> None:
    assert data.test is not None
    assert data.bank is not None
    probe = OnlineProbe(network.backbone.num_features, data.classes)
    found = evaluate(network, probe, replace(data, test=data.test.take([0])), CHOSEN, CPU)
    alone = evaluate(network, None, TrainingData(few(data.bank, 60), None, None, data.views, 0), CHOSEN, CPU)
    assert found["spread"] == pytest.approx(alone["spread"], rel=1e-5)
    assert found["spread"] > 0.01


@pytest.mark.parametrize("labels", [True, False])
def test_progress_counts_every_image_that_is_seen(labels: bool, data: TrainingData, network: Any) -> None:
    told: list[tuple[int, int]] = []
    shown = data if labels else replace(data, bank=None)
    probe = OnlineProbe(network.backbone.num_features, data.classes) if labels else None
    evaluate(network, probe, shown, CHOSEN, CPU, progress=lambda done, total: told.append((done, total)))
    assert data.test is not None
    total = 128 + (len(data.test) + 60 if labels else 150)  # two batches of pairs of views, then clean images
    assert {each for _, each in told} == {total}
    assert told[-1][0] == total
    assert [done for done, _ in told] == sorted({done for done, _ in told})
