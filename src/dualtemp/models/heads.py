"""Projectors and predictors of the frameworks, each a plain `nn.Sequential`."""

from torch import nn


def mlp(*widths: int, batch_norm: bool = False, last_batch_norm: bool = False, last_bias: bool = True) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them: (N, widths[0]) -> (N, widths[-1]).

    Args:
        widths: of input, hidden layers and output; at least two.
        batch_norm: batch norm between a hidden layer and its ReLU.
        last_batch_norm: batch norm, without scale and shift, behind the last layer.
        last_bias: False leaves the last layer's bias out.
    """
    layers: list[nn.Module] = []
    for i in range(1, len(widths)):
        last = i == len(widths) - 1
        norm = last_batch_norm if last else batch_norm
        bias = not norm and (last_bias or not last)  # batch norm would take a bias out again
        layers.append(nn.Linear(widths[i - 1], widths[i], bias=bias))
        if norm:
            layers.append(nn.BatchNorm1d(widths[i], affine=not last))
        if not last:
            layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def linear(features: int, out: int) -> nn.Linear:
    """One linear layer: a classifier."""
    return nn.Linear(features, out)


def contrastive_projector(
    features: int, hidden: int | None = None, out: int = 128, *, batch_norm: bool = False
) -> nn.Sequential:
    """Projector of MoCo v2, SimMoCo and SimCo: Linear, ReLU, Linear (512-128-128 for ResNet-18).

    With batch norm between the first layer and its ReLU, the hidden layer is 512 wide unless told, else 128.
    """
    return mlp(features, hidden or (512 if batch_norm else 128), out, batch_norm=batch_norm)


def contrastive_predictor(out: int = 128, hidden: int = 512) -> nn.Sequential:
    """Predictor of MoCo v3, from the projector's output to itself: Linear, batch norm, ReLU, Linear."""
    return mlp(out, hidden, out, batch_norm=True)


def simclr_projector(features: int, hidden: int | None = None, out: int = 128) -> nn.Sequential:
    """Projector of SimCLR: Linear, ReLU, Linear; the hidden layer is as wide as the features unless told."""
    return mlp(features, hidden or features, out)


def byol_projector(features: int, hidden: int = 4096, out: int = 256) -> nn.Sequential:
    """Projector of BYOL: Linear, batch norm, ReLU, Linear."""
    return mlp(features, hidden, out, batch_norm=True)


def byol_predictor(out: int = 256, hidden: int = 4096) -> nn.Sequential:
    """Predictor of BYOL, from the projector's output to itself: Linear, batch norm, ReLU, Linear."""
    return mlp(out, hidden, out, batch_norm=True)


def simsiam_projector(features: int, hidden: int = 2048, out: int = 2048) -> nn.Sequential:
    """Projector of SimSiam: three layers, batch norm behind each, the last without scale and shift."""
    return mlp(features, hidden, hidden, out, batch_norm=True, last_batch_norm=True)


def simsiam_predictor(out: int = 2048, hidden: int = 512) -> nn.Sequential:
    """Predictor of SimSiam, a bottleneck: Linear, batch norm, ReLU, Linear."""
    return mlp(out, hidden, out, batch_norm=True)


def three_layer_projector(features: int, width: int) -> nn.Sequential:
    """Projector of Barlow Twins and VICReg: three layers of one width, batch norm and ReLU behind the first two."""
    # Both losses are blind to what a last bias adds to every image.
    return mlp(features, width, width, width, batch_norm=True, last_bias=False)
