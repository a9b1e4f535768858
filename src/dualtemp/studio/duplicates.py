"""Groups of almost equal images, to be settled one by one."""

from typing import Any

import numpy as np
import torch

from dualtemp.encoder.complete_linkage import complete_groups
from dualtemp.encoder.near_duplicates import THRESHOLD, similar_pairs
from dualtemp.studio.background import Progress
from dualtemp.studio.space import Space

MOST_GROUPS = 500  # on the page; the most similar
ROWS = 1_024  # of a group, whose cosines with all of it are computed at a time
DUPLICATE, DIFFERENT = "duplicate", "not a duplicate"  # the tags that settle a group


def find_groups(space: Space, progress: Progress, threshold: float = THRESHOLD) -> list[list[int]]:
    """Groups of images, by number, of which every two have at least this cosine; the most similar first."""
    index, _, _ = similar_pairs(torch.from_numpy(space.features), threshold, progress=progress)
    return complete_groups(index)


def described(groups: list[list[int]], space: Space, tags: dict[int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The groups for the page: all members, least cosine within, and whether each is settled.

    space: the one in which they were found.
    """
    found = []
    for members in groups[:MOST_GROUPS]:
        z = space.features[np.array(members)]
        least = float(min(1.0, *((z[start : start + ROWS] @ z.T).min() for start in range(0, len(z), ROWS))))
        open_ones = [i for i in members if not {DUPLICATE, DIFFERENT} & set(tags.get(i, ()))]
        found.append({"members": members, "size": len(members), "s": round(least, 4), "settled": len(open_ones) < 2})
    return found
