"""An order of images that reads shard after shard, drawn from the seed alone, and how far it is from a whole shuffle.

The shards of an epoch are put into a drawn order and taken some at a time; the images of those are shuffled together.
Like the whole shuffle it is a list of numbers: any step can be entered, and any number of processes shares it.
"""

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.augment.philox import permutation, shard_permutation
from dualtemp.quantities import counted

_LOOKED_AT = 100  # batches


def shard_order(seed: int, epoch: int, shards: Tensor, at_once: int) -> Tensor:
    """The order of the images in an epoch, int64 (N,); shards: int64 (N,), the number of each image's shard."""
    whole = permutation(seed, epoch, len(shards))
    present, number = shards.unique(return_inverse=True)  # a subset may leave shards empty
    drawn = shard_permutation(seed, epoch, len(present))
    turn = torch.empty_like(drawn)
    turn[drawn] = torch.arange(len(drawn))  # of each shard, in the drawn order
    return whole[torch.argsort((turn[number] // at_once)[whole], stable=True)]


def shards_in_a_batch(order: Tensor, shards: Tensor, batch: int) -> float:
    """From how many shards the images of a batch come, in the mean of some batches of an order."""
    firsts = np.linspace(0, len(order) - batch, min(_LOOKED_AT, max(1, len(order) // batch))).astype(int)
    return float(np.mean([len(shards[order[first : first + batch]].unique()) for first in firsts.tolist()]))


def describe_order(seed: int, shards: Tensor, at_once: int, batch: int) -> str:
    """Say how far an order is from the whole shuffle, measured on the first epoch."""
    found, uniform = (
        shards_in_a_batch(order, shards, batch)
        for order in (shard_order(seed, 0, shards, at_once), permutation(seed, 0, len(shards)))
    )
    count = len(shards.unique())
    return (
        f"order: {min(at_once, count)} of {counted(count, 'shard')} at a time; a batch has images of {found:.1f} "
        f"shards in the mean, in a uniform order of {uniform:.1f}"
    )
