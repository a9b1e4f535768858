"""Somebody's own images: what was found, what is chosen for them, and how long it will take, in one paragraph."""

import os
from statistics import median
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings, given_settings
from dualtemp.data.files_in_memory import read_header
from dualtemp.data.images import FileImages, ImageSet, Splits, UnreadableImage
from dualtemp.data.loader import default_workers
from dualtemp.data.sources import named_path
from dualtemp.training.expected_time import expected_seconds
from dualtemp.training.sensible_settings import Facts, sensible
from dualtemp.training.training_data import TrainingData
from dualtemp.training.wording import duration

LOOKED_AT = 100  # headers of a folder that are read for their sizes


def with_sensible_settings(chosen: Settings, splits: Splits, device: torch.device) -> tuple[Settings, dict[str, Any]]:
    """The settings with what nobody chose, if the data are somebody's own; and what that was, else nothing."""
    if named_path(chosen.data) is None:
        return chosen, {}
    more = sensible(facts_of(splits, chosen), device.type, given_settings(chosen))
    return chosen.model_copy(update=more), more


def facts_of(splits: Splits, chosen: Settings) -> Facts:
    """What matters of the data, from their number and some headers."""
    train = splits.train if chosen.method == "supervised" else splits.pretraining
    classes = len(splits.train.classes) if splits.test is not None else 0
    if isinstance(train.pixels, FileImages):
        sizes, _ = looked_at(train.pixels)
        side = round(median(min(size) for size in sizes)) if sizes else 1
        return Facts(len(train), classes, side, in_files=True)
    return Facts(len(train), classes, max(train.size or (1, 1)), in_files=False)


def looked_at(files: FileImages) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """Heights and widths of some files, evenly chosen, and which of them cannot be read, with the reason."""
    sizes, unreadable = [], {}
    for i in range(0, len(files), max(1, len(files) // LOOKED_AT)):
        try:
            sizes.append(read_header(files, i)[0])
        except UnreadableImage as error:
            unreadable[error.name] = error.reason
    return sizes, unreadable


def introduction(
    chosen: Settings,
    more: dict[str, Any],
    splits: Splits,
    data: TrainingData,
    method: Any,
    device: torch.device,
    workers: int | None,
) -> str:
    """The paragraph that is said before the run starts: `more` is what `with_sensible_settings` chose."""
    seconds = expected_seconds(chosen, data, method, device, workers)
    time = f"Expected: about {duration(seconds)}" if seconds < 60 else f"Expected: about {duration(seconds * 1.0)}"
    return " ".join((_found(chosen, splits), _chosen(chosen, more, device), f"{time}.", _how_to_change(chosen, seconds)))


def _found(chosen: Settings, splits: Splits) -> str:
    train, test = splits.train, splits.test
    parts = [f"{_counted(len(train), 'image')} to learn from"]
    if splits.unlabelled is not None:
        parts.append(f"{len(splits.unlabelled):,} without label")
    parts.append(f"{len(test):,} held out to measure with" if test is not None else "none held out")
    classes = f"{len(train.classes)} classes" if train.classes else "no classes (only the features' spread is measured)"
    split = f" ({splits.split})" if splits.split else ""
    return f"Found in {chosen.data}: {', '.join(parts)}{split}; {classes}; {_sizes(train)}; {_unreadable(splits)}."


def _sizes(train: ImageSet) -> str:
    if not isinstance(train.pixels, FileImages):
        height, width = train.size or (0, 0)
        return f"all {width} x {height} px"
    sizes, _ = looked_at(train.pixels)
    if not sizes:
        return "sizes unknown"
    small, large = min(sizes, key=min), max(sizes, key=min)
    if len(set(sizes)) == 1:
        return f"{small[1]} x {small[0]} px"
    return f"{small[1]} x {small[0]} to {large[1]} x {large[0]} px"


def _unreadable(splits: Splits) -> str:
    known = {each.name for each in splits.unreadable}
    if isinstance(splits.train.pixels, FileImages):
        known |= set(looked_at(splits.train.pixels)[1])
    return f"{len(known)} cannot be read so far" if known else "nothing unreadable so far"


def _chosen(chosen: Settings, more: dict[str, Any], device: torch.device) -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    place = f"a CPU with {_counted(cores, 'core')}" if device.type == "cpu" else str(device)
    if not more:
        return f"All settings were given; on {place}."
    given = {"backbone", "image_size", "batch", "epochs", "lr"} - more.keys()
    why = {
        "backbone": f"{chosen.backbone}" + (", a network that a CPU trains in minutes" if device.type == "cpu" else ""),
        "image_size": f"views of {chosen.image_size} px",
        "batch": f"batches of {chosen.batch}",
        "epochs": f"{chosen.epochs} epochs",
        "lr": f"lr {chosen.lr:g}",
        "evaluate_every": f"measured every {_counted(chosen.evaluate_every, 'epoch')}",
    }
    told = ", ".join(text for name, text in why.items() if name in more)
    kept = f" As you gave them: {', '.join(sorted(given))}." if given else ""
    return f"Chosen for them on {place}: {chosen.method} with {told}.{kept}"


def _how_to_change(chosen: Settings, seconds: float) -> str:
    quicker = ""
    if seconds > 7200 and chosen.epochs > 1:
        epochs = max(1, int(chosen.epochs * 3600 / seconds))
        quicker = f" (--epochs {epochs} takes an hour)" if epochs * seconds / chosen.epochs < 5400 else ""
    return f"Any flag changes it, such as --epochs or --image-size{quicker}; Ctrl-C saves, and `dualtemp resume` goes on."


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
