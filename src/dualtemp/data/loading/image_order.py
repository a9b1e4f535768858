"""The words that name an order of the images in an epoch. Needs no torch."""

import re

UNIFORM = "uniform"
AT_ONCE = 16  # shards, unless `shards:N` says so
VALUES = "uniform, shards, or shards:N for N at a time"


def shards_at_once(order: str) -> int | None:
    """How many shards an order takes at a time; None for the whole shuffle. ValueError for any other word."""
    if order == UNIFORM:
        return None
    found = re.fullmatch(r"shards(?::([1-9][0-9]{0,8}))?", order)
    if found is None:
        raise ValueError(f"order must be {VALUES}, got {order!r}")
    return int(found[1] or AT_ONCE)
