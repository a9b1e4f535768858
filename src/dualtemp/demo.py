"""The demo: a small run from nothing to a table, in minutes on two cores."""

import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from dualtemp.config import complete, settings
from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.evaluation.knn import knn_accuracy
from dualtemp.methods import build_method
from dualtemp.training.display import duration
from dualtemp.training.online import clean_features, few
from dualtemp.training.run import How, image_size, opened, start, training_data
from dualtemp.training.run_folder import RunFolder

# The paper's SimCo at a small scale. At the paper's rate a batch of 64 would take a hundred epochs.
SMALL = {"method": "simco", "backbone": "resnet_mini", "batch": 64, "lr": 0.12, "warmup_epochs": 1, "evaluate_every": 5}
IMAGES, EPOCHS, DIGIT_EPOCHS = 10_000, 20, 40


def demo(out: Path, data: str = "cifar10", epochs: int | None = None) -> None:
    """Train, and print what raw pixels, an untrained and the trained encoder know of the classes."""
    RunFolder.refuse_existing(out)
    began, console = time.monotonic(), Console(highlight=False)
    try:
        splits = open_source(data)
    except UserError as error:
        if data != "cifar10":
            raise
        console.print(f"CIFAR-10 cannot be had ({error}); the embedded digits instead.", markup=False, soft_wrap=True)
        data, splits = "digits", open_source("digits")
    subset = IMAGES if len(splits.train) > IMAGES else None
    epochs = epochs or (DIGIT_EPOCHS if data == "digits" else EPOCHS)
    chosen = settings({**SMALL, "data": data, "subset": subset, "epochs": epochs})
    images = f"{subset or len(splits.train):,} images of {data}"
    console.print(f"SimCo (tau_alpha 0.1, tau_beta 1) on {images}, {epochs} epochs.", markup=False)
    metrics = start(chosen, out, How())

    chosen = complete(chosen, image_size(splits))
    seen = training_data(chosen, opened(chosen))
    if seen.bank is None or seen.test is None:
        console.print(f"\nThe set has no labels to measure with. The run is in {out}.", markup=False)
        return
    bank = few(seen.bank, chosen.knn_images)
    flat = torch.nn.Flatten()
    untrained = build_method(chosen, seen.images.channels, seen.classes).network.backbone  # pyright: ignore
    table = Table("", "right, %", title=f"\n{len(seen.test):,} test images, never trained on", title_justify="left")
    for name, encoder in (("kNN of raw pixels", flat), ("kNN of the untrained encoder", untrained)):
        parts = [clean_features(encoder, images, seen.views, torch.device("cpu")) for images in (bank, seen.test)]  # pyright: ignore
        table.add_row(name, f"{100 * knn_accuracy(*parts[0], *parts[1], k=chosen.knn).top1:.1f}")
    table.add_row("kNN of the trained encoder", f"{metrics['knn_top1']:.1f}", style="bold")
    table.add_row("linear probe of the trained encoder", f"{metrics['probe_top1']:.1f}", style="bold")
    console.print(table)
    console.print(
        f"\n{duration(time.monotonic() - began)}. The encoder is {out}/backbone.safetensors, its figures are in {out}/"
        f"metrics.jsonl.\nNext:\n  dualtemp resume {out} --epochs {2 * epochs}\n"
        f"  dualtemp train --config {out}/config.yaml --tau-beta 0.1 --out runs/one-temperature\n"
        "  dualtemp train --data FOLDER --out runs/mine\n  dualtemp train --help",
        markup=False,
        soft_wrap=True,
    )
