"""Names of orders of the images in an epoch. Needs no torch."""

import re

UNIFORM = "uniform"
AT_ONCE = 16  # shards, unless `shards:N` says so
VALUES = "uniform, shards, or shards:N for N at a time"


def shards_at_once(order: str) -> int | None:
    """The number of shards that an order takes at a time; None for a full shuffle. ValueError for an unknown order."""
    if order == UNIFORM:
        return None
    found = re.fullmatch(r"shards(?::([1-9][0-9]{0,8}))?", order)
    if found is None:
        raise ValueError(f"order must be {VALUES}, got {order!r}")
    return int(found[1] or AT_ONCE)
