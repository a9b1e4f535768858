"""Features as a space: principal components, nearest images, maps turned alike."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from dualtemp.studio.space import aligned, fitted, make_space, principal_places


def features(count: int, width: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (draw.normal(size=(count, width)) * np.geomspace(3, 0.1, width) + 1).astype(np.float32)


@pytest.mark.parametrize(("count", "width"), [(200, 16), (5, 16), (300, 2)])
def test_places_are_principal_components(count: int, width: int) -> None:
    z = features(count, width).astype(np.float64)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    peer = PCA(2, svd_solver="full")
    expected = peer.fit_transform(z)
    places, shares = principal_places(z.astype(np.float32))
    signs = np.sign((places * expected).sum(0))
    np.testing.assert_allclose(places * signs, expected, atol=2e-5)
    np.testing.assert_allclose(shares, peer.explained_variance_ratio_, atol=1e-4)


def test_one_image_one_feature_and_equal_features_have_a_place() -> None:
    for z in (np.ones((1, 4)), np.ones((7, 1)), np.ones((9, 4)), np.zeros((3, 4))):
        space = make_space("x", None, z.astype(np.float32))
        assert np.isfinite(space.places["components"]).all()


def test_the_nearest_are_those_of_a_brute_force() -> None:
    space = make_space("x", None, features(500, 12))
    query = features(1, 12, seed=9)[0]
    z = space.features.astype(np.float64)
    cosines = z @ (query / np.linalg.norm(query))
    for most in (1, 7, 500, 10_000):
        found, values = space.nearest(query, most)
        assert found.tolist() == np.argsort(-cosines, kind="stable")[:most].tolist()
        np.testing.assert_allclose(values, np.sort(cosines)[::-1][:most], atol=1e-6)


def test_a_turned_and_mirrored_map_is_turned_back() -> None:
    there = fitted(features(300, 2))
    angle = 2.1
    turned = there @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) * [1, -1] + 5
    back = aligned(turned.astype(np.float32), there)
    np.testing.assert_allclose(back, there - there.mean(0), atol=1e-4)
    assert np.abs(there).max() < 2
