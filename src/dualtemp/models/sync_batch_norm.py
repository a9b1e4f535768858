"""Batch norm whose statistics are those of all processes."""

from torch import nn

from dualtemp.torchvision_operators import declare_missing_operators


def synchronize_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every batch norm, in place; the parameters and their names stay.

    timm's conversion, not torch's: the batch norm of many of timm's networks (EfficientNet, RegNet, DenseNet, ...)
    carries the activation after it, which torch's would drop without a word.
    """
    declare_missing_operators()
    from timm.layers import convert_sync_batchnorm  # pyright: ignore[reportPrivateImportUsage]

    return convert_sync_batchnorm(module)
