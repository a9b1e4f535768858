import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.evaluation import alignment, effective_rank, feature_spread, uniformity


def some(n: int, features: int, seed: int) -> torch.Tensor:
    return torch.randn(n, features, generator=torch.Generator().manual_seed(seed)) + 0.3


def on_the_sphere(x: torch.Tensor) -> np.ndarray:
    z = x.double().numpy()
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@given(n=st.integers(2, 30), features=st.integers(1, 12), t=st.sampled_from([0.5, 2.0, 5.0]), seed=st.integers(0, 99))
def test_each_is_its_formula_in_float64(n: int, features: int, t: float, seed: int) -> None:
    x, y = some(n, features, seed), some(n, features, seed + 1000)
    z, other = on_the_sphere(x), on_the_sphere(y)
    assert feature_spread(x).item() == pytest.approx(z.std(0).mean() * features**0.5, abs=1e-5)
    s = np.linalg.svd(x.double().numpy(), compute_uv=False)
    p = s / s.sum()
    assert effective_rank(x).item() == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-4)
    distances = ((z - other) ** 2).sum(1)
    assert alignment(x, y).item() == pytest.approx(distances.mean(), abs=1e-5)
    assert alignment(x, y, power=1).item() == pytest.approx(np.sqrt(distances).mean(), abs=1e-5)
    pairs = [np.exp(-t * ((z[i] - z[j]) ** 2).sum()) for i in range(n) for j in range(i)]
    assert uniformity(x, t=t).item() == pytest.approx(np.log(np.mean(pairs)), abs=1e-4)


def test_isotropic_features_have_spread_one_and_full_rank() -> None:
    x = torch.randn(4000, 32, generator=torch.Generator().manual_seed(0))
    assert feature_spread(x).item() == pytest.approx(1, abs=0.01)
    assert 31 < effective_rank(x).item() <= 32
    assert -4 < uniformity(x).item() < -3.6


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_collapsed_features_have_no_spread_and_rank_one(value: float) -> None:
    x = torch.full((50, 8), value)
    assert feature_spread(x).item() == pytest.approx(0, abs=1e-6)
    assert effective_rank(x).item() == pytest.approx(1, abs=1e-4)
    assert alignment(x, x).item() == 0
    if value:  # of a vector without direction there is no distance to another
        assert uniformity(x).item() == pytest.approx(0, abs=1e-5)


def test_bfloat16_features_are_measured_in_float32() -> None:
    x = some(40, 8, 0).bfloat16()
    for measure in (feature_spread, effective_rank, uniformity):
        assert measure(x).dtype == torch.float32
        assert measure(x).item() == pytest.approx(measure(x.double()).item(), rel=1e-4)


def test_uniformity_of_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        uniformity(torch.ones(1, 3))
