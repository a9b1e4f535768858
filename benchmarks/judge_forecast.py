"""Fit the label-free judge to the points of benchmarks.judge_runs, leaving one set out at a time.

    python -m benchmarks.judge_forecast points.json --out src/dualtemp/evaluation/judge.json

For every candidate, alone and together: Spearman's rank correlation of its forecast with kNN on the set left out, and
the share of pairs of encoders, two points of kNN or more apart, that it puts in the right order. The last lines tell
what it would have done in training: how often it is sure enough to stop a run, and what is gained by keeping the epoch
with the highest forecast instead of the last one.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm, spearmanr

from dualtemp.evaluation.judge import MEASURES, TRANSFORMED
from dualtemp.runs.thresholds import SURE

RIDGE = 1.0
CANDIDATES: dict[str, tuple[str, ...]] = {
    "RankMe (effective rank)": ("effective_rank",),
    "LiDAR": ("lidar",),
    "alpha-ReQ": ("alpha_req",),
    "alignment": ("alignment",),
    "uniformity": ("uniformity",),
    "view retrieval": ("view_retrieval",),
    "neighbor agreement": ("neighbor_agreement",),
    "cluster learnability": ("cluster_learnability",),
    "intrinsic dimension": ("intrinsic_dimension",),
    "RankMe, LiDAR, alignment, uniformity": ("effective_rank", "lidar", "alignment", "uniformity"),
    "the judge: learnability, dimension": MEASURES,
}


def columns(points: list[dict[str, Any]], names: tuple[str, ...]) -> np.ndarray:
    values = [[np.log(p[name]) if name in TRANSFORMED else p[name] for name in names] for p in points]
    return np.array(values, dtype=np.float64)


def fit(x: np.ndarray, y: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Weights of the differences within sets; every set counts alike."""
    rows, target = [], []
    for each in np.unique(sets):
        k = sets == each
        rows.append((x[k] - x[k].mean(0)) / np.sqrt(k.sum()))
        target.append((y[k] - y[k].mean()) / np.sqrt(k.sum()))
    a, b = np.concatenate(rows), np.concatenate(target)
    scale = np.sqrt((a**2).sum(0) / len(np.unique(sets)))
    return np.linalg.solve((a / scale).T @ (a / scale) + RIDGE * np.eye(a.shape[1]), (a / scale).T @ b) / scale


def left_out(points: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """What a forecast is worth on a set that it was not fitted to."""
    x, knn = columns(points, names), np.array([p["knn_top1"] / 100 for p in points])
    y, sets = np.log(knn / (1 - knn)), np.array([p["data"] for p in points])
    found: dict[str, Any] = {"rho": {}, "pairs": {}, "residuals": [], "points": []}
    for each in np.unique(sets):
        k = sets == each
        w = fit(x[~k], y[~k], sets[~k])
        level = np.mean([(y[sets == o] - x[sets == o] @ w).mean() for o in np.unique(sets[~k])])
        ahead = x[k] @ w
        found["rho"][str(each)] = float(spearmanr(ahead, y[k])[0])  # pyright: ignore
        i, j = np.triu_indices(k.sum(), 1)
        apart = knn[k][i] - knn[k][j]
        clear = np.abs(apart) >= 0.02
        found["pairs"][str(each)] = float((np.sign(apart) == np.sign(ahead[i] - ahead[j]))[clear].mean())
        found["residuals"] += list((y[k] - y[k].mean()) - (ahead - ahead.mean()))
        found["points"] += list(100 * (1 / (1 + np.exp(-level - ahead)) - knn[k]))
    return found


def stopping(points: list[dict[str, Any]], deviation: float) -> dict[str, Any]:
    """What a judge that was fitted to the other sets would have done in every run of a set.

    stops: runs that it would have stopped, sure as `stop_by_judge` asks for; chosen, best: gain over the last epoch in
    points of kNN if the epoch with the highest forecast, or with the highest kNN, is kept; error: of the first.
    """
    x, knn = columns(points, MEASURES), np.array([p["knn_top1"] for p in points])
    sets, logits = np.array([p["data"] for p in points]), np.log(knn / (100 - knn))
    stops, chosen, best = 0, [], []
    for each in np.unique(sets):
        scores = x @ fit(x[sets != each], logits[sets != each], sets[sets != each])
        for name in sorted({p["setting"] for p in points}):
            epochs = [i for i, p in enumerate(points) if (p["data"], p["setting"]) == (each, name)]
            epochs.sort(key=lambda i: points[i]["epoch"])
            falls = (np.maximum.accumulate(scores[epochs]) - scores[epochs]) / (np.sqrt(2) * deviation)
            stops += bool((norm.cdf(falls) >= SURE).any())
            chosen.append(knn[max(epochs, key=lambda i: scores[i])] - knn[epochs[-1]])
            best.append(knn[epochs].max() - knn[epochs[-1]])
    error = np.std(chosen, ddof=1) / np.sqrt(len(chosen))
    return {"runs": len(chosen), "stops": stops, "chosen": np.mean(chosen), "error": error, "best": np.mean(best)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    points = json.loads(given.points.read_text())
    sets = sorted({p["data"] for p in points})
    print(f"{len(points)} encoders | {' | '.join(sets)} | mean rank correlation | pairs in the right order, %")
    for title, names in CANDIDATES.items():
        found = left_out(points, names)
        rho = [found["rho"][each] for each in sets]
        cells = " | ".join(f"{value:.2f}" for value in rho)
        print(f"{title} | {cells} | {np.mean(rho):.2f} | {100 * np.mean(list(found['pairs'].values())):.0f}")
    found = left_out(points, MEASURES)
    x, knn = columns(points, MEASURES), np.array([p["knn_top1"] / 100 for p in points])
    y, where = np.log(knn / (1 - knn)), np.array([p["data"] for p in points])
    w = fit(x, y, where)
    levels = np.array([(y[where == each] - x[where == each] @ w).mean() for each in sets])
    made = {
        "measures": list(MEASURES),
        "weights": w.tolist(),
        "level": float(levels.mean()),
        "level_sd": float(levels.std(ddof=1)),
        "residual_sd": float(np.std(found["residuals"])),
        "encoders": len(points),
        "sets": {each: {"rank_correlation": found["rho"][each], "pairs": found["pairs"][each]} for each in sets},
        "error_points": float(np.sqrt(np.mean(np.square(found["points"])))),
    }
    print(json.dumps(made, indent=1))
    seen = stopping(points, made["residual_sd"])
    gains = f"{seen['chosen']:+.2f} points of kNN (standard error {seen['error']:.2f}), by the best {seen['best']:+.2f}"
    print(f"it would have stopped {seen['stops']} of {seen['runs']} runs")
    print(f"by the epoch of the highest forecast in the place of the last {gains}")
    if given.out is not None:
        given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
