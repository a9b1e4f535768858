"""Whether a trained encoder beats the encoders it was compared with, beyond chance.

Both answered the same images, so the test counts the images that only one of them got right (McNemar). If encoders are
mostly right on the same images, a few such images make a clear difference, which the errors of two independent
accuracies would hide.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dualtemp.report.accuracies import POINT, standard_error
from dualtemp.runs.record import Beside

LEVEL = 0.05  # chance of a false difference, divided among the measures of a comparison (Bonferroni)
WIDTH = 1.96  # standard errors on either side: a 95 % interval

Word = Literal["beaten", "better", "mixed", "level", "open"]


class Standing(NamedTuple):
    """How the trained encoder compares with another one.

    word: "beaten" (the trained one is clearly above by some measure and clearly below by none), "better" (the other one
    is), "mixed" (each is by some measure), "level" (any gain is below a point), "open" (too few images to tell).
    """

    encoder: str
    word: Word
    measures: tuple[Beside, ...]


def standings(beside: Sequence[Beside]) -> list[Standing]:
    """Return one standing per encoder that the trained one was compared with, in order."""
    encoders = dict.fromkeys(one.encoder for one in beside)
    return [_standing(name, tuple(one for one in beside if one.encoder == name)) for name in encoders]


def clear_difference(one: Beside, measures: int = 1) -> int:
    """Return 1 if the trained encoder is clearly above the other, -1 if it is clearly below, else 0.

    measures: by how many measures the two are compared; the chance of a false difference covers all of them together.
    """
    if p_value(one) >= LEVEL / measures:
        return 0
    return 1 if one.trained > one.other else -1


def p_value(one: Beside) -> float:
    """Return how often chance alone makes a difference this large, either way, if both encoders are equally good."""
    if not one.images:  # unknown: take the figures at face value
        return 0.0 if one.trained != one.other else 1.0
    if len(one.pairs) == 1:
        return mcnemar(*one.pairs[0])
    error = _error(one)
    if error == 0:
        return 0.0 if one.trained != one.other else 1.0
    return math.erfc(abs(one.trained - one.other) / error / math.sqrt(2))


def mcnemar(ahead: int, behind: int) -> float:
    """Return the exact two-sided p-value of `ahead` images that only one got right, `behind` that only the other did.

    If both are equally good, each of these images falls either way like a coin.
    """
    total, fewer = ahead + behind, min(ahead, behind)
    log_all = math.lgamma(total + 1) - total * math.log(2)
    terms = (math.exp(log_all - math.lgamma(i + 1) - math.lgamma(total - i + 1)) for i in range(fewer + 1))
    return min(1.0, 2 * math.fsum(terms))


def gain_bounds(one: Beside) -> tuple[float, float]:
    """Return the 95 % interval of the trained encoder's gain, in points."""
    gain, error = one.trained - one.other, _error(one)
    return gain - WIDTH * error, gain + WIDTH * error


def _standing(encoder: str, measures: tuple[Beside, ...]) -> Standing:
    signs = {clear_difference(one, len(measures)) for one in measures}
    if {1, -1} <= signs:
        word: Word = "mixed"
    elif 1 in signs:
        word = "beaten"
    elif -1 in signs:
        word = "better"
    else:
        word = "level" if all(gain_bounds(one)[1] < POINT for one in measures) else "open"
    return Standing(encoder, word, measures)


def _error(one: Beside) -> float:
    """Return the standard error of the gain in points, from the images and, if labels were drawn, from the draws."""
    if not one.pairs:  # older files: as if the encoders had seen different images, which is never less
        return standard_error(one.images, (one.trained + one.other) / 2)
    N = one.images
    # The images' part is that of one draw; the mean of several draws is no less certain.
    variance = sum((b + c - (b - c) ** 2 / N) / N**2 for b, c in one.pairs) / len(one.pairs)
    if len(one.pairs) > 1:
        gains = [(b - c) / N for b, c in one.pairs]
        mean = sum(gains) / len(gains)
        variance += sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)
    return 100 * math.sqrt(max(variance, 0.0))
