"""Accuracies of a run, and how large a difference between two of them must be to mean something."""

import math
from collections.abc import Sequence

from dualtemp.runs.measure import Measure
from dualtemp.runs.metrics import accuracies
from dualtemp.runs.record import Facts, History, points

POINT = 1.0  # % of accuracy: the smallest difference that the paper's claims count
ERRORS = 2.0  # standard errors beyond which a difference is not due to chance
COARSE = 5.0  # points: if only larger changes can be detected, there are too few test images to judge a run


def accuracy_of(history: History) -> tuple[str, list[tuple[int, float]]]:
    """Return the name and the (epoch, value) pairs of the probe's accuracy, or of kNN's if there is no probe."""
    found = [(accuracy_name(each), values) for each in accuracies() if (values := points(history, each.key))]
    return found[0] if found else ("accuracy", [])


def accuracy_name(measure: Measure) -> str:
    """Name an accuracy in a sentence: "probe accuracy", "kNN accuracy"."""
    return f"{measure.column} accuracy"


def standard_error(images: int, accuracy: float) -> float:
    """Return the standard error, in points, of the difference of two accuracies near this one; 0 if `images` is 0."""
    share = min(max(accuracy / 100, 0.0), 1.0)
    return 100 * math.sqrt(2 * share * (1 - share) / images) if images > 0 else 0.0


def detectable_difference(facts: Facts, accuracy: float) -> float:
    """Return by how many points two accuracies near this one must differ: one, or two standard errors if larger."""
    return max(POINT, ERRORS * standard_error(facts.test_images, accuracy))


def has_too_few_images(facts: Facts, accuracy: float) -> bool:
    """Whether there are too few test images to judge a run at this accuracy."""
    return facts.test_images > 0 and detectable_difference(facts, accuracy) > COARSE


def guessing_limit(facts: Facts) -> float | None:
    """Return the highest accuracy, in %, that guessing could reach by chance; None if classes or images are unknown."""
    if facts.chance is None or not facts.test_images:
        return None
    share = facts.chance
    return 100 * (share + ERRORS * math.sqrt(share * (1 - share) / facts.test_images))


def fifths(found: Sequence[tuple[int, float]]) -> tuple[float, float, str]:
    """Return the means of the second-to-last and of the last fifth of at least two values, and a phrase for them."""
    values = [value for _, value in found]
    size = min(math.ceil(len(values) / 5), len(values) // 2)
    words = "in the last evaluation" if size == 1 else f"(mean of the last {size} evaluations vs. the {size} before)"
    return sum(values[-2 * size : -size]) / size, sum(values[-size:]) / size, words
