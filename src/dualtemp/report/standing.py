"""Whether a trained encoder beats what it was compared with, beyond what so many test images can show by chance.

Both answered the same images, so what counts are the images that one alone got right (McNemar's test): encoders that
are mostly right on the same images differ clearly by a few, which errors of two independent accuracies would hide.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dualtemp.report.accuracies import POINT, error_of
from dualtemp.runs.record import Beside

LEVEL = 0.05  # chance of a false difference, shared by the measures of one comparison (Bonferroni)
WIDTH = 1.96  # standard errors on either side: a 95 % interval

Word = Literal["beaten", "better", "mixed", "level", "open"]


class Standing(NamedTuple):
    """How the trained encoder stands beside another one.

    word: "beaten" (clearly above by a measure, clearly below by none), "better" (the other is, likewise), "mixed" (each
    by some measure), "level" (whatever is gained is less than a point), "open" (too few images to tell).
    """

    encoder: str
    word: Word
    measures: tuple[Beside, ...]


def standings(beside: Sequence[Beside]) -> list[Standing]:
    """One for each encoder that the trained one was compared with, in their order."""
    encoders = dict.fromkeys(one.encoder for one in beside)
    return [_standing(name, tuple(one for one in beside if one.encoder == name)) for name in encoders]


def clear_difference(one: Beside, measures: int = 1) -> int:
    """1 if the trained encoder is clearly above the other, -1 if it is clearly below, 0 if that cannot be told.

    measures: by so many the two are compared, and the chance of a false difference is that of all of them together.
    """
    if chance_of(one) >= LEVEL / measures:
        return 0
    return 1 if one.trained > one.other else -1


def chance_of(one: Beside) -> float:
    """How often chance alone makes a difference as large, either way, if both encoders are equally good."""
    if not one.images:  # unknown: figures as they stand
        return 0.0 if one.trained != one.other else 1.0
    if len(one.pairs) == 1:
        return mcnemar(*one.pairs[0])
    error = _error(one)
    if error == 0:
        return 0.0 if one.trained != one.other else 1.0
    return math.erfc(abs(one.trained - one.other) / error / math.sqrt(2))


def mcnemar(ahead: int, behind: int) -> float:
    """Exact two-sided p-value of so many images that one alone got right, and so many that the other alone did.

    Under equality each of them falls either way like a coin.
    """
    total, fewer = ahead + behind, min(ahead, behind)
    log_all = math.lgamma(total + 1) - total * math.log(2)
    terms = (math.exp(log_all - math.lgamma(i + 1) - math.lgamma(total - i + 1)) for i in range(fewer + 1))
    return min(1.0, 2 * math.fsum(terms))


def gain_bounds(one: Beside) -> tuple[float, float]:
    """A 95 % interval of what the trained encoder gains, in points."""
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
    """Standard error of the gain, in points: of the images and, where labels were drawn, of the draws."""
    if not one.pairs:  # of an older file: as if the encoders had been asked about different images, which is never less
        return error_of(one.images, (one.trained + one.other) / 2)
    N = one.images
    # The images' part is that of one draw: the mean of several is no less sure.
    variance = sum((b + c - (b - c) ** 2 / N) / N**2 for b, c in one.pairs) / len(one.pairs)
    if len(one.pairs) > 1:
        gains = [(b - c) / N for b, c in one.pairs]
        mean = sum(gains) / len(gains)
        variance += sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)
    return 100 * math.sqrt(max(variance, 0.0))
