"""Two cells, compared within the seeds that both have. Pure; needs no torch."""

import math

from dualtemp.intervals import Interval, Pooled, paired_difference


def paired_differences(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    """Return a - b by common seed, without the digits that rounding of a and b has left in it.

    If every seed gains the same five images of a thousand, differences are equal, and there is no spread to test by.
    """
    found = {}
    for seed in (seed for seed in a if seed in b):
        largest = max(abs(a[seed]), abs(b[seed]))
        found[seed] = round(a[seed] - b[seed], 12 - math.ceil(math.log10(largest))) if largest else 0.0
    return found


def paired_interval(
    a: dict[int, float], b: dict[int, float], confidence: float, beside_seeds: Pooled | None = None
) -> Interval:
    """Return mean(a - b) over common seeds with its interval; there is none if all these differences are equal."""
    differences = paired_differences(a, b)
    return paired_difference(differences, dict.fromkeys(differences, 0.0), confidence, beside_seeds)
