"""How good predictions are: planted wrong labels, classes left out, calibration; on features of `dualtemp embed`.

    dualtemp embed imagenet --data FOLDER --out features.npz
    python -m benchmarks.predict features.npz

FOLDER has train/ and test/ with class folders. Everything is averaged over three seeds, or over the classes.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dualtemp.evaluation.calibration import expected_calibration_error
from dualtemp.evaluation.classifier import fit_classifier
from dualtemp.evaluation.clusters import find_clusters
from dualtemp.evaluation.wrong_labels import neighbor_votes, suspected_wrong_labels

SEEDS = 3


def planted(y: Tensor, share: float, classes: int, seed: int) -> tuple[Tensor, np.ndarray]:
    """Labels of which a share was moved to another class, each equally likely; and which ones, bool (N,)."""
    g = np.random.default_rng(seed)
    wrong = g.choice(len(y), round(share * len(y)), replace=False)
    given = y.clone()
    given[wrong] = (y[wrong] + torch.from_numpy(g.integers(1, classes, len(wrong)))) % classes
    return given, (given != y).numpy()


def average_precision(score: np.ndarray, bad: np.ndarray) -> float:
    hit = bad[np.argsort(-score, kind="stable")]
    return float((hit.cumsum() / np.arange(1, len(hit) + 1))[hit].mean())


def wrong_labels(x: Tensor, y: Tensor, classes: int) -> None:
    print("planted | suspected | of these wrong, % | found, % | wrong among the first k, % | AP both | AP neighbors")
    for share in (0.05, 0.1):
        rows = []
        for seed in range(SEEDS):
            given, bad = planted(y, share, classes, seed)
            found, k = suspected_wrong_labels(x, given), int(bad.sum())
            order = found.order.numpy()
            near = 1 - neighbor_votes(x, given, classes).gather(1, given[:, None])[:, 0].numpy()
            rows.append(
                (
                    len(order),
                    100 * bad[order].mean(),
                    100 * bad[order].sum() / k,
                    100 * bad[order[:k]].sum() / k,
                    average_precision(found.score.numpy(), bad),
                    average_precision(near, bad),
                )
            )
        a = np.mean(rows, 0)
        print(f"{share:.0%} of {len(y)} | {a[0]:.0f} | {a[1]:.1f} | {a[2]:.1f} | {a[3]:.1f} | {a[4]:.3f} | {a[5]:.3f}")
    found = suspected_wrong_labels(x, y)
    print(f"none planted | {len(found.order)} suspected of {len(y)}")


def left_out(x: Tensor, y: Tensor, train: Tensor, classes: int) -> None:
    print("class left out, rate 5 % | strangers called none of these, % | known test images, %")
    rows = []
    for c in range(classes):
        known = train & (y != c)
        number = torch.cat([torch.arange(c), torch.zeros(1).long(), torch.arange(c, classes - 1)])
        made = fit_classifier(x[known], number[y[known]])
        tested = ~train & (y != c)
        rows.append([100 * float((made.predict(x[part]).label < 0).double().mean()) for part in (y == c, tested)])
        print(f"{c} | {rows[-1][0]:.1f} | {rows[-1][1]:.1f}", flush=True)
    print(f"mean | {np.mean(rows, 0)[0]:.1f} | {np.mean(rows, 0)[1]:.1f}; worst class {np.min(rows, 0)[0]:.1f}")


def calibration(x: Tensor, y: Tensor, train: Tensor) -> None:
    made = fit_classifier(x[train], y[train])
    p, truth = made.predict(x[~train]), y[~train]
    before = expected_calibration_error(made.logits(x[~train]).softmax(1), truth)
    after = expected_calibration_error(p.probabilities, truth)
    right = 100 * float((p.best == truth).double().mean())
    print(
        f"test images {len(truth)} | right {right:.1f} % | ECE before {100 * before:.2f} %, after {100 * after:.2f} %"
    )
    print(f"temperature {made.temperature:.3f}; cross-fitted ECE {100 * made.facts['ece']:.2f} %")


def clusters(x: Tensor, y: Tensor) -> None:
    found = find_clusters(x)
    pure = sum(int(y[found.labels == c].bincount().max()) for c in range(len(found.sizes))) / len(y)
    print(f"clusters chosen: {len(found.sizes)}; images of the commonest class of their cluster: {100 * pure:.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, metavar="FILE.npz")
    file = np.load(parser.parse_args().features)
    x, y = torch.from_numpy(file["features"]), torch.from_numpy(file["labels"])
    train, classes = torch.from_numpy(file["parts"] == "train"), len(file["classes"])
    calibration(x, y, train)
    wrong_labels(x, y, classes)
    clusters(x, y)
    if classes > 2:
        left_out(x, y, train, classes)


if __name__ == "__main__":
    main()
