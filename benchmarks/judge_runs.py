"""Short runs on several sets, measured with and without labels: what the label-free judge is calibrated on.

    python -m benchmarks.judge_runs --work FOLDER digits cifar10 NAME=SOURCE ...

Every source is reduced to at most 600 training and 400 test images of at most 24 px, and every setting of SETTINGS
is trained on it for six epochs. After epochs 2, 4 and 6 the encoder is measured: kNN with the labels, and
everything that needs none. FOLDER/points.json gets a line a measurement; runs that are there already are not repeated.
`python -m benchmarks.judge_forecast FOLDER/points.json` fits the judge.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import dualtemp
from dualtemp.data import Loader, open_source
from dualtemp.data.images import ImageSet
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.label_free import (
    cluster_learnability,
    eigenspectrum_decay,
    intrinsic_dimension,
    lidar,
    neighbor_agreement,
    view_retrieval,
)

TRAIN, TEST, SIDE, EPOCHS, EVERY = 600, 400, 24, 6, (2, 4, 6)
VIEWED, VIEWS = 256, 4  # images, and views of each
SHARED = {"backbone": "resnet_mini", "epochs": EPOCHS, "batch": 64, "evaluate_every": 2, "knn": "auto", "init": "none"}
SETTINGS: dict[str, dict[str, Any]] = {
    "simco": {"method": "simco"},
    "simco-slow": {"method": "simco", "lr": 0.003},
    "simco-weak": {"method": "simco", "recipe": "weak"},
    "byol": {"method": "byol"},
}


def reduced(source: str, folder: Path) -> Path:
    """Write a source as train.npz and test.npz of few small images; returns the folder."""
    if folder.is_dir():
        return folder
    splits, part = open_source(source), folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    assert splits.test is not None
    for name, images, most in (("train", splits.train, TRAIN), ("test", splits.test, TEST)):
        few = images.subset(min(most, len(images)))
        side = min(SIDE, max(few.size or (SIDE, SIDE)))
        pixels = np.stack(
            [np.asarray(_square(few.source.picture(i, side), side, few.channels)) for i in range(len(few))]
        )
        assert few.labels is not None
        np.savez(part / f"{name}.npz", images=pixels, labels=few.labels.numpy(), classes=np.array(few.classes))
    part.rename(folder)
    return folder


def _square(picture: Image.Image, side: int, channels: int) -> Image.Image:
    short = min(picture.size)
    left, top = (picture.width - short) // 2, (picture.height - short) // 2
    cropped = picture.crop((left, top, left + short, top + short)).convert("L" if channels == 1 else "RGB")
    return cropped if short == side else cropped.resize((side, side), Image.Resampling.BICUBIC)


def label_free(encoder: RunEncoder, images: ImageSet) -> dict[str, float]:
    """Everything that is measured without labels, but what the run has measured itself."""
    few = images.subset(min(VIEWED, len(images)))
    clean = torch.cat([found for _, found in encoder.features(few)])
    drawn = []
    with Loader(few, encoder.views, len(few), device=encoder.device, workers=0) as loader:
        for epoch in range(VIEWS // 2):
            for batch in loader.batches(epoch):
                order = batch.index.argsort()
                drawn += [encoder.of_views(view)[order] for view in batch.views]
    views = torch.stack(drawn, 1)  # (N, Q, F)
    return {
        "lidar": lidar(views),
        "alpha_req": eigenspectrum_decay(clean),
        "view_retrieval": float(np.mean([view_retrieval(views[:, i], views[:, i + 1]) for i in (0, 2)])),
        "neighbor_agreement": neighbor_agreement(clean, views[:, 0]),
        "cluster_learnability": cluster_learnability(clean),
        "intrinsic_dimension": intrinsic_dimension(clean),
    }


class Measuring:
    """An observer that measures the encoder after some epochs."""

    def __init__(self, out: Path, images: ImageSet) -> None:
        self.out, self.images, self.points = out, images, list[dict[str, Any]]()

    def begin(self, path: Path, settings: Any) -> None: ...
    def step(self, *_: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...

    def epoch(self, metrics: dict[str, Any]) -> None:
        if metrics["epoch"] in EVERY:
            encoder = run_encoder(self.out, "cpu")
            keys = ("epoch", "loss", "knn_top1", "alignment", "uniformity", "spread", "effective_rank")
            self.points.append({key: metrics[key] for key in keys} | label_free(encoder, self.images))


def measured(name: str, data: Path, setting: str, work: Path) -> list[dict[str, Any]]:
    """The points of one run."""
    kept = work / f"{name}-{setting}.json"
    if not kept.is_file():
        splits, out = open_source(data), work / "run"
        shutil.rmtree(out, ignore_errors=True)
        assert splits.test is not None
        watch = Measuring(out, splits.test)
        try:
            dualtemp.train(
                data=str(data),
                out=out,
                observer=watch,
                page=False,
                quiet=True,
                workers=0,
                threads=1,
                **SHARED,
                **SETTINGS[setting],
            )
        except UserError as error:  # a loss that is not finite
            print(f"{name} {setting}: {error}", flush=True)
        about = {"data": name, "setting": setting, "images": len(splits.train), "classes": len(splits.train.classes)}
        kept.write_text(json.dumps([about | point for point in watch.points]))
        shutil.rmtree(out, ignore_errors=True)
    return json.loads(kept.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="NAME[=SOURCE]")
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    torch.set_num_threads(1)
    points = []
    sets = {word.partition("=")[0]: word.partition("=")[2] or word for word in given.sources}
    folders = {name: reduced(source, given.work / name) for name, source in sets.items()}
    for setting in SETTINGS:
        for name, folder in folders.items():
            found = measured(name, folder, setting, given.work)
            points += found
            print(name, setting, *(f"{each['knn_top1']:.1f}" for each in found), flush=True)
    (given.work / "points.json").write_text("[" + ",\n".join(map(json.dumps, points)) + "]\n")


if __name__ == "__main__":
    main()
