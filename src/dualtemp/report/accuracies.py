"""Accuracies of a run, and what a difference between two of them is worth."""

import math
from collections.abc import Sequence

from dualtemp.runs.record import Facts, History, points

POINT = 1.0  # % of accuracy: what the paper's claims call a difference
ERRORS = 2.0  # standard errors beyond which a difference is none of chance
COARSE = 5.0  # points: where changes below this are lost in the error, test images are too few to tell how a run does
ACCURACIES = {"probe_top1": "probe", "knn_top1": "kNN accuracy"}


def accuracy_of(history: History) -> tuple[str, list[tuple[int, float]]]:
    """The probe's accuracies, or those of kNN if there are none."""
    found = [(name, values) for key, name in ACCURACIES.items() if (values := points(history, key))]
    return found[0] if found else ("accuracy", [])


def error(facts: Facts, accuracy: float) -> float:
    """Standard error, in points, of the difference of two accuracies about this one; 0 if the images are unknown."""
    return error_of(facts.test_images, accuracy)


def error_of(images: int, accuracy: float) -> float:
    """The same for so many test images."""
    share = min(max(accuracy / 100, 0.0), 1.0)
    return 100 * math.sqrt(2 * share * (1 - share) / images) if images > 0 else 0.0


def seen(facts: Facts, accuracy: float) -> float:
    """Points by which two accuracies about this one must differ to be told apart: one, or two standard errors."""
    return max(POINT, ERRORS * error(facts, accuracy))


def too_few(facts: Facts, accuracy: float) -> bool:
    """Whether so few test images hide what a run does about this accuracy."""
    return facts.test_images > 0 and seen(facts, accuracy) > COARSE


def guessed(facts: Facts) -> float | None:
    """The highest accuracy, in %, that guessing is given; None if classes or images are unknown."""
    if facts.chance is None or not facts.test_images:
        return None
    share = facts.chance
    return 100 * (share + ERRORS * math.sqrt(share * (1 - share) / facts.test_images))


def fifths(found: Sequence[tuple[int, float]]) -> tuple[float, float, str]:
    """Mean of the fifth before the last fifth of two values or more, that of the last fifth, and these in words."""
    values = [value for _, value in found]
    size = min(math.ceil(len(values) / 5), len(values) // 2)
    words = "with the last evaluation" if size == 1 else f"(mean of the last {size} evaluations, and of {size} before)"
    return sum(values[-2 * size : -size]) / size, sum(values[-size:]) / size, words
