"""Check features and labels, given as tensors or numpy arrays, and convert them to tensors."""

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray


def as_features(features: Array) -> Tensor:
    """Return features (N, F) as a float tensor on the CPU; float64 stays, everything else becomes float32."""
    found = torch.as_tensor(features).detach().cpu()
    if found.ndim != 2 or not len(found):
        raise ValueError(f"features: (N, F) with at least one row expected, not {tuple(found.shape)}")
    return found if found.dtype == torch.float64 else found.float()


def as_labels(labels: Array, count: int) -> Tensor:
    """Return labels (N,) as an int64 tensor on the CPU."""
    found = torch.as_tensor(labels).detach().cpu().long()
    if found.shape != (count,):
        raise ValueError(f"labels: ({count},) expected, one for each row, not {tuple(found.shape)}")
    return found
