"""A random order of images that reads a few shards at a time, and a measure of how far it is from a full shuffle.

In each epoch the shards are shuffled and taken `at_once` at a time; the images of those are shuffled together. Like a
full shuffle, the order is a list of image numbers given by seed and epoch: training can enter it at any step, and any
number of processes can share it.
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
    present, number = shards.unique(return_inverse=True)  # a subset may have no images of some shards
    drawn = shard_permutation(seed, epoch, len(present))
    turn = torch.empty_like(drawn)
    turn[drawn] = torch.arange(len(drawn))  # position of each shard in the drawn order
    return whole[torch.argsort((turn[number] // at_once)[whole], stable=True)]


def shards_in_a_batch(order: Tensor, shards: Tensor, batch: int) -> float:
    """The mean number of shards that a batch's images come from, over some batches of an order."""
    firsts = np.linspace(0, len(order) - batch, min(_LOOKED_AT, max(1, len(order) // batch))).astype(int)
    return float(np.mean([len(shards[order[first : first + batch]].unique()) for first in firsts.tolist()]))


def describe_order(seed: int, shards: Tensor, at_once: int, batch: int) -> str:
    """Describe how far an order is from a full shuffle, measured on the first epoch."""
    found, uniform = (
        shards_in_a_batch(order, shards, batch)
        for order in (shard_order(seed, 0, shards, at_once), permutation(seed, 0, len(shards)))
    )
    count = len(shards.unique())
    return (
        f"order: {min(at_once, count)} of {counted(count, 'shard')} at a time; a batch has images of {found:.1f} "
        f"shards on average, in a uniform order of {uniform:.1f}"
    )
