"""The losses that `loss.py` compares: each member of the family, and the libraries that offer the same.

plain: the formula as the paper states it, both directions (softmax at both temperatures, 1 - p, log-softmax), once with
a product for each direction (`plain`) and once with the product shared (`plain shared`). Embeddings are as an encoder
gives them: normalization is part of the loss. A package is imported when its loss is made.
"""

from collections.abc import Callable

IMAGES = 50_000  # of the data set, for losses that keep numbers per image


def plain_direction(q, k, tau_alpha: float, tau_beta: float):
    import torch.nn.functional as F

    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T
    return plain_loss(logits, tau_alpha, tau_beta)


def plain_loss(logits, tau_alpha: float, tau_beta: float):
    import torch.nn.functional as F

    w_alpha = 1 - F.softmax(logits / tau_alpha, dim=1).diagonal()
    w_beta = 1 - F.softmax(logits / tau_beta, dim=1).diagonal()
    return -((w_beta / w_alpha).detach() * F.log_softmax(logits / tau_alpha, dim=1).diagonal()).mean()


def plain(q, k):
    return (plain_direction(q, k, 0.1, 1.0) + plain_direction(k, q, 0.1, 1.0)) / 2


def plain_shared(q, k):
    import torch.nn.functional as F

    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T
    return (plain_loss(logits, 0.1, 1.0) + plain_loss(logits.T, 0.1, 1.0)) / 2


def dualtemp():
    from dualtemp.losses import dual_temperature

    return dual_temperature


def nt_xent():
    from dualtemp.losses import nt_xent

    return nt_xent


def lightly():
    from lightly.loss import NTXentLoss

    return NTXentLoss(temperature=0.1)


def metric_learning():
    import torch
    from pytorch_metric_learning.losses import NTXentLoss

    loss = NTXentLoss(temperature=0.1)

    def paired(q, k):
        labels = torch.arange(len(q))
        return loss(torch.cat((q, k)), torch.cat((labels, labels)))

    return paired


def lightly_dcl():
    from lightly.loss import DCLLoss

    return DCLLoss(temperature=0.1)


def equal():
    from dualtemp.losses import NTXentLoss

    return NTXentLoss(0.1, weight="equal")


def lightly_macl():
    from lightly.loss.macl_loss import MACLLoss

    return MACLLoss(temperature=0.1, alpha=0.5, A_0=0.0)


def adaptive():
    from dualtemp.losses import AdaptiveTemperature, NTXentLoss

    return NTXentLoss(AdaptiveTemperature(0.1, 0.5, 0.0), weight="equal")


def images_of(n: int):
    import torch

    return torch.arange(n) * (IMAGES // n)


def libauc():
    import torch.nn.functional as F
    from libauc.losses.contrastive import GCLoss_v2

    loss = GCLoss_v2(N=IMAGES, tau=0.1, gamma=0.9)
    return lambda q, k: loss(F.normalize(q, dim=1), F.normalize(k, dim=1), images_of(len(q)))[0]


def memory():
    from dualtemp.losses import DualTemperatureLoss

    loss = DualTemperatureLoss(0.1, weight="memory", images=IMAGES)
    return lambda q, k: loss(q, k, index=images_of(len(q)))


def open_clip():
    import torch
    import torch.nn.functional as F
    from open_clip.loss import ClipLoss

    loss, log_scale = ClipLoss(), torch.tensor(1 / 0.1).log().requires_grad_()
    return lambda q, k: loss(F.normalize(q, dim=1), F.normalize(k, dim=1), log_scale.exp())


def two_towers():
    from dualtemp.losses import TwoTowersLoss

    return TwoTowersLoss(tau=0.1)


LOSSES: dict[str, Callable] = {
    "plain": lambda: plain,
    "plain shared": lambda: plain_shared,
    "dualtemp": dualtemp,
    "lightly": lightly,
    "pytorch-metric-learning": metric_learning,
    "nt_xent": nt_xent,
    "lightly DCL": lightly_dcl,
    "equal": equal,
    "lightly MACL": lightly_macl,
    "equal, adaptive": adaptive,
    "libauc GCLoss": libauc,
    "memory": memory,
    "open_clip ClipLoss": open_clip,
    "two_towers": two_towers,
}
# Of each member: who has its gradient (MACL and libauc: up to a constant).
PEERS: dict[str, tuple[str, ...]] = {
    "dualtemp": ("plain", "plain shared"),
    "nt_xent": ("lightly", "pytorch-metric-learning"),
    "equal": ("lightly DCL",),
    "equal, adaptive": ("lightly MACL",),
    "memory": ("libauc GCLoss",),
    "two_towers": ("open_clip ClipLoss",),
}
