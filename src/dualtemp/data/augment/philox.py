"""Stateless random draws: each is a function of (seed, epoch, image index, view) and of what is drawn (`Slot`).

The generator is Philox4x32-10 (Salmon et al., SC 2011), a counter-based one: the seed is its key; index, epoch, view
and a slot's number are its counter. So a draw does not depend on batch, process, order or device, and an epoch can be
entered at any step. Only integer arithmetic is used; 32-bit words are held in int64, whose products wrap in the same
way on every device.
"""

from enum import IntEnum

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_VIEW_OF_ORDER = _MASK  # not a view of an image: for the permutation of an epoch
_VIEW_OF_REPLACEMENT = _MASK - 1  # for the replacements of unreadable images
_VIEW_OF_SHARDS = _MASK - 2  # for the order of shards


class Slot(IntEnum):
    """The random draws for a view. The numbers are part of every result: add at the end, never renumber."""

    CROP_AREA = 0  # one for each of the ten tries of a crop: 0..9
    CROP_RATIO = 10  # 10..19
    CROP_TOP = 20
    CROP_LEFT = 21
    FLIP = 22
    JITTER = 23
    BRIGHTNESS = 24
    CONTRAST = 25
    SATURATION = 26
    HUE = 27
    JITTER_ORDER = 28
    GRAYSCALE = 29
    BLUR = 30
    BLUR_SIGMA = 31
    SOLARIZE = 32


SLOTS = 33


def philox(counter: Tensor, key: tuple[int, int]) -> Tensor:
    """Philox4x32-10: counter (4, M) of 32-bit words in int64 -> (4, M) random 32-bit words in int64."""
    even, odd = counter[0::2], counter[1::2]  # words 0, 2 and words 1, 3: (2, M) each
    multipliers = torch.tensor(_MULTIPLIERS, device=counter.device).unsqueeze(1)
    # Row 0 of the next round takes word 2's product and row 1 word 0's, hence the flips.
    round_keys = [[(key[i] + n * _WEYL[i]) & _MASK for i in (0, 1)] for n in range(_ROUNDS)]
    keys = torch.tensor(round_keys, device=counter.device).unsqueeze(2)
    for n in range(_ROUNDS):
        product = even * multipliers  # wraps modulo 2^64; the shift and mask below still extract the upper word
        even = ((product >> 32) & _MASK).flip(0) ^ odd ^ keys[n]
        odd = (product & _MASK).flip(0)
    return torch.stack((even, odd), 1).flatten(0, 1)


def words(seed: int, epoch: int, index: Tensor, view: int, first: int = 0, count: int = SLOTS) -> Tensor:
    """Uniform 32-bit words for slots first .. first + count - 1.

    index (N,) int64, the image's number in its set, below 2^32. Returns int64 (count, N) on the device of the index.
    """
    block = first // 4
    blocks = (first + count + 3) // 4 - block
    counter = torch.empty((4, blocks, len(index)), dtype=torch.int64, device=index.device)
    counter[0] = index
    counter[1] = epoch & _MASK
    counter[2] = view & _MASK
    counter[3] = torch.arange(block, block + blocks, device=index.device).unsqueeze(1)
    random = philox(counter.view(4, -1), (seed & _MASK, (seed >> 32) & _MASK))  # (4, blocks * N)
    slots = random.view(4, blocks, len(index)).transpose(0, 1).flatten(0, 1)  # slot = 4 * block + lane
    return slots[first - 4 * block : first - 4 * block + count]


def uniform(random: Tensor, low: float | Tensor = 0.0, high: float | Tensor = 1.0) -> Tensor:
    """Words -> float64 in [low, high): all 32 bits are used. For the CPU, where views are drawn."""
    return low + random.to(torch.float64) * 2.0**-32 * (high - low)


def integer_below(random: Tensor, limit: int | Tensor) -> Tensor:
    """Words -> int64 in 0 .. limit - 1, limit at most 2^31: exact integer arithmetic, never `limit` itself."""
    return (random * limit) >> 32


def permutation(seed: int, epoch: int, count: int) -> Tensor:
    """The order of the images in an epoch: int64 (count,), a function of seed and epoch alone."""
    return _permutation(seed, epoch, count, _VIEW_OF_ORDER)


def shard_permutation(seed: int, epoch: int, count: int) -> Tensor:
    """The order of shards in an epoch, independent of that of images: int64 (count,)."""
    return _permutation(seed, epoch, count, _VIEW_OF_SHARDS)


def _permutation(seed: int, epoch: int, count: int, view: int) -> Tensor:
    high, low = words(seed, epoch, torch.arange(count), view, count=2)
    return torch.argsort((high << 31) | (low >> 1), stable=True)  # 63 bits: ties are practically impossible


def replacements(seed: int, epoch: int, index: int, count: int, tries: int) -> list[int]:
    """Draw `tries` of `count` images, to be tried in turn in an epoch if image `index` is unreadable."""
    random = words(seed, epoch, torch.tensor([index]), _VIEW_OF_REPLACEMENT, count=tries)
    return integer_below(random, count).flatten().tolist()
