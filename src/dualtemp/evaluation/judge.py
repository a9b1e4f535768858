"""The label-free judge: forecasts kNN accuracy from the geometry of features. Needs no torch.

logit(kNN) = level of the data + weights . (cluster learnability, log intrinsic dimension) + noise. The level depends on
the classes, which are unknown without labels: a single forecast is vague, but the difference between two encoders on
the same images is less so. judge.json beside this file was made by `python -m benchmarks.judge_forecast`.
"""

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from dualtemp.atomic_write import whole_file
from dualtemp.file_lock import Busy, locked

MEASURES = ("cluster_learnability", "intrinsic_dimension")
TRANSFORMED = {"effective_rank", "lidar", "intrinsic_dimension"}  # measures that enter by their logarithm
JUDGE_FILE = "judge.json"  # in a run's folder
FEWEST = 32  # images; fewer say nothing about an encoder
IMAGES = 256  # measured, as for the calibration


class Forecast(NamedTuple):
    """A forecast of kNN accuracy in %: knn, with low and high one standard deviation away; score: in logits."""

    knn: float
    low: float
    high: float
    score: float


@cache
def calibration() -> dict[str, Any]:
    """The content of judge.json: weights, level, deviations, and how well the judge did on each set left out."""
    return json.loads(files("dualtemp.evaluation").joinpath("judge.json").read_text(encoding="utf-8"))


def forecast(measures: Mapping[str, float]) -> Forecast:
    """Forecast kNN from the MEASURES of 256 images."""
    made = calibration()
    values = [math.log(measures[name]) if name in TRANSFORMED else measures[name] for name in made["measures"]]
    score = made["level"] + sum(w * value for w, value in zip(made["weights"], values, strict=True))
    error = math.hypot(made["level_sd"], made["residual_sd"])
    return Forecast(_percent(score), _percent(score - error), _percent(score + error), score)


def chance_better(one: Forecast, other: Forecast) -> float:
    """Probability that the first encoder has the higher kNN accuracy on the same images; .5 for equal forecasts."""
    return 0.5 * (1 + math.erf((one.score - other.score) / (2 * calibration()["residual_sd"])))


def _percent(logit: float) -> float:
    return 100 / (1 + math.exp(-logit))


def read_judged(run: Path) -> dict[int, dict[str, Any]]:
    """Read RUN/judge.json: what `dualtemp judge` found, by step; empty if it is missing or damaged."""
    try:
        found = json.loads((run / JUDGE_FILE).read_text())
        entries = {int(step): dict(entry) for step, entry in found.items()}
        for entry in entries.values():
            forecast(entry["measures"])
        return entries
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def keep_judged(run: Path, step: int, measures: Mapping[str, float]) -> dict[int, dict[str, Any]]:
    """Add the measures of a step to RUN/judge.json; returns all steps. If RUN is not writable, nothing is kept."""
    now = forecast(measures)
    entry = {"measures": dict(measures), "knn": now.knn, "low": now.low, "high": now.high}
    try:
        with locked(run / f".{JUDGE_FILE}.lock", remove=True):  # so that steps of another process are not lost
            found = {**read_judged(run), step: entry}
            with whole_file(run / JUDGE_FILE) as file:
                file.write((json.dumps({str(each): found[each] for each in sorted(found)}, indent=1) + "\n").encode())
    except (OSError, Busy):
        return {**read_judged(run), step: entry}
    return found


def best_before(judged: Mapping[int, Mapping[str, Any]], step: int) -> tuple[int, float]:
    """The step, up to this one, with the highest forecast, and the chance that its encoder was better than now."""
    known = {each: forecast(entry["measures"]) for each, entry in judged.items() if each <= step}
    best = max(known, key=lambda each: (known[each].score, each))
    return best, chance_better(known[best], known[step])
