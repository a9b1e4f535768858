"""Keys that are not negatives of an anchor, computed tile by tile, so that no N x K mask has to exist."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Exclusion:
    """Pairs of N anchors and K keys in which the key is not a negative: all pairs that any of the parts names."""

    anchor_ids: list[Tensor] = field(default_factory=list)  # each (N,): a key of an equal id is no negative
    key_ids: list[Tensor] = field(default_factory=list)  # each (K,), in the same order
    padded_anchors: Tensor | None = None  # (N,) bool: anchors without any negatives
    padded_keys: Tensor | None = None  # (K,) bool: keys that are nobody's negatives
    mask: Tensor | None = None  # (N, K) bool

    def any(self) -> bool:
        """Whether anything may be excluded."""
        return bool(self.anchor_ids) or any(x is not None for x in (self.padded_anchors, self.padded_keys, self.mask))

    def tile(self, rows: slice, keys: slice) -> Tensor:
        """True where the key is no negative of the anchor, for the anchors `rows` and the keys `keys`."""
        parts = [a[rows, None] == b[None, keys] for a, b in zip(self.anchor_ids, self.key_ids, strict=True)]
        if self.mask is not None:
            parts.append(self.mask[rows, keys])
        if self.padded_anchors is not None:
            parts.append(self.padded_anchors[rows, None])
        if self.padded_keys is not None:
            parts.append(self.padded_keys[None, keys])
        excluded = parts[0]
        for part in parts[1:]:
            excluded = excluded | part
        return excluded.expand(rows.stop - rows.start, keys.stop - keys.start)

    def tensors(self) -> tuple[list[Tensor], list[Tensor], Tensor | None, Tensor | None, Tensor | None]:
        """Its parts in the order of its fields."""
        return self.anchor_ids, self.key_ids, self.padded_anchors, self.padded_keys, self.mask

    def count(self, tiles: list[tuple[slice, slice]], shape: tuple[int, int], own: int | None) -> tuple[Tensor, Tensor]:
        """Number of negatives of each anchor, (N,), and of each key taken for an anchor, (K,), without own keys."""
        device = next(x for x in (*self.anchor_ids, *self.tensors()[2:]) if x is not None).device
        rows_left, keys_left = (torch.zeros(n, dtype=torch.long, device=device) for n in shape)
        for rows, keys in tiles:
            negatives = ~self.tile(rows, keys)
            if own is not None:
                negatives.diagonal(rows.start + own - keys.start).fill_(False)
            rows_left[rows] += negatives.sum(1)
            keys_left[keys] += negatives.sum(0)
        return rows_left, keys_left
