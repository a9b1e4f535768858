"""The images as one encoder sees them: unit features, and their positions on the map."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

SAMPLE = 20_000  # images from which the principal components are computed; all are projected
BLOCK = 16_384  # rows that are converted at a time


@dataclass(eq=False)
class Space:
    """Features of all images by one encoder.

    title: the encoder's display name; encoder: the word or run folder that `run_encoder` opens, None if unknown;
    features: float32 (N, F), unit length; fingerprint: of the weights that made them, "" if unknown; places: float32
    (N, 2), within [-1, 1], by the name of a layout; notes: a line about each layout. Both dicts are replaced, never
    changed, since other threads may be iterating over them.
    """

    title: str
    encoder: Path | None
    features: np.ndarray
    fingerprint: str = ""
    places: dict[str, np.ndarray] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation (F,) of the features of a sample; the deviation of a constant feature is infinite."""
        sample = self.features[:: max(1, -(-len(self.features) // BLOCK))]
        deviation = sample.std(0)
        return sample.mean(0), np.where(deviation > 1e-6, deviation, np.inf).astype(np.float32)

    def add_layout(self, name: str, places: np.ndarray, note: str) -> None:
        """Add a layout, or replace it."""
        self.notes = {**self.notes, name: note}  # first, so that a visible layout always has its note
        self.places = {**self.places, name: places}

    def nearest(self, query: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (k,) and cosines (k,) of the images nearest to a vector (F,), nearest first."""
        length = float(np.linalg.norm(query))
        cosines = self.features @ (query / length if length > 0 else query).astype(np.float32)
        most = min(most, len(cosines))
        found = np.argpartition(-cosines, most - 1)[:most] if most < len(cosines) else np.arange(len(cosines))
        found = found[np.lexsort((found, -cosines[found]))]
        return found, np.clip(cosines[found], -1, 1)


def make_space(title: str, encoder: Path | None, features: np.ndarray, fingerprint: str = "") -> Space:
    """Normalize features (N, F), in place if they are float32, and lay them out by principal components."""
    features = np.ascontiguousarray(features, np.float32)
    for start in range(0, len(features), BLOCK):
        block = features[start : start + BLOCK]
        block /= np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-12)
    places, explained = principal_places(features)
    shares = " and ".join(f"{100 * share:.0f} %" for share in explained)
    note = f"Two directions of the largest spread: {shares} of it."
    return Space(title, encoder, features, fingerprint, {"components": fitted(places)}, {"components": note})


def principal_places(features: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Project unit features (N, F) onto their first two principal components; needs no torch.

    Components are computed from at most SAMPLE evenly spaced rows. A component's largest coefficient is positive.
    Returns places float32 (N, 2) and the share of the variance that each component explains.
    """
    sample = features[:: max(1, -(-len(features) // SAMPLE))].astype(np.float64)
    mean = sample.mean(0)
    centered = sample - mean
    values, vectors = np.linalg.eigh(centered.T @ centered)
    directions = vectors[:, ::-1][:, :2]  # (F, 2)
    largest = directions[np.abs(directions).argmax(0), range(directions.shape[1])]
    directions = directions * np.where(largest < 0, -1.0, 1.0)
    places = np.zeros((len(features), 2), np.float32)
    shift = mean @ directions
    for start in range(0, len(features), BLOCK):
        block = features[start : start + BLOCK].astype(np.float64)
        places[start : start + BLOCK, : directions.shape[1]] = block @ directions - shift
    total = float(values.clip(0).sum())
    shares = [float(value) / total if total > 1e-18 else 0.0 for value in values[::-1][:2]]
    return places, (shares[0], shares[1] if len(shares) > 1 else 0.0)


def fitted(places: np.ndarray) -> np.ndarray:
    """Shift and scale places (N, 2) so that nearly all lie within [-1, 1]; one scale for both directions."""
    low, high = np.quantile(places, [0.001, 0.999], axis=0)
    half = float((high - low).max()) / 2
    return ((places - (low + high) / 2) / (half if half > 0 else 1.0)).astype(np.float32)


def aligned(places: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Rotate and mirror places (N, 2) to lie as near as possible to `to`, so that a morph moves points little.

    This is orthogonal Procrustes; distances within `places` do not change.
    """
    one, other = places - places.mean(0), to - to.mean(0)
    u, _, v = np.linalg.svd(one.T.astype(np.float64) @ other)
    return (one @ (u @ v)).astype(np.float32)
