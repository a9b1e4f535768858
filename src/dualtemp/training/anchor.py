"""Anchor an encoder to its start: penalize a batch's similarities for drifting away from those under the start."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.losses.similarity_drift import similarity_drift
from dualtemp.models.stages import split_backbone


class StartAnchor:
    """A penalty on how far similarities have moved from the start's, added to a framework's loss.

    It uses the last pass of a step with gradients; the start sees the same view. If the first stages are frozen, they
    are computed once for both.

    Args:
        weight: of the penalty.
        network: the network that the framework passes views through, whole or in chunks.
        backbone: the encoder with the start's weights, which are copied.
        freeze: number of frozen stages.
        chunk: images passed through the start at once; None: the whole view, with the frozen stages shared.
        sample: one image (1, C, H, W), to test whether the encoder can be split.
    """

    def __init__(
        self, weight: float, network: nn.Module, backbone: nn.Module, freeze: int, chunk: int | None, sample: Tensor
    ) -> None:
        self.weight, self.chunk = weight, chunk
        self.features: Tensor | None = None
        self.seen: Tensor | None = None  # by the start: a view, or activations of the frozen stages
        split = split_backbone(backbone, freeze, sample) if chunk is None else None
        if split is None:
            self.start: nn.Module = copy.deepcopy(backbone)
        else:
            boundary, rest = split
            self.start = copy.deepcopy(rest)
            boundary.register_forward_hook(self._keep_activation)
        self.shares_work = split is not None
        self.start.requires_grad_(False).eval()
        network.register_forward_hook(self._keep_features)

    def penalty(self) -> Tensor:
        """The penalty of the step whose passes have just been computed; call it once a step."""
        assert self.features is not None
        assert self.seen is not None
        with torch.no_grad():
            parts = [self.start(x) for x in self.seen.split(self.chunk or len(self.seen))]
        found = similarity_drift(self.features, torch.cat(parts), gather=True)
        self.features = self.seen = None
        return self.weight * found

    def _keep_activation(self, module: nn.Module, given: Any, output: Tensor) -> None:
        # The same condition as in _keep_features, so that both are of one pass. The training flag would not do: pooling
        # is in training mode even in a pass without gradients.
        if not torch.is_grad_enabled():
            return
        self.seen = output.detach()

    def _keep_features(self, network: nn.Module, given: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self.features = output.features
        if not self.shares_work:
            self.seen = given[0].detach()
