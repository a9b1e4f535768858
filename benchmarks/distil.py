"""What a small student learns from a large teacher on one's own images, beside the same student on its own.

    python benchmarks/distil.py --data FOLDER                 measured on FOLDER/test
    python benchmarks/distil.py --data FOLDER --held-out      to choose settings: a quarter of FOLDER/train in its place

FOLDER has train/ and test/ with class folders. Three networks: the teacher as it is; the student that distils it; the
student by SimCo with as many passes, forward and backward. kNN accuracy is by the 20 nearest training images, "forward"
images a second of processor time through the network alone at the size that it wants, "seconds" the processor time of
training. `--set NAME=VALUE` changes a setting of the distilling run, `--only` leaves networks out. One thread.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

import dualtemp
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.evaluation.knn import knn_accuracy
from dualtemp.runs.work_file import WorkFile

NEIGHBORS = 20
ROWS = ("distilled", "teacher", "scratch")
QUIET: dict[str, Any] = {"device": "cpu", "threads": 1, "workers": 0, "quiet": True, "page": False}


def held_out_folder(source: Path, to: Path) -> Path:
    """Links to the training images alone: of each class a quarter, by a hash of the name, is the test part."""
    for file in sorted((source / "train").glob("*/*")):
        held = blake2b(file.name.encode(), digest_size=1).digest()[0] < 64
        place = to / ("test" if held else "train") / file.parent.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(file.resolve(), place)
    return to


def features_of(encoder: RunEncoder, images: ImageSet) -> torch.Tensor:
    return torch.cat([features for _, features in encoder.features(images, 64, workers=0)])


def taught_features(run: Path) -> torch.Tensor | None:
    """What the teacher made of the training images, as the run that distils it has kept it."""
    if not (run / "teacher.features").is_file():
        return None
    about = json.loads((run / "teacher.features").open("rb").readline())
    with closing(WorkFile(run / "teacher.features", about)) as work:
        return torch.cat([torch.from_numpy(record.features.copy()) for record in work.records()])


def accuracy(encoder: RunEncoder, data: Path, bank: torch.Tensor | None = None) -> float:
    splits = open_source(str(data))
    assert splits.test is not None
    labels = splits.train.labels, splits.test.labels
    assert labels[0] is not None
    assert labels[1] is not None
    bank, asked = features_of(encoder, splits.train) if bank is None else bank, features_of(encoder, splits.test)
    return 100 * knn_accuracy(bank, labels[0], asked, labels[1], k=NEIGHBORS).top1


def forward_rate(encoder: RunEncoder, seconds: float = 2.0) -> float:
    size, count = encoder.views.size, 16 if encoder.views.size > 128 else 256
    views = torch.randn(count, encoder.channels, size, size)
    best = float("inf")
    end = time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        began = time.process_time()
        encoder.of_views(views)
        best = min(best, time.process_time() - began)
    return count / best


def value(text: str) -> tuple[str, Any]:
    name, _, given = text.partition("=")
    return name, given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train/ and test/")
    parser.add_argument("--teacher", default="imagenet")
    parser.add_argument("--backbone", default="resnet_mini", help="of the student")
    parser.add_argument("--size", type=int, default=64, help="of the student's images, px")
    parser.add_argument("--epochs", type=int, default=100, help="of distilling; SimCo, with two passes, takes half")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--held-out", action="store_true", help="measure on training images that are left out")
    parser.add_argument("--only", nargs="*", default=ROWS, choices=ROWS)
    parser.add_argument("--set", action="append", type=value, default=[], metavar="NAME=VALUE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the runs stay")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = given.keep or Path(place)
        data = held_out_folder(given.data, Path(place) / "data") if given.held_out else given.data
        common = {
            **QUIET,
            "data": str(data),
            "backbone": given.backbone,
            "image_size": given.size,
            "init": "none",
            "evaluate_every": 10**6,
        }
        runs: dict[str, dict[str, Any]] = {
            "distilled": {"method": "distil", "teacher": given.teacher, "epochs": given.epochs, **dict(given.set)},
            "scratch": {"method": "simco", "epochs": max(1, given.epochs // 2)},
        }
        print(f"{'network':30}{'kNN':>8}{'forward':>12}{'seconds':>10}", flush=True)
        for row in given.only:
            for seed in range(1 if row == "teacher" else given.seeds):
                began, path = time.process_time(), Path(given.teacher)
                if row != "teacher":
                    path = folder / f"{row}-{seed}"
                    dualtemp.train(**common, **runs[row], seed=seed, out=path)
                spent, encoder = time.process_time() - began, run_encoder(path, "cpu")
                bank = taught_features(folder / "distilled-0") if row == "teacher" else None
                name = f"{row}, {encoder.views.size} px, seed {seed}"
                print(
                    f"{name:30}{accuracy(encoder, data, bank):7.1f}%{forward_rate(encoder):10,.0f}/s{spent:9.0f}s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
