"""A first convolution that whitens patches of images: a better beginning than random filters, without any training."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dualtemp.errors import UserError

PATCHES = 16  # along a side of an image, at about equal distances; fewer where the convolution makes fewer
_FLOOR = 5e-4  # added to variances, those of normalized pixels, so that what hardly varies is not blown up


def first_convolution(backbone: nn.Module, channels: int) -> nn.Conv2d:
    """The convolution that sees the images; raises UserError if the backbone begins with something else."""
    layers = [layer for layer in backbone.modules() if not list(layer.children())]
    if layers and isinstance(layers[0], nn.Conv2d) and layers[0].groups == 1 and layers[0].in_channels == channels:
        return layers[0]
    raise UserError(
        f"whiten_stem needs a network whose first layer is a convolution of the images; {type(backbone).__name__} has "
        "none: leave it out"
    )


def whitening_filters(convolution: nn.Conv2d, batches: Iterable[Tensor]) -> Tensor:
    """Filters that whiten patches of images (N, C, H, W): (F, C, h, w), F at most the output channels.

    The principal components of the patches, the largest first, each divided by its standard deviation; then their
    negatives, since a ReLU follows. Images pass them as large as they pass the filters that were there.
    """
    height, width = convolution.kernel_size
    size = convolution.in_channels * height * width
    count, total, products = 0, torch.zeros(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    for images in batches:
        sides = zip(convolution.stride, images.shape[2:], strict=True)
        stride = tuple(max(own, side // PATCHES) for own, side in sides)
        patches = F.unfold(images.cpu(), (height, width), stride=stride).transpose(1, 2).reshape(-1, size).double()
        count, total, products = count + len(patches), total + patches.sum(0), products + patches.T @ patches
    mean = total / max(count, 1)
    covariance = products / max(count, 1) - mean.outer(mean)
    variances, components = torch.linalg.eigh(covariance)
    filters = (components / (variances.clamp(min=0) + _FLOOR).sqrt()).T.flip(0)[: convolution.out_channels // 2]
    # The sign of a component is arbitrary: here its largest value is positive.
    filters = filters * filters.gather(1, filters.abs().argmax(1, keepdim=True)).sign()
    drawn = convolution.weight.detach().cpu().double().flatten(1)
    filters = filters * ((drawn @ covariance) * drawn).sum(1).mean().sqrt()
    return torch.cat((filters, -filters)).view(-1, convolution.in_channels, height, width)


@torch.no_grad()
def set_filters(convolution: nn.Conv2d, filters: Tensor) -> None:
    """Put filters (F, C, h, w) in the place of the first F; the others stay as they are."""
    convolution.weight[: len(filters)] = filters.to(convolution.weight)
