"""`dualtemp demo`: train a small encoder in minutes on two cores, and print a table of what it has learned."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import check_at_least
from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

# The paper's loss; the other settings get furthest in minutes, on held-out training images (docs/benchmarks.md).
FAST: dict[str, Any] = {
    "method": "simco",
    "backbone": "resnet_mini",
    "recipe": "paper_large_crops",
    "projector_batch_norm": True,
    "batch": 128,
    "whiten_stem": True,
    "optimizer": "muon",
    "lr": 0.048,
    "weight_decay": 0.05,
    "warmup_epochs": 0.3,
    "knn": "auto",
    "knn_images": 50_000,
    "evaluate_every": 3,
}
EPOCHS = 6
# A small set of 8 px images: the paper's recipe, with a learning rate that does not need a hundred epochs.
DIGITS: dict[str, Any] = {
    "method": "simco",
    "backbone": "resnet_mini",
    "batch": 64,
    "lr": 0.24,
    "warmup_epochs": 1,
    "evaluate_every": 5,
}
DIGIT_EPOCHS = 40
START, START_IMAGES = "imagenet", 1_000  # images to search, and as many queries: half a minute on two cores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="default: runs/demo")
    parser.add_argument("--data", help="a labeled set (default: cifar10, or digits without a network)")
    parser.add_argument("--epochs", type=int, default=None, metavar="N", help="passes over the images")


def run(given: dict[str, Any]) -> int:
    """Train, or resume a demo that was interrupted, and print what was learned."""
    from rich.console import Console

    from dualtemp import api
    from dualtemp.quantities import duration
    from dualtemp.runs.folder import RunFolder

    check_at_least(given, epochs=1)
    out, epochs = given["out"], given["epochs"]
    began, console = time.monotonic(), Console(highlight=False, soft_wrap=True)
    begun = (out / "config.yaml").exists()
    if begun and given["data"] is not None:
        _refuse_other_data(out, given["data"])
    metrics = api.resume(out, epochs) if begun else _train(console, out, given["data"] or "cifar10", epochs)
    _print_accuracies(console, out, metrics)
    chosen = RunFolder.open(out).settings()
    console.print(
        f"\n{duration(time.monotonic() - began)}. Look at {out}/report.html in a browser; the encoder is "
        f"{out}/backbone.safetensors.\nNext:\n  dualtemp resume {out} --epochs {2 * chosen.epochs}\n"
        f"  dualtemp train --config {out}/config.yaml --tau-beta 0.1 --out runs/one-temperature\n"
        "  dualtemp train --data FOLDER --out runs/mine\n  dualtemp train --help\n"
        f"Look at its images on a map, label and train on from there:\n  dualtemp studio {out}",
        markup=False,
    )
    return 0


def _refuse_other_data(out: Path, data: str) -> None:
    from dualtemp.data.sources.opening import absolute_source
    from dualtemp.runs.folder import RunFolder

    there = RunFolder.open(out).settings().data
    if absolute_source(data) != there:
        raise UserError(f"{out} is a run on {there}, not on {data}: give another --out, or leave --data out")


def _train(console: "Console", out: Path, data: str, epochs: int | None) -> dict[str, Any]:
    from dualtemp import api
    from dualtemp.data import open_source
    from dualtemp.runs.folder import RunFolder

    RunFolder.refuse_existing(out)
    try:
        splits = open_source(data)
    except UserError as error:
        if data != "cifar10":
            raise
        console.print(f"CIFAR-10 is not available ({error}); using the built-in digits.", markup=False)
        data, splits = "digits", open_source("digits")
    settings, usual = (DIGITS, DIGIT_EPOCHS) if data == "digits" else (FAST, EPOCHS)
    epochs = epochs or usual
    images = f"{len(splits.train):,} images of {data}"
    console.print(f"SimCo (tau_alpha 0.1, tau_beta 1) on {images}, {epochs} epochs.", markup=False)
    return api.train(out=out, data=data, epochs=epochs, **settings)


def _print_accuracies(console: "Console", run: Path, metrics: dict[str, Any]) -> None:
    """Print how well raw pixels, a color histogram, the untrained and the trained encoder separate the classes."""
    from rich.table import Table

    from dualtemp.evaluation.evaluate import evaluate
    from dualtemp.runs.evaluated_measures import BASELINES

    if "probe_top1" not in metrics:
        console.print("\nThe set has no labels to measure with.")
        return
    rows = evaluate(run, only="knn", quiet=True)["measured"]
    images = rows[0]["images"]
    table = Table("", "right, %", title=f"\n{images:,} test images, never trained on", title_justify="left")
    titles = {"colour histogram": "a color histogram"} | {
        name: f"the {name} encoder" for name in ("untrained", "trained")
    }
    for name in (*BASELINES, "trained"):
        (top1,) = (row["top1"] for row in rows if row["encoder"] == name)
        table.add_row(f"kNN of {titles.get(name, name)}", f"{top1:.1f}", style="bold" if name == "trained" else None)
    table.add_row("linear probe of the trained encoder", f"{metrics['probe_top1']:.1f}", style="bold")
    console.print(table)
    _print_start(console, run)


def _print_start(console: "Console", run: Path) -> None:
    """Print what a pretrained network reaches, without training, on some of the same images, enlarged."""
    from dualtemp.data import open_source
    from dualtemp.encoder.encoder import run_encoder
    from dualtemp.evaluation.frozen_sample import sample_knn
    from dualtemp.runs.folder import RunFolder

    data = RunFolder.open(run).settings().data
    if data == "digits":  # images of 8 px are too small to enlarge
        return
    try:
        encoder = run_encoder(Path(START))
        began, splits = time.monotonic(), open_source(data)
        top1 = sample_knn(encoder, splits, START_IMAGES)
    except UserError as error:
        console.print(f"\nNo pretrained network to compare with: {error}", markup=False)
        return
    console.print(
        f"\n{top1:.1f} % by kNN of a network pretrained on ImageNet's labels, frozen ({encoder.settings.backbone}), on "
        f"{START_IMAGES:,} of these images, enlarged to {encoder.views.size} px, among {START_IMAGES:,} "
        f"({time.monotonic() - began:.0f} s).\nOn photographs of your own, start there: --init {START}.",
        markup=False,
    )


COMMAND = Command(
    name="demo",
    about="Train SimCo on CIFAR-10 in minutes, and see what it has learned.",
    place=(Group.START, 1),
    add_arguments=add_arguments,
    run=run,
)
