"""What a teacher makes of the images of a set, kept to be looked up."""

import torch
from torch import Tensor, nn

from dualtemp.losses.similarity import unit


class TeacherFeatures(nn.Module):
    """Features of a teacher by the number of the image, less their mean, at length 1; not part of the state dict.

    Their mean is what all images of the set have in common: without it, cosines tell images apart that would all be
    above 0.5 otherwise.

    Args:
        images: how many there are. Until `load`, all are alike.
    """

    features: Tensor

    def __init__(self, images: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(max(1, images), 1), persistent=False)

    def load(self, features: Tensor) -> None:
        """Take the features (images, F) of all images; a row of zeros is an image that the teacher has not seen."""
        seen = features.abs().amax(1, keepdim=True) > 0
        mean = features.sum(0) / seen.sum().clamp(min=1)
        (self.features,) = unit((features - mean) * seen)

    def forward(self, index: Tensor) -> Tensor:
        """Features (N, F) of the images of these numbers (N,)."""
        return self.features.index_select(0, index)
