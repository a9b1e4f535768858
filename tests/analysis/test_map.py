"""Places of images on a map, against scikit-learn."""

import numpy as np
import pytest
import torch

from dualtemp.analysis.principal_components import principal_components
from dualtemp.analysis.tsne import joint_probabilities, tsne
from dualtemp.data import open_source

manifold = pytest.importorskip("sklearn.manifold")
decomposition = pytest.importorskip("sklearn.decomposition")


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    pixels = open_source("digits").train.subset(240, seed=1).pixels
    assert isinstance(pixels, torch.Tensor)
    return torch.nn.functional.normalize(pixels.flatten(1).float(), dim=1)


def test_principal_components_are_scikit_learns_up_to_sign(features: torch.Tensor) -> None:
    found = principal_components(3 * features)  # their length does not count
    theirs = decomposition.PCA(2, svd_solver="full").fit(features.double().numpy())
    expected = theirs.transform(features.double().numpy())
    np.testing.assert_allclose(found.places.abs().numpy(), np.abs(expected), atol=1e-6)
    assert found.explained == pytest.approx(theirs.explained_variance_ratio_, abs=1e-6)


def test_the_sign_of_a_component_does_not_depend_on_the_order_of_the_images(features: torch.Tensor) -> None:
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
    one, other = principal_components(features), principal_components(features[order])
    torch.testing.assert_close(one.places[order], other.places, atol=1e-9, rtol=0)


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (4, 1), (3, 3)])
def test_what_there_is_not_is_zero(shape: tuple[int, int]) -> None:
    alike = principal_components(torch.ones(shape))
    assert alike.places.shape == (shape[0], 2)
    assert alike.places.abs().max() < 1e-9
    assert alike.explained == (0.0, 0.0)


def test_probabilities_have_the_wanted_perplexity_and_are_those_of_brute_force(features: torch.Tensor) -> None:
    points = features[:60].double()
    found = joint_probabilities(points, 10.0).numpy()
    distances = ((points[:, None] - points[None]) ** 2).sum(-1).numpy()
    rows = np.zeros_like(distances)
    for i in range(60):
        low, high, p = 1e-6, 1e6, rows[i]
        for _ in range(200):
            b = np.sqrt(low * high)
            p = np.exp(-b * (distances[i] - np.delete(distances[i], i).min()))
            p[i] = 0
            p /= p.sum()
            low, high = (b, high) if -(p[p > 0] * np.log(p[p > 0])).sum() > np.log(10) else (low, b)
        rows[i] = p
    np.testing.assert_allclose(found, (rows + rows.T) / 120, atol=1e-8)


def test_the_neighbour_embedding_is_as_trustworthy_as_scikit_learns(features: torch.Tensor) -> None:
    start = principal_components(features).places.float()
    found = tsne(features, start)
    theirs = manifold.TSNE(init="pca", perplexity=30, random_state=0, max_iter=500).fit_transform(features.numpy())
    ours, reference, pca = (
        manifold.trustworthiness(features.numpy(), places, n_neighbors=10) for places in (found.numpy(), theirs, start)
    )
    assert ours > reference - 0.02
    assert ours > pca + 0.05
    assert torch.equal(found, tsne(features, 64 * start))  # nothing is random, and the scale does not count


@pytest.mark.parametrize("points", [torch.ones(8, 3), torch.eye(8), torch.cat([torch.eye(4)] * 2)])
def test_a_map_of_equal_or_equidistant_points_is_finite(points: torch.Tensor) -> None:
    assert tsne(points, principal_components(points).places.float()).isfinite().all()
