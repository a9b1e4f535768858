"""Features that tests draw: directions around those of some classes."""

import numpy as np


def blobs(
    classes: int, each: int, width: int = 16, spread: float = 0.3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Directions around `classes` random ones, and which one each row belongs to."""
    g = np.random.default_rng(seed)
    centers = g.normal(size=(classes, width))
    labels = np.repeat(np.arange(classes), each)
    return (centers[labels] + spread * g.normal(size=(len(labels), width))).astype(np.float32), labels
