"""A first convolution that whitens, against scikit-learn's PCA and the outputs themselves."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn import functional as F

from dualtemp.errors import UserError
from dualtemp.models.backbones import build_backbone
from dualtemp.models.whitened_stem import first_convolution, set_filters, whitening_filters


def smooth_images(count: int, channels: int = 3, side: int = 16) -> Tensor:
    """Images whose neighboring pixels resemble each other, as those of photographs do."""
    drawn = torch.randn(count, channels, side, side, generator=torch.Generator().manual_seed(0))
    return F.avg_pool2d(F.pad(drawn, (1, 1, 1, 1), mode="circular"), 3, 1) + 0.1 * drawn


def covariance_of_outputs(convolution: nn.Conv2d, images: Tensor) -> np.ndarray:
    with torch.no_grad():
        outputs = F.conv2d(images.double(), convolution.weight.double(), stride=convolution.stride)
    return np.cov(outputs.transpose(0, 1).flatten(1).numpy(), bias=True)


def test_outputs_of_the_first_half_are_uncorrelated_and_vary_equally_and_the_second_half_are_their_negatives() -> None:
    torch.manual_seed(0)
    convolution, images = nn.Conv2d(3, 16, 3, 2, 1, bias=False), smooth_images(64)
    drawn = np.diag(covariance_of_outputs(convolution, images)).mean()
    set_filters(convolution, whitening_filters(convolution, images.split(24)))
    found = covariance_of_outputs(convolution, images)
    np.testing.assert_allclose(found[:8, :8], drawn * np.eye(8), atol=0.01 * drawn)  # the floor of variances
    np.testing.assert_allclose(found[:8, 8:], -found[:8, :8], atol=1e-6 * drawn)


def test_filters_are_the_largest_principal_components_of_patches() -> None:
    torch.manual_seed(0)
    convolution, images = nn.Conv2d(3, 10, 3, 2), smooth_images(64)
    patches = F.unfold(images, 3, stride=2).transpose(1, 2).reshape(-1, 27).double().numpy()
    expected = PCA(5, svd_solver="full").fit(patches)
    found = whitening_filters(convolution, [images])[:5].flatten(1).numpy()
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs((found / lengths * expected.components_).sum(1)), 1, rtol=1e-9)
    np.testing.assert_allclose(
        lengths[:, 0] / lengths[0], np.sqrt(expected.explained_variance_[0] / expected.explained_variance_), rtol=0.02
    )


def test_filters_that_have_no_component_left_stay_as_they_were_drawn() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 24, 3, bias=False)
    before = convolution.weight.detach().clone()
    filters = whitening_filters(convolution, [smooth_images(64, channels=1)])
    assert filters.shape == (18, 1, 3, 3)
    set_filters(convolution, filters)
    assert not torch.equal(convolution.weight[:18], before[:18])
    assert torch.equal(convolution.weight[18:], before[18:])


def test_images_of_one_color_have_nothing_to_whiten_and_give_finite_filters() -> None:
    convolution = nn.Conv2d(3, 16, 3)
    assert whitening_filters(convolution, [torch.ones(4, 3, 8, 8)]).isfinite().all()


@pytest.mark.parametrize("name", ["resnet_mini", "resnet18", "vit_tiny"])
def test_a_network_is_whitened_where_it_sees_the_images(name: str) -> None:
    backbone = build_backbone(name, 32, seed=0)
    convolution = first_convolution(backbone, 3)
    seen: list[Tensor] = []
    convolution.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.randn(2, 3, 32, 32)
    backbone(images)
    assert torch.equal(seen[0], images)


def test_a_network_without_a_first_convolution_is_refused_in_one_line() -> None:
    with pytest.raises(
        UserError, match="first layer is a convolution of the images; Sequential has none: leave it out"
    ):
        first_convolution(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), 3)
