"""Groups of almost equal images, for the user to settle one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dualtemp.encoder.complete_linkage import complete_groups
from dualtemp.encoder.near_duplicates import THRESHOLD, similar_pairs
from dualtemp.studio.background import Progress
from dualtemp.studio.space import Space

MOST_GROUPS = 500  # most groups on the page, the most similar ones
ROWS = 1_024  # rows of a group whose cosines with the whole group are computed at a time
DUPLICATE, DIFFERENT = "duplicate", "not a duplicate"  # the tags that settle a group


@dataclass(frozen=True)
class Groups:
    """The most similar groups as numbers of their members, the least cosine in each, and how many groups were found."""

    shown: list[tuple[list[int], float]]
    found: int


def find_groups(space: Space, progress: Progress, threshold: float = THRESHOLD) -> Groups:
    """Find groups in which any two images have at least this cosine; the most similar first."""
    index, _, _ = similar_pairs(torch.from_numpy(space.features), threshold, progress=progress)
    groups = complete_groups(index)
    return Groups([(members, _least_cosine(space, members)) for members in groups[:MOST_GROUPS]], len(groups))


def described(groups: Groups, tags: dict[int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The groups for the page: members, least cosine, and whether the group is settled."""
    found = []
    for members, least in groups.shown:
        open_ones = [i for i in members if not {DUPLICATE, DIFFERENT} & set(tags.get(i, ()))]
        found.append({"members": members, "size": len(members), "s": round(least, 4), "settled": len(open_ones) < 2})
    return found


def _least_cosine(space: Space, members: list[int]) -> float:
    z = space.features[np.array(members)]
    return float(min(1.0, *((z[start : start + ROWS] @ z.T).min() for start in range(0, len(z), ROWS))))
