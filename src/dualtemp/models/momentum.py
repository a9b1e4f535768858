"""The key encoder of MoCo and BYOL: a copy that follows its source slowly."""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class MomentumCopy(nn.Module):
    """A copy of a module whose parameters follow the module's, without gradients.

    It starts in training mode, with batch-norm statistics of its own: only parameters follow, buffers do not.

    Args:
        source: the module to copy; it is left as it is.

    Example:
        >>> import torch
        >>> encoder = torch.nn.Linear(2, 2)
        >>> key_encoder = MomentumCopy(encoder)
        >>> key_encoder.follow(encoder, 0.99)
    """

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(source).requires_grad_(False)
        self.train()

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The copy's output, detached."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def follow(self, source: nn.Module, momentum: float) -> None:
        """Move the parameters after a step of the optimizer: new = momentum * old + (1 - momentum) * source.

        Args:
            source: the module that was copied, or one with the same parameters in the same order.
            momentum: from 0 (take the source's values) to 1 (stay).
        """
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
        mine: list[Tensor] = list(self.module.parameters())
        theirs: list[Tensor] = list(source.parameters())
        if [p.shape for p in mine] != [p.shape for p in theirs]:
            raise ValueError("follow: the source's parameters differ in number or shape from those of the copy")
        torch._foreach_lerp_(mine, theirs, 1 - momentum)  # pyright: ignore[reportPrivateImportUsage]
